//! Tasks that wait for room: no task sleeps beside a free slot.

use expiry::{Ack, CapacityReady, Closed, RootId, ShutdownMode};
use loom_tests::{aside, large, model, thread, Rig, Task};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const EDGE: u64 = 5;

/// A tracker whose roots fill it, and what borrows it.
struct Full {
    rig: Arc<Rig>,
    roots: Vec<RootId>,
}

impl Full {
    fn new(capacity: usize) -> Self {
        let rig = Rig::with(|builder| builder.capacity(capacity));
        let issue = |_| RootId::from(rig.issue(EDGE, 42).unwrap());
        let roots = (0..capacity).map(issue).collect();
        Full { rig, roots }
    }

    /// Another waiter. The rig outlives all of them: they end before it does, on one thread or the
    /// other.
    fn waiter(&self) -> Waiter {
        let rig: &'static Rig = {
            // SAFETY: the waiter holds a share of the rig, and drops its future before that.
            unsafe { &*Arc::as_ptr(&self.rig) }
        };
        let (room, _rig) = (rig.room(), self.rig.clone());
        Waiter { room, task: Task::new(), seen: None, answer: None, _rig }
    }

    /// A waiter that waits already.
    fn waiting(&self) -> Waiter {
        let mut waiter = self.waiter();
        waiter.poll();
        assert_eq!(waiter.answer, None);
        waiter
    }

    /// Ends the root at `at`, in another thread.
    fn ends(&self, at: usize) -> thread::JoinHandle<()> {
        let root = self.roots[at];
        aside(&self.rig, move |rig| assert_eq!(rig.ack(root, EDGE), Ok(Ack::Completed)))
    }
}

struct Waiter {
    room: CapacityReady<'static>,
    task: Arc<Task>,
    /// How often it had been woken when it was polled last.
    seen: Option<usize>,
    answer: Option<Result<(), Closed>>,
    _rig: Arc<Rig>,
}

impl Waiter {
    fn poll(&mut self) {
        self.seen = Some(self.task.woken());
        match self.task.poll(&mut self.room) {
            Poll::Ready(answer) => self.answer = Some(answer),
            Poll::Pending => {}
        }
    }

    /// Polls as an executor does: only if the waiter was woken since. Returns whether it polled.
    fn run(&mut self) -> bool {
        let woken = self.answer.is_none() && self.seen < Some(self.task.woken());
        if woken {
            self.poll();
        }
        woken
    }
}

/// Polls the woken waiters until none is woken.
fn settle(waiters: &mut [Waiter]) {
    while waiters.iter_mut().any(Waiter::run) {}
}

fn all_have_room(waiters: &mut [Waiter]) {
    settle(waiters);
    for waiter in waiters {
        assert_eq!(waiter.answer, Some(Ok(())), "it sleeps beside a free slot");
    }
}

// P1: a slot gets free as a task goes to sleep. Guards: both threads change the permits by
// read-modify-writes, and the waiter does so after it has joined the waiter queue.
model!(p1_free_and_wait, || {
    let full = Full::new(1);
    let mut waiter = full.waiter();
    let a = full.ends(0);
    waiter.poll();
    a.join().unwrap();
    all_have_room(&mut [waiter]);
});

// P2: the first waiter leaves as a slot gets free: the other one is woken. Guards: a waiter that
// leaves hands its token on.
model!(p2_free_and_leave, || {
    let full = Full::new(1);
    let (first, second) = (full.waiting(), full.waiting());
    let a = full.ends(0);
    drop(first);
    a.join().unwrap();
    all_have_room(&mut [second]);
});

// P2: a slot gets free as the first of two waiters is polled. Both find it, as neither takes it.
// Guards: a waiter that is ready hands the token on.
model!(p2_free_and_poll, || {
    let full = Full::new(1);
    let (mut first, second) = (full.waiting(), full.waiting());
    let a = full.ends(0);
    first.poll();
    a.join().unwrap();
    all_have_room(&mut [first, second]);
});

// P2: a thread that has not waited takes the slot and frees it again, while a waiter that was woken
// for it before is polled.
model!(p2_overtaken, large, || {
    let full = Full::new(1);
    let mut waiter = full.waiting();
    let root = full.roots[0];
    let a = aside(&full.rig, move |rig| {
        let _ = rig.ack(root, EDGE);
        let root = rig.issue(EDGE, 43).unwrap();
        assert_eq!(rig.ack(root, EDGE), Ok(Ack::Completed));
    });
    if waiter.run() {
        waiter.run();
    }
    a.join().unwrap();
    all_have_room(&mut [waiter]);
});

// P3: two slots get free at once, and two tasks wait. Guards: the thread that wakes waiters comes
// back for tokens that were added meanwhile.
model!(p3_two_get_free, large, || {
    let full = Full::new(2);
    let mut waiters = [full.waiting(), full.waiting()];
    let threads = [0, 1].map(|root| full.ends(root));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // Each has its own, whether the first is polled or not.
    let woken = |waiter: &Waiter| waiter.task.woken();
    assert_eq!(waiters.each_ref().map(woken), [1, 1]);
    all_have_room(&mut waiters);
});

// P3: another task comes as a slot gets free that a task waits for; neither takes it.
model!(p3_free_beside_another_who_comes, || {
    let full = Full::new(1);
    let (first, mut second) = (full.waiting(), full.waiter());
    let a = full.ends(0);
    second.poll();
    a.join().unwrap();
    all_have_room(&mut [first, second]);
});

// P4: a shutdown refuses new roots as a task goes to sleep. Roots in flight go on, so no slot gets
// free that would wake the task. Guards: the fences of both, and the refusing thread wakes waiters.
model!(p4_shutdown_and_wait, || {
    let full = Full::new(1);
    let mut waiter = full.waiter();
    let drains = ShutdownMode::Drain(Duration::MAX);
    let a = aside(&full.rig, move |rig| drop(rig.shutdown_async(drains)));
    waiter.poll();
    a.join().unwrap();
    let mut waiters = [waiter];
    settle(&mut waiters);
    let [waiter] = waiters;
    assert_eq!(waiter.answer, Some(Err(Closed)), "it sleeps until the end");
});

// P5: a waiter changes its waker as a slot gets free.
model!(p5_free_and_another_waker, || {
    let full = Full::new(1);
    let (mut first, second) = (full.waiting(), full.waiting());
    let a = full.ends(0);
    first.task = Task::new();
    first.poll();
    a.join().unwrap();
    all_have_room(&mut [first, second]);
});
