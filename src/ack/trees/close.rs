//! The shutdown of the trees: every live root is cancelled, and its outcome delivered or returned.

use super::Trees;
use crate::ack::outcome::Reason;
use crate::core::lease::State;
use crate::kit::panics::is_inside;
use crate::kit::target::Target;
use crate::sync::park::Backoff;
use crate::sync::Ordering;

impl<T: 'static> Trees<T> {
    /// Ends every live root, and delivers its outcome or returns it to a shutdown that wants that.
    /// Then closes the channel, if the engine is closed and every outcome has been delivered.
    pub(super) fn close_all(&self) {
        let returns = self.returned.is_wanted();
        let closed = self.engine.close(self, |ended, ()| {
            let lease = ended.lease();
            let is_root = matches!(lease.state(), State::Live | State::LiveIssued);
            let reason = is_root.then_some(Reason::Cancelled);
            let key = ended.slot().fields().key.load(Ordering::Relaxed);
            let target = self.target_of(key, lease);
            self.engine.with_stripe(|mine, _| {
                if !returns {
                    self.finish(mine, ended, target, reason);
                } else if let Ok(outcome) = self.outcome(mine, ended, target, reason, None) {
                    self.returned.push(outcome);
                }
            });
        });
        if let (true, Target::Channel(sender)) = (closed, &self.deliver.target) {
            if self.have_delivered() {
                sender.finish();
            }
        }
    }

    /// Waits until all threads that have ended roots have put the outcomes into the channel, and
    /// returns whether they have. A thread inside a call of the user's code does not wait: it may
    /// be one of them.
    fn have_delivered(&self) -> bool {
        let mut backoff = Backoff::new();
        let stripes = || self.engine.stripes();
        while !stripes().all(|share| share.undelivered.are_delivered()) {
            if self.engine.has_lost(&backoff) {
                return true;
            }
            if is_inside() {
                return false;
            }
            backoff.wait();
        }
        true
    }
}
