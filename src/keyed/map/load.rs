//! Loading: of several callers that miss one key, one loads its value (`crate::sync::flights`).

mod guard;
mod many;

pub use self::guard::LoadGuard;
use super::lent::stands_for_value;
use super::{ExpiringMap, Ref};
use crate::keyed::store::Found;
use crate::keyed::{InsertError, Lifetimes, StoreError};
use crate::kit::panics::is_called;
#[cfg(feature = "async")]
use crate::sync::flights::Loading;
use crate::sync::flights::{Begun, Flight, Outcome, Waiting};
use std::any::Any;
use std::borrow::Borrow;
use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A key and its value, of a call that loads what is missing. Dereferences to the value.
///
/// If the map had the value, this lends it, as a [`Ref`] does, and pins the map. If a load has
/// brought it, this shares the load's own clone with the other callers that waited. So it stays
/// what it is whatever becomes of the entry. It does not know how long the entry has left:
/// [`ExpiringMap::remaining`] looks that up.
pub struct Value<'a, K: 'static, V: 'static>(Held<'a, K, V>);

enum Held<'a, K: 'static, V: 'static> {
    Lent(Ref<'a, K, V>),
    /// While another caller reloads it.
    Old(Ref<'a, K, V>),
    /// As it was before a reload that failed. The error is dropped here, after the pin.
    Kept(Ref<'a, K, V>, #[allow(dead_code)] Arc<dyn Any + Send + Sync>),
    /// The value that a flight has loaded.
    Loaded(Arc<Flight<K, V>>),
}

impl<K, V> Value<'_, K, V> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &K {
        match &self.0 {
            Held::Lent(entry) | Held::Old(entry) | Held::Kept(entry, _) => entry.key(),
            Held::Loaded(flight) => flight.key(),
        }
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &V {
        match &self.0 {
            Held::Lent(entry) | Held::Old(entry) | Held::Kept(entry, _) => entry.value(),
            Held::Loaded(flight) => match flight.outcome() {
                Some(Outcome::Loaded(value)) => value,
                _ => unreachable!("its value has been loaded"),
            },
        }
    }

    /// Whether it is older than the map's
    /// [`refresh_after`](super::ExpiringMapBuilder::refresh_after): the reload of this call failed,
    /// or another caller's is under way. `false` of calls that do not reload.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self.0, Held::Old(_) | Held::Kept(..))
    }
}

stands_for_value!(Value);

/// What [`ExpiringMap::get_or_guard`] returns.
#[derive(Debug)]
pub enum Loaded<'a, K: 'static, V: 'static, S> {
    /// The key has this value, or another caller has just loaded it.
    Found(Value<'a, K, V>),
    /// The key has none, and the caller is to load it.
    Absent(LoadGuard<'a, K, V, S>),
}

/// Why a key's value was not loaded.
#[non_exhaustive]
pub enum LoadError<K, V, E = Infallible> {
    /// The loader failed, this caller's or the one that it waited for.
    Failed(Arc<E>),
    /// The loader's value was refused. This gives it back.
    Refused(InsertError<K, V>),
    /// This thread already loads the key, or one of the same 64-bit hash: it would wait for itself.
    Recursive,
    /// Another caller still loads it, after as long as this one was to wait
    /// ([`get_or_guard_timeout`](ExpiringMap::get_or_guard_timeout)).
    TimedOut,
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
            LoadError::TimedOut => f.write_str("TimedOut"),
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
            LoadError::TimedOut => f.write_str("another caller still loads the value"),
            LoadError::Closed => fmt::Display::fmt(&StoreError::Closed, f),
        }
    }
}

impl<K, V, E: std::error::Error + 'static> std::error::Error for LoadError<K, V, E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Failed(error) => Some(&**error),
            LoadError::Refused(refused) => Some(&refused.error),
            LoadError::Recursive | LoadError::TimedOut | LoadError::Closed => None,
        }
    }
}

/// The next step of a caller that wants a value, or a guard.
enum Step<'a, K: 'static, V: 'static, S> {
    Done(Loaded<'a, K, V, S>),
    Wait(Waiting<K, V>),
}

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// The value of a key; if it has none, what `load` makes, inserted with the map's lifetime,
    /// which begins then. Of several callers that miss the key one calls its `load`; the others
    /// wait for it, and get its value even if the entry has ended by then. If a `load` panics, a
    /// waiting caller calls its own.
    ///
    /// A thread inside a listener, handler, waker or `Drop` that any store calls does not wait: it
    /// calls its own `load`, and the map does not keep that value. A bolt waits.
    ///
    /// A change wins: if another call removes the key during the load, or gives it a value, the
    /// callers that waited get the loaded value, and the map does not keep it, whatever becomes of
    /// the other one. A caller that comes after a removal loads anew: from a source that both
    /// threads use under a lock, by messages, or by `SeqCst` atomics. (Weaker atomics may show the
    /// load what was there before the removing thread changed it.)
    ///
    /// In a map with [`refresh_after`](super::ExpiringMapBuilder::refresh_after) one caller that
    /// finds an old value calls its `load`, too. The others get the old value at once.
    ///
    /// ([`or_insert_with`](super::Entry::or_insert_with) blocks no caller: each makes a value.) The
    /// key is borrowed: where it has a value, nothing is allocated.
    ///
    /// # Cost
    ///
    /// That of [`get`](Self::get), if the key has a value. Otherwise locks are taken for some
    /// instructions, the key is made owned twice, the value is cloned once, and callers that wait
    /// block their thread. Two loaders that each want the other one's key wait for ever.
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
    /// let pages = expiry::ExpiringMap::<String, String>::new(Duration::from_secs(60))?;
    /// let loads = AtomicUsize::new(0);
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
    #[doc(alias("get_with", "get_with_by_ref"))]
    pub fn get_or_insert_with<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        load: impl FnOnce() -> V,
    ) -> Result<Value<'_, K, V>, LoadError<K, V>>
    where
        K: Borrow<Q>,
    {
        self.try_get_or_insert_with(key, || Ok((load(), Lifetimes::new())))
    }

    /// The value of a key, loaded by a `load` that may fail, and that chooses the value's lifetime;
    /// otherwise as [`get_or_insert_with`](Self::get_or_insert_with). If it fails, its caller gets
    /// the error, and so do all that waited for it with the same `E`; a caller that comes later
    /// loads anew. To have each waiting caller try its own load instead, one after the other, take
    /// [`get_or_guard`](Self::get_or_guard), and drop the guard if the load fails.
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
    /// let refused = tokens.try_get_or_insert_with(&"ada", || Err("no such user"));
    /// assert!(matches!(refused, Err(LoadError::Failed(error)) if *error == "no such user"));
    /// let lifetime = Lifetimes::new().live(Duration::from_secs(5)); // as the token says
    /// let token = tokens.try_get_or_insert_with(&"ada", || Ok::<_, &str>((4711, lifetime)));
    /// assert_eq!(*token.unwrap(), 4711);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "try_get_with")]
    pub fn try_get_or_insert_with<Q, E>(
        &self,
        key: &Q,
        load: impl FnOnce() -> Result<(V, Lifetimes), E>,
    ) -> Result<Value<'_, K, V>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        match self.guard_or(key, true, None) {
            // Before the reference, or the error, is on its way out: a `Drop` that panics would
            // leave the one pinned, and leak the other.
            Ok(Loaded::Found(value)) => {
                drop(load);
                Ok(value)
            }
            Err(error) => {
                drop(load);
                Err(error)
            }
            Ok(Loaded::Absent(guard)) => match load() {
                Ok((value, lifetime)) => Ok(guard.insert_for(value, lifetime)?),
                Err(error) => guard.fail(key, error),
            },
        }
    }

    /// The value of a key, however old; if it has none, a guard for the caller to load it. Blocks
    /// while another caller loads it, and gets the value of that load. If that load fails, one of
    /// the callers that wait here gets a guard.
    ///
    /// A guard that is forgotten holds up all callers that want its key, for ever, and a shutdown
    /// does not end their wait. The same is true of a loading future that no task polls, unless its
    /// own task [awaits the key](Self::get_or_insert_async).
    ///
    /// A shutdown does not end a load either. The map does not keep the value, which the loader and
    /// callers that waited get; if there is none, these get [`LoadError::Closed`].
    ///
    /// # Errors
    ///
    /// [`LoadError::Recursive`] if this thread was given the guard, also where it has sent the
    /// guard to another thread. The other thread is not refused, and would wait for itself.
    /// [`LoadError::Closed`].
    pub fn get_or_guard<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Loaded<'_, K, V, S>, LoadError<K, V>>
    where
        K: Borrow<Q>,
    {
        self.guard_or(key, false, None)
    }

    /// As [`get_or_guard`](Self::get_or_guard), for a caller with a deadline of its own: it waits
    /// for `limit` at most, in the system's monotonic time, whatever clock the map has. The load
    /// goes on. A task drops its [`get_or_guard_async`](Self::get_or_guard_async) instead.
    ///
    /// # Errors
    ///
    /// [`LoadError::TimedOut`]; at once, where `limit` is zero and another caller loads. Otherwise
    /// as [`get_or_guard`](Self::get_or_guard).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::{thread, time::Duration};
    /// use expiry::{expiring_map::Loaded, LoadError};
    ///
    /// let pages = expiry::ExpiringMap::<&str, String>::new(Duration::from_secs(60))?;
    /// let page = |limit| match pages.get_or_guard_timeout(&"/", limit)? {
    ///     Loaded::Found(page) => Ok(page.clone()),
    ///     // It asks a database.
    ///     Loaded::Absent(guard) => Ok(guard.insert("<h1>".to_string())?.clone()),
    /// };
    /// let slow = pages.get_or_guard(&"/");
    /// thread::scope(|scope| {
    ///     let other = scope.spawn(|| page(Duration::from_millis(10)));
    ///     assert!(matches!(other.join().unwrap(), Err(LoadError::TimedOut)));
    /// });
    /// drop(slow);
    /// assert_eq!(page(Duration::from_millis(10)).unwrap(), "<h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "get_value_or_guard")]
    pub fn get_or_guard_timeout<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        limit: Duration,
    ) -> Result<Loaded<'_, K, V, S>, LoadError<K, V>>
    where
        K: Borrow<Q>,
    {
        self.guard_or(key, false, Instant::now().checked_add(limit))
    }

    /// The step of all loads that block. The error may be that of the load that this has waited
    /// for, or [`LoadError::TimedOut`]. The guard may be that of a reload, if this call `reloads`.
    fn guard_or<Q, E>(
        &self,
        key: &Q,
        reloads: bool,
        until: Option<Instant>,
    ) -> Result<Loaded<'_, K, V, S>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        loop {
            let waiting = match self.load_step(key, true, reloads)? {
                Step::Done(loaded) => return Ok(loaded),
                Step::Wait(waiting) => waiting,
            };
            if !waiting.wait(until) {
                return Err(LoadError::TimedOut);
            }
            if let Some(landed) = landed(waiting, key) {
                return Ok(Loaded::Found(landed?));
            }
        }
    }

    /// Looks for the value, and begins to load it if there is none, or if it is due for a reload
    /// and the call `reloads`.
    fn load_step<Q, E>(
        &self,
        key: &Q,
        blocks: bool,
        reloads: bool,
    ) -> Result<Step<'_, K, V, S>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        let found = |held| Step::Done(Loaded::Found(Value(held)));
        let stale = |found: &Found<'_, K, V>| self.store.stale(found).filter(|_| reloads);
        loop {
            // The key is made owned, and the loader runs, unpinned.
            let is_stale = match self.get_and(key, stale) {
                Some((entry, None)) => return Ok(found(Held::Lent(entry))),
                there => there.is_some(),
            };
            if self.store.engine.admission.is_refusing() {
                return Err(LoadError::Closed);
            }
            // Inside a listener this thread may be the one that the loader waits for.
            let waits = is_stale || !blocks || !is_called();
            let hash = self.hasher.hash_one(key);
            let loading = match self.flights.begin(hash, || key.to_owned(), blocks, waits) {
                Begun::Loader(loading) => loading,
                // The old value is served during the reload.
                begun if is_stale => {
                    drop(begun); // before the reference is on its way out, as above
                    match self.peek_and(key, stale) {
                        Some((entry, Some(_))) => return Ok(found(Held::Old(entry))),
                        Some((entry, None)) => return Ok(found(Held::Lent(entry))),
                        None => continue,
                    }
                }
                Begun::Own => return Err(LoadError::Recursive),
                Begun::Wait(waiting) => return Ok(Step::Wait(waiting)),
            };
            let stale = match self.peek_and(key, stale) {
                // Another flight has ended between the look and the beginning of this one.
                Some((entry, None)) => {
                    drop(loading); // as above
                    return Ok(found(Held::Lent(entry)));
                }
                there => there.and_then(|(_, place)| place),
            };
            let guard = LoadGuard::new(self, stale, loading);
            return Ok(Step::Done(Loaded::Absent(guard)));
        }
    }
}

#[cfg(feature = "async")]
impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// The value of a key, loaded by a future, on any runtime; otherwise as
    /// [`get_or_insert_with`](Self::get_or_insert_with). Callers that wait block no thread. The
    /// [`Value`] is not `Send`: clone what is needed before the next `await`. If the loading caller
    /// is dropped, a waiting one loads.
    ///
    /// A task may keep one future of a key unpolled and await another. Once the kept one's load was
    /// woken and is not polled, the awaited one loads the key itself. The kept one then gets its
    /// own value, and the map does not keep that. Both futures must be polled by the same waker, as
    /// in `join!` and `select!`: a `FuturesUnordered` has wakers of its own. A future waits also
    /// where a listener blocks on it.
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
    /// assert_eq!(*pages.get_or_insert_async(&"/", load).await.unwrap(), "a page");
    /// # Ok::<(), expiry::BuildError>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_or_insert_async<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
        load: impl std::future::Future<Output = V>,
    ) -> Result<Value<'_, K, V>, LoadError<K, V>>
    where
        K: Borrow<Q>,
    {
        let load = async { Ok((load.await, Lifetimes::new())) };
        self.try_get_or_insert_async(key, load).await
    }

    /// The value of a key, loaded by a future that may fail, and that chooses the value's lifetime;
    /// otherwise as [`try_get_or_insert_with`](Self::try_get_or_insert_with).
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`], and as [`get_or_insert_async`](Self::get_or_insert_async).
    pub async fn try_get_or_insert_async<Q, E>(
        &self,
        key: &Q,
        load: impl std::future::Future<Output = Result<(V, Lifetimes), E>>,
    ) -> Result<Value<'_, K, V>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        let guard = match self.guard_or_async(key, true).await {
            Ok(Loaded::Found(value)) => {
                drop(load); // before the reference is on its way out, as above
                return Ok(value);
            }
            Err(error) => {
                drop(load);
                return Err(error);
            }
            Ok(Loaded::Absent(guard)) => guard,
        };
        match Loading::run(&[&guard.loading], load).await {
            Ok((value, lifetime)) => Ok(guard.insert_for(value, lifetime)?),
            Err(error) => guard.fail(key, error),
        }
    }

    /// The value of a key, or a guard to load it, for a task, which waits without blocking its
    /// thread; otherwise as [`get_or_guard`](Self::get_or_guard).
    ///
    /// # Errors
    ///
    /// [`LoadError::Closed`].
    ///
    /// # Examples
    ///
    /// A [`Value`] is not `Send`. So move the guard out of the `match` before the next `await`:
    ///
    /// ```
    /// use expiry::{expiring_map::Loaded, ExpiringMap, StoreError};
    ///
    /// async fn body(pages: ExpiringMap<u64, String>, page: u64) -> Result<String, StoreError> {
    ///     let mut guard = match pages.get_or_guard_async(&page).await {
    ///         Ok(Loaded::Found(body)) => return Ok(body.clone()),
    ///         Ok(Loaded::Absent(guard)) => guard,
    ///         Err(_) => return Err(StoreError::Closed),
    ///     };
    ///     guard.reserve(1)?;
    ///     let body = async { "<h1>".to_string() }.await; // as long as it takes
    ///     Ok(guard.insert(body).map_err(|refused| refused.error)?.clone())
    /// }
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let pages = ExpiringMap::builder().max_capacity(10).build()?;
    /// assert_eq!(tokio::spawn(body(pages, 7)).await??, "<h1>");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_or_guard_async<Q: Hash + Eq + ToOwned<Owned = K> + ?Sized>(
        &self,
        key: &Q,
    ) -> Result<Loaded<'_, K, V, S>, LoadError<K, V>>
    where
        K: Borrow<Q>,
    {
        self.guard_or_async(key, false).await
    }

    async fn guard_or_async<Q, E>(
        &self,
        key: &Q,
        reloads: bool,
    ) -> Result<Loaded<'_, K, V, S>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        E: Send + Sync + 'static,
    {
        loop {
            let mut waiting = match self.load_step(key, false, reloads)? {
                Step::Done(loaded) => return Ok(loaded),
                Step::Wait(waiting) => waiting,
            };
            std::future::poll_fn(|context| waiting.poll(&self.flights, context)).await;
            if let Some(landed) = landed(waiting, key) {
                return Ok(Loaded::Found(landed?));
            }
        }
    }
}

/// The value, or the first failure, of a load that another caller ran.
type Landed<'a, K, V, E> = Result<Value<'a, K, V>, LoadError<K, V, E>>;

/// What a flight that is over brings a caller that has waited for it with this key, if anything.
fn landed<'a, K, V, Q, E>(waiting: Waiting<K, V>, key: &Q) -> Option<Landed<'a, K, V, E>>
where
    K: Borrow<Q>,
    Q: Eq + ?Sized,
    E: Send + Sync + 'static,
{
    let flight = waiting.flight();
    drop(waiting);
    if flight.key().borrow() != key {
        return None;
    }
    match flight.outcome() {
        Some(Outcome::Loaded(_)) => Some(Ok(Value(Held::Loaded(flight)))),
        Some(Outcome::Failed(error)) => {
            let error = error.clone().downcast::<E>().ok()?;
            // Before the error is on its way out: the `Drop` of a key may panic.
            drop(flight);
            Some(Err(LoadError::Failed(error)))
        }
        _ => None,
    }
}
