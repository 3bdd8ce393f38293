//! Unit tests of `src/core/threads.rs`.

use super::*;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Barrier;

#[test]
fn running_threads_have_different_indices() {
    let threads = 64;
    let barrier = Barrier::new(threads);
    let all: Vec<usize> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let at = index().number();
                    assert_eq!(at, index().number());
                    barrier.wait();
                    at
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), threads);
}

#[test]
fn an_ending_thread_borrows_one_index_at_a_time() {
    struct AtExit(std::sync::mpsc::Sender<[usize; 2]>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            let held = index();
            let _ = self.0.send([held.number(), index().number()]);
        }
    }
    thread_local!(static LAST: Cell<Option<AtExit>> = const { Cell::new(None) });
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Registered before the index, so destroyed after it or before it: both must work.
        LAST.with(|last| last.set(Some(AtExit(sender))));
        index();
    })
    .join()
    .unwrap();
    let [held, again] = receiver.recv().unwrap();
    assert!(held < UNKNOWN);
    assert_eq!(held, again);
}

/// In a destructor that runs after this thread's own index has gone, a borrowed index is kept by
/// what holds it on.
#[test]
fn an_index_that_an_ending_thread_holds_on_is_no_other_threads() {
    struct AtExit(std::sync::mpsc::Sender<[usize; 2]>);
    impl Drop for AtExit {
        fn drop(&mut self) {
            let _held = hold();
            let other = std::thread::spawn(|| index().number()).join();
            let _ = self.0.send([index().number(), other.unwrap_or(UNKNOWN)]);
        }
    }
    thread_local!(static LAST: RefCell<Option<AtExit>> = const { RefCell::new(None) });
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        LAST.with(|last| last.replace(Some(AtExit(sender))));
        index();
    })
    .join()
    .unwrap();
    let [mine, other] = receiver.recv().unwrap();
    assert_ne!(mine, other);
}

#[test]
fn stripes_are_distinct_and_stay_put() {
    let stripes: Stripes<Counter> = Stripes::new(Counter::default);
    for index in 0..500 {
        stripes.numbered(index).add(index as u64);
    }
    for index in 0..500 {
        assert_eq!(stripes.numbered(index).get(), index as u64);
    }
    let counted: Vec<u64> = stripes.iter().map(Counter::get).collect();
    assert!(counted.into_iter().eq(0..500));
}

#[test]
fn a_high_index_makes_one_stripe() {
    let made = std::sync::Arc::new(AtomicU64::new(0));
    let counts = made.clone();
    let stripes = Stripes::new(move || counts.fetch_add(1, Ordering::Relaxed));
    for index in [5000, 63, 64, 5000] {
        stripes.numbered(index);
    }
    assert_eq!(made.load(Ordering::Relaxed), 3);
    assert_eq!(stripes.iter().count(), 3);
}
