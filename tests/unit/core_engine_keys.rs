//! Unit tests of `src/core/engine/keys.rs`.

use super::*;
use crate::hash::RandomState;

/// Keys at regular distances spread over the homes as random ones do, whatever the seed is: 3,000
/// of them over 4,096 homes, where by chance alone one home in 10^10 has 12.
#[test]
fn keys_at_regular_distances_spread() {
    const HOMES: usize = 4096;
    let most_in_a_home = |hash: &dyn Fn(u64) -> u32, distance: u64| {
        let mut keys = [0_u32; HOMES];
        for key in 0..3000_u64 {
            keys[hash(key.wrapping_mul(distance)) as usize % HOMES] += 1;
        }
        keys.into_iter().max()
    };
    for nth in 0..200_u64 {
        let seed = RandomState::seeded(1).hash_one(nth);
        let (keys, own) = (Keys::new(1, seed).unwrap(), RandomState::seeded(seed));
        for distance in [1, 8, 4096, 1 << 32, 1 << 48] {
            let most = most_in_a_home(&|key| keys.hash(key), distance);
            assert!(most < Some(12), "seed {seed:#x}, distance {distance}: {most:?}");
            let most = most_in_a_home(&|key| keys.hash_by(&own, &key), distance);
            assert!(most < Some(12), "own hasher, seed {seed:#x}, distance {distance}: {most:?}");
        }
    }
}
