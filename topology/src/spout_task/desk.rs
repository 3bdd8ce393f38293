//! What a spout's collector works on: emission, up to the lanes.

use super::places::{Pending, Places};
use super::trees::Trees;
use crate::emit::{Emitter, Found};
use crate::error::{EmitError, Refused};
use crate::instance::Workplace;
use crate::task::{discard, Shared};
use crate::tuple::Anchors;
use expiry::AckError;
use std::collections::VecDeque;
use std::sync::Arc;

/// A spout task's messages, from their emission on. One thread has it, and lends it to the spout.
pub(crate) struct Desk<M, Id> {
    pub(crate) emitter: Emitter<M>,
    pub(crate) shared: Arc<Shared>,
    pub(super) places: Places<M, Id>,
    pub(super) trees: Trees<M>,
    /// The places of acked messages whose acks the spout has not been called with yet.
    pub(super) acked: VecDeque<u32>,
    /// Whether copies of pending messages are kept.
    pub(super) keeps: bool,
    /// The clock reading of this step.
    pub(super) now: u64,
}

impl<M: Clone, Id> Workplace for Desk<M, Id> {
    type Message = M;

    fn emitter(&self) -> &Emitter<M> {
        &self.emitter
    }

    fn now(&self) -> u64 {
        self.now
    }
}

impl<M: Clone, Id> Desk<M, Id> {
    /// How many more messages may be pending.
    pub(crate) fn room(&self) -> usize {
        self.places.room()
    }

    /// Emits a new message.
    pub(crate) fn emit(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
        id: Id,
    ) -> Result<(), EmitError<M, Id>> {
        let Some(place) = self.places.next() else {
            let why = Refused::MaxPending;
            return Err(EmitError { message, id, why });
        };
        // The calls that may panic come first.
        let (stream, found) = match self.emitter.find(stream, &message, direct) {
            Ok(found) => found,
            Err(why) => return Err(EmitError { message, id, why }),
        };
        let kept = self.keeps.then(|| message.clone());
        self.places.enter(Pending {
            id,
            stream,
            #[allow(clippy::cast_possible_truncation)] // it was found: below 2^16
            direct: direct.map(|task| task as u32),
            message: kept,
            attempts: 1,
            given_up: None,
            began: self.now,
        });
        self.count_pending();
        if self.shared.tracker.is_some() {
            self.attempt(place, stream, found, message);
        } else {
            let emitter = &mut self.emitter;
            emitter.emit_found(stream, found, message, |_| Anchors::new());
            // Without a tracker a message is acked as soon as the spout has returned.
            self.acked.push_back(place);
        }
        if self.trees.are_many() {
            // Where the tracker has no room, the task begins them again when the spout has
            // returned.
            let _ = self.begin();
        }
        Ok(())
    }

    /// Emits an untracked message.
    pub(crate) fn emit_untracked(
        &mut self,
        stream: Result<usize, Refused>,
        direct: Option<usize>,
        message: M,
    ) -> Result<(), EmitError<M>> {
        if self.trees.is_empty() {
            return self.emitter.emit(stream, direct, message, |_| Anchors::new());
        }
        match self.emitter.find(stream, &message, direct) {
            Ok((stream, found)) => {
                let emitter = &mut self.emitter;
                self.trees.add_untracked(emitter, stream, found, message);
                Ok(())
            }
            Err(why) => Err(EmitError::untracked(message, why)),
        }
    }

    /// Adds an attempt at the message in `place`. The emitter has just found the message's tasks.
    pub(super) fn attempt(&mut self, place: u32, stream: usize, found: Found, message: M) {
        self.trees.add(&mut self.emitter, place, stream, found, message);
    }

    /// Begins the trees of the messages that were emitted, and sends these.
    pub(super) fn begin(&mut self) -> Result<(), AckError> {
        let tracker = self.shared.tracker.as_deref();
        self.trees.begin(&mut self.emitter, tracker)
    }

    /// Finds the tasks of the message in `place` again. Returns its stream, the tasks, and a copy.
    pub(super) fn find_again(&mut self, place: u32) -> Option<(usize, Found, M)> {
        let pending = self.places.get(place)?;
        let message = pending.message.clone()?;
        // The first emission has found the stream.
        let (stream, direct) = (Ok(pending.stream), pending.direct.map(|task| task as usize));
        let (stream, found) = self.emitter.find(stream, &message, direct).ok()?;
        Some((stream, found, message))
    }

    /// Drops what is in a place, and frees it.
    pub(super) fn release(&mut self, place: u32) {
        discard(self.places.take(place));
        self.places.free(place);
        self.count_pending();
    }

    /// Publishes the number of pending messages.
    pub(super) fn count_pending(&self) {
        self.emitter.stats.pending.set(self.places.taken() as u64);
    }
}
