//! Lanes: how the messages of one task get to the tasks of one bolt, in batches, in order, without
//! ever waiting.
//!
//! A batch that finds its queue full waits in the sender's *overflow*, and later batches to the
//! same task wait behind it, so order is kept. A task with overflow takes in nothing new: a spout
//! emits nothing, and a bolt executes nothing. Only bolts on a cycle go on, as they may be waiting
//! for themselves. The spouts that lead to them emit nothing meanwhile (`Jam`). So some task always
//! makes progress: the last task in a chain of waiting tasks waits for a bolt that no task holds
//! up. The overflow on a cycle is bounded by the messages in the queues when it began, and by what
//! bolts derive from them.
//!
//! A message is first *offered*: users' code copies it and chooses its tasks. Later it is *sent*:
//! its copies get their trees, and go into the lanes. A spout's trees begin together, so several
//! messages may have been offered and not sent. They are sent in the order of the offers.

use crate::inbox::Inbox;
use crate::task::discard;
use crate::tuple::{Anchors, Origin, Tuple};
use foldhash::quality::FixedState;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tuples that travel together.
pub(crate) type Batch<T> = Vec<Tuple<T>>;

type KeyHash<M> = dyn Fn(&M, &FixedState) -> u64 + Send + Sync;

/// Which tasks of a bolt get a message. After Storm's groupings.
#[derive(Clone)]
pub(crate) enum Choice<M> {
    Shuffle,
    Key(Arc<KeyHash<M>>),
    All,
    Global,
    Direct(Arc<dyn Fn(&M) -> usize + Send + Sync>),
}

/// What the lanes of a sending task have in common.
#[derive(Clone)]
pub(crate) struct Sender {
    /// The task's number in its component.
    pub(crate) task: usize,
    /// How many messages a batch holds at most.
    pub(crate) batch: usize,
    /// The same in all tasks: equal keys go to the same task.
    pub(crate) hasher: FixedState,
    /// Tasks do not all begin with the same one of a bolt's tasks.
    pub(crate) turn: usize,
    /// Whether the port notes which tasks get each message.
    pub(crate) notes_sent: bool,
}

/// A grouping of a bolt, as one of the tasks before it sees it. Messages have rising numbers.
pub(crate) trait Listener<M: Clone>: Send {
    /// Keeps a copy of the message for each task that is to get it, and returns their number. Runs
    /// users' code, which may panic. The caller then withdraws the message.
    fn offer(&mut self, number: u64, message: Cow<'_, M>) -> usize;

    /// Calls `note` with each task that is to get the message that was offered last.
    fn sent_to(&self, number: u64, note: &mut dyn FnMut(usize));

    /// Drops the copies of the message that was offered last.
    fn withdraw(&mut self, number: u64);

    /// Puts the copies of a message into their lanes, each with the trees that it is a part of.
    fn send(&mut self, number: u64, anchors: &mut dyn FnMut() -> Anchors);

    /// Sends what has been collected.
    fn flush(&mut self);

    /// Sends what has overflowed, as far as there is room by now.
    fn retry(&mut self);

    fn overflow(&self) -> usize;

    /// Whether something that has overflowed can go. The last look before a thread sleeps.
    fn look_for_room(&self) -> bool;
}

/// A copy of a message that is offered and not sent.
struct Copy<M> {
    number: u64,
    lane: usize,
    message: M,
}

/// The way to one task.
struct Lane<T> {
    inbox: Arc<Inbox<Batch<T>>>,
    filling: Batch<T>,
    /// How many messages the last batch had: for so many the next one has room.
    last: usize,
    overflow: VecDeque<Batch<T>>,
}

impl<T> Lane<T> {
    /// Sends what has been collected. Returns whether there was room.
    fn flush(&mut self) -> bool {
        self.last = self.filling.len();
        let batch = std::mem::take(&mut self.filling);
        self.push(batch)
    }

    /// Sends a batch, behind those that found no room. Returns whether there was room.
    fn push(&mut self, batch: Batch<T>) -> bool {
        let refused =
            if self.overflow.is_empty() { self.inbox.push(batch).err() } else { Some(batch) };
        let has_room = refused.is_none();
        self.overflow.extend(refused);
        has_room
    }
}

/// One task's way to the tasks of a bolt, by one of its groupings.
pub(crate) struct Lanes<M> {
    lanes: Vec<Lane<M>>,
    choice: Choice<M>,
    sender: Sender,
    origin: Origin,
    copies: VecDeque<Copy<M>>,
    /// Lanes with something that is not sent yet.
    filled: Vec<usize>,
    /// Batches in overflow, in all lanes.
    overflow: usize,
}

impl<M> Lanes<M> {
    /// The way to the tasks with these inboxes, by the bolt's grouping of this number.
    pub(crate) fn new(
        inboxes: &[Arc<Inbox<Batch<M>>>],
        input: u32,
        choice: Choice<M>,
        mut sender: Sender,
    ) -> Self {
        let lane = |inbox: &Arc<Inbox<Batch<M>>>| Lane {
            inbox: inbox.clone(),
            filling: Vec::new(),
            last: 1,
            overflow: VecDeque::new(),
        };
        sender.turn %= inboxes.len();
        #[allow(clippy::cast_possible_truncation)] // checked by the builder
        let origin = Origin { input, task: sender.task as u32 };
        Lanes {
            lanes: inboxes.iter().map(lane).collect(),
            choice,
            sender,
            origin,
            copies: VecDeque::new(),
            filled: Vec::new(),
            overflow: 0,
        }
    }

    /// The task that a message goes to, by a grouping that leads each message to one.
    #[inline]
    fn choose(&mut self, message: &M) -> usize {
        let tasks = self.lanes.len();
        match &self.choice {
            Choice::Shuffle => {
                let turn = &mut self.sender.turn;
                *turn = if *turn + 1 < tasks { *turn + 1 } else { 0 };
                *turn
            }
            // The high half of the product: a number below the number of tasks.
            Choice::Key(hash) => {
                let hash = u128::from(hash(message, &self.sender.hasher));
                ((hash * tasks as u128) >> 64) as usize
            }
            Choice::Direct(task) => task(message) % tasks,
            Choice::Global | Choice::All => 0,
        }
    }
}

impl<M: Clone + Send> Listener<M> for Lanes<M> {
    #[inline]
    fn offer(&mut self, number: u64, message: Cow<'_, M>) -> usize {
        let last = if let Choice::All = self.choice { self.lanes.len() - 1 } else { 0 };
        for lane in 0..last {
            self.copies.push_back(Copy { number, lane, message: M::clone(&message) });
        }
        let lane = last + self.choose(&message);
        self.copies.push_back(Copy { number, lane, message: message.into_owned() });
        last + 1
    }

    fn sent_to(&self, number: u64, note: &mut dyn FnMut(usize)) {
        let first = self.copies.partition_point(|copy| copy.number < number);
        self.copies.range(first..).for_each(|copy| note(copy.lane));
    }

    fn withdraw(&mut self, number: u64) {
        while self.copies.back().is_some_and(|copy| copy.number == number) {
            // The loop goes on after a panic: a copy that stayed would be sent as the next message.
            discard(self.copies.pop_back());
        }
    }

    #[inline]
    fn send(&mut self, number: u64, anchors: &mut dyn FnMut() -> Anchors) {
        while self.copies.front().is_some_and(|copy| copy.number == number) {
            let Some(Copy { lane: at, message, .. }) = self.copies.pop_front() else { break };
            let lane = &mut self.lanes[at];
            if lane.filling.is_empty() {
                self.filled.push(at);
                if lane.filling.capacity() == 0 {
                    lane.filling = lane.inbox.spare().unwrap_or_default();
                }
                lane.filling.reserve_exact(lane.last);
            }
            let (anchors, origin) = (anchors(), self.origin);
            lane.filling.push(Tuple { message, anchors, origin, received: 0 });
            if lane.filling.len() >= self.sender.batch {
                self.overflow += usize::from(!lane.flush());
            }
        }
    }

    fn flush(&mut self) {
        for at in self.filled.drain(..) {
            let lane = &mut self.lanes[at];
            if !lane.filling.is_empty() {
                self.overflow += usize::from(!lane.flush());
            }
        }
    }

    fn retry(&mut self) {
        if self.overflow == 0 {
            return;
        }
        for lane in &mut self.lanes {
            while let Some(batch) = lane.overflow.pop_front() {
                if let Err(batch) = lane.inbox.push(batch) {
                    lane.overflow.push_front(batch);
                    break;
                }
                self.overflow -= 1;
            }
        }
    }

    fn overflow(&self) -> usize {
        self.overflow
    }

    fn look_for_room(&self) -> bool {
        let mut waiting = self.lanes.iter().filter(|lane| !lane.overflow.is_empty());
        self.overflow > 0 && waiting.any(|lane| lane.inbox.look_for_room())
    }
}

/// What a user makes of a message, if anything.
pub(crate) type Map<M, T> = Arc<dyn Fn(Cow<'_, M>) -> Option<T> + Send + Sync>;

/// A listener of what a function makes of each message.
pub(crate) struct Mapped<M: Clone + 'static, T> {
    pub(crate) map: Map<M, T>,
    pub(crate) inner: Box<dyn Listener<T>>,
}

impl<M: Clone, T: Clone> Listener<M> for Mapped<M, T> {
    fn offer(&mut self, number: u64, message: Cow<'_, M>) -> usize {
        (self.map)(message).map_or(0, |message| self.inner.offer(number, Cow::Owned(message)))
    }

    fn sent_to(&self, number: u64, note: &mut dyn FnMut(usize)) {
        self.inner.sent_to(number, note);
    }

    fn withdraw(&mut self, number: u64) {
        self.inner.withdraw(number);
    }

    fn send(&mut self, number: u64, anchors: &mut dyn FnMut() -> Anchors) {
        self.inner.send(number, anchors);
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn retry(&mut self) {
        self.inner.retry();
    }

    fn overflow(&self) -> usize {
        self.inner.overflow()
    }

    fn look_for_room(&self) -> bool {
        self.inner.look_for_room()
    }
}
