//! Loads in flight: of several callers that want one key's value, one loads it, and the others wait.
//!
//! A *flight* is one load of one key, named by the key's 64-bit hash: two keys of one hash are loaded
//! one after the other. The table of flights is locked for the few steps that add a flight, remove
//! it, or register a task. No code of the user's runs under the lock. Callers that find their value
//! come nowhere near it.
//!
//! The [`Flight`] that [`Flights::begin`] returns is the loader's. When it is dropped, whether the
//! load has succeeded, failed, panicked or was cancelled, the flight is over and all that wait look
//! again: they find the value, or one of them becomes the loader. The loader puts the value into the
//! map first, so a caller that finds no flight, and then no value, was not too early (models
//! `one_of_two_loads`, `a_failed_load_hands_over`).

use super::{thread, Condvar, Mutex, MutexGuard};
#[cfg(feature = "async")]
use std::{
    collections::BTreeMap,
    task::{Context, Poll, Waker},
};

/// How many parts the table has, each with a lock of its own.
const PARTS: usize = if cfg!(expiry_loom) { 1 } else { 32 };

/// See the module's head.
pub(crate) struct Flights(Box<[Part]>);

#[derive(Default)]
struct Part {
    state: Mutex<State>,
    /// A flight of this part is over.
    over: Condvar,
}

#[derive(Default)]
struct State {
    /// How many numbers this part has given out, to flights and to tasks that wait.
    numbers: u64,
    flying: Vec<Flying>,
}

struct Flying {
    hash: u64,
    number: u64,
    /// The thread that loads; `None` where a task does.
    loader: Option<thread::ThreadId>,
    /// The tasks that wait, by their numbers.
    #[cfg(feature = "async")]
    tasks: BTreeMap<u64, Waker>,
}

/// What a caller gets that wants to load.
pub(crate) enum Begun<'a> {
    /// The caller is the loader.
    Loader(Flight<'a>),
    /// Another caller loads.
    Wait(Waiting<'a>),
    /// This thread loads already: it would wait for itself.
    Own,
}

/// The loader's part of a flight, which ends with it.
pub(crate) struct Flight<'a> {
    part: &'a Part,
    number: u64,
}

/// A flight that another caller is the loader of.
pub(crate) struct Waiting<'a> {
    part: &'a Part,
    number: u64,
    /// The number of the task that waits, from its first registration on.
    #[cfg(feature = "async")]
    task: Option<u64>,
}

impl Part {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread panics under the lock only where there is no memory for a flight.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl State {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.flying.iter().position(|flying| flying.number == number)
    }
}

impl Flights {
    pub(crate) fn new() -> Self {
        Flights((0..PARTS).map(|_| Part::default()).collect())
    }

    /// Begins to load the value of the key with this hash, unless another caller does. `blocks` if
    /// the caller is a thread that blocks until its load is over.
    pub(crate) fn begin(&self, hash: u64, blocks: bool) -> Begun<'_> {
        #[allow(clippy::cast_possible_truncation)] // the number of a part
        let part = &self.0[(hash >> 32) as usize % self.0.len()];
        let me = blocks.then(|| thread::current().id());
        let mut state = part.lock();
        if let Some(flying) = state.flying.iter().find(|flying| flying.hash == hash) {
            return match flying.loader {
                Some(_) if flying.loader == me => Begun::Own,
                _ => Begun::Wait(Waiting {
                    part,
                    number: flying.number,
                    #[cfg(feature = "async")]
                    task: None,
                }),
            };
        }
        let number = state.next_number();
        state.flying.push(Flying {
            hash,
            number,
            loader: me,
            #[cfg(feature = "async")]
            tasks: BTreeMap::new(),
        });
        Begun::Loader(Flight { part, number })
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut state = self.part.lock();
        let Some(at) = state.position(self.number) else {
            return;
        };
        let _flying = state.flying.swap_remove(at);
        drop(state);
        self.part.over.notify_all();
        #[cfg(feature = "async")]
        for task in _flying.tasks.into_values() {
            crate::panics::caught(|| task.wake());
        }
    }
}

impl Waiting<'_> {
    /// Blocks this thread until the flight is over.
    pub(crate) fn wait(self) {
        let mut state = self.part.lock();
        while state.position(self.number).is_some() {
            state = self.part.over.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Ready when the flight is over; else the task is woken then, by the waker of its last poll.
    #[cfg(feature = "async")]
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // The waker's `clone` and `drop` are the user's code: they run outside the lock.
        let waker = context.waker().clone();
        let mut state = self.part.lock();
        let Some(at) = state.position(self.number) else {
            return Poll::Ready(());
        };
        let task = *self.task.get_or_insert_with(|| state.next_number());
        let before = state.flying[at].tasks.insert(task, waker);
        drop(state);
        drop(before);
        Poll::Pending
    }
}

#[cfg(feature = "async")]
impl Drop for Waiting<'_> {
    /// Takes the waker back: a load may take longer than many callers wait.
    fn drop(&mut self) {
        let Some(task) = self.task else {
            return;
        };
        let mut state = self.part.lock();
        let at = state.position(self.number);
        let waker = at.and_then(|at| state.flying[at].tasks.remove(&task));
        drop(state);
        crate::panics::caught(|| drop(waker));
    }
}
