//! Ids of sessions, and how they are issued.

use crate::kit::id::text_of_id;
use crate::sync::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a server issues: the bits below its own id.
const ISSUED: u64 = (1 << 56) - 1;

/// Bits of an id below the milliseconds in it.
const COUNT_BITS: u32 = 16;

/// Names a session.
///
/// The bits of an id that a tracker has issued are, as in ZooKeeper:
///
/// ```text
///  63       56 55                                16 15             0
/// +-----------+------------------------------------+----------------+
/// | server id | milliseconds since 1970, mod 2^40  | count          |
/// +-----------+------------------------------------+----------------+
/// ```
///
/// The lower 56 bits are one number, which begins with the time at which the tracker was built and
/// a count of zero, and goes up by one for each id. So ids of one server are not issued again after
/// a restart, unless it has issued more than 65,536 for each millisecond that it ran, or its clock
/// was set back, or 34.8 years have gone by.
///
/// Displayed, and parsed, as `0x` and 16 hexadecimal digits. With the feature `serde` a number.
///
/// ```
/// use expiry::{SessionId, SessionTracker};
/// use std::time::Duration;
///
/// let sessions = SessionTracker::builder().server_id(0xAB).first_id(0x1F).build_manual()?;
/// let id = sessions.create(Duration::from_secs(10), 7)?.id();
/// assert_eq!(id.to_string(), "0xab0000000000001f");
/// assert_eq!(SessionId::from(u64::from(id)), id); // into a message, and back
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct SessionId(pub u64);

impl SessionId {
    /// The server that has issued it.
    #[must_use]
    pub fn server(self) -> u8 {
        self.0.to_be_bytes()[0]
    }
}

text_of_id!(SessionId, bits);

/// Issues ids: one read-modify-write each.
pub(super) struct Issuer {
    /// The server's id, in place.
    server: u64,
    next: AtomicU64,
}

impl Issuer {
    /// Begins with the lower 56 bits of `first`; without one, with the time.
    pub(super) fn new(server: u8, first: Option<u64>) -> Self {
        Issuer {
            server: u64::from(server) << 56,
            next: AtomicU64::new(first.unwrap_or_else(of_now)),
        }
    }

    /// Each id once. 0 is none, whatever the server.
    pub(super) fn issue(&self) -> SessionId {
        loop {
            // Relaxed: nothing is published, and no two read-modify-writes of it see the same.
            let number = self.next.fetch_add(1, Ordering::Relaxed) & ISSUED;
            if number != 0 {
                return SessionId(self.server | number);
            }
        }
    }
}

fn of_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    #[allow(clippy::cast_possible_truncation)] // modulo 2^40 anyway
    let millis = since.map_or(0, |since| since.as_millis() as u64);
    millis << COUNT_BITS
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/keyed_session_id.rs"]
mod tests;
