//! Sending: which tasks a message goes to, in batches, in order, without ever waiting.
//!
//! A batch that has no room waits in the sender's *overflow*, and later ones to the same task behind it, so that order is kept. Who has
//! overflow takes in nothing new: a spout emits nothing, a bolt executes nothing, until it has got rid of it. Only bolts on a
//! cycle go on, as they may be waiting for themselves. So it always goes on somewhere: the last of those who wait for one another waits
//! for a bolt that nobody holds up. What overflows on a cycle is bounded by what the spouts have pending.

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
    overflow: VecDeque<Batch<M>>,
}

/// A task's way to all others.
pub(crate) struct Outbox<M> {
    lanes: Vec<Lane<M>>,
    batch: usize,
    /// Lanes with something that is not sent yet.
    filled: Vec<usize>,
    /// Batches in overflow, in all lanes.
    overflow: usize,
}

impl<M> Outbox<M> {
    pub(crate) fn new(inboxes: &[Arc<Inbox<Batch<M>>>], batch: usize) -> Self {
        let lane = |inbox: &Arc<Inbox<Batch<M>>>| Lane {
            inbox: inbox.clone(),
            filling: Vec::new(),
            overflow: VecDeque::new(),
        };
        Outbox {
            lanes: inboxes.iter().map(lane).collect(),
            batch,
            filled: Vec::new(),
            overflow: 0,
        }
    }

    fn push(&mut self, at: usize, tuple: Tuple<M>) {
        let lane = &mut self.lanes[at];
        if lane.filling.is_empty() {
            self.filled.push(at);
            lane.filling.reserve_exact(self.batch);
        }
        lane.filling.push(tuple);
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
        let refused = if lane.overflow.is_empty() {
            lane.inbox.push(batch).err()
        } else {
            Some(batch)
        };
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

    pub(crate) fn overflow(&self) -> usize {
        self.overflow
    }
}

/// Who is told what happens; usually nobody.
pub(crate) type Hooks<M> = Arc<[Box<dyn Hook<M>>]>;

/// What a task sends with.
pub(crate) struct Emitter<M> {
    pub(crate) context: Context,
    pub(crate) outbox: Outbox<M>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) hooks: Hooks<M>,
    pub(crate) random: SmallRng,
    streams: Arc<[Stream<M>]>,
    /// Of each route of each stream, whose turn it is.
    turns: Vec<Vec<usize>>,
    /// The lanes of the tasks that the message at hand goes to.
    found: Vec<usize>,
    /// Its copies for all of them but one.
    copies: Vec<M>,
    /// The same in all tasks: equal fields go to the same one.
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
        let turns = streams
            .iter()
            .map(|stream| stream.routes.iter().map(&mut turn).collect())
            .collect();
        #[allow(clippy::cast_possible_truncation)] // checked by the builder
        let origin = Origin {
            component: component as u32,
            stream: 0,
            task: context.task as u32,
        };
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

    /// Finds the tasks that get a message on this stream, for [`send`](Self::send); with `direct`, those of that number of whoever
    /// listens directly.
    pub(crate) fn find(
        &mut self,
        stream: usize,
        message: &M,
        direct: Option<usize>,
    ) -> Result<(), Refused> {
        let found = &mut self.found;
        found.clear();
        let routes = self.streams[stream].routes.iter();
        for (route, turn) in routes.zip(&mut self.turns[stream]) {
            let task = match (&route.choice, direct) {
                (Choice::Direct, Some(task)) if task < route.tasks => task,
                (Choice::Direct, _) | (_, Some(_)) => continue,
                (Choice::All, None) => {
                    found.extend(route.first..route.first + route.tasks);
                    continue;
                }
                (Choice::Global, None) => 0,
                (Choice::Local, None) => self.context.task % route.tasks,
                (Choice::Shuffle, None) => {
                    *turn = if *turn + 1 < route.tasks {
                        *turn + 1
                    } else {
                        0
                    };
                    *turn
                }
                (Choice::Fields(fields), None) => {
                    let mut hasher = self.hasher.build_hasher();
                    fields.iter().for_each(|field| field(message, &mut hasher));
                    // The high half of the product: a number below the number of tasks.
                    ((u128::from(hasher.finish()) * route.tasks as u128) >> 64) as usize
                }
            };
            found.push(route.first + task);
        }
        let found = found.len();
        if direct.is_some() && found == 0 {
            return Err(Refused::NoSuchTask);
        }
        // Hashing and copying may panic: until here nothing has been counted, issued or sent.
        self.copies.clear();
        self.copies.extend((1..found).map(|_| message.clone()));
        Ok(())
    }

    /// Emits a message whose copies have these `anchors`, unless it has nobody to go to or its stream is not declared.
    pub(crate) fn emit(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
        anchors: impl FnMut(&mut SmallRng) -> Anchors,
    ) -> Result<(), EmitError<M>> {
        let found = stream.and_then(|stream| {
            self.find(stream, &message, direct)?;
            Ok(stream)
        });
        match found {
            Ok(stream) => {
                self.send(stream, message, anchors);
                Ok(())
            }
            Err(why) => Err(EmitError { message, why }),
        }
    }

    /// How many tasks have been found.
    pub(crate) fn found(&self) -> usize {
        self.found.len()
    }

    /// Sends a message to the tasks that were [found](Self::find) for it, each copy with its `anchors`.
    pub(crate) fn send(
        &mut self,
        stream: usize,
        message: M,
        mut anchors: impl FnMut(&mut SmallRng) -> Anchors,
    ) {
        self.tell(|hook| hook.emit(&self.context, &self.streams[stream].name, &message));
        let found = self.found.len();
        self.stats.emitted.add(1);
        self.stats.transferred.add(found as u64);
        #[allow(clippy::cast_possible_truncation)] // nobody declares 2^32 streams
        let origin = Origin {
            stream: stream as u32,
            ..self.origin
        };
        for (nth, message) in (1..found).zip(self.copies.drain(..)) {
            let tuple = Tuple {
                message,
                anchors: anchors(&mut self.random),
                origin,
            };
            self.outbox.push(self.found[nth], tuple);
        }
        if let Some(&first) = self.found.first() {
            let anchors = anchors(&mut self.random);
            let tuple = Tuple {
                message,
                anchors,
                origin,
            };
            self.outbox.push(first, tuple);
        }
    }

    /// What has not been sent may go now. Whether something has, and whether something still has no room.
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

    /// Tells the hooks. A panic of one of them is caught, and counted.
    pub(crate) fn tell(&self, f: impl Fn(&dyn Hook<M>)) {
        for hook in &*self.hooks {
            if caught(|| f(&**hook)).is_none() {
                self.stats.panics.add(1);
            }
        }
    }
}
