//! What may go wrong.

use std::fmt;
use std::ops::RangeBounds;
use std::time::Duration;

/// Why a partition, or a lease, is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// Another worker has claimed the partition, or this one has claimed it anew.
    Claimed,
    /// The brokers, or the owner of the lease's key, have confirmed nothing for three quarters of
    /// the time.
    Unanswered,
    /// The owner of the key has ended the lease: it had no renewal for the lease's time.
    Expired,
    /// The streams of the set were deleted, or made anew.
    Deleted,
    /// The worker has left the set, or [`Change::Ended`](crate::Change::Ended) says why it ended.
    Ended,
}

/// An error of this crate. Each names the value that was refused, and the value that would do.
///
/// Every function that asks the brokers may return [`Unanswered`](Self::Unanswered) or
/// [`Refused`](Self::Refused): the brokers may have done what was asked, or not. Every function
/// that takes a name or a setting may return [`Name`](Self::Name) or [`Setting`](Self::Setting).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// A name is not 1 to 64 of `[A-Za-z0-9_-]`.
    #[error("the {what} is named {name:?}; it takes 1 to 64 of [A-Za-z0-9_-]")]
    Name {
        /// The kind of thing that has the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A setting is out of its range.
    #[error("{what} is {found}; it takes {needed}")]
    Setting {
        /// Which one.
        what: &'static str,
        /// Its value.
        found: String,
        /// What it takes.
        needed: &'static str,
    },
    /// There is no such stream, or no stream takes the subject.
    #[error("{what}: no stream has the name {name:?}, or takes that subject; create one")]
    NoStream {
        /// What the stream is needed for.
        what: &'static str,
        /// The stream's name, or the subject.
        name: String,
    },
    /// No server could be reached.
    #[error("no server of {servers} answers: {why}")]
    Unreachable {
        /// The servers that were tried, without passwords.
        servers: String,
        /// What the client says.
        why: String,
    },
    /// The server refused the credentials, or does not permit a subject.
    #[error("the server denies it: {why}")]
    Denied {
        /// What the server says.
        why: String,
    },
    /// The server is older than this crate needs.
    #[error("nats-server is {found}; it has to be {needed} or later")]
    TooOld {
        /// The server's version.
        found: String,
        /// The oldest version that works.
        needed: &'static str,
    },
    /// The server runs without JetStream, or the account may not use it.
    #[error("the server or the account has no JetStream")]
    NoJetStream,
    /// The set was created with another number of partitions, lease or timeout.
    #[error("the {what} of the set {set:?} is {found:?}, not {asked:?}")]
    OtherTerms {
        /// The set. The name of a set of leases, say, ends in `+leases` here.
        set: String,
        /// Which of the terms.
        what: &'static str,
        /// What is stored.
        found: String,
        /// What was asked for.
        asked: String,
    },
    /// A later version of this crate wrote a record that this one cannot read. The worker has left
    /// the set, so that it takes nothing for absent that is there.
    #[error("the set {set:?} has a record of version {found}; this worker reads up to {reads}")]
    TooNew {
        /// The set, as in `OtherTerms`.
        set: String,
        /// The record's version.
        found: u32,
        /// The latest version that this worker reads.
        reads: u32,
    },
    /// Another live worker of the application has this name, or this worker has joined the set
    /// before: a worker joins a set once, and its tasks share clones.
    #[error("another live worker is named {worker:?}, or this one has joined the set before")]
    NameTaken {
        /// The name.
        worker: String,
    },
    /// A later owner has claimed the partition, or the worker's lease is over. Nothing was written.
    #[error(
        "partition {partition} is not this worker's any more ({why:?}); its epoch was {epoch}"
    )]
    Fenced {
        /// Which partition.
        partition: u32,
        /// The epoch under which the worker owned it.
        epoch: u64,
        /// Why the worker may not write.
        why: Loss,
    },
    /// The claim of a key has expired, and another claimer may be first. Nothing was written.
    #[error("the claim of the key {key:?} has expired")]
    ClaimExpired {
        /// The key.
        key: String,
    },
    /// The brokers have not answered in time: there is no majority, or the connection is lost.
    #[error("{what}: no answer within {after:?}; a majority of the brokers may be gone")]
    Unanswered {
        /// What was asked.
        what: &'static str,
        /// The time after which the caller stopped waiting.
        after: Duration,
    },
    /// The brokers refused a request.
    #[error("{what}: {why}")]
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

    pub(crate) fn refused(what: &'static str, why: &dyn fmt::Display) -> NatsError {
        NatsError::Refused { what, why: why.to_string() }
    }

    /// Checks a name that becomes part of a subject or of a stream's name: one token of a subject.
    pub(crate) fn name(what: &'static str, name: &str) -> Result<(), NatsError> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let fits = (1..=64).contains(&name.len()) && name.bytes().all(fits);
        fits.then_some(()).ok_or_else(|| NatsError::Name { what, name: name.to_string() })
    }

    pub(crate) fn replicas(found: usize) -> Result<(), NatsError> {
        let fits = [1, 3, 5].contains(&found);
        Self::unless(fits, "the number of replicas", &found, "1, 3 or 5")
    }

    pub(crate) fn unless(
        fits: bool,
        what: &'static str,
        found: &dyn fmt::Debug,
        needed: &'static str,
    ) -> Result<(), NatsError> {
        let refused = || NatsError::Setting { what, found: format!("{found:?}"), needed };
        fits.then_some(()).ok_or_else(refused)
    }
}
