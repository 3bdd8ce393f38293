//! What may go wrong.

use std::fmt;
use std::time::Duration;

/// An error of this crate. Each names the value that was refused, and the value that would do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NatsError {
    /// A name is not 1 to 64 of `[A-Za-z0-9_-]`.
    Name {
        /// Whose name it is.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A setting is out of range.
    Setting {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What it has to be.
        needs: &'static str,
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
    /// The stream does not exist.
    NoStream {
        /// Its name.
        stream: String,
    },
    /// A stream or consumer exists with another configuration than this crate needs.
    Mismatch {
        /// The stream or consumer, and the setting.
        what: String,
        /// The value that it has.
        found: String,
        /// The value that it needs.
        needed: String,
    },
    /// The brokers have not answered in time: there is no majority, or the connection is lost.
    Unanswered {
        /// What was asked.
        what: &'static str,
        /// After how long the caller stopped waiting.
        after: Duration,
    },
    /// The brokers refused a request.
    Refused {
        /// What was asked.
        what: &'static str,
        /// What the server says.
        why: String,
    },
    /// A payload with its headers is larger than the server takes.
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The largest size in bytes.
        max: usize,
    },
    /// The set of partitions has another number of them.
    Partitions {
        /// The set.
        set: String,
        /// How many it has.
        has: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// Another live worker has this name.
    NameTaken {
        /// The name.
        worker: String,
    },
    /// The partition has another owner by now: the server refused the write.
    Overtaken {
        /// The partition.
        partition: u32,
        /// The epoch under which the write was tried.
        epoch: u64,
    },
}

impl fmt::Display for NatsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { what, name } => {
                write!(
                    f,
                    "the {what} is named {name:?}; it takes 1 to 64 of [A-Za-z0-9_-]"
                )
            }
            Self::Setting {
                setting,
                value,
                needs,
            } => {
                write!(f, "{setting} is {value}; it has to be {needs}")
            }
            Self::Unreachable { servers, why } => {
                write!(f, "no server of {servers} answers: {why}")
            }
            Self::Denied { why } => write!(f, "the server denies it: {why}"),
            Self::TooOld { found, needed } => {
                write!(f, "nats-server is {found}; it has to be {needed} or later")
            }
            Self::NoJetStream => f.write_str("the server or the account has no JetStream"),
            Self::NoStream { stream } => write!(f, "there is no stream {stream:?}"),
            Self::Mismatch {
                what,
                found,
                needed,
            } => {
                write!(f, "{what} is {found}; it has to be {needed}")
            }
            Self::Unanswered { what, after } => {
                write!(
                    f,
                    "{what}: no answer within {after:?}; a majority of the brokers may be gone"
                )
            }
            Self::Refused { what, why } => write!(f, "{what}: {why}"),
            Self::TooLarge { size, max } => {
                write!(
                    f,
                    "a message of {size} bytes is above the server's limit of {max}"
                )
            }
            Self::Partitions { set, has, asked } => {
                write!(
                    f,
                    "the set {set:?} has {has} partitions; {asked} were asked for"
                )
            }
            Self::NameTaken { worker } => write!(f, "another live worker is named {worker:?}"),
            Self::Overtaken { partition, epoch } => {
                write!(
                    f,
                    "partition {partition} has another owner since epoch {epoch}"
                )
            }
        }
    }
}

impl std::error::Error for NatsError {}
