//! Things in flight, by value, under keys that the caller chooses.
//!
//! A [`Store`] that never lends a value. Only the thread that has ended an entry touches its value
//! ([`Given`]), and takes it at once; readers look at keys alone. So a caller gets the value
//! itself, whatever other threads do. The store frees the slot, with the key, later, as all keyed
//! stores do.

mod builder;
mod entry;

pub use builder::PendingMapBuilder;
pub use entry::{PendingEntry, PendingMapError};

use super::idle::Term;
use super::removed::{EndedSlot, Removed};
use super::store::{Entered, Hindered, Keyed, Named, Pair, RemovalCause, Store, Wanted};
use super::{StoreError, StoreMetrics};
use crate::core::engine::{DueBlock, Pin};
use crate::core::occupancy;
use crate::kit::handle::handle;
use crate::kit::lifecycle::{shut, Leftovers, Owner, Reaping, Shut};
use crate::kit::polled::Polled;
use crate::kit::target::{shutdowns, Target};
use crate::sync::cell::Given;
use crate::time::{Lifetime, LifetimeError};
use std::borrow::Borrow;
use std::cell::RefCell;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

type Hasher = crate::hash::RandomState;
type Inner<K, T> = Store<K, Given<T>>;
type Ended<'a, K, T> = EndedSlot<&'a Inner<K, T>, K, Given<T>>;
/// Called with each entry that has expired.
type Handler<K, T> = dyn Fn(&K, T) + Send + Sync;

/// Takes the value of an entry that the caller has ended.
fn take<K, T>(ended: &Ended<'_, K, T>) -> T {
    // SAFETY: an entry ends once, and each of this module's ends comes here once, on the thread
    // that made it. No other thread touches values.
    unsafe { ended.value().take() }
}

/// What the handles share.
struct Shared<K: 'static, T: 'static> {
    /// Entries that are still in a caller's hands keep the store, but not the target that they may
    /// lie in.
    store: Arc<Inner<K, T>>,
    target: Target<PendingEntry<K, T>, Handler<K, T>>,
    kept: Leftovers<PendingEntry<K, T>>,
}

impl<K: 'static, T: 'static> Shared<K, T> {
    fn entry(&self, ended: Ended<'_, K, T>, cause: RemovalCause) -> PendingEntry<K, T> {
        let value = take(&ended);
        PendingEntry::in_map(Removed::kept(ended, &self.store, cause), value)
    }

    fn expired(
        &self,
        dead: occupancy::Ended<'_, Pair<K, Given<T>>>,
        named: Named,
    ) -> PendingEntry<K, T> {
        let ended = self.store.ended_by_driver(dead, named, RemovalCause::Expired);
        self.entry(ended, RemovalCause::Expired)
    }
}

impl<K: 'static, T: 'static> Keyed<K, Given<T>> for Shared<K, T> {
    fn store(&self) -> &Inner<K, T> {
        &self.store
    }

    fn report(&self, dead: occupancy::Ended<'_, Pair<K, Given<T>>>, named: Named, _: u64) {
        match &self.target {
            Target::Poll(stack) => stack.push(self.expired(dead, named)),
            Target::Channel(sender) => {
                self.store.send(sender, self.expired(dead, named));
            }
            Target::Unheard | Target::Listener(_) => {
                let ended = self.store.ended_by_driver(dead, named, RemovalCause::Expired);
                let value = take(&ended);
                self.store.guard(|| match &self.target {
                    Target::Listener(listener) => listener(ended.key(), value),
                    _ => drop(value),
                });
            }
        }
    }

    fn close_all(&self) {
        let left = |ended, _| self.entry(ended, RemovalCause::Closed);
        self.store.close_to(&self.target, &self.kept, left, |ended| take(&ended));
    }
}

impl<K: 'static, T: 'static> Shut for Shared<K, T> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.target.close();
        shut(&self.store.engine, reaper, self);
    }
}

/// A driver's round that gives the entries it finds to `into`, which keeps them: it is called under
/// a pin.
struct Poll<'a, K: 'static, T: 'static, F> {
    shared: &'a Shared<K, T>,
    into: F,
}

impl<K: 'static, T: 'static, F: Fn(PendingEntry<K, T>)> Keyed<K, Given<T>> for Poll<'_, K, T, F> {
    fn store(&self) -> &Inner<K, T> {
        &self.shared.store
    }

    fn reports_to_user(&self) -> bool {
        false
    }

    fn end_together(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, Given<T>>>) {
        let gone = |ended, _| (self.into)(self.shared.entry(ended, RemovalCause::Expired));
        self.shared.store.end_due(pin, due, gone);
    }

    fn report(&self, dead: occupancy::Ended<'_, Pair<K, Given<T>>>, named: Named, _: u64) {
        (self.into)(self.shared.expired(dead, named));
    }

    fn close_all(&self) {
        self.shared.close_all();
    }
}

/// Values that wait for something, each under a key of the caller's: request ids of the other side,
/// file names, connections.
///
/// As [`PendingTable`](crate::PendingTable), which issues the keys itself and is faster. Each value
/// leaves the map once, by value: to the call that [takes](Self::take) or replaces it, or, when its
/// timeout has passed, to the listener, channel, stream or poll. Nothing is ever lent, so `take`
/// always gives the value.
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
/// | memory of a value | a slot of 8 bytes, key and value; 5 bytes beside it; 16 to 29 in the index |
///
/// # Time, panics
///
/// A value whose time is up is there until the reaper, or a poll, has come to it: it can be taken,
/// or renewed. A key's `Eq` that panics in an insertion leaks the value. An insertion that finds
/// the map full expires what is due, and calls the listener.
#[doc(alias = "DelayQueue")]
pub struct PendingMap<K: 'static, T: 'static> {
    shared: Arc<Shared<K, T>>,
    hasher: Hasher,
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

    /// The engine's hash of a key.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32 {
        self.store().engine.keys.hash_by(&self.hasher, key)
    }

    fn wanted<'q, Q: Hash + Eq + ?Sized>(&'q self, key: &'q Q) -> Wanted<'q, Q> {
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
            let pin = store.engine.pin();
            let attempt = match store.deadline(timeout) {
                Err(bad) => Err(bad.into()),
                // After the clock reading: the entry that is replaced is as it is now.
                Ok(deadline) => match store.find(&pin, offer.wanted()) {
                    None => offer.enter(&pin, Term::until(deadline)),
                    Some(_) if !replaces => Err(Hindered::Refused(StoreError::Occupied)),
                    Some(found) => offer.replace(&pin, &found, Term::until(deadline)),
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
                    let entry = self.shared.entry(closed, RemovalCause::Closed);
                    let error = StoreError::Closed;
                    return Err(PendingMapError { entry, error, replaced: old });
                }
                Err(hindered) => {
                    if let Err(error) = offer.again(hindered, &*self.shared) {
                        return Err(PendingMapError::of(offer.into_pair(), error));
                    }
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
        let (store, pin) = (self.store(), self.store().engine.pin());
        let ended = store.remove(&pin, self.wanted(key))?;
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
        let touch = || store.touch(&store.engine.pin(), wanted, timeout);
        store.engine.catching_up(&*self.shared, touch)
    }

    /// Whether the key has a value.
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.store().find(&self.store().engine.pin(), self.wanted(key)).is_some()
    }

    /// How long until a key's value expires: zero if its time is up; [`Duration::MAX`] if it never
    /// does.
    pub fn remaining<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let pin = store.engine.pin();
        let found = store.find(&pin, self.wanted(key))?;
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
                all.push(self.shared.entry(ended, RemovalCause::Removed));
            }
        });
        store.engine.admission.wake_owed();
        all
    }

    /// Number of values now, with those whose time is up but which no driver has come to.
    /// O(threads x shards).
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
        let mut metrics = self.store().metrics();
        (metrics.spilled, metrics.undelivered) = self.shared.target.astray();
        metrics
    }

    /// Returns all that has expired, in no order. Where there is a listener or a channel, that gets
    /// it, and this returns nothing. Never waits. Any number of threads may poll: each value is
    /// returned to one of them.
    #[must_use = "the values have left the map"]
    pub fn poll(&self) -> Vec<PendingEntry<K, T>> {
        let mut expired = Vec::new();
        while self.poll_into(&mut expired, usize::MAX).more {}
        expired
    }

    /// Ends what is due with at most about `budget` steps of work, and appends it to `into`;
    /// otherwise as [`poll`](Self::poll).
    pub fn poll_into(&self, into: &mut Vec<PendingEntry<K, T>>, budget: usize) -> Polled {
        let (before, shared) = (into.len(), &*self.shared);
        let Some(waiting) = shared.target.lapsed() else {
            return shared.store.engine.poll_shared(budget, shared, || false);
        };
        into.extend(waiting);
        let into = RefCell::new(into);
        let poll = Poll { shared, into: |entry| into.borrow_mut().push(entry) };
        shared.store.engine.poll_shared(budget, &poll, || into.borrow().len() > before)
    }

    shutdowns! { "values", return PendingEntry<K, T>, by shared.store }

    /// What shutdowns have ended, and what has expired and was not polled.
    fn left(&self) -> Vec<PendingEntry<K, T>> {
        self.shared.target.left(&self.shared.kept)
    }
}
