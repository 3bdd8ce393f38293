//! A reaper that many stores share: one thread drives them in turn.
//!
//! The thread alone knows its stores. Other threads reach it by two stacks: `joining`, of stores
//! that were built, and `calls`, of the numbers of stores that are to be driven. A thread pushes
//! onto one of them and then unparks the reaper. The reaper takes all of both before it parks.
//! Either it finds what was pushed, or the push came later, and the park ends at once.
//!
//! Each store decides as with a thread of its own when it may sleep, and which thread wakes it
//! ([`Wakeup`](crate::core::engine), W4).
//!
//! The stores that want a round get it in the order in which they began to want it. A round ends
//! after [`TURN`], at the next block.

use crate::core::reaper::Next;
use crate::error::BuildError;
use crate::kit::panics::caught;
use crate::kit::trace::event;
use crate::sync::park::{park, Sleeper};
use crate::sync::stack::Stack;
use crate::sync::worker::Worker;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Name of a reaper's thread, unless it was given one.
pub(crate) const REAPER: &str = "expiry-reaper";

/// How long a store is driven while others wait.
const TURN: Duration = Duration::from_millis(1);

/// One thread that drives any number of stores, of any types.
///
/// A store that is built without one gets a thread of its own. A server with hundreds of small
/// stores, one for each customer, lets them share a few threads: `.reaper(&reaper)` of every
/// builder.
///
/// This is a handle: a clone is another one to the same thread. Each store keeps one. The thread
/// ends when the last store is shut down, and the last handle dropped, in whatever order.
///
/// # What the stores share
///
/// The thread drives the stores in turn, each for a millisecond while others wait. It ends a
/// store's turn after the listener's calls for 16 entries at the latest, and in between it calls no
/// other store's. **So a listener that takes its time delays the other stores by as much as 16 of
/// its calls take** (of [`Timeouts`](crate::Timeouts), the wakers of 512 tasks). Give such a store
/// a reaper of its own, or a channel. A channel under [`WhenFull::Wait`](crate::WhenFull::Wait)
/// that is full stops the thread, and all its stores with it: take
/// [`WhenFull::Spill`](crate::WhenFull::Spill).
///
/// A shutdown does not wait for a shared thread: when it returns, every entry has ended, and each
/// call of the listener has returned. But the thread may still drop some of the last values.
/// `shutdown_async`, and a shutdown inside a listener, leave the entries to the thread, which then
/// calls the listener for all of them in one turn.
///
/// To a store with a `pause_grace`, another store's listener that takes longer than that is a stall
/// of the process: leases that were due meanwhile get as much on top.
///
/// # Cost
///
/// With nothing due in any store the thread sleeps. A wake-up costs an allocation, which is kept
/// until the thread comes to it, and O(log stores) of the thread's time.
///
/// # Examples
///
/// ```
/// use expiry::{ExpiringMap, PendingTable, Reaper};
/// use std::time::Duration;
///
/// let reaper = Reaper::new()?;
/// let builder = ExpiringMap::<u64, String>::builder().time_to_live(Duration::from_secs(60));
/// let builder = builder.reaper(&reaper);
/// let customers: Vec<_> = (0..100).map(|_| builder.clone().build()).collect::<Result<_, _>>()?;
/// let requests = PendingTable::<u64>::builder().reaper(&reaper).build()?;
/// drop(reaper); // the stores keep the thread
/// customers[7].insert(1, "one".to_string())?;
/// # drop(requests);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reaper {
    inner: Arc<Inner>,
}

struct Inner {
    worker: Worker,
    outside: Arc<Outside>,
    /// How many stores it has got so far.
    numbers: AtomicU64,
}

/// How other threads reach the reaper.
struct Outside {
    joining: Stack<(u64, Box<Drive>)>,
    calls: Arc<Stack<u64>>,
    /// There is no handle any more.
    deserted: AtomicBool,
}

/// A store, to its reaper: does a round, until this time if given. With [`Next::Stop`] it has
/// closed the store.
pub(crate) type Drive = dyn Fn(Option<Instant>) -> Next + Send;

/// Starts a reaper's thread, which does `run`.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<Worker, BuildError> {
    let worker = Worker::spawn(&name.replace('\0', " "), || {
        event!(DEBUG, "reaper started");
        run();
        event!(DEBUG, "reaper stopped");
    });
    worker.map_err(|error| BuildError::NoThread(error.to_string()))
}

impl Reaper {
    /// Starts the thread, of the name `expiry-reaper`; otherwise as [`named`](Self::named).
    pub fn new() -> Result<Self, BuildError> {
        Self::named(REAPER)
    }

    /// Starts the thread, with a name, of which Linux shows 15 bytes.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoThread`].
    pub fn named(name: &str) -> Result<Self, BuildError> {
        let outside = Arc::new(Outside {
            joining: Stack::new(),
            calls: Arc::new(Stack::new()),
            deserted: AtomicBool::new(false),
        });
        let inside = outside.clone();
        let worker = spawn(name, move || Stores::default().run(&inside))?;
        Ok(Reaper { inner: Arc::new(Inner { worker, outside, numbers: AtomicU64::new(0) }) })
    }

    /// The process's own, which is started by the first call and never ends. In the child of a fork
    /// it is another one.
    ///
    /// # Errors
    ///
    /// [`BuildError::NoThread`].
    pub fn global() -> Result<Self, BuildError> {
        static GLOBAL: Mutex<Option<Reaper>> = Mutex::new(None);
        let mut global = GLOBAL.lock().unwrap_or_else(PoisonError::into_inner);
        match &*global {
            Some(reaper) if !reaper.worker().is_lost() => Ok(reaper.clone()),
            _ => Ok(global.insert(Self::new()?).clone()),
        }
    }

    pub(crate) fn worker(&self) -> &Worker {
        &self.inner.worker
    }

    /// Makes it drive a store from now on. The store gets what wakes it by `tell`.
    pub(crate) fn take_on(
        &self,
        drive: Box<Drive>,
        tell: impl FnOnce(Sleeper),
    ) -> Result<(), BuildError> {
        let Inner { worker, outside, numbers } = &*self.inner;
        if worker.is_lost() {
            let why = "the shared reaper's thread is in the process that this one was forked from";
            return Err(BuildError::NoThread(why.into()));
        }
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        outside.joining.push((number, drive));
        // This wakes the thread.
        tell(Sleeper::shared(worker.thread().clone(), number, outside.calls.clone()));
        Ok(())
    }
}

impl fmt::Debug for Reaper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reaper").finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Release: all that the handles have pushed comes before it.
        self.outside.deserted.store(true, Ordering::Release);
        self.worker.thread().unpark();
    }
}

struct Store {
    drive: Box<Drive>,
    wants: Wants,
}

/// When it wants a round.
enum Wants {
    /// It stands in `ready`.
    Now,
    /// It stands in `due`.
    At(Instant),
    /// When another thread calls.
    Nothing,
}

#[derive(Default)]
struct Stores {
    all: HashMap<u64, Store>,
    /// The stores that want a round. The first one has wanted it for longest.
    ready: VecDeque<u64>,
    due: BTreeSet<(Instant, u64)>,
}

impl Stores {
    fn run(mut self, outside: &Outside) {
        loop {
            // Acquire: with no handle left, the stacks below have all there will be.
            // survives: `unpark` follows the store, and the stacks are taken by swaps, in which
            // loom reads the newest value.
            let deserted = outside.deserted.load(Ordering::Acquire);
            for (number, drive) in outside.joining.take() {
                self.all.insert(number, Store { drive, wants: Wants::Nothing });
                self.call(number);
            }
            for number in outside.calls.take() {
                self.call(number);
            }
            let wait = self.call_due();
            if let Some(number) = self.ready.pop_front() {
                self.drive(number);
            } else if deserted && self.all.is_empty() {
                return;
            } else {
                park(wait);
            }
        }
    }

    /// A store wants a round now, unless it has stopped.
    fn call(&mut self, number: u64) {
        let Some(store) = self.all.get_mut(&number) else { return };
        match std::mem::replace(&mut store.wants, Wants::Now) {
            Wants::Now => return,
            Wants::At(due) => drop(self.due.remove(&(due, number))),
            Wants::Nothing => {}
        }
        self.ready.push_back(number);
    }

    /// Calls those whose time has come. Returns how long the next one has.
    fn call_due(&mut self) -> Option<Duration> {
        loop {
            let &(due, number) = self.due.iter().next()?;
            let wait = due.saturating_duration_since(Instant::now());
            if !wait.is_zero() {
                return Some(wait);
            }
            self.call(number);
        }
    }

    fn drive(&mut self, number: u64) {
        let others = self.all.len() > 1;
        let Some(store) = self.all.get_mut(&number) else { return };
        store.wants = Wants::Nothing;
        let turn = || Instant::now() + TURN;
        match (store.drive)((others && !cfg!(expiry_loom)).then(turn)) {
            Next::Round => self.call(number),
            Next::Pause(time) | Next::Sleep(Some(time)) => self.call_after(number, time),
            Next::Sleep(None) => {}
            // The last of the store goes: what the user's listener holds, and the user's clock.
            Next::Stop => drop(caught(|| drop(self.all.remove(&number)))),
        }
    }

    /// Calls a store when this has passed. The model checker has no time: there a call ends the
    /// sleep, as with [`park`].
    fn call_after(&mut self, number: u64, time: Duration) {
        if time.is_zero() {
            return self.call(number);
        }
        let due = Instant::now().checked_add(time).filter(|_| !cfg!(expiry_loom));
        if let (Some(due), Some(store)) = (due, self.all.get_mut(&number)) {
            store.wants = Wants::At(due);
            self.due.insert((due, number));
        }
    }
}
