//! Things in flight, by value, under keys that the caller chooses.
//!
//! This is a [`Store`] that never lends a value. Only the thread that has ended an entry touches
//! its value ([`Given`]), and takes it at once; other threads look at keys alone. So a caller gets
//! the value itself, whatever other threads do. The store frees the slot, with the key, later.

mod builder;
mod entry;

pub use builder::PendingMapBuilder;
pub use entry::{PendingEntry, PendingMapError};

use super::given::{Gone, Item};
use super::removed::Removed;
use super::store::{Entered, Hindered, RemovalCause, Store, Wanted};
use super::{StoreError, StoreMetrics};
use crate::hash::RandomState;
use crate::kit::handle::handle;
use crate::kit::lifecycle::Owner;
use crate::kit::polled::{poll_all, Polled};
use crate::kit::target::shutdowns;
use crate::sync::cell::Given;
use crate::time::{Lifetime, LifetimeError, NEVER};
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

type Inner<K, T> = Store<K, Given<T>>;
type Shared<K, T> = super::given::Shared<K, Given<T>, PendingEntry<K, T>>;

/// Takes the value of an entry that the caller has ended.
fn take<K, T>(gone: &Gone<'_, K, Given<T>>) -> T {
    // SAFETY: an entry ends once, and each of this module's ends comes here once, on the thread
    // that made it. No other thread touches values.
    unsafe { gone.value().take() }
}

impl<K: 'static, T: 'static> Item<K, Given<T>> for PendingEntry<K, T> {
    type Listener = dyn Fn(&K, T) + Send + Sync;
    type Rest = T;
    type Extra = ();

    const HAS_VALUE: bool = true;

    fn of(shared: &Shared<K, T>, gone: Gone<'_, K, Given<T>>, cause: RemovalCause, _: u64) -> Self {
        let value = take(&gone);
        PendingEntry::in_map(Removed::kept(gone, shared.store.clone(), cause), value)
    }

    fn tell(_: &Shared<K, T>, gone: Gone<'_, K, Given<T>>, listener: Option<&Self::Listener>) {
        let value = take(&gone);
        if let Some(listener) = listener {
            listener(gone.key(), value);
        }
    }

    fn rest(_: &Shared<K, T>, gone: Gone<'_, K, Given<T>>) -> T {
        take(&gone)
    }
}

/// Values that wait for something, each under a key of the caller's: request ids of the other side,
/// file names, connections.
///
/// A [`PendingTable`](crate::PendingTable) issues the keys itself, and is faster. Each value leaves
/// the map once, by value: to the call that [takes](Self::take) or replaces it, or, when its
/// timeout has passed, to the listener, channel, stream or poll. No value is lent, so `take` always
/// gives it.
///
/// ```
/// use expiry::PendingMap;
/// use std::{sync::mpsc, time::Duration};
///
/// let uploads = PendingMap::builder()
///     .expiry_listener(|name: &String, done: mpsc::Sender<&str>| {
///         println!("{name} has stalled");
///         drop(done.send("stalled"));
///     })
///     .build()?;
/// let (done, result) = mpsc::channel();
/// uploads.insert("a.txt".to_string(), done, Duration::from_secs(30))?;
/// assert!(uploads.touch("a.txt", Duration::from_secs(30))?); // progress
/// if let Some(done) = uploads.take("a.txt") {
///     done.send("complete")?;
/// }
/// assert_eq!(result.recv()?, "complete");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`insert`](Self::insert), [`try_insert`](Self::try_insert), [`take`](Self::take) | lock-free |
/// | [`touch`](Self::touch) | at most one compare-and-swap; moves nothing |
/// | [`cancel_all`](Self::cancel_all) | O(entries) |
/// | memory of a value | a slot of 8 bytes, key and value; 5 bytes; 16 to 29 in the index |
///
/// # Time, panics
///
/// A value whose time is up is there until the reaper, or a poll, has come to it: it can be taken,
/// or renewed. A key's `Eq` that panics in an insertion leaks the value. An insertion that finds
/// the map full expires what is due, and calls the listener.
#[doc(alias = "DelayQueue")]
pub struct PendingMap<K: 'static, T: 'static> {
    shared: Arc<Shared<K, T>>,
    hasher: RandomState,
    owner: Arc<Owner<Shared<K, T>>>,
}

handle!(PendingMap<K, T> { shared, hasher, owner } by shared.store, room);

impl<K, T> PendingMap<K, T>
where
    K: Hash + Eq + Send + Sync + 'static,
    T: Send + 'static,
{
    /// Settings with defaults.
    pub fn builder() -> PendingMapBuilder<K, T> {
        PendingMapBuilder::default()
    }

    fn store(&self) -> &Inner<K, T> {
        &self.shared.store
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        self.store().engine.keys.hash_by(&self.hasher, key)
    }

    fn wanted<'m, 'q, Q: Hash + Eq + ?Sized>(&'m self, key: &'q Q) -> Wanted<'m, 'q, Q> {
        Wanted::new(&self.store().engine.keys, self.hash(key), key)
    }

    /// Puts a value in, for `timeout` from now, rounded up to the interval: a `Duration`, an
    /// `Instant` or a [`Lifetime`]. Returns the value that the key had before, if any.
    ///
    /// # Errors
    ///
    /// [`PendingMapError`] gives key and value back: [`StoreError::Full`],
    /// [`StoreError::OutOfMemory`], [`StoreError::Collisions`], [`StoreError::Closed`],
    /// [`StoreError::Lifetime`]. What the key had stays, or is in the error, too: where a shutdown
    /// ends the new value at once.
    #[doc(alias = "schedule")]
    pub fn insert(
        &self,
        key: K,
        value: T,
        timeout: impl Into<Lifetime>,
    ) -> Result<Option<T>, PendingMapError<K, T>> {
        self.put(key, value, timeout.into(), true)
    }

    /// Inserts a value only if the key has none, as a server does with an id that its client has
    /// chosen; otherwise as [`insert`](Self::insert).
    ///
    /// ```
    /// use expiry::{PendingMap, StoreError};
    /// use std::time::Duration;
    ///
    /// let calls = PendingMap::builder().build()?;
    /// calls.try_insert(7, "first", Duration::from_secs(30))?;
    /// let refused = calls.try_insert(7, "second", Duration::from_secs(30)).unwrap_err();
    /// assert_eq!((refused.error, refused.entry.into_value()), (StoreError::Occupied, "second"));
    /// assert_eq!(calls.take(&7), Some("first"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert); [`StoreError::Occupied`]: the key has a value, which stays.
    pub fn try_insert(
        &self,
        key: K,
        value: T,
        timeout: impl Into<Lifetime>,
    ) -> Result<(), PendingMapError<K, T>> {
        self.put(key, value, timeout.into(), false).map(drop)
    }

    fn put(
        &self,
        key: K,
        value: T,
        timeout: Lifetime,
        replaces: bool,
    ) -> Result<Option<T>, PendingMapError<K, T>> {
        let store = self.store();
        let hash = self.hash(&key);
        let mut offer = store.offer(hash, key, Some(Given::new(value)));
        loop {
            let (likely, pin) = (offer.likely(), store.engine.pin());
            let mine = store.engine.mine(&pin);
            let attempt = match store.term(mine, timeout.into()) {
                Err(bad) => Err(bad.into()),
                // After the clock reading: the entry that is replaced is as it is now.
                Ok((term, _)) => match store.find_or_open(&pin, offer.wanted(likely)) {
                    Err(open) => offer.enter((&pin, mine), open, term, false),
                    Ok(_) if !replaces => Err(Hindered::Refused(StoreError::Occupied)),
                    Ok(found) => offer.replace((&pin, mine), &found, term),
                },
            };
            let attempt = attempt.map(|Entered { old, closed, .. }| (old, closed));
            drop(pin);
            match attempt {
                Ok((old, closed)) => {
                    let old = old.map(|old| take(&old));
                    let Some(closed) = closed else {
                        return Ok(old);
                    };
                    let entry = PendingEntry::of(&self.shared, closed, RemovalCause::Closed, NEVER);
                    let error = StoreError::Closed;
                    return Err(PendingMapError { entry, error, replaced: old });
                }
                Err(hindered) => {
                    if let Err(error) = offer.resolve(hindered, &*self.shared) {
                        return Err(PendingMapError::of(offer.into_pair(), error));
                    }
                    // The next attempt may replace a value, and need no permit of its own.
                    offer.give_up_room();
                }
            }
        }
    }

    /// Takes a key's value. `None` if it was taken before, has expired, or never was.
    #[must_use = "the value has left the map"]
    #[doc(alias("cancel", "remove"))]
    pub fn take<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<T>
    where
        K: Borrow<Q>,
    {
        let (store, wanted) = (self.store(), self.wanted(key));
        let pin = store.engine.pin();
        let ended = store.remove(&pin, wanted)?;
        drop(pin);
        store.engine.admission.wake_owed();
        Some(take(&ended))
    }

    /// Renews a key's value, even if its time is up: it expires `timeout` from now, rounded up to
    /// the interval. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// [`LifetimeError`]; also where the key is not there.
    #[doc(alias("reset", "renew"))]
    pub fn touch<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        timeout: impl Into<Lifetime>,
    ) -> Result<bool, LifetimeError>
    where
        K: Borrow<Q>,
    {
        let (store, wanted) = (self.store(), self.wanted(key));
        let timeout = timeout.into();
        let touch = || {
            let pin = store.engine.pin();
            store.touch(&pin, store.find(&pin, wanted), wanted, timeout, false)
        };
        store.engine.catching_up(&*self.shared, touch)
    }

    /// Whether the key has a value.
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let wanted = self.wanted(key);
        self.store().find(&self.store().engine.pin(), wanted).is_some()
    }

    /// How long until a key's value expires: zero if its time is up; [`Duration::MAX`] if never.
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let (store, wanted) = (self.store(), self.wanted(key));
        let pin = store.engine.pin();
        let found = store.find(&pin, wanted)?;
        let deadlines = &store.engine.deadlines;
        Some(deadlines.left(found.lease, deadlines.now()))
    }

    /// Takes every value that is there, with its key, in no order. Values that other threads insert
    /// meanwhile may stay. O(entries).
    #[must_use = "the values have left the map"]
    pub fn cancel_all(&self) -> Vec<PendingEntry<K, T>> {
        let (store, mut all) = (self.store(), Vec::new());
        store.each(|pin, found| {
            if let Some(ended) = store.end_anyway(pin, *found, RemovalCause::Removed) {
                all.push(PendingEntry::of(&self.shared, ended, RemovalCause::Removed, NEVER));
            }
        });
        store.engine.admission.wake_owed();
        all
    }

    /// Number of values now, with those that are due and not ended yet. O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.store().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What it has been doing. O(threads x shards).
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        self.shared.metrics()
    }

    /// Returns all that has expired, in no order. Where there is a listener or a channel, that gets
    /// it, and this returns nothing. Never waits. Any number of threads may poll: each value is
    /// returned to one of them.
    #[must_use = "the values have left the map"]
    pub fn poll(&self) -> Vec<PendingEntry<K, T>> {
        poll_all(|into| self.poll_into(into, usize::MAX))
    }

    /// Ends what is due with at most about `budget` steps of work, and appends it to `into`;
    /// otherwise as [`poll`](Self::poll).
    pub fn poll_into(&self, into: &mut Vec<PendingEntry<K, T>>, budget: usize) -> Polled {
        self.shared.poll_into(into, budget)
    }

    shutdowns! { "values", return PendingEntry<K, T>, by shared.store }
}
