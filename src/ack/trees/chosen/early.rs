//! Early entries: an ack, failure or renewal of a chosen root comes before its init, and waits.

use super::{Key, New};
use crate::ack::error::AckError;
use crate::ack::trees::Trees;
use crate::core::engine::Refused;
use crate::core::lease::State;

impl<T: 'static> Trees<T> {
    /// Makes an early entry in this `state`, with the XOR of an early ack's edges. Returns `false`
    /// if the root, or an early entry of it, is there already.
    #[cold]
    pub(super) fn hold(&self, key: Key<'_>, state: State, xor: u64) -> Result<bool, AckError> {
        use std::sync::atomic::Ordering::Relaxed;
        self.engine.with_stripe(|mine, index| {
            let times = self.times(mine, self.settings.early_timeout)?;
            if self.early.fetch_add(1, Relaxed) >= self.settings.early_capacity {
                self.early.fetch_sub(1, Relaxed);
                // No place is needed if another thread has just published the key.
                if self.find_anywhere(key).is_some() {
                    return Ok(false);
                }
                self.keys(mine, key).refused.add(1);
                return Err(AckError::EarlyFull);
            }
            let new = New { key, owner: 0, times };
            let word = |target| target ^ self.init_mark(target) ^ xor;
            let mut refused = Refused::OutOfMemory;
            let entered =
                match self.place((mine, index), &new, state, word, &mut None, &mut refused) {
                    Some((placed, ..)) => {
                        self.enter(mine, &new, placed, &mut None).map(|entered| entered.ok())
                    }
                    // No room is needed if the index has the key already.
                    None if refused != Refused::Closed && self.find_anywhere(key).is_some() => {
                        Ok(None)
                    }
                    None => Err(self.refuse(refused)),
                };
            let Ok(Some(live)) = entered else {
                self.early.fetch_sub(1, Relaxed);
                return entered.map(|_| false);
            };
            mine.frontend.counts[self.engine.shard_of(live.id)].early_held.add(1);
            if self.engine.enforce(live.id, times.deadline).is_err() {
                let target = self.target(key.id, live.lease.generation());
                self.undo(mine, live, target).map_err(|_| AckError::Closed)?;
            }
            Ok(true)
        })
    }
}
