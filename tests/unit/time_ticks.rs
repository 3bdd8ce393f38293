//! Unit tests of `src/time/ticks.rs`.

use super::*;

#[test]
fn a_deadline_is_never_early_and_at_most_one_interval_late() {
    let ticks = Ticks::new(17, 10);
    for now in 0..200 {
        for after in 0..60 {
            let deadline = ticks.deadline(now, after);
            let due = now.max(17) + after;
            assert!(ticks.begins(deadline) >= due);
            assert!(ticks.begins(deadline) < due + 10);
            assert_eq!(ticks.at(ticks.begins(deadline)), deadline);
            if deadline > 0 {
                assert!(ticks.at(ticks.begins(deadline) - 1) < deadline);
            }
        }
    }
}

#[test]
fn a_tick_has_begun_where_the_clock_stands_at_it_or_later() {
    for interval in [1, 7, 10, 1 << 40] {
        let ticks = Ticks::new(17, interval);
        let readings = (0..200).chain([interval * 3 + 16, interval * 3 + 17, u64::MAX]);
        for now in readings {
            let at = ticks.at(now);
            for tick in [0, 1, 2, 3, at.saturating_sub(1), at, at.saturating_add(1), NEVER] {
                assert_eq!(ticks.has_begun(tick, now), tick <= at, "{tick} at {now}");
            }
        }
    }
}

#[test]
fn a_cached_deadline_holds_exactly_as_long_as_it_is_right() {
    let ticks = Ticks::new(5, 10);
    for now in 5..100 {
        for after in 0..40 {
            let deadline = ticks.deadline(now, after);
            let until = ticks.same_deadline_until(deadline, after);
            assert!(until >= now);
            assert_eq!(ticks.deadline(until, after), deadline);
            assert!(ticks.deadline(until + 1, after) > deadline);
        }
    }
}

#[test]
fn huge_times_saturate() {
    let ticks = Ticks::new(0, 1);
    assert_eq!(ticks.deadline(u64::MAX, u64::MAX), u64::MAX);
    assert_eq!(ticks.until(u64::MAX, 3), Duration::ZERO);
    assert_eq!(ticks.timeout(Duration::MAX), None);
}

#[test]
fn a_deadline_in_grains_is_never_early_and_late_by_a_256th_of_its_timeout() {
    const SECOND: u64 = 1_000_000_000;
    for interval in [10_000, 999_999, 1_000_000, 3 * SECOND] {
        let ticks = Ticks::new(17, interval).with_grains();
        for after in (0..50).flat_map(|bits| [1 << bits, (1 << bits) * 7 / 5, (2 << bits) - 1]) {
            let grain = ticks.grain(after);
            assert!(grain == 1 || grain * interval <= (after / 256).min(SECOND));
            for now in (0..20).map(|step| 17 + step * SECOND / 7) {
                let deadline = ticks.deadline(now, after);
                let due = now + after;
                assert!(ticks.begins(deadline) >= due);
                assert!(ticks.begins(deadline) < due + grain * interval);
                // A longer timeout from a later moment on is never due earlier.
                for longer in [after, after + 1, after * 2, after * 300] {
                    assert!(ticks.deadline(now + 1, longer) >= deadline);
                }
                let until = ticks.same_deadline_until(deadline, after);
                assert_eq!(ticks.deadline(until, after), deadline);
                assert!(ticks.deadline(until + 1, after) > deadline);
            }
        }
    }
}

#[test]
fn a_store_of_hours_has_grains_of_a_second_and_ticks_of_a_millisecond() {
    let ticks = Ticks::new(0, 1_000_000).with_grains();
    let grain = |millis: u64| ticks.grain(millis * 1_000_000);
    assert_eq!(
        [1, 20, 500, 1000, 10_000, 60_000, 3_600_000].map(grain),
        [1, 1, 1, 2, 20, 100, 1000]
    );
    assert_eq!(Ticks::new(0, 1_000_000).grain(u64::MAX), 1);
}
