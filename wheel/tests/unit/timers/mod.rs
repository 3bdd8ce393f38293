//! The public wheel: random histories beside an oracle, the bugs that other wheels had, bad input.

mod drive;
mod found;
mod named;
mod random;

use super::{Fired, Geometry, NotScheduled, Popped, Timer, TimerId, TimerWheel};
