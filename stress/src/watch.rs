//! Whether a run goes on. If nothing has moved for long, something is stuck, in the engine or here.
//! The run then ends with a report that says so, and leaves the stuck thread behind.

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::options::Scenario;
use crate::perform;
use crate::report::Report;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The check that a run goes on.
const NOBODY_STUCK: Check = "nobody_stuck";
/// How often it is looked whether something has moved.
const LOOK: Duration = Duration::from_millis(100);

/// What has moved last: any number that is another one then.
static MOVED: AtomicU64 = AtomicU64::new(0);

/// Something has moved if this is another number than before.
pub fn moved(to: u64) {
    MOVED.store(to, Relaxed);
}

/// Runs a scenario, for as long as something moves at least every so often.
pub fn over(scenario: &Arc<Scenario>, limit: Duration) -> Result<Report, Error> {
    let name = match **scenario {
        Scenario::Wordcount(_) => "wordcount",
        Scenario::Ack(_) => "ack",
        Scenario::Cache(_) => "cache",
        Scenario::Histories(_) => "histories",
        Scenario::Growth(_) => "growth",
        // The first process looks after a worker, and these after what they run.
        Scenario::Nats(ref options) if options.worker.is_some() => return perform(scenario, limit),
        Scenario::Nats(_) => "nats",
        Scenario::Faults(_) | Scenario::Hostile(_) | Scenario::Soak(_) => {
            return perform(scenario, limit)
        }
    };
    let own = scenario.clone();
    let began = Instant::now();
    let (mut seen, mut since) = (MOVED.load(Relaxed), began);
    let is_stuck = || {
        let now = MOVED.load(Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        since.elapsed() > limit
    };
    match apart(move || perform(&own, limit), LOOK, is_stuck) {
        Some(Ok(report)) => report.map(|mut report| {
            report.checks.insert(NOBODY_STUCK, true);
            report
        }),
        Some(Err(panicked)) => std::panic::resume_unwind(panicked),
        None => {
            let checks = Checks::new(&[NOBODY_STUCK]);
            checks.violated(NOBODY_STUCK, || {
                format!("nothing has moved for {limit:?}; see where each thread is: gdb, or a core")
            });
            Ok(Report::new(name, ("operations", 0), began.elapsed(), 0, &checks, &()))
        }
    }
}

/// Runs `f` on a thread of its own, to the end of that thread. It calls `gives_up` every so often;
/// once that returns true, it leaves the thread behind and returns `None`.
pub fn apart<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
    every: Duration,
    mut gives_up: impl FnMut() -> bool,
) -> Option<std::thread::Result<T>> {
    let (alive, over) = channel::<()>();
    let thread = std::thread::spawn(move || {
        let _alive = alive;
        f()
    });
    // Nothing is ever sent: it ends when the thread has dropped its end.
    while over.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        if gives_up() {
            return None;
        }
    }
    Some(thread.join())
}
