//! A stand-in for crossbeam-epoch under loom. It orders what the real one orders, and no more.
//!
//! * A pin is a relaxed read-modify-write and a SeqCst fence; an unpin is a release.
//! * A grace period begins with such a fence. It waits for the pins that its thread sees after the
//!   fence, and for no later pin: as with the real one, a later reader may be pinned at its end.
//! * The thread that ends it makes such a fence, reads those pins relaxed, and makes an acquire
//!   fence.

use crate::sync::{fence, AtomicUsize, Ordering};
use std::cell::Cell;
use std::sync::atomic::AtomicUsize as Number;
use std::sync::Arc;

/// As many threads as loom has.
const THREADS: usize = 5;

struct Local {
    /// How often its thread has pinned and unpinned: odd while it is pinned.
    turns: AtomicUsize,
    /// Number of guards that the seat's own thread has.
    guards: Cell<usize>,
}

// SAFETY: only the seat's own thread touches `guards`.
unsafe impl Sync for Local {}
// SAFETY: as above.
unsafe impl Send for Local {}

/// What is to be run when a grace period is over.
struct Deferred {
    /// The pins that it waits for: a thread's number, and its `turns` when the period began.
    pins: Vec<(usize, usize)>,
    run: Box<dyn FnOnce() + Send>,
}

struct Domain {
    locals: [Local; THREADS],
    taken: Number,
    deferred: loom::sync::Mutex<Vec<Deferred>>,
}

impl Domain {
    fn turns(&self, local: usize) -> usize {
        self.locals[local].turns.load(Ordering::Relaxed)
    }

    /// The pins that the calling thread sees.
    fn pins(&self) -> Vec<(usize, usize)> {
        fence(Ordering::SeqCst);
        // Seats that no thread has taken are not pinned yet.
        let taken = self.taken.load(std::sync::atomic::Ordering::Relaxed);
        let pins = (0..taken).map(|local| (local, self.turns(local)));
        pins.filter(|(_, turns)| turns % 2 == 1).collect()
    }
}

pub(crate) struct Collector(Arc<Domain>);

pub(crate) struct LocalHandle {
    domain: Arc<Domain>,
    local: usize,
}

pub(crate) struct Guard {
    domain: Arc<Domain>,
    local: usize,
}

impl Guard {
    pub(crate) fn defer(&self, f: impl FnOnce() + Send + 'static) {
        let mut deferred = self.domain.deferred.lock().unwrap();
        deferred.push(Deferred { pins: self.domain.pins(), run: Box::new(f) });
    }

    /// The domain has all that was deferred.
    pub(crate) fn flush(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        let local = &self.domain.locals[self.local];
        let guards = local.guards.get() - 1;
        local.guards.set(guards);
        if guards == 0 {
            local.turns.fetch_add(1, Ordering::Release);
        }
    }
}

impl LocalHandle {
    pub(crate) fn pin(&self) -> Guard {
        let local = &self.domain.locals[self.local];
        local.guards.set(local.guards.get() + 1);
        if local.guards.get() == 1 {
            // A pin goes on with the release of the unpin before it: the thread that ends a
            // period may see the later pin only. Crossbeam makes it a read-modify-write, too.
            local.turns.fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
        Guard { domain: self.domain.clone(), local: self.local }
    }
}

impl Collector {
    pub(crate) fn new() -> Self {
        Collector(Arc::new(Domain {
            locals: std::array::from_fn(|_| Local {
                turns: AtomicUsize::new(0),
                guards: Cell::new(0),
            }),
            taken: Number::new(0),
            deferred: loom::sync::Mutex::new(Vec::new()),
        }))
    }

    pub(crate) fn register(&self) -> LocalHandle {
        let local = self.0.taken.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        LocalHandle { domain: self.0.clone(), local }
    }

    /// Runs what was deferred and no longer waits for a pin.
    pub(crate) fn turn(&self) {
        let due: Vec<Deferred> = {
            let mut deferred = self.0.deferred.lock().unwrap();
            if deferred.is_empty() {
                return;
            }
            fence(Ordering::SeqCst);
            let is_held = |&(local, turns): &(usize, usize)| self.0.turns(local) == turns;
            for waiting in deferred.iter_mut() {
                waiting.pins.retain(is_held);
            }
            fence(Ordering::Acquire);
            let (due, left) = std::mem::take(&mut *deferred)
                .into_iter()
                .partition(|waiting| waiting.pins.is_empty());
            *deferred = left;
            due
        };
        for waiting in due {
            (waiting.run)();
        }
    }
}
