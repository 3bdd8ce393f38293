//! Renewals of chosen roots.

use crate::ack::error::AckError;
use crate::ack::outcome::Done;
use crate::ack::trees::Trees;
use crate::core::engine::Look;
use crate::core::lease::{Lease, State};
use crate::time::Lifetime;

impl<T: 'static> Trees<T> {
    pub(crate) fn reset_chosen(&self, id: u64, timeout: Lifetime) -> Result<Done, AckError> {
        let key = self.key(id);
        self.check(timeout)?;
        let mut lost = None;
        loop {
            let Some(found) = self.find(key) else {
                match self.hold(key, State::Early, 0)? {
                    true => return Ok(Done::Held),
                    false => continue,
                }
            };
            let lease = found.lease;
            let (timeout, done) = match lease.state() {
                // An init under way keeps the lease's deadline, and notifies the driver of it.
                State::Live | State::Initing => (timeout, Done::Now),
                State::Early | State::EarlyFailed => (self.settings.early_timeout, Done::Held),
                _ => return self.late(found.id),
            };
            // A later root under this id, or a root whose init has just taken its early entry over,
            // is looked at for the first time. If only the state changed, a swap was not lost to a
            // renewal.
            let is_again = |(id, before, was): (u32, Lease, Done)| {
                (id, was, before.generation()) == (found.id, done, lease.generation())
                    && before.with_state(lease.state()) != lease
            };
            let look = Look::after(lost.is_some_and(is_again));
            self.note_use(found.id);
            let Some(deadline) = self.renewed(lease, look, timeout)? else {
                return Ok(done);
            };
            let renewed = lease.with_deadline(deadline);
            if found.slot.swap_lease(lease, renewed).is_ok() {
                self.engine.shortened(found.id, lease, deadline);
                return Ok(done);
            }
            lost = Some((found.id, lease, done));
        }
    }
}
