//! A task's input queue, and how its thread, and threads that wait for room there, are woken.

use crate::sync::{fence, AtomicBool, AtomicUsize, Ordering, Parker, Unparker};
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;

/// Wakes a thread that has gone to sleep. A sender first sends, then rings. A sleeper first stores
/// that it sleeps, then looks again. Both have a fence in between, so one of them sees the other.
pub struct Bell {
    asleep: AtomicBool,
    unparker: Unparker,
}

impl Bell {
    /// A bell, and what its owner sleeps by.
    pub fn new() -> (Arc<Self>, Parker) {
        let parker = Parker::new();
        let bell = Bell { asleep: AtomicBool::new(false), unparker: parker.unparker().clone() };
        (Arc::new(bell), parker)
    }

    /// Wakes the sleeper. A thread calls this after it has sent something.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.unparker.unpark();
        }
    }

    /// Wakes the thread, also if it sleeps without the bell.
    pub fn wake(&self) {
        self.unparker.unpark();
    }

    /// Sleeps until it rings, for `limit` at most, unless there `is_something` to do.
    pub fn sleep(&self, parker: &Parker, limit: Duration, is_something: impl FnOnce() -> bool) {
        // A swap: it and the swap in `ring` have an order.
        // survives: stronger than needed: a full fence follows.
        self.asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if !is_something() {
            parker.park_timeout(limit); // for ever, if that is beyond the clock
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Calls a spout that has nothing, or a bolt, for a thread that has sent it something. The task
/// takes the call before it looks, so a message that is sent while it looks is another call.
pub struct Call {
    is_there: AtomicBool,
    bell: Arc<Bell>,
}

impl Call {
    /// A call of the task whose thread has this bell.
    pub fn new(bell: Arc<Bell>) -> Self {
        Call { is_there: AtomicBool::new(false), bell }
    }

    /// Calls.
    pub fn call(&self) {
        // A swap: the task that takes the call of the last thread sees what each thread has sent. A
        // store would hide the earlier ones (`no_call_is_missed`).
        self.is_there.swap(true, Ordering::Release);
        self.bell.ring();
    }

    /// Whether there was one.
    pub fn take(&self) -> bool {
        self.is_there() && self.is_there.swap(false, Ordering::AcqRel)
    }

    /// Whether there is one: the last look before the thread sleeps.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Relaxed)
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}

/// Whether a thread sleeps until there is room in a queue. A sender that goes to sleep announces
/// that at its bell, then here, then looks for room. (Were its bell later, a receiver could find it
/// here and not at its bell, and not wake it.) A receiver first takes something out, then looks
/// whether a sender sleeps. Both have a fence in between, so one of them sees the other.
#[derive(Debug, Default)]
pub struct Room {
    wanted: AtomicBool,
}

impl Room {
    /// Announces a waiting sender. It calls this before its last look for room.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether to ring for waiting senders. A receiver calls this after it has made room.
    pub fn is_wanted(&self) -> bool {
        fence(Ordering::SeqCst);
        self.wanted.load(Ordering::Relaxed) && self.wanted.swap(false, Ordering::Relaxed)
    }
}

/// Counts the tasks with overflow, on cycles that a spout leads to. While there are any the spout
/// emits nothing. The last task to lose its overflow first stores that, then rings. The spout's
/// thread goes to sleep by the protocol of its bell.
pub struct Jam {
    tasks: AtomicUsize,
    spouts: Vec<Arc<Bell>>,
}

impl Jam {
    /// No jam yet, of the cycles that the spouts with these bells lead to.
    pub fn new(spouts: Vec<Arc<Bell>>) -> Self {
        Jam { tasks: AtomicUsize::new(0), spouts }
    }

    /// A task has overflow.
    pub fn begin(&self) {
        self.tasks.fetch_add(1, Ordering::Relaxed);
    }

    /// It has none any more.
    pub fn end(&self) {
        if self.tasks.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.spouts.iter().for_each(|bell| bell.ring());
        }
    }

    /// Whether a task has overflow.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.tasks.load(Ordering::Relaxed) > 0
    }
}

const SPARE: usize = 16;

/// A bounded lock-free queue, the bell of the thread that empties it, and those of its senders.
pub(crate) struct Inbox<T> {
    queue: ArrayQueue<T>,
    /// Items that were emptied, for their memory: it goes back to the threads that fill them.
    spare: ArrayQueue<T>,
    pub(crate) bell: Arc<Bell>,
    room: Room,
    senders: Vec<Arc<Bell>>,
}

impl<T> Inbox<T> {
    /// `senders` are the bells of threads that may have to wait for room.
    pub(crate) fn new(length: usize, bell: Arc<Bell>, senders: Vec<Arc<Bell>>) -> Self {
        let (queue, spare) = (ArrayQueue::new(length), ArrayQueue::new(SPARE));
        Inbox { queue, spare, bell, room: Room::default(), senders }
    }

    #[inline]
    pub(crate) fn spare(&self) -> Option<T> {
        self.spare.pop()
    }

    /// Keeps an emptied item, if there is room.
    #[inline]
    pub(crate) fn give_back(&self, item: T) {
        drop(self.spare.push(item));
    }

    /// Puts an item in; if there is no room, it comes back.
    #[inline]
    pub(crate) fn push(&self, item: T) -> Result<(), T> {
        self.queue.push(item)?;
        self.bell.ring();
        Ok(())
    }

    /// Takes an item out. When the queue is half empty, it rings for the senders that wait for
    /// room. It does not ring for each item: a sender would wake for one place.
    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        let item = self.queue.pop()?;
        if !self.senders.is_empty() && self.has_room() && self.room.is_wanted() {
            self.senders.iter().for_each(|bell| bell.ring());
        }
        Some(item)
    }

    /// Whether there is room again, asked before a sleep: if not, the bells are rung when there is.
    pub(crate) fn look_for_room(&self) -> bool {
        self.room.want();
        self.has_room()
    }

    /// Whether there is enough room to wake a sender.
    fn has_room(&self) -> bool {
        self.queue.len() <= self.queue.capacity() / 2
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}
