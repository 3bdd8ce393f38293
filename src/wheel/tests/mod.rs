//! The public wheel: random histories beside an oracle, the bugs of other wheels where callbacks are concerned, bad input.

mod drive;
mod found;
mod random;

use super::{Fired, Geometry, NotScheduled, Popped, Timer, TimerId, TimerWheel};
