//! Stores that destructors of thread-locals use, while their threads end. Each test has a process
//! of its own, because an index that two threads have may harm any test that runs beside it.

use crate::support::SECOND;
use expiry::{AckTracker, ExpiringMap, ExpiryQueue, PendingMap, PendingTable, SessionTracker};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// Threads that end together.
const THREADS: u64 = 4;
const ROUNDS: usize = 300;

/// What a value contains until it is dropped.
const ALIVE: u64 = 0x0a11_fe00_0a11_fe00;

struct Value(AtomicU64);

impl Value {
    fn new() -> Self {
        Value(AtomicU64::new(ALIVE))
    }

    fn check(&self) {
        assert_eq!(self.0.load(Ordering::Relaxed), ALIVE, "a value was dropped beside its reader");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Calls its closure when it is dropped.
struct AtExit(Box<dyn FnOnce()>);

impl Drop for AtExit {
    fn drop(&mut self) {
        std::mem::replace(&mut self.0, Box::new(|| ()))();
    }
}

thread_local!(static LAST: RefCell<Vec<AtExit>> = const { RefCell::new(Vec::new()) });

/// One of each store, and what a thread with a number calls.
fn stores() -> impl Fn(u64) + Send + Sync {
    let map = ExpiringMap::builder().time_to_live(SECOND).build_manual().unwrap();
    let queue = ExpiryQueue::builder().build_manual().unwrap();
    let sessions = SessionTracker::builder().build_manual().unwrap();
    let pending = PendingMap::builder().build_manual().unwrap();
    let table: PendingTable<u64> = PendingTable::builder().build_manual().unwrap();
    let tracker = AckTracker::builder().build_manual().unwrap();
    move |number| {
        let _ = map.insert(0, Value::new());
        if let Some(value) = map.get(&0) {
            value.check();
            // More readings lie between the guard's begin and its end.
            let _ = map.insert(number, Value::new());
            map.flush(Duration::ZERO);
            value.check();
        }
        map.remove(&0);
        queue.update(number, SECOND).unwrap();
        assert!(queue.remove(&number).is_some());
        let session = sessions.create(SECOND, number).unwrap().id();
        assert!(sessions.touch(session).is_ok());
        assert!(sessions.remove(session).is_some());
        assert!(pending.insert(number, number, SECOND).is_ok());
        assert_eq!(pending.take(&number), Some(number));
        let ticket = table.insert(number, SECOND).unwrap();
        assert_eq!(table.take(ticket), Some(number));
        let root = tracker.issue(1, number).unwrap();
        tracker.ack(root, 1).unwrap();
    }
}

/// Threads end together, and their destructors use the stores. A thread-local is older than its
/// thread's index if the thread makes it before its first call into a store.
fn end_threads(is_older: bool) {
    let stores = Arc::new(stores());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let replacing = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                stores(THREADS);
            }
        });
        for _ in 0..ROUNDS {
            let barrier = Arc::new(Barrier::new(THREADS as usize));
            let begin = |number| {
                let (stores, barrier) = (stores.clone(), barrier.clone());
                let mine = stores.clone();
                let at_exit = move || {
                    let work = move || {
                        barrier.wait();
                        (0..20).for_each(|_| stores(number));
                    };
                    LAST.with_borrow_mut(|last| last.push(AtExit(Box::new(work))));
                };
                thread::spawn(move || {
                    if is_older {
                        at_exit();
                        mine(number);
                    } else {
                        mine(number);
                        at_exit();
                    }
                })
            };
            let threads: Vec<_> = (0..THREADS).map(begin).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        done.store(true, Ordering::Relaxed);
        replacing.join().unwrap();
    });
}

pub fn thread_locals_older_than_the_threads_index_use_every_store() {
    end_threads(true);
}

pub fn thread_locals_younger_than_the_threads_index_use_every_store() {
    end_threads(false);
}
