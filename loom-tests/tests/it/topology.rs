//! What the topology's executor relies on beside crossbeam's queues: the bell, and the gate that
//! spouts go through.

use expiry_topology::model::{Bell, Call, Gate, Jam, Room, Visitor};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom_tests::{aside, model};
use std::sync::Arc;
use std::time::Duration;

/// A queue as the bell sees it: something is put in, or it is not.
#[derive(Clone)]
struct Queue(Arc<AtomicU32>);

impl Queue {
    fn push(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn pop(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }

    /// Puts something in if it holds less than `full`.
    fn push_up_to(&self, full: u32) {
        let put = |len| (len < full).then_some(len + 1);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, put);
    }

    fn len(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

// Two threads send one item each, and ring; the owner sleeps until it has both. Guards: both
// fences, announcing before looking, and the swap that leaves the waking to one of the two. A lost
// wake-up is a deadlock.
model!(no_bell_is_missed, || {
    let (bell, sleeper) = Bell::new();
    let queue = Queue(Arc::new(AtomicU32::new(0)));
    let senders = [(); 2].map(|()| {
        aside(&(bell.clone(), queue.clone()), |(bell, queue)| {
            queue.push();
            bell.ring();
        })
    });
    let mut seen = 0;
    while seen < 2 {
        bell.sleep(&sleeper, Duration::MAX, || queue.len() > seen);
        seen = queue.len();
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
});

// Two threads send one item each, and call; the task takes a call before it looks, until it has
// both items. Guards: the store and the swap of the call, which hand on what was sent, and taking
// before looking. A lost wake-up is a deadlock.
model!(no_call_is_missed, || {
    let (bell, sleeper) = Bell::new();
    let (call, sent) = (Arc::new(Call::new(bell.clone())), Arc::new(AtomicU32::new(0)));
    let senders = [(); 2].map(|()| {
        aside(&(call.clone(), sent.clone()), |(call, sent)| {
            sent.fetch_add(1, Ordering::Relaxed);
            call.call();
        })
    });
    let mut seen = 0;
    while seen < 2 {
        if call.take() {
            seen = sent.load(Ordering::Relaxed);
        } else {
            bell.sleep(&sleeper, Duration::MAX, || call.is_there());
        }
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
});

// A queue of two has room when it holds one item at most. It is full, and its owner takes both out.
// One sender sleeps until there is room; another one may fill the queue again before the first has
// looked. Guards: both fences of the room. The sender announces that it waits before its last look,
// and after it has announced its sleep. A lost wake-up is a deadlock.
model!(nobody_sleeps_beside_an_empty_queue, || {
    let (bell, sleeper) = Bell::new();
    let room = Arc::new(Room::default());
    let queue = Queue(Arc::new(AtomicU32::new(2)));
    let has_room = |queue: &Queue| queue.len() <= 1;
    let other = aside(&queue, |queue| queue.push_up_to(2));
    let owner = aside(&(bell.clone(), room.clone(), queue.clone()), move |(bell, room, queue)| {
        for _ in 0..2 {
            queue.pop();
            if has_room(queue) && room.is_wanted() {
                bell.ring();
            }
        }
    });
    while !has_room(&queue) {
        bell.sleep(&sleeper, Duration::MAX, || {
            room.want();
            has_room(&queue)
        });
    }
    other.join().unwrap();
    owner.join().unwrap();
});

// Two tasks on a cycle have overflow; one gets rid of it and has some once more; the spout sleeps
// until there is none. Guards: a task takes it back before it rings, and the last one rings. A lost
// wake-up is a deadlock.
model!(a_jam_that_is_over_wakes_the_spout, || {
    let (bell, sleeper) = Bell::new();
    let jam = Arc::new(Jam::new(vec![bell.clone()]));
    jam.begin();
    jam.begin();
    let tasks = [false, true].map(|again| {
        aside(&jam, move |jam| {
            jam.end();
            if again {
                jam.begin();
                jam.end();
            }
        })
    });
    while jam.is_on() {
        bell.sleep(&sleeper, Duration::MAX, || !jam.is_on());
    }
    tasks.into_iter().for_each(|task| task.join().unwrap());
});

// A spout's task goes in, emits, and goes out when it sees the gate closed. A thread that has
// closed the gate and finds no task inside knows all that was emitted, and nothing comes after.
// Guards: both fences, announcing before looking.
model!(nobody_comes_through_a_closed_gate, || {
    let (gate, visitor) = (Arc::new(Gate::new(true)), Arc::new(Visitor::default()));
    assert!(visitor.enter(&gate) && visitor.is_inside());
    visitor.leave();
    let emitted = Arc::new(AtomicU32::new(0));
    let all = (gate.clone(), visitor.clone(), emitted.clone());
    let spout = aside(&all, |(gate, visitor, emitted)| {
        if visitor.enter(gate) {
            emitted.fetch_add(1, Ordering::Relaxed);
            visitor.leave();
        }
    });
    gate.set(false);
    if !visitor.is_inside() {
        let before = emitted.load(Ordering::Relaxed);
        spout.join().unwrap();
        assert_eq!(emitted.load(Ordering::Relaxed), before);
    } else {
        spout.join().unwrap();
    }
    assert!(!visitor.is_inside(), "who has closed it waits for ever");
});
