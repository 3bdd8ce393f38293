//! Ctrl-C: a run ends early, with its report. A second one ends the process at once.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Handles Ctrl-C from now on.
pub fn listen() {
    // Where no handler can be set, Ctrl-C ends the process, as ever.
    let _ = ctrlc::set_handler(|| {
        if ASKED.swap(true, Relaxed) {
            std::process::exit(130);
        }
        eprintln!("\nending with a report; once more to end at once");
    });
}

/// Whether a run is to end.
#[inline]
pub fn asked() -> bool {
    ASKED.load(Relaxed)
}
