//! Saving a map's entries with the time that each has left, and loading them again.

use super::{ExpiringMap, Iter};
use crate::keyed::living::Replaces;
use crate::keyed::{InsertError, Lifetimes};
use crate::time::{Lifetime, NEVER};
use std::hash::{BuildHasher, Hash};
use std::time::Duration;

/// An entry as [`ExpiringMap::save`] yields it, and [`ExpiringMap::load`] takes it back. With the
/// feature `serde` any serializer and deserializer takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Saved<K, V> {
    /// The key.
    pub key: K,
    /// Its value.
    pub value: V,
    /// How long until it expires, unless it is used; `None` if it never does.
    pub left: Option<Duration>,
    /// How long until it expires although it is used; `None` if it never does.
    pub live: Option<Duration>,
    /// Its time to idle, if it has one.
    pub idle: Option<Duration>,
}

/// An iterator over copies of a map's entries; see [`ExpiringMap::save`].
#[derive(Debug)]
pub struct Save<'a, K: 'static, V: 'static, S>(Iter<'a, K, V, S>);

impl<K: Hash + Eq + Clone, V: Clone, S: BuildHasher + 'static> Iterator for Save<'_, K, V, S> {
    type Item = Saved<K, V>;

    fn next(&mut self) -> Option<Saved<K, V>> {
        let store = &*self.0.map.store;
        let saved = self.0.advance(|found| {
            let (term, deadlines) = (store.term_of(*found), &store.engine.deadlines);
            let now = deadlines.now_for_look();
            let until = |tick| (tick != NEVER).then(|| deadlines.ticks().until(now, tick));
            let (key, value) = found.pair();
            Saved {
                key: key.clone(),
                value: value.clone(),
                left: until(term.deadline),
                live: until(term.idle.map_or(term.deadline, |(_, bound)| bound)),
                idle: term.idle.map(|(idle, _)| Duration::from_nanos(idle)),
            }
        });
        saved.map(|(saved, _pin)| saved)
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// Copies of all entries, each with the time that it has left, for a [`load`](Self::load) into
    /// another map. One walk, which meets keys as [`iter`](Self::iter) does, and is no use of them.
    /// `Clone` of a key and a value runs while this thread pins the map.
    ///
    /// The format is the caller's: with the feature `serde` a [`Saved`] can be serialized. Save the
    /// time of day beside the entries, and say to `load` how much has passed.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use expiry::{expiring_map::Saved, ExpiringMap};
    /// let minute = Duration::from_secs(60);
    /// let sessions = ExpiringMap::new(minute)?;
    /// sessions.insert("ada".to_string(), 4711)?;
    /// # #[cfg(feature = "serde")] {
    /// let saved: Vec<_> = sessions.save().collect();
    /// let file = serde_json::to_string(&(SystemTime::now(), saved))?;
    ///
    /// // After the restart:
    /// let sessions = ExpiringMap::new(minute)?;
    /// let (at, saved): (SystemTime, Vec<Saved<String, u64>>) = serde_json::from_str(&file)?;
    /// let refused = sessions.load(saved, at.elapsed().unwrap_or_default());
    /// assert!(refused.is_empty());
    /// assert_eq!(sessions.get_cloned("ada"), Some(4711));
    /// # }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn save(&self) -> Save<'_, K, V, S> {
        Save(self.iter())
    }

    /// Inserts saved entries, each with the time that it had left, less the time that has `passed`
    /// since. Returns those that were refused, in order.
    ///
    /// An entry whose time is up by then is not inserted. Nor is one whose key has a value, which
    /// is newer: this is a use of it. A time to idle begins anew, within the time that the entry may
    /// live.
    ///
    /// # Errors
    ///
    /// Each [`InsertError`] is one of [`insert_for`](Self::insert_for): also for
    /// a time to idle of zero, or a time that is too long, which `save` never yields.
    pub fn load(
        &self,
        entries: impl IntoIterator<Item = Saved<K, V>>,
        passed: Duration,
    ) -> Vec<InsertError<K, V>> {
        let mut refused = Vec::new();
        for Saved { key, value, left, live, idle } in entries {
            if [left, live].into_iter().flatten().any(|left| left <= passed) {
                continue;
            }
            let live = live.map_or(Lifetime::Never, |live| Lifetime::After(live - passed));
            let lifetime =
                Lifetimes::new().live(live).idle(idle.map_or(Lifetime::Never, Lifetime::After));
            match self.put(key, value, lifetime, Replaces::Nothing) {
                Ok(settled) => drop(settled.into_ref()),
                Err(error) => refused.push(error),
            }
        }
        refused
    }
}
