//! Entries whose time counts to the tick: an entry whose time is up is not found, even if the
//! driver has not ended it yet.
//!
//! A thread that is about to report an expiry swaps the lease to `LAPSED` first. Otherwise a touch
//! that had read the clock before could bring the entry back, after a caller has seen that it is
//! gone (M2). The driver ends the entry later, or a call that wants its place does; that thread
//! calls the listener.

use super::idle::Term;
use super::removed::{Ended, EndedSlot};
use super::store::{Cause, Entered, Found, Fresh, Replaced, Store, Wanted};
use super::{Lifetime, StoreError};
use crate::core::engine::Pin;
use crate::core::lease::State;
use crate::time::Timeout;
use std::borrow::Borrow;

/// An ended entry, and how it ended. The call that ended it owes the listener a call, unpinned.
pub(super) struct Notice<'a, K: 'static, V: 'static> {
    pub(super) ended: EndedSlot<&'a Store<K, V>, K, V>,
    pub(super) cause: Cause,
}

impl<'a, K: 'static, V: 'static> Notice<'a, K, V> {
    /// Delivers the end to the listener. The caller is unpinned.
    #[inline]
    pub(super) fn tell(&self) {
        self.ended.store().tell(&self.ended, self.cause);
    }

    /// Delivers the end to the listener. Returns the entry for the caller of the removing call.
    #[inline]
    pub(super) fn told(self) -> Ended<'a, K, V> {
        self.tell();
        Ended::lent(self.ended)
    }
}

/// What an attempt to insert came to.
pub(super) enum Put<'a, K: 'static, V: 'static> {
    /// It is in; this is what there was.
    Done {
        new: Found<'a, K, V>,
        replaced: Option<Notice<'a, K, V>>,
        /// The store is shut down, and this call has ended what it has put in.
        closed: Option<Notice<'a, K, V>>,
    },
    /// This is what there is; it was not to be replaced.
    Kept(Found<'a, K, V>),
    /// This call has ended an entry whose time was up: unpin, call the listener, and try again.
    MadeWay(Notice<'a, K, V>),
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Whether entries can have this lifetime. A refused call changes nothing, so it asks first.
    #[inline]
    pub(super) fn check(&self, lifetime: Lifetime) -> Result<(), StoreError> {
        for time in [lifetime.live, lifetime.idle] {
            match time {
                Timeout::After(time) if time.is_zero() => return Err(StoreError::ZeroTimeout),
                Timeout::After(time) if self.engine.ticks().timeout(time).is_none() => {
                    return Err(StoreError::TimeoutTooLong)
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// When an entry ends that begins now.
    pub(super) fn term(&self, lifetime: Lifetime) -> Result<Term, StoreError> {
        let bound = self.deadline(lifetime.live, self)?;
        let idle = match lifetime.idle {
            Timeout::Default => self.idle,
            Timeout::Never => None,
            Timeout::After(time) if time.is_zero() => return Err(StoreError::ZeroTimeout),
            Timeout::After(time) => {
                let ticks = self.engine.ticks();
                Some(ticks.timeout(time).ok_or(StoreError::TimeoutTooLong)?)
            }
        };
        let deadline = idle.map_or(bound, |idle| self.idle_until(idle).min(bound));
        Ok(Term {
            deadline,
            idle: idle.map(|idle| (idle, bound)),
        })
    }

    /// The entry of a key, if its time is not up.
    #[inline(always)]
    pub(super) fn living<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, Q>,
    ) -> Option<Found<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        self.if_living(|| self.find(pin, wanted))
    }

    /// What `look` finds, if its time is not up. An entry that is not living does not come back.
    #[inline(always)]
    pub(super) fn if_living<'a>(
        &self,
        mut look: impl FnMut() -> Option<Found<'a, K, V>>,
    ) -> Option<Found<'a, K, V>> {
        loop {
            let found = look()?;
            if self.is_living(&found) {
                return Some(found);
            }
            if self.is_gone(&found) {
                return None;
            }
        }
    }

    /// Whether it was live when it was found, and its time is not up.
    #[inline(always)]
    pub(super) fn is_living(&self, found: &Found<'_, K, V>) -> bool {
        matches!(found.lease.state(), State::Live | State::LiveIdle)
            && !self.is_over(found.lease, self.engine.now_for_deadline().0)
    }

    /// Sees to it that an entry which is not living does not come back. Returns `false` if its
    /// lease has changed meanwhile.
    #[cold]
    fn is_gone(&self, found: &Found<'_, K, V>) -> bool {
        match found.lease.state() {
            State::Live | State::LiveIdle => {
                let lapsed = found.lease.with_state(State::Lapsed);
                found.slot.swap_lease(found.lease, lapsed).is_ok()
            }
            _ => true,
        }
    }

    /// Calls the listener, unpinned, for the entry that this call has put in, if a shutdown has
    /// overtaken the call. The entry can be read while the result lives.
    pub(super) fn notify(&self, pin: Pin, closed: Option<Notice<'_, K, V>>) -> Pin {
        let Some(closed) = closed else {
            return pin;
        };
        drop(pin);
        closed.tell();
        // This call owns the slot until the notice is dropped, under the new pin.
        let pin = self.engine.pin();
        drop(closed);
        pin
    }

    /// Ends an entry whose time is up. `None` if it has changed meanwhile.
    #[cold]
    fn make_way(&self, pin: &Pin, found: &Found<'_, K, V>) -> Option<Notice<'_, K, V>> {
        let cause = Cause::Expired;
        let ended = self.end(pin, found, cause)?;
        Some(Notice { ended, cause })
    }

    /// One attempt to put an entry in under a key, or in the place of the one that lives there, if
    /// it `replaces`. In an error nothing has changed. Key and value that are not in stay in
    /// `fresh`.
    pub(super) fn put(
        &self,
        pin: &Pin,
        hash: u32,
        fresh: &mut Fresh<K, V>,
        lifetime: Lifetime,
        replaces: bool,
    ) -> Result<Put<'_, K, V>, StoreError>
    where
        K: Eq,
    {
        loop {
            let found = {
                let Some((key, _)) = fresh.as_ref() else {
                    unreachable!("a call inserts what it has yet to insert");
                };
                // A replacement writes beside the old slot: that memory comes with the slot's.
                let ahead = |id| self.engine.prefetch_note(id);
                self.find_and(pin, Wanted::new(hash, key), ahead)
            };
            let found = match found {
                Some(found) => found,
                // The clock is read for each attempt: what went before may have taken its time.
                None => match self.enter(pin, hash, fresh, self.term(lifetime)?)? {
                    Entered::Done(new) => return Ok(Put::of(new, None, None)),
                    Entered::Closed(new, ended) => return Ok(Put::of(new, None, Some(ended))),
                    Entered::Found(found) => found,
                    Entered::Again => continue,
                },
            };
            if !self.is_living(&found) {
                if let Some(notice) = self.make_way(pin, &found) {
                    return Ok(Put::MadeWay(notice));
                }
            } else if !replaces {
                return Ok(Put::Kept(found));
            } else if let Some(put) = self.put_over(pin, &found, fresh, lifetime)? {
                return Ok(put);
            }
        }
    }

    /// One attempt to replace an entry that lives. `None` if it has changed meanwhile.
    fn put_over(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        fresh: &mut Fresh<K, V>,
        lifetime: Lifetime,
    ) -> Result<Option<Put<'_, K, V>>, StoreError> {
        if self.engine.is_refusing() {
            return Err(StoreError::Closed);
        }
        let term = self.term(lifetime)?;
        Ok(match self.replace(pin, found, fresh, term)? {
            Replaced::Done { old, new, closed } => Some(Put::of(new, Some(old), closed)),
            Replaced::Changed => None,
        })
    }

    /// As [`put`](Self::put), in the place of this very value, whatever its deadline is by now;
    /// `None` if it has ended.
    pub(super) fn put_for(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
        fresh: &mut Fresh<K, V>,
        lifetime: Lifetime,
    ) -> Result<Option<Put<'_, K, V>>, StoreError> {
        let mut found = *found;
        loop {
            let Some(now) = self.again(&found) else {
                return Ok(None);
            };
            found = now;
            if let Some(put) = self.put_over(pin, &found, fresh, lifetime)? {
                return Ok(Some(put));
            }
        }
    }

    /// One attempt to end the entry of a key. The notice's cause is `Expired` if its time was up:
    /// then the caller calls the listener, and has removed nothing.
    pub(super) fn remove_living<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, Q>,
    ) -> Option<Notice<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        loop {
            let found = self.find(pin, wanted)?;
            let cause = if self.is_living(&found) {
                Cause::Removed
            } else {
                Cause::Expired
            };
            if let Some(ended) = self.end(pin, &found, cause) {
                return Some(Notice { ended, cause });
            }
        }
    }

    /// Ends this very value, whatever its deadline is by now; nothing if it has ended.
    pub(super) fn remove_this(
        &self,
        pin: &Pin,
        found: &Found<'_, K, V>,
    ) -> Option<Notice<'_, K, V>> {
        let mut found = *found;
        loop {
            found = self.again(&found)?;
            let cause = Cause::Removed;
            if let Some(ended) = self.end(pin, &found, cause) {
                return Some(Notice { ended, cause });
            }
        }
    }

    /// An entry as it is now, if it is still living. The caller has been pinned since it found the
    /// entry. An entry that is not living does not come back.
    pub(super) fn again<'a>(&self, found: &Found<'a, K, V>) -> Option<Found<'a, K, V>> {
        self.if_living(|| Some(found.again()))
    }

    /// Renews an entry: it lives for this long from now. False if it has ended.
    pub(super) fn touch_living<Q: Eq + ?Sized>(
        &self,
        pin: &Pin,
        wanted: Wanted<'_, Q>,
        timeout: Timeout,
    ) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
    {
        let mut lost = None;
        loop {
            let Some(found) = self.living(pin, wanted) else {
                self.deadline(timeout, self)?;
                return Ok(false);
            };
            let renewed = match self.policy(&found) {
                None => self
                    .renew(&found, &mut lost, timeout, self)?
                    .is_some_and(|touched| touched.is_alive()),
                Some(policy) => self.rebound(&found, policy, timeout)?,
            };
            if renewed {
                return Ok(true);
            }
        }
    }
}

impl<'a, K: 'static, V: 'static> Put<'a, K, V> {
    fn of(
        new: Found<'a, K, V>,
        replaced: Option<EndedSlot<&'a Store<K, V>, K, V>>,
        closed: Option<EndedSlot<&'a Store<K, V>, K, V>>,
    ) -> Self {
        let notice = |cause| move |ended| Notice { ended, cause };
        Put::Done {
            new,
            replaced: replaced.map(notice(Cause::Replaced)),
            closed: closed.map(notice(Cause::Closed)),
        }
    }
}
