//! Unit tests of `src/core/engine/keys.rs`.

use super::*;
use crate::hash::RandomState;

/// Keys at regular distances spread as random ones do, whatever the seed is, by their lowest bits
/// and by their highest ones: 3,000 of them over 4,096 places, where by chance alone one place in
/// 10^10 has 12.
#[test]
fn keys_at_regular_distances_spread() {
    let most_in_a_place = |hash: &dyn Fn(u64) -> u32, distance: u64| {
        let (mut low, mut high) = ([0_u32; 4096], [0_u32; 4096]);
        for key in 0..3000_u64 {
            let hash = hash(key.wrapping_mul(distance)) as usize;
            low[hash % 4096] += 1;
            high[hash >> 20] += 1;
        }
        low.into_iter().chain(high).max()
    };
    for nth in 0..200_u64 {
        let seed = RandomState::seeded(1).hash_one(nth);
        let (keys, own) = (Keys::new(1, seed).unwrap(), RandomState::seeded(seed));
        for distance in [1, 8, 4096, 1 << 32, 1 << 48] {
            let most = most_in_a_place(&|key| keys.hash(key), distance);
            assert!(most < Some(12), "seed {seed:#x}, distance {distance}: {most:?}");
            let most = most_in_a_place(&|key| keys.hash_by(&own, &key), distance);
            assert!(most < Some(12), "own hasher, seed {seed:#x}, distance {distance}: {most:?}");
        }
    }
}
