//! Hashed keys: which shard's index has them.

use crate::core::index::Index;
use crate::core::memory::OutOfMemory;

/// The shards' indexes, and the seeded hash by which keys find theirs.
pub(super) struct Keys {
    indexes: Box<[Index]>,
    seed: u64,
    hasher: foldhash::SharedSeed,
}

impl Keys {
    /// `shards` is a power of two.
    pub(super) fn new(shards: usize, seed: u64) -> Result<Self, OutOfMemory> {
        Ok(Keys {
            indexes: (0..shards)
                .map(|_| Index::new())
                .collect::<Result<_, _>>()?,
            seed,
            hasher: foldhash::SharedSeed::from_u64(seed),
        })
    }

    /// The seeded hash of some bits.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the low half is what is kept
    pub(super) fn hash(&self, bits: u64) -> u32 {
        use std::hash::Hasher;
        let mut hasher = foldhash::quality::FoldHasher::with_seed(self.seed, &self.hasher);
        hasher.write_u64(bits);
        hasher.finish() as u32
    }

    /// The shard whose index has the keys of this hash. The index addresses homes by the lowest
    /// bits; shards go by a product, to which all bits contribute.
    #[inline]
    pub(super) fn shard_of_hash(&self, hash: u32) -> usize {
        (hash.wrapping_mul(0x9E37_79B1) >> 24) as usize & (self.indexes.len() - 1)
    }

    /// The index that has the keys of this hash.
    #[inline]
    pub(super) fn index_of(&self, hash: u32) -> &Index {
        &self.indexes[self.shard_of_hash(hash)]
    }

    #[inline]
    pub(super) fn at(&self, shard: usize) -> &Index {
        &self.indexes[shard]
    }
}
