//! `ExpiringMapBuilder::expiry`: which call asks the policy what, and what its answers do.

use crate::drops::census::{Census, Counted};
use crate::support::{self, on_threads, Told, SECOND};
use expiry::expiring_map::{Compute, Entry};
use expiry::{
    BuildError, ExpiringMap, ExpiringMapBuilder, Expiry, Lifetime, LifetimeError, Lifetimes,
    ManualClock, RemovalCause, StoreError,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Map = ExpiringMap<u64, u64>;

/// A question of the map's: about which value, and the seconds that its entry has left.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    Created(u64),
    Updated(u64, u64),
    Read(u64, u64),
}
use Asked::{Created, Read, Updated};

/// A call that gives a key a value, and its name.
type Way<'a> = (&'a str, &'a dyn Fn(u64, u64));

/// What the policy answers from now on; `None` panics.
#[derive(Clone, Copy)]
struct Answers {
    created: Option<Lifetimes>,
    updated: Option<Lifetimes>,
    read: Option<Option<Lifetime>>,
}

#[derive(Clone)]
struct Scripted {
    answers: Arc<Mutex<Answers>>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    fn note(&self, asked: Asked) -> Answers {
        self.asked.lock().unwrap().push(asked);
        *self.answers.lock().unwrap()
    }

    /// What was asked since the last call of this.
    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn answers(&self, change: impl FnOnce(&mut Answers)) {
        change(&mut self.answers.lock().unwrap());
    }
}

impl Expiry<u64, u64> for Scripted {
    fn created(&self, _: &u64, value: &u64) -> Lifetimes {
        self.note(Created(*value)).created.expect("as this test wants it")
    }
    fn updated(&self, _: &u64, value: &u64, left: Duration) -> Lifetimes {
        self.note(Updated(*value, left.as_secs())).updated.expect("as this test wants it")
    }
    fn read(&self, _: &u64, value: &u64, left: Duration) -> Option<Lifetime> {
        self.note(Read(*value, left.as_secs())).read.expect("as this test wants it")
    }
}

fn of(seconds: u64) -> Lifetimes {
    Lifetimes::from(SECOND * seconds as u32)
}

fn builder(clock: &ManualClock) -> ExpiringMapBuilder<u64, u64> {
    ExpiringMap::builder().interval(SECOND / 1000).clock(clock.clone())
}

/// A map whose entries live for 10 s, for 20 s from an update, and are left alone by reads.
fn scripted() -> (Map, ManualClock, Scripted) {
    let clock = ManualClock::new();
    let answers = Answers { created: Some(of(10)), updated: Some(of(20)), read: Some(None) };
    let policy = Scripted { answers: Arc::new(Mutex::new(answers)), asked: Arc::default() };
    let map = builder(&clock).time_to_live(SECOND * 100).expiry(policy.clone());
    (map.build_manual().unwrap(), clock, policy)
}

fn left(map: &Map, key: u64) -> Option<u64> {
    map.remaining(&key).map(|left| left.as_secs())
}

#[test]
fn every_way_in_asks_once() {
    let (map, _, policy) = scripted();
    let ways: [Way<'_>; 6] = [
        ("insert", &|key, value| drop(map.insert(key, value).unwrap())),
        ("insert_many", &|key, value| assert!(map.insert_many([(key, value)]).is_empty())),
        ("upsert", &|key, value| map.upsert(key, |_| (value, ())).unwrap()),
        ("compute", &|key, value| drop(map.compute(key, |_| Compute::Put(value)).unwrap())),
        ("insert_for", &|key, value| {
            drop(map.insert_for(key, value, Lifetime::Default).unwrap());
        }),
        ("compute for", &|key, value| {
            let put = Compute::PutFor(value, Lifetimes::new());
            drop(map.compute(key, |_| put).unwrap());
        }),
    ];
    for (key, (way, put)) in (1..).zip(ways) {
        put(key, 1);
        assert_eq!((policy.asked(), left(&map, key)), (vec![Created(1)], Some(10)), "{way}");
        put(key, 2);
        assert_eq!((policy.asked(), left(&map, key)), (vec![Updated(2, 10)], Some(20)), "{way}");
    }
}

#[test]
fn entries_and_loads_ask() {
    let (map, _, policy) = scripted();
    map.entry(1).or_insert(1).unwrap();
    assert_eq!((policy.asked(), left(&map, 1)), (vec![Created(1)], Some(10)));
    map.entry(1).or_insert(2).unwrap();
    assert_eq!(policy.asked(), [Read(1, 10)]);
    match map.entry(1) {
        Entry::Occupied(entry) => drop(entry.insert(3).unwrap()),
        Entry::Vacant(_) => panic!("it is there"),
    }
    assert_eq!((policy.asked(), left(&map, 1)), (vec![Read(1, 10), Updated(3, 10)], Some(20)));

    assert_eq!(*map.get_or_insert_with(&2, || 4).unwrap(), 4);
    assert_eq!((policy.asked(), left(&map, 2)), (vec![Created(4)], Some(10)));
    assert_eq!(*map.get_or_insert_with(&2, || 5).unwrap(), 4);
    assert_eq!(policy.asked(), [Read(4, 10)]);
    let loaded = map.get_or_insert_many(&[2, 3], |keys| vec![(**keys.last().unwrap(), 6)]);
    assert_eq!(loaded.unwrap()[&3], 6);
    assert_eq!(policy.asked(), [Read(4, 10), Created(6)]);
}

#[test]
fn a_lifetime_that_the_call_gives_asks_nothing() {
    let (map, _, policy) = scripted();
    for value in [1, 2] {
        map.insert_for(1, value, SECOND * 3).unwrap();
        assert_eq!(left(&map, 1), Some(3));
        map.upsert_for(1, SECOND * 4, |_| (value, ())).unwrap();
        assert_eq!(left(&map, 1), Some(4));
        map.compute(1, |_| Compute::PutFor(value, Lifetime::Never.into())).unwrap();
        assert_eq!(map.remaining(&1), Some(Duration::MAX));
        assert_eq!(map.touch_for(&1, SECOND * 5), Ok(true));
        map.compute(1, |_| Compute::Touch((SECOND * 6).into())).unwrap();
        assert_eq!(left(&map, 1), Some(6));
        map.insert_for(1, value, Lifetimes::new().idle(SECOND * 7)).unwrap();
        assert_eq!(left(&map, 1), Some(7));
    }
    map.insert_for(1, 3, Lifetimes::new().keep()).unwrap();
    assert_eq!(left(&map, 1), Some(7));
    let other = builder(&ManualClock::new()).expiry(policy.clone()).build_manual().unwrap();
    assert!(other.load(map.save(), Duration::ZERO).is_empty());
    assert_eq!(left(&other, 1), Some(7));
    assert!(map.peek(&1).is_some() && map.contains_key(&1) && map.iter().count() == 1);
    assert!(map.remove_if(&1, |_, _| false).is_none());
    map.retain(|_, _| true);
    assert!(map.remove(&1).is_some());
    assert_eq!(policy.asked(), []);
    // A kept lifetime of a key that has none is a new entry's.
    map.insert_for(1, 4, Lifetimes::new().keep()).unwrap();
    assert_eq!((policy.asked(), left(&map, 1)), (vec![Created(4)], Some(10)));
}

#[test]
fn a_touch_asks_as_an_update() {
    let (map, clock, policy) = scripted();
    assert!(!map.touch(&1));
    map.insert(1, 1).unwrap();
    clock.advance(SECOND * 4);
    assert!(map.touch(&1));
    assert_eq!((policy.asked(), left(&map, 1)), (vec![Created(1), Updated(1, 6)], Some(20)));
    policy.answers(|says| says.updated = Some(of(2)));
    assert_eq!(map.touch_many([&1, &2]), [true, false]);
    assert_eq!((policy.asked(), left(&map, 1)), (vec![Updated(1, 20)], Some(2)));
    policy.answers(|says| says.updated = Some(Lifetimes::new().keep()));
    map.compute(1, |_| Compute::Touch(Lifetime::Default)).unwrap();
    assert_eq!((policy.asked(), left(&map, 1)), (vec![Updated(1, 2)], Some(2)));
    clock.advance(SECOND * 2);
    assert!(!map.touch(&1));
    assert_eq!(policy.asked(), []);
}

#[test]
fn every_read_asks_and_moves_the_deadline_either_way() {
    let (map, clock, policy) = scripted();
    let reads: [(&str, &dyn Fn()); 6] = [
        ("get", &|| assert!(map.get(&1).is_some())),
        ("get_cloned", &|| assert!(map.get_cloned(&1).is_some())),
        ("guard", &|| assert!(map.guard().get(&1).is_some())),
        ("get_many", &|| assert_eq!(map.guard().get_many([&1, &2]), [Some(&1), None])),
        ("entry", &|| assert!(matches!(map.entry(1), Entry::Occupied(_)))),
        ("compute", &|| drop(map.compute(1, |_| Compute::Keep).unwrap())),
    ];
    for (name, read) in reads {
        map.clear();
        map.insert(1, 1).unwrap();
        clock.advance(SECOND * 4);
        policy.asked();
        for (seconds, before) in [(30, 6), (30, 30), (5, 30)] {
            policy.answers(|says| says.read = Some(Some((SECOND * seconds).into())));
            read();
            let now = Some(u64::from(seconds));
            assert_eq!((policy.asked(), left(&map, 1)), (vec![Read(1, before)], now), "{name}");
        }
        policy.answers(|says| says.read = Some(Some(Lifetime::Default)));
        read();
        assert_eq!(left(&map, 1), Some(100), "{name}");
        policy.answers(|says| says.read = Some(Some(Lifetime::Never)));
        read();
        assert_eq!(map.remaining(&1), Some(Duration::MAX), "{name}");
    }
}

/// A guard lends what was living when it was made. Where the entry's time is up since, no read may
/// renew it, and so the policy is not asked.
#[test]
fn a_guard_asks_nothing_of_what_is_over_since() {
    let (map, clock, policy) = scripted();
    map.insert(1, 1).unwrap();
    let guard = map.guard();
    clock.advance(11 * SECOND);
    policy.asked();
    assert_eq!(
        (guard.peek(&1), guard.get(&1), guard.get_many([&1])),
        (Some(&1), Some(&1), vec![Some(&1)])
    );
    assert_eq!((guard.peek(&1), policy.asked()), (Some(&1), vec![]));
}

#[test]
fn its_defaults_are_the_builders() {
    struct Silent;
    impl Expiry<u64, u64> for Silent {}
    let clock = ManualClock::new();
    let map = builder(&clock).time_to_live(SECOND * 10).expiry(Silent).build_manual().unwrap();
    map.insert(1, 1).unwrap();
    clock.advance(SECOND * 4);
    assert!(map.get(&1).is_some());
    assert_eq!(left(&map, 1), Some(6));
    map.insert(1, 2).unwrap();
    assert_eq!(left(&map, 1), Some(10));
    clock.advance(SECOND * 4);
    assert!(map.touch(&1));
    assert_eq!(left(&map, 1), Some(10));
}

#[test]
fn times_out_of_range_are_refused_where_a_call_can_say_so() {
    let cases = [(Duration::ZERO, LifetimeError::Zero), (Duration::MAX, LifetimeError::TooLong)];
    for (time, why) in cases {
        let error = StoreError::Lifetime(why);
        let (map, _, policy) = scripted();
        policy.answers(|says| says.created = Some(time.into()));
        let refused = map.insert(1, 7).unwrap_err();
        assert_eq!((refused.key, refused.value, refused.error), (1, 7, error));
        let refused = map.entry(1).or_insert(7).unwrap_err();
        assert_eq!((refused.key, refused.value, refused.error), (1, 7, error));
        assert!(map.is_empty());
        policy.answers(|says| {
            (says.created, says.updated) = (Some(of(10)), Some(time.into()));
            says.read = Some(Some(time.into()));
        });
        map.insert(1, 1).unwrap();
        assert_eq!(map.insert(1, 2).unwrap_err().error, error);
        assert_eq!(map.upsert(1, |_| (2, ())).unwrap_err().error, error);
        let touch = map.compute(1, |_| Compute::Touch(Lifetime::Default)).unwrap_err();
        assert_eq!(touch.error, error);
        assert_eq!((map.touch(&1), map.touch_for(&1, Lifetime::Default)), (false, Err(why)));
        assert_eq!((map.get_cloned(&1), left(&map, 1)), (Some(1), Some(10)));
        assert_eq!(map.metrics().total.live, 1);
    }
}

#[test]
fn a_panic_goes_to_the_caller_and_changes_nothing() {
    let (map, clock, policy) = scripted();
    let census = Census::new();
    let panics = |call: &dyn Fn()| assert!(support::panics(call));
    policy.answers(|says| says.created = None);
    panics(&|| drop(map.insert(1, 1)));
    panics(&|| drop(map.entry(1).or_insert(1)));
    panics(&|| drop(map.upsert(1, |_| (1, ()))));
    panics(&|| drop(map.get_or_insert_with(&1, || 1)));
    assert!(map.is_empty());
    policy.answers(|says| (says.created, says.updated, says.read) = (Some(of(10)), None, None));
    // The load that has panicked holds no caller up.
    assert_eq!(*map.get_or_insert_with(&1, || 1).unwrap(), 1);
    panics(&|| drop(map.insert(1, 2)));
    panics(&|| drop(map.compute(1, |_| Compute::Put(2))));
    panics(&|| assert!(map.touch(&1)));
    panics(&|| drop(map.get(&1)));
    panics(&|| assert!(map.guard().get(&1).is_some()));
    panics(&|| drop(map.entry(1)));
    panics(&|| drop(map.compute(1, |_| Compute::Keep)));
    assert_eq!((map.peek(&1).as_deref(), left(&map, 1)), (Some(&1), Some(10)));
    // No pin is left behind: what ends is dropped.
    struct Panics;
    impl Expiry<u64, Counted> for Panics {
        fn updated(&self, _: &u64, _: &Counted, _: Duration) -> Lifetimes {
            panic!("as this test wants it")
        }
    }
    let drops = ExpiringMap::builder().expiry(Panics).clock(clock).build_manual().unwrap();
    drops.insert(1, Counted::new(&census)).unwrap();
    panics(&|| drop(drops.insert(1, Counted::new(&census))));
    assert_eq!(census.left(), 1, "the new value is dropped");
    drop(drops.remove(&1));
    assert!(drops.flush(SECOND * 10));
    assert_eq!(census.left(), 0);
}

#[test]
fn an_age_goes_by_its_answers() {
    let (_, clock, policy) = scripted();
    // 40 s before the end a value is old.
    let refreshing = builder(&clock).time_to_live(SECOND * 100).refresh_after(SECOND * 60);
    let refreshing = refreshing.expiry(policy.clone()).build_manual().unwrap();
    policy.answers(|says| (says.created, says.read) = (Some(of(50)), Some(None)));
    assert_eq!(*refreshing.get_or_insert_with(&1, || 1).unwrap(), 1);
    assert_eq!(*refreshing.get_or_insert_with(&1, || 2).unwrap(), 1);
    clock.advance(SECOND * 11);
    assert_eq!(*refreshing.get_or_insert_with(&1, || 3).unwrap(), 3);
    assert_eq!(left(&refreshing, 1), Some(20), "an update");
}

#[test]
fn a_builder_hands_its_policy_on() {
    let (_, clock, policy) = scripted();
    let builder = builder(&clock).expiry(policy.clone());
    let hashed = builder.clone().hasher(expiry::RandomState::default());
    hashed.build_manual().unwrap().insert(1, 1).unwrap();
    let (map, mut removals) = builder.build_manual_with_channel(8, expiry::WhenFull::Drop).unwrap();
    map.insert(1, 2).unwrap();
    assert_eq!(policy.asked(), [Created(1), Created(2)]);
    clock.advance(SECOND * 10);
    while map.poll(1000).more {}
    assert_eq!(removals.next().unwrap().cause(), RemovalCause::Expired);
    let _: Result<Map, BuildError> = ExpiringMap::builder().expiry(policy).build_manual();
}

#[test]
fn a_policy_may_use_the_map() {
    struct Counts(Arc<AtomicU64>, std::sync::OnceLock<Map>);
    struct Here(Arc<Counts>);
    impl Expiry<u64, u64> for Here {
        fn created(&self, &key: &u64, _: &u64) -> Lifetimes {
            let other = self.0 .1.get().unwrap();
            other.upsert(key, |n| (n.map_or(1, |n| n + 1), ())).unwrap();
            self.0 .0.fetch_add(1, Relaxed);
            of(10)
        }
    }
    let policy = Arc::new(Counts(Arc::default(), std::sync::OnceLock::new()));
    let clock = ManualClock::new();
    policy.1.set(builder(&clock).build_manual().unwrap()).unwrap();
    let map = builder(&clock).max_capacity(10).expiry(Here(policy.clone())).build_manual().unwrap();
    (0..100).for_each(|key| drop(map.insert(key, key).unwrap()));
    assert_eq!((map.len(), policy.1.get().unwrap().len()), (10, 100));
    assert!(policy.0.load(Relaxed) >= 100);
}

/// Threads read, touch, replace, remove and evict while the clock goes on: the policy moves
/// deadlines both ways, each value ends once, and none that expires had been promised more time.
#[test]
fn each_value_ends_once_beside_reads_that_move_deadlines() {
    struct ByValue;
    impl Expiry<u64, u64> for ByValue {
        fn created(&self, _: &u64, value: &u64) -> Lifetimes {
            of(value % 7 + 1)
        }
        fn updated(&self, _: &u64, value: &u64, left: Duration) -> Lifetimes {
            match value % 3 {
                0 => Lifetimes::new().keep(),
                1 => Lifetimes::new().live(left + SECOND).idle(SECOND * 2),
                _ => of(3),
            }
        }
        fn read(&self, _: &u64, value: &u64, left: Duration) -> Option<Lifetime> {
            match value % 4 {
                0 => None,
                1 => Some((SECOND * 4).into()),
                2 => Some((left / 2 + SECOND / 10).into()),
                _ => Some((left + SECOND).into()),
            }
        }
    }
    const VALUES: u64 = if cfg!(miri) { 50 } else { 20_000 };
    for capacity in [16, 1000] {
        let (clock, ends) = (ManualClock::new(), Told::default());
        let tell = ends.handler();
        let map = builder(&clock)
            .max_capacity(capacity)
            .expiry(ByValue)
            .removal_listener(move |_: &u64, &value: &u64, _| tell(value))
            .build_manual()
            .unwrap();
        on_threads(4, |thread| {
            for n in 0..VALUES {
                let (key, value) = (n % 37, n * 4 + thread);
                drop(map.insert(key, value).unwrap());
                drop(map.get(&(value % 41)));
                map.touch(&(value % 31));
                match value % 16 {
                    0 => drop(map.remove(&key)),
                    1 => clock.advance(SECOND / 10),
                    2 => drop(map.poll(100)),
                    3 => drop(map.entry(key).or_insert(u64::MAX)),
                    _ => {}
                }
            }
        });
        map.clear();
        let mut ends = ends.take();
        ends.retain(|&value| value != u64::MAX);
        ends.sort_unstable();
        assert_eq!(ends, (0..VALUES * 4).collect::<Vec<_>>());
        assert_eq!((map.len(), map.metrics().total.live), (0, 0));
    }
}

/// A read that prolongs beside one that sees the same deadline: both have their effect, whichever
/// swap comes first.
#[test]
fn no_read_that_prolongs_is_lost() {
    struct Sliding;
    impl Expiry<u64, u64> for Sliding {
        fn created(&self, _: &u64, _: &u64) -> Lifetimes {
            of(2)
        }
        fn read(&self, _: &u64, _: &u64, _: Duration) -> Option<Lifetime> {
            Some((SECOND * 2).into())
        }
    }
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 5_000 };
    let clock = ManualClock::new();
    let map = builder(&clock).max_capacity(4).expiry(Sliding).build_manual().unwrap();
    map.insert(1, 1).unwrap();
    for _ in 0..ROUNDS {
        clock.advance(SECOND);
        on_threads(2, |_| assert!(map.get(&1).is_some()));
        assert_eq!(left(&map, 1), Some(2));
    }
}
