//! What a spout's collector works on: emission, up to the lanes.

use super::places::{Pending, Places};
use super::trees::Trees;
use crate::builder::TaskParts;
use crate::emit::{Emitter, Port};
use crate::error::EmitError;
use crate::instance::Workplace;
use crate::lanes::Tie;
use crate::replay::DeadLetter;
use crate::task::discard;
use crate::tuple::Anchors;
use expiry::AckError;
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
    /// The clock reading of this step.
    pub(super) now: u64,
}

impl<M, Id> Workplace for Desk<M, Id> {
    fn emitter(&self) -> &Emitter {
        &self.task.emitter
    }

    fn now(&self) -> u64 {
        self.now
    }
}

impl<M: Clone + 'static, Id> Desk<M, Id> {
    /// How many more messages may be pending.
    pub(crate) fn room(&self) -> usize {
        self.places.room()
    }

    /// Emits a new message.
    pub(crate) fn emit(&mut self, message: M, id: Id) -> Result<(), EmitError<M, Id>> {
        let Some(place) = self.places.next() else {
            return Err(EmitError { message, id });
        };
        // The calls that may panic come first.
        let kept = self.keeps.then(|| message.clone());
        self.task.emitter.offer(&mut self.port, message);
        let (message, began) = (kept, self.now);
        self.places.enter(Pending { id, message, attempts: 1, given_up: None, began });
        self.count_pending();
        if self.task.shared.tracker.is_some() {
            self.send(place);
        } else {
            self.port.send(|| Tie::Of(Anchors::new()));
            // Without a tracker a message is acked as soon as the spout has returned.
            self.acked.push_back(place);
        }
        Ok(())
    }

    /// Emits an untracked message.
    pub(crate) fn emit_untracked(&mut self, message: M) {
        self.task.emitter.offer(&mut self.port, message);
        self.port.send(|| Tie::Of(Anchors::new()));
    }

    /// Offers a copy of what is pending in `place`, a message or a dead letter, once more. Returns
    /// whether there was something. The caller then sends it.
    pub(super) fn offer_again(&mut self, place: u32) -> bool {
        match self.places.get(place) {
            Some(Pending { given_up: Some(letter), .. }) => {
                self.task.emitter.offer(&mut self.letters, DeadLetter::clone(letter));
            }
            Some(Pending { message: Some(message), .. }) => {
                self.task.emitter.offer(&mut self.port, message.clone());
            }
            _ => return false,
        }
        true
    }

    /// Sends what was just offered for `place`, as a tree of its own.
    pub(super) fn send(&mut self, place: u32) {
        let is_letter = self.places.get(place).is_some_and(|pending| pending.given_up.is_some());
        let random = &mut self.task.emitter.random;
        let waits = if is_letter {
            self.trees.add(place, &mut self.letters, random)
        } else {
            self.trees.add(place, &mut self.port, random)
        };
        if waits || self.trees.are_many() {
            // Where the tracker has no room, the task begins them again when the spout has
            // returned.
            let _ = self.begin();
        }
    }

    /// Begins the trees of the messages that were emitted: their copies get roots.
    pub(super) fn begin(&mut self) -> Result<(), AckError> {
        let tracker = self.task.shared.tracker.as_deref();
        self.trees.begin(tracker, |roots| {
            self.port.root(roots);
            self.letters.root(roots);
        })
    }

    /// Sends what has been collected.
    pub(super) fn flush(&mut self) {
        self.port.flush();
        self.letters.flush();
        self.task.emitter.stats.overflow.set(self.overflow() as u64);
    }

    /// Number of batches that have no room yet.
    pub(super) fn overflow(&self) -> usize {
        self.port.overflow() + self.letters.overflow()
    }

    /// Drops what is in a place, and frees it.
    pub(super) fn release(&mut self, place: u32) {
        discard(self.places.take(place));
        self.places.free(place);
        self.count_pending();
    }

    /// Publishes the number of pending messages.
    pub(super) fn count_pending(&self) {
        self.task.emitter.stats.pending.set(self.places.taken() as u64);
    }
}
