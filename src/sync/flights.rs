//! Loads in flight: of several callers that want one key's value, one loads it, and the others
//! wait.
//!
//! A *flight* is one load of one key. The caller that begins it is its loader, and the callers that
//! come while it is in the table wait for its [`Outcome`]. The flight holds its outcome until the
//! last of them has let go of it, so none of them loads again, whatever becomes of the entry.
//!
//! ```text
//!   begin ──> in the table ──> over: it leaves the table, and then has its outcome
//!                  │                        ▲
//!                  └──> invalidated: it leaves the table, and its loader goes on
//! ```
//!
//! The table finds a flight by the key's 64-bit hash. Keys of one hash are loaded one after the
//! other: a caller that waited compares the keys, and takes only its own key's outcome.
//!
//! A removal *invalidates*: it takes the flight out of the table before it looks for the entry, so
//! the next caller begins a flight of its own. The loader asks whether that has happened once the
//! value is in the map. Question and invalidation hold one lock: if the question came first, the
//! removal finds the entry; else the loader takes the entry back (model `a_load_beside_a_removal`).
//!
//! The loader puts the value into the map before the flight leaves the table. So a caller that
//! finds no flight, and then no value, was not too early (model `one_of_two_loads`).
//!
//! The table's locks and a flight's are held for some instructions, never both at once. No code of
//! the user's runs under them.

use super::{thread, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::hash::RandomState;
use std::any::Any;
use std::collections::hash_map::{Entry, HashMap};
#[cfg(feature = "async")]
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError};
#[cfg(feature = "async")]
use std::task::{Context, Poll, Waker};

/// How many parts the table has, each with a lock of its own.
const PARTS: usize = if cfg!(expiry_loom) { 1 } else { 32 };

type Part<K, V> = Mutex<HashMap<u64, Arc<Flight<K, V>>, RandomState>>;

/// The table of flights; see the module's head.
pub(crate) struct Flights<K, V> {
    parts: Box<[Part<K, V>]>,
    /// Number of flights in the table.
    in_table: AtomicU64,
}

/// See the module's head.
pub(crate) struct Flight<K, V> {
    hash: u64,
    key: K,
    /// The thread that loads; `None` where a task does.
    loader: Option<thread::ThreadId>,
    outcome: OnceLock<Outcome<V>>,
    state: Mutex<State>,
    /// The flight is over.
    over: Condvar,
}

#[derive(Default)]
struct State {
    is_invalidated: bool,
    /// Number of tasks that have waited.
    #[cfg(feature = "async")]
    numbers: u64,
    /// The tasks that wait, by their numbers.
    #[cfg(feature = "async")]
    tasks: BTreeMap<u64, Waker>,
}

/// What a flight has come to.
pub(crate) enum Outcome<V> {
    Loaded(V),
    Failed(Arc<dyn Any + Send + Sync>),
    /// The loader panicked, was cancelled, or has dropped its guard: a waiting caller loads.
    Abandoned,
}

/// What a caller gets that wants to load.
pub(crate) enum Begun<'a, K, V> {
    /// The caller is the loader.
    Loader(Loading<'a, K, V>),
    /// Another caller loads.
    Wait(Waiting<K, V>),
    /// This thread loads already: it would wait for itself.
    Own,
}

/// The loader's part of a flight. If it is dropped, the flight is over, without a value.
pub(crate) struct Loading<'a, K, V> {
    flights: &'a Flights<K, V>,
    flight: Arc<Flight<K, V>>,
}

/// A flight that another caller is the loader of.
pub(crate) struct Waiting<K, V> {
    flight: Arc<Flight<K, V>>,
    /// The number of the task that waits, from its first registration on.
    #[cfg(feature = "async")]
    task: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread panics under a lock only where there is no memory for a flight.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, V> Flights<K, V> {
    pub(crate) fn new() -> Self {
        let parts = (0..PARTS).map(|_| Mutex::new(HashMap::default())).collect();
        Flights { parts, in_table: AtomicU64::new(0) }
    }

    fn part(&self, hash: u64) -> &Part<K, V> {
        #[allow(clippy::cast_possible_truncation)] // the number of a part
        &self.parts[(hash >> 32) as usize % self.parts.len()]
    }

    /// Begins to load the value of a key with this hash, unless another caller loads one. `blocks`
    /// if the caller is a thread that blocks until its load is over.
    pub(crate) fn begin(&self, hash: u64, key: &K, blocks: bool) -> Begun<'_, K, V>
    where
        K: Clone,
    {
        let (part, me) = (self.part(hash), blocks.then(|| thread::current().id()));
        let before = lock(part).get(&hash).cloned();
        if let Some(flight) = before {
            return Begun::of(flight, me);
        }
        let (key, outcome, state) = (key.clone(), OnceLock::new(), Mutex::default());
        let new = Flight { hash, key, loader: me, outcome, state, over: Condvar::new() };
        let new = Arc::new(new);
        let before = match lock(part).entry(hash) {
            Entry::Occupied(before) => Some(before.get().clone()),
            Entry::Vacant(place) => {
                place.insert(new.clone());
                self.in_table.fetch_add(1, Ordering::SeqCst);
                None
            }
        };
        match before {
            Some(flight) => Begun::of(flight, me),
            None => Begun::Loader(Loading { flights: self, flight: new }),
        }
    }

    /// Invalidates the flight of this hash, if there is one: its value is not kept. Costs one load
    /// where no flight is in the table. The caller looks for the entry afterwards.
    #[inline]
    pub(crate) fn invalidate(&self, hash: impl FnOnce() -> u64) {
        // Pairs with the addition in `begin`: whatever the loader reads after that, the caller has
        // changed before this load if it finds zero.
        if self.in_table.load(Ordering::SeqCst) != 0 {
            self.invalidate_one(hash());
        }
    }

    #[cold]
    fn invalidate_one(&self, hash: u64) {
        let flight = lock(self.part(hash)).remove(&hash);
        if let Some(flight) = flight {
            self.in_table.fetch_sub(1, Ordering::SeqCst);
            lock(&flight.state).is_invalidated = true;
        }
    }

    /// As [`invalidate`](Self::invalidate), of all flights.
    pub(crate) fn invalidate_all(&self) {
        if self.in_table.load(Ordering::SeqCst) == 0 {
            return;
        }
        for part in &*self.parts {
            let flights = std::mem::take(&mut *lock(part));
            self.in_table.fetch_sub(flights.len() as u64, Ordering::SeqCst);
            for flight in flights.into_values() {
                lock(&flight.state).is_invalidated = true;
            }
        }
    }

    /// Takes a flight out of the table, if it is there.
    fn take_out(&self, flight: &Arc<Flight<K, V>>) {
        let taken = match lock(self.part(flight.hash)).entry(flight.hash) {
            Entry::Occupied(there) if Arc::ptr_eq(there.get(), flight) => Some(there.remove()),
            _ => None,
        };
        if taken.is_some() {
            self.in_table.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl<K, V> Flight<K, V> {
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    /// What it has come to, once it is over.
    pub(crate) fn outcome(&self) -> Option<&Outcome<V>> {
        self.outcome.get()
    }
}

impl<K, V> Begun<'_, K, V> {
    /// Of a flight that another call has begun.
    fn of(flight: Arc<Flight<K, V>>, me: Option<thread::ThreadId>) -> Self {
        if me.is_some() && flight.loader == me {
            return Begun::Own;
        }
        Begun::Wait(Waiting {
            flight,
            #[cfg(feature = "async")]
            task: None,
        })
    }
}

impl<K, V> Loading<'_, K, V> {
    /// Whether a removal came first: then the map is not to keep the value.
    pub(crate) fn is_invalidated(&self) -> bool {
        lock(&self.flight.state).is_invalidated
    }

    /// Ends the flight, and wakes what waits. The caller is unpinned.
    pub(crate) fn end(self, outcome: Outcome<V>) -> Arc<Flight<K, V>> {
        self.set(outcome);
        self.flight.clone()
    }

    fn set(&self, outcome: Outcome<V>) {
        let flight = &self.flight;
        self.flights.take_out(flight);
        let state = lock(&flight.state);
        let _late = flight.outcome.set(outcome);
        #[cfg(feature = "async")]
        let (mut state, tasks) = (state, BTreeMap::new());
        #[cfg(feature = "async")]
        let tasks = std::mem::replace(&mut state.tasks, tasks);
        drop(state);
        flight.over.notify_all();
        #[cfg(feature = "async")]
        for task in tasks.into_values() {
            crate::panics::caught(|| task.wake());
        }
    }
}

impl<K, V> Drop for Loading<'_, K, V> {
    fn drop(&mut self) {
        if self.flight.outcome().is_none() {
            self.set(Outcome::Abandoned);
        }
    }
}

impl<K, V> Waiting<K, V> {
    /// The flight that the caller waits for.
    pub(crate) fn flight(&self) -> Arc<Flight<K, V>> {
        self.flight.clone()
    }

    /// Blocks this thread until the flight is over.
    pub(crate) fn wait(&self) {
        let mut state = lock(&self.flight.state);
        while self.flight.outcome().is_none() {
            state = self.flight.over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ready when the flight is over; else the task is woken then, by the waker of its last poll.
    #[cfg(feature = "async")]
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The waker's `clone` and `drop` are the user's code: they run outside the lock.
        let waker = context.waker().clone();
        let mut state = lock(&self.flight.state);
        if self.flight.outcome().is_some() {
            drop(state);
            return Poll::Ready(());
        }
        let task = *self.task.get_or_insert_with(|| {
            state.numbers += 1;
            state.numbers
        });
        let before = state.tasks.insert(task, waker);
        drop(state);
        drop(before);
        Poll::Pending
    }
}

#[cfg(feature = "async")]
impl<K, V> Drop for Waiting<K, V> {
    /// Takes the waker back: a load may take longer than many callers wait.
    fn drop(&mut self) {
        if let Some(task) = self.task {
            let waker = lock(&self.flight.state).tasks.remove(&task);
            crate::panics::caught(|| drop(waker));
        }
    }
}
