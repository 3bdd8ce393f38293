//! Time: an injected clock, and the arithmetic that turns it into ticks.

mod clock;
#[cfg(any(target_os = "linux", test))]
mod recent;
mod ticks;
mod timeout;

pub(crate) use clock::nanos;
pub use clock::{Clock, CoarseClock, ManualClock, MonotonicClock};
#[cfg(feature = "async")]
pub(crate) use ticks::MAX_TIMEOUT_TICKS;
pub(crate) use ticks::{Ticks, NEVER};
pub use timeout::Timeout;
