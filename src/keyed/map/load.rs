//! Loading: of several callers that miss one key, one loads its value (`crate::sync::flights`).

use super::{ExpiringMap, Ref};
use crate::keyed::store::Store;
use crate::keyed::{InsertError, Lifetimes, StoreError};
use crate::sync::flights::{Begun, Flight, Waiting};
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash};

/// What [`ExpiringMap::get_or_guard`] returns.
#[derive(Debug)]
pub enum Loaded<'a, K: 'static, V: 'static, S> {
    /// The key has this value.
    Found(Ref<'a, K, V>),
    /// The key has none, and the caller is to load it.
    Absent(LoadGuard<'a, K, V, S>),
}

/// Says that the caller loads a key's value. Other callers that want the key wait until it is
/// [inserted](Self::insert), or this is dropped; then one of them loads it.
///
/// ```
/// use expiry::expiring_map::Loaded;
///
/// let map = expiry::ExpiringMap::builder().build()?;
/// match map.get_or_guard("key")? {
///     Loaded::Found(value) => assert_eq!(*value, 1),
///     Loaded::Absent(guard) => drop(guard.insert(1)?), // after as long as it takes
/// }
/// assert_eq!(map.get("key").as_deref(), Some(&1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "if it is dropped, another caller loads"]
pub struct LoadGuard<'a, K: 'static, V: 'static, S> {
    map: &'a ExpiringMap<K, V, S>,
    key: K,
    count: Count<'a, K, V>,
    /// Dropped after the value is in the map.
    flight: Flight<'a>,
}

/// Counts a load when it is over.
struct Count<'a, K: 'static, V: 'static> {
    store: &'a Store<K, V>,
    has_inserted: bool,
}

impl<K: 'static, V: 'static> Drop for Count<'_, K, V> {
    fn drop(&mut self) {
        self.store.note_lookup(|lookups| match self.has_inserted {
            true => &lookups.loads,
            false => &lookups.failed_loads,
        });
    }
}

/// Why a key's value was not loaded.
#[non_exhaustive]
pub enum LoadError<K, V, E = Infallible> {
    /// The loader failed.
    Failed(E),
    /// The loader's value was refused. This gives it back.
    Refused(InsertError<K, V>),
    /// This thread has begun to load the key, or another key of the same 64-bit hash: it would wait
    /// for itself.
    Recursive,
    /// The map has been shut down.
    Closed,
}

impl<K, V, E> From<InsertError<K, V>> for LoadError<K, V, E> {
    fn from(refused: InsertError<K, V>) -> Self {
        LoadError::Refused(refused)
    }
}

impl<K, V, E: fmt::Debug> fmt::Debug for LoadError<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Failed(error) => f.debug_tuple("Failed").field(error).finish(),
            LoadError::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
            LoadError::Recursive => f.write_str("Recursive"),
            LoadError::Closed => f.write_str("Closed"),
        }
    }
}

impl<K, V, E: fmt::Display> fmt::Display for LoadError<K, V, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Failed(error) => write!(f, "the value could not be loaded: {error}"),
            LoadError::Refused(refused) => fmt::Display::fmt(refused, f),
            LoadError::Recursive => {
                f.write_str("a loader asked for the key that it loads; load another key there")
            }
            LoadError::Closed => fmt::Display::fmt(&StoreError::Closed, f),
        }
    }
}

impl<K, V, E: std::error::Error + 'static> std::error::Error for LoadError<K, V, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Failed(error) => Some(error),
            LoadError::Refused(refused) => Some(&refused.error),
            LoadError::Recursive | LoadError::Closed => None,
        }
    }
}

/// The next step of a caller that wants a value, or a guard.
enum Step<'a, K: 'static, V: 'static, S> {
    Done(Loaded<'a, K, V, S>),
    Wait(Waiting<'a>, K),
}

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The value of a key; if it has none, what `load` makes, inserted with the map's lifetime,
    /// which begins then. Of several callers that miss the key one calls its `load`; the others wait
    /// for that, and get its value. If a `load` panics, a waiting caller calls its own.
    ///
    /// Unlike [`or_insert_with`](super::Entry::or_insert_with), which blocks no caller.
    ///
    /// # Cost
    ///
    /// That of [`get`](Self::get), if the key has a value. Otherwise a lock is taken twice, for some
    /// instructions, and callers that wait block their thread. Two loaders that each want the other
    /// one's key wait for ever.
    ///
    /// # Errors
    ///
    /// [`LoadError::Recursive`], [`LoadError::Closed`]; [`LoadError::Refused`] as
    /// [`insert`](Self::insert).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::{thread, time::Duration, sync::atomic::{AtomicUsize, Ordering}};
    /// let (pages, loads) = (expiry::ExpiringMap::new(Duration::from_secs(60))?, AtomicUsize::new(0));
    /// let load = || {
    ///     loads.fetch_add(1, Ordering::Relaxed);
    ///     thread::sleep(Duration::from_millis(10)); // asks a database
    ///     "a page".to_string()
    /// };
    /// thread::scope(|scope| {
    ///     for _ in 0..8 {
    ///         scope.spawn(|| assert_eq!(*pages.get_or_insert_with("/", load).unwrap(), "a page"));
    ///     }
    /// });
    /// assert_eq!(loads.into_inner(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_or_insert_with(
        &self,
        key: K,
        load: impl FnOnce() -> V,
    ) -> Result<Ref<'_, K, V>, LoadError<K, V>> {
        self.try_get_or_insert_with(key, || Ok((load(), Lifetimes::new())))
    }

    /// As [`get_or_insert_with`](Self::get_or_insert_with), with a `load` that may fail, and that
    /// chooses the value's lifetime. If it fails, its caller gets the error, and a waiting caller
    /// calls its own.
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`], and as [`get_or_insert_with`](Self::get_or_insert_with).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use expiry::{Lifetimes, LoadError};
    /// let tokens = expiry::ExpiringMap::builder().build()?;
    /// let refused = tokens.try_get_or_insert_with("ada", || Err("no such user"));
    /// assert!(matches!(refused, Err(LoadError::Failed("no such user"))));
    /// let lifetime = Lifetimes::new().live(Duration::from_secs(5)); // as the token says
    /// let token = tokens.try_get_or_insert_with("ada", || Ok::<_, &str>((4711, lifetime)));
    /// assert_eq!(*token.unwrap(), 4711);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_get_or_insert_with<E>(
        &self,
        key: K,
        load: impl FnOnce() -> Result<(V, Lifetimes), E>,
    ) -> Result<Ref<'_, K, V>, LoadError<K, V, E>> {
        match self.get_or_guard(key).map_err(LoadError::into_other)? {
            Loaded::Found(value) => {
                // Before the reference is on its way out: a `Drop` that panics would leave it
                // pinned.
                drop(load);
                Ok(value)
            }
            Loaded::Absent(guard) => {
                let (value, lifetime) = load().map_err(LoadError::Failed)?;
                Ok(guard.insert_with_lifetime(value, lifetime)?)
            }
        }
    }

    /// The value of a key; if it has none, a guard for the caller to load it. Blocks while another
    /// caller loads it.
    ///
    /// A guard that is forgotten holds up all callers that want its key, for ever, and a shutdown
    /// does not end their wait. The same is true of a loading future that no task polls.
    ///
    /// # Errors
    ///
    /// [`LoadError::Recursive`] if this thread was given the guard, also where it has sent the guard
    /// to another thread. That one is not refused: it would wait for itself. [`LoadError::Closed`].
    pub fn get_or_guard(&self, mut key: K) -> Result<Loaded<'_, K, V, S>, LoadError<K, V>> {
        loop {
            match self.load_step(key, true)? {
                Step::Done(loaded) => return Ok(loaded),
                Step::Wait(waiting, back) => {
                    waiting.wait();
                    key = back;
                }
            }
        }
    }

    /// Looks for the value, and begins to load it if there is none.
    fn load_step(&self, key: K, blocks: bool) -> Result<Step<'_, K, V, S>, LoadError<K, V>> {
        if let Some(value) = self.get(&key) {
            drop(key); // before the reference is on its way out, as above
            return Ok(Step::Done(Loaded::Found(value)));
        }
        if self.store.engine.admission.is_refusing() {
            return Err(LoadError::Closed);
        }
        match self.flights.begin(self.hasher.hash_one(&key), blocks) {
            Begun::Own => Err(LoadError::Recursive),
            Begun::Wait(waiting) => Ok(Step::Wait(waiting, key)),
            Begun::Loader(flight) => Ok(Step::Done(match self.peek(&key) {
                // Another flight has ended between the look and the beginning of this one.
                Some(value) => {
                    drop((key, flight));
                    Loaded::Found(value)
                }
                None => {
                    let count = Count { store: &self.store, has_inserted: false };
                    Loaded::Absent(LoadGuard { map: self, key, count, flight })
                }
            })),
        }
    }
}

#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// As [`get_or_insert_with`](Self::get_or_insert_with), of a future, on any runtime. Callers
    /// that wait block no thread. The [`Ref`] is not `Send`: clone what is needed before the next
    /// `await`. If the loading caller is dropped, a waiting one loads.
    ///
    /// # Errors
    ///
    /// [`LoadError::Closed`]; [`LoadError::Refused`] as [`insert`](Self::insert). A future that
    /// awaits the key that it loads waits for ever.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let pages = expiry::ExpiringMap::builder().build()?;
    /// let load = async { "a page".to_string() };
    /// assert_eq!(*pages.get_or_insert_async("/", load).await.unwrap(), "a page");
    /// # Ok::<(), expiry::BuildError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_or_insert_async(
        &self,
        key: K,
        load: impl std::future::Future<Output = V>,
    ) -> Result<Ref<'_, K, V>, LoadError<K, V>> {
        let load = async { Ok((load.await, Lifetimes::new())) };
        self.try_get_or_insert_async(key, load).await
    }

    /// As [`try_get_or_insert_with`](Self::try_get_or_insert_with), of a future.
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`], and as [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn try_get_or_insert_async<E>(
        &self,
        key: K,
        load: impl std::future::Future<Output = Result<(V, Lifetimes), E>>,
    ) -> Result<Ref<'_, K, V>, LoadError<K, V, E>> {
        let guard = match self.get_or_guard_async(key).await.map_err(LoadError::into_other)? {
            Loaded::Found(value) => {
                drop(load); // before the reference is on its way out, as above
                return Ok(value);
            }
            Loaded::Absent(guard) => guard,
        };
        let (value, lifetime) = load.await.map_err(LoadError::Failed)?;
        Ok(guard.insert_with_lifetime(value, lifetime)?)
    }

    /// As [`get_or_guard`](Self::get_or_guard), for a task.
    ///
    /// # Errors
    ///
    /// [`LoadError::Closed`].
    pub async fn get_or_guard_async(
        &self,
        mut key: K,
    ) -> Result<Loaded<'_, K, V, S>, LoadError<K, V>> {
        loop {
            let (mut waiting, back) = match self.load_step(key, false)? {
                Step::Done(loaded) => return Ok(loaded),
                Step::Wait(waiting, back) => (waiting, back),
            };
            std::future::poll_fn(|context| waiting.poll(context)).await;
            key = back;
        }
    }
}

impl<K, V> LoadError<K, V> {
    /// The same error of a call whose loader may fail.
    fn into_other<E>(self) -> LoadError<K, V, E> {
        match self {
            LoadError::Failed(never) => match never {},
            LoadError::Refused(refused) => LoadError::Refused(refused),
            LoadError::Recursive => LoadError::Recursive,
            LoadError::Closed => LoadError::Closed,
        }
    }
}

impl<'a, K, V, S> LoadGuard<'a, K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Inserts the value, with the map's lifetime, and lets the waiting callers go on. If another
    /// call has inserted a value meanwhile, this drops its own and returns that one. The wakers of
    /// waiting tasks are called while the returned `Ref` pins the map.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert`].
    pub fn insert(self, value: V) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        self.insert_with_lifetime(value, Lifetimes::new())
    }

    /// As [`insert`](Self::insert), with a lifetime of its own.
    ///
    /// # Errors
    ///
    /// As [`ExpiringMap::insert_with_lifetime`].
    pub fn insert_with_lifetime(
        self,
        value: V,
        lifetime: impl Into<Lifetimes>,
    ) -> Result<Ref<'a, K, V>, InsertError<K, V>> {
        let LoadGuard { map, key, mut count, flight } = self;
        let settled = map.put(key, value, lifetime.into(), false)?;
        count.has_inserted = true;
        drop(flight);
        Ok(settled.into_ref())
    }
}

impl<K: fmt::Debug, V, S> fmt::Debug for LoadGuard<'_, K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadGuard").field(&self.key).finish()
    }
}
