//! The map beside Storm's definition of it, with the invariants checked after every step.

mod drive;

use super::RotatingMap;
use drive::{quietly, run, token, Crowded, Ledger, Planned, Step, Token};
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// Checks the invariants of the module.
    fn validate(&self) {
        let (live, dead) = self.entries.validate();
        for &at in &live {
            // R-index
            let (key, _) = self.entries.entry(at).unwrap();
            assert_eq!(self.entries.hash(at), self.hash(key));
            assert_eq!(self.find(key).unwrap().1, at);
        }
        let has_cell = |at: u32| {
            let cell = self.index.find(self.entries.hash(at), |other| other == at);
            cell.is_some()
        };
        let dead_cells = dead.iter().filter(|at| has_cell(**at)).count();
        // R-key follows: each live key has a cell of its own, and the other cells are dead
        // entries'.
        assert_eq!(self.index.used(), live.len() + dead_cells);
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0_u8..24).prop_map(Step::Put),
        3 => (0_u8..24).prop_map(Step::Touch),
        4 => (0_u8..24).prop_map(Step::Remove),
        2 => (0_u8..24).prop_map(Step::Change),
        2 => (0_usize..6, 0_u8..4).prop_map(|(take, then)| Step::Rotate(take, then)),
        2 => (0_usize..6).prop_map(Step::RotateWith),
        1 => Just(Step::PopDead),
        1 => Just(Step::Shrink),
        1 => (0_usize..40).prop_map(Step::Reserve),
        1 => prop_oneof![9 => Just(Step::PopDead), 1 => Just(Step::Clear)],
    ]
}

fn checked<S: BuildHasher>(step: &Step, map: &RotatingMap<u8, Token, S>) {
    map.validate();
    if matches!(step, Step::Shrink) {
        assert!(map.entries.capacity() <= (map.len() + map.dead_len()).max(4));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn does_what_a_map_per_generation_would_do(
        generations in 2_usize..6,
        bits in prop_oneof![Just(u64::MAX), Just(0), Just(3), Just(u64::MAX << 60)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(generations, Crowded(bits), &steps, checked);
        run(generations, RandomState::new(), &steps, checked);
    }
}

/// Hash, Eq, and drops of keys and values, of which the one with this number panics.
struct Fuse {
    left: Cell<u32>,
}

impl Fuse {
    fn burn(&self) {
        if !std::thread::panicking() {
            match self.left.get() {
                0 => {}
                1 => {
                    self.left.set(0);
                    std::panic::panic_any(Planned);
                }
                left => self.left.set(left - 1),
            }
        }
    }
}

/// Panics when the fuse is burnt down, in whatever it is doing then.
struct Nervous(u8, Rc<Fuse>, #[allow(dead_code)] Token); // the token counts its drops

impl Hash for Nervous {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.1.burn();
        self.0.hash(state);
    }
}

impl PartialEq for Nervous {
    fn eq(&self, other: &Self) -> bool {
        self.1.burn();
        self.0 == other.0
    }
}

impl Eq for Nervous {}

impl Drop for Nervous {
    fn drop(&mut self) {
        self.1.burn();
    }
}

/// Every call, with a panic in the first, second, third .. piece of the caller's code that it
/// calls: the map is whole afterwards, each entry in it is found, and in the end each key and value
/// has been dropped once.
#[test]
fn a_panic_in_any_of_the_callers_code_leaves_a_whole_map() {
    type Map = RotatingMap<Nervous, Nervous, Crowded>;
    let ledger = Ledger::default();
    let fuse = Rc::new(Fuse { left: Cell::new(0) });
    let new = |n: u8| Nervous(n, fuse.clone(), token(&ledger));
    let calls: [fn(&mut Map, Nervous, Nervous); 10] = [
        |map, key, value| drop(map.put(key, value)),
        |map, key, _| drop(map.remove(&key)),
        |map, key, _| assert!(map.touch(&key) || key.0 < 3 || key.0 == 12),
        |map, key, _| assert!(map.get(&key).is_some() || key.0 < 3 || key.0 == 12),
        |map, _, _| drop(map.rotate()),
        |map, _, _| map.rotate().for_each(drop),
        |map, _, _| assert!(map.rotate_with(|key, value| drop((key, value))) > 0),
        |map, _, _| map.clear(),
        |map, _, _| map.shrink_to_fit(),
        |map, key, value| map.extend([(key, value)]),
    ];
    let (mut panics, mut calm) = (0, 0);
    for call in calls {
        for known in [0, 4, 8, 12] {
            for burn in 1.. {
                // Three entries in each of three generations, and three dead ones.
                let mut map = Map::with_hasher(Crowded(1));
                for n in 0..12 {
                    map.put(new(n), new(n));
                    if n % 3 == 2 && n < 9 {
                        map.rotate().keep();
                    }
                }
                assert_eq!((map.len(), map.dead_len()), (9, 3));
                let (key, value) = (new(known), new(known));
                fuse.left.set(burn);
                let result = quietly(|| call(&mut map, key, value));
                fuse.left.set(0);
                map.validate();
                for n in 0..13 {
                    let there = map.iter().any(|(key, _)| key.0 == n);
                    assert_eq!(map.contains_key(&new(n)), there);
                }
                // It works as before.
                map.put(new(5), new(5));
                assert_eq!(map.age(&new(5)), Some(0));
                map.validate();
                drop(map);
                assert!(
                    ledger.borrow().iter().all(|&drops| drops == 1),
                    "key {known}, panic {burn}"
                );
                match result {
                    Err(_) => panics += 1,
                    Ok(()) => {
                        calm += 1;
                        break;
                    }
                }
            }
        }
    }
    assert_eq!(calm, 10 * 4);
    assert!(panics > 200, "only {panics} panics");
}
