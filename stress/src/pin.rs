//! Threads that stay on one processor each, so that a run is repeatable and scaling is that of
//! processors.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static WANTED: AtomicBool = AtomicBool::new(false);

/// From now on [`worker`] does what it says.
pub fn want() {
    WANTED.store(true, Relaxed);
}

/// Marks the calling thread as the scenario's worker of that number. It stays on one processor, if
/// the user wants that and the system allows it.
pub fn worker(number: usize) {
    if !WANTED.load(Relaxed) {
        return;
    }
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    if !cores.is_empty() {
        core_affinity::set_for_current(cores[number % cores.len()]);
    }
}
