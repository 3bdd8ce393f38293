//! What the topology's executor rests on beside crossbeam's queues: the bell, and the gate that spouts go through.
#![cfg(expiry_loom)]

use expiry_topology::model::{Bell, Gate, Visitor};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom_tests::{model, thread};
use std::sync::Arc;

/// A queue as the bell sees it: something is put in, or it is not.
#[derive(Clone)]
struct Queue(Arc<AtomicU32>);

impl Queue {
    fn push(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }

    fn len(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }
}

/// Two send, each one item, and ring; the owner sleeps until it has both. Guards: both fences, saying before looking, and the swap
/// that leaves the waking to one of the two. A wake-up that is lost is a deadlock.
#[test]
fn no_bell_is_missed() {
    model("no_bell_is_missed", || {
        let (bell, sleeper) = Bell::new();
        let queue = Queue(Arc::new(AtomicU32::new(0)));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let (bell, queue) = (bell.clone(), queue.clone());
                thread::spawn(move || {
                    queue.push();
                    bell.ring();
                })
            })
            .collect();
        let mut seen = 0;
        while seen < 2 {
            bell.sleep(&sleeper, || queue.len() > seen);
            seen = queue.len();
        }
        senders
            .into_iter()
            .for_each(|sender| sender.join().unwrap());
    });
}

/// A spout's task goes in, emits, and goes out when it sees the gate closed; who has closed it and finds nobody inside knows all
/// that was emitted, and nothing comes after. Guards: both fences, saying before looking.
#[test]
fn nobody_comes_through_a_closed_gate() {
    model("nobody_comes_through_a_closed_gate", || {
        let (gate, visitor) = (Arc::new(Gate::new()), Arc::new(Visitor::new()));
        let emitted = Arc::new(AtomicU32::new(0));
        let spout = {
            let (gate, visitor, emitted) = (gate.clone(), visitor.clone(), emitted.clone());
            thread::spawn(move || {
                if visitor.enter(&gate) {
                    emitted.fetch_add(1, Ordering::Relaxed);
                    visitor.leave();
                }
            })
        };
        gate.close();
        if !visitor.is_inside() {
            let before = emitted.load(Ordering::Relaxed);
            spout.join().unwrap();
            assert_eq!(emitted.load(Ordering::Relaxed), before);
        } else {
            spout.join().unwrap();
        }
    });
}
