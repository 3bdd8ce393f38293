//! D1, by promises: what users of `RotatingMap` may count on, beside the histories of
//! the model.

use expiry_wheel::{GenerationsError, RotatingMap};
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
