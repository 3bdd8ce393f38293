//! Values in slots: how one gets in, and the one way in which each gets out.
//!
//! A value is the payload of a slot, and its ticket names slot and occupant. No index leads to it,
//! and no thread ever looks at a value in its slot. So the thread that ends the slot's lease takes
//! the value and frees the slot at once: no guard, no deferred freeing.
//!
//! ```text
//!  FREE -> LIVE(i, d)     insert: the round if it is a new one, the value, then the lease
//!  LIVE -> DEAD -> FREE   take, expiry, cancel_all, shutdown: one swap decides; the value moves out
//!  FREE -> DEAD           insert: the slot has had its last occupant, and is retired
//! ```
//!
//! **Linearization points**: the store of the lease (insert), the swap `LIVE -> DEAD` (all others).
//!
//! # A ticket names one occupant
//!
//! A lease's generation has 16 bits, and comes round. So a slot's note counts the *rounds*, and a
//! ticket has round and generation. The thread that has claimed a slot raises its note before it
//! stores the lease, when the generation has gone from the last one to the first. The driver, as
//! owner of all blocks, raises the notes of a chunk whose generations start over when its memory
//! goes back (`Slots::release`). After its last round a slot is left `DEAD`: after 2^32 occupants,
//! which takes 2^44 insertions into its chunk.
//!
//! `take` loads the lease, then the note, then swaps the lease. The load of the lease acquires its
//! occupant's note. If the slot has another occupant by then, the swap fails, unless that one has
//! the same generation *and* the same deadline, 2^16 - 1 occupants later. Slots are used in
//! rotation, so that takes 2^28 insertions within one interval.
//!
//! # The driver
//!
//! An insertion notifies the driver as a tracker's does (`engine::fence`): by plain loads if the
//! block already covers the deadline. A poll says when the next one is due.

use super::ticket::{Place, Seal, Ticket, LAST_ROUND};
use super::PendingError;
use crate::core::engine::{BadTimeout, Engine, Frontend, Refused, Stripe};
use crate::core::lease::{Lease, State};
use crate::core::occupancy::{Ended, Occupant, Vacant};
use crate::core::prefetch_at;
use crate::core::shards::Shards;
use crate::core::slot::{Payload, Slot};
use crate::core::threads::Counter;
use crate::core::value::Owned;
use crate::error::BuildError;
use crate::keyed::StoreError;
use crate::kit::lifecycle::{shut, Leftovers, Reaping, Shut};
use crate::kit::panics::Panics;
use crate::kit::setup::Setup;
use crate::kit::target::Target;
use crate::sync::Ordering;
use crate::time::{nanos, Lifetime, NEVER};
use std::marker::PhantomData;
use std::sync::Mutex;
use std::time::Duration;

/// How many steps of work a caller that finds the table full does to make room.
const ROOM: usize = 64;
/// How often such a caller tries.
const ATTEMPTS: u32 = 16;

/// A value in its slot. The note has the slot's round.
pub(super) type Value<T> = Owned<T, (), true>;

/// Called with each expired value.
pub(super) type Handler<T> = dyn Fn(T) + Send + Sync;

/// One shard's part of a thread's counters.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counts {
    pub(super) inserted: Counter,
    pub(super) taken: Counter,
    pub(super) expired: Counter,
    pub(super) closed: Counter,
}

type Mine = Stripe<Shards<Counts>>;

/// What the handles of a table share.
pub(super) struct Inner<T: 'static> {
    pub(super) engine: Engine<Value<T>, Shards<Counts>>,
    seal: Seal,
    /// The default timeout in nanoseconds; `None`: values stay for ever.
    timeout: Option<u64>,
    pub(super) target: Target<T, Handler<T>>,
    /// The values that a shutdown has ended and has yet to return.
    pub(super) kept: Leftovers<T>,
    /// Caught panics of handlers, and of values that were dropped.
    pub(super) panics: Panics,
    /// Threads may share a table if values may move between them.
    _values: PhantomData<Mutex<T>>,
}

impl<T: 'static> Inner<T> {
    pub(super) fn new(
        setup: &Setup,
        timeout: Option<Duration>,
        target: Target<T, Handler<T>>,
    ) -> Result<Self, BuildError> {
        let (config, mut random) = setup.config(&Vec::from_iter(timeout))?;
        Ok(Inner {
            engine: Engine::new(config, Shards::defaults)?,
            seal: Seal::new(&mut random),
            timeout: timeout.map(nanos),
            target,
            kept: Leftovers::new(),
            panics: Panics::default(),
            _values: PhantomData,
        })
    }

    #[inline(always)]
    fn count<'m>(&self, mine: &'m Mine, id: u32) -> &'m Counts {
        &mine.frontend[self.engine.shard_of(id)]
    }

    /// Puts a value in, or gives it back.
    #[inline]
    pub(super) fn insert(&self, value: T, timeout: Lifetime) -> Result<Ticket, PendingError<T>> {
        let (mut value, mut attempts) = (value, 0);
        loop {
            match self.enter(value, timeout) {
                Ok(place) => return Ok(self.seal.seal(place)),
                Err((error, back)) => {
                    if !self.makes_room(error, &mut attempts) {
                        return Err(PendingError { value: back, error });
                    }
                    value = back;
                }
            }
        }
    }

    /// A new value's deadline: by the cheap clock if its lag is at most a 64th of the timeout.
    #[inline(always)]
    fn deadline(&self, mine: &Mine, timeout: Lifetime) -> Result<u64, BadTimeout> {
        let deadlines = &self.engine.deadlines;
        let Some(after) = deadlines.nanos(timeout, self.timeout)? else {
            return Ok(NEVER);
        };
        deadlines.reached(deadlines.due(&mine.deadlines, after))
    }

    #[inline(always)]
    fn enter(&self, value: T, timeout: Lifetime) -> Result<Place, (StoreError, T)> {
        self.engine.with_stripe(|mine, index| {
            let deadline = match self.engine.catching_up(self, || self.deadline(mine, timeout)) {
                Ok(deadline) => deadline,
                Err(bad) => return Err((bad.into(), value)),
            };
            let mut refused = Refused::OutOfMemory;
            let (vacant, round) = loop {
                let Some(vacant) = self.engine.claim(mine, index, deadline, true, &mut refused)
                else {
                    return Err((refused.into(), value));
                };
                match round_of(&vacant) {
                    Some(round) => break (vacant, round),
                    None => self.retire(mine, vacant),
                }
            };
            let (header, generation) = (vacant.spot().header, vacant.generation());
            let live = vacant.fill(value, Lease::new(State::Live, generation, deadline)).named();
            self.count(mine, live.id).inserted.add(1);
            if self.engine.enforce_in(header, live.id, deadline).is_err() {
                if let Ok(ended) = live.end() {
                    // The shutdown has not seen the value.
                    let value = self.leave(mine, ended, |counts| &counts.closed);
                    return Err((StoreError::Closed, value));
                }
            }
            Ok(Place { id: live.id, generation, round })
        })
    }

    /// Leaves a claimed slot out of use for good. Its permit goes back.
    #[cold]
    fn retire(&self, mine: &Mine, vacant: Vacant<'_, Value<T>>) {
        vacant.retire();
        self.engine.freed(mine);
    }

    /// Whether the caller tries again, after this has ended values that are due.
    #[cold]
    fn makes_room(&self, error: StoreError, attempts: &mut u32) -> bool {
        if !matches!(error, StoreError::Full | StoreError::OutOfMemory) {
            return false;
        }
        let now = self.engine.deadlines.now();
        *attempts += 1;
        let tries = error == StoreError::Full && *attempts < ATTEMPTS && self.engine.is_due(now);
        if tries {
            self.engine.poll_beside(now, ROOM, self);
        } else {
            self.engine.count_refusal();
        }
        tries
    }

    /// The entry that a ticket names, if its value is still there.
    #[inline(always)]
    pub(super) fn find(&self, ticket: Ticket) -> Option<Occupant<'_, Value<T>>> {
        let place = self.seal.open(ticket);
        let spot = self.engine.slots.spot(place.id)?;
        let lease = spot.slot.lease();
        // After the lease: see the module's head.
        let same = lease.is(State::Live)
            && lease.generation() == place.generation
            && spot.note.load(Ordering::Relaxed) == place.round;
        same.then_some(Occupant { id: place.id, slot: spot.slot, lease })
    }

    /// Starts fetching what a [`take`](Self::take) of this ticket will touch.
    #[inline(always)]
    pub(super) fn prefetch(&self, ticket: Ticket) {
        if let Some(spot) = self.engine.slots.spot(self.seal.open(ticket).id) {
            prefetch_at(spot.slot.address());
            prefetch_at(spot.note);
        }
    }

    #[inline]
    pub(super) fn take(&self, ticket: Ticket) -> Option<T> {
        self.take_found(self.find(ticket)?)
    }

    #[inline(always)]
    fn take_found(&self, live: Occupant<'_, Value<T>>) -> Option<T> {
        // A live value's lease does not change, so a swap that fails finds the value ended.
        let ended = live.end().ok()?;
        Some(self.engine.with_stripe(|mine, _| self.leave(mine, ended, |counts| &counts.taken)))
    }

    pub(super) fn take_all(&self) -> Vec<T> {
        let mut all = Vec::new();
        self.engine.for_each(|live| {
            if live.lease.is(State::Live) {
                all.extend(self.take_found(live));
            }
        });
        all
    }

    /// Takes the value out of a slot that the caller has ended, and frees the slot. Counts the end.
    #[inline(always)]
    fn leave(
        &self,
        mine: &Mine,
        ended: Ended<'_, Value<T>>,
        counter: impl Fn(&Counts) -> &Counter,
    ) -> T {
        // SAFETY: it has ended, and no other thread looks at values.
        let value = unsafe { ended.slot().take() };
        counter(self.count(mine, ended.id())).add(1);
        if self.engine.free(mine, ended) {
            self.engine.tend_if_wanted(self);
        }
        value
    }

    /// For tests: gives each free slot of the first chunk this generation and round.
    #[cfg(any(test, expiry_loom))]
    pub(super) fn age(&self, generation: u32, round: u32) {
        let ids = 0..crate::core::params::CHUNK as u32;
        for spot in ids.filter_map(|id| self.engine.slots.spot(id)) {
            if spot.slot.lease().is(State::Free) {
                spot.slot.set_lease(Lease::free(generation));
                spot.note.store(round, Ordering::Relaxed);
            }
        }
    }
}

/// The round of the slot's next occupant; `None` if the slot has had its last one.
#[inline(always)]
fn round_of<T: 'static>(vacant: &Vacant<'_, Value<T>>) -> Option<u32> {
    let spot = vacant.spot();
    let round = spot.note.load(Ordering::Relaxed);
    // The lease still is the last occupant's. A zeroed lease has no generation.
    let starts_over = spot.slot.lease_relaxed().generation() >= vacant.generation();
    if !starts_over && round <= LAST_ROUND {
        return Some(round);
    }
    let round = round + u32::from(starts_over);
    // The Release of the lease publishes it.
    spot.note.store(round, Ordering::Relaxed);
    (round <= LAST_ROUND).then_some(round)
}

/// A driver of the table, which gets the expired values.
pub(super) trait Reports<T: 'static> {
    fn inner(&self) -> &Inner<T>;

    /// Must not panic.
    fn report(&self, value: T);
}

impl<T: 'static> Reports<T> for Inner<T> {
    fn inner(&self) -> &Inner<T> {
        self
    }

    fn report(&self, value: T) {
        match &self.target {
            Target::Unheard => self.panics.guard(|| drop(value)),
            Target::Poll(stack) => stack.push(value),
            Target::Listener(handler) => self.panics.guard(|| handler(value)),
            Target::Channel(sender) => sender.send(&self.panics, value),
        }
    }
}

/// A driver's round that gives the values it finds to `into`.
pub(super) struct Poll<'a, T: 'static, F> {
    pub(super) inner: &'a Inner<T>,
    pub(super) into: F,
}

impl<T: 'static, F: Fn(T)> Reports<T> for Poll<'_, T, F> {
    fn inner(&self) -> &Inner<T> {
        self.inner
    }

    fn report(&self, value: T) {
        (self.into)(value);
    }
}

impl<T: 'static, R: Reports<T>> Frontend<Value<T>> for R {
    type Hold<'s>
        = ()
    where
        Self: 's;

    fn may_end(&self, _: &Occupant<'_, Value<T>>) -> Option<()> {
        Some(())
    }

    fn prepare(&self, slot: Slot<'_, Value<T>>, _: &<Value<T> as Payload>::Note, _: Lease) {
        prefetch_at(slot.address());
    }

    fn expired(&self, ended: Ended<'_, Value<T>>, (): (), _: u64, _: u64) {
        let inner = self.inner();
        let value =
            inner.engine.with_stripe(|mine, _| inner.leave(mine, ended, |counts| &counts.expired));
        self.report(value);
    }

    fn close(&self) {
        let inner = self.inner();
        let wanted = inner.kept.is_wanted();
        let mut unwanted = Vec::new();
        let closed = inner.engine.close(self, |ended, ()| {
            let value = inner
                .engine
                .with_stripe(|mine, _| inner.leave(mine, ended, |counts| &counts.closed));
            if wanted {
                inner.kept.push(value);
            } else {
                unwanted.push(value);
            }
        });
        // Away from every shard.
        unwanted.into_iter().for_each(|value| inner.panics.guard(|| drop(value)));
        if closed {
            inner.target.finish();
        }
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.inner().engine.balance(
            shard,
            |counts| counts,
            |counts| {
                let ended = [&counts.taken, &counts.expired, &counts.closed];
                (Counter::balance(&[&counts.inserted], &ended), 0)
            },
        )
    }
}

impl<T: 'static> Shut for Inner<T> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.target.close();
        shut(&self.engine, reaper, self);
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/pending.rs"]
mod tests;
