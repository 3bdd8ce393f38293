//! What an attack on the keyed stores found, each as the shortest sequence that reached it.
#![cfg(not(expiry_loom))]

use expiry::{Cause, Clock, ExpiringMap, ManualClock, SessionTracker, TimeCacheMap, Timeout};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const INTERVAL: Duration = Duration::from_micros(10);

/// So many of these intervals.
fn ticks(ticks: u64) -> Duration {
    Duration::from_micros(10 * ticks)
}

/// After a jump of the clock by 2^39 intervals, that nobody has polled since, what was over was found again, and a use brought
/// it back for good.
#[test]
fn what_is_over_is_not_found_after_a_jump_of_years() {
    for jump in [
        1 << 38,
        1 << 39,
        (1 << 39) + 77,
        3 << 38,
        (1 << 40) - 100,
        1 << 40,
        (1 << 40) + 50,
        5 << 39,
    ] {
        for idle in [false, true] {
            let clock = ManualClock::new();
            let told = Arc::new(Mutex::new(Vec::new()));
            let into = told.clone();
            let mut builder = ExpiringMap::builder()
                .time_to_live(ticks(1000))
                .interval(INTERVAL)
                .shards(1)
                .clock(clock.clone())
                .on_end(move |&key: &u64, _: &(), cause| into.lock().unwrap().push((key, cause)));
            if idle {
                builder = builder.time_to_idle(ticks(100));
            }
            let map = builder.build_manual().unwrap();
            map.insert(1, ()).unwrap();
            map.insert_with(2, (), Timeout::Never).unwrap();
            clock.advance(ticks(jump));
            let found: Vec<u64> = map.iter().map(|entry| *entry.key()).collect();
            assert_eq!(found, if idle { vec![] } else { vec![2] }, "{jump}");
            assert!(map.get(&1).is_none(), "{jump} {idle}");
            assert!(map.remaining(&1).is_none(), "{jump} {idle}");
            assert!(map.remove(&1).is_none(), "{jump} {idle}");
            assert_eq!(map.get(&2).is_some(), !idle, "{jump} {idle}");
            // A new one is not taken for an old one.
            map.insert(3, ()).unwrap();
            assert!(map.get(&3).is_some(), "{jump} {idle}");
            while map.poll(usize::MAX) {}
            let mut told = told.lock().unwrap();
            told.sort_by_key(|&(key, _)| key);
            let mut expected = vec![(1, Cause::Expired)];
            if idle {
                expected.push((2, Cause::Expired));
            }
            assert_eq!(*told, expected, "{jump}");
            assert!(map.get(&3).is_some(), "{jump} {idle}");
        }
    }
}

/// A clock whose cheap reading is just as new, though it may be old.
struct Coarse(ManualClock, Duration);

impl Clock for Coarse {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn lag(&self) -> u64 {
        self.1.as_nanos() as u64
    }
}

/// What a coarse clock may lag behind was added to an entry's time: the window that was promised was longer by that.
#[test]
fn a_time_caches_window_has_no_room_for_a_clocks_lag() {
    let clock = ManualClock::new();
    let expiration = Duration::from_millis(300);
    let map = TimeCacheMap::<u64, ()>::builder(expiration)
        .clock(Coarse(clock.clone(), Duration::from_millis(30)))
        .build_manual()
        .unwrap();
    for ms in 0..300 {
        clock.set(Duration::from_millis(1000 + ms).as_nanos() as u64);
        map.put(ms, ()).unwrap();
    }
    for ms in 0..300 {
        clock.set(Duration::from_millis(1000 + ms + 299).as_nanos() as u64);
        assert!(map.contains_key(&ms), "{ms}");
        clock.set(Duration::from_millis(1000 + ms + 450).as_nanos() as u64);
        assert!(!map.contains_key(&ms), "{ms}");
    }
}

/// A session that was ended by a creation, after a jump of the clock by years, was there to be polled, and nobody was told to.
#[test]
fn who_waits_is_told_of_what_a_creation_has_ended() {
    let clock = ManualClock::new();
    let sessions = SessionTracker::builder()
        .interval(INTERVAL)
        .clock(clock.clone())
        .build()
        .unwrap();
    let old = sessions.create(ticks(1000), 7).unwrap();
    clock.advance(ticks(1 << 38) + ticks(1 << 30));
    sessions.create(ticks(1000), 7).unwrap();
    assert_eq!(sessions.wait_time(), Some(Duration::ZERO));
    assert_eq!(sessions.poll()[0].id, old.id());
}
