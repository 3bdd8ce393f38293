//! The reaper: one thread that drives an engine and sleeps in between.
//!
//! It sleeps until the earliest tick that any wheel knows of, without a limit when there is none, and is
//! woken for an earlier one (`engine`, W4, W10). It does nothing that `poll` does not do, so an engine is
//! driven the same way without it.

use super::engine::{Engine, Face};
use crate::sync::park::park;
use crate::sync::{AtomicBool, Ordering};
use crate::time::NEVER;

/// Drives `engine` until `stop` is set and the engine's waker called.
pub(crate) fn run<C>(engine: &Engine<C>, face: &impl Face, budget: usize, stop: &AtomicBool) {
    loop {
        engine.awake();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let began = engine.clock.now();
        let round = engine.poll(began, budget, face);
        let now = engine.clock.now();
        engine.busy.add(now.saturating_sub(began));
        engine.rounds.add(1);
        if round.more {
            continue;
        }
        // Who is at a shard that this round has left out wakes it if there is anything to come for.
        let next = round.next.unwrap_or(NEVER);
        if engine.announce(next) && !stop.load(Ordering::Acquire) {
            // Read after the announcement: a stall before it does not lengthen the sleep (Q12).
            let now = engine.clock.now();
            park((next != NEVER).then(|| engine.ticks.until(now, next)));
        }
    }
}
