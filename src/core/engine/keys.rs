//! Hashed keys: which shard's index has a key.

use crate::core::index::{Index, Likely};
use crate::core::memory::OutOfMemory;
use crate::core::shards::Shards;
use crate::RandomState;
use std::any::TypeId;
use std::hash::{BuildHasher, Hash};

/// The shards' indexes, and the seeded hash by which keys find theirs.
pub(crate) struct Keys {
    indexes: Shards<Index>,
    seed: u64,
    /// Odd.
    factor: u64,
}

impl Keys {
    /// `shards` is a power of two.
    pub(super) fn new(shards: usize, seed: u64) -> Result<Self, OutOfMemory> {
        Ok(Keys {
            indexes: Shards::new((0..shards).map(|_| Index::new()).collect::<Result<_, _>>()?),
            seed,
            factor: (seed.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15) | 1,
        })
    }

    /// The hash of a key by the store's hasher. The crate's own hasher returns a seeded product
    /// already. The compiler decides which hasher it is.
    #[inline(always)]
    pub(crate) fn hash_by<S: BuildHasher + 'static>(
        &self,
        hasher: &S,
        key: &(impl Hash + ?Sized),
    ) -> u32 {
        let bits = hasher.hash_one(key);
        match TypeId::of::<S>() == TypeId::of::<RandomState>() {
            true => mixed(bits),
            false => self.hash(bits),
        }
    }

    /// The seeded hash of some bits: the halves of a product, XORed: each bit reaches all others.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // each half is kept
    pub(crate) fn hash(&self, bits: u64) -> u32 {
        let product = u128::from(bits ^ self.seed) * u128::from(self.factor);
        mixed(product as u64 ^ (product >> 64) as u64)
    }

    /// The shard whose index has this hash, by its highest bits: homes go by the lowest.
    #[inline]
    pub(crate) fn shard_of_hash(&self, hash: u32) -> usize {
        self.indexes.shard((hash >> 24) as usize)
    }

    #[inline]
    pub(crate) fn index_of(&self, hash: u32) -> &Index {
        &self.indexes[self.shard_of_hash(hash)]
    }

    /// The likely place of a key of this hash, of which this starts the fetch.
    #[inline(always)]
    pub(crate) fn likely(&self, hash: u32) -> Likely<'_> {
        self.index_of(hash).likely(hash)
    }

    #[inline]
    pub(crate) fn at(&self, shard: usize) -> &Index {
        &self.indexes[shard]
    }
}

/// A hash of 32 bits. A product's bits are not enough: for keys at regular distances both of its
/// halves are nearly arithmetic progressions. For one factor in some hundreds these cancel in the
/// low bits, so many keys fall into a few homes.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // the upper half fits
fn mixed(bits: u64) -> u32 {
    (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as u32
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../../tests/unit/core_engine_keys.rs"]
mod tests;
