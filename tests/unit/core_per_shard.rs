//! Unit tests of `src/core/per_shard.rs`.

use super::*;
use crate::core::threads::Counter;

#[test]
fn the_values_of_shards_are_made_for_sixteen_at_a_time() {
    for shards in [1, 8, 16, 256] {
        let values: PerShard<Counter> = PerShard::new(shards);
        assert!(values.get(shards - 1).is_none());
        values[shards - 1].add(7);
        let made = (0..shards).filter(|&shard| values.get(shard).is_some());
        assert_eq!(made.count(), shards.min(16));
        for shard in 0..shards {
            values[shard].add(1);
        }
        let sum = (0..shards).filter_map(|shard| Some(values.get(shard)?.get()));
        assert_eq!(sum.sum::<u64>(), shards as u64 + 7);
    }
}
