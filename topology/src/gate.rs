//! The gate says whether spouts are asked for messages. A thread that closes it can find out that
//! no spout is asked, nor is about to be.

use crate::sync::{fence, AtomicBool, Ordering};

/// Any thread may open and close the gate. It is one for all spouts.
pub struct Gate {
    open: AtomicBool,
    /// Whether it is open, or was before.
    has_opened: AtomicBool,
}

/// One spout's task: between [`enter`](Self::enter) and [`leave`](Self::leave) it may be asked.
///
/// A thread that closes the gate first stores that, then looks whether the task is inside. A task
/// that enters first stores that, then looks whether the gate is open. Both have a fence in
/// between, so one of them sees the other. Once it is closed and no task is inside, none enters.
#[derive(Debug, Default)]
pub struct Visitor {
    inside: AtomicBool,
}

impl Gate {
    /// A gate that is open, or has never been.
    pub fn new(open: bool) -> Self {
        Gate { open: AtomicBool::new(open), has_opened: AtomicBool::new(open) }
    }

    /// Opens or closes the gate.
    pub fn set(&self, open: bool) {
        if open {
            // Pairs with `has_opened`: an instance that is made sees what the user did before.
            // survives: no model asks `has_opened`.
            self.has_opened.store(true, Ordering::Release);
        }
        // survives: stronger than needed: a full fence follows. The spout that is activated sees
        // what the user did before the gate opened.
        self.open.store(open, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    /// Whether the gate is open.
    #[inline]
    pub fn is_open(&self) -> bool {
        // survives: stronger than needed: a full fence precedes it; nothing is behind the flag.
        self.open.load(Ordering::Acquire)
    }

    /// Whether the gate is open, or was before.
    pub fn has_opened(&self) -> bool {
        self.has_opened.load(Ordering::Acquire)
    }
}

impl Visitor {
    /// Goes in, if the gate is open. Whether it did.
    pub fn enter(&self, gate: &Gate) -> bool {
        // survives: stronger than needed: a full fence follows, and nothing comes before it.
        self.inside.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let open = gate.is_open();
        if !open {
            self.leave();
        }
        open
    }

    /// Leaves. The task calls this after the last thing that it does inside.
    pub fn leave(&self) {
        self.inside.store(false, Ordering::Release);
    }

    /// Whether the task is inside.
    pub fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }
}
