//! Values that are counted: how many were made, and how often each was dropped.

use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;

/// Counts what was made and what was dropped.
#[derive(Debug, Default)]
pub struct Census {
    made: AtomicU64,
    dropped: AtomicU64,
    twice: AtomicU64,
}

impl Census {
    pub const fn zero() -> Self {
        Census { made: AtomicU64::new(0), dropped: AtomicU64::new(0), twice: AtomicU64::new(0) }
    }

    pub fn new() -> Arc<Self> {
        Arc::new(Census::zero())
    }

    pub fn made(&self) -> u64 {
        self.made.load(SeqCst)
    }

    /// How many there are. Panics if one was dropped twice.
    pub fn left(&self) -> u64 {
        assert_eq!(self.twice.load(SeqCst), 0, "dropped twice");
        // In this order: what is dropped was made before.
        let dropped = self.dropped.load(SeqCst);
        self.made.load(SeqCst) - dropped
    }

    pub fn begin(&self) {
        self.made.fetch_add(1, SeqCst);
    }

    pub fn end(&self) {
        self.dropped.fetch_add(1, SeqCst);
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Counted::of(&self.census, self.id)
    }
}

const ALIVE: u64 = 0x5eed_5eed_0000_0000;
const DROPPED: u64 = 0xdead_dead_0000_0000;

/// A value that is counted, and notes in its own memory that it was dropped.
#[derive(Debug)]
pub struct Counted {
    state: AtomicU64,
    id: u64,
    census: Arc<Census>,
}

impl Counted {
    pub fn new(census: &Arc<Census>) -> Self {
        Counted::of(census, 0)
    }

    pub fn of(census: &Arc<Census>, id: u64) -> Self {
        census.begin();
        Counted { state: AtomicU64::new(ALIVE), id, census: census.clone() }
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn census(&self) -> &Arc<Census> {
        &self.census
    }

    pub fn is_dropped(&self) -> bool {
        self.state.load(SeqCst) != ALIVE
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if self.state.swap(DROPPED, SeqCst) != ALIVE {
            self.census.twice.fetch_add(1, SeqCst);
        }
        self.census.end();
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.is_dropped() && !other.is_dropped());
        self.id == other.id
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.id.hash(hasher);
    }
}
