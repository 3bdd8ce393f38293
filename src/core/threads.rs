//! A small index for each running thread, and one stripe of an engine's private data per index.
//!
//! A stripe holds what only its thread writes: where it is looking for free slots, and its share of the
//! counters. An index belongs to one running thread at a time; when the thread ends, the next new
//! one may get it. Nothing in a stripe decides anything: the counters are statistics and the hand is a
//! hint, so they are plain relaxed loads and stores and cost no read-modify-write.

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
    fn drop(&mut self) {
        let _ = INDEX.try_with(|cached| cached.set(UNKNOWN));
        give_back(self.0);
    }
}

const UNKNOWN: usize = usize::MAX;

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNED: Owned = Owned(take());
}

/// The model checker's threads take turns on one thread of the system, so each has its own index by its
/// number in the model.
#[cfg(expiry_loom)]
pub(crate) fn with_index<R>(f: impl FnOnce(usize) -> R) -> R {
    loom::thread_local!(static NUMBER: usize = {
        let id = format!("{:?}", loom::thread::current().id());
        let digits = id.trim_matches(|c: char| !c.is_ascii_digit());
        digits.parse().expect("loom prints the number of a thread")
    });
    f(NUMBER.with(|&number| number))
}

/// Calls `f` with an index that no other running thread has meanwhile.
#[cfg(not(expiry_loom))]
#[inline]
pub(crate) fn with_index<R>(f: impl FnOnce(usize) -> R) -> R {
    let index = INDEX.try_with(Cell::get).unwrap_or(UNKNOWN);
    if index == UNKNOWN {
        with_fresh_index(f)
    } else {
        f(index)
    }
}

#[cold]
fn with_fresh_index<R>(f: impl FnOnce(usize) -> R) -> R {
    if let Ok(index) = OWNED.try_with(|owned| owned.0) {
        let _ = INDEX.try_with(|cached| cached.set(index));
        return f(index);
    }
    // The thread is ending and has given its index back: borrow one for this call only.
    let borrowed = Owned(take());
    f(borrowed.0)
}

/// One `T` per thread index, made on first use, never moved, freed with the engine.
pub(crate) struct Stripes<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    /// Block `k` holds `FIRST_STRIPES << k` stripes.
    blocks: [AtomicPtr<T>; STRIPE_BLOCKS],
}

const STRIPE_BLOCKS: usize = 24;
const FIRST_STRIPES: usize = 8;

impl<T> Stripes<T> {
    pub(crate) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        Stripes {
            make: Box::new(make),
            blocks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        }
    }

    #[inline]
    fn place(index: usize) -> (usize, usize) {
        let shifted = index + FIRST_STRIPES;
        let block = (shifted.ilog2() - FIRST_STRIPES.ilog2()) as usize;
        (block, shifted - (FIRST_STRIPES << block))
    }

    /// The stripe of thread index `index`. Allocates on the first use of its block.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &T {
        let (block, at) = Self::place(index);
        let mut stripes = self.blocks[block].load(Ordering::Acquire);
        if stripes.is_null() {
            stripes = self.make_block(block);
        }
        // SAFETY: a block is published with all its stripes and freed only with `self`; `place` keeps
        // `at` below the block's length.
        unsafe { &*stripes.add(at) }
    }

    #[cold]
    fn make_block(&self, block: usize) -> *mut T {
        let length = FIRST_STRIPES << block;
        let stripes: Box<[T]> = (0..length).map(|_| (self.make)()).collect();
        let stripes = Box::into_raw(stripes).cast::<T>();
        match self.blocks[block].compare_exchange(
            std::ptr::null_mut(),
            stripes,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => stripes,
            Err(theirs) => {
                // SAFETY: made above with this length, and not published.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(stripes, length)) });
                theirs
            }
        }
    }

    /// All stripes that exist, in no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().enumerate().flat_map(|(block, stripes)| {
            let stripes = stripes.load(Ordering::Acquire);
            let length = if stripes.is_null() {
                0
            } else {
                FIRST_STRIPES << block
            };
            // SAFETY: a published block has this many stripes and lives as long as `self`.
            (0..length).map(move |at| unsafe { &*stripes.add(at) })
        })
    }
}

impl<T> Drop for Stripes<T> {
    fn drop(&mut self) {
        for (block, stripes) in self.blocks.iter_mut().enumerate() {
            let stripes = *stripes.get_mut();
            if !stripes.is_null() {
                let length = FIRST_STRIPES << block;
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
                        let index = with_index(|index| index);
                        assert_eq!(index, with_index(|index| index));
                        barrier.wait();
                        index
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).collect()
        });
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), threads);
    }

    #[test]
    fn an_ending_thread_borrows_an_index() {
        struct AtExit(std::sync::mpsc::Sender<usize>);
        impl Drop for AtExit {
            fn drop(&mut self) {
                let _ = self.0.send(with_index(|index| index));
            }
        }
        thread_local!(static LAST: Cell<Option<AtExit>> = const { Cell::new(None) });
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Registered before the index, so destroyed after it or before it: both must work.
            LAST.with(|last| last.set(Some(AtExit(sender))));
            with_index(|_| ());
        })
        .join()
        .unwrap();
        assert!(receiver.recv().unwrap() < UNKNOWN);
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
