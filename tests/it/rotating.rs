//! D1, by promises: what users of `RotatingMap` may count on.

use expiry::{GenerationsError, RotatingMap};
use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

#[test]
fn d01_an_entry_survives_n_less_one_rotations_and_dies_with_the_nth() {
    for generations in [2, 3, 4, 11, 100] {
        let mut map = RotatingMap::with_generations(generations).unwrap();
        assert_eq!(map.generations(), generations);
        map.put("k", 1);
        for age in 1..generations {
            assert_eq!(map.rotate().count(), 0);
            assert_eq!(map.age("k"), Some(age));
            assert_eq!(map.get("k"), Some(&1));
        }
        assert_eq!(map.rotate().collect::<Vec<_>>(), [("k", 1)]);
        assert_eq!(map.get("k"), None);
        assert_eq!(map.age("k"), None);
        assert_eq!(map.rotations(), generations as u64);
    }
}

#[test]
fn d01_put_and_touch_renew_and_looking_does_not() {
    let mut map = RotatingMap::new();
    assert_eq!(map.generations(), 3);
    for key in ["put", "touched", "looked at"] {
        assert_eq!(map.put(key, 0), None);
    }
    map.rotate();
    map.rotate();
    assert_eq!(map.put("put", 1), Some(0));
    assert!(map.touch("touched"));
    assert!(!map.touch("unknown"));
    assert_eq!(map.get("looked at"), Some(&0));
    *map.get_mut("looked at").unwrap() = 2;
    assert!(map.contains_key("looked at"));
    assert_eq!(map.iter().count(), 3);
    for (_, value) in map.iter_mut() {
        *value += 10;
    }
    assert_eq!(map.rotate().collect::<Vec<_>>(), [("looked at", 12)]);
    assert_eq!(map.generation_len(1), 2);
    map.rotate();
    let dead: HashSet<_> = map.rotate().collect();
    assert_eq!(dead, HashSet::from([("put", 11), ("touched", 10)]));
}

#[test]
fn d01_too_few_and_too_many_generations_are_refused() {
    type Map = RotatingMap<u8, u8>;
    for generations in [0, 1] {
        assert_eq!(
            Map::with_generations(generations).unwrap_err(),
            GenerationsError::TooFew { generations }
        );
    }
    for generations in [Map::MAX_GENERATIONS + 1, usize::MAX] {
        let error = Map::with_generations(generations).unwrap_err();
        assert_eq!(error, GenerationsError::TooMany { generations });
        assert!(error.to_string().contains("at most 1024"));
    }
    let mut most = Map::with_generations(Map::MAX_GENERATIONS).unwrap();
    most.put(1, 1);
    for _ in 1..Map::MAX_GENERATIONS {
        assert_eq!(most.rotate().len(), 0);
    }
    assert_eq!(most.rotate().count(), 1);
}

#[test]
fn d01_keys_may_be_looked_up_as_what_they_borrow() {
    let mut map: RotatingMap<String, u8> = RotatingMap::default();
    map.extend([("a".to_owned(), 1), ("b".to_owned(), 2)]);
    assert_eq!(map.get("a"), Some(&1));
    assert_eq!(map.get_key_value("a"), Some((&"a".to_owned(), &1)));
    assert_eq!(map.remove_entry("b"), Some(("b".to_owned(), 2)));
    assert_eq!(map.remove("b"), None);
    assert_eq!(format!("{map:?}"), r#"{"a": 1}"#);
}

/// M1, M2, M5 on one thread: a key whose old entry is dead and not handed over yet lives its own
/// new life.
#[test]
fn d01_a_dead_entry_neither_comes_back_nor_stands_in_the_way() {
    let mut map = RotatingMap::with_generations(2).unwrap();
    map.put("k", 1);
    map.rotate();
    map.rotate().keep();
    assert_eq!(map.dead_len(), 1);
    assert_eq!(map.get("k"), None);
    assert_eq!(map.remove("k"), None);
    assert!(!map.touch("k"));
    assert_eq!(map.put("k", 2), None);
    assert_eq!(map.pop_dead(), Some(("k", 1)));
    assert_eq!(map.pop_dead(), None);
    assert_eq!(map.get("k"), Some(&2));
    assert_eq!(map.len(), 1);
}

/// M3: a callback that panics at any position is given each entry once, in the end.
#[test]
fn d01_a_callback_that_panics_loses_nothing() {
    const DEAD: usize = 20;
    for panic_at in 0..DEAD {
        let mut map = RotatingMap::with_generations(2).unwrap();
        map.extend((0..DEAD).map(|n| (n, n)));
        map.rotate();
        map.put(DEAD, 0);
        let mut told = Vec::new();
        let panic = catch_unwind(AssertUnwindSafe(|| {
            map.rotate_with(|key, _| {
                told.push(key);
                if told.len() == panic_at + 1 {
                    std::panic::resume_unwind(Box::new("planned"));
                }
            })
        }));
        assert!(panic.is_err());
        assert_eq!(told.len(), panic_at + 1);
        assert_eq!((map.len(), map.dead_len()), (1, DEAD - panic_at - 1));
        // The next one goes on where it ended, and then reports the entries that have died since.
        assert_eq!(map.rotate_with(|key, _| told.push(key)), DEAD - panic_at - 1 + 1);
        assert_eq!(told.pop(), Some(DEAD));
        told.sort_unstable();
        assert_eq!(told, (0..DEAD).collect::<Vec<_>>());
        assert!(map.is_empty());
    }
}

/// The rest stays if a panic drops the iterator, and goes if anything else does.
#[test]
fn d01_a_loop_that_panics_loses_nothing() {
    let mut map = RotatingMap::with_generations(2).unwrap();
    map.extend((0..5).map(|n| (n, n)));
    map.rotate();
    let mut told = HashSet::new();
    let panic = catch_unwind(AssertUnwindSafe(|| {
        for (key, _) in map.rotate() {
            told.insert(key);
            if told.len() == 2 {
                std::panic::resume_unwind(Box::new("planned"));
            }
        }
    }));
    assert!(panic.is_err());
    assert_eq!(map.dead_len(), 3);
    assert!(told.insert(map.pop_dead().unwrap().0));
    assert!(told.insert(map.rotate().next().unwrap().0));
    assert_eq!(map.dead_len(), 0);
}

#[test]
fn d01_iteration_is_oldest_first() {
    let mut map = RotatingMap::new();
    for n in 0..6 {
        map.put(n, ());
        if n % 2 == 1 {
            map.rotate();
        }
    }
    map.touch(&2);
    let copy = map.clone();
    map.shrink_to_fit();
    for map in [&map, &copy] {
        let ages: Vec<_> = map.iter().map(|(key, ())| map.age(key).unwrap()).collect();
        assert_eq!(ages, [2, 1, 1, 0]);
        assert_eq!((map.generation_len(2), map.generation_len(3)), (1, 0));
    }
    let all: HashSet<_> = copy.into_iter().map(|(key, ())| key).collect();
    assert_eq!(all, HashSet::from([2, 3, 4, 5]));
    map.clear();
    assert!(map.is_empty());
    assert_eq!(map.rotate().count(), 0);
}

/// A panic of `Eq` or `Hash` at any time: the map can be used, and nothing is dropped twice.
#[test]
fn d01_a_key_that_panics_leaves_a_map_that_can_be_used() {
    thread_local!(static LEFT: Cell<u32> = const { Cell::new(0) });
    #[derive(Clone)]
    struct Nervous(u8, #[allow(dead_code)] Rc<()>); // counted
    fn burn() {
        let left = LEFT.get();
        LEFT.set(left.saturating_sub(1));
        if left == 1 {
            std::panic::resume_unwind(Box::new("planned"));
        }
    }
    impl Hash for Nervous {
        fn hash<H: Hasher>(&self, state: &mut H) {
            burn();
            self.0.hash(state);
        }
    }
    impl PartialEq for Nervous {
        fn eq(&self, other: &Self) -> bool {
            burn();
            self.0 == other.0
        }
    }
    impl Eq for Nervous {}
    let (alive, mut panics) = (Rc::new(()), 0);
    let new = |n| Nervous(n, alive.clone());
    for at in 1..200 {
        let mut map = RotatingMap::with_generations(2).unwrap();
        map.extend((0..6).map(|n| (new(n), new(n))));
        map.rotate();
        LEFT.set(at);
        let run = catch_unwind(AssertUnwindSafe(|| {
            map.extend((3..40).map(|n| (new(n), new(n))));
            map.touch(&new(2));
            map.remove(&new(7));
            map.shrink_to_fit();
        }));
        LEFT.set(0);
        panics += u32::from(run.is_err());
        map.put(new(5), new(5));
        assert_eq!(map.age(&new(5)), Some(0));
        assert_eq!(Rc::strong_count(&alive), 1 + 2 * map.len(), "panic {at}");
    }
    assert!(panics > 50, "{panics}");
}

/// Keys whose hashes all collide are slow, and correct.
#[test]
fn d01_iterators_know_how_many_are_left() {
    let mut map = RotatingMap::new();
    map.extend((0..5).map(|n| (n, n)));
    map.rotate();
    map.extend([(5, 5), (6, 6)]);
    let mut seen = map.iter();
    for left in (0..7).rev() {
        assert!(seen.next().is_some());
        assert_eq!(seen.size_hint(), (left, Some(left)));
    }
    assert_eq!(map.into_iter().size_hint(), (7, Some(7)));
}

#[test]
fn d01_a_hasher_that_is_no_use_is_survived() {
    #[derive(Clone, Default)]
    struct Same;
    impl std::hash::BuildHasher for Same {
        type Hasher = Same;
        fn build_hasher(&self) -> Same {
            Same
        }
    }
    impl std::hash::Hasher for Same {
        fn write(&mut self, _: &[u8]) {}
        fn finish(&self) -> u64 {
            u64::MAX
        }
    }
    let mut map: RotatingMap<u32, u32, Same> = RotatingMap::with_hasher(Same);
    map.extend((0..500).map(|n| (n, n)));
    for n in (0..500).step_by(2) {
        assert_eq!(map.remove(&n), Some(n));
    }
    for n in 0..500 {
        assert_eq!(map.get(&n).is_some(), n % 2 == 1);
    }
    map.rotate();
    map.rotate();
    assert_eq!(map.rotate().count(), 250);
}
