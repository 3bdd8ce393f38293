//! A spout at work: what it has pending, what is emitted again, what it is told.

use crate::builder::{OnDeadLetter, SpoutFactory};
use crate::component::{Next, Spout};
use crate::emit::Emitter;
use crate::error::{EmitError, Refused};
use crate::inbox::Inbox;
use crate::replay::{DeadLetter, Failure, Replay};
use crate::task::{guarded, Shared, Step, Task, SAMPLED};
use crate::tuple::{Anchor, Anchors};
use expiry::{AckError, Reason, Timeout};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// How an attempt ended, on its way to the spout's thread. There is room for one of each pending message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) place: u32,
    pub(crate) reason: Reason,
}

/// How long after the tracker was full a message is tried again, in nanoseconds.
const FULL_PAUSE: u64 = 1_000_000;

/// How long a spout that has nothing is left alone, in nanoseconds.
const IDLE_PAUSE: u64 = 1_000_000;

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

/// What a spout's collector works on.
pub(crate) struct Desk<M> {
    pub(crate) emitter: Emitter<M>,
    shared: Arc<Shared>,
    places: Vec<Option<Pending<M>>>,
    free: Vec<u32>,
    max_pending: usize,
    timeout: Timeout,
    keeps: bool,
    /// The number of this spout's task among all spouts'.
    number: u32,
    /// Messages that were acked, of which the spout is yet to be told, and when they were emitted first.
    acked: VecDeque<(u64, u64)>,
    /// Of the message at hand, an edge for each task that it goes to.
    edges: Vec<u64>,
    now: u64,
}

impl<M: Clone> Desk<M> {
    pub(crate) fn room(&self) -> usize {
        self.max_pending - self.pending()
    }

    /// Emits a new message.
    pub(crate) fn emit(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
        id: u64,
    ) -> Result<(), EmitError<M>> {
        let refuse = |message, why| Err(EmitError { message, why });
        let stream = match stream {
            Ok(stream) => stream,
            Err(why) => return refuse(message, why),
        };
        if self.room() == 0 {
            return refuse(message, Refused::MaxPending);
        }
        if self.shared.tracker.is_none() {
            self.emit_untracked(Ok(stream), direct, message)?;
            // Acked as soon as the spout has returned.
            self.acked.push_back((id, self.now));
            self.count_pending();
            return Ok(());
        }
        // What may panic comes first.
        if let Err(why) = self.emitter.find(stream, &message, direct) {
            return refuse(message, why);
        }
        let kept = self.keeps.then(|| message.clone());
        let Some(place) = self.free.pop() else {
            return refuse(message, Refused::MaxPending);
        };
        // Before it is sent: its outcome may come at once.
        self.places[place as usize] = Some(Pending {
            id,
            stream,
            direct,
            message: kept,
            attempts: 1,
            began: self.now,
        });
        match self.attempt(place, stream, message) {
            Ok(()) => {
                self.count_pending();
                Ok(())
            }
            Err(refused) => {
                self.release(place);
                Err(refused)
            }
        }
    }

    /// Emits a message that nobody tracks.
    pub(crate) fn emit_untracked(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        self.emitter
            .emit(stream, direct, message, |_| Anchors::new())
    }

    /// Begins a tree for a message, and sends it.
    fn attempt(&mut self, place: u32, stream: usize, message: M) -> Result<(), EmitError<M>> {
        self.edges.clear();
        let found = self.emitter.found();
        let random = &mut self.emitter.random;
        self.edges
            .extend((0..found).map(|_| Emitter::<M>::edge(random)));
        let xor = self.edges.iter().fold(0, |xor, edge| xor ^ edge);
        let owner = u64::from(self.number) << 32 | u64::from(place);
        let Some(tracker) = &self.shared.tracker else {
            return Ok(());
        };
        match tracker.issue_with(xor, owner, self.timeout) {
            Ok(root) => {
                let mut edges = self.edges.iter();
                self.emitter.send(stream, message, |_| {
                    let mut anchors = Anchors::new();
                    if let Some(&edge) = edges.next() {
                        let xor = Cell::new(edge);
                        anchors.push(Anchor { root, xor });
                    }
                    anchors
                });
                Ok(())
            }
            Err(error) => Err(EmitError {
                message,
                why: Refused::Tracker(error),
            }),
        }
    }

    /// The message that waits in this place, and its stream, when the tasks have been found that it goes to.
    fn find_again(&mut self, place: u32) -> Option<Result<(usize, M), Refused>> {
        let pending = self.places[place as usize].as_ref()?;
        let message = pending.message.clone()?;
        let found = self.emitter.find(pending.stream, &message, pending.direct);
        Some(found.map(|()| (pending.stream, message)))
    }

    fn release(&mut self, place: u32) {
        self.places[place as usize] = None;
        self.free.push(place);
        self.count_pending();
    }

    /// Messages in their places, and those of which the spout is yet to be told. (Without acking there are no places.)
    fn pending(&self) -> usize {
        self.places.len() - self.free.len() + self.acked.len()
    }

    fn count_pending(&self) {
        self.emitter.stats.pending.set(self.pending() as u64);
    }
}

pub(crate) struct SpoutTask<M> {
    spout: Option<Box<dyn Spout<M>>>,
    factory: SpoutFactory<M>,
    desk: Desk<M>,
    outcomes: Arc<Inbox<Ended>>,
    replay: Option<Replay>,
    /// When which message is to be emitted again.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    on_dead_letter: Option<Arc<OnDeadLetter<M>>>,
    is_active: bool,
    is_done: bool,
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
    pub(crate) factory: SpoutFactory<M>,
    pub(crate) max_pending: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) replay: Option<Replay>,
    pub(crate) on_dead_letter: Option<Arc<OnDeadLetter<M>>>,
}

impl<M: Clone + Send + 'static> SpoutTask<M> {
    pub(crate) fn new(parts: SpoutParts<M>) -> Self {
        let places = if parts.shared.tracker.is_some() {
            parts.max_pending
        } else {
            0
        };
        let last = parts.shared.clock.now();
        SpoutTask {
            spout: None,
            desk: Desk {
                emitter: parts.emitter,
                shared: parts.shared,
                places: (0..places).map(|_| None).collect(),
                #[allow(clippy::cast_possible_truncation)] // checked by the builder
                free: (0..places as u32).rev().collect(),
                max_pending: parts.max_pending,
                timeout: parts.timeout.map_or(Timeout::Default, Timeout::After),
                keeps: parts.replay.is_some() || parts.on_dead_letter.is_some(),
                number: parts.number,
                acked: VecDeque::new(),
                edges: Vec::new(),
                now: last,
            },
            factory: parts.factory,
            outcomes: parts.outcomes,
            replay: parts.replay,
            later: BinaryHeap::new(),
            on_dead_letter: parts.on_dead_letter,
            is_active: false,
            is_done: false,
            idle_until: 0,
            flushed: last,
            last,
        }
    }

    /// Calls the spout, which is made first, or again, if there is none. `None` if it has panicked: then it is gone.
    fn call<R>(&mut self, f: impl FnOnce(&mut dyn Spout<M>, &mut Desk<M>) -> R) -> Option<R> {
        let SpoutTask {
            spout,
            factory,
            desk,
            is_active,
            ..
        } = self;
        let now = desk.now;
        let done = guarded(
            desk,
            |desk| &desk.emitter.stats,
            now,
            |desk| {
                let context = &desk.emitter.context;
                let spout = spout.get_or_insert_with(|| {
                    let mut spout = factory(context);
                    spout.open(context);
                    if *is_active {
                        spout.activate();
                    }
                    spout
                });
                f(spout.as_mut(), desk)
            },
        );
        if done.is_none() {
            self.spout = None;
            self.desk
                .emitter
                .report(&"it has panicked, and is restarted");
        }
        done
    }

    /// Calls what else users have written, with the desk. `None` if it has panicked.
    fn guard<R>(&mut self, f: impl FnOnce(&mut Desk<M>) -> R) -> Option<R> {
        let now = self.desk.now;
        guarded(&mut self.desk, |desk| &desk.emitter.stats, now, f)
    }

    /// Whether there is an instance; if not, one is made, unless that panics.
    fn is_made(&mut self) -> bool {
        self.spout.is_some() || self.call(|_, _| ()).is_some()
    }

    /// Tells the spout of what has ended. Whether there was something.
    fn settle(&mut self) -> bool {
        let mut any = !self.desk.acked.is_empty();
        // An outcome that is taken out while there is nobody to be told of it would be lost.
        while self.is_made() {
            let Some(Ended { place, reason }) = self.outcomes.pop() else {
                break;
            };
            any = true;
            if reason != Reason::Acked {
                self.failed(place, reason);
            } else if let Some(pending) = self.desk.places[place as usize].take() {
                self.desk.free.push(place);
                self.desk.acked.push_back((pending.id, pending.began));
            }
        }
        if !self.desk.acked.is_empty() {
            self.tell_acked();
        }
        any
    }

    /// Tells the spout which messages have been acked: all in one call of its code, unless it panics.
    fn tell_acked(&mut self) {
        while !self.desk.acked.is_empty() && self.is_made() {
            self.call(|spout, desk| {
                while let Some((id, began)) = desk.acked.pop_front() {
                    let took = desk.now.saturating_sub(began);
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

    fn failed(&mut self, place: u32, reason: Reason) {
        let failure = match reason {
            Reason::TimedOut { .. } => Failure::TimedOut,
            Reason::Cancelled => Failure::Stopped,
            _ => Failure::Failed,
        };
        let stats = &self.desk.emitter.stats;
        match failure {
            Failure::TimedOut => stats.timed_out.add(1),
            _ => stats.failed.add(1),
        }
        let Some(pending) = &self.desk.places[place as usize] else {
            return;
        };
        let (id, attempts) = (pending.id, pending.attempts);
        let replay = self.replay.filter(|_| failure != Failure::Stopped);
        let pause = replay.and_then(|replay| replay.pause(attempts, &mut self.desk.emitter.random));
        let emitter = &self.desk.emitter;
        emitter.tell(|hook| hook.spout_fail(&emitter.context, id, failure, pause.is_none()));
        let Some(pause) = pause else {
            return self.give_up(place, failure);
        };
        self.call(|spout, desk| {
            let pending = desk.places[place as usize].as_mut();
            if let Some(message) = pending.and_then(|pending| pending.message.as_mut()) {
                spout.replay(id, reason, message);
            }
        });
        let due = self.desk.now.saturating_add(pause);
        self.later.push(Reverse((due, place)));
    }

    fn give_up(&mut self, place: u32, failure: Failure) {
        let Some(pending) = self.desk.places[place as usize].take() else {
            return;
        };
        self.desk.emitter.stats.dead.add(1);
        if let (Some(handler), Some(message)) = (self.on_dead_letter.clone(), pending.message) {
            let letter = DeadLetter {
                message,
                id: pending.id,
                component: self.desk.emitter.context.component().to_string(),
                attempts: pending.attempts,
                failure,
            };
            if self.guard(|_| handler(letter)).is_none() {
                self.desk
                    .emitter
                    .report(&"the handler of dead letters has panicked");
            }
        }
        self.call(|spout, _| spout.fail(pending.id, failure));
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
            match self.guard(|desk| desk.find_again(place)) {
                Some(Some(Ok((stream, message)))) => self.attempt_again(place, stream, message),
                Some(Some(Err(why))) => self.put_off(place, why),
                Some(None) => {}
                None => {
                    self.desk
                        .emitter
                        .report(&"a message has panicked when it was to be emitted again");
                    self.give_up(place, Failure::Failed);
                }
            }
        }
        any
    }

    fn attempt_again(&mut self, place: u32, stream: usize, message: M) {
        match self.desk.attempt(place, stream, message) {
            Ok(()) => {
                self.desk.emitter.stats.replayed.add(1);
                if let Some(pending) = &mut self.desk.places[place as usize] {
                    pending.attempts += 1;
                }
            }
            Err(refused) => self.put_off(place, refused.why),
        }
    }

    /// There was no room for another attempt: it does not count.
    fn put_off(&mut self, place: u32, why: Refused) {
        if why == Refused::Tracker(AckError::Closed) {
            return self.give_up(place, Failure::Stopped);
        }
        self.later
            .push(Reverse((self.desk.now + FULL_PAUSE, place)));
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
        if now < self.idle_until {
            return None;
        }
        let next = self.call(|spout, desk| spout.next(&mut crate::SpoutCollector { desk }));
        match next {
            // One that panics whenever it is asked is not asked all the time.
            Some(Next::Idle) | None => self.idle_until = now + IDLE_PAUSE,
            Some(Next::Done) => {
                self.is_done = true;
                self.desk
                    .emitter
                    .stats
                    .is_done
                    .store(true, Ordering::Release);
            }
            Some(Next::Ready) => {}
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
        if waits {
            self.desk.emitter.stats.skipped_back_pressure.add(since);
            // Nobody tells when there is room again.
            return Step {
                worked,
                due: Some(now),
            };
        }
        worked |= self.replay();
        let emitted = self.desk.emitter.stats.emitted.get();
        let next = self.ask(since);
        worked |= next == Some(Next::Ready) || self.desk.emitter.stats.emitted.get() != emitted;
        worked |= self.settle();
        if !worked
            || now.saturating_sub(self.flushed) >= self.desk.shared.flush_every
            || self.desk.room() == 0
        {
            self.flushed = now;
            self.desk.emitter.flush();
        }
        let later = self.later.peek().map(|Reverse((due, _))| *due);
        let asked = self.is_active && !self.is_done && self.desk.room() > 0;
        let again = asked.then_some(self.idle_until.max(now));
        // One that panics whenever it is made is not made all the time.
        let made = self.spout.is_none().then_some(now + IDLE_PAUSE);
        Step {
            worked,
            due: later.into_iter().chain(again).chain(made).min(),
        }
    }

    fn has_input(&self) -> bool {
        let is_told = self.spout.is_some() && !self.outcomes.is_empty();
        is_told || self.desk.shared.gate.is_open() != self.is_active
    }

    fn close(&mut self) {
        self.desk.now = self.desk.shared.clock.now();
        self.settle();
        if self.spout.is_some() {
            self.call(|spout, _| spout.close());
        }
    }
}
