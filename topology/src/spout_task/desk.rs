//! What a spout's collector works on: emission, up to the lanes.

use super::places::{Pending, Places};
use super::trees::{Trees, TOGETHER};
use crate::builder::TaskParts;
use crate::emit::Port;
use crate::error::EmitError;
use crate::outcomes::Ended;
use crate::replay::{DeadLetter, Failure};
use expiry::AckError;
use rand::RngCore;
use std::collections::VecDeque;

/// A spout task's messages, from their emission on. One thread has it, and lends it to the spout.
pub(crate) struct Desk<M, Id> {
    pub(crate) task: TaskParts,
    pub(crate) port: Port<M>,
    /// The way of dead letters.
    pub(super) letters: Port<DeadLetter<M>>,
    pub(super) places: Places<M, Id>,
    pub(super) trees: Trees,
    /// The places of acked messages whose acks the spout has not been called with yet.
    pub(super) acked: VecDeque<u32>,
    /// Whether copies of pending messages are kept.
    pub(super) keeps: bool,
}

impl<M, Id> AsRef<TaskParts> for Desk<M, Id> {
    fn as_ref(&self) -> &TaskParts {
        &self.task
    }
}

impl<M: Clone + 'static, Id> Desk<M, Id> {
    pub(crate) fn room(&self) -> usize {
        self.places.room()
    }

    /// Emits a new message. The edges of its copies follow from the seed.
    pub(crate) fn emit(
        &mut self,
        message: M,
        id: Id,
        seed: Option<u64>,
    ) -> Result<(), EmitError<M, Id>> {
        let Some(place) = self.places.next() else {
            return Err(EmitError { message, id });
        };
        let (message, began) = (Some(message), self.task.now);
        let seed = seed.unwrap_or_else(|| self.task.emitter.random.next_u64());
        self.places.enter(Pending { id, message, attempts: 0, given_up: None, seed, began });
        self.count_pending();
        self.attempt(place);
        Ok(())
    }

    pub(crate) fn emit_untracked(&mut self, message: M) {
        if self.task.emitter.offer(&mut self.port, || message).is_ok() {
            self.trees.add_untracked(false);
            self.begin_if_many();
        }
    }

    /// Emits what is pending in `place`, a message or a dead letter. Returns whether it is sent. A
    /// panic of users' code meanwhile is a failure of this attempt: its outcome comes by the queue,
    /// as that of every other attempt.
    pub(super) fn attempt(&mut self, place: u32) -> bool {
        let (emitter, keeps) = (&self.task.emitter, self.keeps);
        let Some(pending) = self.places.get_mut(place) else {
            return false;
        };
        pending.attempts += 1;
        let offered = match (&pending.given_up, &mut pending.message) {
            (Some(letter), _) => emitter.offer(&mut self.letters, || DeadLetter::clone(letter)),
            (None, Some(message)) if keeps => emitter.offer(&mut self.port, || {
                let copy = message.clone();
                std::mem::replace(message, copy)
            }),
            (None, message) => match message.take() {
                Some(message) => emitter.offer(&mut self.port, || message),
                None => return false,
            },
        };
        match offered {
            Ok(copies) => self.send(place, copies),
            Err(panicked) => {
                let failure = Failure::Failed { by: None, why: Some(panicked.to_string().into()) };
                self.task.shared.desks.tell(self.trees.task, Ended::Failed(place, failure));
                return false;
            }
        }
        true
    }

    /// Sends what was just offered for `place`, as a tree of its own.
    fn send(&mut self, place: u32, copies: usize) {
        let Some(pending) = self.places.get(place) else { return };
        let is_letter = pending.given_up.is_some();
        if self.task.shared.tracker.is_some() {
            self.trees.add(place, is_letter, pending.seed, copies);
        } else {
            self.trees.add_untracked(is_letter);
            // Without a tracker a message is acked as soon as the spout has returned.
            self.acked.push_back(place);
        }
        self.begin_if_many();
    }

    /// Begins the trees, if they are many. If the tracker has no room, the task does so later.
    fn begin_if_many(&mut self) {
        if self.trees.len() >= TOGETHER {
            let _ = self.begin();
        }
    }

    /// Begins the trees of the messages that were emitted, and sends these.
    pub(super) fn begin(&mut self) -> Result<(), AckError> {
        let Desk { trees, port, letters, task, .. } = self;
        trees.begin(task.shared.tracker.as_deref(), |is_letter, anchors| {
            if is_letter {
                letters.send(anchors);
            } else {
                port.send(anchors);
            }
        })
    }

    pub(super) fn flush(&mut self) {
        self.port.flush();
        self.letters.flush();
        self.task.emitter.stats.overflow.set(self.overflow() as u64);
    }

    pub(super) fn overflow(&self) -> usize {
        self.port.overflow() + self.letters.overflow()
    }

    /// Publishes the number of pending messages.
    pub(super) fn count_pending(&self) {
        self.task.emitter.stats.pending.set(self.places.taken() as u64);
    }
}
