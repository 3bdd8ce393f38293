//! The public wheel: a slab of values over the dense wheel.
//!
//! A timer is one node of the dense wheel. The node's payload is a [`Place`]: the timer's serial
//! and its value. So an operation by id touches that node, and no other place.
//!
//! | module | mechanism |
//! |---|---|
//! | [`change`] | scheduling, moving and cancelling a timer |
//! | [`fire`] | handing out what is due, and rearming it |
//! | [`look`] | what the wheel holds, and when it is worth advancing |
//! | [`slab`] | which places are free; memory |
//! | `validate` | the invariants below, checked |
//!
//! # Invariants
//! The validator checks them after every step, with those of the dense wheel.
//! - **T-live.** A place holds a value if and only if it is scheduled.
//! - **T-free.** Every place without a value is among the free ones once. The place that was fired
//!   last is the exception.
//! - **T-last.** The place that was fired last keeps its serial for [`TimerWheel::rearm`] until the
//!   wheel fires another timer.

mod change;
mod fire;
mod look;
mod slab;
#[cfg(any(test, fuzzing))]
mod validate;

pub use change::NotScheduled;
pub use fire::{Fired, Popped, Progress};

use super::dense::{Payload, Wheel};
use super::id::{Serials, TimerId};
use super::places::Places;
use super::Geometry;
use std::fmt;
use std::num::NonZeroU64;

/// What a place of the slab holds: the payload of its node.
#[derive(Default)]
pub(super) enum Place<T> {
    /// No timer.
    #[default]
    Free,
    Live {
        serial: NonZeroU64,
        value: T,
    },
}

impl<T> Place<T> {
    #[inline]
    fn is(&self, id: TimerId) -> bool {
        matches!(self, Place::Live { serial, .. } if *serial == id.serial)
    }
}

/// Half a cache line: a node with a value of up to eight bytes does not lie across two lines.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Half;

impl<T> Payload for Place<T> {
    type Align = Half;
}

/// Holds values until their deadlines, for one owner. See [the module](super) for time, geometry
/// and costs.
///
/// ```
/// use expiry_wheel::{Geometry, TimerWheel};
///
/// let mut wheel = TimerWheel::new(Geometry::NANOS_1MS, 0); // nanoseconds
/// let second = 1_000_000_000;
/// wheel.schedule(second, "beat");
/// let mut beats = 0;
/// for now in 0..=10 {
///     wheel.advance(now * second, |wheel, fired| {
///         beats += 1;
///         let next = fired.deadline + second;
///         wheel.rearm(fired, next);
///     });
/// }
/// assert_eq!(beats, 10);
/// ```
pub struct TimerWheel<T> {
    wheel: Wheel<Place<T>>,
    serials: Serials,
    /// The places that hold no value, but for that of `last`.
    free: Places,
    /// The timer that was fired last, if its place is kept for it.
    last: Option<TimerId>,
}

impl<T> TimerWheel<T> {
    /// The most timers that a wheel can hold, some 4.29 billion.
    pub const MAX_TIMERS: usize = Wheel::MAX_ID as usize + 1;

    /// An empty wheel whose clock stands at `now`.
    ///
    /// The call allocates nothing. The first timer makes the buckets: up to 577 of 16 bytes.
    #[must_use]
    pub fn new(geometry: Geometry, now: u64) -> TimerWheel<T> {
        TimerWheel {
            wheel: Wheel::with_payload(geometry, now),
            serials: Serials::new(),
            free: Places::new(),
            last: None,
        }
    }
}

impl<T> fmt::Debug for TimerWheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("geometry", self.geometry())
            .field("now", &self.now())
            .field("len", &self.len())
            .field("next_expiration", &self.next_expiration())
            .finish_non_exhaustive()
    }
}
