//! Settings.

use super::ExpiringMap;
use crate::channel::WhenFull;
use crate::error::BuildError;
use crate::hash::RandomState;
use crate::keyed::listener_thread::ListenerThread;
use crate::keyed::store::{Listener, RemovalCause, Store};
use crate::lifecycle::Owner;
use crate::setup::{setters, Setup};
#[cfg(doc)]
use crate::StoreError;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// Settings of an [`ExpiringMap`].
///
/// | setting | default |
/// |---|---|
/// | [`time_to_live`](Self::time_to_live) | for ever |
/// | [`time_to_idle`](Self::time_to_idle) | for ever |
/// | [`interval`](Self::interval) | a 300th of the shorter time, between 1 ms and 1 s; 100 ms without |
/// | [`shards`](Self::shards) | the number of cores, as a power of two, at most 16 |
/// | [`capacity`](Self::capacity) | unbounded |
/// | [`clock`](Self::clock) | [`CoarseClock`](crate::CoarseClock) |
/// | [`listener_thread`](Self::listener_thread) | none: the thread that ends an entry calls the listener |
/// | [`hasher`](Self::hasher) | [`RandomState`] |
/// | [`reaper_budget`](Self::reaper_budget) | 4096 |
///
/// ```
/// use expiry::{RemovalCause, ExpiringMap};
/// use std::time::Duration;
///
/// let map = ExpiringMap::builder()
///     .time_to_live(Duration::from_secs(60))
///     .capacity(100_000)
///     .removal_listener(|key: &u64, value: &String, cause: RemovalCause| println!("{key}, {value}: {cause}"))
///     .build()?;
/// map.insert(7, "seven".to_string())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct ExpiringMapBuilder<K, V, S = RandomState> {
    setup: Setup,
    time_to_live: Option<Duration>,
    time_to_idle: Option<Duration>,
    listener: Option<Listener<K, V>>,
    /// Length and policy of the listener thread's channel.
    listener_thread: Option<(usize, WhenFull)>,
    /// Makes the hasher.
    hasher: Hashing<S>,
}

/// How a map gets its hasher.
#[derive(Clone)]
enum Hashing<S> {
    Chosen(S),
    /// By the settings: their seed may have been set after this was made.
    ByDefault(fn(&Setup) -> S),
}

impl<K, V, S: Clone> Clone for ExpiringMapBuilder<K, V, S> {
    fn clone(&self) -> Self {
        ExpiringMapBuilder {
            setup: self.setup.clone(),
            listener: self.listener.clone(),
            hasher: self.hasher.clone(),
            ..*self
        }
    }
}

impl<K, V, S> fmt::Debug for ExpiringMapBuilder<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMapBuilder")
            .field("time_to_live", &self.time_to_live)
            .field("time_to_idle", &self.time_to_idle)
            .field("interval", &self.setup.interval)
            .finish_non_exhaustive()
    }
}

impl<K, V> Default for ExpiringMapBuilder<K, V> {
    fn default() -> Self {
        ExpiringMapBuilder {
            setup: Setup::default(),
            time_to_live: None,
            time_to_idle: None,
            listener: None,
            listener_thread: None,
            hasher: Hashing::ByDefault(Setup::hasher),
        }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S> {
    setters! {
        "entries", "build_manual",
        /// The granularity of time: deadlines are rounded up to it. At least 10 microseconds. Where
        /// times to idle, or lifetimes of entries, are much shorter than the time to live, set it
        /// by the shortest.
        interval,
        /// The most entries there may be at once; beyond it new keys are refused with
        /// [`StoreError::Full`], unless something is due, which is then ended first. Exact.
        capacity,
        /// How long an entry lives after it was inserted, replaced or touched, unless it says
        /// otherwise itself.
        time_to_live(time: Duration) sets time_to_live = Some(time);
        /// How long an entry lives unless it is used: inserted, replaced, touched, or got. Costs 16
        /// bytes an entry, and a `get` one compare-and-swap in every interval. With a time to live
        /// too the nearer of the two counts.
        time_to_idle(time: Duration) sets time_to_idle = Some(time);
    }

    /// Reads the exact clock for deadlines: entries live no longer for a coarse one's lag.
    pub(in crate::keyed) fn exact(mut self) -> Self {
        self.setup.exact = true;
        self
    }

    /// A listener that the map calls for every end of a value, once, with its cause. The thread that
    /// ended the value calls it, afterwards. That is the reaper, or a thread that polls, for an expired
    /// value, but also a thread that inserts where a value has expired just then; and a thread that
    /// replaces, removes, or shuts down.
    ///
    /// The listener may call the map, be slow, or panic. A slow listener delays its own thread only (the reaper,
    /// and so further expirations), and holds back no memory. A panic is caught and counted. With a
    /// [`listener_thread`](Self::listener_thread) that thread calls it instead.
    pub fn removal_listener(
        mut self,
        listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static,
    ) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// A thread of its own, `expiry-listener`, calls the listener ([`removal_listener`](Self::removal_listener)), so
    /// that a slow listener delays neither the reaper nor the calls that end entries. Each build
    /// method starts that thread, if there is a listener. The thread takes the ends from a channel of
    /// `length` ends; `when_full` says what happens to an end that finds no room:
    ///
    /// * [`WhenFull::Wait`]: the thread that ended the entry waits for room, the reaper too. It must not
    ///   hold a lock that the listener takes. The listener thread itself does not wait: an end that
    ///   the listener causes spills. Of two maps whose listeners end entries of each other's, use
    ///   [`WhenFull::Spill`].
    /// * [`WhenFull::Spill`]: it goes to a second queue, which has no bound.
    /// * [`WhenFull::Drop`]: the listener is not called for it. A shutdown ends all entries at once, so
    ///   of more than `length` entries the listener hears of some only.
    ///
    /// `spilled` and `undelivered` in the [metrics](crate::StoreMetrics) count these, and
    /// `listener_waiting` counts the ends in the channel and in the second queue. The end for which
    /// the listener is being called is no longer counted.
    ///
    /// The listener is called once for each end that has not been dropped, in the order in which the
    /// ends came into the channel; of ends that spilled there is no order.
    ///
    /// [`TimeCacheMap`](crate::TimeCacheMap) and `ExpiringMapSettings` have no such thread.
    ///
    /// # Cost and progress
    ///
    /// The channel takes 16 bytes for each of its `length` places, at once. An end that waits keeps its
    /// entry's slot, with key and value, which the [capacity](Self::capacity) does not count any more.
    /// While it waits, [`Removed::try_into_value`](crate::Removed::try_into_value) returns the handle, and
    /// [`flush`](ExpiringMap::flush) does not wait for it. A call that ends an entry sends a message of
    /// 8 bytes, and may wake the listener thread. Under `Wait` it may wait for the listener; under
    /// the other policies no call does, except a shutdown.
    ///
    /// # Shutdown
    ///
    /// [`shutdown`](ExpiringMap::shutdown), and dropping the map, wait until the listener has been called
    /// for all that was in the channel, for as long as that takes. (`Wait` is treated as `Spill` from
    /// then on.) In a listener, of this map or of another one, they do not wait: the listener thread
    /// goes on until the channel is empty, and then ends. A process whose last handle goes in a
    /// listener may exit before that. A thread that ends an entry beside a shutdown, after the
    /// listener thread has stopped, calls the listener itself. After a `fork` the child has no
    /// listener thread: the thread that ends an entry calls the listener there, and the ends that
    /// were in the channel are the parent's.
    ///
    /// The thread that drops the map drops the listener, too. If that is a listener, the listener
    /// thread does it when it ends.
    ///
    /// # Errors
    ///
    /// The build methods refuse a length of zero ([`BuildError::ZeroChannel`]) or above 2^31
    /// ([`BuildError::ChannelTooLong`]), and say if there was no memory, or no thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{BuildError, RemovalCause, ExpiringMap, WhenFull};
    /// use std::sync::mpsc;
    ///
    /// let (sender, told) = mpsc::channel();
    /// let (go_on, wait) = mpsc::sync_channel(0);
    /// let wait = std::sync::Mutex::new(wait);
    /// let map = ExpiringMap::builder()
    ///     .removal_listener(move |key: &u64, _: &&str, cause| {
    ///         wait.lock().unwrap().recv().unwrap(); // a slow listener
    ///         sender.send((*key, cause)).unwrap();
    ///     })
    ///     .listener_thread(1000, WhenFull::Spill)
    ///     .build()?;
    /// map.insert(1, "one")?;
    /// map.insert(2, "two")?;
    /// assert_eq!(map.remove(&1).as_deref(), Some(&"one")); // does not wait for the listener
    /// go_on.send(())?;
    /// assert_eq!(told.recv()?, (1, RemovalCause::Removed));
    /// let shutdown = std::thread::spawn(move || map.shutdown());
    /// go_on.send(())?;
    /// shutdown.join().unwrap(); // by now all has been delivered
    /// assert_eq!(told.try_recv()?, (2, RemovalCause::Closed));
    ///
    /// let refused = ExpiringMap::<u64, u64>::builder().listener_thread(0, WhenFull::Wait).build();
    /// assert_eq!(refused.err(), Some(BuildError::ZeroChannel));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn listener_thread(mut self, length: usize, when_full: WhenFull) -> Self {
        self.listener_thread = Some((length, when_full));
        self
    }

    /// Another hasher. Where keys come from strangers it must be seeded at random; of keys with one and the same 64-bit hash 16 are
    /// accepted, and the next is refused ([`StoreError::Collisions`](crate::StoreError::Collisions)). Where two such groups meet in the
    /// index, some of the second group are refused. The index hashes what it returns once more, by a seed of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiringMap, StoreError};
    /// use std::hash::{BuildHasherDefault, Hasher};
    ///
    /// #[derive(Default)]
    /// struct Same; // as bad as can be
    ///
    /// impl Hasher for Same {
    ///     fn write(&mut self, _: &[u8]) {}
    ///     fn finish(&self) -> u64 { 7 }
    /// }
    ///
    /// let map = ExpiringMap::builder().hasher(BuildHasherDefault::<Same>::default()).build()?;
    /// let refused = (0..100).find_map(|n| map.insert(n.to_string(), n).err());
    /// assert_eq!(refused.map(|refused| refused.error), Some(StoreError::Collisions));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> ExpiringMapBuilder<K, V, T> {
        ExpiringMapBuilder {
            setup: self.setup,
            time_to_live: self.time_to_live,
            time_to_idle: self.time_to_idle,
            listener: self.listener,
            listener_thread: self.listener_thread,
            hasher: Hashing::Chosen(hasher),
        }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Builds the map and starts its reaper thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which setting is out of range, or what the system refused.
    pub fn build(self) -> Result<ExpiringMap<K, V, S>, BuildError> {
        self.built(true)
    }

    /// Builds the map without a thread: nothing is told as expired but in [`ExpiringMap::poll`], though what is over is
    /// not found any more.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_manual(self) -> Result<ExpiringMap<K, V, S>, BuildError> {
        self.built(false)
    }

    fn built(self, reaper: bool) -> Result<ExpiringMap<K, V, S>, BuildError> {
        let hasher = match self.hasher {
            Hashing::Chosen(hasher) => hasher,
            Hashing::ByDefault(make) => make(&self.setup),
        };
        let mut store =
            Store::build(&self.setup, self.time_to_live, self.time_to_idle, self.listener)?;
        if let Some((length, when_full)) = self.listener_thread {
            let thread = ListenerThread::new(length, when_full)?;
            store.listener_thread = store.listener.is_some().then_some(thread);
        }
        let store = Arc::new(store);
        ListenerThread::start(&store)?;
        let budget = reaper.then_some(self.setup.budget);
        let owner = Owner::new(&store, |store| &store.engine, budget)?;
        Ok(ExpiringMap { store, hasher, owner })
    }
}
