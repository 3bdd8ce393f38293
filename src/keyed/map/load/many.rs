//! Bulk loads: one call of a loader for all the keys that have no value.

use super::{landed, ExpiringMap, LoadError, LoadGuard, Loaded, Step, Value};
use crate::keyed::Lifetimes;
use crate::sync::flights::Outcome;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

impl<K, V, S> ExpiringMap<K, V, S>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
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
        let (mut values, mut asked) = (HashMap::new(), HashSet::new());
        let mut open: Vec<&Q> = keys.into_iter().filter(|&key| asked.insert(key)).collect();
        while !open.is_empty() {
            let (mut guards, mut waits) = (Vec::new(), Vec::new());
            for key in std::mem::take(&mut open) {
                match self.load_step(key, true, false) {
                    Ok(Step::Done(Loaded::Found(value))) => {
                        values.insert(key, cloned(value));
                    }
                    Ok(Step::Done(Loaded::Absent(guard))) => guards.push((key, guard)),
                    Ok(Step::Wait(waiting)) => waits.push((key, waiting)),
                    // This very call loads another key of the same hash.
                    Err(LoadError::Recursive) if self.is_among(&guards, key) => open.push(key),
                    Err(error) => return Err(error),
                }
            }
            // Before the waits: another bulk load may wait for these keys.
            if !guards.is_empty() {
                let missing: Vec<_> = guards.iter().map(|&(key, _)| key).collect();
                match load(&missing) {
                    Ok(loaded) => Self::land(guards, loaded, &mut values),
                    Err(error) => return Err(fail_all(guards, error)),
                }
            }
            for (key, waiting) in waits {
                waiting.wait();
                match landed(waiting, key) {
                    Some(value) => drop(values.insert(key, cloned(value?))),
                    None => open.push(key),
                }
            }
        }
        Ok(values)
    }

    /// Whether one of these guards loads a key of this one's hash.
    fn is_among<Q>(&self, guards: &[(&Q, LoadGuard<'_, K, V, S>)], key: &Q) -> bool
    where
        Q: Hash + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        guards.iter().any(|(other, _)| self.hasher.hash_one(other) == hash)
    }

    /// Inserts what was loaded, and ends the loads of the keys that were left out.
    fn land<'q, Q>(
        guards: Vec<(&'q Q, LoadGuard<'_, K, V, S>)>,
        loaded: impl IntoIterator<Item = (K, V, Lifetimes)>,
        values: &mut HashMap<&'q Q, V>,
    ) where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut guards: HashMap<_, _> = guards.into_iter().collect();
        for (key, value, lifetime) in loaded {
            let Some((key, guard)) = guards.remove_entry(key.borrow()) else { continue };
            let value = match guard.insert_for(value, lifetime) {
                Ok(value) => cloned(value),
                Err(refused) => refused.value,
            };
            values.insert(key, value);
        }
    }
}

/// A clone of the value, which is let go of: the keys' `Hash` runs unpinned.
fn cloned<K, V: Clone>(value: Value<'_, K, V>) -> V {
    let cloned = value.value().clone();
    drop(value); // before the clone is on its way out
    cloned
}

/// Ends these loads. All callers that wait for them get the error.
fn fail_all<Q: ?Sized, K, V, S, E>(
    guards: Vec<(&Q, LoadGuard<'_, K, V, S>)>,
    error: E,
) -> LoadError<K, V, E>
where
    K: Clone,
    E: Send + Sync + 'static,
{
    let error = Arc::new(error);
    for (_, guard) in guards {
        drop(guard.loading.end(Outcome::Failed(error.clone())));
    }
    LoadError::Failed(error)
}
