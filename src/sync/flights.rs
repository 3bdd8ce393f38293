//! Loads in flight: of several callers that want one key's value, one loads, and the others wait.
//!
//! A *flight* is one load of one key. The caller that begins it is its loader, and the callers that
//! come while it is in the table wait for its [`Outcome`]. The flight holds its outcome until the
//! last of them has let go of it, so none of them loads again, whatever becomes of the entry.
//!
//! ```text
//!   begin ──> in the table ──> over: it leaves the table, and then has its outcome
//!                  │                        ▲
//!                  └──> invalidated, or parked: it leaves the table, and its loader goes on
//! ```
//!
//! The table finds a flight by the key's 64-bit hash. Keys of one hash are loaded one after the
//! other: a caller that waited compares the keys, and takes only its own key's outcome.
//!
//! A removal *invalidates*: it takes the flight out of the table before it looks for the entry, so
//! the next caller begins a flight of its own. The loader puts its value in *withheld*: no look-up
//! finds it. Then it asks whether the flight was invalidated, and if not, shows the entry. It does
//! both under the lock that an invalidation takes: if the question came first, the removal finds
//! the entry shown; else the loader takes the entry back (model `a_load_beside_a_removal`). An
//! insertion does the same, because its entry may end before the loader's comes
//! (model `a_load_beside_an_insertion_that_ends`).
//!
//! A task that keeps a loading future unpolled, and awaits the same key elsewhere, would wait for
//! ever. So the load is polled with a waker of its own, an [`Alarm`], which notes that it was woken
//! and wakes the task. A waiting future of that task that finds it so wakes the task again. If the
//! load is still not polled when the waiting future has been polled [`PATIENCE`] times more, that
//! *abandons* the flight, and all that wait look again. (A `join!` or a `select!` polls its futures
//! in any order, and may pass one over for some turns.) The map then does not keep what the parked
//! loader loads.
//!
//! A thread inside a call of the user's code waits for no load: the loader may wait for that very
//! thread ([`kit::panics`](crate::kit::panics)). It loads *beside* the other flight, under a hash
//! of its own, and the map does not keep that value.
//!
//! The loader puts the value into the map before the flight leaves the table. So a caller that
//! finds no flight, and then no value, was not too early (model `one_of_two_loads`).
//!
//! Threads hold the table's locks and a flight's briefly, never both, and run no user code then.

use super::{thread, AtomicU64, Condvar, Mutex, MutexGuard, Ordering};
use crate::hash::RandomState;
#[cfg(feature = "async")]
use crate::kit::panics::caught;
use std::any::Any;
use std::collections::hash_map::{DefaultHasher, Entry, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Instant;
#[cfg(feature = "async")]
use std::{
    collections::BTreeMap,
    future::{poll_fn, Future},
    pin::pin,
    sync::atomic::AtomicBool,
    task::{Context, Poll, Wake, Waker},
};

/// How many parts the table has, each with a lock of its own.
const PARTS: usize = if cfg!(expiry_loom) { 1 } else { 32 };

type Part<K, V> = Mutex<HashMap<u64, Arc<Flight<K, V>>, RandomState>>;

/// The table of flights.
pub(crate) struct Flights<K, V> {
    parts: Box<[Part<K, V>]>,
    /// Number of flights in the table.
    in_table: AtomicU64,
}

/// The flight that is there already, and the key of the one that is not put in.
type There<K, V> = (Arc<Flight<K, V>>, K);

/// One load of one key.
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
    /// What wakes the loader, where its load is a future.
    #[cfg(feature = "async")]
    alarm: Option<Arc<Alarm>>,
}

/// How often a waiting future is polled beside a load that was woken and is not polled.
#[cfg(feature = "async")]
const PATIENCE: u32 = 8;

/// The waker of a load. It notes that the load was woken since its last poll.
#[cfg(feature = "async")]
#[derive(Default)]
struct Alarm {
    is_woken: AtomicBool,
    /// The waker of the load's last poll.
    task: Mutex<Option<Arc<Waker>>>,
}

#[cfg(feature = "async")]
impl Alarm {
    /// The load is about to be polled by the task of this waker.
    fn disarm(&self, waker: &Waker) {
        self.is_woken.store(false, Ordering::SeqCst);
        if !self.is_of(waker) {
            // The waker's `clone` and `drop` are the user's code: they run outside the lock.
            let waker = Arc::new(waker.clone());
            let before = lock(&self.task).replace(waker);
            drop(before);
        }
    }

    fn is_of(&self, waker: &Waker) -> bool {
        lock(&self.task).as_ref().is_some_and(|task| task.will_wake(waker))
    }

    /// Whether the load of this very task was woken, and has not been polled since.
    fn is_missed_by(&self, waker: &Waker) -> bool {
        self.is_woken.load(Ordering::SeqCst) && self.is_of(waker)
    }
}

#[cfg(feature = "async")]
impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        let task = lock(&self.task).clone();
        task.iter().for_each(|task| task.wake_by_ref());
    }
}

/// How a flight ended.
pub(crate) enum Outcome<V> {
    Loaded(V),
    Failed(Arc<dyn Any + Send + Sync>),
    /// Its loader panicked, was cancelled or parked, or dropped its guard: a waiting caller loads.
    Abandoned,
}

/// What [`Flights::begin`] gives a caller.
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
    /// How often in a row this found the load woken and not polled.
    #[cfg(feature = "async")]
    missed: u32,
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

    /// Begins to load the value of a key with this hash, unless another caller loads one, and this
    /// one `waits` for that. `blocks` if the caller is a thread that blocks until its load is over.
    pub(crate) fn begin(
        &self,
        hash: u64,
        key: impl FnOnce() -> K,
        blocks: bool,
        waits: bool,
    ) -> Begun<'_, K, V> {
        let me = blocks.then(|| thread::current().id());
        let before = lock(self.part(hash)).get(&hash).cloned();
        let (before, key) = match before {
            Some(flight) if waits || flight.loader == me => return Begun::of(flight, me),
            Some(flight) => (flight, key()),
            None => match self.enter(hash, key(), me) {
                Ok(loading) => return Begun::Loader(loading),
                Err(before) => before,
            },
        };
        if waits || before.loader == me {
            // Before the load is on its way out: a `Drop` that panics would leak it.
            drop(key);
            return Begun::of(before, me);
        }
        let own = BuildHasherDefault::<DefaultHasher>::default().hash_one(me);
        match self.enter(hash ^ own, key, me) {
            Ok(loading) => {
                lock(&loading.flight.state).is_invalidated = true;
                Begun::Loader(loading)
            }
            Err((flight, key)) => {
                drop(key);
                Begun::of(flight, me)
            }
        }
    }

    /// Puts a flight into the table, or returns the one that is there, with the key.
    fn enter(
        &self,
        hash: u64,
        key: K,
        loader: Option<thread::ThreadId>,
    ) -> Result<Loading<'_, K, V>, There<K, V>> {
        match lock(self.part(hash)).entry(hash) {
            Entry::Occupied(before) => Err((before.get().clone(), key)),
            Entry::Vacant(place) => {
                let (outcome, state, over) = (OnceLock::new(), Mutex::default(), Condvar::new());
                let flight = Arc::new(Flight { hash, key, loader, outcome, state, over });
                place.insert(flight.clone());
                self.in_table.fetch_add(1, Ordering::SeqCst);
                Ok(Loading { flights: self, flight })
            }
        }
    }

    /// Invalidates the flight of this hash, if there is one: its value is not kept. Costs one load
    /// where no flight is in the table. The caller looks for the entry afterwards.
    #[inline]
    pub(crate) fn invalidate(&self, hash: impl FnOnce() -> u64) {
        if self.are_there() {
            self.invalidate_one(hash());
        }
    }

    /// Whether a flight is in the table.
    #[inline]
    pub(crate) fn are_there(&self) -> bool {
        // Pairs with the addition in `enter`: if this finds zero, the loader reads its source later
        // than the caller has changed that, by a lock or in the one order of `SeqCst` operations.
        // survives: loom takes a `SeqCst` load for Acquire. This holds for `in_table` everywhere.
        self.in_table.load(Ordering::SeqCst) != 0
    }

    #[cold]
    fn invalidate_one(&self, hash: u64) {
        let flight = lock(self.part(hash)).remove(&hash);
        if let Some(flight) = flight {
            self.in_table.fetch_sub(1, Ordering::SeqCst);
            lock(&flight.state).is_invalidated = true;
        }
    }

    pub(crate) fn invalidate_all(&self) {
        if !self.are_there() {
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

    fn take_out(&self, flight: &Arc<Flight<K, V>>) {
        let taken = match lock(self.part(flight.hash)).entry(flight.hash) {
            Entry::Occupied(there) if Arc::ptr_eq(there.get(), flight) => Some(there.remove()),
            _ => None,
        };
        if taken.is_some() {
            self.in_table.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Ends a flight, and wakes all that wait. Gives the outcome back if it was over. Unpinned.
    fn end(&self, flight: &Arc<Flight<K, V>>, outcome: Outcome<V>) -> Result<(), Outcome<V>> {
        self.take_out(flight);
        let state = lock(&flight.state);
        let is_first = flight.outcome.set(outcome);
        #[cfg(feature = "async")]
        let (mut state, tasks) = (state, BTreeMap::new());
        #[cfg(feature = "async")]
        let ended = (std::mem::replace(&mut state.tasks, tasks), state.alarm.take());
        drop(state);
        flight.over.notify_all();
        #[cfg(feature = "async")]
        {
            let (tasks, alarm) = ended;
            for task in tasks.into_values() {
                caught(|| task.wake());
            }
            caught(|| drop(alarm));
        }
        is_first
    }
}

impl<K, V> Flight<K, V> {
    pub(crate) fn key(&self) -> &K {
        &self.key
    }

    pub(crate) fn outcome(&self) -> Option<&Outcome<V>> {
        self.outcome.get()
    }
}

impl<K, V> Begun<'_, K, V> {
    /// For a flight that another call has begun.
    fn of(flight: Arc<Flight<K, V>>, me: Option<thread::ThreadId>) -> Self {
        if me.is_some() && flight.loader == me {
            return Begun::Own;
        }
        Begun::Wait(Waiting {
            flight,
            #[cfg(feature = "async")]
            task: None,
            #[cfg(feature = "async")]
            missed: 0,
        })
    }
}

impl<K, V> Loading<'_, K, V> {
    pub(crate) fn key(&self) -> &K {
        self.flight.key()
    }

    /// Whether a removal or an insertion came first, or a waiting task has abandoned the flight:
    /// then the map is not to keep the value.
    pub(crate) fn is_invalidated(&self) -> bool {
        !self.keeps(|| ())
    }

    /// Calls `show`, unless the flight [is invalidated](Self::is_invalidated), under the lock that
    /// an invalidation takes. Returns whether it was not.
    pub(crate) fn keeps(&self, show: impl FnOnce()) -> bool {
        let state = lock(&self.flight.state);
        let keeps = !state.is_invalidated && self.flight.outcome().is_none();
        if keeps {
            show();
        }
        keeps
    }

    /// Ends the flight, and wakes all that wait. If a waiting task has abandoned it, the returned
    /// flight is a new one with this outcome. The caller is unpinned.
    pub(crate) fn end(self, outcome: Outcome<V>) -> Arc<Flight<K, V>>
    where
        K: Clone,
    {
        let flight = &self.flight;
        match self.flights.end(flight, outcome) {
            Ok(()) => flight.clone(),
            Err(outcome) => {
                let (key, outcome) = (flight.key.clone(), OnceLock::from(outcome));
                let (hash, state, over) = (flight.hash, Mutex::default(), Condvar::new());
                Arc::new(Flight { hash, key, loader: None, outcome, state, over })
            }
        }
    }

    /// Runs the future that loads for all of these flights.
    #[cfg(feature = "async")]
    pub(crate) async fn run<F: Future>(all: &[&Self], load: F) -> F::Output {
        let (mut load, alarm) = (pin!(load), Arc::<Alarm>::default());
        for Loading { flight, .. } in all {
            lock(&flight.state).alarm = Some(alarm.clone());
        }
        let waker = Waker::from(alarm.clone());
        poll_fn(|context| {
            alarm.disarm(context.waker());
            load.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}

impl<K, V> Drop for Loading<'_, K, V> {
    fn drop(&mut self) {
        if self.flight.outcome().is_none() {
            let _late = self.flights.end(&self.flight, Outcome::Abandoned);
        }
    }
}

impl<K, V> Waiting<K, V> {
    pub(crate) fn flight(&self) -> Arc<Flight<K, V>> {
        self.flight.clone()
    }

    /// Blocks until the flight is over, or `until` has come. Returns whether it is over.
    pub(crate) fn wait(&self, until: Option<Instant>) -> bool {
        let Flight { state, outcome, over, .. } = &*self.flight;
        let mut state = lock(state);
        while outcome.get().is_none() {
            let Some(until) = until else {
                state = over.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = over.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ready when the flight is over; else the task is woken then, by the waker of its last poll.
    /// Abandons the flight if the same task loads, and does not poll that load though it was woken.
    #[cfg(feature = "async")]
    pub(crate) fn poll(&mut self, flights: &Flights<K, V>, context: &mut Context<'_>) -> Poll<()> {
        // The waker's `clone` and `drop` are the user's code: they run outside the lock.
        let waker = context.waker().clone();
        let mut state = lock(&self.flight.state);
        if self.flight.outcome().is_some() {
            drop(state);
            return Poll::Ready(());
        }
        let misses = state.alarm.as_ref().is_some_and(|alarm| alarm.is_missed_by(&waker));
        self.missed = if misses { self.missed + 1 } else { 0 };
        if self.missed > PATIENCE {
            drop(state);
            let _late = flights.end(&self.flight, Outcome::Abandoned);
            return Poll::Ready(());
        }
        let task = *self.task.get_or_insert_with(|| {
            state.numbers += 1;
            state.numbers
        });
        let before = state.tasks.insert(task, waker);
        drop(state);
        drop(before);
        if misses {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

#[cfg(feature = "async")]
impl<K, V> Drop for Waiting<K, V> {
    /// Takes the waker back: a load may take longer than many callers wait.
    fn drop(&mut self) {
        if let Some(task) = self.task {
            let waker = lock(&self.flight.state).tasks.remove(&task);
            caught(|| drop(waker));
        }
    }
}
