//! Time: an injected clock, and the arithmetic that turns it into ticks.

mod clock;
mod ticks;

pub(crate) use clock::nanos;
pub use clock::{Clock, CoarseClock, ManualClock, MonotonicClock};
pub(crate) use ticks::{Ticks, NEVER};
