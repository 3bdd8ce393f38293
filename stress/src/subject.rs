//! The stores of the engine behind one trait: entries that are named by numbers.

use clap::ValueEnum;
use expiry::{
    AckError, AckTracker, BuildError, Clock, Expired, ExpiringMap, ExpiryQueue, Lifetime, Outcome,
    Outcomes, Reason, Receiver, RemovalCause, Root, RootId, ShutdownMode, StoreError, StoreMetrics,
    Tuple, WhenFull,
};
use model::mix::mix;
use serde::Serialize;
use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::*};
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Roots that a tracker issues.
    Issued,
    /// Roots that the caller chooses.
    Chosen,
    /// An expiring map.
    Map,
    /// An expiry queue, which does not grow in the scenario of that name.
    #[value(skip)]
    Queue,
}

pub const KINDS: [Kind; 4] = [Kind::Issued, Kind::Chosen, Kind::Map, Kind::Queue];

/// Called for every end, by the thread that made it.
pub type Told = Arc<dyn Fn(u64, RemovalCause) + Send + Sync>;

pub struct Setting {
    pub kind: Kind,
    pub clock: Arc<dyn Clock>,
    /// Whether it has a reaper.
    pub reaper: bool,
    /// Into how many shards, if not as many as it likes.
    pub shards: Option<usize>,
    /// How many entries it may have at once.
    pub capacity: Option<usize>,
    /// The granularity of its timeouts.
    pub interval: Duration,
    /// Seed of chosen roots, and of keys of a map: they are made of their numbers and this. Without
    /// it they are their numbers.
    pub seed: Option<u64>,
    pub told: Told,
}

/// What the engine counts.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    pub inserted: u64,
    /// Entries that were acked, failed or removed.
    pub ended: u64,
    /// Entries that were closed, delivered or not.
    pub closed: u64,
    /// Slots whose memory is held.
    pub slots: u64,
    /// Panics of the handler that were caught.
    pub panics: u64,
    /// Ends that a full channel had no room for and that were kept, and those that were dropped.
    pub spilled: u64,
    pub undelivered: u64,
}

/// Why an entry was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Full,
    OutOfMemory,
    Closed,
    /// Something that should not have happened.
    Other(&'static str),
}

/// A store with entries that are named by numbers.
pub trait Subject: Send + Sync {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal>;
    /// Renews it. False if it is not there.
    fn renew(&self, number: u64, timeout: Duration) -> bool;
    /// Ends it. False if it is not there.
    fn end(&self, number: u64) -> bool;
    /// Whether it is there, as it was begun.
    fn is_there(&self, number: u64) -> bool;
    /// Whether it can be ended once more. Not tried where that would leave something behind.
    fn ends_again(&self, number: u64) -> bool {
        self.end(number)
    }
    /// Ends what is due, but for shards that have another driver; does nothing in a handler.
    fn poll(&self);
    fn len(&self) -> usize;
    fn counts(&self) -> Counts;
    /// Stops it; the ends that this causes are delivered.
    fn shutdown(&self);
    /// As [`put`](Self::put), and calls `f` with something of the entry held: a tuple, a reference,
    /// a handle.
    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal>;
    /// Keys and values that have not been dropped.
    fn undropped(&self) -> i64 {
        0
    }
}

/// What keys and values are.
pub trait Payload: Hash + Eq + Borrow<u64> + std::fmt::Debug + Send + Sync + 'static {
    fn new(number: u64, alive: &Arc<AtomicI64>) -> Self;
    fn number(&self) -> u64 {
        *self.borrow()
    }
}

/// The value is in the slot, for as little memory as possible.
impl Payload for u64 {
    fn new(number: u64, _: &Arc<AtomicI64>) -> Self {
        number
    }
}

/// A key or a value on the heap, counted.
#[derive(Debug)]
pub struct Counted {
    number: u64,
    alive: Arc<AtomicI64>,
}

impl Payload for Counted {
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

/// A builder with the settings that all have in common.
macro_rules! set {
    ($setting:expr, $builder:expr) => {{
        let setting: &Setting = $setting;
        let mut builder = $builder.interval(setting.interval).clock(setting.clock.clone());
        if let Some(shards) = setting.shards {
            builder = builder.shards(shards);
        }
        if let Some(capacity) = setting.capacity {
            builder = builder.capacity(capacity);
        }
        builder
    }};
}

/// A builder of a tracker.
macro_rules! tracker {
    ($setting:expr) => {
        set!($setting, AckTracker::builder()).timeout(LONG).early_capacity(0)
    };
}

/// Builds one, whose keys and values are `P`.
pub fn build<P: Payload>(setting: Setting, entries: usize) -> Result<Arc<dyn Subject>, BuildError> {
    let told = setting.told.clone();
    Ok(match setting.kind {
        Kind::Issued | Kind::Chosen => {
            let handler = move |outcome: Outcome| told(outcome.owner, cause_of(&outcome));
            let builder = tracker!(&setting).on_outcome(handler);
            let tracker = if setting.reaper { builder.build()? } else { builder.build_manual()? };
            Arc::new(Trees::new(tracker, &setting, entries))
        }
        Kind::Map => {
            let listener = move |_: &P, value: &P, cause| told(value.number(), cause);
            let builder = set!(&setting, ExpiringMap::builder()).removal_listener(listener);
            Arc::new(Entries {
                map: if setting.reaper { builder.build()? } else { builder.build_manual()? },
                alive: Arc::default(),
                seed: setting.seed,
            })
        }
        Kind::Queue => {
            let builder = set!(&setting, ExpiryQueue::builder());
            let queue = if setting.reaper {
                builder
                    .expiry_listener(move |key: &P| told(key.number(), RemovalCause::Expired))
                    .build()?
            } else {
                builder.build_manual()?
            };
            Arc::new(Keys { queue, told: setting.told, alive: Arc::default() })
        }
    })
}

/// Builds a tracker or a queue that sends ends through a channel of this length. The subject itself
/// reports what a queue's callers remove, or its shutdown returns.
pub fn build_with_channel(
    setting: Setting,
    entries: usize,
    length: usize,
    when_full: WhenFull,
) -> Result<(Arc<dyn Subject>, Reader), BuildError> {
    if setting.kind == Kind::Queue {
        let builder = set!(&setting, ExpiryQueue::builder());
        let (queue, expired) = builder.build_with_channel(length, when_full)?;
        let keys = Keys::<u64> { queue, told: setting.told, alive: Arc::default() };
        return Ok((Arc::new(keys), Reader::Expired(expired)));
    }
    let (tracker, outcomes) = tracker!(&setting).build_with_channel(length, when_full)?;
    Ok((Arc::new(Trees::new(tracker, &setting, entries)), Reader::Outcomes(outcomes)))
}

/// The receiving end of a channel.
pub enum Reader {
    Outcomes(Outcomes),
    Expired(Receiver<Expired<u64>>),
    /// It was dropped.
    Gone,
}

impl Reader {
    pub fn len(&self) -> usize {
        match self {
            Reader::Outcomes(outcomes) => outcomes.len(),
            Reader::Expired(expired) => expired.len(),
            Reader::Gone => 0,
        }
    }

    pub fn next(&self) -> Option<(u64, RemovalCause)> {
        match self {
            Reader::Outcomes(outcomes) => {
                outcomes.try_next().map(|outcome| (outcome.owner, cause_of(&outcome)))
            }
            Reader::Expired(expired) => {
                expired.try_next().map(|key| (*key.key(), RemovalCause::Expired))
            }
            Reader::Gone => None,
        }
    }
}

/// The timeout of a root that has none of its own.
pub const LONG: Duration = Duration::from_secs(100 * 3600);

/// A number that looks random, another one for every entry, if that is wanted.
fn key(number: u64, seed: Option<u64>) -> u64 {
    seed.map_or(number, |seed| mix(number ^ seed.rotate_left(40)))
}

/// How a root ended.
fn cause_of(outcome: &Outcome) -> RemovalCause {
    match outcome.reason {
        Reason::TimedOut { .. } => RemovalCause::Expired,
        Reason::Cancelled => RemovalCause::Closed,
        _ => RemovalCause::Removed,
    }
}

/// The one edge of a root.
fn edge(number: u64) -> u64 {
    number << 1 | 1
}

struct Trees {
    tracker: AckTracker,
    /// The roots that were issued, as bits; none where they are chosen.
    roots: Option<Box<[AtomicU64]>>,
    seed: Option<u64>,
}

impl Trees {
    fn new(tracker: AckTracker, setting: &Setting, entries: usize) -> Self {
        // The value is not zero: the system makes pages of zeroes only when they are written.
        let roots = || (0..entries).map(|_| AtomicU64::new(u64::MAX)).collect();
        let roots = (setting.kind == Kind::Issued).then(roots);
        Trees { tracker, roots, seed: setting.seed }
    }

    fn root(&self, number: u64) -> RootId {
        match &self.roots {
            None => RootId::Chosen(key(number, self.seed)),
            Some(roots) => Root::from_bits(roots[number as usize].load(Acquire)).into(),
        }
    }
}

impl From<AckError> for Refusal {
    fn from(error: AckError) -> Self {
        match error {
            AckError::OutOfMemory => Refusal::OutOfMemory,
            AckError::Closed => Refusal::Closed,
            AckError::Full => Refusal::Full,
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
            StoreError::Full => Refusal::Full,
            _ => Refusal::Other("neither full, closed nor out of memory"),
        }
    }
}

impl Subject for Trees {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let (edge, timeout) = (edge(number), Lifetime::After(timeout));
        match &self.roots {
            None => {
                let root = key(number, self.seed);
                self.tracker.init_for(root, edge, number, timeout)?;
            }
            Some(roots) => {
                let root = self.tracker.issue_for(edge, number, timeout)?;
                roots[number as usize].store(root.to_bits(), Release);
            }
        }
        Ok(())
    }

    fn renew(&self, number: u64, timeout: Duration) -> bool {
        let timeout = Lifetime::After(timeout);
        self.tracker.reset_timeout_for(self.root(number), timeout).is_ok()
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
        // A tracker has no look-up. It would hold an ack of an unknown root as one whose init is to
        // come.
        self.tracker.reset_timeout(self.root(number)) == Ok(expiry::Done::Now)
    }

    fn ends_again(&self, number: u64) -> bool {
        // A chosen one would be held as one whose init is to come.
        self.roots.is_some() && self.end(number)
    }

    fn poll(&self) {
        self.tracker.poll(usize::MAX);
    }

    fn len(&self) -> usize {
        self.tracker.len()
    }

    fn counts(&self) -> Counts {
        let metrics = self.tracker.metrics();
        let total = metrics.total;
        Counts {
            inserted: total.inserted,
            ended: total.acked + total.failed,
            closed: total.cancelled,
            slots: total.slots,
            panics: metrics.handler_panics,
            spilled: metrics.spilled,
            undelivered: metrics.undelivered,
        }
    }

    fn shutdown(&self) {
        self.tracker.shutdown(ShutdownMode::Cancel);
    }

    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal> {
        if self.roots.is_none() {
            self.put(number, timeout)?;
            f();
            return Ok(());
        }
        let mut tuple = Tuple::root_for(&self.tracker, number, Lifetime::After(timeout))?;
        let _child = tuple.emit();
        f();
        Ok(())
    }
}

fn of_store(metrics: StoreMetrics) -> Counts {
    let total = metrics.total;
    Counts {
        inserted: total.inserted,
        ended: total.removed,
        closed: total.closed,
        slots: total.slots,
        panics: metrics.listener_panics,
        spilled: metrics.spilled,
        undelivered: metrics.undelivered,
    }
}

struct Entries<P: Payload> {
    map: ExpiringMap<P, P>,
    alive: Arc<AtomicI64>,
    seed: Option<u64>,
}

impl<P: Payload> Subject for Entries<P> {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let key = key(number, self.seed);
        let payload = |number| P::new(number, &self.alive);
        match self.map.insert_for(payload(key), payload(number), timeout) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err(Refusal::Other("replaced")),
            Err(refused) if refused.key.number() != key || refused.value.number() != number => {
                Err(Refusal::Other("gave back another key or value"))
            }
            Err(refused) => Err(refused.error.into()),
        }
    }

    fn renew(&self, number: u64, timeout: Duration) -> bool {
        self.map.touch_for(&key(number, self.seed), timeout) == Ok(true)
    }

    fn end(&self, number: u64) -> bool {
        let ended = self.map.remove(&key(number, self.seed));
        ended.is_some_and(|ended| ended.value().number() == number)
    }

    fn is_there(&self, number: u64) -> bool {
        let found = self.map.get(&key(number, self.seed));
        found.is_some_and(|value| value.number() == number)
    }

    fn poll(&self) {
        self.map.poll(usize::MAX);
    }

    fn len(&self) -> usize {
        self.map.len()
    }

    fn counts(&self) -> Counts {
        of_store(self.map.metrics())
    }

    fn shutdown(&self) {
        self.map.shutdown();
    }

    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal> {
        self.put(number, timeout)?;
        let _reference = self.map.get(&key(number, self.seed));
        f();
        Ok(())
    }

    fn undropped(&self) -> i64 {
        self.alive.load(Acquire)
    }
}

struct Keys<P: Payload> {
    queue: ExpiryQueue<P>,
    told: Told,
    alive: Arc<AtomicI64>,
}

impl<P: Payload> Subject for Keys<P> {
    fn put(&self, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let key = P::new(number, &self.alive);
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
            // The caller that removes a key knows it, so the queue calls no handler.
            (self.told)(number, RemovalCause::Removed);
        }
        removed
    }

    fn is_there(&self, number: u64) -> bool {
        self.queue.contains(&number)
    }

    fn poll(&self) {
        for key in self.queue.poll() {
            (self.told)(key.key().number(), RemovalCause::Expired);
        }
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn counts(&self) -> Counts {
        of_store(self.queue.metrics())
    }

    fn shutdown(&self) {
        for key in self.queue.shutdown() {
            (self.told)(key.key().number(), RemovalCause::Closed);
        }
    }

    fn put_and(&self, number: u64, timeout: Duration, f: &mut dyn FnMut()) -> Result<(), Refusal> {
        self.put(number, timeout)?;
        let _handle = self.queue.get(&number);
        f();
        Ok(())
    }

    fn undropped(&self) -> i64 {
        self.alive.load(Acquire)
    }
}
