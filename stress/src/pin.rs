//! Threads that stay on a processor each, so that a run is repeatable and scaling is that of processors.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static WANTED: AtomicBool = AtomicBool::new(false);

/// From now on [`worker`] does what it says.
pub fn want() {
    WANTED.store(true, Relaxed);
}

/// This is a scenario's worker of that number: it stays on one processor, if that is wanted and the system lets it.
pub fn worker(number: usize) {
    if !WANTED.load(Relaxed) {
        return;
    }
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[number % cores.len()]);
    }
}
