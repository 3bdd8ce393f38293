//! Shutting down: [`Engine::close`].

use super::{Engine, Frontend};
use crate::core::lease::{State, EXPIRING};
use crate::core::occupancy::{Ended, Occupant};
use crate::core::params::CHUNK;
use crate::core::slot::Payload;
use crate::core::slots::Run;
use crate::kit::panics::is_inside;
use crate::kit::trace::event;
use crate::sync::park::Backoff;
use crate::sync::{fence, AtomicBool, Ordering};

/// Whether a shutdown may have left shards open: other threads drove them, and it could not wait.
///
/// The shutdown sets the flag, and then tries to enter the shards. A driver leaves its shards, and
/// then looks at the flag. The fences between the two steps of each order them: either the shutdown
/// enters the shard, or the driver finds the flag set. `a_shutdown_in_a_listener_beside_a_driver`
/// fails without the driver's fence. The shutdown's fence survives: loom's swaps order it already.
pub(super) struct Leftover(AtomicBool);

impl Leftover {
    pub(super) fn none() -> Self {
        Leftover(AtomicBool::new(false))
    }

    /// Called before the shutdown tries to enter the shards.
    fn announce(&self) {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Called after the driver has left its shards.
    fn is_announced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed)
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Ends every entry, and calls `f` for each that this call ended. Returns whether the engine is
    /// closed: nothing is live then, and nothing can come.
    ///
    /// Goes from shard to shard, and waits at each until the thread that drives it has left. A
    /// thread [inside](is_inside) a call of the user's code does not wait: the drivers of those
    /// shards close them ([`close_what_was_left`](Self::close_what_was_left)).
    pub(crate) fn close<'s, F: Frontend<P>>(
        &self,
        frontend: &'s F,
        mut f: impl FnMut(Ended<'_, P>, F::Hold<'s>),
    ) -> bool {
        self.admission.refuse();
        self.fence.close();
        let waits = !is_inside();
        if !waits {
            self.leftover.announce();
        }
        let driving = self.driving();
        let mut closed = true;
        let mut left = None;
        for (at, shard) in self.shards.iter().enumerate() {
            let mut backoff = Backoff::new();
            loop {
                if shard.driver.is_lost() {
                    // The child of a fork: the thread that drives this shard stayed behind.
                    break;
                }
                let entered = shard.driver.enter(|_| self.close_shard(at, frontend, &mut f));
                if let Some(ended) = entered {
                    left = ended.map(|ended| left.unwrap_or(0) + ended).or(left);
                    break;
                }
                if !waits {
                    closed = false;
                    break;
                }
                backoff.wait();
            }
        }
        drop(driving);
        #[cfg(feature = "async")]
        self.admission.parted();
        if let Some(left) = left {
            event!(INFO, "shut down", left = left);
        }
        closed
    }

    /// Called by a driver that has left every shard. Closes the store of `frontend` if a shutdown
    /// has left those shards to it.
    pub(super) fn close_what_was_left(&self, frontend: &impl Frontend<P>) {
        if self.leftover.is_announced() {
            frontend.close();
        }
    }

    /// Number of entries that this has ended; `None` if the shard was closed before.
    fn close_shard<'s, F: Frontend<P>>(
        &self,
        at: usize,
        frontend: &'s F,
        f: &mut impl FnMut(Ended<'_, P>, F::Hold<'s>),
    ) -> Option<u64> {
        let Some(peak) = self.shards[at].ring.shut() else {
            // It was closed before. A thread that still inserts finds its block closed, and ends
            // its own entry.
            return None;
        };
        let mut ended = 0;
        for local in 0..peak {
            let chunk = self.slots.chunk_of(at, local);
            for header in self.slots.headers(chunk).into_iter().flatten() {
                header.next.close();
            }
        }
        self.fence.before_scan();
        for local in 0..peak {
            let chunk = self.slots.chunk_of(at, local);
            #[allow(clippy::cast_possible_truncation)] // a slot's id
            let first = (chunk * CHUNK) as u32;
            for (id, slot) in (first..).zip(self.slots.chunk(chunk).into_iter().flat_map(Run::iter))
            {
                let mut live = Occupant { id, slot, lease: slot.lease() };
                while live.lease.is_in(EXPIRING) || live.lease.is(State::Closing) {
                    let Some(hold) = frontend.may_end(&live) else {
                        // Not published yet: the claimer finds the block closed, and ends it.
                        break;
                    };
                    match live.end() {
                        Ok(dead) => {
                            ended += 1;
                            f(dead, hold);
                            break;
                        }
                        Err(now) => live.lease = now,
                    }
                }
            }
        }
        Some(ended)
    }
}
