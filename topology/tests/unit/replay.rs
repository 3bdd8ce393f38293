//! Tests of `src/replay.rs`.

use super::*;
use rand::{rngs::SmallRng, SeedableRng};

fn pauses(replay: Replay) -> Vec<u64> {
    let mut random = SmallRng::seed_from_u64(1);
    (1..).map_while(|attempt| replay.pause(attempt, 0, &mut random)).collect()
}

#[test]
fn pauses_grow_up_to_the_cap_and_end_with_the_attempts() {
    let replay = Replay::default()
        .attempts(6)
        .for_at_least(Duration::ZERO)
        .base(Duration::from_secs(1))
        .factor(3.0)
        .cap(Duration::from_secs(20))
        .jitter(0.0);
    assert_eq!(pauses(replay), [1, 3, 9, 20, 20].map(|seconds| seconds * 1_000_000_000));
    assert_eq!(pauses(replay.attempts(1)), [] as [u64; 0]);
    assert_eq!(pauses(replay.base(Duration::ZERO)), [0; 5]);
}

#[test]
fn jitter_stays_within_its_share_and_is_not_the_same_each_time() {
    let replay = Replay::default()
        .attempts(1000)
        .for_at_least(Duration::ZERO)
        .base(Duration::from_secs(1))
        .factor(1.0)
        .jitter(0.25);
    let pauses = pauses(replay);
    assert!(pauses.iter().all(|pause| (750_000_000..=1_250_000_000).contains(pause)));
    assert!(pauses.iter().any(|&pause| pause < 800_000_000));
    assert!(pauses.iter().any(|&pause| pause > 1_200_000_000));
}

#[test]
fn no_arithmetic_overflows() {
    let replay = Replay::default().without_limit().factor(f64::MAX).cap(Duration::MAX);
    let mut random = SmallRng::seed_from_u64(1);
    for attempt in [1, 2, 1000, u32::MAX - 1] {
        assert!(replay.pause(attempt, 0, &mut random).is_some());
        assert_eq!(replay.base(Duration::ZERO).pause(attempt, 0, &mut random), Some(0));
    }
}
