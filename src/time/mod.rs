//! Time: an injected clock, and the arithmetic that turns it into ticks.

mod clock;
mod lifetime;
#[cfg(any(target_os = "linux", test))]
mod recent;
mod ticks;

pub(crate) use clock::nanos;
#[cfg(target_os = "linux")]
pub use clock::BootClock;
pub use clock::{Clock, CoarseClock, ManualClock, MonotonicClock};
pub use lifetime::{Lifetime, LifetimeError};
pub(crate) use ticks::{expressible, Ticks, NEVER};
