//! Renewal: one compare-and-swap of the lease.

use super::{Found, Pair, Place, Store, Wanted, HELD};
use crate::core::engine::{BadTimeout, Look, Pin};
use crate::core::lease::State;
use crate::core::occupancy::Occupant;
use crate::sync::Ordering;
use crate::time::Lifetime;
use std::borrow::Borrow;

/// What a touch came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    /// The entry's deadline is this tick now.
    Renewed(u64),
    /// The entry had this deadline before.
    Unchanged,
    /// There is no such entry (any more).
    Gone,
    Closing,
}

impl Touched {
    /// Whether the entry lives until the deadline that it was touched with.
    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Touched::Renewed(_) | Touched::Unchanged)
    }
}

/// Names one occupancy: a slot and its generation.
pub(in crate::keyed) type Life = (u32, u32);

fn life<K: 'static, V: 'static>(found: &Occupant<'_, Pair<K, V>>) -> Life {
    (found.id, found.lease.generation())
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Renews the entry of a key, which the caller may have `found`. Returns whether there was one.
    /// An entry whose time is up is gone if its time counts `to_the_tick`, and is renewed if not.
    ///
    /// Nearly always the first step is the last: it gives a live entry a deadline that is not
    /// nearer. [`renew`](Self::renew) does the rest.
    #[inline(always)]
    pub(in crate::keyed) fn touch<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        found: Option<Found<'_, K, V>>,
        wanted: Wanted<'_, '_, Q>,
        timeout: Lifetime,
        to_the_tick: bool,
    ) -> Result<bool, BadTimeout>
    where
        K: Borrow<Q>,
    {
        let (mut seen, mut lost) = (None, None);
        if let Some(found) = found.filter(|found| found.lease.is(State::Live)) {
            let (deadlines, mine) = (&self.engine.deadlines, self.engine.mine(pin));
            // After the look at the lease (rule 1 of `core::engine::renewal`).
            let (deadline, now) = deadlines.deadline(&mine.deadlines, timeout, self.timeout)?;
            let before = deadlines.of(found.lease);
            if deadline < before || to_the_tick && deadlines.ticks().has_begun(before, now) {
                seen = Some(found);
            } else {
                let renewed = found.lease.with_later(deadline).used();
                // Where that changes nothing, the entry had this deadline when it was found.
                if renewed == found.lease || found.slot.swap_lease(found.lease, renewed).is_ok() {
                    return Ok(true);
                }
                lost = Some(life(&found));
            }
        }
        let wanted = (wanted.likely.hash, wanted.key);
        self.touch_anywhere(wanted, timeout, to_the_tick, seen, lost)
    }

    /// [`touch`](Self::touch) in all tables. `seen` is an entry that the call has left alone: its
    /// deadline would be nearer, or its time is up. `lost` is one whose lease another swap changed.
    #[cold]
    #[inline(never)]
    fn touch_anywhere<Q: Eq + ?Sized>(
        &self,
        (hash, key): (u32, &Q),
        timeout: Lifetime,
        to_the_tick: bool,
        mut seen: Option<Found<'_, K, V>>,
        mut lost: Option<Life>,
    ) -> Result<bool, BadTimeout>
    where
        K: Borrow<Q>,
    {
        let pin = self.engine.pin();
        let wanted = Wanted::new(&self.engine.keys, hash, key);
        let find = || match to_the_tick {
            true => self.living(&pin, wanted),
            false => self.find(&pin, wanted),
        };
        loop {
            let Some(found) = seen.take().or_else(find) else {
                // A timeout that is out of range is refused also where there is no entry.
                self.deadline(timeout)?;
                return Ok(false);
            };
            let alive = match to_the_tick {
                true => self.touch_found(&found, &mut lost, timeout)?,
                false => self.renew(&found, &mut lost, timeout, false)?.map(Touched::is_alive),
            };
            if let Some(alive) = alive {
                return Ok(alive);
            }
        }
    }

    /// Moves the deadline of an entry that was found. An entry whose time is up is gone, if its
    /// time counts `to_the_tick`. Returns `None` if the lease has changed meanwhile: look again.
    ///
    /// `lost` is the entry whose lease this call has lost a swap on; `None` at first.
    /// [`Engine::renewed`](crate::core::engine::Engine::renewed) decides the deadline. Mostly one
    /// cheap clock reading after the lease's shows that it is not nearer (rule 1 there).
    #[inline(always)]
    pub(in crate::keyed) fn renew(
        &self,
        found: &Occupant<'_, Pair<K, V>>,
        lost: &mut Option<Life>,
        timeout: Lifetime,
        to_the_tick: bool,
    ) -> Result<Option<Touched>, BadTimeout> {
        let engine = &self.engine;
        let (deadline, now) = engine.deadline(timeout, self.timeout)?;
        let before = engine.deadlines.of(found.lease);
        if to_the_tick && engine.deadlines.ticks().has_begun(before, now) {
            return Ok(self.lapse(found).then_some(Touched::Gone));
        }
        if !found.lease.is(State::Live) || deadline < before {
            return self.renew_otherwise(found, lost, timeout);
        }
        let renewed = found.lease.with_later(deadline);
        if renewed == found.lease {
            // The entry had this deadline when it was found: there is nothing to swap.
            return Ok(Some(Touched::Unchanged));
        }
        if found.slot.swap_lease(found.lease, renewed).is_err() {
            *lost = Some(life(found));
            return Ok(None);
        }
        // From here on no expiry by the old deadline succeeds (Q6).
        Ok(Some(Touched::Renewed(deadline)))
    }

    /// [`renew`](Self::renew), of an entry that is not `LIVE`, or to a nearer deadline.
    #[cold]
    #[inline(never)]
    fn renew_otherwise(
        &self,
        found: &Occupant<'_, Pair<K, V>>,
        lost: &mut Option<Life>,
        timeout: Lifetime,
    ) -> Result<Option<Touched>, BadTimeout> {
        if !found.lease.is(State::Live) {
            // A timeout that is out of range is refused all the same.
            self.deadline(timeout)?;
            return Ok(Some(Touched::Closing));
        }
        let look = Look::after(*lost == Some(life(found)));
        let renewed = self.engine.renewed(found.lease, look, timeout, self.timeout)?;
        let Some(deadline) = renewed else {
            // Another thread has renewed it since: this renewal took effect just before that one.
            // What is reported is no later than what the other one has set, however late this
            // thread reads the clock.
            let set = self.engine.deadlines.of(found.lease);
            return Ok(Some(Touched::Renewed(self.deadline(timeout)?.min(set))));
        };
        let renewed = found.lease.with_deadline(deadline);
        if renewed == found.lease {
            return Ok(Some(Touched::Unchanged));
        }
        if found.slot.swap_lease(found.lease, renewed).is_err() {
            *lost = Some(life(found));
            return Ok(None);
        }
        self.engine.shortened(found.id, found.lease, deadline);
        Ok(Some(Touched::Renewed(deadline)))
    }

    /// Renews an entry by its place, without look-up or pin, in a store that replaces nothing.
    #[inline]
    pub(in crate::keyed) fn touch_at(
        &self,
        place: Place,
        timeout: Lifetime,
    ) -> Result<Touched, BadTimeout> {
        let Some(spot) = self.engine.slots.spot(place.id) else {
            return Ok(Touched::Gone);
        };
        let mut lost = None;
        loop {
            // survives: I5. A renewal without a swap took effect at the load of the lease.
            let lease = spot.slot.lease();
            let same = lease.generation() == place.generation
                && spot.note.load(Ordering::Acquire) == place.hash;
            if !same || !lease.is_in(HELD) {
                self.deadline(timeout)?;
                return Ok(Touched::Gone);
            }
            let found = Occupant { id: place.id, slot: spot.slot, lease };
            if let Some(touched) = self.renew(&found, &mut lost, timeout, false)? {
                return Ok(touched);
            }
        }
    }

    /// The deadline of an entry that begins now.
    #[inline]
    pub(in crate::keyed) fn deadline(&self, timeout: Lifetime) -> Result<u64, BadTimeout> {
        Ok(self.engine.deadline(timeout, self.timeout)?.0)
    }
}
