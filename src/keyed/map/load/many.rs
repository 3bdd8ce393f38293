//! Bulk loads: one call of a loader for all the keys that have no value.

use super::{landed, ExpiringMap, LoadError, LoadGuard, Loaded, Step, Value};
use crate::keyed::Lifetimes;
#[cfg(feature = "async")]
use crate::sync::flights::Loading;
use crate::sync::flights::{Outcome, Waiting};
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
#[cfg(feature = "async")]
use std::future::{poll_fn, Future};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// Clones of the values of many keys. One call of `load` makes those that are missing, and the
    /// map keeps them as [`get_or_insert_with`](Self::get_or_insert_with) does. `load` is asked for
    /// each key once, in the order of `keys`, but not for a key that another caller loads. This
    /// call waits for that load, after its own. If that comes to nothing, `load` is called once
    /// more.
    ///
    /// `load` may leave out keys: the result has no value for them, other callers that wait for
    /// them call their own loaders, and `failed_loads` in the metrics counts them. Keys that it was
    /// not asked for are dropped. A value that the map [refuses](Self::insert) is in the result all
    /// the same. Values of any age are found: this call reloads none
    /// ([`refresh_after`](crate::ExpiringMapBuilder::refresh_after)).
    ///
    /// # Cost
    ///
    /// A look-up, two hashes and a clone for each key, and what a load costs for each that is
    /// missing. Two bulk loads that want each other's keys do not wait for ever.
    ///
    /// # Errors
    ///
    /// [`LoadError::Recursive`], [`LoadError::Closed`]. Values that were loaded stay in the map.
    ///
    /// # Examples
    ///
    /// ```
    /// let names = expiry::ExpiringMap::<u64, &str>::builder().build()?;
    /// names.insert(1, "ada")?;
    /// let found = names.get_or_insert_many([&1, &2, &3], |missing| {
    ///     assert_eq!(missing.len(), 2); // SELECT id, name FROM users WHERE id IN (2, 3)
    ///     vec![(2, "bob")]
    /// });
    /// let found = found.unwrap();
    /// assert_eq!((found[&1], found[&2], found.get(&3)), ("ada", "bob", None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("getAll", "get_all"))]
    pub fn get_or_insert_many<'q, Q, I>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut load: impl FnMut(&[&'q Q]) -> I,
    ) -> Result<HashMap<&'q Q, V>, LoadError<K, V>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        I: IntoIterator<Item = (K, V)>,
    {
        let lasting = |(key, value)| (key, value, Lifetimes::new());
        self.try_get_or_insert_many(keys, |missing| Ok(load(missing).into_iter().map(lasting)))
    }

    /// The values of many keys, loaded by a `load` that may fail, and that chooses each value's
    /// lifetime; otherwise as [`get_or_insert_many`](Self::get_or_insert_many).
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`] if `load` fails, or another caller's load of one of the keys, with the
    /// same `E`; and as [`get_or_insert_many`](Self::get_or_insert_many).
    pub fn try_get_or_insert_many<'q, Q, I, E>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut load: impl FnMut(&[&'q Q]) -> Result<I, E>,
    ) -> Result<HashMap<&'q Q, V>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
        I: IntoIterator<Item = (K, V, Lifetimes)>,
        E: Send + Sync + 'static,
    {
        let mut many = Many::of(keys);
        while !many.open.is_empty() {
            let (guards, waits) = many.begin(self, true)?;
            // Before the waits: another bulk load may wait for these keys.
            if !guards.is_empty() {
                let loaded = load(&asked_of(&guards));
                many.land(guards, loaded)?;
            }
            for (key, waiting) in waits {
                waiting.wait(None);
                many.take(key, waiting)?;
            }
        }
        Ok(many.values)
    }
}

#[cfg(feature = "async")]
impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// As [`try_get_or_insert_many`](Self::try_get_or_insert_many), for a task: one future loads
    /// what is missing, on any runtime, and waiting blocks no thread. If this is dropped, waiting
    /// callers load. Each poll of the loading future costs a lock for each of its keys.
    ///
    /// # Errors
    ///
    /// [`LoadError::Failed`] if the future fails, or another caller's load of one of the keys, with
    /// the same `E`; and as [`get_or_insert_async`](Self::get_or_insert_async).
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::Lifetimes;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let names = expiry::ExpiringMap::<u64, &str>::builder().build()?;
    /// names.insert(1, "ada")?;
    /// let found = names.try_get_or_insert_many_async([&1, &2, &3], |missing| async move {
    ///     assert_eq!(missing, [&2, &3]); // SELECT id, name FROM users WHERE id IN (2, 3)
    ///     Ok::<_, std::io::Error>([(2, "bob", Lifetimes::new())])
    /// });
    /// let found = found.await?;
    /// assert_eq!((found[&1], found[&2], found.get(&3)), ("ada", "bob", None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn try_get_or_insert_many_async<'q, Q, F, I, E>(
        &self,
        keys: impl IntoIterator<Item = &'q Q>,
        mut load: impl FnMut(Vec<&'q Q>) -> F,
    ) -> Result<HashMap<&'q Q, V>, LoadError<K, V, E>>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized + 'q,
        F: Future<Output = Result<I, E>>,
        I: IntoIterator<Item = (K, V, Lifetimes)>,
        E: Send + Sync + 'static,
    {
        let mut many = Many::of(keys);
        while !many.open.is_empty() {
            let (guards, waits) = many.begin(self, false)?;
            if !guards.is_empty() {
                let loads: Vec<_> = guards.iter().map(|(_, guard)| &guard.loading).collect();
                let loaded = Loading::run(&loads, load(asked_of(&guards))).await;
                drop(loads);
                many.land(guards, loaded)?;
            }
            for (key, mut waiting) in waits {
                poll_fn(|context| waiting.poll(&self.flights, context)).await;
                many.take(key, waiting)?;
            }
        }
        Ok(many.values)
    }
}

/// The keys that this call loads.
type Guards<'a, 'q, K, V, S, Q> = Vec<(&'q Q, LoadGuard<'a, K, V, S>)>;

/// The keys that other callers load.
type Waits<'q, K, V, Q> = Vec<(&'q Q, Waiting<K, V>)>;

fn asked_of<'q, K, V, S, Q: ?Sized>(guards: &Guards<'_, 'q, K, V, S, Q>) -> Vec<&'q Q> {
    guards.iter().map(|&(key, _)| key).collect()
}

/// A bulk load under way.
struct Many<'q, V, Q: ?Sized> {
    /// The keys that this call has neither found nor begun to wait for.
    open: Vec<&'q Q>,
    values: HashMap<&'q Q, V>,
}

impl<'q, V: Clone + 'static, Q: Hash + Eq + ?Sized> Many<'q, V, Q> {
    fn of(keys: impl IntoIterator<Item = &'q Q>) -> Self {
        let mut asked = HashSet::new();
        let open = keys.into_iter().filter(|&key| asked.insert(key)).collect();
        Many { open, values: HashMap::new() }
    }

    /// Looks all open keys up, and begins to load, or to wait for, those that have no value.
    #[allow(clippy::type_complexity)] // two lists
    fn begin<'a, K, S, E>(
        &mut self,
        map: &'a ExpiringMap<K, V, S>,
        blocks: bool,
    ) -> Result<(Guards<'a, 'q, K, V, S, Q>, Waits<'q, K, V, Q>), LoadError<K, V, E>>
    where
        K: Borrow<Q> + Hash + Eq + Clone,
        Q: ToOwned<Owned = K>,
        S: BuildHasher + 'static,
    {
        let (mut guards, mut waits): (Guards<'_, '_, _, _, _, _>, _) = (Vec::new(), Vec::new());
        for key in std::mem::take(&mut self.open) {
            let is_among = |guards: &Guards<'_, '_, K, V, S, Q>| {
                let hash = map.hasher.hash_one(key);
                guards.iter().any(|(other, _)| map.hasher.hash_one(other) == hash)
            };
            match map.load_step(key, blocks, false) {
                Ok(Step::Done(Loaded::Found(value))) => {
                    self.values.insert(key, cloned(value));
                }
                Ok(Step::Done(Loaded::Absent(guard))) => guards.push((key, guard)),
                Ok(Step::Wait(waiting)) => waits.push((key, waiting)),
                // This very call loads another key of the same hash.
                Err(LoadError::Recursive) if is_among(&guards) => self.open.push(key),
                Err(error) => return Err(error),
            }
        }
        Ok((guards, waits))
    }

    /// Inserts what was loaded, and ends the loads of keys that were left out. After an error it
    /// ends all loads, with that error.
    fn land<K, S, E>(
        &mut self,
        guards: Guards<'_, 'q, K, V, S, Q>,
        loaded: Result<impl IntoIterator<Item = (K, V, Lifetimes)>, E>,
    ) -> Result<(), LoadError<K, V, E>>
    where
        K: Borrow<Q> + Hash + Eq + Clone,
        S: BuildHasher + 'static,
        E: Send + Sync + 'static,
    {
        let loaded = match loaded {
            Ok(loaded) => loaded,
            Err(error) => {
                let error = Arc::new(error);
                for (_, guard) in guards {
                    drop(guard.loading.end(Outcome::Failed(error.clone())));
                }
                return Err(LoadError::Failed(error));
            }
        };
        let mut guards: HashMap<_, _> = guards.into_iter().collect();
        for (key, value, lifetime) in loaded {
            let Some((key, guard)) = guards.remove_entry(key.borrow()) else { continue };
            let value = match guard.insert_for(value, lifetime) {
                Ok(value) => cloned(value),
                Err(refused) => refused.value,
            };
            self.values.insert(key, value);
        }
        // The `Drop` of a key may panic: a `Vec` then drops the others, and a `HashMap` does not.
        drop(guards.into_values().collect::<Vec<_>>());
        Ok(())
    }

    /// Takes what another caller's load has come to. If nothing, the key is open again.
    fn take<K: Borrow<Q> + 'static, E>(
        &mut self,
        key: &'q Q,
        waiting: Waiting<K, V>,
    ) -> Result<(), LoadError<K, V, E>>
    where
        E: Send + Sync + 'static,
    {
        match landed(waiting, key) {
            Some(value) => drop(self.values.insert(key, cloned(value?))),
            None => self.open.push(key),
        }
        Ok(())
    }
}

/// Clones the value, and drops it: the keys' `Hash` runs unpinned.
fn cloned<K, V: Clone>(value: Value<'_, K, V>) -> V {
    let cloned = value.value().clone();
    drop(value); // before the clone is on its way out
    cloned
}
