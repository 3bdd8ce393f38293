//! Messages that have failed: they are emitted again after a pause, or given up.
//!
//! A message that is given up is a dead letter. If a bolt gets the letter, it stays in the
//! message's place as one more message in flight, with a tree and attempts of its own, until it is
//! acked. Only then the spout's `fail` is called.

use super::places::Pending;
use super::{Desk, SpoutTask};
use crate::builder::OnDeadLetter;
use crate::emit::Found;
use crate::instance::guarded;
use crate::replay::{DeadLetter, Failure, Replay};
use crate::task::discard;
use rand::rngs::SmallRng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;

/// Which messages are to be emitted again, and what becomes of the others.
pub(super) struct Replays<M> {
    /// How often a message is emitted, and how far apart. `None` if no message is emitted again.
    replay: Option<Replay>,
    /// When a message is to be emitted again, and its place.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    on_dead_letter: Option<OnDeadLetter<M>>,
}

impl<M> Replays<M> {
    pub(super) fn new(replay: Option<Replay>, on_dead_letter: Option<OnDeadLetter<M>>) -> Self {
        Replays { replay, later: BinaryHeap::new(), on_dead_letter }
    }

    /// Whether a pending message's copy is used after its emission.
    pub(super) fn need_copies(&self) -> bool {
        self.replay.is_some() || self.on_dead_letter.is_some()
    }

    /// The clock reading at which the first message is to be emitted again.
    pub(super) fn next(&self) -> Option<u64> {
        self.later.peek().map(|Reverse((due, _))| *due)
    }

    /// The pause before a message that has failed after `attempts` is emitted again. `None` if it
    /// is given up.
    fn pause(&self, attempts: u32, failure: &Failure, random: &mut SmallRng) -> Option<u64> {
        let is_last = matches!(failure, Failure::Stopped | Failure::Rejected { .. });
        self.replay.filter(|_| !is_last)?.pause(attempts, random)
    }

    /// Takes out the first message if it is to be emitted again by `now`.
    fn pop(&mut self, now: u64) -> Option<u32> {
        let &Reverse((due, place)) = self.later.peek()?;
        if due > now {
            return None;
        }
        self.later.pop();
        Some(place)
    }

    fn push(&mut self, due: u64, place: u32) {
        self.later.push(Reverse((due, place)));
    }
}

impl<M: Clone, Id: fmt::Debug> Desk<M, Id> {
    /// Calls the handler with the dead letter of the message in `place`. If a message comes back,
    /// it takes the place: returns its stream, its tasks, and a copy.
    fn bury(
        &mut self,
        place: u32,
        failure: &Failure,
        handler: &OnDeadLetter<M>,
    ) -> Option<(usize, Found, M)> {
        let pending = self.places.get_mut(place)?;
        let letter = DeadLetter {
            message: pending.message.take()?,
            id: format!("{:?}", pending.id),
            component: self.emitter.context.component().to_string(),
            attempts: pending.attempts,
            failure: failure.clone(),
        };
        let (stream, message) = handler(letter)?;
        let kept = message.clone();
        let (stream, found) = self.emitter.find(Ok(stream), &message, None).ok()?;
        (pending.stream, pending.direct, pending.message) = (stream, None, Some(kept));
        (pending.attempts, pending.given_up) = (1, Some(Box::new(failure.clone())));
        Some((stream, found, message))
    }
}

impl<M: Clone + Send + 'static, Id: fmt::Debug + Send + 'static> SpoutTask<M, Id> {
    /// Handles a failure of the message in `place`: asks the spout for a replay, or gives it up.
    pub(super) fn failed(&mut self, place: u32, failure: Failure) {
        let stats = &self.desk.emitter.stats;
        match failure {
            Failure::TimedOut { .. } => stats.timed_out.add(1),
            _ => stats.failed.add(1),
        }
        let Some(pending) = self.desk.places.get(place) else {
            return;
        };
        let random = &mut self.desk.emitter.random;
        let pause = self.replays.pause(pending.attempts, &failure, random);
        let is_letter = pending.given_up.is_some();
        if !is_letter {
            let (emitter, is_last) = (&self.desk.emitter, pause.is_none());
            emitter.tell(|hook| hook.spout_fail(&emitter.context, &pending.id, &failure, is_last));
        }
        let Some(pause) = pause else {
            return self.give_up(place, failure);
        };
        if !is_letter {
            self.call(|spout, desk| {
                let pending = desk.places.get_mut(place);
                if let Some(Pending { id, message: Some(message), .. }) = pending {
                    spout.replay(id, &failure, message);
                }
            });
        }
        let due = self.desk.now.saturating_add(pause);
        self.replays.push(due, place);
    }

    /// Gives up the message in `place`: it becomes a dead letter. A letter that is given up is
    /// lost.
    pub(super) fn give_up(&mut self, place: u32, failure: Failure) {
        let Some(pending) = self.desk.places.get_mut(place) else {
            return;
        };
        if let Some(first) = pending.given_up.take() {
            self.desk.emitter.report(&format_args!("a dead letter was not acked: {failure}"));
            return self.end(place, &first);
        }
        self.desk.emitter.stats.dead.add(1);
        if let Some(handler) = self.replays.on_dead_letter.clone() {
            match guarded(&mut self.desk, |desk| desk.bury(place, &failure, &handler)) {
                Ok(None) => {}
                Ok(Some((stream, found, message))) => {
                    return self.desk.attempt(place, stream, found, message);
                }
                Err(panicked) => {
                    let error = format_args!("the handler of dead letters {panicked}");
                    self.desk.emitter.report(&error);
                }
            }
        }
        self.end(place, &failure);
    }

    /// Ends the message in `place` with a call of the spout's `fail`.
    fn end(&mut self, place: u32, failure: &Failure) {
        let Some(pending) = self.desk.places.take(place) else {
            return;
        };
        discard(pending.message);
        self.call(|spout, _| spout.fail(pending.id, failure));
        self.desk.release(place);
    }

    /// Emits the messages again whose pause is over. Returns whether there were any.
    pub(super) fn replay(&mut self) -> bool {
        let mut any = false;
        while let Some(place) = self.replays.pop(self.desk.now) {
            any = true;
            match guarded(&mut self.desk, |desk| desk.find_again(place)) {
                Ok(Some((stream, found, message))) => {
                    self.desk.attempt(place, stream, found, message);
                    self.desk.emitter.stats.replayed.add(1);
                    if let Some(pending) = self.desk.places.get_mut(place) {
                        pending.attempts += 1;
                    }
                }
                Ok(None) => {}
                // With no instance, giving up would call no spout's `fail`.
                Err(_) if !self.is_made() => self.replays.push(self.spout.due(), place),
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
}
