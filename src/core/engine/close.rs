//! Shutting down.

use super::{Claim, Engine, Face};
use crate::core::lease::{Lease, State};
use crate::core::params::CHUNK;
use crate::core::slot::Payload;
use crate::core::slots::Run;
use crate::sync::park::Patience;
#[cfg(feature = "async")]
use crate::sync::tasks::Until;
use crate::sync::Ordering;
use crate::trace::event;

impl<P: Payload, C> Engine<P, C> {
    /// Refuses new entries from about now on; those under way may still come in.
    pub(crate) fn refuse(&self) {
        self.admission.refuse();
    }

    pub(crate) fn is_refusing(&self) -> bool {
        self.admission.is_refusing()
    }

    /// Something has been done about the shutdown's end: the tasks that wait for it look again.
    #[cfg(feature = "async")]
    pub(crate) fn parted(&self) {
        self.admission.parted();
    }

    /// Waits until `done` finds something, which is asked at first and after each
    /// [`parted`](Self::parted).
    #[cfg(feature = "async")]
    pub(crate) fn until_parted<R, F: FnMut() -> Option<R>>(&self, done: F) -> Until<'_, F> {
        self.admission.until_parted(done)
    }

    /// Whether a shutdown has closed the bucket of slot `id`: an entry that is live there all the
    /// same is the shutdown's to end, or, if that has not seen it, its claimer's, who will find the
    /// bucket closed. If not, the shutdown sees all that this thread has done before.
    #[inline]
    pub(crate) fn has_closed(&self, id: u32) -> bool {
        let header = self.slots.header(id);
        header.is_some_and(|header| header.next.is_closed())
    }

    /// Shuts the engine: ends every slot, calling `f` for each that this ended. Goes from shard to
    /// shard, and waits at each for the thread that is at it: asleep, where that takes long. After
    /// it returns nothing is live, and nothing can come.
    pub(crate) fn close(&self, face: &impl Face<P>, mut f: impl FnMut(Claim<'_, P>, Lease)) {
        self.refuse();
        let _driving = self.driving();
        let mut left = None;
        for (at, shard) in self.shards.iter().enumerate() {
            let mut patience = Patience::new();
            let closed = loop {
                if shard.driver.is_lost() {
                    // The child of a fork: the thread that is at this shard stayed behind.
                    break None;
                }
                if let Some(closed) = shard.driver.enter(|_| self.close_shard(at, face, &mut f)) {
                    break closed;
                }
                patience.wait();
            };
            if let Some(ended) = closed {
                left = Some(left.unwrap_or(0) + ended);
            }
        }
        #[cfg(feature = "async")]
        self.parted();
        if let Some(left) = left {
            event!(INFO, "shut down", left = left);
        }
    }

    /// How many this has ended; `None` if it was closed before.
    fn close_shard(
        &self,
        at: usize,
        face: &impl Face<P>,
        f: &mut impl FnMut(Claim<'_, P>, Lease),
    ) -> Option<u64> {
        let Some(peak) = self.shards[at].ring.shut() else {
            // Closed before. An entry on its way in finds its bucket closed, and is its claimer's
            // to end: no other thread would say so.
            return None;
        };
        let mut ended = 0;
        for local in 0..peak {
            let chunk = self.slots.chunk_of(at, local);
            for header in self.slots.headers(chunk).into_iter().flatten() {
                header.scanned.store(true, Ordering::Relaxed);
                header.next.close();
            }
        }
        self.owners.await_none(
            self.stripes.iter().map(|stripe| &stripe.ending),
            |id| self.shard_of(id) == at,
            |patience| self.has_lost(patience),
        );
        for local in 0..peak {
            let chunk = self.slots.chunk_of(at, local);
            #[allow(clippy::cast_possible_truncation)] // a slot's id
            let first = (chunk * CHUNK) as u32;
            for (id, slot) in (first..).zip(self.slots.chunk(chunk).into_iter().flat_map(Run::iter))
            {
                let mut lease = slot.lease();
                // One that is not published yet is its claimer's, who will find the bucket closed.
                while (lease.state().expires() || lease.state() == State::Closing)
                    && face.may_end(&Claim::of(id, slot, lease), lease)
                {
                    match self.end(slot, lease) {
                        Ok(()) => {
                            ended += 1;
                            f(Claim::of(id, slot, lease), lease);
                            break;
                        }
                        Err(now) => lease = now,
                    }
                }
            }
        }
        Some(ended)
    }
}
