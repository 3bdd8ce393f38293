//! What faults are injected into: the faces of the engine, behind one trait.

use super::book::End;
use expiry::{
    AckError, AckTracker, AckTrackerBuilder, Cause, Clock, ExpiringMap, ExpiryQueue, Fate, Outcome,
    Reason, Root, RootId, StoreError, Timeout, Tuple,
};
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::Duration;

/// Which face.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Roots that a tracker issues.
    Issued,
    /// Roots that the caller chooses.
    Chosen,
    /// A map from keys to values that are both on the heap.
    Map,
    /// A queue of keys that are on the heap.
    Queue,
}

/// All of them.
pub const KINDS: [Kind; 4] = [Kind::Issued, Kind::Chosen, Kind::Map, Kind::Queue];

/// Told of every end, by the thread that made it.
pub type Told = Arc<dyn Fn(u64, End) + Send + Sync>;

/// How a subject is built.
pub struct Setting {
    /// Which face.
    pub kind: Kind,
    /// Its clock.
    pub clock: Arc<dyn Clock>,
    /// Whether it has a reaper.
    pub reaper: bool,
    /// Into how many shards.
    pub shards: usize,
    /// Told of ends.
    pub told: Told,
}

/// Why an entry was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There was no memory.
    OutOfMemory,
    /// It was shut down.
    Closed,
    /// Something that should not have happened.
    Other(&'static str),
}

/// A face with entries that are named by numbers.
pub trait Subject: Send + Sync {
    /// Begins an entry.
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal>;
    /// Renews it. False if it is not there.
    fn renew(&self, number: u64, timeout: Duration) -> bool;
    /// Ends it. False if it is not there.
    fn end(&self, number: u64) -> bool;
    /// Whether it can be found. Looks at every slot of a tracker.
    fn is_there(&self, number: u64) -> bool;
    /// Ends what is due, but for what others are at; nothing in a handler.
    fn poll(&self);
    /// Entries now.
    fn len(&self) -> usize;
    /// Slots whose memory is held.
    fn slots(&self) -> u64;
    /// Panics of the handler that were caught.
    fn panics(&self) -> u64;
    /// Stops it; what that ends is told.
    fn shutdown(&self);
    /// As [`put`](Self::put), and calls `f` with something of the entry held: a tuple, a reference, a handle.
    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal>;
    /// Entries that were closed, told or not; of a queue.
    fn closed(&self) -> u64;
    /// Keys and values that have not been dropped.
    fn undropped(&self) -> i64;
}

/// A key or a value on the heap, counted.
#[derive(Debug)]
pub struct Counted {
    number: u64,
    alive: Arc<AtomicI64>,
}

impl Counted {
    fn new(number: u64, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, AcqRel);
        Counted { number, alive: alive.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, AcqRel);
    }
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.number.hash(hasher);
    }
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Counted {}

impl Borrow<u64> for Counted {
    fn borrow(&self) -> &u64 {
        &self.number
    }
}

/// Builds one.
///
/// # Errors
///
/// As the builders.
pub fn build(setting: Setting, entries: usize) -> Result<Arc<dyn Subject>, expiry::BuildError> {
    let (clock, told) = (setting.clock, setting.told);
    Ok(match setting.kind {
        Kind::Issued | Kind::Chosen => {
            let now = clock.clone();
            let handler = move |outcome: &Outcome| told(outcome.owner, end_of(outcome, now.now()));
            let builder =
                tracker(setting.shards).clock(clock).early_capacity(0).on_outcome(handler);
            Arc::new(Trees {
                tracker: if setting.reaper { builder.build()? } else { builder.build_manual()? },
                roots: (setting.kind == Kind::Issued)
                    .then(|| (0..entries).map(|_| AtomicU64::new(0)).collect()),
            })
        }
        Kind::Map => {
            let now = clock.clone();
            let builder = ExpiringMap::builder()
                .interval(INTERVAL)
                .shards(setting.shards)
                .clock(clock)
                .on_end(move |_: &Counted, value: &Counted, cause: Cause| {
                    let end = match cause {
                        Cause::Expired => End::Expired(now.now()),
                        Cause::Closed => End::Closed,
                        _ => End::Ended,
                    };
                    told(value.number, end);
                });
            Arc::new(Entries {
                map: if setting.reaper { builder.build()? } else { builder.build_manual()? },
                alive: Arc::default(),
            })
        }
        Kind::Queue => {
            let builder = ExpiryQueue::builder()
                .interval(INTERVAL)
                .shards(setting.shards)
                .clock(clock.clone());
            let queue = if setting.reaper {
                let (told, clock) = (told.clone(), clock.clone());
                builder.build_with_handler(move |key: &Counted| {
                    told(key.number, End::Expired(clock.now()));
                })?
            } else {
                builder.build()?
            };
            Arc::new(Keys { queue, clock, told, alive: Arc::default() })
        }
    })
}

/// The granularity of all subjects.
pub const INTERVAL: Duration = Duration::from_millis(1);

/// A tracker's settings, of those that all faults share.
pub fn tracker(shards: usize) -> AckTrackerBuilder {
    AckTracker::builder().interval(INTERVAL).timeout(Duration::from_secs(60)).shards(shards)
}

/// How a root ended.
pub fn end_of(outcome: &Outcome, now: u64) -> End {
    match outcome.reason {
        Reason::TimedOut { .. } => End::Expired(now),
        Reason::Cancelled => End::Closed,
        _ => End::Ended,
    }
}

/// The one edge of a root.
pub fn edge(number: u64) -> u64 {
    number << 1 | 1
}

struct Trees {
    tracker: AckTracker,
    /// The roots that were issued, as bits; none where they are chosen.
    roots: Option<Box<[AtomicU64]>>,
}

impl Trees {
    fn root(&self, number: u64) -> RootId {
        match &self.roots {
            None => RootId::Chosen(number),
            Some(roots) => Root::from_bits(roots[number as usize].load(Acquire)).into(),
        }
    }
}

impl From<AckError> for Refusal {
    fn from(error: AckError) -> Self {
        match error {
            AckError::OutOfMemory => Refusal::OutOfMemory,
            AckError::Closed => Refusal::Closed,
            AckError::Full => Refusal::Other("full"),
            AckError::Duplicate => Refusal::Other("duplicate"),
            _ => Refusal::Other("neither full, closed nor out of memory"),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::OutOfMemory => Refusal::OutOfMemory,
            StoreError::Closed => Refusal::Closed,
            StoreError::Full => Refusal::Other("full"),
            _ => Refusal::Other("neither full, closed nor out of memory"),
        }
    }
}

impl Subject for Trees {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let (edge, timeout) = (edge(number), Timeout::After(timeout));
        match &self.roots {
            None => self.tracker.init_with(number, edge, number, timeout)?,
            Some(roots) => {
                let root = self.tracker.issue_with(edge, number, timeout)?;
                roots[number as usize].store(root.to_bits(), Release);
            }
        }
        Ok(())
    }

    fn renew(&self, number: u64, timeout: Duration) -> bool {
        let timeout = Timeout::After(timeout);
        self.tracker.reset_timeout_to(self.root(number), timeout).is_ok()
    }

    fn end(&self, number: u64) -> bool {
        let root = self.root(number);
        // Half by an ack, half by a fail.
        if number & 1 == 0 {
            self.tracker.ack(root, edge(number)).is_ok()
        } else {
            self.tracker.fail(root).is_ok()
        }
    }

    fn is_there(&self, number: u64) -> bool {
        // A tracker has no look-up but its lists.
        let root = self.root(number);
        let found = self.tracker.owned_by(number);
        found.iter().any(|of| of.root == root)
    }

    fn poll(&self) {
        self.tracker.poll(usize::MAX);
    }

    fn len(&self) -> usize {
        self.tracker.len()
    }

    fn slots(&self) -> u64 {
        self.tracker.metrics().total.slots
    }

    fn panics(&self) -> u64 {
        self.tracker.metrics().handler_panics
    }

    fn shutdown(&self) {
        self.tracker.shutdown(Fate::Cancel);
    }

    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal> {
        if self.roots.is_none() {
            self.put(number, timeout)?;
            f();
            return Ok(());
        }
        let mut tuple = Tuple::root_with(&self.tracker, number, Timeout::After(timeout))?;
        let _child = tuple.emit();
        f();
        Ok(())
    }

    fn closed(&self) -> u64 {
        self.tracker.metrics().total.cancelled
    }

    fn undropped(&self) -> i64 {
        0
    }
}

struct Entries {
    map: ExpiringMap<Counted, Counted>,
    alive: Arc<AtomicI64>,
}

impl Subject for Entries {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let counted = || Counted::new(number, &self.alive);
        match self.map.insert_with(counted(), counted(), timeout) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Refusal::Other("replaced")),
            Err(refused) if refused.key.number != number || refused.value.number != number => {
                Err(Refusal::Other("gave back another key or value"))
            }
            Err(refused) => Err(refused.error.into()),
        }
    }

    fn renew(&self, number: u64, timeout: Duration) -> bool {
        self.map.touch_with(&number, timeout) == Ok(true)
    }

    fn end(&self, number: u64) -> bool {
        self.map.remove(&number).is_some()
    }

    fn is_there(&self, number: u64) -> bool {
        self.map.contains_key(&number)
    }

    fn poll(&self) {
        self.map.poll(usize::MAX);
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn slots(&self) -> u64 {
        self.map.metrics().total.slots
    }

    fn panics(&self) -> u64 {
        self.map.metrics().listener_panics
    }

    fn shutdown(&self) {
        self.map.shutdown();
    }

    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal> {
        self.put(number, timeout)?;
        let _reference = self.map.get(&number);
        f();
        Ok(())
    }

    fn closed(&self) -> u64 {
        self.map.metrics().total.closed
    }

    fn undropped(&self) -> i64 {
        self.alive.load(Acquire)
    }
}

struct Keys {
    queue: ExpiryQueue<Counted>,
    clock: Arc<dyn Clock>,
    told: Told,
    alive: Arc<AtomicI64>,
}

impl Subject for Keys {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let key = Counted::new(number, &self.alive);
        match self.queue.update(key, timeout)? {
            expiry::Updated::Inserted { .. } => Ok(()),
            _ => Err(Refusal::Other("was there")),
        }
    }

    fn renew(&self, number: u64, timeout: Duration) -> bool {
        self.queue.touch(&number, timeout) == Ok(true)
    }

    fn end(&self, number: u64) -> bool {
        let removed = self.queue.remove(&number).is_some();
        if removed {
            // Who removes a key knows it; no handler is told.
            (self.told)(number, End::Ended);
        }
        removed
    }

    fn is_there(&self, number: u64) -> bool {
        self.queue.contains(&number)
    }

    fn poll(&self) {
        for key in self.queue.poll() {
            (self.told)(key.key().number, End::Expired(self.clock.now()));
        }
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn slots(&self) -> u64 {
        self.queue.metrics().total.slots
    }

    fn panics(&self) -> u64 {
        self.queue.metrics().listener_panics
    }

    fn shutdown(&self) {
        for key in self.queue.shutdown() {
            (self.told)(key.key().number, End::Closed);
        }
    }

    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal> {
        self.put(number, timeout)?;
        let _handle = self.queue.get(&number);
        f();
        Ok(())
    }

    fn closed(&self) -> u64 {
        self.queue.metrics().total.closed
    }

    fn undropped(&self) -> i64 {
        self.alive.load(Acquire)
    }
}
