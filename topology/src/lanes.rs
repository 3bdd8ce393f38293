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
//! A copy of a spout's message may be *rootless*: its tree gets a root later, together with others.
//! The copy waits in its lane meanwhile, and nothing behind it is sent.

use crate::inbox::Inbox;
use crate::task::discard;
use crate::tuple::{Anchor, Anchors, Origin, Tuple};
use expiry::Root;
use foldhash::quality::FixedState;
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tuples that travel together. Dropping them drops each message by itself: its drop may panic.
pub(crate) struct Batch<T>(pub(crate) Vec<Tuple<T>>);

impl<T> Batch<T> {
    const fn new() -> Self {
        Batch(Vec::new())
    }
}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(discard);
    }
}

/// What ties a copy of a message to its trees.
pub(crate) enum Tie {
    /// The copy is a part of these trees, or of none.
    Of(Anchors),
    /// The copy has this edge in a tree that has no root yet: its number among those that are to
    /// begin.
    Rootless { tree: usize, edge: u64 },
}

/// Hashes a message's key.
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
    /// Whether the lanes note which tasks got the last message.
    pub(crate) notes_sent: bool,
}

/// A grouping of a bolt, as one of the tasks sees it whose messages it gets: a message is first
/// offered, then sent.
pub(crate) trait Listener<M: Clone>: Send {
    /// Keeps a copy of the message for each task that is to get it, and returns their number. Runs
    /// users' code, which may panic. The caller then withdraws the message.
    fn offer(&mut self, message: Cow<'_, M>) -> usize;

    /// Forgets what was offered or sent before.
    fn withdraw(&mut self);

    /// Puts the copies into their lanes. Returns whether a batch is full that waits for roots.
    fn send(&mut self, tie: &mut dyn FnMut() -> Tie) -> bool;

    /// The numbers of the tasks that got the message that was sent last.
    fn sent_to(&self) -> &[usize];

    /// The first trees that wait for their roots have these.
    fn root(&mut self, roots: &[Root]);

    /// Sends what has been collected.
    fn flush(&mut self);

    /// Sends what has overflowed, as far as there is room by now.
    fn retry(&mut self);

    /// Number of batches in overflow.
    fn overflow(&self) -> usize;

    /// Whether something that has overflowed can go. The last look before a thread sleeps.
    fn look_for_room(&self) -> bool;
}

/// The copy of a message that waits for its root.
struct Rootless {
    /// Its place in the batch.
    at: usize,
    tree: usize,
    edge: u64,
}

/// The way to one task.
struct Lane<T> {
    inbox: Arc<Inbox<Batch<T>>>,
    filling: Batch<T>,
    rootless: Vec<Rootless>,
    /// How many messages the last batch had: for so many the next one has room.
    last: usize,
    overflow: VecDeque<Batch<T>>,
}

impl<T> Lane<T> {
    /// Sends what has been collected, but for what waits for a root. Returns how many batches
    /// found no room.
    fn send_ready(&mut self, most: usize) -> usize {
        let tuples = &mut self.filling.0;
        let ready = self.rootless.first().map_or(tuples.len(), |copy| copy.at);
        if ready == 0 {
            return 0;
        }
        let rest = if ready < tuples.len() { tuples.split_off(ready) } else { Vec::new() };
        let tuples = std::mem::replace(tuples, rest);
        self.rootless.iter_mut().for_each(|copy| copy.at -= ready);
        self.last = ready.min(most);
        if ready <= most {
            return usize::from(!self.push(Batch(tuples)));
        }
        let (mut tuples, mut overflowed) = (tuples.into_iter(), 0);
        while tuples.len() > 0 {
            let batch = Batch(tuples.by_ref().take(most).collect());
            overflowed += usize::from(!self.push(batch));
        }
        overflowed
    }

    /// Sends a batch, behind those that found no room. Returns whether there was room.
    fn push(&mut self, batch: Batch<T>) -> bool {
        let refused =
            if self.overflow.is_empty() { self.inbox.push(batch).err() } else { Some(batch) };
        let has_room = refused.is_none();
        self.overflow.extend(refused);
        has_room
    }

    /// The first trees that wait have these roots.
    fn root(&mut self, roots: &[Root]) {
        let tied = self.rootless.partition_point(|copy| copy.tree < roots.len());
        for copy in self.rootless.drain(..tied) {
            let (root, xor) = (roots[copy.tree], Cell::new(copy.edge));
            self.filling.0[copy.at].anchors = Anchors::from_buf([Anchor { root, xor }]);
        }
        self.rootless.iter_mut().for_each(|copy| copy.tree -= roots.len());
    }
}

/// One task's way to the tasks of a bolt, by one of its groupings.
pub(crate) struct Lanes<M> {
    lanes: Vec<Lane<M>>,
    choice: Choice<M>,
    sender: Sender,
    origin: Origin,
    /// The copies of the message at hand, and the lanes of the tasks that get them.
    copies: Vec<(usize, M)>,
    /// The tasks that got the last message, if they are noted.
    sent: Vec<usize>,
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
            filling: Batch::new(),
            rootless: Vec::new(),
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
            copies: Vec::new(),
            sent: Vec::new(),
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

impl<M> Drop for Lanes<M> {
    fn drop(&mut self) {
        self.copies.drain(..).for_each(discard);
    }
}

impl<M: Clone + Send> Listener<M> for Lanes<M> {
    #[inline]
    fn offer(&mut self, message: Cow<'_, M>) -> usize {
        self.withdraw();
        let last = if let Choice::All = self.choice {
            let last = self.lanes.len() - 1;
            self.copies.extend((0..last).map(|at| (at, M::clone(&message))));
            last
        } else {
            self.choose(&message)
        };
        self.copies.push((last, message.into_owned()));
        self.copies.len()
    }

    fn withdraw(&mut self) {
        self.copies.drain(..).for_each(discard);
        self.sent.clear();
    }

    #[inline]
    fn send(&mut self, tie: &mut dyn FnMut() -> Tie) -> bool {
        let (mut waits, origin, most) = (false, self.origin, self.sender.batch);
        for (at, message) in self.copies.drain(..) {
            if self.sender.notes_sent {
                self.sent.push(at);
            }
            let lane = &mut self.lanes[at];
            if lane.filling.0.is_empty() {
                self.filled.push(at);
                if lane.filling.0.capacity() == 0 {
                    lane.filling = lane.inbox.spare().unwrap_or(Batch::new());
                }
                lane.filling.0.reserve_exact(lane.last);
            }
            let anchors = match tie() {
                Tie::Of(anchors) => anchors,
                Tie::Rootless { tree, edge } => {
                    lane.rootless.push(Rootless { at: lane.filling.0.len(), tree, edge });
                    Anchors::new()
                }
            };
            lane.filling.0.push(Tuple { message, anchors, origin, received: 0 });
            if lane.filling.0.len() >= most {
                if lane.rootless.is_empty() {
                    self.overflow += lane.send_ready(most);
                } else {
                    waits = true;
                }
            }
        }
        waits
    }

    fn sent_to(&self) -> &[usize] {
        &self.sent
    }

    fn root(&mut self, roots: &[Root]) {
        for lane in &mut self.lanes {
            lane.root(roots);
            if lane.filling.0.len() >= self.sender.batch {
                self.overflow += lane.send_ready(self.sender.batch);
            }
        }
    }

    fn flush(&mut self) {
        let (lanes, overflow, most) = (&mut self.lanes, &mut self.overflow, self.sender.batch);
        self.filled.retain(|&at| {
            *overflow += lanes[at].send_ready(most);
            !lanes[at].filling.0.is_empty()
        });
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
    fn offer(&mut self, message: Cow<'_, M>) -> usize {
        self.inner.withdraw();
        (self.map)(message).map_or(0, |message| self.inner.offer(Cow::Owned(message)))
    }

    fn withdraw(&mut self) {
        self.inner.withdraw();
    }

    fn send(&mut self, tie: &mut dyn FnMut() -> Tie) -> bool {
        self.inner.send(tie)
    }

    fn sent_to(&self) -> &[usize] {
        self.inner.sent_to()
    }

    fn root(&mut self, roots: &[Root]) {
        self.inner.root(roots);
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
