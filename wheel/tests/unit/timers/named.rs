//! Bugs that wheels have had with callbacks, panics, ids and values, and promises that a random
//! history would state less plainly. `wheel_dense/named.rs` has those of times and levels, over the
//! same geometries and more: the public wheel keeps no times of its own.

use super::{Fired, Geometry, TimerId, TimerWheel};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

const PRESETS: [Geometry; 4] =
    [Geometry::TICKS, Geometry::MICROS, Geometry::NANOS_1MS, Geometry::CAFFEINE];

const ORIGINS: [u64; 7] =
    [i64::MIN as u64, i64::MIN as u64 - 3, 0_u64.wrapping_sub(7), 0, 7, i64::MAX as u64, u64::MAX];

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
