//! Loom models of the real code. `docs/verification.md` names the races that they close, and what
//! loom does not see.
//!
//! Nothing here runs without `--cfg expiry_loom`:
//!
//! ```text
//! RUSTFLAGS="--cfg expiry_loom" cargo test --release -p loom-tests
//! ```
//!
//! Three variables set the bounds. `EXPIRY_LOOM_PREEMPTIONS` (default 3) is how often a thread may
//! be interrupted where it need not be in one execution; large and light models and generated
//! programs get one less. `EXPIRY_LOOM_PROGRAMS` is how many programs the linearizability test
//! generates. `EXPIRY_LOOM_SECONDS` is for how long one model is explored (default: to its end).

#![cfg(expiry_loom)]

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod stacks;

use expiry::model::{Index, Inserted};
use expiry::{AckTracker, AckTrackerBuilder, Clock, ExpiringMap, ExpiringMapBuilder, RemovalCause};
use expiry::{Lifetime, ManualClock, Outcome, Reason, ReceiverStream, RootId, StoreError};
use loom::sync::atomic::AtomicUsize as Modelled;
use loom::sync::{Condvar, Mutex as LoomMutex};
use std::future::Future;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A number from the environment.
#[must_use]
pub fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| {
        value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number"))
    })
}

/// Preemptions unless the environment says otherwise. One of the bugs that these models have found
/// needed three.
const USUAL: usize = 3;

/// Number of times that a thread may be interrupted where it need not be, in one execution.
#[must_use]
pub fn preemptions() -> usize {
    setting("EXPIRY_LOOM_PREEMPTIONS", USUAL).max(1)
}

/// Runs `f` in every interleaving, up to the bound on preemptions, and prints how many there were.
/// Then it runs `f` again, with one preemption less, beginning with the spawned threads (see
/// [`thread::spawn`]).
pub fn model(name: &str, f: impl Fn() + Send + Sync + 'static) {
    let scene: Scene = Arc::new(f);
    report(name, preemptions(), &scene);
    spawned_first(name, &scene);
}

fn spawned_first(name: &str, scene: &Scene) {
    let _order = thread::SpawnedFirst::new();
    report(&format!("{name}, spawned first"), preemptions() - 1, scene);
}

/// What a model runs. All models have this type: the compiler would build loom's checker once for
/// each type, which took half of the time to compile the models.
type Scene = Arc<dyn Fn() + Send + Sync>;

/// A test that runs a model of the same name: by [`model`](crate::model()), or as it says, as by
/// `model!(name, bounded(1), || ..)`.
#[macro_export]
macro_rules! model {
    ($name:ident, $scene:expr) => {
        $crate::model!($name, model, $scene);
    };
    ($name:ident, $how:ident $(($($bound:expr),*))?, $scene:expr) => {
        #[test]
        fn $name() {
            $how(stringify!($name), $($($bound,)*)? $scene);
        }
    };
}

/// Spawns a thread that runs `there` with its own handle of `shared`.
pub fn aside<S: Clone + 'static, T: 'static>(
    shared: &S,
    there: impl FnOnce(&S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = shared.clone();
    thread::spawn(move || there(&shared))
}

/// A spawned thread runs `there` while this one runs `here`. Returns both results once both are
/// done.
pub fn beside<S: Clone + 'static, T: 'static, H>(
    shared: &S,
    there: impl FnOnce(&S) -> T + 'static,
    here: impl FnOnce(&S) -> H,
) -> (T, H) {
    let spawned = aside(shared, there);
    let here = here(shared);
    (spawned.join().unwrap(), here)
}

/// As [`model`], with a bound of its own, and once.
pub fn bounded(name: &str, preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    report(name, preemptions, &(Arc::new(f) as Scene));
}

fn report(name: &str, preemptions: usize, scene: &Scene) {
    let began = Instant::now();
    let runs = check(preemptions, usize::MAX, scene);
    let took = began.elapsed();
    let cut = limit().is_some_and(|limit| took >= limit);
    println!(
        "{name}: {runs} executions, at most {preemptions} preemptions, {:.1} s{}",
        took.as_secs_f64(),
        if cut { ", cut short" } else { "" }
    );
}

/// Runs `f` without an interruption; the checker explores what follows.
pub fn at_once<R>(f: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let result = f();
    loom::explore();
    result
}

/// The time for which one model may be explored, if it is limited.
fn limit() -> Option<Duration> {
    let seconds = setting("EXPIRY_LOOM_SECONDS", 0);
    (seconds > 0).then(|| Duration::from_secs(seconds as u64))
}

/// Loom's threads, in another order.
pub mod thread {
    pub use loom::thread::{yield_now, JoinHandle};
    use std::cell::Cell;

    std::thread_local! {
        // The flag belongs to the system's thread, on which all threads of a model take turns.
        static SPAWNED_FIRST: Cell<bool> = const { Cell::new(false) };
    }

    /// While this lives, a thread that spawns another one steps back.
    pub(crate) struct SpawnedFirst;

    impl SpawnedFirst {
        pub(crate) fn new() -> Self {
            SPAWNED_FIRST.set(true);
            SpawnedFirst
        }
    }

    impl Drop for SpawnedFirst {
        fn drop(&mut self) {
            SPAWNED_FIRST.set(false);
        }
    }

    /// Spawns a thread. The checker begins with executions in which threads run one after the
    /// other, and looks for interruptions in these. Where a thread reads before it writes, it finds
    /// fewer than in the other order. So [`model`](super::model) begins with the spawning thread
    /// once, and with the spawned one once.
    pub fn spawn<T: 'static>(f: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
        // In a box: the compiler builds loom's `spawn` for each type of closure.
        let f: Box<dyn FnOnce() -> T> = Box::new(f);
        let handle = loom::thread::spawn(f);
        if SPAWNED_FIRST.get() {
            // No interruption by the checker's count.
            yield_now();
        }
        handle
    }
}

/// As [`bounded`], for a large one: one preemption less than usual.
pub fn large(name: &str, f: impl Fn() + Send + Sync + 'static) {
    bounded(name, preemptions() - 1, f);
}

/// A costly model: `everyday` preemptions at most, and `deep` where the environment asks for more
/// than usual.
pub fn costly(name: &str, everyday: usize, deep: usize, f: impl Fn() + Send + Sync + 'static) {
    bounded(name, if preemptions() > USUAL { deep } else { everyday }, f);
}

/// As [`model`], for a costly one: one preemption less to begin with, unless the environment asks
/// for more than usual.
pub fn light(name: &str, f: impl Fn() + Send + Sync + 'static) {
    let scene: Scene = Arc::new(f);
    let bound = if preemptions() > USUAL { preemptions() } else { preemptions() - 1 };
    report(name, bound, &scene);
    spawned_first(name, &scene);
}

/// As [`large`], for a larger one: two preemptions less than usual.
pub fn larger(name: &str, f: impl Fn() + Send + Sync + 'static) {
    bounded(name, preemptions().saturating_sub(2).max(1), f);
}

/// A model that is too large for every day. It runs only where the environment asks for more
/// preemptions than usual, and has a bound of its own.
pub fn deep(name: &str, preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    if self::preemptions() > USUAL {
        bounded(name, preemptions, f);
    } else {
        println!("{name}: left out; it runs with EXPIRY_LOOM_PREEMPTIONS={}", USUAL + 1);
    }
}

/// Runs `f` in every interleaving up to the bound on preemptions, but no more than `most`. Returns
/// how many there were.
pub fn explore(preemptions: usize, most: usize, f: impl Fn() + Send + Sync + 'static) -> usize {
    check(preemptions, most, &(Arc::new(f) as Scene))
}

fn check(preemptions: usize, most: usize, scene: &Scene) -> usize {
    let runs = Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    // The checker stops before the execution of this number.
    builder.max_permutations = Some(most.saturating_add(1));
    builder.max_duration = limit();
    // How often it looks whether these are enough.
    builder.checkpoint_interval = 100;
    let (counted, scene) = (runs.clone(), scene.clone());
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        scene();
    });
    runs.load(Ordering::Relaxed)
}

/// One tick of every model's tracker.
pub const TICK: Duration = Duration::from_millis(1);
/// The default timeout of every model's tracker, in ticks.
pub const TIMEOUT: u32 = 10;

/// A timeout of so many ticks.
#[must_use]
pub fn after(ticks: u32) -> Lifetime {
    Lifetime::After(TICK * ticks)
}

/// The settings of every model's tracker: one shard, a timeout of ten ticks of 1 ms, ids and hashes
/// from a fixed seed.
pub fn builder<T: Send + 'static>(clock: &ManualClock) -> AckTrackerBuilder<T> {
    AckTracker::builder()
        .with_tokens()
        .timeout(TICK * TIMEOUT)
        .interval(TICK)
        .shards(1)
        .seed(7)
        .latency_sampling(0.0)
        .clock(Moved(clock.clone()))
}

/// A clock that a model moves, of trackers with a reaper, too.
struct Moved(ManualClock);

impl Clock for Moved {
    fn now(&self) -> u64 {
        self.0.now()
    }
}

/// A store that is not dropped after a failed assertion: the checker, and perhaps the store, is in
/// the middle of an execution then.
pub struct Kept<T>(ManuallyDrop<T>);

impl<T> Kept<T> {
    /// Keeps a store.
    pub fn new(store: T) -> Self {
        Kept(ManuallyDrop::new(store))
    }
}

impl<T> Deref for Kept<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the value is dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// A tracker on a manual clock, and a log of its outcomes.
pub struct Rig {
    /// The tracker.
    pub tracker: Kept<AckTracker>,
    /// Its clock: standing still until a model moves it.
    pub clock: ManualClock,
    told: Arc<Mutex<Vec<Outcome>>>,
}

impl Rig {
    /// A tracker without a reaper, as [`builder`] has it.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Arc<Rig> {
        Rig::with(|builder| builder)
    }

    /// A rig with more settings.
    #[must_use]
    pub fn with(settings: impl FnOnce(AckTrackerBuilder) -> AckTrackerBuilder) -> Arc<Rig> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let clock = ManualClock::new();
        let into = told.clone();
        let builder =
            builder(&clock).on_outcome(move |outcome: Outcome| into.lock().unwrap().push(outcome));
        let tracker = settings(builder).build_manual().unwrap();
        Arc::new(Rig { tracker: Kept::new(tracker), clock, told })
    }

    /// A rig that has had an entry, so its first chunk and the table of its index exist. It suits
    /// models of what threads do to an entry: those would otherwise explore how two threads add the
    /// chunk (`the_first_chunk_is_added_once`).
    #[must_use]
    pub fn used() -> Arc<Rig> {
        at_once(|| {
            let rig = Rig::new();
            rig.tracker.init(99, 3, 0).unwrap();
            assert_eq!(rig.tracker.ack(99, 3), Ok(expiry::Ack::Completed));
            rig.told.lock().unwrap().clear();
            rig
        })
    }

    /// The outcomes so far.
    #[must_use]
    pub fn told(&self) -> Vec<Outcome> {
        self.told.lock().unwrap().clone()
    }

    /// The outcomes of one root, in the order of delivery.
    #[must_use]
    pub fn outcomes(&self, root: impl Into<RootId>) -> Vec<Reason> {
        let root = root.into();
        self.told()
            .iter()
            .filter(|outcome| outcome.root == root)
            .map(|outcome| outcome.reason)
            .collect()
    }

    /// The tick that has begun.
    #[must_use]
    pub fn tick(&self) -> u32 {
        u32::try_from(self.clock.now() / u64::try_from(TICK.as_nanos()).unwrap()).unwrap()
    }

    /// Moves the clock on.
    pub fn advance(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
    }

    /// Moves the clock on and drives what is due. For the end of a model, when no other thread
    /// polls.
    pub fn pass(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
        let mut polled = self.tracker.poll(1 << 20);
        for _ in 0..100 {
            if !polled.more {
                return;
            }
            polled = self.tracker.poll(1 << 20);
        }
        panic!("the driver never gets done: {polled:?}");
    }
}

/// A map of one shard without a reaper, on a manual clock, which notes how each value ended.
#[derive(Clone)]
pub struct MapRig {
    /// The map.
    pub map: Arc<ExpiringMap<u64, u64>>,
    /// Its clock: standing still until a model moves it.
    pub clock: ManualClock,
    told: Arc<Mutex<Vec<(u64, RemovalCause)>>>,
}

impl MapRig {
    /// A rig with these settings.
    #[must_use]
    pub fn new(
        settings: impl FnOnce(ExpiringMapBuilder<u64, u64>) -> ExpiringMapBuilder<u64, u64>,
    ) -> Self {
        let clock = ManualClock::new();
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = told.clone();
        let builder = ExpiringMap::builder()
            .interval(TICK)
            .shards(1)
            .seed(7)
            .clock(clock.clone())
            .removal_listener(move |_: &u64, value: &u64, cause| {
                into.lock().unwrap().push((*value, cause))
            });
        MapRig { map: Arc::new(settings(builder).build_manual().unwrap()), clock, told }
    }

    /// A rig with these settings that has had an entry, as [`Rig::used`]. The log of removals does
    /// not contain that entry.
    #[must_use]
    pub fn used(
        settings: impl FnOnce(ExpiringMapBuilder<u64, u64>) -> ExpiringMapBuilder<u64, u64>,
    ) -> Self {
        at_once(|| {
            let rig = MapRig::new(settings);
            rig.map.insert(99, 0).unwrap();
            drop(rig.map.remove(&99).expect("it was put there"));
            rig.drive();
            rig.told.lock().unwrap().clear();
            rig
        })
    }

    /// The value that key 1 has.
    #[must_use]
    pub fn get(&self) -> Option<u64> {
        self.map.get(&1).map(|value| *value)
    }

    /// Gives key 1 this value. Returns the one that it had.
    pub fn put(&self, value: u64) -> Option<u64> {
        self.map.insert(1, value).unwrap().map(|old| *old.value())
    }

    /// Takes key 1 away. Returns the value that it had.
    pub fn take(&self) -> Option<u64> {
        self.map.remove(&1).map(|old| *old.value())
    }

    /// Inserts a value, or says why not. Drops what it replaces.
    pub fn try_put(&self, key: u64, value: u64) -> Result<(), StoreError> {
        self.map.insert(key, value).map(drop).map_err(|refused| refused.error)
    }

    /// All values that the map has.
    #[must_use]
    pub fn left(&self) -> Vec<u64> {
        let mut left = Vec::new();
        self.map.retain(|_, &value| {
            left.push(value);
            true
        });
        left
    }

    /// Each removed value and its cause, in the order of delivery.
    #[must_use]
    pub fn told(&self) -> Vec<(u64, RemovalCause)> {
        self.told.lock().unwrap().clone()
    }

    /// The same, in the order of values.
    #[must_use]
    pub fn ends(&self) -> Vec<(u64, RemovalCause)> {
        let mut told = self.told();
        told.sort_unstable_by_key(|&(value, _)| value);
        told
    }

    /// Moves the clock on.
    pub fn advance(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
    }

    /// Ends what is due.
    pub fn drive(&self) {
        while self.map.poll(usize::MAX).more {}
    }
}

/// A tracker with its reaper. The reaper really sleeps; the models ask whether it is woken.
pub struct Awake {
    /// The tracker. Shut down at the end of the model, which joins the reaper.
    pub tracker: Kept<AckTracker>,
    clock: ManualClock,
    told: Arc<(LoomMutex<Vec<Outcome>>, Condvar)>,
}

impl Awake {
    /// As [`Rig::new`], with a reaper.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Arc<Awake> {
        Awake::with(|builder| builder, |_| ()).0
    }

    /// The same with more settings. `setup` prepares the tracker before anything else runs, and its
    /// result is returned.
    pub fn with<T>(
        settings: impl FnOnce(AckTrackerBuilder) -> AckTrackerBuilder,
        setup: impl FnOnce(&AckTracker) -> T,
    ) -> (Arc<Awake>, T) {
        loom::stop_exploring();
        let told = Arc::new((LoomMutex::new(Vec::new()), Condvar::new()));
        let clock = ManualClock::new();
        let into = told.clone();
        let builder = builder(&clock).on_outcome(move |outcome: Outcome| {
            into.0.lock().unwrap().push(outcome);
            into.1.notify_all();
        });
        let tracker = settings(builder).build().unwrap();
        let made = setup(&tracker);
        loom::explore();
        let rig = Awake { tracker: Kept::new(tracker), clock, told };
        (Arc::new(rig), made)
    }

    /// Lets time pass. That ends the reaper's sleep unless it was announced to last longer.
    pub fn pass(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
        let now = self.clock.now() / u64::try_from(TICK.as_nanos()).unwrap();
        self.tracker.timer_fires(now);
    }

    /// Waits until `many` outcomes have been delivered, and returns all. If no thread delivers
    /// them, all threads sleep, and the checker reports a deadlock.
    #[must_use]
    pub fn wait_for(&self, many: usize) -> Vec<Outcome> {
        let mut told = self.told.0.lock().unwrap();
        while told.len() < many {
            told = self.told.1.wait(told).unwrap();
        }
        // The shutdown that follows is another model's subject.
        loom::stop_exploring();
        told.clone()
    }
}

/// A rig derefs to its store.
macro_rules! deref {
    ($($rig:ident, $field:ident, $store:ty;)*) => {$(
        impl Deref for $rig {
            type Target = $store;

            fn deref(&self) -> &$store {
                &self.$field
            }
        }
    )*};
}

deref! {
    Rig, tracker, AckTracker;
    Awake, tracker, AckTracker;
    MapRig, map, ExpiringMap<u64, u64>;
}

/// A task, which counts how often it was woken.
pub struct Task(Modelled);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Task {
    /// A task that was never woken.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Task(Modelled::new(0)))
    }

    /// How often it was woken.
    #[must_use]
    pub fn woken(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Whether no waker of it is left: each was woken or dropped.
    #[must_use]
    pub fn is_free(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    /// Polls a future with this task's waker.
    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        let waker = Waker::from(self.clone());
        Pin::new(future).poll(&mut Context::from_waker(&waker))
    }

    /// The same with a stream.
    pub fn next<T>(self: &Arc<Self>, stream: &mut ReceiverStream<T>) -> Poll<Option<T>> {
        let waker = Waker::from(self.clone());
        stream.poll_recv(&mut Context::from_waker(&waker))
    }
}

/// An index with no keys.
#[must_use]
pub fn index() -> Arc<Index> {
    Arc::new(Index::new())
}

/// An index with these keys and slots, put there one after the other.
#[must_use]
pub fn index_with(keys: &[(u32, u32)]) -> Arc<Index> {
    let index = index();
    fill(&index, keys);
    index
}

/// Puts these keys and slots into an index.
pub fn fill(index: &Index, keys: &[(u32, u32)]) {
    for &(hash, slot) in keys {
        assert_eq!(index.insert(hash, slot, |_| false), Inserted::Done);
    }
}

/// The slots under `hash`, in all tables.
#[must_use]
pub fn all(index: &Index, hash: u32) -> Vec<u32> {
    let mut slots = Vec::new();
    index.find(hash, |slot| {
        slots.push(slot);
        false
    });
    slots
}

/// The key of slots 1 and 2.
pub const EITHER: fn(u32) -> bool = |slot| slot == 1 || slot == 2;
