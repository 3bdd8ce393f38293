//! Tasks that wait, and threads that have something for them.
//!
//! ```text
//!   who waits                                 who has something
//!   looks, and finds nothing
//!   joins: a swap on the pile's head          puts it there
//!   fence                                     fence, or as below
//!   looks again                               looks whether anybody is on the pile, takes it, and wakes
//! ```
//!
//! Of two threads that do this one sees the other (Dekker). The waiting thread pays a fence. The
//! giving thread need not, where it gives by a sequentially consistent read-modify-write that the
//! second look is bound to find: its load of the head is then sequentially consistent too. If that
//! load misses a thread that has joined, it comes before that thread's fence in the one order of
//! all such operations. So does the read-modify-write, and the look after the fence finds it.
//!
//! A registration is a waker that never changes, and one word. A task with another waker registers
//! again. So no thread reads a waker that another one is writing, and there is nothing to lock or
//! to spin on.

use super::exclusive::Exclusive;
use super::stack::Stack;
use super::{fence, AtomicU32, AtomicU64, Ordering};
use crate::panics::caught;
use std::collections::VecDeque;
use std::future::Future;
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::sync::atomic::AtomicU32 as Hint;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// It waits, and a giving thread will find it.
const WAITING: u32 = 0;
/// It has been woken, or is about to be.
const WOKEN: u32 = 1;
/// Its owner has gone. It is still where it was.
const LEFT: u32 = 2;

/// After so many abandoned registrations they are cleared away, by waking a task that waits among
/// them.
const MOST_LEFT: u32 = 16;

/// One registration.
struct Task {
    waker: ManuallyDrop<Waker>,
    /// Relaxed: it decides which thread wakes or leaves, and hands nothing on. A woken task gets
    /// from the waker what it has to see.
    state: AtomicU32,
}

impl Task {
    fn new(waker: &Waker) -> Arc<Self> {
        Arc::new(Task { waker: ManuallyDrop::new(waker.clone()), state: AtomicU32::new(WAITING) })
    }

    fn is_waiting(&self) -> bool {
        self.state.load(Ordering::Relaxed) == WAITING
    }

    /// Wakes it, unless it has left, and lets go of it. Whether it was woken. Never panics,
    /// whatever waking a waker does.
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
    /// The thread that drops the last share has other work, from which a panic of the waker's drop
    /// must not keep it.
    fn drop(&mut self) {
        // SAFETY: it is taken only here, and no thread looks at it any more.
        let waker = unsafe { ManuallyDrop::take(&mut self.waker) };
        caught(move || drop(waker));
    }
}

/// A future's, or a stream's, place among those that wait; nowhere, to begin with. Its owner leaves
/// before it drops the place.
#[derive(Default)]
pub(crate) struct Place(Option<Arc<Task>>);

impl Place {
    /// Whether it is registered, with this very waker, and has not been woken.
    fn holds(&self, waker: &Waker) -> bool {
        let task = self.0.as_ref();
        task.is_some_and(|task| task.is_waiting() && task.waker.will_wake(waker))
    }
}

/// Tasks that are woken all at once.
pub(crate) struct Crowd {
    pile: Stack<Arc<Task>>,
    /// How many registrations were abandoned and are still on the stack; about.
    left: Hint,
}

impl Crowd {
    pub(crate) fn new() -> Self {
        Crowd { pile: Stack::new(), left: Hint::new(0) }
    }

    /// Registers `waker` in `place`. True if the caller has to look again; otherwise this waker was
    /// registered there already, and its task has looked again since.
    pub(crate) fn join(&self, place: &mut Place, waker: &Waker) -> bool {
        if place.holds(waker) {
            return false;
        }
        self.leave(place);
        let task = Task::new(waker);
        place.0 = Some(task.clone());
        self.pile.push(task);
        fence(Ordering::SeqCst);
        true
    }

    /// The task of that place waits no longer.
    pub(crate) fn leave(&self, place: &mut Place) {
        let Some(task) = place.0.take() else {
            return;
        };
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        if task.state.swap(LEFT, Ordering::Relaxed) == WAITING
            && self.left.fetch_add(1, relaxed) + 1 >= MOST_LEFT
        {
            self.wake();
        }
    }

    /// Whether no task waits; for a thread that has put something where the tasks look.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.pile.is_empty()
    }

    /// Wakes all.
    #[cold]
    pub(crate) fn wake(&self) {
        self.left.store(0, std::sync::atomic::Ordering::Relaxed);
        for task in self.pile.take() {
            task.wake();
        }
    }
}

impl Crowd {
    /// A future that ends with what `done` finds; it asks at first, and whenever the wait set has
    /// been woken.
    pub(crate) fn until<R, F: FnMut() -> Option<R>>(&self, done: F) -> Until<'_, F> {
        Until { crowd: self, done, place: Place::default() }
    }
}

/// See [`Crowd::until`].
pub(crate) struct Until<'a, F> {
    crowd: &'a Crowd,
    done: F,
    place: Place,
}

// Nothing in it is ever pinned.
impl<F> Unpin for Until<'_, F> {}

impl<R, F: FnMut() -> Option<R>> Future for Until<'_, F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let Until { crowd, done, place } = &mut *self;
        let mut found = done();
        if found.is_none() && crowd.join(place, context.waker()) {
            found = done();
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

impl<F> Drop for Until<'_, F> {
    fn drop(&mut self) {
        self.crowd.leave(&mut self.place);
    }
}

/// Tasks that are woken one by one, in the order in which they have come.
///
/// A wake-up that is handed out is a *token*. The task that has it looks for what it waits for. If
/// it finds that, it hands the token on, because there may be more; if it finds nothing, the token
/// ends; if it leaves, it hands the token on. So while something is there and a task waits, there
/// is a token, and its holder need only be polled, or dropped.
///
/// A giving thread does so by a read-modify-write on a word. Waiting tasks look at that word by a
/// read-modify-write too, after they have joined. Where theirs comes first, the giving thread has
/// acquired their registration, and needs only a plain load to see it.
pub(crate) struct Line {
    /// Registrations that are waiting.
    waiting: AtomicU64,
    /// Tasks that have come, and tasks that have come back after being woken in vain: the latter
    /// are next.
    fresh: Stack<Arc<Task>>,
    returned: Stack<Arc<Task>>,
    /// Tokens that are to be handed out. The thread that raises this from zero serves the queue
    /// until it has brought it back to zero. It hands out the other threads' tokens too, and no
    /// thread waits for it.
    calls: AtomicU64,
    queue: Exclusive<VecDeque<Arc<Task>>>,
    /// How many registrations were abandoned and are still in the queue; about.
    left: Hint,
}

/// More than there can be registrations.
const ALL: u64 = 1 << 32;

impl Line {
    pub(crate) fn new() -> Self {
        Line {
            waiting: AtomicU64::new(0),
            fresh: Stack::new(),
            returned: Stack::new(),
            calls: AtomicU64::new(0),
            queue: Exclusive::new(VecDeque::new()),
            left: Hint::new(0),
        }
    }

    /// Registers `waker` in `place`, and looks again, by a read-modify-write. If that finds
    /// something, the task leaves. Returns nothing if the task was registered already, or is now. A
    /// task that had been woken comes before those that have not.
    pub(crate) fn join<R>(
        &self,
        place: &mut Place,
        waker: &Waker,
        look: impl FnOnce() -> Option<R>,
    ) -> Option<R> {
        if place.holds(waker) {
            return None;
        }
        // First: cloning a waker may panic, and then nothing has happened.
        let task = Task::new(waker);
        let before = place.0.replace(task.clone());
        let has_token = before.is_some_and(|task| !self.withdraw(&task));
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
            self.leave(place);
            // The look that found nothing may have been an old one: the token has not ended.
            if has_token {
                self.hand_on();
            }
        }
        found
    }

    /// Takes back a registration; false if it has a token.
    fn withdraw(&self, task: &Task) -> bool {
        let waited = task.state.swap(LEFT, Ordering::Relaxed) == WAITING;
        if waited {
            let waiting = self.waiting.fetch_sub(1, Ordering::Relaxed) - 1;
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            let left = self.left.fetch_add(1, relaxed) + 1;
            if left >= MOST_LEFT && u64::from(left) >= waiting {
                self.call(1);
            }
        }
        waited
    }

    /// The task of that place waits no longer, and hands its token on, if it has one.
    pub(crate) fn leave(&self, place: &mut Place) {
        if place.0.take().is_some_and(|task| !self.withdraw(&task)) {
            self.hand_on();
        }
    }

    fn hand_on(&self) {
        if self.is_awaited() {
            self.call(1);
        }
    }

    /// Whether any task waits; for a thread that has put something there.
    #[inline(always)]
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) != 0
    }

    /// Wakes the task that has waited longest. Never panics.
    #[cold]
    pub(crate) fn wake_one(&self) {
        self.call(1);
    }

    /// Wakes all.
    #[cold]
    pub(crate) fn wake_all(&self) {
        self.call(ALL);
    }

    fn call(&self, tokens: u64) {
        // AcqRel: the thread that serves the queue sees the registrations that these tokens are
        // for, and what the one before did there.
        // survives: swaps take the piles, and in models they give the entrance back. Loom reads the
        // newest value in a swap; hardware may not. This holds for `fetch_sub`, too.
        if self.calls.fetch_add(tokens, Ordering::AcqRel) != 0 {
            return;
        }
        let mut tokens = tokens;
        while tokens != 0 {
            let served = self.queue.enter(|queue| self.serve(queue, tokens));
            // Also in models, which are built with optimizations.
            if cfg!(any(debug_assertions, expiry_loom)) {
                assert!(served.is_some(), "nobody else is at it");
            }
            tokens = self.calls.fetch_sub(tokens, Ordering::AcqRel) - tokens;
        }
    }

    /// Hands out tokens. Those for which no task waits are dropped: a task that joins from here on
    /// looks again itself.
    fn serve(&self, queue: &mut VecDeque<Arc<Task>>, tokens: u64) {
        for task in self.returned.take() {
            queue.push_front(task);
        }
        let (mut from, mut to) = (queue.len(), queue.len());
        for task in self.fresh.take() {
            queue.push_back(task);
            to += 1;
        }
        // These only, in place: there may be many before them.
        while from + 1 < to {
            to -= 1;
            queue.swap(from, to);
            from += 1;
        }
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
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        if self.left.load(relaxed) >= MOST_LEFT {
            self.left.store(0, relaxed);
            queue.retain(|task| task.is_waiting());
        }
    }
}
