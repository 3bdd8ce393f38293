//! A few keys of one map under all its operations from several threads, while the index grows and
//! shrinks beside them. Keys and values check themselves: whose they are, that they have not been
//! dropped, and that in the end each was dropped once.
//!
//! `EXPIRY_HAMMER_MILLIS` says how long each case takes, `EXPIRY_HAMMER_COLD` how many other keys
//! come and go.

use expiry::expiring_map::Entry;
use expiry::{ExpiringMap, Lifetime, Lifetimes, RemovalCause};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Keys that come and go; after them those that stay, and are only replaced; then those that are
/// counted up.
const HOT: u64 = 6;
const KEPT: u64 = 4;
const COUNTED: u64 = 2;
const FIRST_COLD: u64 = 1000;

fn setting(name: &str, default: u64) -> u64 {
    let set = std::env::var(name).ok().and_then(|set| set.parse().ok());
    set.unwrap_or(default)
}

/// How many of them are there.
#[derive(Default)]
struct Alive {
    made: AtomicI64,
    dropped: AtomicI64,
}

trait Key: Hash + Eq + Clone + Debug + Send + Sync + 'static {
    fn of(number: u64, alive: &Arc<Alive>) -> Self;
    fn number(&self) -> u64;
}

trait Value: Debug + Send + Sync + 'static {
    fn of(key: u64, count: u64, alive: &Arc<Alive>) -> Self;
    fn check(&self, key: u64) -> u64;
}

impl Key for u64 {
    fn of(number: u64, _: &Arc<Alive>) -> Self {
        number
    }
    fn number(&self) -> u64 {
        *self
    }
}

impl Value for u64 {
    fn of(key: u64, count: u64, _: &Arc<Alive>) -> Self {
        key << 40 | count
    }
    fn check(&self, key: u64) -> u64 {
        assert_eq!(self >> 40, key, "another key's value");
        self & ((1 << 40) - 1)
    }
}

const CANARY: u64 = 0x5AFE_5AFE_C0DE_1234;

/// On the heap, and counted.
#[derive(Debug)]
struct Body {
    canary: AtomicU64,
    key: u64,
    count: u64,
    alive: Arc<Alive>,
}

impl Debug for Alive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Alive")
    }
}

impl Body {
    fn new(key: u64, count: u64, alive: &Arc<Alive>) -> Box<Self> {
        alive.made.fetch_add(1, Relaxed);
        let (canary, alive) = (AtomicU64::new(CANARY), alive.clone());
        Box::new(Body { canary, key, count, alive })
    }
    fn seen(&self) -> &Self {
        let canary = self.canary.load(Relaxed);
        assert_eq!(canary, CANARY, "dropped, or never made");
        self
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if self.canary.swap(0xDEAD_DEAD, Relaxed) != CANARY {
            eprintln!("dropped twice: key {}", self.key);
            std::process::abort();
        }
        self.alive.dropped.fetch_add(1, Relaxed);
    }
}

#[derive(Debug)]
struct Boxed(Box<Body>);

impl Value for Boxed {
    fn of(key: u64, count: u64, alive: &Arc<Alive>) -> Self {
        Boxed(Body::new(key, count, alive))
    }
    fn check(&self, key: u64) -> u64 {
        assert_eq!(self.0.seen().key, key, "another key's value");
        self.0.count
    }
}

#[derive(Debug)]
struct BoxedKey(Box<Body>);

impl Clone for BoxedKey {
    fn clone(&self) -> Self {
        BoxedKey(Body::new(self.0.seen().key, 0, &self.0.alive))
    }
}

impl PartialEq for BoxedKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.seen().key == other.0.seen().key
    }
}

impl Eq for BoxedKey {}

impl Hash for BoxedKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.seen().key.hash(state);
    }
}

impl Key for BoxedKey {
    fn of(number: u64, alive: &Arc<Alive>) -> Self {
        BoxedKey(Body::new(number, 0, alive))
    }
    fn number(&self) -> u64 {
        self.0.seen().key
    }
}

#[derive(Debug, Clone, Copy)]
struct Case {
    threads: u64,
    shards: usize,
    live: Duration,
    idle: Option<Duration>,
    capacity: Option<usize>,
    manual: bool,
    listener: bool,
    /// Threads end after so many operations.
    churn: Option<u64>,
    cold: u64,
}

impl Case {
    fn new() -> Self {
        Case {
            threads: 4,
            shards: 1,
            live: Duration::from_millis(3),
            idle: None,
            capacity: None,
            manual: false,
            listener: false,
            churn: None,
            cold: setting("EXPIRY_HAMMER_COLD", 4000),
        }
    }
}

struct Ground<K: Key, V: Value> {
    map: ExpiringMap<K, V>,
    case: Case,
    alive: Arc<Alive>,
    done: AtomicBool,
    counted: [AtomicU64; COUNTED as usize],
    operations: AtomicU64,
    told: Arc<AtomicU64>,
}

fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    seed.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 24
}

const NEVER: Lifetime = Lifetime::Never;

fn forever() -> Lifetimes {
    Lifetimes::new().live(NEVER).idle(NEVER)
}

impl<K: Key, V: Value> Ground<K, V> {
    fn key(&self, number: u64) -> K {
        K::of(number, &self.alive)
    }
    fn value(&self, key: u64, count: u64) -> V {
        V::of(key, count, &self.alive)
    }

    fn operate(&self, seed: &mut u64) {
        let (map, bounded) = (&self.map, self.case.capacity.is_some());
        let number = next(seed) % HOT;
        let key = self.key(number);
        match next(seed) % 16 {
            0..=2 => match map.insert(key, self.value(number, 1)) {
                Ok(Some(old)) => {
                    assert_eq!(old.key().number(), number);
                    old.value().check(number);
                    if next(seed) % 8 == 0 {
                        if let Ok(value) = old.try_into_value() {
                            value.check(number);
                        }
                    }
                }
                Ok(None) => {}
                Err(refused) => assert!(bounded, "{refused:?}"),
            },
            3 | 4 => {
                if let Some(old) = map.remove(&key) {
                    assert_eq!(old.key().number(), number);
                    old.value().check(number);
                    if next(seed) % 4 == 0 {
                        if let Ok(value) = old.try_into_value() {
                            value.check(number);
                        }
                    }
                }
            }
            5..=7 => {
                if let Some(value) = map.get(&key) {
                    for _ in 0..next(seed) % 8 {
                        value.check(number);
                        assert_eq!(value.key().number(), number);
                        thread::yield_now();
                    }
                    value.check(number);
                }
            }
            8 => match map.entry(key) {
                Entry::Occupied(entry) => {
                    entry.get().check(number);
                    match next(seed) % 3 {
                        0 => drop(entry.remove()),
                        1 => {
                            if let Ok(old) = entry.insert(self.value(number, 2)) {
                                old.check(number);
                            }
                        }
                        _ => drop(entry.into_ref().check(number)),
                    }
                }
                Entry::Vacant(entry) => {
                    if let Ok(new) = entry.insert(self.value(number, 3)) {
                        new.check(number);
                    }
                }
            },
            9 => {
                let short = Duration::from_micros(1 + next(seed) % 2000);
                if let Ok(Some(old)) = map.insert_with_lifetime(key, self.value(number, 4), short) {
                    old.value().check(number);
                }
            }
            10 => {
                let _ = map.touch_with_lifetime(&key, Duration::from_micros(1 + next(seed) % 5000));
            }
            11 if next(seed) % 64 == 0 => {
                for entry in map.iter().take(500) {
                    entry.check(entry.key().number());
                }
            }
            11 => drop(map.remove_if(&key, |key, value| value.check(key.number()) % 2 == 0)),
            12 if next(seed) % 256 == 0 => map.retain(|key, value| {
                value.check(key.number());
                key.number() >= HOT
            }),
            12 | 13 if bounded => {}
            12 | 13 => {
                // One that is replaced, and never not there.
                let number = HOT + next(seed) % KEPT;
                let key = self.key(number);
                if next(seed) % 2 == 0 {
                    let value = map.get(&key).expect("a key that is always there is found");
                    value.check(number);
                } else {
                    let old = map.insert_with_lifetime(key, self.value(number, 5), forever());
                    let old = old.expect("room").expect("a key that is always there is replaced");
                    old.value().check(number);
                }
            }
            14 if !bounded => {
                let at = next(seed) % COUNTED;
                let number = HOT + KEPT + at;
                let more = |old: Option<&V>| {
                    (self.value(number, old.map_or(0, |old| old.check(number)) + 1), ())
                };
                map.upsert_with_lifetime(self.key(number), forever(), more).expect("room");
                self.counted[at as usize].fetch_add(1, Relaxed);
            }
            _ => {
                if self.case.manual {
                    map.poll(1 + (next(seed) % 64) as usize);
                }
            }
        }
        self.operations.fetch_add(1, Relaxed);
    }

    fn work(&self, thread: u64) {
        let mut seed = (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        while !self.done.load(Relaxed) {
            match self.case.churn {
                None => self.operate(&mut seed),
                Some(operations) => {
                    let mut seed = next(&mut seed) | 1 << 50;
                    thread::scope(|scope| {
                        scope.spawn(|| (0..operations).for_each(|_| self.operate(&mut seed)));
                    });
                }
            }
        }
    }

    /// Others come and go: the index grows and shrinks.
    fn grow(&self) {
        while !self.done.load(Relaxed) {
            for number in FIRST_COLD..FIRST_COLD + self.case.cold {
                let value = self.value(number, 6);
                let put = self.map.insert_with_lifetime(self.key(number), value, forever());
                assert!(put.is_ok() || self.case.capacity.is_some());
                if self.done.load(Relaxed) {
                    break;
                }
            }
            for number in FIRST_COLD..FIRST_COLD + self.case.cold {
                if let Some(old) = self.map.remove(&self.key(number)) {
                    old.value().check(number);
                }
            }
            thread::sleep(Duration::from_millis(5));
            if self.case.manual {
                for _ in 0..4 {
                    while self.map.poll(1 << 14).more {}
                }
            }
        }
    }
}

fn hammer<K: Key, V: Value>(case: Case) {
    let millis = setting("EXPIRY_HAMMER_MILLIS", 300);
    let alive = Arc::new(Alive::default());
    let told = Arc::new(AtomicU64::new(0));
    let itself: Arc<OnceLock<std::sync::Weak<Ground<K, V>>>> = Arc::default();
    let mut builder = ExpiringMap::<K, V>::builder()
        .time_to_live(case.live)
        .interval(Duration::from_micros(200))
        .shards(case.shards);
    if let Some(idle) = case.idle {
        builder = builder.time_to_idle(idle);
    }
    if let Some(capacity) = case.capacity {
        builder = builder.capacity(capacity);
    }
    if case.listener {
        let (into, itself) = (told.clone(), itself.clone());
        builder = builder.removal_listener(move |key: &K, value: &V, cause: RemovalCause| {
            value.check(key.number());
            let count = into.fetch_add(1, Relaxed);
            let Some(ground) = itself.get().and_then(std::sync::Weak::upgrade) else {
                return;
            };
            // It never is one that stays: its removal would be delivered here.
            let number = count % HOT;
            match count % 5 {
                0 => drop(ground.map.get(&ground.key(number)).map(|value| value.check(number))),
                1 if cause == RemovalCause::Expired => {
                    drop(ground.map.insert(ground.key(number), ground.value(number, 7)));
                }
                2 if count % 64 == 2 => drop(ground.map.remove(&ground.key(number))),
                3 if count % 4096 == 3 => {
                    ground.map.iter().for_each(|entry| {
                        entry.check(entry.key().number());
                    });
                }
                _ => {}
            }
        });
    }
    let map = if case.manual { builder.build_manual() } else { builder.build() };
    let ground = Arc::new(Ground {
        map: map.unwrap(),
        case,
        alive: alive.clone(),
        done: AtomicBool::new(false),
        counted: Default::default(),
        operations: AtomicU64::new(0),
        told,
    });
    let _ = itself.set(Arc::downgrade(&ground));
    if case.capacity.is_none() {
        for number in HOT..HOT + KEPT {
            let put = ground.map.insert_with_lifetime(
                ground.key(number),
                ground.value(number, 0),
                forever(),
            );
            assert!(put.unwrap().is_none());
        }
    }
    let ended = Arc::new(AtomicBool::new(false));
    let watch = {
        let (ended, ground) = (ended.clone(), Arc::downgrade(&ground));
        thread::spawn(move || {
            let mut last = (0, Instant::now());
            while !ended.load(SeqCst) {
                thread::sleep(Duration::from_millis(20));
                let Some(ground) = ground.upgrade() else {
                    return;
                };
                let now = ground.operations.load(Relaxed);
                if now != last.0 {
                    last = (now, Instant::now());
                }
                if last.1.elapsed() > Duration::from_secs(60) {
                    eprintln!("stuck: {:?}", ground.case);
                    std::process::abort();
                }
            }
        })
    };
    thread::scope(|scope| {
        struct Done<'a>(&'a AtomicBool);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        for thread in 0..case.threads {
            let ground = &ground;
            scope.spawn(move || {
                let _done = Done(&ground.done);
                ground.work(thread);
            });
        }
        if case.cold > 0 {
            scope.spawn(|| {
                let _done = Done(&ground.done);
                ground.grow();
            });
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(millis) && !ground.done.load(Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        ground.done.store(true, Relaxed);
    });
    ended.store(true, SeqCst);
    watch.join().unwrap();
    for at in 0..COUNTED {
        let counted = ground.counted[at as usize].load(Relaxed);
        let number = HOT + KEPT + at;
        let found = ground.map.get(&ground.key(number)).map_or(0, |value| value.check(number));
        assert_eq!(found, counted, "an increment was lost");
    }
    // No key is there twice.
    let mut keys: Vec<u64> = ground.map.iter().map(|entry| entry.key().number()).collect();
    keys.sort_unstable();
    assert!(keys.windows(2).all(|two| two[0] != two[1]), "a key is there twice: {keys:?}");
    let (operations, told) = (ground.operations.load(Relaxed), ground.told.load(Relaxed));
    if operations % 2 == 0 {
        ground.map.shutdown();
        assert_eq!(ground.map.len(), 0);
    }
    let metrics = format!("{:?}", ground.map.metrics().total);
    drop(ground);
    let (made, dropped) = (alive.made.load(SeqCst), alive.dropped.load(SeqCst));
    assert_eq!(made, dropped, "made and dropped");
    eprintln!(
        "{case:?}: {operations} operations, {told} told, {made} made and dropped\n  {metrics}"
    );
}

#[test]
fn integers() {
    hammer::<u64, u64>(Case::new());
    hammer::<u64, u64>(Case { shards: 8, ..Case::new() });
}

#[test]
fn dropped_once() {
    hammer::<BoxedKey, Boxed>(Case::new());
    hammer::<BoxedKey, Boxed>(Case { shards: 8, ..Case::new() });
}

#[test]
fn idle() {
    let idle = Some(Duration::from_millis(1));
    hammer::<BoxedKey, Boxed>(Case { idle, ..Case::new() });
    hammer::<u64, u64>(Case { idle, shards: 8, ..Case::new() });
}

#[test]
fn bounded() {
    for capacity in [1, 2, 3, 4, 1000] {
        let cold = if capacity > 4 { 2000 } else { 0 };
        let capacity = Some(capacity);
        hammer::<BoxedKey, Boxed>(Case { capacity, cold, ..Case::new() });
        hammer::<u64, u64>(Case { capacity, cold, ..Case::new() });
    }
}

#[test]
fn threads_that_end() {
    hammer::<BoxedKey, Boxed>(Case { churn: Some(10), ..Case::new() });
}

#[test]
fn polled() {
    hammer::<BoxedKey, Boxed>(Case { manual: true, ..Case::new() });
    hammer::<u64, u64>(Case { manual: true, shards: 8, ..Case::new() });
    hammer::<BoxedKey, Boxed>(Case { manual: true, churn: Some(10), ..Case::new() });
}

#[test]
fn listeners_call_back() {
    hammer::<BoxedKey, Boxed>(Case { listener: true, ..Case::new() });
    hammer::<BoxedKey, Boxed>(Case { listener: true, manual: true, shards: 8, ..Case::new() });
}
