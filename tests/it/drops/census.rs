//! Values that are counted: how many were made, and how often each was dropped. They stand for all
//! that tests need of keys and values, so that the compiler makes few kinds of stores.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::Arc;

/// Counts what was made and what was dropped.
#[derive(Debug, Default)]
pub struct Census {
    made: AtomicU64,
    dropped: AtomicU64,
    twice: AtomicU64,
    /// One in seven panics when it is dropped, unless its thread is [`CALM`] or panics.
    panics: bool,
}

type Hook = Box<dyn Fn(&str, &Counted)>;

thread_local! {
    pub static CALM: Cell<bool> = const { Cell::new(false) };
    static ASKED: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

impl Census {
    pub const fn zero() -> Self {
        let [made, dropped, twice] = [const { AtomicU64::new(0) }; 3];
        Census { made, dropped, twice, panics: false }
    }

    pub fn panicking() -> Arc<Self> {
        Arc::new(Census { panics: true, ..Census::zero() })
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
        self.asked("clone");
        let clone = Counted::of(&self.census, self.id);
        clone.state.store(self.state.load(SeqCst), SeqCst);
        clone
    }
}

const ALIVE: u64 = 0x5eed_5eed_0000_0000;
const ARMED: u64 = 0x5eed_5eed_ffff_ffff;
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

    /// Panics when it is dropped, as do its clones.
    pub fn armed(census: &Arc<Census>, id: u64) -> Self {
        let armed = Counted::of(census, id);
        armed.state.store(ARMED, SeqCst);
        armed
    }

    /// It does not panic any more when it is dropped.
    pub fn disarm(&self) {
        self.state.store(ALIVE, SeqCst);
    }

    /// Has this thread call `hook` before it hashes, compares or clones one, while `Asks` lives.
    pub fn when_asked(hook: impl Fn(&str, &Counted) + 'static) -> Asks {
        ASKED.set(Some(Box::new(hook)));
        Asks
    }

    fn asked(&self, how: &str) {
        ASKED.with_borrow(|hook| hook.iter().for_each(|hook| hook(how, self)));
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn census(&self) -> &Arc<Census> {
        &self.census
    }

    pub fn is_dropped(&self) -> bool {
        ![ALIVE, ARMED].contains(&self.state.load(SeqCst))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let state = self.state.swap(DROPPED, SeqCst);
        if ![ALIVE, ARMED].contains(&state) {
            self.census.twice.fetch_add(1, SeqCst);
        }
        self.census.end();
        if !std::thread::panicking() {
            let in_seven = self.census.panics && !CALM.get() && self.id % 7 == 3;
            assert!(state != ARMED && !in_seven, "as it is meant to");
        }
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.asked("eq");
        assert!(!self.is_dropped() && !other.is_dropped());
        self.id == other.id
    }
}

impl Eq for Counted {}

impl std::hash::Hash for Counted {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.asked("hash");
        self.id.hash(hasher);
    }
}

#[must_use]
pub struct Asks;

impl Drop for Asks {
    fn drop(&mut self) {
        drop(ASKED.take());
    }
}

/// A value that calls this when it is dropped.
pub struct OnDrop(Option<Box<dyn FnOnce() + Send + Sync>>);

impl OnDrop {
    pub fn new(call: impl FnOnce() + Send + Sync + 'static) -> Self {
        OnDrop(Some(Box::new(call)))
    }

    pub const NOTHING: OnDrop = OnDrop(None);
}

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|call| call());
    }
}
