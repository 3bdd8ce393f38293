//! The shutdown of the trees: every live root is cancelled, and its outcome delivered or returned.

use super::Trees;
use crate::ack::outcome::{Outcome, Reason, Root, RootId};
use crate::core::lease::State;
use crate::kit::panics::is_inside;
use crate::kit::target::Target;
use crate::sync::park::Backoff;
use crate::sync::Ordering;

impl<T: 'static> Trees<T> {
    /// Ends every live root. `f` gets the outcomes, if there is one; otherwise they are delivered.
    /// Returns whether the engine is closed.
    fn end_all(&self, mut f: Option<&mut dyn FnMut(Outcome<T>)>) -> bool {
        self.engine.close(self, |ended, ()| {
            let lease = ended.lease();
            let early = !matches!(lease.state(), State::Live | State::LiveIssued);
            self.engine.with_stripe(|mine, _| {
                let key = ended.slot().fields().key.load(Ordering::Relaxed);
                let target = self.target_of(key, lease);
                let Some(f) = f.as_mut().filter(|_| !early) else {
                    let reason = (!early).then_some(Reason::Cancelled);
                    self.finish(mine, ended, target, reason);
                    return;
                };
                let root = if lease.is(State::LiveIssued) {
                    RootId::Issued(Root(key))
                } else {
                    RootId::Chosen(key)
                };
                let owner = ended.slot().fields().owner.load(Ordering::Relaxed);
                let latency = self.latency(target, ended.id());
                if let Some(token) = self.finish(mine, ended, target, None) {
                    f(Outcome { root, owner, token, reason: Reason::Cancelled, latency });
                }
            });
        })
    }

    /// Ends every live root: the roots go to a shutdown that wants them returned, if there is one.
    /// Then closes the channel, if the engine is closed and every outcome has been delivered.
    pub(super) fn close_all(&self) {
        let closed = if self.returned.is_wanted() {
            self.end_all(Some(&mut |outcome| self.returned.push(outcome)))
        } else {
            self.end_all(None)
        };
        if let (true, Target::Channel(sender)) = (closed, &self.deliver.target) {
            if self.have_delivered() {
                sender.finish();
            }
        }
    }

    /// Waits until all threads that have ended roots have put the outcomes into the channel. A
    /// thread inside a call of the user's code does not wait: it may be one of them. Returns
    /// whether all have.
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
