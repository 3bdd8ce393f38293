//! A timer wheel and a map in generations, each for one owner.
//!
//! [`TimerWheel`] holds values until their deadlines: schedule, move, cancel and fire in O(1).
//! [`RotatingMap`] forgets what is not renewed for so many rotations, and needs no deadline for
//! each entry. Neither reads a clock, starts a thread, takes a lock or runs anything by itself:
//! their owner says what time it is. So they suit an event loop, a simulation or a cache's expiry.
//! The crate has no dependency. (`expiry` re-exports both types; its engine schedules with the same
//! wheel.)
//!
//! ```
//! use expiry_wheel::{Geometry, TimerWheel};
//!
//! // Milliseconds; any unit will do, and any origin.
//! let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
//! let ping = wheel.schedule(10, "ping");
//! let call = wheel.schedule(25, "call");
//! wheel.schedule(3_600_000, "an hour");
//! wheel.reschedule(call, 20)?;
//! assert_eq!(wheel.cancel(ping), Some("ping"));
//! assert_eq!(wheel.expiration_delay(), Some(20));
//! while let Some(fired) = wheel.pop(20) {
//!     assert_eq!((fired.id, fired.value), (call, "call"));
//! }
//! # Ok::<(), expiry_wheel::NotScheduled>(())
//! ```
//!
//! # Time
//! A `u64` in a unit of your choice, on a circle: only differences mean anything. A time is future
//! if it is at most 2^63 units ahead of the wheel's clock, and past otherwise. So a clock may start
//! anywhere, cross zero and wrap; signed times are cast with `as u64`. In nanoseconds, 2^63 units
//! are 292 years. While limited calls leave a backlog that is more than 2^62 units old, the wheel
//! holds its clock back: late, never early.
//!
//! # Geometry
//! Deadlines are sorted into buckets by a [`Geometry`]: levels of buckets, each level as wide as a
//! bucket of the next, and an overflow for what is further away. It decides what things cost, never
//! what happens: whatever the geometry, nothing fires early, and everything due fires when the
//! clock gets there. Pick the preset of your unit; with another unit or span, [`Geometry::new`].
//! The finest bucket should be about as wide as your advances are apart, and the top level should
//! cover your usual deadlines.
//!
//! | preset | unit | finest bucket | levels | overflow beyond |
//! |---|---|---|---|---|
//! | [`TICKS`](Geometry::TICKS) | any; a tick | 1 unit | 7 of 64 | 2^42 units: of milliseconds, 139 years |
//! | [`MICROS`](Geometry::MICROS) | nanosecond | 1.02 us | 8 of 64 | 9.1 years |
//! | [`NANOS_1MS`](Geometry::NANOS_1MS) | nanosecond | 1.05 ms | 7 of 64 | 146 years |
//! | [`CAFFEINE`](Geometry::CAFFEINE) | nanosecond | 1.07 s | 64, 64, 32, 4 | 6.5 days |
//!
//! # Ways to fire
//! | you have | use |
//! |---|---|
//! | a loop that wants the values | [`pop`](TimerWheel::pop) |
//! | a callback | [`advance`](TimerWheel::advance) |
//! | a bound on the work per turn | [`advance_limited`](TimerWheel::advance_limited), [`pop_limited`](TimerWheel::pop_limited) |
//!
//! They are one mechanism and can be mixed. A fired timer is out of the wheel and yours. Between
//! two of them the wheel is whole: a callback may use it freely, and one that panics loses nothing
//! but the value that it was given.
//!
//! # Iteration
//! [`iter`](TimerWheel::iter) goes through the timers by deadline, from either end. It borrows the
//! wheel, so that a wheel that moves under an iterator does not compile; there is no such error at
//! run time. To hold on to what was seen, collect the ids: they stay valid, or turn stale, by
//! themselves.
//!
//! ```compile_fail,E0502
//! # use expiry_wheel::{Geometry, TimerWheel};
//! # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
//! # wheel.schedule(1, ());
//! for timer in wheel.iter() {
//!     wheel.cancel(timer.id);
//! }
//! ```
//!
//! # Costs
//! | call | cost |
//! |---|---|
//! | `schedule`, `reschedule` | O(1); the timer's cache line, and the end of its bucket |
//! | `cancel`, `get`, `deadline` | O(1); the timer's cache line |
//! | firing | O(1) for each timer, plus at most one refiling per level below its first one |
//! | time in which nothing is due | O(levels), a tick or a century |
//! | `expiration_delay`, `next_expiration` | O(levels) |
//! | memory | 24 bytes and the value for each timer, rounded up to a multiple of 32; 17 bytes for each of one to three records of it; 16 bytes for each of up to 577 buckets |
//!
//! Cancelling and moving a timer leave a record behind, which goes when its time has come. Where
//! there are too many of them, each timer that is scheduled drops a few. The wheel allocates only
//! when there are more timers, or records, than ever (then for 64 timers, or for as many again as
//! there are); [`reserve`](TimerWheel::reserve) does it ahead of time. All calls belong to one
//! owner (`&mut`), so no call waits for another.

#[doc(hidden)]
pub mod dense;
mod geometry;
mod id;
mod iter;
mod memory;
mod places;
mod rotating;
mod timers;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
#[path = "../tests/unit/timers/mod.rs"]
mod tests;

pub use geometry::{Geometry, GeometryError};
pub use id::TimerId;
pub use iter::{Iter, Timer};
pub use rotating::{GenerationsError, RotatingMap};
pub use timers::{Fired, NotScheduled, Popped, Progress, TimerWheel};

/// Iterators of [`RotatingMap`].
pub mod rotating_map {
    pub use crate::rotating::{Dead, IntoIter, Iter};
}
