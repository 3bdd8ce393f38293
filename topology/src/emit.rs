//! Sending: which tasks a message goes to, in batches, in order, without ever waiting.
//!
//! A batch that finds its queue full waits in the sender's *overflow*, and later batches to the
//! same task wait behind it, so order is kept. A task with overflow takes in nothing new: a spout
//! emits nothing, and a bolt executes nothing. Only bolts on a cycle go on, as they may be waiting
//! for themselves. The spouts that lead to them emit nothing meanwhile (`Jam`). So some task always
//! makes progress: the last task in a chain of waiting tasks waits for a bolt that no task holds
//! up. The overflow on a cycle is bounded by the messages in the queues when it began, and by what
//! bolts derive from them.

use crate::component::{Context, Hook};
use crate::error::{EmitError, Refused};
use crate::graph::{Choice, Route, Stream};
use crate::inbox::Inbox;
use crate::metrics::Stats;
use crate::task::caught;
use crate::tuple::{Anchors, Origin, Tuple};
use rand::rngs::SmallRng;
use rand::RngCore;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

/// Tuples that travel together.
pub(crate) type Batch<M> = Vec<Tuple<M>>;

/// The way to one task.
pub(crate) struct Lane<M> {
    inbox: Arc<Inbox<Batch<M>>>,
    filling: Batch<M>,
    /// How many messages the last batch had: for so many the next one has room.
    last: usize,
    overflow: VecDeque<Batch<M>>,
}

/// A task's way to its listeners.
pub(crate) struct Outbox<M> {
    lanes: Vec<Lane<M>>,
    batch: usize,
    /// Lanes with something that is not sent yet.
    filled: Vec<usize>,
    /// Batches in overflow, in all lanes.
    overflow: usize,
}

impl<M> Outbox<M> {
    pub(crate) fn new(inboxes: impl Iterator<Item = Arc<Inbox<Batch<M>>>>, batch: usize) -> Self {
        let lane = |inbox| Lane { inbox, filling: Vec::new(), last: 1, overflow: VecDeque::new() };
        Outbox { lanes: inboxes.map(lane).collect(), batch, filled: Vec::new(), overflow: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, at: usize, origin: Origin, message: M, anchors: Anchors) {
        let lane = &mut self.lanes[at];
        if lane.filling.is_empty() {
            self.filled.push(at);
            lane.filling.reserve_exact(lane.last);
        }
        lane.filling.push(Tuple { message, anchors, origin });
        if lane.filling.len() >= self.batch {
            self.send(at);
        }
    }

    fn send(&mut self, at: usize) {
        let lane = &mut self.lanes[at];
        let batch = std::mem::take(&mut lane.filling);
        if batch.is_empty() {
            return;
        }
        lane.last = batch.len();
        let refused =
            if lane.overflow.is_empty() { lane.inbox.push(batch).err() } else { Some(batch) };
        if let Some(batch) = refused {
            lane.overflow.push_back(batch);
            self.overflow += 1;
        }
    }

    /// Sends what has been collected.
    pub(crate) fn flush(&mut self) {
        while let Some(at) = self.filled.pop() {
            self.send(at);
        }
    }

    /// Sends what has overflowed, as far as there is room by now. Whether something is left.
    pub(crate) fn retry(&mut self) -> bool {
        if self.overflow == 0 {
            return false;
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
        self.overflow > 0
    }

    /// Whether something that has overflowed can go. The last look before a thread sleeps.
    pub(crate) fn look_for_room(&self) -> bool {
        let waits = |lane: &&Lane<M>| !lane.overflow.is_empty();
        let mut lanes = self.lanes.iter().filter(waits);
        self.overflow > 0 && lanes.any(|lane| lane.inbox.look_for_room())
    }

    pub(crate) fn overflow(&self) -> usize {
        self.overflow
    }
}

/// The tasks that a message goes to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found {
    /// The task of this lane.
    One(usize),
    /// The tasks that the emitter has noted: any number of them.
    Some,
}

/// The lane of the task that a message goes to, on a route that leads each message to one.
#[inline]
fn choose<M>(
    route: &Route<M>,
    turn: &mut usize,
    own: usize,
    hasher: &foldhash::quality::FixedState,
    message: &M,
) -> usize {
    let task = match &route.choice {
        Choice::Local => own % route.tasks,
        Choice::Shuffle => {
            *turn = if *turn + 1 < route.tasks { *turn + 1 } else { 0 };
            *turn
        }
        Choice::Fields(fields) => {
            let mut hasher = hasher.build_hasher();
            fields.iter().for_each(|field| field(message, &mut hasher));
            // The high half of the product: a number below the number of tasks.
            ((u128::from(hasher.finish()) * route.tasks as u128) >> 64) as usize
        }
        Choice::Global | Choice::All | Choice::Direct => 0,
    };
    route.first + task
}

/// The hooks that are notified of each event; usually none.
pub(crate) type Hooks<M> = Arc<[Box<dyn Hook<M>>]>;

/// What a task sends with.
pub(crate) struct Emitter<M> {
    pub(crate) context: Context,
    pub(crate) outbox: Outbox<M>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) hooks: Hooks<M>,
    pub(crate) random: SmallRng,
    streams: Arc<[Stream<M>]>,
    /// The next task in turn, for each route of each stream.
    turns: Vec<Vec<usize>>,
    /// The lanes of the tasks that the message at hand goes to, if it is not one.
    found: Vec<usize>,
    /// Its copies for all of them but the first.
    copies: Vec<M>,
    /// The hasher is the same in all tasks: equal fields go to the same task.
    hasher: foldhash::quality::FixedState,
    origin: Origin,
}

impl<M: Clone> Emitter<M> {
    #[allow(clippy::too_many_arguments)] // called once
    pub(crate) fn new(
        component: usize,
        context: Context,
        outbox: Outbox<M>,
        stats: Arc<Stats>,
        hooks: Hooks<M>,
        streams: Arc<[Stream<M>]>,
        hasher: foldhash::quality::FixedState,
        mut random: SmallRng,
    ) -> Self {
        // Tasks do not all begin with the same one.
        let mut turn = |route: &Route<M>| random.next_u32() as usize % route.tasks;
        let turns =
            streams.iter().map(|stream| stream.routes.iter().map(&mut turn).collect()).collect();
        #[allow(clippy::cast_possible_truncation)] // checked by the builder
        let origin = Origin { component: component as u32, stream: 0, task: context.task as u32 };
        Emitter {
            context,
            outbox,
            stats,
            hooks,
            random,
            streams,
            turns,
            found: Vec::new(),
            copies: Vec::new(),
            hasher,
            origin,
        }
    }

    /// The number of the stream with this name.
    pub(crate) fn stream(&self, name: &str) -> Result<usize, Refused> {
        let at = self.streams.iter().position(|stream| &*stream.name == name);
        at.ok_or(Refused::UndeclaredStream)
    }

    /// An id for an edge.
    pub(crate) fn edge(random: &mut SmallRng) -> u64 {
        loop {
            let id = random.next_u64();
            if id != 0 {
                return id;
            }
        }
    }

    /// Finds the tasks that get a message on this stream, if the emitter may use the stream. With
    /// `direct`, it finds the task of that number of each component that listens by direct
    /// grouping.
    #[inline]
    pub(crate) fn find(
        &mut self,
        stream: Result<usize, Refused>,
        message: &M,
        direct: Option<usize>,
    ) -> Result<(usize, Found), Refused> {
        let stream = stream?;
        let found = match (&self.streams[stream].routes[..], direct) {
            ([route], None) if route.is_to_one() => {
                let turn = &mut self.turns[stream][0];
                let to = choose(route, turn, self.context.task, &self.hasher, message);
                Found::One(to)
            }
            _ => {
                self.find_all(stream, message, direct)?;
                Found::Some
            }
        };
        Ok((stream, found))
    }

    fn find_all(
        &mut self,
        stream: usize,
        message: &M,
        direct: Option<usize>,
    ) -> Result<(), Refused> {
        let found = &mut self.found;
        found.clear();
        let routes = self.streams[stream].routes.iter();
        for (route, turn) in routes.zip(&mut self.turns[stream]) {
            match (&route.choice, direct) {
                (Choice::Direct, Some(task)) if task < route.tasks => {
                    found.push(route.first + task);
                }
                (Choice::Direct, _) | (_, Some(_)) => {}
                (Choice::All, None) => found.extend(route.first..route.first + route.tasks),
                (_, None) => {
                    let to = choose(route, turn, self.context.task, &self.hasher, message);
                    found.push(to);
                }
            }
        }
        if direct.is_some() && found.is_empty() {
            return Err(Refused::NoSuchTask);
        }
        // Hashing and copying may panic: until here nothing has been counted, issued or sent.
        self.copies.clear();
        self.copies.extend((1..found.len()).map(|_| message.clone()));
        Ok(())
    }

    /// Emits a message whose copies have these `anchors`, unless no task listens or its stream is
    /// not declared.
    pub(crate) fn emit(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
        anchors: impl FnMut(&mut SmallRng) -> Anchors,
    ) -> Result<(), EmitError<M>> {
        match self.find(stream, &message, direct) {
            Ok((stream, found)) => {
                self.emit_found(stream, found, message, anchors);
                Ok(())
            }
            Err(why) => Err(EmitError::untracked(message, why)),
        }
    }

    /// Emits a message for which the tasks have been found that it goes to.
    #[inline]
    pub(crate) fn emit_found(
        &mut self,
        stream: usize,
        found: Found,
        message: M,
        mut anchors: impl FnMut(&mut SmallRng) -> Anchors,
    ) {
        let origin = self.origin(stream);
        self.copies(stream, found, message, |random, outbox, to, message| {
            let anchors = anchors(random);
            outbox.push(to, origin, message, anchors);
        });
    }

    /// Where the messages of a stream come from.
    #[inline]
    fn origin(&self, stream: usize) -> Origin {
        #[allow(clippy::cast_possible_truncation)] // no topology declares 2^32 streams
        Origin { stream: stream as u32, ..self.origin }
    }

    /// Counts a message as sent to the tasks that were [found](Self::find) for it, and calls `each`
    /// with every one of them and its copy, which is yet to be sent.
    #[inline]
    pub(crate) fn copies(
        &mut self,
        stream: usize,
        found: Found,
        message: M,
        mut each: impl FnMut(&mut SmallRng, &mut Outbox<M>, usize, M),
    ) {
        self.tell(|hook| hook.emit(&self.context, &self.streams[stream].name, &message));
        self.stats.emitted.add(1);
        if let Found::One(to) = found {
            self.stats.transferred.add(1);
            return each(&mut self.random, &mut self.outbox, to, message);
        }
        self.stats.transferred.add(self.found.len() as u64);
        let mut each = |to, message| each(&mut self.random, &mut self.outbox, to, message);
        for (&to, message) in self.found.iter().skip(1).zip(self.copies.drain(..)) {
            each(to, message);
        }
        if let Some(&first) = self.found.first() {
            each(first, message);
        }
    }

    /// Sends a copy that has been counted.
    #[inline]
    pub(crate) fn send(&mut self, stream: usize, to: usize, message: M, anchors: Anchors) {
        let origin = self.origin(stream);
        self.outbox.push(to, origin, message, anchors);
    }

    /// What has not been sent may go now. Whether something has, and whether something still has no
    /// room.
    pub(crate) fn retry(&mut self) -> (bool, bool) {
        let before = self.outbox.overflow();
        let left = self.outbox.retry();
        self.stats.overflow.set(self.outbox.overflow() as u64);
        (self.outbox.overflow() < before, left)
    }

    /// Sends what has been collected.
    pub(crate) fn flush(&mut self) {
        self.outbox.flush();
        self.stats.overflow.set(self.outbox.overflow() as u64);
    }

    pub(crate) fn report(&self, error: &dyn std::fmt::Display) {
        self.stats.errors.add(1);
        self.tell(|hook| hook.error(&self.context, &error.to_string()));
    }

    /// Notifies the hooks. The emitter catches and counts a panic of a hook.
    #[inline]
    pub(crate) fn tell(&self, f: impl Fn(&dyn Hook<M>)) {
        if !self.hooks.is_empty() {
            self.tell_all(f);
        }
    }

    #[cold]
    fn tell_all(&self, f: impl Fn(&dyn Hook<M>)) {
        for hook in &*self.hooks {
            if caught(|| f(&**hook)).is_err() {
                self.stats.panics.add(1);
            }
        }
    }
}
