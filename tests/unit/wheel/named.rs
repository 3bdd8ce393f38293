//! One test per bug that a timer wheel is known to have had, at the public type; and one per
//! promise that a random history would state less plainly. (`dense/tests/named.rs` has those that
//! only the core can show.)

use super::{Fired, Geometry, NotScheduled, Popped, TimerId, TimerWheel};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

const PRESETS: [Geometry; 4] =
    [Geometry::TICKS, Geometry::MICROS, Geometry::NANOS_1MS, Geometry::CAFFEINE];

const ORIGINS: [u64; 7] =
    [i64::MIN as u64, i64::MIN as u64 - 3, 0_u64.wrapping_sub(7), 0, 7, i64::MAX as u64, u64::MAX];

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * SECOND;
const YEAR: u64 = 365 * DAY;

/// Advances and returns the values in order.
fn fire<T>(wheel: &mut TimerWheel<T>, now: u64) -> Vec<T> {
    let mut fired = Vec::new();
    wheel.advance(now, |wheel, next| {
        assert!(now.wrapping_sub(next.deadline) as i64 >= 0, "early");
        wheel.validate();
        fired.push(next.value);
    });
    wheel.validate();
    fired
}

#[test]
fn wrong_overflow_mask() {
    // Caffeine's spans and the deadlines around them; the last are in the overflow.
    let spans = [30, 36, 42, 47, 49, 50, 52].map(|bits| 1_u64 << bits);
    for geometry in PRESETS {
        for origin in ORIGINS {
            for span in spans {
                let mut wheel = TimerWheel::new(geometry, origin);
                for wait in [span - 1, span, span + 1, span * 3] {
                    wheel.schedule(origin.wrapping_add(wait), wait);
                }
                for wait in [span - 1, span, span + 1, span * 3] {
                    let at = origin.wrapping_add(wait);
                    assert_eq!(wheel.next_expiration(), Some(at));
                    assert!(fire(&mut wheel, at.wrapping_sub(1)).is_empty());
                    assert_eq!(fire(&mut wheel, at), [wait]);
                }
            }
        }
    }
}

#[test]
fn links_left_over_while_cascading() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    let ids: Vec<TimerId> = (0..100).map(|n| wheel.schedule(4096 + n * 3, n)).collect();
    // In the middle of the cascade some are filed again and some wait for it.
    let progress = wheel.advance_limited(4096, 60, |_, _| ());
    assert!(progress.more);
    wheel.validate();
    for (n, id) in ids.iter().enumerate().rev() {
        let gone = wheel.cancel(*id);
        assert!(gone == Some(n as u64) || gone.is_none() && n == 0);
        wheel.validate();
    }
    assert!(wheel.is_empty() && fire(&mut wheel, 10_000).is_empty());
}

#[test]
fn delay_that_ignores_an_imminent_cascade() {
    let mut wheel = TimerWheel::new(Geometry::CAFFEINE, 0);
    // In the second level's next bucket, which begins at 2^36 ns ...
    wheel.schedule((1 << 36) + 1, "coarse");
    assert!(fire(&mut wheel, (1 << 36) - 2 * SECOND).is_empty());
    // ... and on the first level, later.
    wheel.schedule((1 << 36) + 20 * SECOND, "fine");
    assert_eq!(wheel.expiration_delay(), Some(2 * SECOND + 1));
    assert_eq!(fire(&mut wheel, (1 << 36) + 1), ["coarse"]);
    assert_eq!(wheel.expiration_delay(), Some(20 * SECOND - 1));
}

#[test]
fn negative_to_positive_clock() {
    for geometry in PRESETS {
        let step = geometry.granularity() as i64;
        for start in [-3 * step, i64::MAX - 3 * step] {
            let at = |n: i64| start.wrapping_add(n * step) as u64;
            let mut wheel = TimerWheel::new(geometry, at(0));
            for n in 0..10 {
                wheel.schedule(at(n), n);
            }
            for n in 0..10 {
                assert_eq!(fire(&mut wheel, at(n)), [n], "{geometry:?}");
            }
        }
    }
}

#[test]
fn past_deadline_hashed_to_a_future_slot() {
    for geometry in PRESETS {
        for origin in ORIGINS {
            for back in [0, 1, 63, 64, 1 << 30, 1 << 49, (1 << 63) - 1] {
                let mut wheel = TimerWheel::new(geometry, origin);
                wheel.schedule(origin.wrapping_sub(back), back);
                assert_eq!(wheel.expiration_delay(), Some(0));
                assert_eq!(fire(&mut wheel, origin), [back]);
            }
        }
    }
}

#[test]
fn truncated_delta_makes_an_advance_a_no_op() {
    for geometry in PRESETS {
        for step in [1 << 32, 3 << 32, 1 << 49, 10 * YEAR] {
            let mut wheel = TimerWheel::new(geometry, 17);
            wheel.schedule(18, 'a');
            wheel.schedule(17 + step, 'b');
            wheel.schedule(17 + step + 1, 'c');
            assert_eq!(fire(&mut wheel, 17 + step), ['a', 'b']);
            assert_eq!(wheel.now(), 17 + step);
            assert_eq!(fire(&mut wheel, 17 + step + 1), ['c']);
        }
    }
}

#[test]
fn zero_as_a_sentinel() {
    for geometry in PRESETS {
        let mut wheel = TimerWheel::new(geometry, u64::MAX);
        // Deadline 0, index 0, value 0.
        let id = wheel.schedule(0, 0);
        assert_eq!((wheel.deadline(id), wheel.get(id)), (Some(0), Some(&0)));
        assert_eq!(wheel.next_expiration(), Some(0));
        assert!(fire(&mut wheel, u64::MAX).is_empty());
        assert_eq!(fire(&mut wheel, 0), [0]);
        assert_eq!((wheel.now(), wheel.next_expiration()), (0, None));
        wheel.schedule(0, 0);
        assert_eq!(wheel.expiration_delay(), Some(0));
        assert_eq!(fire(&mut wheel, 0), [0]);
    }
}

#[test]
fn clock_not_restored_after_a_panic() {
    // One chain of 20 in one bucket, behind two levels of cascades; the panic comes at each
    // position in turn, and at all.
    for position in 0..=20 {
        let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
        for n in 0..20 {
            wheel.schedule(5000, n);
        }
        wheel.schedule(5001, 20);
        let (mut fired, mut panics) = (Vec::new(), 0);
        loop {
            let round = catch_unwind(AssertUnwindSafe(|| {
                wheel.advance(5001, |_, next| {
                    fired.push(next.value);
                    if position == 20 || next.value == position {
                        resume_unwind(Box::new(()));
                    }
                })
            }));
            wheel.validate();
            assert_eq!(wheel.now(), 5001);
            assert_eq!(wheel.len(), 21 - fired.len());
            match round {
                Ok(_) => break,
                Err(_) => panics += 1,
            }
            assert_eq!(
                wheel.expiration_delay(),
                (!wheel.is_empty()).then_some(0),
                "what is due is still known to be"
            );
        }
        assert_eq!(panics, if position == 20 { 21 } else { 1 });
        assert!(fired.into_iter().eq(0..=20));
    }
}

#[test]
fn panics_under_a_limit_lose_nothing_either() {
    let mut wheel = TimerWheel::new(Geometry::NANOS_1MS, 0);
    for n in 0..200 {
        wheel.schedule(n * 77 * SECOND, n);
    }
    let (mut fired, mut calls) = (Vec::new(), 0);
    let mut more = true;
    while more {
        calls += 1;
        let limit = 1 + calls % 5;
        let round = catch_unwind(AssertUnwindSafe(|| {
            wheel.advance_limited(YEAR, limit, |_, next| {
                fired.push(next.value);
                if next.value % 3 == 0 {
                    resume_unwind(Box::new(()));
                }
            })
        }));
        wheel.validate();
        more = round.map_or(true, |progress| progress.more);
    }
    assert!(fired.into_iter().eq(0..200));
}

#[test]
fn nested_deschedule_strands_the_chain() {
    let mut wheel = TimerWheel::new(Geometry::CAFFEINE, 0);
    let due = 5 * SECOND;
    let ids: Vec<TimerId> = (0..60).map(|n| wheel.schedule(due + n, n)).collect();
    let mut fired = Vec::new();
    wheel.advance(due + SECOND, |wheel, next| {
        let n = next.value;
        fired.push(n);
        // The one being fired is out already; saying so again is harmless.
        assert_eq!(wheel.cancel(next.id), None);
        match n % 6 {
            0 => assert_eq!(wheel.cancel(ids[n as usize + 1]), Some(n + 1)),
            2 => assert_eq!(wheel.reschedule(ids[n as usize + 1], 2 * due), Ok(())),
            4 => assert_eq!(wheel.rearm(next, 2 * due + 1), ids[n as usize]),
            _ => {}
        }
        wheel.validate();
    });
    let expected = (0..60).filter(|n| !matches!(n % 6, 1 | 3));
    assert!(fired.into_iter().eq(expected));
    assert!(fire(&mut wheel, 2 * due - 1).is_empty());
    let again = (0..60).filter(|n| matches!(n % 6, 3 | 4));
    assert!(fire(&mut wheel, 2 * due + 1).into_iter().eq(again));
    assert!(wheel.is_empty());
}

#[test]
fn the_current_bucket_hides_a_nearer_event() {
    for geometry in PRESETS {
        for width in [30, 36, 42, 47].map(|bits| 1_u64 << bits) {
            let now = width * 5 + width / 2;
            let mut wheel = TimerWheel::new(geometry, now);
            // Nearly a turn of 64 ahead, in the ring position that the clock is in; and half a
            // turn.
            wheel.schedule(now + width * 64 - 1, "far");
            wheel.schedule(now + width * 32, "near");
            assert_eq!(wheel.expiration_delay(), Some(width * 32));
            assert_eq!(fire(&mut wheel, now + width * 32), ["near"]);
            assert_eq!(wheel.expiration_delay(), Some(width * 32 - 1));
            assert_eq!(fire(&mut wheel, now + width * 64 - 1), ["far"]);
        }
    }
}

#[test]
fn rewind_under_a_limit_starves() {
    for geometry in PRESETS {
        let mut wheel = TimerWheel::new(geometry, 0);
        for n in 0..500 {
            wheel.schedule(n * (geometry.period() / 1000), n);
        }
        let (mut calls, mut work, mut fired) = (0, 0, Vec::new());
        loop {
            calls += 1;
            // The clock goes on meanwhile.
            let progress = wheel.advance_limited(geometry.period() / 2 + calls, 1, |_, next| {
                fired.push(next.value)
            });
            work += 1 - progress.unused;
            if !progress.more {
                break;
            }
        }
        assert!(fired.into_iter().eq(0..500), "all, in order");
        // B9: at most once per level for each, and once to look at its bucket there.
        let most = 500 * 2 * (geometry.levels() + 1);
        assert!(work < most, "{work} of {most}, {geometry:?}");
    }
}

#[test]
fn add_of_an_already_expired_entry_lands_in_the_overflow() {
    let mut wheel = TimerWheel::new(Geometry::CAFFEINE, 100 * DAY);
    for deadline in [0, 50 * DAY, 100 * DAY - 1, 100 * DAY] {
        wheel.schedule(deadline, deadline);
    }
    // One unit each: nothing to cascade.
    let progress = wheel.advance_limited(100 * DAY, 6, |_, _| ());
    assert_eq!((progress.fired, progress.more), (4, false));
}

#[test]
fn adding_the_past_from_a_callback_starves_nobody() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 1000);
    for n in 0..100 {
        wheel.schedule(1001 + n * 100, false);
    }
    wheel.schedule(1, true);
    let (mut others, mut calls) = (0, 0);
    while others < 100 {
        calls += 1;
        assert!(calls < 1500, "{others} of 100");
        let _ = wheel.advance_limited(20_000, 1, |wheel, next| {
            if next.value {
                let now = wheel.now();
                wheel.rearm(next, now - 1);
            } else {
                others += 1;
            }
        });
    }
}

#[test]
fn an_advance_in_an_advance() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    for n in 0..50 {
        wheel.schedule(100 + n, n);
    }
    let mut fired = Vec::new();
    wheel.advance(200, |wheel, next| {
        fired.push(next.value);
        if next.value % 10 == 0 {
            let _ = wheel.advance_limited(300, 7, |_, next| fired.push(next.value));
            assert_eq!(wheel.now(), 300);
        }
    });
    // The outer one asked for 200, which is the past by then: what is left is left for the next
    // call.
    while let Some(next) = wheel.pop(300) {
        fired.push(next.value);
    }
    assert!(fired.into_iter().eq(0..50));
    wheel.validate();
}

#[test]
fn a_callback_may_put_another_wheel_in_place() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    wheel.schedule(1, 1);
    wheel.schedule(2, 2);
    let mut old = None;
    wheel.advance(5, |wheel, _| {
        let mut fresh = TimerWheel::new(Geometry::NANOS_1MS, 5);
        fresh.schedule(6, 6);
        old = Some(std::mem::replace(wheel, fresh));
    });
    wheel.validate();
    assert_eq!(fire(&mut wheel, 6), [6]);
    assert_eq!(fire(&mut old.unwrap(), 5), [2]);
}

#[test]
fn a_rearmed_timer_keeps_its_id_until_another_is_fired() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    let id = wheel.schedule(1, "a");
    let fired = wheel.pop(1).unwrap();
    // Not even a new timer takes its place.
    let other = wheel.schedule(9, "b");
    assert_eq!(wheel.rearm(fired, 2), id);
    assert_eq!((wheel.get(id), wheel.deadline(id)), (Some(&"a"), Some(2)));
    wheel.validate();
    let fired = wheel.pop(2).unwrap();
    assert_eq!((fired.id, fired.deadline), (id, 2));
    let again = Fired { ..fired };
    assert_eq!(wheel.rearm(fired, 3), id);
    // What was rearmed already does not take the place of itself.
    let second = wheel.rearm(again, 3);
    assert_ne!(second, id);
    assert_eq!(wheel.cancel(second), Some("a"));
    let fired = wheel.pop(3).unwrap();
    assert_eq!(wheel.pop(9).map(|next| next.id), Some(other));
    // Too late for the old one.
    let new = wheel.rearm(fired, 20);
    assert_ne!(new, id);
    assert!(!wheel.contains(id) && wheel.contains(new));
    wheel.validate();
    // Nor after everything was thrown away.
    let fired = wheel.pop(20).unwrap();
    wheel.clear();
    assert_ne!(wheel.rearm(fired, 30), new);
    wheel.validate();
}

#[test]
fn stale_ids_do_nothing_however_often_their_place_is_used_again() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    let mut stale = vec![wheel.schedule(1, 0)];
    wheel.cancel(stale[0]);
    for n in 1..200 {
        let id = wheel.schedule(1000, n);
        assert_eq!(id.index, stale[0].index, "the same place");
        for old in &stale {
            assert_eq!(wheel.cancel(*old), None);
            assert_eq!(wheel.reschedule(*old, 5), Err(NotScheduled));
            assert!(wheel.get(*old).is_none() && wheel.get_mut(*old).is_none());
            assert!(wheel.deadline(*old).is_none() && !wheel.contains(*old));
        }
        assert_eq!((wheel.len(), wheel.deadline(id)), (1, Some(1000)));
        if n % 50 == 0 {
            wheel.clear();
            wheel.shrink_to_fit();
        }
        wheel.cancel(id);
        stale.push(id);
    }
    let text = NotScheduled.to_string();
    assert!(text.contains("drop the id"), "{text}");
}

#[test]
fn foreign_ids_do_nothing() {
    let mut ours = TimerWheel::new(Geometry::TICKS, 0);
    let mut theirs = TimerWheel::new(Geometry::TICKS, 0);
    for n in 0..100 {
        let (a, b) = (ours.schedule(9, n), theirs.schedule(9, n));
        assert_eq!(a.index, b.index);
        assert_eq!(ours.cancel(b), None);
        assert_eq!(ours.reschedule(b, 1), Err(NotScheduled));
        assert!(!theirs.contains(a) && theirs.deadline(a).is_none());
    }
    // Also one whose place does not exist.
    let mut empty: TimerWheel<i32> = TimerWheel::new(Geometry::TICKS, 0);
    let far = ours.schedule(9, 100);
    assert_eq!(empty.cancel(far), None);
    assert_eq!((ours.len(), theirs.len()), (101, 100));
}

#[test]
fn time_going_backwards_fires_nothing() {
    for origin in ORIGINS {
        let mut wheel = TimerWheel::new(Geometry::TICKS, origin);
        wheel.schedule(origin.wrapping_add(10), 'b');
        wheel.schedule(origin.wrapping_sub(10), 'a');
        for back in [1, 10, 1 << 40, (1 << 63) - 1] {
            let past = origin.wrapping_sub(back);
            assert_eq!(wheel.advance(past, |_, _| panic!("fired")), 0);
            assert!(wheel.pop(past).is_none());
            assert_eq!(wheel.now(), origin);
        }
        assert_eq!(fire(&mut wheel, origin.wrapping_add(10)), ['a', 'b']);
    }
}

#[test]
fn jumps_of_years_and_spans_from_nanoseconds_to_years() {
    for geometry in PRESETS {
        for origin in ORIGINS {
            let mut wheel = TimerWheel::new(geometry, origin);
            let waits = [1, 900, 50_000, SECOND, DAY, YEAR, 99 * YEAR, 145 * YEAR];
            for wait in waits.iter().rev() {
                wheel.schedule(origin.wrapping_add(*wait), *wait);
            }
            // In one bucket they come as they were put there.
            let sorted = |mut waits: Vec<u64>| {
                waits.sort_unstable();
                waits
            };
            let near = fire(&mut wheel, origin.wrapping_add(900));
            assert_eq!(sorted(near), waits[..2]);
            let rest = fire(&mut wheel, origin.wrapping_add(146 * YEAR));
            assert_eq!(sorted(rest), waits[2..]);
        }
    }
}

#[test]
fn empty_time_costs_one_look_at_each_level() {
    for geometry in PRESETS {
        let mut wheel = TimerWheel::new(geometry, 0);
        wheel.schedule(150 * YEAR, ());
        let mut limit = 0;
        assert!(matches!(wheel.pop_limited(SECOND, &mut limit), Popped::Idle));
        for now in [SECOND, 3600 * SECOND, DAY, 10 * YEAR, 140 * YEAR] {
            let progress = wheel.advance_limited(now, 2 * geometry.levels() + 2, |_, _| ());
            assert!(!progress.more && progress.fired == 0, "{geometry:?}");
        }
    }
}

#[test]
fn iteration_is_by_deadline_also_in_the_middle_of_a_backlog() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    for n in 0..200 {
        wheel.schedule(4096 + n * 37 % 200, n);
    }
    let progress = wheel.advance_limited(4150, 150, |_, _| ());
    assert!(progress.more);
    wheel.schedule(3, 1000);
    wheel.schedule(4100, 1001);
    wheel.schedule(9_000_000, 1002);
    let up: Vec<u64> = wheel.iter().map(|timer| timer.deadline).collect();
    assert_eq!(up.len(), wheel.len());
    assert!(up.windows(2).all(|pair| pair[0] <= pair[1]), "{up:?}");
    assert_eq!((up[0], up[up.len() - 1]), (3, 9_000_000));
    let mut down: Vec<u64> = wheel.iter().rev().map(|timer| timer.deadline).collect();
    down.reverse();
    assert_eq!(up, down);
    let copy = wheel.iter();
    assert_eq!(copy.clone().count(), copy.len());
    assert_eq!(format!("{copy:?}"), format!("Iter {{ left: {}, .. }}", up.len()));
    let total: u64 = (&wheel).into_iter().map(|timer| *timer.value).sum();
    assert!(total > 3000);
}

/// Half of the circle is ahead, the last unit of it included.
#[test]
fn the_furthest_deadline_is_seen_last() {
    for origin in ORIGINS {
        let mut wheel = TimerWheel::new(Geometry::TICKS, origin);
        let waits = [1 << 62, (1 << 63) - 1, 1 << 63];
        for wait in waits.into_iter().rev() {
            wheel.schedule(origin.wrapping_add(wait), wait);
        }
        assert!(wheel.iter().map(|timer| *timer.value).eq(waits));
    }
}

#[test]
fn a_clock_that_outruns_its_backlog_is_held_back_and_catches_up() {
    for geometry in PRESETS {
        for origin in ORIGINS {
            let at = |wait: u64| origin.wrapping_add(wait);
            let mut wheel = TimerWheel::new(geometry, origin);
            // Overdue by nearly half of the circle.
            wheel.schedule(origin.wrapping_sub((1 << 63) - 1), 0);
            wheel.schedule(at(10), 1);
            wheel.schedule(at(1 << 61), 2);
            let far = at(3 << 61);
            assert!(wheel.advance_limited(far, 0, |_, _| ()).more);
            wheel.validate();
            assert_eq!(wheel.expiration_delay(), Some(0));
            // It would look like the future, were it not known to be due.
            assert!(wheel.iter().map(|timer| *timer.value).eq(0..3));
            wheel.schedule(at(7 << 60), 3);
            let fired = std::iter::from_fn(|| wheel.pop(far));
            assert!(fired.map(|next| next.value).eq(0..3));
            assert_eq!(wheel.now(), far);
            assert_eq!(wheel.expiration_delay(), Some(1 << 60));
            assert_eq!(fire(&mut wheel, at(7 << 60)), [3]);
        }
    }
}

/// Most of a long list is dead by the time it is gone through.
#[test]
fn long_lists_are_gone_through_whatever_was_taken_out_of_them() {
    for keep in [1, 2, 7, 400] {
        let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
        let ids: Vec<TimerId> = (0..20_000).map(|n| wheel.schedule(300_000, n)).collect();
        for (n, id) in ids.iter().enumerate().filter(|(n, _)| n % keep != 0) {
            assert_eq!(wheel.cancel(*id), Some(n));
        }
        if keep == 7 {
            wheel.shrink_to_fit();
        }
        if keep == 400 {
            for n in 0..1000 {
                wheel.schedule(299_000 + n, 20_000);
            }
        }
        let mut fired = Vec::new();
        while let Some(next) = wheel.pop(300_000) {
            fired.push(next.value);
        }
        wheel.validate();
        let expected = (0..20_000).step_by(keep);
        assert!(fired.into_iter().filter(|n| *n < 20_000).eq(expected));
    }
}

#[test]
fn memory_is_reserved_kept_and_given_back() {
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    wheel.reserve(1000);
    let capacity = wheel.capacity();
    assert!(capacity > 1000);
    let ids: Vec<TimerId> = (0..1000).map(|n| wheel.schedule(n, n)).collect();
    let fired = wheel.pop(0).unwrap();
    wheel.schedule(5, 5);
    wheel.rearm(fired, 7);
    assert_eq!(wheel.capacity(), capacity);
    for id in &ids[3..] {
        wheel.cancel(*id);
    }
    wheel.shrink_to_fit();
    wheel.validate();
    assert!(wheel.capacity() < 1100, "{}", wheel.capacity());
    wheel.clear();
    wheel.shrink_to_fit();
    assert_eq!((wheel.len(), wheel.capacity()), (0, 0));
    assert!(ids.iter().all(|id| !wheel.contains(*id)));
    let id = wheel.schedule(9, 9);
    assert_eq!((id.index, wheel.get(id)), (0, Some(&9)));
    wheel.validate();
}

#[test]
fn clearing_is_done_before_a_drop_can_panic() {
    struct Loud(bool);
    impl Drop for Loud {
        fn drop(&mut self) {
            if std::mem::take(&mut self.0) {
                resume_unwind(Box::new(()));
            }
        }
    }
    let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    for n in 0..10 {
        wheel.schedule(n, Loud(n == 4));
    }
    assert!(catch_unwind(AssertUnwindSafe(|| wheel.clear())).is_err());
    wheel.validate();
    assert!(wheel.is_empty() && wheel.pop(100).is_none());
    wheel.schedule(101, Loud(false));
    assert_eq!(wheel.advance(101, |_, _| ()), 1);
}

#[test]
fn it_may_move_between_threads_and_says_what_it_is() {
    fn sendable<T: Send + Sync>() {}
    sendable::<TimerWheel<Vec<u8>>>();
    sendable::<super::super::Iter<'_, u8>>();
    let mut wheel = TimerWheel::new(Geometry::TICKS, 3);
    let id = wheel.schedule(9, ());
    let text = format!("{wheel:?} {id:?}");
    assert!(text.contains("now: 3, len: 1, next_expiration: Some(9), .."));
    assert!(text.contains("TimerId(0, "), "{text}");
}
