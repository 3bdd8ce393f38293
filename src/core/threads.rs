//! A small index for each running thread, and one stripe of an engine's private data per index.
//!
//! A stripe holds what only its thread writes: where it is looking for free slots, and its share of the
//! counters. An index belongs to one running thread at a time; when the thread ends, the next new
//! one may get it. Nothing in a stripe decides anything for another thread: the counters are statistics and the hand is a
//! hint, so they are plain relaxed loads and stores and cost no read-modify-write. One word is for others: what its thread has yet to
//! tell the driver (`engine`, `Stripe::telling`).

use crate::inject::{hit, Bug};
use std::cell::Cell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Indices are handed out from blocks of this many words of 64, chained without limit.
const WORDS: usize = 16;

struct Block {
    taken: [AtomicU64; WORDS],
    next: AtomicPtr<Block>,
}

#[allow(clippy::declare_interior_mutable_const)] // only ever used as an initialiser
const NONE_TAKEN: AtomicU64 = AtomicU64::new(0);

impl Block {
    const fn new() -> Self {
        Block {
            taken: [NONE_TAKEN; WORDS],
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
}

static FIRST: Block = Block::new();

/// The block after `block`; made if there is none yet. Blocks are never freed: there are as many as
/// the largest number of threads that ever ran at once needs, 1024 to a block.
fn after(block: &'static Block) -> &'static Block {
    let mut next = block.next.load(Ordering::Acquire);
    if next.is_null() {
        let fresh = Box::into_raw(Box::new(Block::new()));
        // Release: who sees the pointer sees the block; Acquire for the one who loses.
        match block.next.compare_exchange(
            std::ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => next = fresh,
            Err(theirs) => {
                // SAFETY: `fresh` came from `Box::into_raw` above and was not published.
                drop(unsafe { Box::from_raw(fresh) });
                next = theirs;
            }
        }
    }
    // SAFETY: a published block is never freed.
    unsafe { &*next }
}

/// Takes the lowest index that is free. Lock-free.
fn take() -> usize {
    let mut block = &FIRST;
    let mut base = 0;
    loop {
        for (at, word) in block.taken.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // Acquire pairs with `give_back`: what the former owner wrote in its stripes is seen.
                match word.compare_exchange(
                    seen,
                    seen | 1 << bit,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return base + at * 64 + bit as usize,
                    Err(now) => seen = now,
                }
            }
        }
        block = after(block);
        base += WORDS * 64;
    }
}

fn give_back(index: usize) {
    let mut block = &FIRST;
    for _ in 0..index / (WORDS * 64) {
        block = after(block);
    }
    block.taken[index / 64 % WORDS].fetch_and(!(1 << (index % 64)), Ordering::Release);
}

struct Owned(usize);

impl Drop for Owned {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let _ = INDEX.try_with(|cached| cached.set(UNKNOWN));
        if !hit(Bug::DeadThread) {
            give_back(self.0);
        }
    }
}

const UNKNOWN: usize = usize::MAX;

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNED: Owned = Owned(take());
}

/// An index that no other running thread has while this is held.
pub(crate) struct Index {
    index: usize,
    /// Held for this one call only: the thread is ending, and has given its own back.
    _borrowed: Option<Owned>,
}

impl Index {
    #[inline(always)]
    pub(crate) fn get(&self) -> usize {
        self.index
    }
}

/// The model checker's threads take turns on one thread of the system, so each has its own index by its
/// number in the model.
#[cfg(expiry_loom)]
pub(crate) fn index() -> Index {
    loom::thread_local!(static NUMBER: usize = {
        let id = format!("{:?}", loom::thread::current().id());
        let digits = id.trim_matches(|c: char| !c.is_ascii_digit());
        digits.parse().expect("loom prints the number of a thread")
    });
    Index {
        index: NUMBER.with(|&number| number),
        _borrowed: None,
    }
}

/// This thread's index. Wait-free but for a thread's first call.
#[cfg(not(expiry_loom))]
#[inline(always)]
pub(crate) fn index() -> Index {
    let index = INDEX.try_with(Cell::get).unwrap_or(UNKNOWN);
    if index == UNKNOWN {
        return fresh_index();
    }
    Index {
        index,
        _borrowed: None,
    }
}

#[cold]
#[inline(never)]
fn fresh_index() -> Index {
    if let Ok(index) = OWNED.try_with(|owned| owned.0) {
        let _ = INDEX.try_with(|cached| cached.set(index));
        return Index {
            index,
            _borrowed: None,
        };
    }
    let borrowed = Owned(take());
    // What the call calls finds the same one, until it is given back.
    let _ = INDEX.try_with(|cached| cached.set(borrowed.0));
    Index {
        index: borrowed.0,
        _borrowed: Some(borrowed),
    }
}

/// One `T` per thread index, made on first use, never moved, freed with the engine.
pub(crate) struct Stripes<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    /// By log2 of `index + FIRST_STRIPES`: where the stripe of index 0 would lie if the block began with it. Each block
    /// holds twice as many stripes as the one before. Null until it exists.
    origins: [AtomicPtr<T>; usize::BITS as usize],
}

const FIRST_STRIPES: usize = 8;

impl<T> Stripes<T> {
    pub(crate) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Stripes {
            make: Box::new(make),
            origins: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        }
    }

    /// The first index of a block, and how many it has.
    #[inline]
    fn block(block: usize) -> (usize, usize) {
        let length = 1 << block;
        (length - FIRST_STRIPES, length)
    }

    /// The stripe of thread index `index`. Allocates on the first use of its block.
    #[inline(always)]
    pub(crate) fn get(&self, index: usize) -> &T {
        // With the lowest bit set the logarithm is the same, and known to exist.
        let block = ((index + FIRST_STRIPES) | 1).ilog2() as usize;
        let mut origin = self.origins[block].load(Ordering::Acquire);
        if origin.is_null() {
            origin = self.make_block(block);
        }
        // SAFETY: a block is published with all its stripes and freed only with `self`; the index is one of
        // its own, so the sum is a stripe's address, with the block's provenance.
        unsafe { &*origin.wrapping_add(index) }
    }

    #[cold]
    #[inline(never)]
    fn make_block(&self, block: usize) -> *mut T {
        let (first, length) = Self::block(block);
        let stripes: Box<[T]> = (0..length).map(|_| (self.make)()).collect();
        let stripes = Box::into_raw(stripes).cast::<T>();
        let origin = stripes.wrapping_sub(first);
        match self.origins[block].compare_exchange(
            std::ptr::null_mut(),
            origin,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => origin,
            Err(theirs) => {
                // SAFETY: made above with this length, and not published.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(stripes, length)) });
                theirs
            }
        }
    }

    /// All stripes that exist, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.origins.iter().enumerate().flat_map(|(block, origin)| {
            let origin = origin.load(Ordering::Acquire);
            let (first, length) = if origin.is_null() {
                (0, 0)
            } else {
                Self::block(block)
            };
            // SAFETY: a published block has these stripes and lives as long as `self`.
            (first..first + length).map(move |index| unsafe { &*origin.wrapping_add(index) })
        })
    }
}

impl<T> Drop for Stripes<T> {
    fn drop(&mut self) {
        for (block, origin) in self.origins.iter_mut().enumerate() {
            let origin = *origin.get_mut();
            if !origin.is_null() {
                let (first, length) = Self::block(block);
                let stripes = origin.wrapping_add(first);
                // SAFETY: made by `make_block` with this length; `&mut self`: nobody uses it any more.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(stripes, length)) });
            }
        }
    }
}

/// A counter that one thread at a time writes and any may read. No read-modify-write.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(
            self.0.load(Ordering::Relaxed).wrapping_add(n),
            Ordering::Relaxed,
        );
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// What has come less what has gone, by these counters. May be less than nothing.
    pub(crate) fn balance(come: &[&Counter], gone: &[&Counter]) -> u64 {
        let sum = |counters: &[&Counter]| {
            let add = |sum: u64, counter: &&Counter| sum.wrapping_add(counter.get());
            counters.iter().fold(0, add)
        };
        sum(come).wrapping_sub(sum(gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                        let at = index().get();
                        assert_eq!(at, index().get());
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
                let _ = self.0.send([held.get(), index().get()]);
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

    #[test]
    fn stripes_are_distinct_and_stay_put() {
        let stripes: Stripes<Counter> = Stripes::new(Counter::default);
        for index in 0..100 {
            stripes.get(index).add(index as u64);
        }
        for index in 0..100 {
            assert_eq!(stripes.get(index).get(), index as u64);
        }
        assert_eq!(stripes.iter().map(Counter::get).sum::<u64>(), 99 * 100 / 2);
    }
}
