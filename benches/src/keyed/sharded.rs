//! What one would write oneself: 64 mutexes, each with a hashbrown table and a `BTreeMap` of its deadlines. Exact, by the
//! nanosecond; what is due is not found any more.

use super::{Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use crossbeam_utils::CachePadded;
use hashbrown::hash_table::{Entry as Found, HashTable};
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tells deadlines apart: when, and a number that nobody else in the shard has.
type Place = (u64, u64);

struct Entry<K, V> {
    key: K,
    value: V,
    place: Place,
}

struct Shard<K, V> {
    table: HashTable<Entry<K, V>>,
    due: BTreeMap<Place, K>,
    serial: u64,
}

const SHARDS: usize = 64;

type Shards<K, V> = Box<[CachePadded<Mutex<Shard<K, V>>>]>;

pub struct Sharded<K, V> {
    shards: Shards<K, V>,
    hasher: Hasher,
}

impl<K: Key, V: Value> Sharded<K, V> {
    /// Neither the low bits, which are the place in the table, nor the top seven, which are its tag.
    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard<K, V>> {
        lock(&self.shards[(hash >> 48) as usize % SHARDS])
    }
}

#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Key, V: Value> Store<K, V> for Sharded<K, V> {
    const NAME: &'static str = "64 mutexes + BTreeMap";
    const DOES: &'static str =
        "in each shard a hash table and a tree of deadlines; moves the deadline in the tree";
    const DRIVEN: bool = true;
    type Handle = ();

    fn new(_setup: &Setup<'_>) -> Self {
        let shard = |_| {
            CachePadded::new(Mutex::new(Shard {
                table: HashTable::new(),
                due: BTreeMap::new(),
                serial: 0,
            }))
        };
        Sharded { shards: (0..SHARDS).map(shard).collect(), hasher: Hasher::default() }
    }

    #[inline]
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        let hash = self.hasher.hash_one(&key);
        let deadline = now.get() + timeout;
        let mut shard = self.shard(hash);
        let Shard { table, due, serial } = &mut *shard;
        *serial += 1;
        let place = (deadline, *serial);
        let found =
            table.entry(hash, |entry| entry.key == key, |entry| self.hasher.hash_one(&entry.key));
        let old = match found {
            Found::Vacant(vacant) => {
                due.insert(place, key.clone());
                vacant.insert(Entry { key, value, place });
                None
            }
            Found::Occupied(mut occupied) => {
                let entry = occupied.get_mut();
                let own = due.remove(&entry.place).expect("in the table and the tree");
                due.insert(place, own);
                entry.place = place;
                Some(std::mem::replace(&mut entry.value, value).number())
            }
        };
        (old, ())
    }

    #[inline]
    fn get(&self, key: &K, now: Now<'_>) -> Option<u64> {
        let hash = self.hasher.hash_one(key);
        let now = now.get();
        let shard = self.shard(hash);
        let entry = shard.table.find(hash, |entry| entry.key == *key)?;
        (entry.place.0 > now).then(|| entry.value.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, now: Now<'_>, timeout: u64) -> bool {
        let hash = self.hasher.hash_one(key);
        let now = now.get();
        let deadline = now + timeout;
        let mut shard = self.shard(hash);
        let Shard { table, due, .. } = &mut *shard;
        let Some(entry) = table.find_mut(hash, |entry| entry.key == *key) else {
            return false;
        };
        if entry.place.0 <= now {
            return false;
        }
        if entry.place.0 != deadline {
            let own = due.remove(&entry.place).expect("in the table and the tree");
            entry.place.0 = deadline;
            due.insert(entry.place, own);
        }
        true
    }

    #[inline]
    fn remove(&self, key: &K, now: Now<'_>) -> bool {
        let hash = self.hasher.hash_one(key);
        let now = now.get();
        let mut shard = self.shard(hash);
        let Shard { table, due, .. } = &mut *shard;
        let Ok(entry) = table.find_entry(hash, |entry| entry.key == *key) else {
            return false;
        };
        let place = entry.remove().0.place;
        due.remove(&place);
        place.0 > now
    }

    fn advance(&self, now: u64) -> usize {
        let mut expired = 0;
        for shard in &self.shards {
            let mut shard = lock(shard);
            let Shard { table, due, .. } = &mut *shard;
            while let Some(first) = due.first_entry().filter(|first| first.key().0 <= now) {
                let key = first.remove();
                let hash = self.hasher.hash_one(&key);
                if let Ok(entry) = table.find_entry(hash, |entry| entry.key == key) {
                    entry.remove();
                    expired += 1;
                }
            }
        }
        expired
    }

    fn live(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).table.len()).sum()
    }
}
