//! Keys that must be touched to live.

mod builder;
mod look;
mod poll;
mod results;
#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/keyed_queue.rs"]
mod tests;
mod update;

pub use builder::ExpiryQueueBuilder;
pub use results::{Expired, Handle, Updated};

use super::given::{Gone, Item};
use super::removed::Removed;
use super::store::{RemovalCause, Store, Wanted};
use crate::core::lease::Lease;
use crate::kit::handle::handle;
use crate::kit::lifecycle::Owner;
use crate::kit::target::{shutdowns, ExpiryListener};
use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

type Hasher = crate::hash::RandomState;
type Inner<K> = Store<K, ()>;
type Shared<K> = super::given::Shared<K, (), Expired<K>>;

/// The time at which a tick begins, counted from when the queue was built.
fn since_start<K: 'static>(store: &Inner<K>, tick: u64) -> Duration {
    let interval = store.engine.deadlines.ticks().interval_nanos();
    Duration::from_nanos(tick.saturating_mul(interval))
}

impl<K: 'static> Item<K, ()> for Expired<K> {
    type Listener = ExpiryListener<K>;
    type Rest = ();
    type Extra = ();

    const HAS_VALUE: bool = false;

    fn of(shared: &Shared<K>, gone: Gone<'_, K, ()>, cause: RemovalCause, deadline: u64) -> Self {
        let expiry = since_start(&shared.store, deadline);
        Expired { ended: Removed::kept(gone, shared.store.clone(), cause), expiry }
    }

    fn tell(_: &Shared<K>, gone: Gone<'_, K, ()>, listener: Option<&Self::Listener>) {
        if let Some(listener) = listener {
            listener(gone.key());
        }
    }

    fn rest(_: &Shared<K>, _: Gone<'_, K, ()>) {}
}

/// Keys that must be touched to live, after ZooKeeper's `ExpiryQueue`: sessions, leases,
/// heartbeats.
///
/// ```
/// use expiry::{ExpiryQueue, ManualClock, Updated};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = ExpiryQueue::builder()
///     .interval(Duration::from_secs(1))
///     .clock(clock.clone())
///     .build_manual()?; // `build` starts a reaper thread, which calls the listener
/// queue.update("worker 1", Duration::from_secs(10))?;
/// queue.update("worker 2", Duration::from_secs(10))?;
/// clock.advance(Duration::from_secs(8));
/// assert!(matches!(queue.update("worker 1", Duration::from_secs(10))?, Updated::Renewed { .. }));
/// clock.advance(Duration::from_secs(3));
/// let expired: Vec<_> = queue.poll().iter().map(|key| **key).collect();
/// assert_eq!(expired, ["worker 2"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A queue has keys only. [`PendingMap`](crate::PendingMap) keeps a value of any type with each
/// key, which comes back with the key's end.
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`touch`](Self::touch), [`touch_by`](Self::touch_by), [`update`](Self::update) of a live key | at most one compare-and-swap; moves nothing. By handle there is no look-up |
/// | [`update`](Self::update) of a new key, [`remove`](Self::remove), [`poll`](Self::poll) | lock-free |
/// | dropping the queue | **waits** for the reaper |
///
/// # Time
///
/// Expiry times are rounded up to the interval: `(t / interval + 1) * interval` at the latest, and
/// never early. A key ends when a poll, or the reaper, comes to it: a key whose time is up may be
/// renewed until then.
///
/// # One end
///
/// A touch returns whether it renewed the key or came too late; of a touch and an expiry that meet
/// exactly one happens. Whatever the interleaving, no key is lost, stays for ever, expires twice,
/// or expires after a touch that has returned that it renewed the key. Dropping the queue ends all
/// keys without reporting them.
#[doc(alias("lease", "heartbeat", "DelayQueue"))]
pub struct ExpiryQueue<K: 'static> {
    shared: Arc<Shared<K>>,
    hasher: Hasher,
    owner: Arc<Owner<Shared<K>>>,
}

handle!(ExpiryQueue<K> { shared, hasher, owner } by shared.store, room);

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Settings with defaults.
    pub fn builder() -> ExpiryQueueBuilder<K> {
        ExpiryQueueBuilder::default()
    }

    fn store(&self) -> &Inner<K> {
        &self.shared.store
    }

    fn wanted<'m, 'q, Q: Hash + Eq + ?Sized>(&'m self, key: &'q Q) -> Wanted<'m, 'q, Q>
    where
        K: Borrow<Q>,
    {
        Wanted::new(&self.store().engine.keys, self.hash(key), key)
    }

    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        self.store().engine.keys.hash_by(&self.hasher, key)
    }

    fn expiry(&self, lease: Lease) -> Duration {
        since_start(self.store(), self.store().engine.deadlines.of(lease))
    }

    shutdowns! {
        "keys", return Expired<K>, sorted by Expired::expiry, by shared.store,
        /// They are sorted by their [expiry](Expired::expiry).
    }
}
