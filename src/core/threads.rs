//! A small index for each running thread, and one stripe of an engine's private data per index.
//!
//! A stripe holds what only its thread writes: where it is looking for free slots, and its share of
//! the counters. An index belongs to one running thread at a time; when the thread ends, the next
//! new one may get it. The counters are statistics and the cursor is a hint, so no other thread
//! decides by them, and relaxed loads and stores suffice.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// Indices come from rows of this many words of 64 bits, chained without limit.
const WORDS: usize = 16;

struct Row {
    taken: [AtomicU64; WORDS],
    next: AtomicPtr<Row>,
}

#[allow(clippy::declare_interior_mutable_const)] // only ever used as an initialiser
const NONE_TAKEN: AtomicU64 = AtomicU64::new(0);

impl Row {
    const fn new() -> Self {
        Row { taken: [NONE_TAKEN; WORDS], next: AtomicPtr::new(std::ptr::null_mut()) }
    }
}

static FIRST: Row = Row::new();

/// The row after `row`; made if there is none yet. Rows are never freed: they hold 1024 indices
/// each, for the most threads that ever ran at once.
fn after(row: &'static Row) -> &'static Row {
    // Acquire pairs with `publish`.
    // survives: in models each thread has its number. This holds for `take`, `give_back` and
    // `Vacant::keep`, too.
    let mut next = row.next.load(Ordering::Acquire);
    if next.is_null() {
        next = publish(&row.next, Box::into_raw(Box::new(Row::new())), |fresh| {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(fresh) });
        });
    }
    // SAFETY: a published row is never freed.
    unsafe { &*next }
}

/// Takes the lowest index that is free. Lock-free.
fn take() -> usize {
    let mut row = &FIRST;
    let mut base = 0;
    loop {
        for (at, word) in row.taken.iter().enumerate() {
            let mut seen = word.load(Ordering::Relaxed);
            while seen != u64::MAX {
                let bit = seen.trailing_ones();
                // Acquire pairs with `give_back`: the former owner's stripes are seen.
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
        row = after(row);
        base += WORDS * 64;
    }
}

/// The word of an index, and its bit there.
fn bit_of(index: usize) -> (&'static AtomicU64, u64) {
    let mut row = &FIRST;
    for _ in 0..index / (WORDS * 64) {
        row = after(row);
    }
    (&row.taken[index / 64 % WORDS], 1 << (index % 64))
}

fn give_back(index: usize) {
    let (word, bit) = bit_of(index);
    word.fetch_and(!bit, Ordering::Release);
}

/// Keeps from all threads, while it lives, an index that no thread has.
pub(crate) struct Vacant(usize);

impl Vacant {
    /// `None` if a thread has the index.
    #[cfg_attr(expiry_loom, allow(dead_code))] // a model's threads have their numbers
    pub(crate) fn keep(index: usize) -> Option<Self> {
        let (word, bit) = bit_of(index);
        // Acquire pairs with `give_back`, as in `take`.
        let before = word.fetch_or(bit, Ordering::Acquire);
        // `then`, not `then_some`: a `Vacant` made in vain would free another thread's index.
        (before & bit == 0).then(|| Vacant(index))
    }
}

impl Drop for Vacant {
    fn drop(&mut self) {
        give_back(self.0);
    }
}

/// The index that this thread has taken. Dropped when the thread ends.
struct Owned(usize);

impl Owned {
    fn take() -> Self {
        HELD.with(|held| held.set(held.get() + OWN));
        Owned(take())
    }
}

impl Drop for Owned {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        // A thread-local of the user's may hold a pin for longer than this.
        let_go(OWN);
    }
}

/// Keeps this thread's index for as long as it lives, even beyond the thread's end.
pub(crate) struct Holding {
    index: usize,
    _not_send: PhantomData<*mut ()>,
}

impl Holding {
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        self.index
    }
}

impl Drop for Holding {
    #[inline(always)]
    fn drop(&mut self) {
        let_go(1);
    }
}

/// Whether this thread is pinned in any store.
pub(crate) fn is_pinned() -> bool {
    HELD.with(Cell::get) % OWN != 0
}

/// Drops one hold of this thread's index. The last hold gives the index back.
#[inline(always)]
fn let_go(kept: usize) {
    let held = HELD.with(|held| {
        held.set(held.get() - kept);
        held.get()
    });
    if held == 0 {
        forget();
    }
}

/// Gives this thread's index back.
#[cold]
#[inline(never)]
fn forget() {
    let index = INDEX.with(|cached| cached.replace(UNKNOWN));
    // A model's threads have none to give back.
    if index != UNKNOWN {
        give_back(index);
    }
}

const UNKNOWN: usize = usize::MAX;

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(UNKNOWN) };
    /// What keeps this thread's index: each [`Holding`] counts one, and an [`Owned`] counts
    /// [`OWN`]. It has no destructor, so it is there to the thread's end.
    static HELD: Cell<usize> = const { Cell::new(0) };
    static OWNED: Owned = Owned::take();
}

const OWN: usize = 1 << (usize::BITS / 2);

/// This thread's index: no other running thread has it while this lives.
pub(crate) struct Index {
    index: usize,
    /// Held for one call only: the thread is ending, and has given its own index back.
    _borrowed: Option<Owned>,
}

impl Index {
    /// Its number, which may be another thread's later: stripes are looked up by the [`Index`].
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        self.index
    }

    /// Keeps the index beyond this value. The borrow shows that no other thread has the index when
    /// the count goes up: in a thread-local's destructor this value may be all that keeps it.
    #[inline(always)]
    fn hold(&self) -> Holding {
        HELD.with(|held| held.set(held.get() + 1));
        Holding { index: self.index, _not_send: PhantomData }
    }
}

#[inline(always)]
pub(crate) fn hold() -> Holding {
    match known() {
        Some(index) => index.hold(),
        // Here, so that the common way has nothing to drop.
        None => fresh_index().hold(),
    }
}

/// A model's threads share one system thread: each has its own index by its number in the model.
#[cfg(expiry_loom)]
fn known() -> Option<Index> {
    loom::thread_local!(static NUMBER: usize = {
        let id = format!("{:?}", loom::thread::current().id());
        let digits = id.trim_matches(|c: char| !c.is_ascii_digit());
        digits.parse().expect("loom prints the number of a thread")
    });
    Some(Index { index: NUMBER.with(|&number| number), _borrowed: None })
}

/// This thread's index, unless it has yet to take one.
#[cfg(not(expiry_loom))]
#[inline(always)]
fn known() -> Option<Index> {
    let index = INDEX.try_with(Cell::get).unwrap_or(UNKNOWN);
    (index != UNKNOWN).then_some(Index { index, _borrowed: None })
}

/// This thread's index. Wait-free after a thread's first call.
#[inline(always)]
pub(crate) fn index() -> Index {
    known().unwrap_or_else(fresh_index)
}

#[cold]
#[inline(never)]
fn fresh_index() -> Index {
    if let Ok(index) = OWNED.try_with(|owned| owned.0) {
        let _ = INDEX.try_with(|cached| cached.set(index));
        return Index { index, _borrowed: None };
    }
    let borrowed = Owned::take();
    // Nested calls find the same index until it is given back.
    let _ = INDEX.try_with(|cached| cached.set(borrowed.0));
    Index { index: borrowed.0, _borrowed: Some(borrowed) }
}

/// One `T` per thread index, made on the thread's first request, never moved, freed with the
/// engine.
///
/// A stripe costs its own memory and a pointer. The pointers of the first [`NEAR`] indices lie in
/// the array itself, so finding a stripe is one load. Those of higher indices lie in rows, each
/// twice as long as the one before.
pub(crate) struct Stripes<T> {
    make: Box<dyn Fn() -> T + Send + Sync>,
    /// The stripes of the indices below [`NEAR`]; null until made.
    near: [AtomicPtr<T>; NEAR],
    /// The row that begins with index `NEAR << n` and has as many pointers; null until made.
    far: [AtomicPtr<AtomicPtr<T>>; FAR],
    /// No index from this one on has a stripe. A walk over all stripes ends here.
    end: AtomicUsize,
}

/// The number of indices whose stripes are one load away. A power of two.
#[cfg(not(expiry_loom))]
const NEAR: usize = 64;
/// A model's threads have small stacks, on which engines are made: their stripes are all near.
#[cfg(expiry_loom)]
const NEAR: usize = LOOM_THREADS.next_power_of_two();

/// The number of rows that all further indices take.
#[cfg(not(expiry_loom))]
const FAR: usize = (usize::BITS - NEAR.ilog2()) as usize;
#[cfg(expiry_loom)]
const FAR: usize = 1;

/// As many threads as a model may have.
#[cfg(expiry_loom)]
const LOOM_THREADS: usize = 4;

/// Puts `fresh` where there was null, or takes it back and returns the winner's pointer.
fn publish<P>(place: &AtomicPtr<P>, fresh: *mut P, take_back: impl FnOnce(*mut P)) -> *mut P {
    // Release: a thread that loads the pointer sees what it points to. Acquire: so does the one
    // that comes too late.
    // survives: both orderings: loom does not see this standard atomic.
    match place.compare_exchange(std::ptr::null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(theirs) => {
            take_back(fresh);
            theirs
        }
    }
}

/// A slice of `len` values on the heap, which [`unbox`] turns into a box again.
fn boxed<P>(len: usize, make: impl FnMut(usize) -> P) -> *mut P {
    let values: Box<[P]> = (0..len).map(make).collect();
    Box::into_raw(values).cast()
}

/// # Safety
///
/// `first` came from [`boxed`] with this `len`, and nothing uses it any more.
unsafe fn unbox<P>(first: *mut P, len: usize) -> Box<[P]> {
    // SAFETY: the caller's promise.
    unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(first, len)) }
}

impl<T> Stripes<T> {
    pub(crate) fn new(make: impl Fn() -> T + Send + Sync + 'static) -> Self {
        let stripes = Stripes {
            make: Box::new(make),
            near: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            far: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            end: AtomicUsize::new(0),
        };
        // Loom's atomics are made before other threads look: loom does not see the publication.
        #[cfg(expiry_loom)]
        (0..LOOM_THREADS).for_each(|index| {
            stripes.numbered(index);
        });
        stripes
    }

    /// The stripe of `index`, which the first call allocates.
    #[inline(always)]
    pub(crate) fn get<'a>(&'a self, index: &'a Index) -> &'a T {
        self.numbered(index.number())
    }

    /// [`get`](Self::get) by a held index.
    #[inline(always)]
    pub(crate) fn of<'a>(&'a self, holding: &'a Holding) -> &'a T {
        self.numbered(holding.number())
    }

    #[inline(always)]
    fn numbered(&self, index: usize) -> &T {
        if let Some(place) = self.near.get(index) {
            // Acquire pairs with `publish`.
            // survives: loom does not see this standard atomic.
            let stripe = place.load(Ordering::Acquire);
            if !stripe.is_null() {
                // SAFETY: a published stripe is freed only with `self`.
                return unsafe { &*stripe };
            }
        }
        self.get_far(index)
    }

    /// [`numbered`](Self::numbered) for an index that has no stripe yet, or is not near.
    #[inline(never)]
    fn get_far(&self, index: usize) -> &T {
        let place = self.place(index);
        // survives: as in `get`.
        let mut stripe = place.load(Ordering::Acquire);
        if stripe.is_null() {
            // Before the stripe is published: a walk that misses the index began before the stripe.
            self.end.fetch_max(index + 1, Ordering::AcqRel);
            stripe = self.make_stripe(place);
        }
        // SAFETY: as in `get`.
        unsafe { &*stripe }
    }

    /// Where the pointer to the stripe of `index` lies. Makes its row.
    #[inline]
    fn place(&self, index: usize) -> &AtomicPtr<T> {
        loop {
            if let Some(place) = self.known(index) {
                return place;
            }
            self.make_row((index / NEAR).ilog2() as usize);
        }
    }

    /// [`place`](Self::place), if its row is there.
    #[inline]
    fn known(&self, index: usize) -> Option<&AtomicPtr<T>> {
        if index < NEAR {
            return self.near.get(index);
        }
        let nth = (index / NEAR).ilog2() as usize;
        // survives: as in `get`.
        let row = self.far[nth].load(Ordering::Acquire);
        // SAFETY: a published row has `NEAR << nth` pointers, that of the index `NEAR << nth`
        // first, and is freed only with `self`.
        (!row.is_null()).then(|| unsafe { &*row.add(index - (NEAR << nth)) })
    }

    #[cold]
    fn make_stripe(&self, place: &AtomicPtr<T>) -> *mut T {
        let fresh = Box::into_raw(Box::new((self.make)()));
        publish(place, fresh, |fresh| {
            // SAFETY: made above and not published.
            drop(unsafe { Box::from_raw(fresh) });
        })
    }

    #[cold]
    fn make_row(&self, nth: usize) {
        let fresh = boxed(NEAR << nth, |_| AtomicPtr::new(std::ptr::null_mut()));
        publish(&self.far[nth], fresh, |fresh| {
            // SAFETY: made above with this length and not published.
            drop(unsafe { unbox(fresh, NEAR << nth) });
        });
    }

    /// All stripes that exist, in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.indexed().map(|(_, stripe)| stripe)
    }

    /// [`iter`](Self::iter), with the indices.
    pub(crate) fn indexed(&self) -> impl Iterator<Item = (usize, &T)> {
        // survives: as in `get`.
        let end = self.end.load(Ordering::Acquire);
        (0..end).filter_map(|index| {
            let stripe = self.known(index)?.load(Ordering::Acquire);
            // SAFETY: as in `get`.
            unsafe { stripe.as_ref() }.map(|stripe| (index, stripe))
        })
    }
}

impl<T> Drop for Stripes<T> {
    fn drop(&mut self) {
        let free = |place: &mut AtomicPtr<T>| {
            let stripe = *place.get_mut();
            if !stripe.is_null() {
                // SAFETY: made by `make_stripe`; `&mut self`: nothing uses it any more.
                drop(unsafe { Box::from_raw(stripe) });
            }
        };
        self.near.iter_mut().for_each(free);
        for (nth, row) in self.far.iter_mut().enumerate() {
            let row = *row.get_mut();
            if !row.is_null() {
                // SAFETY: made by `make_row` with this length; `&mut self`: nothing uses it any
                // more.
                let mut places = unsafe { unbox(row, NEAR << nth) };
                places.iter_mut().for_each(free);
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
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts. The counter may wrap below zero.
    #[inline]
    pub(crate) fn sub(&self, n: u64) {
        self.add(n.wrapping_neg());
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The sum of `come` less the sum of `gone`. May wrap below zero.
    pub(crate) fn balance(come: &[&Counter], gone: &[&Counter]) -> u64 {
        let sum = |counters: &[&Counter]| {
            let add = |sum: u64, counter: &&Counter| sum.wrapping_add(counter.get());
            counters.iter().fold(0, add)
        };
        sum(come).wrapping_sub(sum(gone))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/core_threads.rs"]
mod tests;
