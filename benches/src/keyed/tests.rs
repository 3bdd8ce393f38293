//! Everybody tells the same story: what is found, renewed, removed, and what expires when.

use super::*;
use expiry::ManualClock;

const TIMEOUT: Duration = Duration::from_secs(30);

/// What came of each step. Everything of a step happens in the middle of an interval, so that rounding up makes no difference.
fn story<K: Key, V: Value, S: Store<K, V>>() -> Vec<u64> {
    let clock = ManualClock::new();
    let time = Time::Simulated(clock.clone());
    let store = S::new(&time, 1000, TIMEOUT);
    let mut told = Vec::new();
    store.on_thread(|| {
        let mut handles: Vec<Option<S::Handle>> = vec![None; 1000];
        clock.advance(INTERVAL / 2);
        for step in 0..300_u64 {
            let mut sum = 0;
            for n in 0..20 {
                let draw = mix(step * 100 + n);
                let at = draw % 1000;
                let (key, value) = (K::make(at), V::make(at));
                let timeout = INTERVAL.as_nanos() as u64 * (5 + (draw >> 10) % 100);
                // `None` may have expired meanwhile; `get` says, and renewing and removing say no.
                match (draw >> 60, handles[at as usize]) {
                    (0..=1, Some(_)) => {
                        sum += u64::from(store.remove(&key));
                        handles[at as usize] = None;
                    }
                    (2..=7, Some(handle)) if store.get(&key, time.now()).is_some() => {
                        let mut key = key;
                        sum += u64::from(store.renew(&mut key, handle, value, time.now(), timeout));
                    }
                    (_, None) => {
                        let handle = store.insert(key, value, time.now(), timeout);
                        handles[at as usize] = Some(handle);
                    }
                    _ => sum += store.get(&key, time.now()).unwrap_or(1000),
                }
            }
            clock.advance(INTERVAL);
            let Time::Simulated(clock) = &time else {
                unreachable!()
            };
            // What is due is gone before the next step.
            let expired = store.advance(clock.now());
            told.extend([sum, expired as u64, store.len() as u64]);
            for at in 0..1000 {
                if handles[at].is_some() && !has::<K, V, S>(&store, at as u64, &time) {
                    handles[at] = None;
                }
            }
        }
    });
    told
}

fn has<K: Key, V: Value, S: Store<K, V>>(store: &S, n: u64, time: &Time) -> bool {
    store.get(&K::make(n), time.now()).is_some()
}

#[test]
fn maps_tell_the_same_story() {
    let expected = story::<u64, u64, Sharded<u64, u64>>();
    assert!(expected.chunks(3).map(|step| step[1]).sum::<u64>() > 300);
    assert_eq!(story::<u64, u64, Map<u64, u64>>(), expected);
    assert_eq!(story::<String, u64, Map<String, u64>>(), expected);
    assert_eq!(story::<u64, u64, DelayQueue<u64, u64>>(), expected);
    assert_eq!(
        story::<Arc<str>, u64, DelayQueue<Arc<str>, u64>>(),
        expected
    );
}
