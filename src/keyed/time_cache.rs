//! Storm's `TimeCacheMap`: a map that forgets what has not been put again for a while.

use super::map::{ExpiringMap, ExpiringMapBuilder};
use super::store::RemovalCause;
use super::InsertError;
use crate::error::BuildError;
use crate::time::Clock;
use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::time::Duration;

/// A thread-safe map, with a thread, that forgets a key some time after it was last
/// [`put`](Self::put).
///
/// After Storm's `TimeCacheMap`, with its promise. With an expiration of `T` and `n` buckets (3
/// unless set) an entry lives at least `T` and less than `T * (1 + 1 / (n - 1))` after its last
/// `put`. It is not found after that, and the callback is called. There are no buckets here: an
/// [`ExpiringMap`] whose interval is `T / (n - 1)` keeps the promise. Each entry has its own
/// deadline. A slow callback delays other callbacks, but makes no entry live longer.
///
/// It dereferences to that map, and so has all of its calls. `containsKey` is
/// [`contains_key`](ExpiringMap::contains_key), `size` is [`len`](ExpiringMap::len). Dropping the
/// map is `cleanup`: it stops the thread, and the callback is not called for the entries that are
/// left.
///
/// For a new program use [`ExpiringMap`]. For one owner without a thread there is
/// [`RotatingMap`](crate::RotatingMap).
///
/// ```
/// use expiry::TimeCacheMap;
/// use std::time::Duration;
///
/// let pending = TimeCacheMap::builder(Duration::from_secs(30))
///     .buckets(11) // less than 33 s
///     .expiry_listener(|id: &u64, request: &String| println!("request {id} ({request}) got no answer"))
///     .build()?;
/// pending.put(7, "GET /".to_string())?;
/// assert_eq!(pending.remove(&7).unwrap().value(), "GET /");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TimeCacheMap<K: 'static, V: 'static> {
    map: ExpiringMap<K, V>,
}

impl<K: 'static, V: 'static> Clone for TimeCacheMap<K, V> {
    /// Another handle to the same map.
    fn clone(&self) -> Self {
        TimeCacheMap { map: self.map.clone() }
    }
}

/// Settings of a [`TimeCacheMap`].
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct TimeCacheMapBuilder<K, V> {
    expiration: Duration,
    buckets: usize,
    map: ExpiringMapBuilder<K, V>,
}

impl<K, V> Clone for TimeCacheMapBuilder<K, V> {
    fn clone(&self) -> Self {
        TimeCacheMapBuilder { map: self.map.clone(), ..*self }
    }
}

impl<K, V> fmt::Debug for TimeCacheMapBuilder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeCacheMapBuilder")
            .field("expiration", &self.expiration)
            .field("buckets", &self.buckets)
            .finish_non_exhaustive()
    }
}

impl<K, V> TimeCacheMapBuilder<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// The precision: entries live at most `1 / (buckets - 1)` longer than the expiration. At least
    /// 2; 3 unless set.
    pub fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// A callback for each entry that has expired; not for entries that were removed or put again.
    /// The thread that ends the entry calls it: the map's own, or one that finds the entry expired
    /// when it puts the key again or removes it. It may panic, be slow, or call the map. Hold no
    /// lock around those calls that it takes.
    pub fn expiry_listener(mut self, callback: impl Fn(&K, &V) + Send + Sync + 'static) -> Self {
        self.map = self.map.removal_listener(move |key, value, cause| {
            if cause == RemovalCause::Expired {
                callback(key, value);
            }
        });
        self
    }

    /// The clock to go by: see [`ExpiringMapBuilder::clock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.map = self.map.clock(clock);
        self
    }

    /// Builds the map and starts its thread.
    ///
    /// # Errors
    ///
    /// [`BuildError`]: an expiration that is zero, too short or too long; fewer than 2 buckets, or
    /// so many that an interval is below 10 microseconds; or what the system refused.
    pub fn build(self) -> Result<TimeCacheMap<K, V>, BuildError> {
        let map = self.into_map_builder()?.build()?;
        Ok(TimeCacheMap { map })
    }

    /// Builds the map without a thread, for simulations: only [`ExpiringMap::poll`] calls the
    /// callback. Otherwise as [`build`](Self::build).
    pub fn build_manual(self) -> Result<TimeCacheMap<K, V>, BuildError> {
        let map = self.into_map_builder()?.build_manual()?;
        Ok(TimeCacheMap { map })
    }

    /// Settings of the [`ExpiringMap`] that keeps the promise of these: for one that has a name,
    /// shares a thread, or reports into a channel. A callback that was set is its listener.
    ///
    /// ```
    /// use expiry::{TimeCacheMap, WhenFull};
    /// use std::time::Duration;
    ///
    /// let settings = TimeCacheMap::<u64, u64>::builder(Duration::from_secs(30));
    /// let map = settings.into_map_builder()?.name("requests");
    /// let (pending, removed) = map.build_with_channel(1000, WhenFull::Spill)?;
    /// # drop((pending, removed));
    /// # Ok::<(), expiry::BuildError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`BuildError::TooFewBuckets`].
    pub fn into_map_builder(self) -> Result<ExpiringMapBuilder<K, V>, BuildError> {
        let buckets = self.buckets;
        let parts = match u32::try_from(buckets) {
            Ok(buckets @ 2..) => buckets - 1,
            Ok(_) => return Err(BuildError::TooFewBuckets { buckets }),
            Err(_) => u32::MAX,
        };
        // What a coarse clock may lag behind would come on top of the window.
        let map = self.map.time_to_live(self.expiration).exact();
        if self.expiration.is_zero() {
            // The build refuses it.
            return Ok(map);
        }
        Ok(map.interval(self.expiration / parts))
    }
}

impl<K, V> TimeCacheMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// A map with an expiration and 3 buckets, and no callback.
    ///
    /// # Errors
    ///
    /// As [`TimeCacheMapBuilder::build`].
    pub fn new(expiration: Duration) -> Result<Self, BuildError> {
        Self::builder(expiration).build()
    }

    /// Settings with defaults.
    pub fn builder(expiration: Duration) -> TimeCacheMapBuilder<K, V> {
        TimeCacheMapBuilder { expiration, buckets: 3, map: ExpiringMap::builder() }
    }

    /// Puts a value, in the place of what the key has. It lives for the expiration from now.
    ///
    /// # Errors
    ///
    /// [`InsertError`] gives key and value back: out of memory.
    #[doc(alias = "insert")]
    pub fn put(&self, key: K, value: V) -> Result<(), InsertError<K, V>> {
        self.map.insert(key, value).map(drop)
    }
}

impl<K: 'static, V: 'static> Deref for TimeCacheMap<K, V> {
    type Target = ExpiringMap<K, V>;

    fn deref(&self) -> &ExpiringMap<K, V> {
        &self.map
    }
}

impl<K: 'static, V: 'static> fmt::Debug for TimeCacheMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TimeCacheMap").field(&self.map).finish()
    }
}
