//! A history of one map beside Storm's definition of it; the property test and the fuzzer both run
//! it.

use super::RotatingMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

/// Hashes to a part of the key only, so that keys collide.
#[derive(Clone, Copy)]
pub struct Crowded(pub u64);

impl BuildHasher for Crowded {
    type Hasher = CrowdedHasher;

    fn build_hasher(&self) -> CrowdedHasher {
        CrowdedHasher(self.0, 0)
    }
}

pub struct CrowdedHasher(u64, u64);

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
pub type Ledger = Rc<RefCell<Vec<u32>>>;

/// A value that can be dropped once only, and known by its number.
#[derive(Debug)]
pub struct Token {
    number: usize,
    ledger: Ledger,
}

impl Drop for Token {
    fn drop(&mut self) {
        self.ledger.borrow_mut()[self.number] += 1;
    }
}

pub fn token(ledger: &Ledger) -> Token {
    ledger.borrow_mut().push(0);
    Token { number: ledger.borrow().len() - 1, ledger: ledger.clone() }
}

/// Storm's definition: a bucket for each generation, the youngest in front. In order, so that order
/// can be compared.
struct Model {
    buckets: VecDeque<Vec<(u8, usize)>>,
    dead: VecDeque<(u8, usize)>,
}

impl Model {
    fn new(generations: usize) -> Self {
        Model { buckets: (0..generations).map(|_| Vec::new()).collect(), dead: VecDeque::new() }
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
        self.dead.extend(self.buckets.pop_back().expect("two or more"));
        self.buckets.push_front(Vec::new());
    }
}

#[derive(Debug, Clone)]
pub enum Step {
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
                let held = self.map.len() + self.map.dead_len();
                let (least, most) = (self.map.len(), 16 + 4 * held);
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
pub struct Planned;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Catches a panic, and prints nothing if it was planned.
pub fn quietly<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
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

/// Checks, after each step, what can be seen from outside; `check` may see more.
pub fn run<S: BuildHasher>(
    generations: usize,
    hasher: S,
    steps: &[Step],
    check: impl Fn(&Step, &RotatingMap<u8, Token, S>),
) {
    let ledger = Ledger::default();
    let mut pair = Pair {
        map: RotatingMap::with_generations_and_hasher(generations, hasher).unwrap(),
        model: Model::new(generations),
        ledger: ledger.clone(),
    };
    for step in steps {
        pair.step(step);
        check(step, &pair.map);
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
    assert!(ledger.borrow().iter().all(|&drops| drops == 1), "a value was not dropped once");
}
