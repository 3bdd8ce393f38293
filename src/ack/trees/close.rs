//! The shutdown of the trees: every live root is cancelled, and its outcome delivered or returned.

use super::Trees;
use crate::ack::outcome::{Outcome, Reason, Root, RootId};
use crate::core::lease::State;
use crate::sync::park::Patience;
use crate::sync::Ordering;

impl Trees {
    /// Ends every live root. `f` gets the outcomes, if there is one; otherwise they are delivered.
    pub(crate) fn close(&self, mut f: Option<&mut dyn FnMut(Outcome)>) {
        self.engine.close(self, |claim, lease| {
            let early = !matches!(lease.state(), State::Live | State::LiveIssued);
            self.engine.with_stripe(|mine, _| {
                let key = claim.slot.fields().key.load(Ordering::Relaxed);
                let target = if lease.state() == State::LiveIssued {
                    self.issued_target(key)
                } else {
                    self.target(key, lease.incarnation())
                };
                match &mut f {
                    Some(f) if !early => {
                        f(Outcome {
                            root: if lease.state() == State::LiveIssued {
                                RootId::Issued(Root(key))
                            } else {
                                RootId::Chosen(key)
                            },
                            owner: claim.slot.fields().owner.load(Ordering::Relaxed),
                            reason: Reason::Cancelled,
                            latency: self.latency(target, claim.id),
                        });
                        self.finish(mine, claim, lease, target, None);
                    }
                    _ => {
                        let reason = (!early).then_some(Reason::Cancelled);
                        self.finish(mine, claim, lease, target, reason);
                    }
                }
            });
        });
        self.finish_telling();
    }

    /// The reaper's last call. There are live roots only if a handler, or a task, has asked the
    /// reaper to stop.
    pub(crate) fn last(&self) {
        #[cfg(feature = "async")]
        {
            let close = |left: &mut Vec<_>| self.close(Some(&mut |outcome| left.push(outcome)));
            if self.returned.fill(close) {
                return;
            }
        }
        self.close(None);
    }

    /// Whether this thread has ended a root and has yet to put the outcome into the channel. It is
    /// in a waker of a task that waits for room then.
    pub(crate) fn is_telling(&self) -> bool {
        let are_delivered = || {
            self.engine
                .with_stripe(|mine, _| mine.face.undelivered.are_delivered())
        };
        self.deliver.is_channel() && !are_delivered()
    }

    /// Closes the channel, if there is one, after all roots have ended. It waits for the threads
    /// that have ended some and have yet to put the outcomes into the channel.
    fn finish_telling(&self) {
        if !self.deliver.is_channel() {
            return;
        }
        let mut patience = Patience::new();
        while !self
            .engine
            .stripes()
            .all(|share| share.undelivered.are_delivered())
            && !self.engine.has_lost(&patience)
        {
            patience.wait();
        }
        self.deliver.finish();
    }
}
