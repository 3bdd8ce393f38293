//! Nobody: what the harness costs on its own.

use super::{Fired, SharedTimers};
use std::hint::black_box;
use std::time::Duration;

/// Does nothing with what it is given but look at it.
pub struct Nothing;

impl SharedTimers for Nothing {
    const NAME: &'static str = "harness alone";
    const WORKS: bool = false;
    type Id = u64;
    type Handle = ();

    fn new(_fired: &'static Fired) -> Self {
        Nothing
    }

    fn handle(&self) {}

    #[inline]
    fn schedule(&self, (): &mut (), after: Duration, value: u64) -> u64 {
        black_box(after);
        value
    }

    #[inline]
    fn cancel(&self, (): &mut (), id: u64) -> bool {
        black_box(id);
        true
    }

    fn live(&self, _scheduled: u64) -> u64 {
        0
    }
}
