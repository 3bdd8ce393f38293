//! The default hasher of keys. Its algorithm is foldhash's; its name is not.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

/// The default hasher of an [`ExpiringMap`](crate::ExpiringMap)'s keys, seeded at random for each
/// map.
///
/// It is foldhash's fast one, which may be replaced by a better one in any version: hashes are not
/// to be kept. A caller that does not know its seed does not find colliding keys by trying; it is
/// no cryptographic hash. 8 bytes.
///
/// ```
/// use expiry::{ExpiringMap, RandomState};
/// use std::time::Duration;
///
/// struct Connections {
///     by_id: ExpiringMap<u64, String, RandomState>, // or without the third
/// }
/// let by_id = ExpiringMap::builder().time_to_idle(Duration::from_secs(60)).build()?;
/// let connections = Connections { by_id };
/// connections.by_id.insert(7, "seven".to_string())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RandomState(foldhash::fast::SeedableRandomState);

impl Default for RandomState {
    /// Another one each time, by a seed that the process has drawn.
    fn default() -> Self {
        RandomState(foldhash::fast::SeedableRandomState::random())
    }
}

impl RandomState {
    /// The same for the same seed, in any process.
    pub(crate) fn seeded(seed: u64) -> Self {
        let shared = foldhash::SharedSeed::global_fixed();
        RandomState(foldhash::fast::SeedableRandomState::with_seed(seed, shared))
    }
}

impl fmt::Debug for RandomState {
    /// Without its seed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomState").finish_non_exhaustive()
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    #[inline(always)]
    fn build_hasher(&self) -> DefaultHasher {
        DefaultHasher(self.0.build_hasher())
    }
}

/// The hasher that [`RandomState`] makes.
///
/// ```
/// use expiry::{DefaultHasher, RandomState};
/// use std::hash::{BuildHasher, Hash, Hasher};
///
/// let state = RandomState::default();
/// let mut hasher: DefaultHasher = state.build_hasher();
/// ("north", 7).hash(&mut hasher);
/// assert_eq!(hasher.finish(), state.hash_one(("north", 7)));
/// ```
#[derive(Clone)]
pub struct DefaultHasher(foldhash::fast::FoldHasher<'static>);

impl fmt::Debug for DefaultHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DefaultHasher").finish_non_exhaustive()
    }
}

/// Hands on what foldhash has a shorter way for.
macro_rules! hand_on {
    ($($write:ident: $number:ty),*) => {
        $(
            #[inline(always)]
            fn $write(&mut self, number: $number) {
                self.0.$write(number);
            }
        )*
    };
}

impl Hasher for DefaultHasher {
    #[inline(always)]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    hand_on! { write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128, write_usize: usize }

    #[inline(always)]
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
#[path = "../tests/unit/hash.rs"]
mod tests;
