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
                what,
                found,
                needed,
            } => write!(f, "{what} is {found}; it takes {needed}"),
            Self::NoStream { what, name } => write!(f, "{what}: no stream is or takes {name:?}"),
            Self::Unreachable { servers, why } => {
                write!(f, "no server of {servers} answers: {why}")
            }
            Self::Denied { why } => write!(f, "the server denies it: {why}"),
            Self::TooOld { found, needed } => {
                write!(f, "nats-server is {found}; it has to be {needed} or later")
            }
            Self::NoJetStream => f.write_str("the server or the account has no JetStream"),
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
