//! Failures of chosen roots.

use crate::ack::error::AckError;
use crate::ack::outcome::Done;
use crate::ack::trees::Trees;
use crate::core::lease::State;

impl<T: 'static> Trees<T> {
    pub(crate) fn fail_chosen(&self, id: u64, by: Option<u64>) -> Result<Done, AckError> {
        let key = self.key(id);
        loop {
            let Some(found) = self.find(key) else {
                match self.hold(key, State::EarlyFailed, 0)? {
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
                State::EarlyFailed => return Ok(Done::Held),
                _ => return self.late(found.id),
            }
        }
    }
}
