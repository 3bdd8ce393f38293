//! What the tasks of spouts and bolts have in common.

use crate::gate::Gate;
use crate::outcomes::Desks;
use expiry::{AckTracker, Clock};
use std::any::Any;
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes one in so many.
pub(crate) struct Sampler {
    /// How many there are up to the next one that is taken. Zero: none is.
    left: u32,
    every: u32,
}

impl Sampler {
    /// The first one is taken; none if `every` is 0.
    pub(crate) fn new(every: u32) -> Self {
        Sampler { left: every.min(1), every }
    }

    /// Whether the next one is taken.
    #[inline]
    pub(crate) fn is_due(&mut self) -> bool {
        let is_due = self.left == 1;
        self.left = if is_due { self.every } else { self.left.saturating_sub(1) };
        is_due
    }
}

/// When a component is ticked.
pub(crate) struct Ticks {
    every: u64,
    /// The clock reading of the next tick; `None` if there are none.
    pub(crate) due: Option<u64>,
}

impl Ticks {
    pub(crate) fn new(every: Option<Duration>, now: u64) -> Self {
        let every = every.map(nanos);
        Ticks { every: every.unwrap_or(0), due: every.map(|every| now.saturating_add(every)) }
    }

    /// Whether a tick is due, or comes early. The ticks that the task was too busy for are skipped.
    pub(crate) fn take(&mut self, now: u64, is_early: bool) -> bool {
        let is_due = self.due.is_some_and(|due| is_early || due <= now);
        if is_due {
            self.due = Some(now.saturating_add(self.every));
        }
        is_due
    }
}

/// A time in nanoseconds, at most 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Locks. What is locked here does not panic between two states.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Shared {
    /// None if there is no acking.
    pub(crate) tracker: Option<Arc<AckTracker>>,
    pub(crate) desks: Desks,
    pub(crate) clock: Arc<dyn Clock>,
    /// Nanoseconds between flushes.
    pub(crate) flush_every: u64,
    /// One latency in so many is taken.
    pub(crate) sample_every: u32,
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) gate: Gate,
    /// It is being drained: bolts need not wait for their ticks.
    pub(crate) draining: AtomicBool,
    pub(crate) stopping: AtomicBool,
}

impl Shared {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.clock.now())
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

/// What came of a step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// There was something to do: there may be more.
    pub(crate) worked: bool,
    /// The clock reading at which there is something to do, if nothing comes before.
    pub(crate) due: Option<u64>,
}

/// A task: does a little at a time, and never waits.
pub(crate) trait Task: Send {
    /// Makes the component's first instance before the task runs. Returns why it cannot.
    fn make_first(&mut self) -> Result<(), String>;

    fn step(&mut self) -> Step;

    /// Whether something has come since the last step: the last look before a thread sleeps.
    fn has_input(&self) -> bool;

    /// The last call.
    fn close(&mut self);
}

/// Drops a value of the user's. The drop may panic; the panic goes no further.
pub(crate) fn discard<T>(what: T) {
    let _ = caught(|| drop(what));
}

pub(crate) struct Panicked(String);

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.0)
    }
}

/// Calls the user's code, which may panic. Meanwhile the thread waits for no store and no topology.
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> Result<R, Panicked> {
    expiry::inside(|| unwound(f))
}

/// [`caught`], on a thread that is not the topology's: it may wait.
pub(crate) fn unwound<R>(f: impl FnOnce() -> R) -> Result<R, Panicked> {
    catch_unwind(AssertUnwindSafe(f)).map_err(panicked)
}

#[cold]
fn panicked(payload: Box<dyn Any + Send>) -> Panicked {
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    if text.is_none() {
        std::mem::forget(payload); // its drop may panic
    }
    Panicked(text.unwrap_or_else(|| "with something that is no text".to_string()))
}

/// `Debug` of a type whose fields have none: its parameters, and a format string with arguments.
macro_rules! debug {
    ([$($param:ident),*] $type:ty, |$it:ident| $($format:tt)+) => {
        impl<$($param),*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                write!(f, $($format)+)
            }
        }
    };
}

pub(crate) use debug;
