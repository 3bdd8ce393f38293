//! Every store but moka, whose clock is the machine's, does what a model does: what it finds,
//! renews, removes and expires, and when.

use super::*;
use expiry::ManualClock;

const KEYS: usize = 1000;

/// Operations happen a quarter of an interval after its beginning and are due a quarter before the
/// end of one. A store that rounds up and a store that does not then end entries at the same look.
fn story<K: Key, V: Value, S: Store<K, V>>() {
    let interval = u64::try_from(INTERVAL.as_nanos()).unwrap();
    let clock = ManualClock::new();
    let time = Time::Simulated(clock.clone());
    let store =
        S::new(&Setup { time: &time, entries: KEYS, timeout: INTERVAL * 50, interval: INTERVAL });
    let has_values = size_of::<V>() != 0;
    // For each key, in which interval it is due, and how to renew it.
    let mut live: Vec<Option<(u64, S::Handle)>> = vec![None; KEYS];
    let (mut renewed, mut removed, mut expired) = (0, 0, 0);
    store.on_thread(|| {
        for step in 0..400 {
            clock.set(step * interval + interval / 4);
            for n in 0..20 {
                let draw = mix(step * 100 + n);
                let at = draw % KEYS as u64;
                let (key, value, entry) = (K::make(at), V::make(at), &mut live[at as usize]);
                let intervals = (draw >> 10) % 100;
                let timeout = intervals * interval + interval / 2;
                let now = time.now();
                if has_values {
                    assert_eq!(store.get(&key, now), entry.map(|_| at));
                }
                match (*entry, draw >> 60) {
                    (Some(_), 0..=2) => {
                        assert!(store.remove(&key, now));
                        assert!(!store.remove(&key, now));
                        removed += 1;
                        *entry = None;
                    }
                    (Some((_, handle)), 3..=12) => {
                        assert!(store.touch(&key, handle, value, now, timeout));
                        renewed += 1;
                        *entry = Some((step + intervals, handle));
                    }
                    (Some(_), _) => {}
                    (None, _) => {
                        let (old, handle) = store.insert(key, value, now, timeout);
                        assert_eq!(old, None);
                        *entry = Some((step + intervals, handle));
                    }
                }
            }
            clock.set((step + 1) * interval);
            let before = live.iter().flatten().count();
            for entry in &mut live {
                *entry = entry.filter(|(due, _)| *due > step);
            }
            let left = live.iter().flatten().count();
            assert_eq!(store.advance(time.now().get()), before - left, "{step}");
            assert_eq!(store.live(), left, "{step}");
            expired += before - left;
        }
    });
    assert!(renewed > 500 && removed > 200 && expired > 1000);
}

#[test]
fn maps_do_what_the_model_does() {
    story::<u64, u64, Map<u64, u64>>();
    story::<String, u64, Map<String, u64>>();
    story::<u64, u64, DelayQueue<u64, u64>>();
    story::<Arc<str>, u64, DelayQueue<Arc<str>, u64>>();
    story::<u64, u64, Dash<u64, u64>>();
    story::<u64, u64, Papaya<u64, u64>>();
    story::<u64, u64, Sharded<u64, u64>>();
    story::<Arc<str>, u64, Sharded<Arc<str>, u64>>();
}

#[test]
fn queues_do_what_the_model_does() {
    story::<u64, (), QueueByKey<u64>>();
    story::<String, (), QueueByKey<String>>();
    story::<u64, (), QueueByHandle<u64>>();
    story::<String, (), QueueByHandle<String>>();
    story::<u64, (), ZooKeeper<u64>>();
    story::<Arc<str>, (), ZooKeeper<Arc<str>>>();
}

#[test]
fn a_course_and_an_expiry_check_their_work() {
    use super::course::{run, Kind, Load};
    use super::expire::{run as expire, Due};
    for threads in [1, 2] {
        let load = Load::new(3000, threads, Kind::Maps);
        run::<String, u64, Map<String, u64>>(&load);
        run::<u64, u64, Moka<u64, u64>>(&load);
        let load = Load::new(3000, threads, Kind::Queues);
        run::<u64, (), QueueByHandle<u64>>(&load);
        run::<u64, (), ZooKeeper<u64>>(&load);
    }
    for due in [Due::Mass, Due::Spread] {
        let map = expire::<String, Counted, Map<String, Counted>>(3000, due);
        // What a thread has retired last waits in its bag until that is full.
        assert!((0..=64).contains(&map.1), "{}", map.1);
        expire::<u64, (), QueueByKey<u64>>(3000, due);
        expire::<u64, (), ZooKeeper<u64>>(3000, due);
        let sharded = expire::<u64, Counted, Sharded<u64, Counted>>(3000, due);
        assert_eq!(sharded.1, 0);
    }
}
