//! What the driver calls the trees for.

use super::tree::Tree;
use super::Trees;
use crate::ack::outcome::Reason;
use crate::core::engine::Frontend;
use crate::core::lease::{Lease, State};
use crate::core::occupancy::{Ended, Occupant};
use crate::core::slot::{Payload, Slot};
use crate::core::threads::Counter;
use crate::kit::panics::is_inside;
use crate::kit::target::Target;
use crate::sync::park::Backoff;
use crate::sync::Ordering;
use std::time::Duration;

impl<T: 'static> Frontend<Tree<T>> for Trees<T> {
    type Hold<'s>
        = ()
    where
        Self: 's;

    fn may_end(&self, live: &Occupant<'_, Tree<T>>) -> Option<()> {
        if live.lease.is(State::LiveIssued) {
            return Some(());
        }
        // Until the index has the slot, its claimer owns it, and may withdraw it.
        // survives: I5.
        let key = self.key(live.slot.fields().key.load(Ordering::Acquire));
        key.index.find(key.hash, &mut |id| id == live.id).map(drop)
    }

    #[inline(always)]
    fn due(&self, live: &Occupant<'_, Tree<T>>, deadline: u64) -> u64 {
        self.idle_or(live, deadline)
    }

    fn prepare(&self, slot: Slot<'_, Tree<T>>, _: &<Tree<T> as Payload>::Note, lease: Lease) {
        if !lease.is(State::LiveIssued) {
            let key = self.key(slot.fields().key.load(Ordering::Relaxed));
            key.index.likely(key.hash);
        }
    }

    fn expired(&self, ended: Ended<'_, Tree<T>>, (): (), deadline: u64, now: u64) {
        let lease = ended.lease();
        let key = ended.slot().fields().key.load(Ordering::Relaxed);
        let ticks = self.engine.deadlines.ticks();
        let (reason, target) = match lease.state() {
            State::Live | State::LiveIssued => {
                let due = ticks.begins(deadline);
                let reason = Reason::TimedOut {
                    due: Duration::from_nanos(due.saturating_sub(ticks.start())),
                    seen: Duration::from_nanos(now.max(due).saturating_sub(ticks.start())),
                };
                (Some(reason), self.target_of(key, lease))
            }
            _ => (None, 0),
        };
        self.engine.with_stripe(|mine, _| {
            self.finish(mine, ended, target, reason);
        });
    }

    /// Ends every live root, and delivers its outcome or returns it to a shutdown that wants that.
    /// Then closes the channel, if the engine is closed and every outcome has been delivered.
    fn close(&self) {
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
        if let (true, Target::Channel(sender)) = (closed, &self.target) {
            let is_over = self.have_delivered();
            if is_over {
                sender.finish();
            }
            #[cfg(feature = "async")]
            if !is_over {
                self.left.store(true, std::sync::atomic::Ordering::Release);
                self.finish_what_was_left();
            }
        }
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.engine.balance(
            shard,
            |share| &share.counts,
            |counts| {
                let ended = [
                    &counts.acked,
                    &counts.failed,
                    &counts.expired,
                    &counts.cancelled,
                    &counts.early_merged,
                    &counts.early_expired,
                ];
                let slots = Counter::balance(&[&counts.begun, &counts.early_held], &ended);
                (slots, Counter::balance(&[&counts.keys_in], &[&counts.keys_out]))
            },
        )
    }
}

impl<T: 'static> Trees<T> {
    /// Waits until all threads that have ended roots have put the outcomes into the channel, and
    /// returns whether they have. A thread inside a call of the user's code does not wait: it may
    /// be one of them.
    fn have_delivered(&self) -> bool {
        let mut backoff = Backoff::new();
        while !self.are_delivered() {
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
