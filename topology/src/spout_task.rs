//! A spout at work: what it has pending, what is emitted again, what it is told.

use crate::builder::{OnDeadLetter, SpoutFactory};
use crate::component::{Next, Spout};
use crate::emit::{Emitter, Found};
use crate::error::{EmitError, Refused};
use crate::inbox::{Inbox, Jam};
use crate::instance::{guarded, Instance, Workplace};
use crate::outcomes::Ended;
use crate::replay::{DeadLetter, Failure, Replay};
use crate::task::{discard, Shared, Step, Task, SAMPLED};
use crate::tuple::{Anchor, Anchors};
use expiry::{AckError, Reason, Root, Timeout};
use rand::rngs::SmallRng;
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How long after the tracker was full it is tried again, in nanoseconds.
const FULL_PAUSE: u64 = 1_000_000;

/// How long a spout that has nothing is left alone, in nanoseconds.
const IDLE_PAUSE: u64 = 1_000_000;

/// So many trees are begun together.
const TOGETHER: usize = 64;

/// A message that is pending: in flight, or waiting to be emitted again.
struct Pending<M> {
    id: u64,
    stream: usize,
    direct: Option<usize>,
    /// Kept if it may have to be emitted again, or be a dead letter.
    message: Option<M>,
    attempts: u32,
    /// When it was emitted first.
    began: u64,
}

/// A message on its way to one task, whose tree has no root yet.
struct Rootless<M> {
    /// Which of the trees that are to begin it is a part of. If it is tracked by nobody, the next one.
    tree: usize,
    /// Its edge in that tree; 0 if it is tracked by nobody.
    edge: u64,
    to: usize,
    stream: usize,
    message: M,
}

/// What a spout's collector works on.
pub(crate) struct Desk<M> {
    pub(crate) emitter: Emitter<M>,
    pub(crate) shared: Arc<Shared>,
    places: Vec<Option<Pending<M>>>,
    free: Vec<u32>,
    timeout: Timeout,
    keeps: bool,
    /// The number of this spout's task among all spouts'.
    number: u32,
    /// The places of messages that were acked, of which the spout is yet to be told.
    acked: VecDeque<u32>,
    /// Trees that are to begin: the XOR of their edges, and who is told. All at once, it is cheaper.
    trees: Vec<(u64, u64)>,
    /// What is sent then, in order.
    rootless: Vec<Rootless<M>>,
    roots: Vec<Root>,
    now: u64,
}

impl<M: Clone> Workplace for Desk<M> {
    type Message = M;

    fn emitter(&self) -> &Emitter<M> {
        &self.emitter
    }

    fn now(&self) -> u64 {
        self.now
    }
}

impl<M: Clone> Desk<M> {
    pub(crate) fn room(&self) -> usize {
        self.free.len()
    }

    /// Emits a new message.
    pub(crate) fn emit(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
        id: u64,
    ) -> Result<(), EmitError<M>> {
        let Some(&place) = self.free.last() else {
            let why = Refused::MaxPending;
            return Err(EmitError { message, why });
        };
        // What may panic comes first.
        let (stream, found) = match self.emitter.find(stream, &message, direct) {
            Ok(found) => found,
            Err(why) => return Err(EmitError { message, why }),
        };
        let kept = self.keeps.then(|| message.clone());
        self.free.pop();
        self.places[place as usize] = Some(Pending {
            id,
            stream,
            direct,
            message: kept,
            attempts: 1,
            began: self.now,
        });
        self.count_pending();
        if self.shared.tracker.is_some() {
            self.attempt(place, stream, found, message);
        } else {
            let emitter = &mut self.emitter;
            emitter.emit_found(stream, found, message, |_| Anchors::new());
            // As soon as the spout has returned.
            self.acked.push_back(place);
        }
        if self.trees.len() >= TOGETHER {
            // What has no room for its root is tried again when the spout has returned.
            let _ = self.begin();
        }
        Ok(())
    }

    /// Emits a message that nobody tracks.
    pub(crate) fn emit_untracked(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        if self.trees.is_empty() {
            return self
                .emitter
                .emit(stream, direct, message, |_| Anchors::new());
        }
        match self.emitter.find(stream, &message, direct) {
            Ok((stream, found)) => {
                self.collect(stream, found, message, |_| 0);
                Ok(())
            }
            Err(why) => Err(EmitError { message, why }),
        }
    }

    /// An attempt at the message in this place, for which the tasks have been found that it goes to.
    fn attempt(&mut self, place: u32, stream: usize, found: Found, message: M) {
        let owner = u64::from(self.number) << 32 | u64::from(place);
        let xor = self.collect(stream, found, message, Emitter::<M>::edge);
        self.trees.push((xor, owner));
    }

    /// Puts a message by until its tree has a root. The XOR of its edges.
    fn collect(
        &mut self,
        stream: usize,
        found: Found,
        message: M,
        mut edge: impl FnMut(&mut SmallRng) -> u64,
    ) -> u64 {
        let (rootless, tree) = (&mut self.rootless, self.trees.len());
        let mut xor = 0;
        self.emitter
            .copies(stream, found, message, |random, _, to, message| {
                let edge = edge(random);
                xor ^= edge;
                rootless.push(Rootless {
                    tree,
                    edge,
                    to,
                    stream,
                    message,
                });
            });
        xor
    }

    /// Begins the trees of the messages that were emitted, and sends these. If the tracker refuses one, that and what was emitted
    /// after it stay where they are.
    fn begin(&mut self) -> Result<(), AckError> {
        let Some(tracker) = self
            .shared
            .tracker
            .as_ref()
            .filter(|_| !self.trees.is_empty())
        else {
            return Ok(());
        };
        self.roots.clear();
        let begun = tracker.issue_batch_with(&self.trees, self.timeout, &mut self.roots);
        let issued = self.roots.len();
        let is_sent = |copy: &Rootless<M>| copy.tree + usize::from(copy.edge != 0) <= issued;
        let sent = if begun.is_ok() {
            self.rootless.len()
        } else {
            self.rootless
                .iter()
                .take_while(|copy| is_sent(copy))
                .count()
        };
        for copy in self.rootless.drain(..sent) {
            let anchors = if copy.edge == 0 {
                Anchors::new()
            } else {
                let (root, xor) = (self.roots[copy.tree], Cell::new(copy.edge));
                Anchors::from_buf([Anchor { root, xor }])
            };
            self.emitter
                .send(copy.stream, copy.to, copy.message, anchors);
        }
        self.trees.drain(..issued);
        self.rootless
            .iter_mut()
            .for_each(|copy| copy.tree -= issued);
        begun
    }

    /// The message that waits in this place, and its stream, when the tasks have been found that it goes to.
    fn find_again(&mut self, place: u32) -> Option<(usize, Found, M)> {
        let pending = self.places[place as usize].as_ref()?;
        let message = pending.message.clone()?;
        // It has been found before.
        let (stream, direct) = (Ok(pending.stream), pending.direct);
        let (stream, found) = self.emitter.find(stream, &message, direct).ok()?;
        Some((stream, found, message))
    }

    /// What is in a place. Nothing where there is none: the owner of a root that somebody else has issued.
    fn take(&mut self, place: u32) -> Option<Pending<M>> {
        self.places.get_mut(place as usize)?.take()
    }

    fn release(&mut self, place: u32) {
        discard(self.places[place as usize].take());
        self.free.push(place);
        self.count_pending();
    }

    fn count_pending(&self) {
        let pending = self.places.len() - self.free.len();
        self.emitter.stats.pending.set(pending as u64);
    }
}

pub(crate) struct SpoutTask<M> {
    spout: Instance<dyn Spout<M>>,
    factory: SpoutFactory<M>,
    desk: Desk<M>,
    outcomes: Arc<Inbox<Ended>>,
    jam: Arc<Jam>,
    /// It has emitted nothing because of that.
    is_jammed: bool,
    replay: Option<Replay>,
    /// When which message is to be emitted again.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    on_dead_letter: Option<Arc<OnDeadLetter<M>>>,
    is_active: bool,
    is_done: bool,
    /// When the tracker, which was full, is tried again.
    full_until: u64,
    /// Until when the spout, which had nothing, is left alone.
    idle_until: u64,
    flushed: u64,
    last: u64,
}

/// What a spout's task is made of.
pub(crate) struct SpoutParts<M> {
    pub(crate) emitter: Emitter<M>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u32,
    pub(crate) outcomes: Arc<Inbox<Ended>>,
    pub(crate) jam: Arc<Jam>,
    pub(crate) factory: SpoutFactory<M>,
    pub(crate) max_pending: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) replay: Option<Replay>,
    pub(crate) on_dead_letter: Option<Arc<OnDeadLetter<M>>>,
}

impl<M: Clone + Send + 'static> SpoutTask<M> {
    pub(crate) fn new(parts: SpoutParts<M>) -> Self {
        let places = parts.max_pending;
        let last = parts.shared.clock.now();
        SpoutTask {
            spout: Instance::new(),
            desk: Desk {
                emitter: parts.emitter,
                shared: parts.shared,
                places: (0..places).map(|_| None).collect(),
                #[allow(clippy::cast_possible_truncation)] // checked by the builder
                free: (0..places as u32).rev().collect(),
                timeout: parts.timeout.map_or(Timeout::Default, Timeout::After),
                keeps: parts.replay.is_some() || parts.on_dead_letter.is_some(),
                number: parts.number,
                acked: VecDeque::new(),
                trees: Vec::new(),
                rootless: Vec::new(),
                roots: Vec::new(),
                now: last,
            },
            factory: parts.factory,
            outcomes: parts.outcomes,
            jam: parts.jam,
            is_jammed: false,
            replay: parts.replay,
            later: BinaryHeap::new(),
            on_dead_letter: parts.on_dead_letter,
            is_active: false,
            is_done: false,
            full_until: 0,
            idle_until: 0,
            flushed: last,
            last,
        }
    }

    /// Whether there is an instance; if not, one is made, unless that panics, or has a moment ago.
    fn is_made(&mut self) -> bool {
        let SpoutTask {
            spout,
            factory,
            desk,
            is_active,
            ..
        } = self;
        spout.is_made(
            desk,
            |context| factory(context),
            |spout, context| {
                spout.open(context);
                if *is_active {
                    spout.activate();
                }
            },
        )
    }

    /// Calls the spout, which is made first, or again, if there is none. `None` if it has panicked.
    fn call<R>(&mut self, f: impl FnOnce(&mut dyn Spout<M>, &mut Desk<M>) -> R) -> Option<R> {
        self.is_made();
        let done = self
            .spout
            .call(&mut self.desk, |spout, desk| f(spout, desk));
        done?.ok()
    }

    /// Tells the spout of what has ended. Whether there was something.
    fn settle(&mut self) -> bool {
        let mut any = false;
        // An outcome that is taken out while there is nobody to be told of it would be lost.
        while self.is_made() {
            let Some(ended) = self.outcomes.pop() else {
                break;
            };
            any = true;
            self.ended(ended);
        }
        let left = self.desk.acked.len();
        if left > 0 {
            self.tell_acked();
        }
        any || self.desk.acked.len() < left
    }

    fn ended(&mut self, ended: Ended) {
        let (place, reason, why) = match ended {
            Ended::Acked(places) => return self.desk.acked.extend(places),
            Ended::Otherwise { place, reason, why } => (place, reason, why),
        };
        let failure = match reason {
            Reason::TimedOut { due, seen } => Failure::TimedOut { due, seen },
            Reason::Cancelled => Failure::Stopped,
            Reason::Failed { by } => {
                let by = by.and_then(|by| self.desk.shared.names.get(usize::try_from(by).ok()?));
                let by = by.map(|(name, _)| name.clone());
                Failure::Failed { by, why }
            }
            _ => Failure::Failed { by: None, why },
        };
        self.failed(place, failure);
    }

    /// Tells the spout which messages have been acked: all in one call of its code, unless it panics.
    fn tell_acked(&mut self) {
        while !self.desk.acked.is_empty() && self.is_made() {
            self.call(|spout, desk| {
                while let Some(place) = desk.acked.pop_front() {
                    let Some(pending) = desk.take(place) else {
                        continue;
                    };
                    desk.free.push(place);
                    let (id, took) = (pending.id, desk.now.saturating_sub(pending.began));
                    if pending.message.is_some() {
                        discard(pending.message);
                    }
                    let emitter = &desk.emitter;
                    emitter.stats.acked.add(1);
                    if emitter.stats.acked.get() % SAMPLED == 1 {
                        emitter.stats.took(took);
                    }
                    let took = Duration::from_nanos(took);
                    emitter.tell(|hook| hook.spout_ack(&emitter.context, id, took));
                    spout.ack(id);
                }
            });
        }
        // Last: whoever finds nothing pending finds that the spout has been told.
        self.desk.count_pending();
    }

    fn failed(&mut self, place: u32, failure: Failure) {
        let stats = &self.desk.emitter.stats;
        match failure {
            Failure::TimedOut { .. } => stats.timed_out.add(1),
            _ => stats.failed.add(1),
        }
        let Some(Some(pending)) = self.desk.places.get(place as usize) else {
            return;
        };
        let (id, attempts) = (pending.id, pending.attempts);
        let replay = self.replay.filter(|_| failure != Failure::Stopped);
        let pause = replay.and_then(|replay| replay.pause(attempts, &mut self.desk.emitter.random));
        let emitter = &self.desk.emitter;
        emitter.tell(|hook| hook.spout_fail(&emitter.context, id, &failure, pause.is_none()));
        let Some(pause) = pause else {
            return self.give_up(place, failure);
        };
        self.call(|spout, desk| {
            let pending = desk.places[place as usize].as_mut();
            if let Some(message) = pending.and_then(|pending| pending.message.as_mut()) {
                spout.replay(id, &failure, message);
            }
        });
        let due = self.desk.now.saturating_add(pause);
        self.later.push(Reverse((due, place)));
    }

    fn give_up(&mut self, place: u32, failure: Failure) {
        let Some(pending) = self.desk.take(place) else {
            return;
        };
        self.desk.emitter.stats.dead.add(1);
        match (self.on_dead_letter.clone(), pending.message) {
            (Some(handler), Some(message)) => {
                let letter = DeadLetter {
                    message,
                    id: pending.id,
                    component: self.desk.emitter.context.component().to_string(),
                    attempts: pending.attempts,
                    failure: failure.clone(),
                };
                if let Err(panicked) = guarded(&mut self.desk, |_| handler(letter)) {
                    let error = format!("the handler of dead letters {panicked}");
                    self.desk.emitter.report(&error);
                }
            }
            (_, message) => discard(message),
        }
        self.call(|spout, _| spout.fail(pending.id, &failure));
        self.desk.release(place);
    }

    /// Emits again what is due. Whether there was something.
    fn replay(&mut self) -> bool {
        let mut any = false;
        while let Some(&Reverse((due, place))) = self.later.peek() {
            if due > self.desk.now {
                break;
            }
            self.later.pop();
            any = true;
            match guarded(&mut self.desk, |desk| desk.find_again(place)) {
                Ok(Some((stream, found, message))) => {
                    self.desk.attempt(place, stream, found, message);
                    self.desk.emitter.stats.replayed.add(1);
                    if let Some(pending) = &mut self.desk.places[place as usize] {
                        pending.attempts += 1;
                    }
                }
                Ok(None) => {}
                // Given up, it would be told of to nobody.
                Err(_) if !self.is_made() => {
                    self.later.push(Reverse((self.spout.due(), place)));
                }
                Err(panicked) => {
                    let why = format!("emitting it again {panicked}");
                    self.desk.emitter.report(&why);
                    let why = Some(why.into());
                    self.give_up(place, Failure::Failed { by: None, why });
                }
            }
        }
        any
    }

    /// Begins the trees of what was emitted. False if the tracker has no room: then nothing new is emitted until it has.
    fn begin(&mut self) -> bool {
        match self.desk.begin() {
            Ok(()) => true,
            Err(AckError::Closed) => {
                // Somebody has shut the tracker down.
                for copy in self.desk.rootless.drain(..) {
                    let (emitter, anchors) = (&mut self.desk.emitter, Anchors::new());
                    emitter.send(copy.stream, copy.to, copy.message, anchors);
                }
                for (_, owner) in std::mem::take(&mut self.desk.trees) {
                    #[allow(clippy::cast_possible_truncation)] // its lower half
                    self.give_up(owner as u32, Failure::Stopped);
                }
                true
            }
            Err(error) => {
                self.desk.emitter.report(&error);
                self.full_until = self.desk.now.saturating_add(FULL_PAUSE);
                false
            }
        }
    }

    /// Becomes active, or inactive, as the topology is.
    fn follow(&mut self) {
        let is_open = self.desk.shared.gate.is_open();
        if is_open == self.is_active {
            return;
        }
        if is_open {
            let desk = &self.desk;
            if desk.emitter.stats.visitor.enter(&desk.shared.gate) {
                self.call(|spout, _| spout.activate());
                // Not before: an instance that was made in the call has been told.
                self.is_active = true;
            }
        } else {
            self.call(|spout, _| spout.deactivate());
            self.is_active = false;
            self.desk.emitter.stats.visitor.leave();
        }
    }

    /// Whether it may emit.
    fn is_asked(&self) -> bool {
        self.is_active && !self.is_done && self.desk.room() > 0
    }

    /// Asks the spout for more, if it may emit. What it said, unless there was a reason not to ask.
    fn ask(&mut self, since: u64) -> Option<Next> {
        if self.is_done {
            return None;
        }
        let (stats, now) = (&self.desk.emitter.stats, self.desk.now);
        if !self.is_active {
            stats.skipped_inactive.add(since);
            return None;
        }
        if self.desk.room() == 0 {
            stats.skipped_max_pending.add(since);
            return None;
        }
        let is_called = self.desk.emitter.context.call.take();
        if now < self.idle_until && !is_called {
            return None;
        }
        let next = self.call(|spout, desk| spout.next(&mut crate::SpoutCollector { desk }));
        match next {
            // One that panics whenever it is asked is not asked all the time.
            Some(Next::Idle) | None => self.idle_until = now.saturating_add(IDLE_PAUSE),
            Some(Next::Asleep) => self.idle_until = u64::MAX,
            Some(Next::Done) => {
                self.is_done = true;
                self.desk
                    .emitter
                    .stats
                    .is_done
                    .store(true, Ordering::Release);
            }
            Some(Next::Ready) => self.idle_until = 0,
        }
        next
    }
}

impl<M: Clone + Send + 'static> Task for SpoutTask<M> {
    fn step(&mut self) -> Step {
        let now = self.desk.shared.clock.now();
        let since = now.saturating_sub(std::mem::replace(&mut self.last, now));
        self.desk.now = now;
        let mut worked = self.settle();
        self.follow();
        let (sent, waits) = self.desk.emitter.retry();
        worked |= sent;
        self.is_jammed = self.jam.is_on();
        if waits || self.is_jammed {
            self.desk.emitter.stats.skipped_back_pressure.add(since);
            // What others have room for does not wait too.
            self.desk.emitter.flush();
            return Step { worked, due: None };
        }
        let is_full = !self.desk.trees.is_empty() && (now < self.full_until || !self.begin());
        if is_full {
            self.desk.emitter.flush();
            return Step {
                worked,
                due: Some(self.full_until),
            };
        }
        worked |= self.replay();
        let emitted = self.desk.emitter.stats.emitted.get();
        let next = self.ask(since);
        worked |= next == Some(Next::Ready) || self.desk.emitter.stats.emitted.get() != emitted;
        self.begin();
        worked |= self.settle();
        if !worked
            || now.saturating_sub(self.flushed) >= self.desk.shared.flush_every
            || self.desk.room() == 0
        {
            self.flushed = now;
            self.desk.emitter.flush();
        }
        let later = self.later.peek().map(|Reverse((due, _))| *due);
        let again = Some(self.idle_until.max(now)).filter(|&due| self.is_asked() && due < u64::MAX);
        let made = (!self.spout.is_alive()).then_some(self.spout.due());
        Step {
            worked,
            due: later.into_iter().chain(again).chain(made).min(),
        }
    }

    fn has_input(&self) -> bool {
        let is_told = self.spout.is_alive() && !self.outcomes.is_empty();
        let outbox = &self.desk.emitter.outbox;
        let is_free = self.is_asked() && outbox.overflow() == 0 && self.desk.trees.is_empty();
        is_told
            || self.desk.shared.gate.is_open() != self.is_active
            || outbox.look_for_room()
            || (self.is_jammed && !self.jam.is_on())
            || (is_free && self.desk.emitter.context.call.is_there())
    }

    fn close(&mut self) {
        self.desk.now = self.desk.shared.clock.now();
        if self.spout.is_alive() {
            self.settle();
        }
        if self.spout.is_alive() {
            self.call(|spout, _| spout.close());
            self.spout.end();
        }
    }
}
