//! Outcomes: the task takes them out of its queue, and calls the spout with each.

use super::places::Pending;
use super::SpoutTask;
use crate::outcomes::Ended;
use std::fmt;
use std::time::Duration;

impl<M: Clone + Send + 'static, Id: fmt::Debug + Send + 'static> SpoutTask<M, Id> {
    /// Calls the spout with the outcomes that have come. Returns whether there were any.
    pub(super) fn settle(&mut self) -> bool {
        let mut any = false;
        // An outcome that is taken out while there is no instance to call with it would be lost.
        while self.is_made() {
            let Some(ended) = self.outcomes.pop() else {
                break;
            };
            any = true;
            match ended {
                Ended::Acked(places) => self.desk.acked.extend(places),
                Ended::Failed(place, failure) => self.failed(place, failure),
            }
        }
        let left = self.desk.acked.len();
        if left > 0 {
            self.tell_acked();
        }
        any || self.desk.acked.len() < left
    }

    /// Calls the spout's `ack` for each acked message, and its `fail` for each acked dead letter.
    /// All of them share one guarded call, and the rest share another one after a panic.
    fn tell_acked(&mut self) {
        while !self.desk.acked.is_empty() && self.is_made() {
            let sampler = &mut self.sampler;
            let done = self.spout.call(&mut self.desk, |spout, desk| {
                while let Some(place) = desk.acked.pop_front() {
                    // The message is dropped after the `ack`: a panic of its drop cannot undo that.
                    let Some(Pending { id, message: _kept, given_up, began, .. }) =
                        desk.places.take(place)
                    else {
                        continue;
                    };
                    desk.places.free(place);
                    if let Some(letter) = given_up {
                        spout.fail(id, &letter.failure);
                        continue;
                    }
                    let took = desk.task.now.saturating_sub(began);
                    let emitter = &desk.task.emitter;
                    emitter.stats.acked.add(1);
                    if sampler.is_due() {
                        emitter.stats.latency.took(took);
                    }
                    let took = Duration::from_nanos(took);
                    emitter.tell(|hook| hook.spout_ack(&emitter.context, &id, took));
                    spout.ack(id);
                }
            });
            // The task counts a panic; another instance gets the rest.
            drop(done);
        }
        // Last: where nothing is pending, other threads rely on the spout's calls being done.
        self.desk.count_pending();
    }
}
