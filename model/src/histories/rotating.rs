//! `RotatingMap`, beside Storm's definition of it.

use super::{each, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::RotatingMap;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;

/// Histories of a `RotatingMap`.
pub struct Rotating;

/// Hashes to a part of the key only, so that keys collide.
#[derive(Debug, Clone, Copy)]
pub struct Crowded(u64);

pub struct CrowdedHasher(u64, u64);

impl BuildHasher for Crowded {
    type Hasher = CrowdedHasher;

    fn build_hasher(&self) -> CrowdedHasher {
        CrowdedHasher(self.0, 0)
    }
}

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
    Clear,
}

impl Histories for Rotating {
    type Setup = (usize, Crowded);
    type Op = Step;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Self::Setup> {
        let generations = bytes.int_in_range(2..=5)?;
        Ok((generations, Crowded(*bytes.choose(&[u64::MAX, 0, 3, u64::MAX << 60])?)))
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Step> {
        let key = bytes.int_in_range(0..=23u8)?;
        Ok(match bytes.int_in_range(0..=23u8)? {
            0..=7 => Step::Put(key),
            8..=10 => Step::Touch(key),
            11..=14 => Step::Remove(key),
            15 | 16 => Step::Change(key),
            17 | 18 => Step::Rotate(bytes.int_in_range(0..=5)?, bytes.int_in_range(0..=3)?),
            19 | 20 => Step::RotateWith(bytes.int_in_range(0..=5)?),
            21 => Step::PopDead,
            22 => Step::Shrink,
            _ => Step::Clear,
        })
    }

    fn run(&self, &(generations, hasher): &Self::Setup, ops: &[Step]) -> Found {
        let ledger = Ledger::default();
        let map = RotatingMap::with_generations_and_hasher(generations, hasher);
        let model = Model { ages: vec![BTreeMap::new(); generations].into(), dead: Vec::new() };
        let mut pair = Pair { map: map.expect("generations"), model, ledger: ledger.clone() };
        each(ops, |_, step| {
            pair.step(step)?;
            pair.compare()
        })?;
        if ops.len() % 2 == 0 {
            let left = pair.map.into_iter().map(|(key, value)| (key, value.number));
            let left: BTreeMap<_, _> = left.collect();
            prop_assert_eq!(left, pair.model.ages.into_iter().flatten().collect());
        } else {
            drop(pair.map);
        }
        prop_assert!(ledger.borrow().iter().all(|&drops| drops == 1), "not dropped once");
        Ok(())
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

/// Storm's definition: a bucket for each generation, the youngest in front; and what has died, a
/// rotation at a time.
struct Model {
    ages: VecDeque<BTreeMap<u8, usize>>,
    dead: Vec<BTreeMap<u8, usize>>,
}

impl Model {
    fn age(&self, key: u8) -> Option<usize> {
        self.ages.iter().position(|bucket| bucket.contains_key(&key))
    }

    fn get_mut(&mut self, key: u8) -> Option<&mut usize> {
        self.ages.iter_mut().find_map(|bucket| bucket.get_mut(&key))
    }

    fn remove(&mut self, key: u8) -> Option<usize> {
        self.ages.iter_mut().find_map(|bucket| bucket.remove(&key))
    }

    fn rotate(&mut self) {
        self.dead.extend(self.ages.pop_back());
        self.dead.retain(|bucket| !bucket.is_empty());
        self.ages.push_front(BTreeMap::new());
    }

    fn dead_len(&self) -> usize {
        self.dead.iter().map(BTreeMap::len).sum()
    }
}

struct Pair {
    map: RotatingMap<u8, Token, Crowded>,
    model: Model,
    ledger: Ledger,
}

impl Pair {
    fn token(&self) -> Token {
        let mut ledger = self.ledger.borrow_mut();
        ledger.push(0);
        Token { number: ledger.len() - 1, ledger: self.ledger.clone() }
    }

    /// What was taken has died in the oldest rotation of which something is left.
    fn dead(&mut self, taken: Option<(u8, Token)>) -> Found {
        let Some((key, value)) = taken else {
            prop_assert_eq!(self.model.dead_len(), 0);
            return Ok(());
        };
        let oldest = self.model.dead.first_mut().and_then(|bucket| bucket.remove(&key));
        prop_assert_eq!(oldest, Some(value.number));
        self.model.dead.retain(|bucket| !bucket.is_empty());
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Found {
        match *step {
            Step::Put(key) => {
                let new = self.token();
                let old = self.model.remove(key);
                self.model.ages[0].insert(key, new.number);
                prop_assert_eq!(self.map.put(key, new).map(|old| old.number), old);
            }
            Step::Touch(key) => {
                let value = self.model.remove(key);
                self.model.ages[0].extend(value.map(|value| (key, value)));
                prop_assert_eq!(self.map.touch(&key), value.is_some());
            }
            Step::Remove(key) => {
                let value = self.map.remove(&key).map(|value| value.number);
                prop_assert_eq!(value, self.model.remove(key));
            }
            Step::Change(key) => {
                let new = self.token();
                let number = new.number;
                let (is, should) = (self.map.get_mut(&key), self.model.get_mut(key));
                prop_assert_eq!(is.is_some(), should.is_some());
                if let (Some(is), Some(should)) = (is, should) {
                    (*is, *should) = (new, number);
                }
            }
            Step::Rotate(take, then) => self.rotate(take, then)?,
            Step::RotateWith(panic_at) => self.rotate_with(panic_at)?,
            Step::PopDead => {
                let taken = self.map.pop_dead();
                self.dead(taken)?;
            }
            Step::Shrink => self.map.shrink_to_fit(),
            Step::Clear => {
                self.map.clear();
                self.model.dead.clear();
                self.model.ages.iter_mut().for_each(BTreeMap::clear);
            }
        }
        Ok(())
    }

    fn rotate(&mut self, take: usize, then: u8) -> Found {
        self.model.rotate();
        let mut taken = Vec::new();
        let panicked = quietly(|| {
            let mut dead = self.map.rotate();
            assert_eq!(dead.len(), self.model.dead_len());
            taken.extend(dead.by_ref().take(take));
            match then {
                0 => drop(dead),
                1 => dead.keep(),
                2 => std::mem::forget(dead),
                _ => std::panic::panic_any(Planned),
            }
        });
        prop_assert_eq!(panicked.is_err(), then == 3);
        for entry in taken {
            self.dead(Some(entry))?;
        }
        if then == 0 {
            self.model.dead.clear();
        }
        Ok(())
    }

    fn rotate_with(&mut self, panic_at: usize) -> Found {
        self.model.rotate();
        let (mut taken, due) = (Vec::new(), self.model.dead_len());
        let told = quietly(|| {
            self.map.rotate_with(|key, value| {
                taken.push((key, value));
                if taken.len() == panic_at {
                    std::panic::panic_any(Planned);
                }
            })
        });
        let panics = (1..=due).contains(&panic_at);
        prop_assert_eq!(told.ok(), (!panics).then_some(due));
        prop_assert_eq!(taken.len(), if panics { panic_at } else { due });
        taken.into_iter().try_for_each(|entry| self.dead(Some(entry)))
    }

    fn compare(&mut self) -> Found {
        let (map, model) = (&mut self.map, &mut self.model);
        let mut all = BTreeMap::new();
        for (age, bucket) in model.ages.iter().enumerate() {
            prop_assert_eq!(map.generation_len(age), bucket.len());
            all.extend(bucket);
        }
        prop_assert_eq!(map.generation_len(map.generations()), 0);
        prop_assert_eq!((map.len(), map.dead_len()), (all.len(), model.dead_len()));
        prop_assert_eq!((map.is_empty(), map.iter().len()), (all.is_empty(), all.len()));
        let seen: Vec<(u8, usize)> = map.iter().map(|(key, value)| (*key, value.number)).collect();
        let ages = seen.iter().map(|(key, _)| model.age(*key));
        prop_assert!(ages.clone().zip(ages.skip(1)).all(|(one, next)| one >= next), "{:?}", seen);
        prop_assert_eq!(&seen.into_iter().collect::<BTreeMap<_, _>>(), &all);
        let seen = map.iter_mut().map(|(key, value)| (*key, value.number));
        prop_assert_eq!(&seen.collect::<BTreeMap<_, _>>(), &all);
        for key in 0..24 {
            prop_assert_eq!(map.get(&key).map(|value| value.number), all.get(&key).copied());
            prop_assert_eq!(
                (map.contains_key(&key), map.age(&key)),
                (all.contains_key(&key), model.age(key))
            );
        }
        let gone = self.ledger.borrow().iter().filter(|&&drops| drops > 0).count();
        prop_assert_eq!(gone + map.len() + map.dead_len(), self.ledger.borrow().len());
        Ok(())
    }
}

/// What a callback panics with; its message is not printed.
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
