//! What may go wrong.

use std::fmt;
use std::ops::RangeBounds;
use std::time::Duration;

/// An error of this crate. Each names the value that was refused, and the value that would do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsError {
    /// A name is not 1 to 64 of `[A-Za-z0-9_-]`.
    Name {
        /// The kind of thing that has the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A setting is out of its range.
    Setting {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: String,
        /// What it takes.
        needed: &'static str,
    },
    /// There is no such stream, or no stream takes the subject.
    NoStream {
        /// What the stream is needed for.
        what: &'static str,
        /// The stream's name, or the subject.
        name: String,
    },
    /// No server could be reached.
    Unreachable {
        /// The servers that were tried, without passwords.
        servers: String,
        /// What the client says.
        why: String,
    },
    /// The server refused the credentials, or does not permit a subject.
    Denied {
        /// What the server says.
        why: String,
    },
    /// The server is older than this crate needs.
    TooOld {
        /// The server's version.
        found: String,
        /// The oldest version that works.
        needed: &'static str,
    },
    /// The server runs without JetStream, or the account may not use it.
    NoJetStream,
    /// The set has another number of partitions.
    OtherCount {
        /// The set.
        set: String,
        /// The number that is stored.
        found: String,
        /// The number that was asked for.
        asked: u32,
    },
    /// Another live worker of the application has this name.
    NameTaken {
        /// The name.
        worker: String,
    },
    /// A later owner has claimed the partition, or the worker's lease has run out. Nothing was
    /// written.
    Late {
        /// Which partition.
        partition: u32,
        /// The epoch under which the worker owned it.
        epoch: u64,
    },
    /// The claim of a key has expired, and another claimer may be first. Nothing was written.
    ClaimExpired {
        /// The key.
        key: String,
    },
    /// The brokers have not answered in time: there is no majority, or the connection is lost.
    Unanswered {
        /// What was asked.
        what: &'static str,
        /// The time after which the caller stopped waiting.
        after: Duration,
    },
    /// The brokers refused a request.
    Refused {
        /// What was asked.
        what: &'static str,
        /// What the server says.
        why: String,
    },
}

impl NatsError {
    /// Refuses a setting that is out of its range.
    pub(crate) fn within<T: PartialOrd + fmt::Debug>(
        what: &'static str,
        found: T,
        range: impl RangeBounds<T>,
        needed: &'static str,
    ) -> Result<(), NatsError> {
        Self::unless(range.contains(&found), what, &found, needed)
    }

    /// Checks a number of brokers.
    pub(crate) fn replicas(found: usize) -> Result<(), NatsError> {
        let fits = [1, 3, 5].contains(&found);
        Self::unless(fits, "the number of replicas", &found, "1, 3 or 5")
    }

    fn unless(
        fits: bool,
        what: &'static str,
        found: &dyn fmt::Debug,
        needed: &'static str,
    ) -> Result<(), NatsError> {
        let refused = || NatsError::Setting { what, found: format!("{found:?}"), needed };
        fits.then_some(()).ok_or_else(refused)
    }
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { what, name } => {
                write!(f, "the {what} is named {name:?}; it takes 1 to 64 of [A-Za-z0-9_-]")
            }
            Self::Setting { what, found, needed } => {
                write!(f, "{what} is {found}; it takes {needed}")
            }
            Self::NoStream { what, name } => write!(f, "{what}: no stream is or takes {name:?}"),
            Self::Unreachable { servers, why } => {
                write!(f, "no server of {servers} answers: {why}")
            }
            Self::Denied { why } => write!(f, "the server denies it: {why}"),
            Self::TooOld { found, needed } => {
                write!(f, "nats-server is {found}; it has to be {needed} or later")
            }
            Self::NoJetStream => f.write_str("the server or the account has no JetStream"),
            Self::OtherCount { set, found, asked } => {
                write!(f, "the set {set:?} has {found} partitions, not {asked}")
            }
            Self::NameTaken { worker } => write!(f, "another live worker is named {worker:?}"),
            Self::Late { partition, epoch } => {
                write!(
                    f,
                    "partition {partition} is not this worker's any more; its epoch was {epoch}"
                )
            }
            Self::ClaimExpired { key } => write!(f, "the claim of the key {key:?} has expired"),
            Self::Unanswered { what, after } => {
                write!(
                    f,
                    "{what}: no answer within {after:?}; a majority of the brokers may be gone"
                )
            }
            Self::Refused { what, why } => write!(f, "{what}: {why}"),
        }
    }
}

impl std::error::Error for NatsError {}
