//! Settings of a map.

use super::ExpiringMap;
use crate::error::BuildError;
use crate::hash::RandomState;
use crate::keyed::removals::Removals;
use crate::keyed::removed::Removed;
use crate::keyed::store::{Eviction, EvictionPolicy, Listener, RemovalCause, Store, Weigher};
use crate::keyed::Expiry;
use crate::kit::channel::{Receiver, WhenFull};
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use crate::kit::target::{builds, Target};
use crate::sync::flights::Flights;
use crate::time::nanos;
#[cfg(doc)]
use crate::StoreError;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

/// Settings of an [`ExpiringMap`].
///
/// | setting | default |
/// |---|---|
/// | [`time_to_live`](Self::time_to_live) | for ever |
/// | [`time_to_idle`](Self::time_to_idle) | for ever |
/// | [`expiry`](Self::expiry) | none: all entries live as the builder says |
/// | [`refresh_after`](Self::refresh_after) | never |
/// | [`interval`](Self::interval) | none: 1 ms, or a 256th of the lifetime up to 1 s |
/// | [`eviction_policy`](Self::eviction_policy) | [`EvictionPolicy::S3Fifo`] |
/// | [`statistics`](Self::statistics) | off |
/// | [`hasher`](Self::hasher) | [`RandomState`] |
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
    refresh_after: Option<Duration>,
    max_capacity: Option<usize>,
    max_weight: Option<usize>,
    weigher: Option<Weigher<K, V>>,
    expiry: Option<Arc<dyn Expiry<K, V>>>,
    eviction_policy: EvictionPolicy,
    statistics: bool,
    listener: Option<Arc<Listener<K, V>>>,
    hasher: Hashing<S>,
}

/// How a map gets its hasher.
#[derive(Clone)]
enum Hashing<S> {
    Chosen(S),
    /// Makes the default hasher from the settings: their seed may be set after this is made.
    ByDefault(fn(&Setup) -> S),
}

builder! {
    ExpiringMapBuilder<K, V; S> with weigher expiry listener hasher,
    shows time_to_live, shows time_to_idle
}

impl<K, V> Default for ExpiringMapBuilder<K, V> {
    fn default() -> Self {
        ExpiringMapBuilder {
            setup: Setup::default(),
            time_to_live: None,
            time_to_idle: None,
            refresh_after: None,
            max_capacity: None,
            max_weight: None,
            weigher: None,
            expiry: None,
            eviction_policy: EvictionPolicy::default(),
            statistics: false,
            listener: None,
            hasher: Hashing::ByDefault(Setup::hasher),
        }
    }
}

impl<K, V, S> ExpiringMapBuilder<K, V, S> {
    setters! {
        "entries",
        ///
        /// Without one, a lifetime is rounded up by at most a 256th of it, and by a millisecond to
        /// a second: the reaper wakes up once a second for what lives for hours, and yet is there
        /// in time for what lives for 20 ms.
        ///
        /// A lifetime can be up to 2^39 - 2 intervals long. Without one: 17 years, or as much less
        /// as the shortest default time is below a millisecond.
        interval,
        /// To evict instead, set [`max_capacity`](Self::max_capacity).
        expiring capacity,
        /// The most entries there may be at once; where a new key finds no room, the map evicts
        /// another entry. Exact: there are never more. The inserting thread evicts, and so calls
        /// the listener, with [`RemovalCause::Size`].
        ///
        /// [`eviction_policy`](Self::eviction_policy) says which one. A call does not evict the
        /// entry that it replaces.
        ///
        /// Insertion fails with [`StoreError::Full`] only where other threads are in the middle of
        /// as many insertions and removals as there may be entries. A listener that inserts for
        /// each evicted entry evicts another one, and is called again: do not.
        ///
        /// # Cost
        ///
        /// 3.2 bytes an entry, which the build allocates for the whole bound. The first `get` of an
        /// entry after a sweep has met it takes one compare-and-swap. An insertion into a full map
        /// takes an eviction, which looks at 256 entries at most. It also passes over slots of
        /// entries that have ended, and that a channel or a kept `Ref` holds back: where they are
        /// 300,000, and live entries ten, that takes 0.6 ms. What is due goes first, as `Expired`:
        /// the inserting thread drives up to 15 rounds of 64 steps. A shard that another thread
        /// drives is left to that thread.
        #[doc(alias("maximum_size", "maximumSize"))]
        max_capacity(capacity: usize) sets max_capacity = Some(capacity);
        /// Which entry a map evicts that has [`max_capacity`](Self::max_capacity) or
        /// [`max_weight`](Self::max_weight). Other maps ignore it. An entry is used when it is
        /// inserted again, touched, or got. `docs/performance.md` has hit ratios of the policies
        /// beside those of moka and quick_cache.
        ///
        /// # Cost
        ///
        /// `S3Fifo`: see [`max_capacity`](Self::max_capacity). The others take no memory for an
        /// entry. `SoonestDeadline` takes 2 to 8 us an eviction: it looks at up to about 512 block
        /// headers, and into few blocks. It looks into all of them where touches have moved
        /// deadlines that the reaper has not looked at since.
        eviction_policy(policy: EvictionPolicy) sets eviction_policy = policy;
        /// Whether the map counts hits, misses and loads in its
        /// [metrics](ExpiringMap::metrics). A look-up then adds one to a counter of its thread.
        /// Look-ups are `get` and what is made of it, and `get` and `get_many` of a
        /// [`Guard`](crate::expiring_map::Guard).
        statistics(counts: bool) sets statistics = counts;
        /// How long an entry lives after it was inserted, replaced or touched, unless it says
        /// otherwise itself.
        #[doc(alias("ttl", "expire_after_write", "expireAfterWrite"))]
        time_to_live(time: Duration) sets time_to_live = Some(time);
        /// How long an entry lives unless it is used: inserted, replaced, touched, or got. Costs 24
        /// bytes an entry, and a `get` one compare-and-swap in every interval. With a time to live
        /// too the nearer of the two counts.
        #[doc(alias("tti", "expire_after_access", "expireAfterAccess"))]
        time_to_idle(time: Duration) sets time_to_idle = Some(time);
        /// How old a value may be before a load call loads it anew. One caller of
        /// [`get_or_insert_with`](ExpiringMap::get_or_insert_with), or of its `try_` and async
        /// forms, that finds an older one calls its loader and gets the new value. The others get
        /// the old value meanwhile, and wait for nothing. If the reload fails, its caller gets the
        /// old value, too, and the next caller tries again. So values are served until their
        /// [`time_to_live`](Self::time_to_live) is up, and a value that callers want does not
        /// expire, unless its reloads fail.
        ///
        /// The new value takes the place of the very value that was found old, or of none. If
        /// another call has replaced that meanwhile, or the key was removed or the map cleared, the
        /// map does not keep the new one. The removal listener hears of the old value, as
        /// [`Replaced`](RemovalCause::Replaced).
        ///
        /// Age is reckoned from the deadline: a value is old when so little is left of its time to
        /// live as the map's has left after `time`. So a [touch](ExpiringMap::touch) makes it new.
        /// A value with a lifetime of its own is due for a reload that long before its end. If its
        /// whole lifetime is no longer than that, it is due at once.
        ///
        /// The map has a time to live, and `time` is below that:
        /// [`BuildError::RefreshTooLate`]. Entries take no more memory, and no other calls more
        /// time.
        ///
        /// ```
        /// # use std::time::Duration;
        /// use expiry::{ExpiringMap, ManualClock};
        ///
        /// let clock = ManualClock::new();
        /// let pages = ExpiringMap::builder()
        ///     .time_to_live(Duration::from_secs(60))
        ///     .refresh_after(Duration::from_secs(40))
        ///     .clock(clock.clone())
        ///     .build_manual()?;
        /// let page = |text| *pages.get_or_insert_with("/", || text).unwrap();
        /// assert_eq!((page("old"), page("new")), ("old", "old"));
        /// clock.advance(Duration::from_secs(41));
        /// assert_eq!(page("new"), "new");
        /// clock.advance(Duration::from_secs(21)); // 62 s after the first load
        /// assert_eq!(page("newer"), "new");
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[doc(alias("refresh_after_write", "refreshAfterWrite", "refresh_ahead"))]
        refresh_after(time: Duration) sets refresh_after = Some(time);
        /// A listener that the map calls for every end of a value, once, with its cause. The thread
        /// that ended the value calls it, afterwards. That is the reaper, or a thread that polls,
        /// for an expired value, but also a thread that inserts where a value has expired just
        /// then; and a thread that replaces, removes, or shuts down.
        ///
        /// The listener may call the map, be slow, or panic. A slow listener delays its own thread
        /// only (the reaper, and so further expirations), and holds back no memory. A panic is
        /// caught and counted. For slow work take a [channel](Self::build_with_channel) instead.
        removal_listener(listener: impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static)
            sets listener = Some(Arc::new(listener));
        /// A policy that sees creation, update and read of each entry, and answers with a lifetime.
        /// A call that gives a lifetime itself, as `insert_for` does, does not ask it. [`Expiry`]
        /// says which call asks what.
        ///
        /// An answer may leave its times to the builder's [`time_to_live`](Self::time_to_live) and
        /// [`time_to_idle`](Self::time_to_idle). Beside [`refresh_after`](Self::refresh_after) an
        /// entry's age is reckoned from the deadline that the policy has given it: a read that
        /// prolongs it makes it new.
        ///
        /// # Cost
        ///
        /// A virtual call, and on a read that changes the deadline one compare-and-swap. Entries
        /// take no more memory, unless an answer has a time to idle.
        #[doc(alias("expire_after", "expireAfter"))]
        expiry(policy: impl Expiry<K, V> + 'static) sets expiry = Some(Arc::new(policy));
    }

    /// The most that all entries together may weigh; where a new value finds no room, the map
    /// evicts other entries, as with [`max_capacity`](Self::max_capacity). Exact. `weigher` says
    /// what an entry weighs: 0 counts as 1, and an entry that weighs more than `weight` is refused
    /// with [`StoreError::TooHeavy`]. An entry keeps the weight that it had when it was inserted.
    ///
    /// An insertion keeps the room that it makes, and other insertions cannot take it. So it evicts
    /// at most as many entries as the new one weighs. Where it finds nothing to evict, it gives
    /// that room back and begins anew. After 64 such looks it fails with [`StoreError::Full`]:
    /// insertions and removals that other threads are in the middle of then hold what it lacks.
    ///
    /// The bound is one of live entries. Ended values that wait for their drop weigh at most a
    /// quarter of it more, unless a thread keeps a [`Ref`](crate::Ref). Beside one
    /// they pile up; [`flush`](ExpiringMap::flush) waits for it, and says whether it has gone.
    ///
    /// The inserting thread calls the weigher, unpinned, but in [`upsert`](ExpiringMap::upsert) and
    /// [`compute`](ExpiringMap::compute). If it panics, the map is as it was.
    ///
    /// # Cost
    ///
    /// Those of `max_capacity`, and 24 bytes an entry.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiringMap, StoreError};
    ///
    /// let pages = ExpiringMap::builder()
    ///     .max_weight(1_000_000, |path: &String, page: &Vec<u8>| (path.len() + page.len()) as u32)
    ///     .build()?;
    /// for n in 0..100 {
    ///     pages.insert(n.to_string(), vec![0; 30_000])?;
    /// }
    /// assert_eq!(pages.len(), 33);
    /// let refused = pages.insert("all".to_string(), vec![0; 1_000_000]).unwrap_err();
    /// assert_eq!(refused.error, StoreError::TooHeavy);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_weight(
        mut self,
        weight: usize,
        weigher: impl Fn(&K, &V) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.max_weight = Some(weight);
        self.weigher = Some(Arc::new(weigher));
        self
    }

    /// Sets the weight of [`max_weight`](Self::max_weight), and leaves the weigher as it is.
    #[cfg(feature = "serde")]
    pub(crate) fn set_max_weight(mut self, weight: Option<usize>) -> Self {
        self.max_weight = weight.or(self.max_weight);
        self
    }

    /// Reads the exact clock for deadlines: entries live no longer for a coarse one's lag.
    pub(in crate::keyed) fn exact(mut self) -> Self {
        self.setup.exact = true;
        self
    }

    /// Another hasher. Where keys come from strangers it must be seeded at random; of keys with one
    /// and the same 64-bit hash 8 are accepted, 9 while the index grows, and the next is refused
    /// ([`StoreError::Collisions`](crate::StoreError::Collisions)). Where several such groups meet
    /// in the index, keys of the later groups may be refused. The index hashes what it returns once
    /// more, by a seed of its own.
    pub fn hasher<T: BuildHasher>(self, hasher: T) -> ExpiringMapBuilder<K, V, T> {
        ExpiringMapBuilder {
            setup: self.setup,
            time_to_live: self.time_to_live,
            time_to_idle: self.time_to_idle,
            refresh_after: self.refresh_after,
            max_capacity: self.max_capacity,
            max_weight: self.max_weight,
            weigher: self.weigher,
            expiry: self.expiry,
            eviction_policy: self.eviction_policy,
            statistics: self.statistics,
            listener: self.listener,
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
    builds! {
        ExpiringMap<K, V, S>, poll "ExpiringMap::poll", item Removed<'static, K, V>,
        "each end of a value, once, as a [`Removed`] with its cause", polls return false,
        build,
        /// Values expire in a poll. Look-ups never return an expired one, polled or not.
        build_manual,
        /// A thread, or a task, that receives may be slow: it delays neither the reaper nor the
        /// calls that end entries.
        ///
        /// The receiver ends, as an iterator and as a stream, when all handles to the map have been
        /// dropped and all that was sent was received. Each [`Removed`] keeps its entry's slot,
        /// with key and value, which the [capacity](Self::capacity) does not count any more. While
        /// the channel has one, the handle that the removing call returned gives no value by
        /// [`Removed::try_into_value`].
        ///
        /// ```
        /// use expiry::{ExpiringMap, RemovalCause, WhenFull};
        /// use std::thread;
        ///
        /// let builder = ExpiringMap::<u64, &str>::builder();
        /// let (files, removals) = builder.build_with_channel(1000, WhenFull::Spill)?;
        /// let closer = thread::spawn(move || {
        ///     let causes = removals.map(|removed| {
        ///         // slow work with removed.key() and removed.value()
        ///         removed.cause()
        ///     });
        ///     causes.collect::<Vec<_>>()
        /// });
        /// files.insert(1, "a file")?;
        /// assert_eq!(files.remove(&1).as_deref(), Some(&"a file")); // waits for no thread
        /// files.insert(2, "another file")?;
        /// drop(files); // the last handle: the receiver comes to its end
        /// assert_eq!(closer.join().unwrap(), [RemovalCause::Removed, RemovalCause::Closed]);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Cost
        ///
        /// The channel takes 48 bytes for each of its `length` places, at once. Sending takes two
        /// reference counts and a message.
        build_with_channel
    }

    fn built(
        self,
        target: Target<Removed<'static, K, V>, Listener<K, V>>,
        reaper: bool,
    ) -> Result<ExpiringMap<K, V, S>, BuildError> {
        let hasher = match self.hasher {
            Hashing::Chosen(hasher) => hasher,
            Hashing::ByDefault(make) => make(&self.setup),
        };
        let mut setup = self.setup;
        let (weight, policy) = (self.max_weight, self.eviction_policy);
        if weight.is_some() && self.weigher.is_none() {
            return Err(BuildError::NoWeigher);
        }
        let bounds = [setup.capacity, self.max_capacity, weight];
        if bounds.iter().flatten().count() > 1 {
            return Err(BuildError::TwoBounds);
        }
        let reloads_with = match (self.refresh_after, self.time_to_live) {
            (None, _) => None,
            (Some(Duration::ZERO), _) => return Err(BuildError::ZeroTimeout),
            (Some(after), Some(live)) if after < live => Some(nanos(live - after)),
            (Some(refresh_after), time_to_live) => {
                return Err(BuildError::RefreshTooLate { refresh_after, time_to_live })
            }
        };
        setup.capacity = bounds.into_iter().flatten().next();
        setup.weighs = weight.is_some();
        let mut store = Store::build(&setup, self.time_to_live, self.time_to_idle)?;
        store.eviction = match (self.max_capacity, weight) {
            (Some(capacity), _) => Some(Eviction::new(policy, capacity)),
            (_, weight) => weight.map(|weight| Eviction::of_weight(policy, weight)),
        };
        store.weigher = self.weigher;
        store.reloads_with = reloads_with;
        store.counts_lookups = self.statistics;
        store.handles_hits = self.statistics || self.expiry.is_some();
        store.expiry = self.expiry;
        let store = Arc::new_cyclic(|this| {
            store.removals = Removals { target, store: this.clone() };
            store
        });
        let owner = Owner::new(&store, |store| &store.engine, &setup, reaper)?;
        Ok(ExpiringMap { store, hasher, owner, flights: Arc::new(Flights::new()) })
    }
}
