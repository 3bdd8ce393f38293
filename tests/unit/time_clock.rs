//! Unit tests of `src/time/clock.rs`.

use super::*;

/// However this machine treats its threads.
#[test]
fn a_cheap_reading_is_never_ahead_and_no_older_than_its_lag() {
    let clock = CoarseClock::new();
    for _ in 0..2_000_000 {
        let before = clock.now();
        let cheap = clock.coarse();
        let after = clock.now();
        assert!(cheap <= after && before.saturating_sub(cheap) <= clock.lag());
    }
}
