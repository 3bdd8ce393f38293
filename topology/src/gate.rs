//! Whether spouts are asked for messages, and how somebody can know that none is, nor is about to
//! be.

use crate::sync::{fence, AtomicBool, Ordering};

/// Opened and closed by whoever likes, for all spouts.
pub(crate) struct Gate {
    open: AtomicBool,
}

/// One spout's task: between [`enter`](Self::enter) and [`leave`](Self::leave) it may be asked.
///
/// Who closes the gate says so, and looks then whether somebody is inside; who enters says so, and
/// looks then whether the gate is still open. With a fence between the two on both sides one of
/// them sees the other: when the gate is closed and nobody is inside, nobody comes in.
#[derive(Debug, Default)]
pub(crate) struct Visitor {
    inside: AtomicBool,
}

impl Gate {
    pub(crate) fn new(open: bool) -> Self {
        Gate { open: AtomicBool::new(open) }
    }

    pub(crate) fn set(&self, open: bool) {
        // survives: stronger than needed: a full fence follows. The spout that is activated sees
        // what the user did before the gate opened.
        self.open.store(open, Ordering::Release);
        fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // survives: stronger than needed: a full fence precedes it; nothing is behind the flag.
        self.open.load(Ordering::Acquire)
    }
}

impl Visitor {
    /// Goes in, if the gate is open. Whether it did.
    pub(crate) fn enter(&self, gate: &Gate) -> bool {
        // survives: stronger than needed: a full fence follows, and nothing comes before it.
        self.inside.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let open = gate.is_open();
        if !open {
            self.leave();
        }
        open
    }

    /// After the last thing that it does inside.
    pub(crate) fn leave(&self) {
        self.inside.store(false, Ordering::Release);
    }

    pub(crate) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::Acquire)
    }
}
