//! Deadlines that travel with entries: `Ref`s, and maps that are saved and loaded again.

use crate::rig;
use crate::support::SECOND;
use expiry::expiring_map::Saved;
use expiry::{ExpiringMap, Lifetime, LifetimeError, Lifetimes, ManualClock, StoreError};
use std::time::Duration;

type Map = ExpiringMap<u64, u64>;

fn map() -> (Map, ManualClock) {
    rig::map(|map| map.time_to_live(10 * SECOND))
}

/// A map with entries that live for a time, or for ever, each with and without a time to idle.
fn filled() -> (Map, ManualClock) {
    let (map, clock) = map();
    map.insert(1, 10).unwrap();
    map.insert_for(2, 20, Lifetime::Never).unwrap();
    map.insert_for(3, 30, Lifetimes::new().idle(4 * SECOND)).unwrap();
    let idle = Lifetimes::new().live(Lifetime::Never).idle(4 * SECOND);
    map.insert_for(4, 40, idle).unwrap();
    (map, clock)
}

fn saved(map: &Map) -> Vec<Saved<u64, u64>> {
    let mut saved: Vec<_> = map.save().collect();
    saved.sort_by_key(|saved| saved.key);
    saved
}

#[test]
fn a_reference_knows_its_deadline() {
    let (map, clock) = filled();
    clock.advance(SECOND);
    for entry in &map {
        let (left, at) = (entry.remaining(), entry.expires_at());
        assert_eq!(Some(left), map.remaining(entry.key()));
        assert_eq!(at.is_some(), left != Duration::MAX);
    }
    let before = map.get(&1).unwrap();
    assert!(map.touch(&1));
    let after = map.get(&1).unwrap();
    assert_eq!((before.remaining(), after.remaining()), (9 * SECOND, 10 * SECOND));
    clock.advance(9 * SECOND);
    assert_eq!((before.remaining(), after.remaining()), (Duration::ZERO, SECOND));
}

#[test]
fn what_is_saved_has_its_time_left() {
    let (map, clock) = filled();
    clock.advance(SECOND);
    let (ten, four, three) = (Some(9 * SECOND), Some(4 * SECOND), Some(3 * SECOND));
    let entry = |key, left, live, idle| Saved { key, value: key * 10, left, live, idle };
    let expected = [
        entry(1, ten, ten, None),
        entry(2, None, None, None),
        entry(3, three, ten, four),
        entry(4, three, None, four),
    ];
    assert_eq!(saved(&map), expected);
    // Two seconds on.
    let (loaded, later) = self::map();
    assert!(loaded.load(expected, 2 * SECOND).is_empty());
    let left = |key| loaded.remaining(&key).unwrap();
    assert_eq!([1, 2, 3, 4].map(left), [7 * SECOND, Duration::MAX, 4 * SECOND, 4 * SECOND]);
    // A use prolongs what has a time to idle, up to the time that it may live.
    later.advance(3 * SECOND);
    assert!(loaded.get(&3).is_some());
    later.advance(3 * SECOND);
    assert!(loaded.get(&3).is_some() && loaded.get(&4).is_none());
    later.advance(SECOND);
    assert!(loaded.get(&3).is_none());
}

#[test]
fn what_is_over_stays_away_and_what_is_newer_stays() {
    let (map, clock) = filled();
    clock.advance(SECOND);
    let saved = saved(&map);
    for (passed, keys) in [(2, vec![1, 2, 3, 4]), (3, vec![1, 2]), (9, vec![2]), (1 << 30, vec![2])]
    {
        let (loaded, _) = self::map();
        assert!(loaded.load(saved.clone(), passed * SECOND).is_empty());
        let mut there: Vec<u64> = loaded.iter().map(|entry| *entry.key()).collect();
        there.sort_unstable();
        assert_eq!(there, keys);
    }
    let (loaded, _) = self::map();
    loaded.insert(1, 11).unwrap();
    assert!(loaded.load(saved, Duration::ZERO).is_empty());
    assert_eq!((loaded.get_cloned(&1), loaded.len()), (Some(11), 4));
}

#[test]
fn what_is_refused_comes_back() {
    let map = ExpiringMap::<u64, u64>::builder().capacity(1).build_manual().unwrap();
    let entry = |key, live, idle| Saved { key, value: key * 10, left: live, live, idle };
    let saved = [
        entry(1, None, Some(Duration::ZERO)),
        entry(2, Some(Duration::MAX), None),
        entry(3, None, None),
        entry(4, None, None),
    ];
    let refused = map.load(saved, Duration::ZERO);
    let refused: Vec<_> = refused.iter().map(|it| (it.key, it.value, it.error)).collect();
    let (zero, long) =
        (StoreError::Lifetime(LifetimeError::Zero), StoreError::Lifetime(LifetimeError::TooLong));
    assert_eq!(refused, [(1, 10, zero), (2, 20, long), (4, 40, StoreError::Full)]);
    assert_eq!(map.get_cloned(&3), Some(30));
}

#[cfg(feature = "serde")]
#[test]
fn a_saved_entry_survives_a_format() {
    let saved = saved(&filled().0);
    let text = serde_json::to_string(&saved).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Saved<u64, u64>>>(&text).unwrap(), saved);
}
