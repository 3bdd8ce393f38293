//! What one would write oneself: 64 mutexes, each with a hashbrown table, hashed once per operation.

use super::{finished, Hasher, New, Peer};
use crossbeam_utils::CachePadded;
use hashbrown::hash_table::{Entry, HashTable};
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Tree {
    key: u64,
    xor: u64,
    owner: u64,
}

const SHARDS: usize = 64;

/// A table behind a mutex, 64 times.
pub struct Sharded {
    shards: Box<[CachePadded<Mutex<HashTable<Tree>>>]>,
    hasher: Hasher,
}

impl Sharded {
    /// Neither the low bits, which are the place in the table, nor the top seven, which are its tag.
    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Tree>> {
        self.shards[(hash >> 48) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer for Sharded {
    const NAME: &'static str = "64 mutexes + hashbrown";
    type Id = u64;
    type Scratch = ();

    fn new(_in_flight: usize) -> Self {
        Sharded {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            hasher: Hasher::default(),
        }
    }

    fn blank() -> u64 {
        0
    }

    #[inline]
    fn begin(&self, _at: usize, (key, xor, owner): New) -> u64 {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let entry =
            shard.entry(hash, |tree| tree.key == key, |tree| self.hasher.hash_one(tree.key));
        match entry {
            Entry::Vacant(place) => place.insert(Tree { key, xor, owner }),
            Entry::Occupied(_) => panic!("in flight already"),
        };
        key
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        let hash = self.hasher.hash_one(id);
        let mut shard = self.shard(hash);
        let mut tree = shard
            .find_entry(hash, |tree| tree.key == id)
            .unwrap_or_else(|_| panic!("not in flight"));
        tree.get_mut().xor ^= edge;
        if tree.get().xor == 0 {
            finished(tree.remove().0.owner);
            return true;
        }
        false
    }

    fn slots(&self) -> Option<usize> {
        Some(
            self.shards
                .iter()
                .map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).capacity())
                .sum(),
        )
    }
}
