//! Every structure that keeps timers, behind one trait, statically dispatched. There is one owner,
//! one thread, and values of 8 bytes.
//!
//! Time is counted in milliseconds, which the crates among the peers can do. Every peer is exact to
//! the millisecond and never early, and `tests` checks that all of them fire the same timers at the
//! same times.

mod delay_queue;
mod heap;
mod nexus;
mod plain;

pub use delay_queue::{paused, DelayQueue};
pub use heap::{CompactingHeap, Heap};
pub use nexus::NexusWheel;
pub use plain::{BTree, Nothing, Wheel};

use std::time::Duration;

pub trait Timers: Sized {
    const NAME: &'static str;
    /// Whether it does the work, or only shows what asking for it costs.
    const WORKS: bool = true;
    /// Whether it is asked in every step, or is called when there is something.
    const ASKED: bool = true;
    type Id: Copy;

    /// Makes one whose time stands at 0, of default size, and lets `f` have it.
    fn with<R>(f: impl FnOnce(Self) -> R) -> R;

    /// A timer that fires at `deadline`, which is after the present time.
    fn schedule(&mut self, deadline: u64, value: u64) -> Self::Id;

    /// Moves a timer that has not fired, and renames it if need be. `value` is its value, for peers
    /// that must insert it anew.
    fn reschedule(&mut self, id: &mut Self::Id, deadline: u64, value: u64);

    /// Takes a timer out. False if it was not there.
    fn cancel(&mut self, id: Self::Id) -> bool;

    /// Gives back the name of a timer that has fired, or is left to fire.
    #[inline]
    fn release(&mut self, _: Self::Id) {}

    /// Moves the time to `now`, in one step. `fired` gets the values of all due timers.
    fn advance(&mut self, now: u64, fired: impl FnMut(u64));

    /// What the calls of [`advance`](Self::advance) since the last time have taken, where not all
    /// of it is its own work.
    fn account(&mut self) -> Option<Account> {
        None
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Account {
    pub all: Duration,
    pub own: Duration,
}

#[cfg(test)]
mod tests;
