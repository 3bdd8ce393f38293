//! The map beside Storm's definition of it, with the invariants checked after every step.

use super::RotatingMap;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::hash_map::RandomState;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

impl<K: Hash + Eq, V, S: BuildHasher> RotatingMap<K, V, S> {
    /// Checks the invariants of the module.
    fn validate(&self) {
        let generations = self.lists.len() as u64;
        assert_eq!(self.youngest as u64, self.rotations % generations);
        let (mut live, mut dead_cells) = (0, 0);
        for (number, list) in self.lists.iter().enumerate() {
            for at in self.nodes.places(list) {
                // R-list, R-index
                assert!(self.is_live(at));
                assert_eq!(self.nodes.born(at) % generations, number as u64);
                let (key, _) = self.nodes.entry(at).unwrap();
                assert_eq!(self.nodes.hash(at), self.hash(key));
                assert_eq!(self.find(key).unwrap().1, at);
                live += 1;
            }
        }
        let dead = self.nodes.places(&self.dead);
        for &at in &dead {
            assert!(!self.is_live(at));
            let cell = self.index.find(self.nodes.hash(at), |other| other == at);
            dead_cells += usize::from(cell.is_some());
        }
        // R-key follows: every live key has a cell of its own, and there are no others than theirs and these.
        assert_eq!(self.index.used(), live + dead_cells);
        // R-count
        assert_eq!(self.len, live);
        assert_eq!(self.nodes.len(), live + dead.len());
        assert_eq!(
            self.nodes.places_in_all(),
            live + dead.len() + self.nodes.vacancies()
        );
    }
}

/// Hashes to a part of the key only, so that keys collide.
#[derive(Clone, Copy)]
struct Crowded(u64);

impl BuildHasher for Crowded {
    type Hasher = CrowdedHasher;

    fn build_hasher(&self) -> CrowdedHasher {
        CrowdedHasher(self.0, 0)
    }
}

struct CrowdedHasher(u64, u64);

impl Hasher for CrowdedHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.1 = (self.1 << 8) | u64::from(*byte);
        }
    }

    fn finish(&self) -> u64 {
        self.1 & self.0
    }
}

/// How often each value was dropped.
type Ledger = Rc<RefCell<Vec<u32>>>;

/// A value that can be dropped once only, and known by its number.
#[derive(Debug)]
struct Token {
    number: usize,
    ledger: Ledger,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.borrow_mut()[self.number] += 1;
    }
}

fn token(ledger: &Ledger) -> Token {
    ledger.borrow_mut().push(0);
    Token {
        number: ledger.borrow().len() - 1,
        ledger: ledger.clone(),
    }
}

/// Storm's definition: a bucket for each generation, the youngest in front. In order, so that order can be compared.
struct Model {
    buckets: VecDeque<Vec<(u8, usize)>>,
    dead: VecDeque<(u8, usize)>,
}

impl Model {
    fn new(generations: usize) -> Self {
        Model {
            buckets: (0..generations).map(|_| Vec::new()).collect(),
            dead: VecDeque::new(),
        }
    }

    fn age(&self, key: u8) -> Option<usize> {
        (0..self.buckets.len()).find(|&age| self.buckets[age].iter().any(|entry| entry.0 == key))
    }

    fn get(&self, key: u8) -> Option<usize> {
        let mut all = self.buckets.iter().flatten();
        all.find(|entry| entry.0 == key).map(|entry| entry.1)
    }

    fn remove(&mut self, key: u8) -> Option<usize> {
        let value = self.get(key);
        for bucket in &mut self.buckets {
            bucket.retain(|entry| entry.0 != key);
        }
        value
    }

    fn put(&mut self, key: u8, value: usize) -> Option<usize> {
        if let Some(entry) = self.buckets[0].iter_mut().find(|entry| entry.0 == key) {
            return Some(std::mem::replace(&mut entry.1, value));
        }
        let old = self.remove(key);
        self.buckets[0].push((key, value));
        old
    }

    fn touch(&mut self, key: u8) -> bool {
        match self.get(key) {
            Some(value) => self.put(key, value).is_some(),
            None => false,
        }
    }

    fn rotate(&mut self) {
        self.dead
            .extend(self.buckets.pop_back().expect("two or more"));
        self.buckets.push_front(Vec::new());
    }
}

#[derive(Debug, Clone)]
enum Step {
    Put(u8),
    Touch(u8),
    Remove(u8),
    Change(u8),
    /// Takes so many, and then: drops the rest, keeps it, leaks the iterator, panics.
    Rotate(usize, u8),
    /// Panics at this one.
    RotateWith(usize),
    PopDead,
    Shrink,
    Reserve(usize),
    Clear,
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

struct Pair<S> {
    map: RotatingMap<u8, Token, S>,
    model: Model,
    ledger: Ledger,
}

impl<S: BuildHasher> Pair<S> {
    fn dead(&mut self, taken: Option<(u8, Token)>) {
        let taken = taken.map(|(key, value)| (key, value.number));
        assert_eq!(taken, self.model.dead.pop_front());
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(key) => {
                let new = token(&self.ledger);
                let expected = self.model.put(key, new.number);
                let old = self.map.put(key, new);
                assert_eq!(old.map(|old| old.number), expected);
            }
            Step::Touch(key) => assert_eq!(self.map.touch(&key), self.model.touch(key)),
            Step::Remove(key) => {
                let value = self.map.remove(&key).map(|value| value.number);
                assert_eq!(value, self.model.remove(key));
            }
            Step::Change(key) => {
                let new = token(&self.ledger);
                let number = new.number;
                match self.map.get_mut(&key) {
                    Some(value) => *value = new,
                    None => assert_eq!(self.model.get(key), None),
                }
                for entry in self.model.buckets.iter_mut().flatten() {
                    if entry.0 == key {
                        entry.1 = number;
                    }
                }
            }
            Step::Rotate(take, then) => self.rotate(take, then),
            Step::RotateWith(panic_at) => self.rotate_with(panic_at),
            Step::PopDead => {
                let taken = self.map.pop_dead();
                self.dead(taken);
            }
            Step::Shrink => {
                self.map.shrink_to_fit();
                let most = self.map.nodes.len().max(4);
                assert!(self.map.nodes.capacity() <= most);
                let (least, most) = (self.map.len(), 16 + 4 * self.map.nodes.len());
                assert!((least..most).contains(&self.map.capacity()));
            }
            Step::Reserve(additional) => {
                self.map.reserve(additional);
                assert!(self.map.capacity() >= self.map.len() + additional);
            }
            Step::Clear => {
                self.map.clear();
                self.model.dead.clear();
                self.model.buckets.iter_mut().for_each(Vec::clear);
            }
        }
    }

    fn rotate(&mut self, take: usize, then: u8) {
        self.model.rotate();
        let mut taken = Vec::new();
        let mut work = || {
            let mut dead = self.map.rotate();
            assert_eq!(dead.len(), self.model.dead.len());
            taken.extend(dead.by_ref().take(take));
            match then {
                0 => drop(dead),
                1 => dead.keep(),
                2 => std::mem::forget(dead),
                _ => std::panic::panic_any(Planned),
            }
        };
        assert_eq!(quietly(&mut work).is_err(), then == 3);
        for entry in taken {
            self.dead(Some(entry));
        }
        if then == 0 {
            self.model.dead.clear();
        }
    }

    fn rotate_with(&mut self, panic_at: usize) {
        self.model.rotate();
        let mut taken = Vec::new();
        let due = self.model.dead.len();
        let result = quietly(|| {
            self.map.rotate_with(|key, value| {
                taken.push((key, value));
                if taken.len() == panic_at {
                    std::panic::panic_any(Planned);
                }
            })
        });
        if panic_at == 0 || panic_at > due {
            assert_eq!(result.ok(), Some(due));
        } else {
            assert!(result.is_err());
            assert_eq!(taken.len(), panic_at);
        }
        for entry in taken {
            self.dead(Some(entry));
        }
    }

    fn compare(&mut self) {
        self.map.validate();
        let map = &mut self.map;
        let mut all = Vec::new();
        for age in 0..map.generations() + 2 {
            let entries: Vec<_> = map.generation(age).map(|(k, v)| (*k, v.number)).collect();
            assert_eq!(map.generation_len(age), entries.len());
            match self.model.buckets.get(age) {
                Some(bucket) => assert_eq!(&entries, bucket),
                None => assert!(entries.is_empty()),
            }
            all.splice(0..0, entries);
        }
        assert_eq!(map.len(), all.len());
        assert_eq!(map.is_empty(), all.is_empty());
        assert_eq!(map.dead_len(), self.model.dead.len());
        let iter = map.iter();
        assert_eq!(iter.len(), all.len());
        let seen: Vec<_> = iter.map(|(k, v)| (*k, v.number)).collect();
        assert_eq!(seen, all);
        let mut seen: Vec<_> = map.iter_mut().map(|(k, v)| (*k, v.number)).collect();
        seen.sort_unstable();
        all.sort_unstable();
        assert_eq!(seen, all);
        for key in 0..24 {
            let value = self.model.get(key);
            assert_eq!(map.get(&key).map(|value| value.number), value);
            assert_eq!(map.contains_key(&key), value.is_some());
            assert_eq!(map.age(&key), self.model.age(key));
        }
    }
}

/// What tests panic with; its message is not printed.
struct Planned;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Catches a panic, and prints nothing if it was planned.
fn quietly<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
    static HOOK: std::sync::Once = std::sync::Once::new();
    HOOK.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !(QUIET.get() && info.payload().is::<Planned>()) {
                others(info);
            }
        }));
    });
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(f));
    QUIET.set(false);
    match result {
        Err(panic) if !panic.is::<Planned>() => std::panic::resume_unwind(panic),
        result => result,
    }
}

fn run<S: BuildHasher>(generations: usize, hasher: S, steps: &[Step]) {
    let ledger = Ledger::default();
    let mut pair = Pair {
        map: RotatingMap::with_generations_and_hasher(generations, hasher).unwrap(),
        model: Model::new(generations),
        ledger: ledger.clone(),
    };
    for step in steps {
        pair.step(step);
        pair.compare();
        let gone = ledger.borrow().iter().filter(|&&drops| drops > 0).count();
        let held = pair.map.len() + pair.map.dead_len();
        assert_eq!(gone + held, ledger.borrow().len(), "leaked or lost");
    }
    if steps.len() % 2 == 0 {
        let mut left: Vec<_> = pair.map.into_iter().map(|(k, v)| (k, v.number)).collect();
        left.sort_unstable();
        let mut expected: Vec<_> = pair.model.buckets.into_iter().flatten().collect();
        expected.sort_unstable();
        assert_eq!(left, expected);
    } else {
        drop(pair.map);
    }
    assert!(
        ledger.borrow().iter().all(|&drops| drops == 1),
        "a value was not dropped once"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    #[test]
    fn does_what_a_map_per_generation_would_do(
        generations in 2_usize..6,
        bits in prop_oneof![Just(u64::MAX), Just(0), Just(3), Just(u64::MAX << 60)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(generations, Crowded(bits), &steps);
        run(generations, RandomState::new(), &steps);
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

/// Every call, with a panic in the first, second, third .. piece of the caller's code that it calls: the map is whole
/// afterwards, everybody in it is found, and in the end each key and value has been dropped once.
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
