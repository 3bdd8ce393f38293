//! Entries whose time counts to the tick: no call finds an entry whose time is up, even if the
//! driver has not ended it yet.
//!
//! A thread that is about to report an expiry swaps the lease to `LAPSED` first. Otherwise a touch
//! that had read the clock before could revive the entry after a caller has seen that it is gone
//! (M2). Later the driver, or a call that wants its place, ends the entry and calls the listener.

use super::idle::Term;
use super::removed::{EndedSlot, Removed};
use super::store::{
    Found, Life, Mine, Pair, Place, RemovalCause, Spotted, Store, Touched, Wanted, LIVING,
};
use super::Lifetimes;
use crate::core::engine::{BadTimeout, Pin};
use crate::core::index::Glance;
use crate::core::lease::{Lease, State};
use crate::core::occupancy::Occupant;
use crate::time::{Lifetime, NEVER};
use std::borrow::Borrow;

/// An ended entry, and how it ended. The call that ended it owes the listener a call, unpinned.
pub(super) struct Notice<'a, K: 'static, V: 'static> {
    pub(super) ended: EndedSlot<&'a Store<K, V>, K, V>,
    pub(super) cause: RemovalCause,
}

impl<'a, K: 'static, V: 'static> Notice<'a, K, V> {
    /// Wakes a task that waits for room, and reports the end. The caller is unpinned.
    #[inline(always)]
    pub(super) fn tell(self) {
        let store = self.ended.store();
        store.engine.admission.wake_owed();
        store.tell(self.ended, self.cause);
    }

    /// Delivers the end to the listener. Returns the entry for the caller of the removing call.
    #[inline(always)]
    pub(super) fn told(self) -> Removed<'a, K, V> {
        let store = self.ended.store();
        store.engine.admission.wake_owed();
        store.told(self.ended, self.cause)
    }
}

/// Which living entry an insertion may take the place of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Replaces {
    Any,
    Nothing,
    /// By a load: the one in this place, if any. A new entry is withheld.
    Load(Option<Place>),
    /// The one in this place; without that the insertion fails.
    Only(Place),
}

impl Replaces {
    /// Whether it may take the place of this living entry.
    #[inline(always)]
    pub(super) fn takes<K, V>(self, found: &Found<'_, K, V>) -> bool {
        match self {
            Replaces::Any => true,
            Replaces::Nothing => false,
            Replaces::Load(place) => place == Some(found.place()),
            Replaces::Only(place) => place == found.place(),
        }
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// When an entry ends that begins now; and the clock reading that this was derived from.
    #[inline(always)]
    pub(super) fn term(&self, mine: &Mine, lifetime: Lifetimes) -> Result<(Term, u64), BadTimeout> {
        let (deadlines, last) = (&self.engine.deadlines, &mine.deadlines);
        let (deadline, now) = deadlines.deadline(last, lifetime.live, self.timeout)?;
        let term = match (lifetime.idle, self.idle) {
            (Lifetime::Never, _) | (Lifetime::Default, None) => Term::until(deadline),
            (idle, _) => self.idle_term(idle, deadline)?,
        };
        Ok((Term { keeps: lifetime.keeps, ..term }, now))
    }

    /// The [`term`](Self::term) of an entry with a time to idle.
    #[cold]
    #[inline(never)]
    fn idle_term(&self, idle: Lifetime, bound: u64) -> Result<Term, BadTimeout> {
        let idle = self.engine.deadlines.nanos(idle, self.idle)?;
        let mut deadline = idle.map_or(bound, |idle| self.idle_until(idle).min(bound));
        if deadline != NEVER {
            deadline = self.engine.deadlines.reached(deadline)?;
        }
        Ok(Term { idle: idle.map(|idle| (idle, bound)), ..Term::until(deadline) })
    }

    /// The entry of a key, if its time is not up. An entry that is not living does not come back.
    #[inline(always)]
    pub(super) fn living<'g, Q: Eq + ?Sized>(
        &'g self,
        pin: &'g Pin,
        wanted: Wanted<'g, '_, Q>,
    ) -> Option<Found<'g, K, V>>
    where
        K: Borrow<Q>,
    {
        // The look-up takes effect at this reading, if the lease that is loaded afterwards is live.
        // Once a caller has reported the end of an entry its lease is `LAPSED` (M2).
        let now = self.engine.deadlines.now_for_look();
        match self.glance(pin, wanted, LIVING, |_| {}) {
            Glance::There(found) if self.is_living_at(&found, now) => Some(found),
            Glance::Absent(_) => None,
            _ => {
                let hash = wanted.likely.hash;
                self.spotted(pin, hash, self.living_anywhere(hash, wanted.key))
            }
        }
    }

    /// [`living`](Self::living) in all tables. It takes no pin, so the caller's stays in registers.
    #[cold]
    #[inline(never)]
    fn living_anywhere<Q: Eq + ?Sized>(&self, hash: u32, key: &Q) -> Spotted
    where
        K: Borrow<Q>,
    {
        let pin = self.engine.pin();
        let look = || self.spotted(&pin, hash, self.find_anywhere(hash, key));
        match self.if_living(look) {
            Some(found) => Spotted::At(found.id, found.lease),
            None => Spotted::Nowhere,
        }
    }

    /// What `look` finds, if its time is not up.
    pub(super) fn if_living<'a>(
        &self,
        mut look: impl FnMut() -> Option<Found<'a, K, V>>,
    ) -> Option<Found<'a, K, V>> {
        loop {
            let found = look()?;
            if self.is_living(&found) {
                return Some(found);
            }
            if self.lapse(&found) {
                return None;
            }
        }
    }

    /// The place of an entry that is due for a reload: so little is left of its time to live.
    #[inline(always)]
    pub(super) fn stale(&self, found: &Found<'_, K, V>) -> Option<Place> {
        let left = self.reloads_with?;
        let Term { deadline, idle, .. } = self.term_of(*found);
        let bound = idle.map_or(deadline, |(_, bound)| bound);
        let then = self.engine.deadlines.now_for_look().saturating_add(left);
        self.engine.deadlines.ticks().has_begun(bound, then).then(|| found.place())
    }

    /// Whether it was live when it was found, and its time is not up.
    #[inline(always)]
    pub(super) fn is_living(&self, found: &Occupant<'_, Pair<K, V>>) -> bool {
        self.is_living_at(found, self.engine.deadlines.now_for_look())
    }

    /// [`is_living`](Self::is_living), by the clock reading `now`.
    #[inline(always)]
    pub(super) fn is_living_at(&self, found: &Occupant<'_, Pair<K, V>>, now: u64) -> bool {
        found.lease.is_in(LIVING) && !self.is_over(found.lease, now)
    }

    /// Whether an entry's time was up at `now`, although the driver has not come to it yet.
    #[inline]
    pub(super) fn is_over(&self, lease: Lease, now: u64) -> bool {
        let deadline = self.engine.deadlines.of(lease);
        self.engine.deadlines.ticks().has_begun(deadline, now)
    }

    /// Sees to it that an entry which is not living does not come back. Returns `false` if its
    /// lease has changed meanwhile.
    #[cold]
    pub(super) fn lapse(&self, found: &Occupant<'_, Pair<K, V>>) -> bool {
        match found.lease.state() {
            State::Live | State::LiveIdle => {
                let lapsed = found.lease.with_state(State::Lapsed);
                found.slot.swap_lease(found.lease, lapsed).is_ok()
            }
            _ => true,
        }
    }

    /// Ends an entry that is not living. `None` if it has changed meanwhile.
    #[cold]
    #[inline(never)]
    pub(super) fn make_way(&self, pin: &Pin, found: &Found<'_, K, V>) -> Option<Notice<'_, K, V>> {
        let cause = match found.lease.shown() {
            None => RemovalCause::Expired,
            // This call, or one before it, has invalidated the load.
            Some(_) => RemovalCause::Removed,
        };
        let ended = self.end(pin, found, cause)?;
        Some(Notice { ended, cause })
    }

    /// Ends this very value, whatever its deadline is by now; nothing if it has ended.
    pub(super) fn remove_this(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
    ) -> Option<Notice<'_, K, V>> {
        let mut found = *found;
        loop {
            found = self.still_living(&found)?;
            let cause = RemovalCause::Removed;
            if let Some(ended) = self.end(pin, &found, cause) {
                return Some(Notice { ended, cause });
            }
        }
    }

    /// An entry as it is now, if it is still living. The caller has been pinned since it found the
    /// entry. An entry that is not living does not come back.
    pub(super) fn still_living<'a>(&self, found: &Found<'a, K, V>) -> Option<Found<'a, K, V>> {
        self.if_living(|| Some(found.reloaded()))
    }

    /// Renews an entry: it lives for this long from now. False if it has ended.
    #[inline(always)]
    pub(super) fn touch_living<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, '_, Q>,
        timeout: Lifetime,
    ) -> Result<bool, BadTimeout>
    where
        K: Borrow<Q>,
    {
        let asks = self.expiry.is_some() && timeout == Lifetime::Default;
        let found = match self.glance(pin, wanted, LIVING, |_| {}) {
            Glance::There(found) if !asks => Some(found),
            _ => None,
        };
        self.touch(pin, found, wanted, timeout, true)
    }

    /// [`touch_living`](Self::touch_living), of an entry that was found living. `None` if its lease
    /// has changed meanwhile: look again.
    pub(super) fn touch_found(
        &self,
        found: &Found<'_, K, V>,
        lost: &mut Option<Life>,
        timeout: Lifetime,
    ) -> Result<Option<bool>, BadTimeout> {
        self.touch_by(found, lost, self.touched_for(found, timeout))
    }

    /// [`touch_found`](Self::touch_found), by a lifetime that is decided. Without one the deadline
    /// stays, and the entry is used.
    pub(super) fn touch_by(
        &self,
        found: &Found<'_, K, V>,
        lost: &mut Option<Life>,
        timeout: Option<Lifetime>,
    ) -> Result<Option<bool>, BadTimeout> {
        let alive = match (timeout, self.policy(found)) {
            (None, _) => self.prolong(*found).then_some(true),
            (Some(time), None) => self.renew(found, lost, time, true)?.map(Touched::is_alive),
            (Some(time), Some(policy)) => self.rebound(found, policy, time)?.then_some(true),
        };
        if alive == Some(true) {
            let now = found.reloaded();
            if !now.has_ended() {
                self.note_use(&now);
            }
        }
        Ok(alive)
    }
}
