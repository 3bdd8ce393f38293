//! Why a call on a session failed.

use std::fmt;

/// Why something could not be done with a session.
///
/// ```
/// # use expiry::{SessionError, SessionTracker};
/// # use std::time::Duration;
/// # let sessions = SessionTracker::builder().build_manual()?;
/// let id = sessions.create(Duration::from_secs(10), 7)?.id();
/// match sessions.check(id, 8) {
///     Ok(()) => println!("go on"),
///     Err(SessionError::Moved { owner }) => assert_eq!(owner, 7), // drop this connection
///     Err(why) => println!("{why}"),                              // make the client create another one
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SessionError {
    /// There is no such session. It has expired, was removed, or never was: the tracker keeps
    /// nothing of it that would distinguish these.
    Unknown,
    /// It is being closed. It will not live again.
    Closing,
    /// Another owner has it.
    Moved {
        /// The session's owner.
        owner: u64,
    },
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::Unknown => f.write_str(
                "there is no such session (any more); make the client create another one",
            ),
            SessionError::Closing => {
                f.write_str("the session is being closed; make the client create another one")
            }
            SessionError::Moved { owner } => {
                write!(f, "the session has moved to owner {owner}; drop this client's connection")
            }
        }
    }
}

impl std::error::Error for SessionError {}
