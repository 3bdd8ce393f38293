//! What several test files need: a record of outcomes, tasks that count, and waiting for a
//! condition with a deadline.

#![allow(dead_code)] // each test program uses a part

pub mod clocks;

use expiry::{AckTracker, AckTrackerBuilder, Lifetime, ManualClock, Outcome, RemovalCause};
use futures_core::Stream;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::time::{Duration, Instant};

/// Longer than anything here takes, on however busy a machine.
pub const GENEROUS: Duration = Duration::from_secs(30);

pub const MS: Duration = Duration::from_millis(1);

pub const SECOND: Duration = Duration::from_secs(1);

pub const HOUR: Duration = Duration::from_secs(3600);

/// Everything that a store has reported to its handler.
#[derive(Clone)]
pub struct Told<T = Outcome>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Told<T> {
    fn default() -> Self {
        Told(Arc::default())
    }
}

impl<T: Send + 'static> Told<T> {
    pub fn handler(&self) -> impl Fn(T) + Send + Sync + 'static {
        let told = self.0.clone();
        move |event| told.lock().unwrap().push(event)
    }

    /// What was delivered since the last time.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    pub fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl<K: Copy + Send + 'static> Told<(K, RemovalCause)> {
    /// What a map calls with each entry that it removes.
    pub fn removals<V>(&self) -> impl Fn(&K, &V, RemovalCause) + Send + Sync + 'static {
        let tell = self.handler();
        move |&key, _, cause| tell((key, cause))
    }
}

impl Told {
    /// The one outcome that was delivered since the last time.
    pub fn only(&self) -> Outcome {
        let told = self.take();
        assert_eq!(told.len(), 1, "{told:?}");
        told[0]
    }
}

/// A task whose waker counts, and unparks the thread that made it.
pub struct Task(AtomicUsize, std::thread::Thread);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.unpark();
    }
}

impl Task {
    pub fn new() -> Arc<Self> {
        Arc::new(Task(AtomicUsize::new(0), std::thread::current()))
    }

    pub fn woken(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// How many of its wakers are held.
    pub fn held(self: &Arc<Self>) -> usize {
        Arc::strong_count(self) - 1
    }

    pub fn with<T>(self: &Arc<Self>, polls: impl FnOnce(&mut Context<'_>) -> T) -> T {
        let waker = Waker::from(self.clone());
        polls(&mut Context::from_waker(&waker))
    }

    pub fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> Poll<F::Output> {
        self.with(|context| Pin::new(future).poll(context))
    }

    pub fn next<S: Stream + Unpin>(self: &Arc<Self>, stream: &mut S) -> Poll<Option<S::Item>> {
        self.with(|context| Pin::new(stream).poll_next(context))
    }

    /// Polls when it is woken, and only then.
    pub fn block_on<F: Future>(self: &Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            let woken = self.woken();
            if let Poll::Ready(output) = self.poll(&mut future) {
                return output;
            }
            while self.woken() == woken {
                std::thread::park();
            }
        }
    }
}

/// A waker that calls this each time that it is woken.
pub fn waker(wakes: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Wakes<F>(F);
    impl<F: Fn() + Send + Sync + 'static> Wake for Wakes<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }
    Waker::from(Arc::new(Wakes(wakes)))
}

/// Polls a future with this waker.
pub fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// A waker whose last owner panics.
pub fn bad_drop() -> Waker {
    struct BadDrop;
    impl Wake for BadDrop {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for BadDrop {
        fn drop(&mut self) {
            panic!("this waker's drop does");
        }
    }
    Waker::from(Arc::new(BadDrop))
}

/// A waker that does this each time that it is cloned.
pub fn cloning(does: &&(dyn Fn() + Sync)) -> Waker {
    const VTABLE: &RawWakerVTable = &RawWakerVTable::new(
        |data| {
            // SAFETY: what `cloning` was given, which is there as long as its wakers.
            unsafe { (*data.cast::<&(dyn Fn() + Sync)>())() };
            RawWaker::new(data, VTABLE)
        },
        |_| (),
        |_| (),
        |_| (),
    );
    let data: *const &(dyn Fn() + Sync) = does;
    // SAFETY: nothing is owned; the callers keep what it borrows until their wakers are gone.
    unsafe { Waker::from_raw(RawWaker::new(data.cast(), VTABLE)) }
}

/// A hasher that gives all keys one hash.
#[derive(Clone, Default)]
pub struct Same;

impl BuildHasher for Same {
    type Hasher = Same;
    fn build_hasher(&self) -> Same {
        Same
    }
}

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}
    fn finish(&self) -> u64 {
        7
    }
}

/// Whether it panics.
pub fn panics(call: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

/// What so many threads return, which run this at the same time, each with its number.
pub fn on_threads<T: Send>(threads: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let work: &(dyn Fn(u64) -> T + Sync) = &work;
    std::thread::scope(|scope| {
        let spawn = |thread| scope.spawn(move || work(thread));
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Each number below this one has come back once.
pub fn each_once(mut numbers: Vec<u64>, below: u64) {
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..below), "each below {below}, once");
}

/// A tracker without a thread on a manual clock, with intervals of 1 ms and a timeout of 100 ms.
pub fn manual() -> (AckTracker, ManualClock, Told) {
    manual_with(|builder| builder)
}

pub fn manual_with(
    set: impl FnOnce(AckTrackerBuilder) -> AckTrackerBuilder,
) -> (AckTracker, ManualClock, Told) {
    let (clock, told) = (ManualClock::new(), Told::default());
    let builder = AckTracker::builder()
        .timeout(100 * MS)
        .interval(MS)
        .shards(2)
        .seed(1)
        .clock(clock.clone())
        .on_outcome(told.handler());
    (set(builder).build_manual().unwrap(), clock, told)
}

/// Polls until there is nothing left to do now.
pub fn settle(tracker: &AckTracker) {
    for _ in 0..1_000_000 {
        if !tracker.poll(10_000).more {
            return;
        }
    }
    panic!("polling does not come to an end");
}

/// Lets the clock go on by so much, and polls until there is nothing left to do then.
pub fn pass(tracker: &AckTracker, clock: &ManualClock, by: Duration) {
    clock.advance(by);
    settle(tracker);
}

/// Waits for a condition, with a deadline.
pub fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + GENEROUS;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(MS);
    }
}

/// Threads of which a test wants to know that they wait.
#[derive(Default)]
pub struct Waiters(Mutex<Vec<String>>);

impl Waiters {
    /// The calling thread is about to wait.
    pub fn join(&self) {
        #[cfg(target_os = "linux")]
        let stat = format!("/proc/self/task/{}/stat", rustix::thread::gettid().as_raw_nonzero());
        #[cfg(not(target_os = "linux"))]
        let stat = String::new();
        self.0.lock().unwrap().push(stat);
    }

    /// Waits until so many have joined, and `asked`, and sleep, as far as the system says so.
    pub fn sleep(&self, count: usize, asked: impl Fn() -> bool) {
        let sleeps = |stat: &String| match std::fs::read_to_string(stat) {
            Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')),
            Err(_) => stat.is_empty(),
        };
        let all_sleep = |all: &[String]| all.len() == count && all.iter().all(sleeps);
        wait_for("they wait", || asked() && all_sleep(&self.0.lock().unwrap()));
    }
}

/// Lets about this much time go by, as seen by another tracker's reaper: returns when a root has
/// timed out there.
pub fn let_pass(time: Duration) {
    let (tracker, outcomes) =
        AckTracker::builder().timeout(time).build_with_channel(1, expiry::WhenFull::Wait).unwrap();
    tracker.issue(1, 0).unwrap();
    assert!(outcomes.next_within(GENEROUS).unwrap().is_timed_out());
}

/// Runs `test` on a thread of its own, and fails if that hangs. A test that hangs leaks its thread.
pub fn within(test: impl FnOnce() + Send + 'static) {
    let (sender, done) = channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = sender.send(());
    });
    match done.recv_timeout(2 * GENEROUS) {
        Err(RecvTimeoutError::Timeout) => panic!("the test hangs"),
        // Its panic, if it had one.
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// A small generator, so that a failure can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub fn after(time: Duration) -> Lifetime {
    Lifetime::After(time)
}
