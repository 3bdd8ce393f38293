//! Failures of chosen roots.

use super::Found;
use crate::ack::error::AckError;
use crate::ack::outcome::Done;
use crate::ack::trees::Trees;
use crate::core::lease::{Lease, State};
use crate::sync::Ordering;

impl<T: 'static> Trees<T> {
    pub(crate) fn fail_chosen(&self, id: u64, by: Option<u64>) -> Result<Done, AckError> {
        let key = self.key(id);
        loop {
            let Some(found) = self.find(key) else {
                let state = if by.is_some() { State::EarlyFailedBy } else { State::EarlyFailed };
                match self.hold(key, state, by.unwrap_or(0))? {
                    true => return Ok(Done::Held),
                    false => continue,
                }
            };
            let lease = found.lease;
            match lease.state() {
                State::Live => {
                    let target = self.target(id, lease.generation());
                    match self.fail_live(found.by(lease), target, by) {
                        Ok(true) => return Ok(Done::Now),
                        Ok(false) => {}
                        Err(_) => return self.late(found.id),
                    }
                }
                State::Early => {
                    let failed = lease.with_state(State::EarlyFailed);
                    if found.slot.swap_lease(lease, failed).is_ok() {
                        if let Some(by) = by {
                            self.name_culprit(&found, failed, id, by);
                        }
                        return Ok(Done::Held);
                    }
                }
                State::Initing => {
                    let failed = lease.with_state(State::InitingFailed);
                    if found.slot.swap_lease(lease, failed).is_ok() {
                        return Ok(Done::Now);
                    }
                }
                // The root has failed already, and its init has yet to come.
                State::EarlyFailed | State::EarlyFailedBy => return Ok(Done::Held),
                _ => return self.late(found.id),
            }
        }
    }

    /// Puts the culprit into the word of an early entry that this thread has just failed. If the
    /// root's init or the entry's expiry comes first, the outcome names no culprit.
    fn name_culprit(&self, found: &Found<'_, T>, mut failed: Lease, key: u64, by: u64) {
        let target = self.target(key, failed.generation());
        // Acquire, also where the swap fails: a thread that reads a later occupant's word reads no
        // older lease.
        // survives: `s10_a_culprit_of_an_early_root` is too large to be explored to its end. This
        // holds for the swap, too.
        let mut word = found.slot.fields().word.load(Ordering::Acquire);
        loop {
            // The word is read first: if the lease is the same, so is the occupant. Acks that have
            // seen the entry as early may still change the word; after this swap, they fail.
            let now = found.slot.lease();
            if now.generation() != failed.generation() || !now.is(State::EarlyFailed) {
                return;
            }
            failed = now;
            // Relaxed: the swap of the lease publishes the culprit.
            match found.slot.fields().word.compare_exchange(
                word,
                target ^ by,
                Ordering::Relaxed,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        loop {
            match found.slot.swap_lease(failed, failed.with_state(State::EarlyFailedBy)) {
                // A renewal may have changed the deadline meanwhile.
                Err(now)
                    if now.generation() == failed.generation() && now.is(State::EarlyFailed) =>
                {
                    failed = now;
                }
                _ => return,
            }
        }
    }
}
