//! What a poll returns.

use crate::core::engine::{Deadlines, Round};
use std::time::Duration;

/// What a call of `poll` left behind, in every store.
///
/// ```
/// # use expiry::{edge, AckTracker, ManualClock};
/// # let clock = ManualClock::new();
/// # let tracker = AckTracker::builder().clock(clock.clone()).build_manual()?;
/// # tracker.issue(edge(), 42)?;
/// loop {
///     let polled = tracker.poll(1000);
///     if polled.more {
///         continue; // or do something else first
///     }
///     if tracker.is_empty() {
///         break; // a simulation is over; `next` may have something to do all the same
///     }
///     if let Some(next) = polled.next {
///         clock.advance(next); // or sleep, or wait until something comes in
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Polled {
    /// Whether the budget ran out before the work did: call again at once. A tracker's and
    /// `Timeouts`' polls also say so if other threads were driving some of the shards, which the
    /// call left out; yield first then.
    pub more: bool,
    /// How long from now until there may be something to do, if nothing else happens; `None` if
    /// never.
    ///
    /// It is an upper bound for a thread that sleeps, and no sign that anything is live. The
    /// old deadline of an entry that has ended, or was renewed, counts until it has come. So does
    /// giving memory back, up to a second after a burst. `is_empty()` says whether all is done. An
    /// entry that begins later with a nearer deadline does not wake a thread that sleeps so long.
    pub next: Option<Duration>,
}

impl Polled {
    /// What a round says that began by this reading of the clock.
    pub(crate) fn of(round: Round, reading: Option<u64>, deadlines: &Deadlines) -> Self {
        Polled { more: round.more, next: round.next.map(|tick| deadlines.wait(reading, tick)) }
    }
}

/// What calls of `poll` take, until one leaves nothing.
pub(crate) fn poll_all<E>(mut poll: impl FnMut(&mut Vec<E>) -> Polled) -> Vec<E> {
    let mut items = Vec::new();
    while poll(&mut items).more {}
    items
}
