//! What a thread has done, for tests of how often it does it.

use std::cell::Cell;

thread_local! {
    /// Number of calls of [`prefetch_at`](super::prefetch_at).
    pub(crate) static PREFETCHES: Cell<usize> = const { Cell::new(0) };
    /// Number of times that the thread has looked up its stripe of an engine.
    pub(crate) static LOOKUPS: Cell<usize> = const { Cell::new(0) };
}
