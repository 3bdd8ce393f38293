//! Wakers in slots. Of the threads that may end an entry, exactly one wakes or drops the waker, and
//! no poll that returns "pending" is forgotten.

use expiry::timeouts::{Sleep, TimerError};
use expiry::{ManualClock, Timeouts};
use loom::sync::atomic::AtomicUsize;
use loom_tests::{aside, beside, large, model, thread, Task, TICK};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};

/// Ticks until what the models wait for.
const LIMIT: u32 = 10;

/// Timeouts without a reaper, of one shard, on a manual clock. Futures that borrow them may go to
/// another thread.
#[derive(Clone)]
struct Rig {
    timeouts: &'static Timeouts,
    clock: ManualClock,
}

impl Rig {
    /// Timeouts with the fence of two sides that owners rely on, or as on a system without it.
    fn new(fence: bool) -> Self {
        let clock = ManualClock::new();
        let mut builder = Timeouts::builder().interval(TICK).shards(1).seed(7).clock(clock.clone());
        if !fence {
            builder = builder.without_fence();
        }
        let timeouts = Box::leak(Box::new(builder.build_manual().unwrap()));
        Rig { timeouts, clock }
    }

    fn sleep(&self) -> Sleep<&'static Timeouts> {
        self.timeouts.sleep(TICK * LIMIT)
    }

    /// A sleep that waits already, for this task.
    fn waiting(&self, task: &Arc<Task>) -> Sleep<&'static Timeouts> {
        let mut sleep = self.sleep();
        assert!(task.poll(&mut sleep).is_pending());
        sleep
    }

    /// A sleep that waits for another task, and is due after a tick.
    fn neighbour(&self) -> Sleep<&'static Timeouts> {
        let mut sleep = self.timeouts.sleep(TICK);
        assert!(Task::new().poll(&mut sleep).is_pending());
        sleep
    }

    /// Polls for one round, which wakes the due sleeps.
    fn poll(&self) {
        self.timeouts.poll(1 << 20);
    }

    fn advance(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
    }

    fn pass(&self, ticks: u32) {
        self.advance(ticks);
        while self.timeouts.poll(1 << 20).more {}
    }

    /// These tasks have no waker left. Once the futures are dropped nothing waits, and each that
    /// was registered has ended once.
    fn end<F>(self, tasks: &[&Arc<Task>], futures: F) {
        assert!(tasks.iter().all(|task| task.is_free()));
        drop(futures);
        let metrics = self.timeouts.metrics();
        let ended = metrics.fired + metrics.cancelled + metrics.closed;
        assert_eq!((metrics.waiting, metrics.registered), (0, ended));
        // SAFETY: leaked by `new`; the models end with this, all their threads and futures gone.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(self.timeouts).cast_mut()) });
    }
}

/// The names of a model with that fence, and without.
fn fences(name: &str) -> [(String, bool); 2] {
    [(name.into(), true), (format!("{name}, no fence"), false)]
}

/// A model, with and without.
fn model_both(name: &str, f: impl Fn(bool) + Clone + Send + Sync + 'static) {
    for (name, fence) in fences(name) {
        let f = f.clone();
        model(&name, move || f(fence));
    }
}

/// The same of a large one.
fn large_both(name: &str, f: impl Fn(bool) + Clone + Send + Sync + 'static) {
    for (name, fence) in fences(name) {
        let f = f.clone();
        large(&name, move || f(fence));
    }
}

// T1: a timeout fires as its owner drops it, or has its future's output. One of the two has the
// waker, and the slot is freed once.
model!(t1_wake_and_drop, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let sleep = rig.waiting(&task);
    rig.advance(LIMIT);
    let a = thread::spawn(move || drop(sleep));
    rig.poll();
    a.join().unwrap();
    let metrics = rig.timeouts.metrics();
    assert_eq!((metrics.waiting, metrics.fired + metrics.cancelled), (0, 1));
    assert_eq!(task.woken() as u64, metrics.fired);
    assert!(task.is_free());
    // This slot is as good as any other.
    let next = rig.waiting(&task);
    rig.pass(LIMIT);
    assert_eq!(task.woken() as u64, metrics.fired + 1);
    rig.end(&[], next);
});

// T2: a task polls with another waker as the timeout fires. If the poll returns "pending", that
// waker is woken.
model!(t2_wake_and_another_waker, model_both, |fence| {
    let rig = Rig::new(fence);
    let (first, second) = (Task::new(), Task::new());
    let mut sleep = rig.waiting(&first);
    let a = aside(&rig, |rig| {
        rig.advance(LIMIT);
        rig.poll();
    });
    // The timeout may be due before this, or in the middle of it.
    let polled = second.poll(&mut sleep);
    a.join().unwrap();
    // This finds an entry that the driver has passed by in the middle of its change.
    rig.pass(0);
    let woken = (first.woken(), second.woken());
    if polled.is_pending() {
        assert_eq!(woken, (0, 1), "told to wait, and forgotten");
    } else {
        assert!(woken.0 <= 1 && woken.1 == 0, "{woken:?}");
    }
    assert_eq!(second.poll(&mut sleep), Poll::Ready(Ok(())));
    rig.end(&[&first, &second], sleep);
});

// T2: a task polls a timeout with another waker while a scan looks through its slot block for a
// neighbour's sake. The scan passes it by, and it fires in time all the same.
model!(t2_another_waker_beside_a_scan, model_both, |fence| {
    let rig = Rig::new(fence);
    let tasks = [Task::new(), Task::new(), Task::new()];
    let mut sleep = rig.waiting(&tasks[0]);
    let mut neighbour = rig.timeouts.sleep(TICK);
    assert!(tasks[2].poll(&mut neighbour).is_pending());
    rig.advance(1);
    let second = tasks[1].clone();
    let a = thread::spawn(move || {
        assert!(second.poll(&mut sleep).is_pending());
        sleep
    });
    rig.poll();
    let mut sleep = a.join().unwrap();
    assert_eq!(tasks.each_ref().map(|task| task.woken()), [0, 0, 1]);
    rig.pass(LIMIT - 1);
    assert_eq!(tasks.each_ref().map(|task| task.woken()), [0, 1, 1]);
    assert_eq!(tasks[0].poll(&mut sleep), Poll::Ready(Ok(())));
    rig.end(&[], (sleep, neighbour));
});

// T3: a reset to a later deadline as the timeout fires. It has fired, or it does not fire before
// the new deadline.
model!(t3_reset_and_fire, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let mut sleep = rig.waiting(&task);
    rig.advance(LIMIT);
    let a = thread::spawn(move || {
        sleep.reset(TICK * 5);
        sleep
    });
    rig.poll();
    let mut sleep = a.join().unwrap();
    let fired = task.woken();
    rig.pass(4);
    assert_eq!(task.woken(), fired, "early");
    assert!(task.poll(&mut sleep).is_pending());
    rig.pass(1);
    assert_eq!(task.woken(), fired + 1);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    rig.end(&[&task], sleep);
});

// T3: a reset to a nearer deadline while a scan looks through the slot block. The reset notifies
// the driver.
model!(t3_reset_to_nearer_beside_a_scan, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let mut sleep = rig.waiting(&task);
    let neighbour = rig.neighbour();
    rig.advance(1);
    let a = thread::spawn(move || {
        sleep.reset(TICK * 2);
        sleep
    });
    rig.poll();
    let mut sleep = a.join().unwrap();
    rig.pass(1);
    assert_eq!(task.woken(), 0);
    rig.pass(1);
    assert_eq!(task.woken(), 1);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    rig.end(&[], (sleep, neighbour));
});

/// The timeouts were shut down as the task polled. It was refused, or has been woken and finds them
/// closed.
fn closed<E>(
    task: &Arc<Task>,
    polled: Polled<E>,
    future: &mut (impl Future<Output = Result<(), E>> + Unpin),
) where
    E: From<TimerError> + Debug + PartialEq,
{
    let closed = Poll::Ready(Err(TimerError::Closed.into()));
    if polled.is_pending() {
        assert_eq!(task.woken(), 1, "told to wait, and forgotten");
        assert_eq!(task.poll(future), closed);
    } else {
        assert_eq!((polled, task.woken()), (closed, 0));
    }
}

type Polled<E> = Poll<Result<(), E>>;

// T4 (W8): a timeout is registered as all is shut down. It is refused, or woken by the shutdown:
// never left waiting.
model!(t4_shutdown_and_register, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let (other, same) = (rig.clone(), task.clone());
    // So that there is a slot block, and this thread's own claims are another's.
    drop(rig.waiting(&task));
    let a = thread::spawn(move || {
        let forever = std::future::pending::<()>();
        let mut limited = other.timeouts.timeout(TICK * LIMIT, forever);
        (same.poll(&mut limited), limited)
    });
    rig.timeouts.shutdown();
    let (polled, mut limited) = a.join().unwrap();
    closed(&task, polled, &mut limited);
    rig.end(&[&task], limited);
});

// T4 (W8): a task changes its waker as all is shut down.
model!(t4_shutdown_and_another_waker, model_both, |fence| {
    let rig = Rig::new(fence);
    let (first, second) = (Task::new(), Task::new());
    let mut sleep = rig.waiting(&first);
    let ((polled, mut sleep), _) = beside(
        &second,
        move |second| (second.poll(&mut sleep), sleep),
        |_| rig.timeouts.shutdown(),
    );
    closed(&second, polled, &mut sleep);
    rig.end(&[&first, &second], sleep);
});

// T4 (W8): as all is shut down, in a slot block with an earlier timeout: its owner needs no
// read-modify-write to register it.
model!(t4_shutdown_and_register_beside_another, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let neighbour = rig.neighbour();
    let a = aside(&rig, |rig| rig.timeouts.shutdown());
    let mut sleep = rig.sleep();
    let polled = task.poll(&mut sleep);
    a.join().unwrap();
    closed(&task, polled, &mut sleep);
    rig.end(&[&task], (sleep, neighbour));
});

// T4 (W8): the owner drops its timeout as all is shut down. The timeout ends once.
model!(t4_shutdown_and_drop, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let sleep = rig.waiting(&task);
    beside(&rig, |rig| rig.timeouts.shutdown(), |_| drop(sleep));
    let metrics = rig.timeouts.metrics();
    assert_eq!(metrics.cancelled + metrics.closed, 1);
    assert_eq!(task.woken() as u64, metrics.closed);
    rig.end(&[&task], ());
});

// T7 (W5): a timeout is registered while a scan looks through its slot block for a neighbour's
// sake. The scan finds it, or its owner notifies the driver.
model!(t7_register_beside_a_scan, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let neighbour = rig.neighbour();
    rig.advance(1);
    let (_, mut sleep) = beside(&rig, |rig| rig.poll(), |rig| rig.waiting(&task));
    assert_eq!(task.woken(), 0);
    rig.pass(LIMIT);
    assert_eq!(task.woken(), 1, "forgotten");
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    rig.end(&[], (sleep, neighbour));
});

/// T7 (W5): as before, and the driver has a plan of that slot block. A timeout that the plan does
/// not contain sets the dirty bit.
#[test]
fn t7_register_beside_a_scan_by_a_plan() {
    let reused = Arc::new(AtomicBool::new(false));
    let seen = reused.clone();
    model_both("t7_register_beside_a_scan_by_a_plan", move |fence| {
        let rig = Rig::new(fence);
        let task = Task::new();
        let mut neighbour = rig.waiting(&Task::new());
        let mut first = rig.waiting(&Task::new());
        let place = slot(&first);
        // A scan finds nothing due, and then finds the slot that was noted first empty.
        neighbour.reset(TICK * 5);
        first.reset(TICK * 3);
        first.reset(TICK);
        first.reset(TICK * 3);
        rig.pass(1);
        rig.pass(2);
        drop(first);
        rig.advance(2);
        let a = aside(&rig, |rig| rig.poll());
        let mut sleep = rig.waiting(&task);
        seen.fetch_or(slot(&sleep) == place, Ordering::Relaxed);
        a.join().unwrap();
        rig.pass(LIMIT);
        assert_eq!(task.woken(), 1, "forgotten");
        assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
        drop((sleep, neighbour));
        rig.end(&[], ());
    });
    assert!(reused.load(Ordering::Relaxed), "it was never in that block");
}

// T7 (W6): two owners drop their timeouts in one slot block while a scan looks through it. Each
// timeout ends once.
model!(t7_two_drops_beside_a_scan, large_both, |fence| {
    let rig = Rig::new(fence);
    let tasks = [Task::new(), Task::new()];
    let [one, two] = [&tasks[0], &tasks[1]].map(|task| rig.waiting(task));
    rig.advance(LIMIT);
    let threads = [one, two].map(|sleep| thread::spawn(move || drop(sleep)));
    rig.poll();
    for thread in threads {
        thread.join().unwrap();
    }
    let woken: usize = tasks.iter().map(|task| task.woken()).sum();
    assert_eq!(woken as u64, rig.timeouts.metrics().fired);
    assert!(tasks.iter().all(Task::is_free));
    rig.end(&[], ());
});

/// Which slot it waits in.
fn slot(sleep: &Sleep<&Timeouts>) -> String {
    let debug = format!("{sleep:?}");
    let (_, id) = debug.split_once("id: ").expect("it waits");
    id.chars().take_while(char::is_ascii_digit).collect()
}

/// As [`large_both`], for a model that returns whether another owner has had a slot: in some
/// execution that is so.
fn reusing(name: &str, f: impl Fn(bool) -> bool + Clone + Send + Sync + 'static) {
    let reused = Arc::new(AtomicBool::new(false));
    let seen = reused.clone();
    large_both(name, move |fence| {
        seen.fetch_or(f(fence), Ordering::Relaxed);
    });
    assert!(reused.load(Ordering::Relaxed), "the slot was never another's");
}

/// What a late owner meets: four timeouts of `occupant`, registered after its entry, of `task`, had
/// fired.
struct Late<T> {
    /// The owner's thread, which uses its entry from before that on.
    owner: thread::JoinHandle<T>,
    occupants: [Sleep<&'static Timeouts>; 4],
    /// Whether one of them has the slot.
    same: bool,
}

impl Rig {
    fn late<T: 'static>(
        &self,
        (task, occupant): (&Arc<Task>, &Arc<Task>),
        owner: impl FnOnce(Sleep<&'static Timeouts>) -> T + Send + 'static,
    ) -> Late<T> {
        let sleep = self.waiting(task);
        // There are so many that this thread leaves the first one's slot block.
        let more = [self.waiting(task), self.waiting(task)];
        let place = slot(&sleep);
        self.advance(LIMIT);
        let owner = thread::spawn(move || owner(sleep));
        self.poll();
        drop(more);
        let occupants = [(); 4].map(|()| self.waiting(occupant));
        let same = occupants.iter().any(|occupant| slot(occupant) == place);
        Late { owner, occupants, same }
    }
}

// T5 (W6): the slot has another thread's occupant when the owner of a fired timeout drops it.
model!(t5_a_late_owner_and_the_next_occupant, reusing, |fence| {
    let rig = Rig::new(fence);
    let (task, occupant) = (Task::new(), Task::new());
    let late = rig.late((&task, &occupant), drop);
    late.owner.join().unwrap();
    assert_eq!((occupant.woken(), rig.timeouts.len()), (0, 4));
    rig.pass(LIMIT);
    assert_eq!(occupant.woken(), 4);
    rig.end(&[&task, &occupant], late.occupants);
    late.same
});

// T5 (W6): as before, and the next occupant is due just then. It fires.
model!(t5_a_late_owner_beside_a_scan, reusing, |fence| {
    let rig = Rig::new(fence);
    let (task, occupant) = (Task::new(), Task::new());
    let late = rig.late((&task, &occupant), drop);
    rig.advance(LIMIT);
    rig.poll();
    late.owner.join().unwrap();
    assert_eq!(occupant.woken(), 4, "a stranger has held it up");
    rig.end(&[&task, &occupant], late.occupants);
    late.same
});

// T5 (W6): the owner looks at its fired timeout with another waker, and the next occupant has that
// same waker. The owner does not take it for its own.
model!(t5_the_next_occupant_has_this_waker, reusing, |fence| {
    let rig = Rig::new(fence);
    let (first, second) = (Task::new(), Task::new());
    let polling = second.clone();
    let late = rig.late((&first, &second), move |mut sleep| (polling.poll(&mut sleep), sleep));
    let (polled, sleep) = late.owner.join().unwrap();
    // If it had changed its waker after the round had looked.
    rig.pass(0);
    if polled.is_pending() {
        assert_eq!(second.woken(), 1, "told to wait, and forgotten");
    }
    drop((sleep, late.occupants));
    rig.end(&[&first, &second], ());
    late.same
});

/// Two wakers of one data pointer, and how often the second one was called.
fn twins() -> (Waker, Waker, &'static std::sync::atomic::AtomicUsize) {
    fn count(data: *const ()) {
        // SAFETY: the leaked counter below.
        let count = unsafe { &*data.cast::<std::sync::atomic::AtomicUsize>() };
        count.fetch_add(1, Ordering::Relaxed);
    }
    const FIRST: &RawWakerVTable =
        &RawWakerVTable::new(|data| RawWaker::new(data, FIRST), |_| (), |_| (), |_| ());
    const SECOND: &RawWakerVTable =
        &RawWakerVTable::new(|data| RawWaker::new(data, SECOND), count, count, |_| ());
    let count: &'static std::sync::atomic::AtomicUsize = Box::leak(Box::default());
    let data = std::ptr::from_ref(count).cast();
    // SAFETY: the counter lives for ever and may be shared; nothing is owned.
    let [first, second] = [FIRST, SECOND].map(|of| unsafe { Waker::new(data, of) });
    (first, second, count)
}

fn poll_with(sleep: &mut Sleep<&Timeouts>, waker: &Waker) -> Poll<Result<(), TimerError>> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

// T5 (W6): as before, and the two wakers differ in one of their two words only. Guards: both words
// are read before the lease.
model!(t5_the_next_occupant_has_a_twin_of_this_waker, large_both, move |fence| {
    let rig = Rig::new(fence);
    let (first, second, woken) = twins();
    let waiting = |waker: &Waker| {
        let mut sleep = rig.sleep();
        assert!(poll_with(&mut sleep, waker).is_pending());
        sleep
    };
    let mut sleep = waiting(&first);
    let more = [waiting(&first), waiting(&first)];
    rig.advance(LIMIT);
    let a = aside(&second, move |second| (poll_with(&mut sleep, second), sleep));
    rig.poll();
    drop(more);
    let occupants = [(); 4].map(|()| waiting(&second));
    let (polled, sleep) = a.join().unwrap();
    rig.pass(0);
    if polled.is_pending() {
        let woken = woken.load(Ordering::Relaxed);
        assert_eq!(woken, 1, "told to wait, and forgotten");
    }
    rig.end(&[], (sleep, occupants));
});

// A poll that finds a timeout fired sees what was done before that, also if no thread has woken its
// task.
model!(t6_the_firing_hands_on_what_was_done, model_both, |fence| {
    let rig = Rig::new(fence);
    let task = Task::new();
    let mut sleep = rig.waiting(&task);
    let done = Arc::new(AtomicUsize::new(0));
    rig.advance(LIMIT);
    let (same, look) = (task.clone(), done.clone());
    let a = thread::spawn(move || {
        if same.poll(&mut sleep).is_ready() {
            assert_eq!(look.load(Ordering::Relaxed), 1);
        }
        sleep
    });
    done.store(1, Ordering::Relaxed);
    rig.poll();
    let mut sleep = a.join().unwrap();
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
    rig.end(&[], sleep);
});
