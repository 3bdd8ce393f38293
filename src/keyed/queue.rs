//! Keys that must be touched to live.

use super::node::{is_plain, key_of, Ended, NoValue, Node};
use super::store::{Cause, Place, Store, Touched};
use super::StoreError;
use crate::core::engine::{Claim, Face};
use crate::core::lease::Lease;
use crate::core::slots::Slot;
use crate::error::BuildError;
use crate::setup::{Reaper, Setup};
use crate::time::{Clock, Timeout, NEVER};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

type Hasher = foldhash::fast::RandomState;
type Inner<K> = Store<K, NoValue, Hasher>;

/// Settings of an [`ExpiryQueue`].
///
/// | setting | default |
/// |---|---|
/// | [`interval`](Self::interval) | 100 ms |
/// | [`shards`](Self::shards) | the number of cores, as a power of two, at most 16 |
/// | [`capacity`](Self::capacity) | unbounded |
/// | [`clock`](Self::clock) | [`CoarseClock`](crate::CoarseClock) |
/// | [`reaper_budget`](Self::reaper_budget) | 4096 |
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct ExpiryQueueBuilder<K> {
    setup: Setup,
    _keys: std::marker::PhantomData<fn(K)>,
}

impl<K> fmt::Debug for ExpiryQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryQueueBuilder")
            .field("interval", &self.setup.interval)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueueBuilder<K> {
    /// The granularity of time: expiry times are rounded up to it. At least 10 microseconds.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.setup.interval = Some(interval);
        self
    }

    /// Into how many shards keys are spread: a power of two up to 256.
    pub fn shards(mut self, shards: usize) -> Self {
        self.setup.shards = Some(shards);
        self
    }

    /// The most keys there may be at once; beyond it new ones are refused with [`StoreError::Full`]. Exact.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.setup.capacity = Some(capacity);
        self
    }

    /// The clock to go by. One that does not run with real time is for [`build`](Self::build) only.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.setup.clock = Some(Arc::new(clock));
        self
    }

    /// How much the reaper does before it looks round again: expired keys, buckets, cascades.
    pub fn reaper_budget(mut self, budget: usize) -> Self {
        self.setup.budget = budget;
        self
    }

    /// Makes the index's hashing reproducible. Not for production.
    pub fn seed(mut self, seed: u64) -> Self {
        self.setup.seed = Some(seed);
        self
    }

    /// Builds a queue that is polled, by whoever likes.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which setting is out of range, or what the system refused.
    pub fn build(self) -> Result<ExpiryQueue<K>, BuildError> {
        Ok(ExpiryQueue {
            store: Arc::new(self.store(None)?),
            reaper: None,
        })
    }

    /// Builds a queue whose reaper thread hands what expires to `handler`.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_with_handler(
        self,
        handler: impl Fn(&K) + Send + Sync + 'static,
    ) -> Result<ExpiryQueue<K>, BuildError> {
        let budget = self.setup.budget;
        let store = Arc::new(
            self.store(Some(Box::new(move |key: &K, _: &NoValue, cause| {
                if cause == Cause::Expired {
                    handler(key);
                }
            })))?,
        );
        let reaper = store.start(budget)?;
        Ok(ExpiryQueue {
            store,
            reaper: Some(reaper),
        })
    }

    fn store(
        &self,
        listener: Option<super::store::Listener<K, NoValue>>,
    ) -> Result<Inner<K>, BuildError> {
        Store::build(&self.setup, Hasher::default(), None, None, listener)
    }
}

/// Names one stay of a key in a queue, from its insertion to its end: touching by it skips the look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(Place);

/// What [`ExpiryQueue::update`] did. Times are counted from when the queue was built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// The key was not there: it is now.
    Inserted {
        /// When it expires.
        expiry: Duration,
        /// For touching it without a look-up.
        handle: Handle,
    },
    /// It expires at another time now.
    Renewed {
        /// When.
        expiry: Duration,
    },
    /// It would have expired at this time anyway.
    Unchanged,
}

/// A key that has expired.
pub struct Expired<K: 'static>(Ended<K, NoValue>);

impl<K> Deref for Expired<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.0.key()
    }
}

impl<K: fmt::Debug> fmt::Debug for Expired<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.key().fmt(f)
    }
}

/// Keys that must be touched to live, after ZooKeeper's `ExpiryQueue`: sessions, leases, heartbeats.
///
/// Expiry times are rounded up to the interval: `(t / interval + 1) * interval` at the latest, and never early. A touch of a
/// live key is one compare-and-swap and moves nothing; it says whether it renewed the key or came too late, and of a touch
/// and an expiry that meet exactly one happens. Whatever the interleaving, no key is lost, stays for ever, expires twice, or
/// expires after a touch that said it was renewed.
///
/// ```
/// use expiry::{ExpiryQueue, ManualClock, Updated};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = ExpiryQueue::builder()
///     .interval(Duration::from_secs(1))
///     .clock(clock.clone())
///     .build()?;
/// queue.update("worker 1", Duration::from_secs(10))?;
/// queue.update("worker 2", Duration::from_secs(10))?;
/// clock.advance(Duration::from_secs(8));
/// assert!(matches!(queue.update("worker 1", Duration::from_secs(10))?, Updated::Renewed { .. }));
/// clock.advance(Duration::from_secs(3));
/// let expired: Vec<_> = queue.poll().iter().map(|key| **key).collect();
/// assert_eq!(expired, ["worker 2"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExpiryQueue<K: 'static> {
    store: Arc<Inner<K>>,
    reaper: Option<Reaper>,
}

impl<K: Hash + Eq + Send + Sync + 'static> fmt::Debug for ExpiryQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryQueue")
            .field("len", &self.len())
            .field("interval", &self.store.engine.ticks.interval())
            .field("reaper", &self.reaper.is_some())
            .finish_non_exhaustive()
    }
}

/// A driver's round whose finds go to whoever polls.
struct Collect<'a, K: 'static> {
    store: &'a Inner<K>,
    into: RefCell<&'a mut Vec<Expired<K>>>,
}

impl<K> Face for Collect<'_, K> {
    fn may_end(&self, claim: &Claim<'_>, lease: Lease) -> bool {
        self.store.may_end(claim, lease)
    }

    fn prepare(&self, slot: &Slot, lease: Lease) {
        self.store.prepare(slot, lease);
    }

    fn expired(&self, claim: Claim<'_>, _lease: Lease, _deadline: u64, _now: u64) {
        let ended = self.store.ended(&claim, None, Cause::Expired);
        self.into.borrow_mut().push(Expired(ended));
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.store.live(shard)
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Settings with defaults.
    pub fn builder() -> ExpiryQueueBuilder<K> {
        ExpiryQueueBuilder {
            setup: Setup::default(),
            _keys: std::marker::PhantomData,
        }
    }

    fn since_start(&self, tick: u64) -> Duration {
        Duration::from_nanos(tick.saturating_mul(self.store.engine.ticks.interval_nanos()))
    }

    /// Inserts the key, or renews it: it expires `timeout` from now, rounded up to the interval.
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`], and for a new key [`StoreError::Full`],
    /// [`StoreError::OutOfMemory`], [`StoreError::Closed`].
    pub fn update(&self, key: K, timeout: Duration) -> Result<Updated, StoreError> {
        let store = &*self.store;
        let deadline = store.deadline(Timeout::After(timeout))?;
        let bits = store.bits(&key);
        let expiry = self.since_start(deadline);
        Ok(match store.update(key, bits, NoValue, deadline)? {
            Ok(place) => Updated::Inserted {
                expiry,
                handle: Handle(place),
            },
            Err(Touched::Unchanged) => Updated::Unchanged,
            Err(_) => Updated::Renewed { expiry },
        })
    }

    /// Renews the key if it is there. True if it was; then it does not expire by its old time any more.
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    #[inline]
    pub fn touch(&self, key: &K, timeout: Duration) -> Result<bool, StoreError> {
        let store = &*self.store;
        let deadline = store.deadline(Timeout::After(timeout))?;
        let touched = store.touch(store.bits(key), |other| other == key, deadline);
        Ok(touched.is_alive())
    }

    /// As [`touch`](Self::touch), without the look-up.
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    #[inline]
    pub fn touch_by(&self, handle: Handle, timeout: Duration) -> Result<bool, StoreError> {
        let deadline = self.store.deadline(Timeout::After(timeout))?;
        let touched = self.store.touch_at(handle.0, deadline);
        Ok(touched.is_alive())
    }

    /// Takes the key out. When it would have expired, or `None` if it was not there.
    pub fn remove(&self, key: &K) -> Option<Duration> {
        let store = &*self.store;
        let removed = store.remove(store.bits(key), |other| other == key);
        removed.map(|(_, lease)| self.since_start(lease.deadline_near(store.engine.about_now())))
    }

    /// What has expired, all of it. Several threads may poll: each key is given to one of them. A poll that meets another one
    /// under way returns nothing. In no order.
    #[must_use]
    pub fn poll(&self) -> Vec<Expired<K>> {
        let mut expired = Vec::new();
        while self.poll_into(&mut expired, usize::MAX) {}
        expired
    }

    /// As [`poll`](Self::poll), with at most about `budget` steps of work. True if there is more to do.
    pub fn poll_into(&self, into: &mut Vec<Expired<K>>, budget: usize) -> bool {
        let engine = &self.store.engine;
        let collect = Collect {
            store: &self.store,
            into: RefCell::new(into),
        };
        let round = engine.poll_beside(engine.clock.now(), budget.max(1), &collect);
        round.is_some_and(|round| round.more)
    }

    /// Which keys expire when: expiry time to keys. O(capacity); no snapshot.
    #[must_use]
    pub fn dump(&self) -> BTreeMap<Duration, Vec<K>>
    where
        K: Clone,
    {
        let mut dump = BTreeMap::<_, Vec<K>>::new();
        self.store.each(|bits, word, deadline| {
            let key = if is_plain::<K, NoValue>() {
                key_of(bits)
            } else {
                // SAFETY: `each` is pinned, and has found it in its slot.
                unsafe { Node::<K, NoValue>::at(word) }.key().clone()
            };
            if deadline != NEVER {
                dump.entry(self.since_start(deadline))
                    .or_default()
                    .push(key);
            }
        });
        dump
    }

    /// Keys now, expired ones included that nobody has polled yet. O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: 'static> Drop for ExpiryQueue<K> {
    fn drop(&mut self) {
        self.store.shut(self.reaper.as_ref());
    }
}
