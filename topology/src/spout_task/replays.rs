//! Messages that have failed: they are emitted again after a pause, or given up.
//!
//! A message that is given up is a dead letter. If a bolt gets the letter, it stays in the
//! message's place as one more message in flight, with a tree and attempts of its own, until it is
//! acked. Only then the spout's `fail` is called.

use super::places::Pending;
use super::{Desk, SpoutTask};
use crate::instance::guarded;
use crate::replay::{DeadLetter, Failure};
use crate::tuple::edge;
use std::cmp::Reverse;
use std::fmt;

impl<M: Clone + 'static, Id: fmt::Debug> Desk<M, Id> {
    /// Makes the message in `place` its dead letter. Returns whether there was one.
    fn bury(&mut self, place: u32, failure: &Failure) -> bool {
        let Some(pending) = self.places.get_mut(place) else {
            return false;
        };
        let Some(message) = pending.message.take() else {
            return false;
        };
        (pending.began, pending.seed) = (self.task.now, edge(pending.seed));
        pending.given_up = Some(Box::new(DeadLetter {
            message,
            id: format!("{:?}", pending.id),
            component: self.task.emitter.context.component().to_string(),
            attempts: std::mem::take(&mut pending.attempts),
            failure: failure.clone(),
        }));
        true
    }
}

impl<M: Clone + Send + 'static, Id: fmt::Debug + Send + 'static> SpoutTask<M, Id> {
    /// Handles a failure of the message in `place`: asks the spout for a replay, or gives it up.
    pub(super) fn failed(&mut self, place: u32, failure: Failure) {
        let stats = &self.desk.task.emitter.stats;
        match failure {
            Failure::TimedOut { .. } => stats.timed_out.add(1),
            _ => stats.failed.add(1),
        }
        let Some(pending) = self.desk.places.get(place) else {
            return;
        };
        let random = &mut self.desk.task.emitter.random;
        let age = self.desk.task.now.saturating_sub(pending.began);
        let pause = match failure {
            Failure::Rejected { .. } => None,
            _ => self.replay.pause(pending.attempts, age, random),
        };
        let is_letter = pending.given_up.is_some();
        if !is_letter {
            let (emitter, is_last) = (&self.desk.task.emitter, pause.is_none());
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
        let due = self.desk.task.now.saturating_add(pause);
        self.later.push(Reverse((due, place)));
    }

    /// Gives up what is in `place`: a message becomes a dead letter, a letter is lost.
    fn give_up(&mut self, place: u32, failure: Failure) {
        let Some(pending) = self.desk.places.get(place) else {
            return;
        };
        if let Some(letter) = &pending.given_up {
            let first = letter.failure.clone();
            self.desk.task.emitter.report(&format_args!("a dead letter was not acked: {failure}"));
            return self.end(place, &first);
        }
        self.desk.task.emitter.stats.dead_letters.add(1);
        if !self.desk.letters.is_closed() {
            match guarded(&mut self.desk, |desk| desk.bury(place, &failure)) {
                Ok(false) => {}
                Ok(true) => {
                    self.desk.attempt(place);
                    return;
                }
                Err(panicked) => {
                    self.desk.task.emitter.report(&format_args!("making a dead letter {panicked}"));
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
        self.call(|spout, _| {
            spout.fail(pending.id, failure);
            drop((pending.message, pending.given_up));
        });
        self.desk.places.free(place);
        self.desk.count_pending();
    }

    /// Emits the messages again whose pause is over. Returns whether there were any.
    pub(super) fn replay(&mut self) -> bool {
        let mut any = false;
        let now = self.desk.task.now;
        while let Some(&Reverse((_, place))) = self.later.peek().filter(|next| next.0 .0 <= now) {
            self.later.pop();
            any = true;
            if self.desk.attempt(place) {
                self.desk.task.emitter.stats.replayed.add(1);
            }
        }
        any
    }
}
