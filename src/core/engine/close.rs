//! Shutting down.

use super::{Claim, Engine, Face, SHUT};
use crate::core::lease::{Lease, State};
use crate::core::params::CHUNK;
use crate::sync::{thread, Ordering};

impl<C> Engine<C> {
    /// New entries are refused from about now on; those under way may still come.
    pub(crate) fn refuse(&self) {
        // Hints: what decides is the shards' chunk counts, and the closing of buckets.
        self.refusing.store(true, Ordering::Relaxed);
        self.asks.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// Shuts the engine: ends every slot, calling `f` for each that this ended. Goes from shard to shard, and waits at each
    /// for who is at it. After it returns nothing is live, and nothing can come.
    pub(crate) fn close(&self, face: &impl Face, mut f: impl FnMut(Claim<'_>, Lease)) {
        self.refuse();
        let _driving = self.driving();
        for (at, shard) in self.shards.iter().enumerate() {
            while shard
                .driver
                .enter(|_| self.close_shard(at, face, &mut f))
                .is_none()
            {
                thread::yield_now();
            }
        }
    }

    fn close_shard(&self, at: usize, face: &impl Face, f: &mut impl FnMut(Claim<'_>, Lease)) {
        let peak = self.shards[at].peak.fetch_or(SHUT, Ordering::AcqRel);
        if peak & SHUT != 0 {
            // Closed before. What is on its way in finds its bucket closed, and is its claimer's to end: nobody else would say so.
            return;
        }
        for local in 0..peak {
            let chunk = local as usize * self.shards.len() + at;
            for header in self.slots.headers(chunk).into_iter().flatten() {
                header.next.close();
            }
            #[allow(clippy::cast_possible_truncation)] // a slot's id
            let first = (chunk * CHUNK) as u32;
            for (id, slot) in (first..).zip(self.slots.chunk(chunk).into_iter().flatten()) {
                let mut lease = slot.lease();
                // One that is not published yet is its claimer's, who will find the bucket closed.
                while (lease.state().expires() || lease.state() == State::Closing)
                    && face.may_end(&Claim::of(id, slot, lease), lease)
                {
                    match self.end(slot, lease) {
                        Ok(()) => {
                            f(Claim::of(id, slot, lease), lease);
                            break;
                        }
                        Err(now) => lease = now,
                    }
                }
            }
        }
    }
}
