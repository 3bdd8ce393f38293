//! Waiting tasks, and the threads that wake them.
//!
//! ```text
//!   waiting task                              waking thread
//!   looks, and finds nothing
//!   pushes its registration on a stack        changes what the task looks at
//!   fence                                     fence, or as below
//!   looks again                               if the stack is not empty: takes it, and wakes
//! ```
//!
//! Of two threads that do this at least one sees the other (Dekker). The waiting task pays a fence.
//! The waking thread needs none if it makes the change by a sequentially consistent
//! read-modify-write, and loads the stack's head so, too. If that load misses a registration, both
//! come before the task's fence in the one order of all such operations, and the task's second look
//! finds the change.
//!
//! A registration is a waker that never changes, and one word. A task with another waker registers
//! again. So no thread reads a waker that another thread is writing, and no thread locks or spins.

use super::exclusive::Exclusive;
use super::stack::Stack;
use super::{fence, AtomicU32, AtomicU64, Ordering};
use crate::kit::panics::caught;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::sync::atomic::AtomicU32 as Hint;
use std::sync::atomic::Ordering::Relaxed as RELAXED;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// The task waits, and a waking thread will find it.
const WAITING: u32 = 0;
/// A thread has woken the task, or is about to.
const WOKEN: u32 = 1;
/// The task waits no longer. Its registration is still on the stack, or in the queue.
const ABANDONED: u32 = 2;

/// After so many abandoned registrations a thread clears them, and wakes waiting tasks among them.
const MOST_ABANDONED: u32 = 16;

/// One registration.
struct Task {
    waker: ManuallyDrop<Waker>,
    /// Relaxed: it decides whether a thread wakes the task or the task abandons it, and publishes
    /// nothing. The waker publishes what a woken task has to see.
    state: AtomicU32,
}

impl Task {
    fn new(waker: &Waker) -> Arc<Self> {
        Arc::new(Task { waker: ManuallyDrop::new(waker.clone()), state: AtomicU32::new(WAITING) })
    }

    fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WAITING
    }

    /// Wakes the task, unless the registration is abandoned, and drops this share of it. Returns
    /// whether it woke the task. Never panics, whatever the waker does.
    fn wake(self: Arc<Self>) -> bool {
        let waited = self.state.swap(WOKEN, Ordering::Relaxed) == WAITING;
        caught(move || {
            if waited {
                self.waker.wake_by_ref();
            }
        });
        waited
    }
}

impl Drop for Task {
    /// Catches a panic of the waker's drop: the thread that drops the last share has other work.
    fn drop(&mut self) {
        // SAFETY: only this takes the waker, and no thread looks at it any more.
        let waker = unsafe { ManuallyDrop::take(&mut self.waker) };
        caught(move || drop(waker));
    }
}

/// The registration of a future or stream, or none. Its owner deregisters before dropping it.
#[derive(Default)]
pub(crate) struct Place(Option<Arc<Task>>);

impl Place {
    /// Whether this very waker is registered, and no thread has woken it.
    fn holds(&self, waker: &Waker) -> bool {
        let task = self.0.as_ref();
        task.is_some_and(|task| task.is_waiting() && task.waker.will_wake(waker))
    }
}

/// Tasks that are woken all at once.
pub(crate) struct WaitSet {
    registered: Stack<Arc<Task>>,
    /// How many registrations on the stack are abandoned; about.
    abandoned: Hint,
}

impl WaitSet {
    pub(crate) fn new() -> Self {
        WaitSet { registered: Stack::new(), abandoned: Hint::new(0) }
    }

    /// Registers `waker` in `place`. Returns true if the caller must look again. Otherwise this
    /// waker was registered there already, and its task has looked again since.
    pub(crate) fn register(&self, place: &mut Place, waker: &Waker) -> bool {
        if place.holds(waker) {
            return false;
        }
        self.deregister(place);
        let task = Task::new(waker);
        place.0 = Some(task.clone());
        self.registered.push(task);
        fence(Ordering::SeqCst);
        true
    }

    pub(crate) fn deregister(&self, place: &mut Place) {
        let Some(task) = place.0.take() else {
            return;
        };
        if task.state.swap(ABANDONED, Ordering::Relaxed) == WAITING
            && self.abandoned.fetch_add(1, RELAXED) + 1 >= MOST_ABANDONED
        {
            self.wake();
        }
    }

    /// Whether no task waits. The caller has changed what the tasks look at before.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.registered.is_empty()
    }

    #[cold]
    pub(crate) fn wake(&self) {
        self.abandoned.store(0, RELAXED);
        for task in self.registered.take() {
            task.wake();
        }
    }

    /// Ends with what `done` finds. Asks it at first, and after each wake-up.
    pub(crate) async fn until<R>(&self, mut done: impl FnMut() -> Option<R>) -> R {
        let mut registered = Registered(self, Place::default());
        poll_fn(|context| {
            let mut found = done();
            if found.is_none() && self.register(&mut registered.1, context.waker()) {
                found = done();
            }
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The place of a future that may be dropped while it waits.
struct Registered<'a>(&'a WaitSet, Place);

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.0.deregister(&mut self.1);
    }
}

/// Tasks that are woken one by one, in the order in which they registered.
///
/// A wake-up is a *token*. The woken task looks for what it waits for. If it finds that, it passes
/// the token on, because there may be more. If it finds nothing, the token ends. A task that
/// deregisters passes its token on. So while there is something to find and a task waits, a task
/// has a token, and need only be polled, or dropped.
///
/// A waking thread changes a word by a read-modify-write. Waiting tasks look at that word by a
/// read-modify-write too, after they have registered. If the task's comes first, the waking thread
/// has acquired the registration, and sees it by a plain load.
pub(crate) struct WaiterQueue {
    /// Number of registrations that wait.
    waiting: AtomicU64,
    /// Tasks that have registered since a thread last served the queue.
    fresh: Stack<Arc<Task>>,
    /// Tasks that found nothing after a wake-up, and registered again. They are next.
    returned: Stack<Arc<Task>>,
    /// Tokens to hand out. The thread that raises this from zero serves the queue until it is back
    /// at zero, for other threads' tokens too: no thread waits for it.
    tokens: AtomicU64,
    queue: Exclusive<VecDeque<Arc<Task>>>,
    /// How many registrations in the queue are abandoned; about.
    abandoned: Hint,
}

/// More tokens than there can be registrations.
const ALL: u64 = 1 << 32;

impl WaiterQueue {
    pub(crate) fn new() -> Self {
        WaiterQueue {
            waiting: AtomicU64::new(0),
            fresh: Stack::new(),
            returned: Stack::new(),
            tokens: AtomicU64::new(0),
            queue: Exclusive::new(VecDeque::new()),
            abandoned: Hint::new(0),
        }
    }

    /// Registers `waker` in `place`, and looks again, by a read-modify-write. If that finds
    /// something, the task deregisters. Returns nothing if the task was registered already, or is
    /// now. A task that a thread had woken comes before those that no thread has.
    pub(crate) fn register<R>(
        &self,
        place: &mut Place,
        waker: &Waker,
        look: impl FnOnce() -> Option<R>,
    ) -> Option<R> {
        if place.holds(waker) {
            return None;
        }
        // First: a waker's clone may panic, and then nothing has happened.
        let task = Task::new(waker);
        let before = place.0.replace(task.clone());
        let has_token = before.is_some_and(|task| !self.abandon(&task));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if has_token {
            self.returned.push(task);
        } else {
            self.fresh.push(task);
        }
        // The fence is for a shutdown, which has no word to change.
        fence(Ordering::SeqCst);
        let found = look();
        if found.is_some() {
            self.deregister(place);
            // The look that found nothing may have been an old one: the token has not ended.
            if has_token {
                self.pass_on();
            }
        }
        found
    }

    /// Abandons a registration. Returns false if it has a token.
    fn abandon(&self, task: &Task) -> bool {
        let waited = task.state.swap(ABANDONED, Ordering::Relaxed) == WAITING;
        if waited {
            let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
            let abandoned = self.abandoned.fetch_add(1, RELAXED) + 1;
            if abandoned >= MOST_ABANDONED && u64::from(abandoned) >= waiting {
                self.hand_out(1);
            }
        }
        waited
    }

    /// The task of that place waits no longer. If it has a token, this passes it on.
    pub(crate) fn deregister(&self, place: &mut Place) {
        if place.0.take().is_some_and(|task| !self.abandon(&task)) {
            self.pass_on();
        }
    }

    fn pass_on(&self) {
        if self.is_awaited() {
            self.hand_out(1);
        }
    }

    /// Whether any task waits. The calling thread has changed the word that the tasks look at.
    #[inline(always)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Wakes so many tasks, first those that have waited longest. Never panics.
    #[cold]
    pub(crate) fn wake(&self, tasks: u64) {
        if tasks != 0 {
            self.hand_out(tasks);
        }
    }

    #[cold]
    pub(crate) fn wake_all(&self) {
        self.hand_out(ALL);
    }

    fn hand_out(&self, mut tokens: u64) {
        // AcqRel: the thread that serves the queue sees the registrations that these tokens are
        // for, and what the thread before it did there.
        // survives: swaps take the stacks, and in models they give the queue back. Loom reads the
        // newest value in a swap; hardware may not. This holds for `fetch_sub`, too.
        if self.tokens.fetch_add(tokens, Ordering::AcqRel) != 0 {
            return;
        }
        while tokens != 0 {
            let served = self.queue.enter(|queue| self.serve(queue, tokens));
            // Also in models, which are built with optimizations.
            if cfg!(any(debug_assertions, expiry_loom)) {
                assert!(served.is_some(), "another thread serves the queue");
            }
            tokens = self.tokens.fetch_sub(tokens, Ordering::AcqRel) - tokens;
        }
    }

    /// Hands out tokens, or drops them if no task waits: one that registers now looks again.
    fn serve(&self, queue: &mut VecDeque<Arc<Task>>, tokens: u64) {
        for task in self.returned.take() {
            queue.push_front(task);
        }
        let latest_first: Vec<_> = self.fresh.take().collect();
        queue.extend(latest_first.into_iter().rev());
        let mut given = 0;
        while given < tokens {
            let Some(task) = queue.pop_front() else {
                break;
            };
            if task.wake() {
                given += 1;
                self.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
        if self.abandoned.load(RELAXED) >= MOST_ABANDONED {
            self.abandoned.store(0, RELAXED);
            queue.retain(|task| task.is_waiting());
        }
    }
}
