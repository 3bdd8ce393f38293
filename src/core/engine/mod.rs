//! The engine: claiming slots, ending them, and driving their expiry.
//!
//! # Threads
//!
//! * Any thread claims, publishes, touches and ends slots. None of it waits for another thread.
//! * Any number of threads *drive* by `poll`, as the reaper does; one at a time drives a shard. A
//!   shard's driver empties the inbox, advances the wheel, scans blocks that are due, migrates
//!   words of the index, and gives memory back. A poll goes over the shards, from a different one
//!   in each thread. It leaves out the shards that another thread drives, and says so. What its
//!   budget does not cover stays in the shard, for the next driver.
//! * After a round the driver, unpinned and away from every shard, frees the slots of ended entries
//!   that no thread can be looking at, and drops their payloads ([`freeing`]). One thread at a time
//!   takes the lists and looks after grace periods. Several drivers may drop payloads of different
//!   batches concurrently.
//! * The driver calls handlers and listeners unpinned, but while it drives the shard. A poll in a
//!   handler finds every shard taken. [`Engine::close`] goes from shard to shard and waits at each
//!   until its driver has left it; in a handler it leaves that shard to its driver.
//!
//! # Shutdown (W8)
//!
//! `close` closes every block's next expiration by a swap. If an inserter's `lower` comes before
//! that swap, the scan that follows sees its slot. If it comes after, the inserter finds the block
//! closed and ends its own slot. `close` also closes the shard's chunk count by a swap, so no
//! thread adds blocks afterwards.

mod admission;
mod claim;
mod close;
mod cursor;
mod deadline;
mod fence;
mod freeing;
mod frontend;
mod keys;
mod notice;
mod pause;
mod plan;
mod poll;
mod reclaim;
mod renewal;
mod ring;
mod round;
mod scan;
mod shard;
mod stripe;
mod wakeup;
mod walk;

#[cfg(feature = "async")]
pub(crate) use admission::Door;
pub(crate) use admission::{Refused, Room};
pub(crate) use deadline::{BadTimeout, Precision, Source};
pub(crate) use freeing::Chain;
pub(crate) use frontend::{Config, DueBlock, Frontend, Round, Share};
pub(crate) use renewal::Look;
pub(crate) use scan::bits;
pub(crate) use stripe::Stripe;

use super::header::{Header, Lowered};
use super::index::{Insert, Probe};
use super::lateness::Lateness;
use super::params::{BLOCK_U32, CHUNK};
pub(crate) use super::pins::Pin;
use super::shards::Shards;
use super::slot::Payload;
use super::slots::Slots;
use super::threads::{self, index, Counter, Stripes};
use crate::error::BuildError;
use crate::sync::park::Backoff;
use crate::sync::process;
use crate::time::NEVER;
use admission::Admission;
use close::Leftover;
use crossbeam_utils::CachePadded;
pub(crate) use deadline::Deadlines;
use fence::Fence;
pub(crate) use keys::Keys;
use pause::{Pause, Stalls};
use reclaim::Reclaim;
use shard::Shard;
use wakeup::{Wakeup, AT_ONCE};

/// How many homes and words an inserting thread migrates at a time if the driver is behind.
const HELP: usize = 64;

/// A round's time: the tick that has begun, the clock's reading, and the stalls to make up for.
#[derive(Clone, Copy)]
struct Instant<'p> {
    tick: u64,
    now: u64,
    pauses: &'p [Pause],
}

/// What a round may still do, and what it has done.
struct Work {
    share: Share,
    budget: usize,
    ended: usize,
}

/// See [`Engine::driving`].
struct Driving<'a, P: Payload, C> {
    engine: &'a Engine<P, C>,
    /// Index of the marked stripe: an ending thread borrows one, and keeps it from others.
    index: threads::Index,
}

impl<P: Payload, C> Drop for Driving<'_, P, C> {
    fn drop(&mut self) {
        let driving = &self.engine.stripes.get(&self.index).driving;
        driving.set(driving.get() - 1);
        if driving.get() == 0 {
            self.engine.admission.wake_owed();
        }
    }
}

/// A sharded store of slots that expire.
pub(crate) struct Engine<P: Payload, C> {
    pub(crate) slots: Slots<P>,
    shards: Shards<CachePadded<Shard>>,
    pub(crate) keys: Keys,
    stripes: Stripes<CachePadded<Stripe<C>>>,
    pub(crate) deadlines: Deadlines,
    pub(crate) admission: Admission,
    pub(crate) wakeup: Wakeup,
    pub(crate) reclaim: Reclaim,
    stalls: Stalls,
    pub(crate) fence: Fence,
    leftover: Leftover,
    /// The process that it was made in.
    process: u32,
    /// Nanoseconds of the reaper's rounds, and their number. Only the reaper writes them.
    pub(crate) busy: Counter,
    pub(crate) rounds: Counter,
}

impl<P: Payload, C> Engine<P, C> {
    /// `stripe` makes the frontend's share of a thread's stripe, for so many shards.
    pub(crate) fn new(
        config: Config,
        stripe: impl Fn(usize) -> C + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        let deadlines = Deadlines::new(config.clock, config.precision, config.exact);
        let now = deadlines.ticks().start();
        let shards = config.shards;
        Ok(Engine {
            slots: Slots::new(shards),
            shards: Shards::new(
                (0..shards).map(|at| CachePadded::new(Shard::new(at, now))).collect(),
            ),
            keys: Keys::new(shards, config.seed).map_err(|_| BuildError::OutOfMemory)?,
            stripes: Stripes::new(move || CachePadded::new(Stripe::new(stripe(shards)))),
            deadlines,
            admission: Admission::new(config.capacity),
            wakeup: Wakeup::new(),
            reclaim: Reclaim::new(),
            stalls: Stalls::new(config.pause_grace),
            fence: Fence::new(config.asymmetric),
            leftover: Leftover::none(),
            process: process::current(),
            busy: Counter::default(),
            rounds: Counter::default(),
        })
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Whether the caller waits for a thread that stayed behind when this process was forked.
    pub(crate) fn has_lost(&self, backoff: &Backoff) -> bool {
        backoff.is_long() && self.process != process::current()
    }

    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    #[inline(always)]
    pub(crate) fn pin(&self) -> Pin {
        self.reclaim.pins.pin()
    }

    /// Approximate number of slots in use of `frontend`, which is this engine's.
    pub(crate) fn len(&self, frontend: &impl Frontend<P>) -> usize {
        let live: u64 = (0..self.shards()).map(|shard| frontend.live(shard).0).sum();
        usize::try_from(live).unwrap_or(usize::MAX)
    }

    /// Counts an entry that was refused for want of room.
    #[cold]
    pub(crate) fn count_refusal(&self) {
        self.with_stripe(|mine, _| mine.refused.add(1));
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.refused.get()).sum()
    }

    /// Counts how late the shard's driver sees, at clock reading `now`, an entry due at `deadline`.
    #[inline]
    pub(crate) fn late(&self, shard: usize, deadline: u64, now: u64) {
        let late = now.saturating_sub(self.deadlines.ticks().begins(deadline));
        self.shards[shard].lateness.add(late);
    }

    pub(crate) fn lateness(&self, shard: usize) -> Lateness {
        self.shards[shard].lateness.read()
    }

    pub(crate) fn total_lateness(&self) -> Lateness {
        let mut sum = Lateness::default();
        for shard in 0..self.shards() {
            sum += &self.lateness(shard);
        }
        sum
    }

    /// The shard whose wheel looks after slot `id`.
    #[inline]
    pub(crate) fn shard_of(&self, id: u32) -> usize {
        self.shards.shard(id as usize / CHUNK)
    }

    /// How many slots of a shard have their memory, in use or not.
    pub(crate) fn held(&self, shard: usize) -> u64 {
        self.shards[shard].ring.held() * CHUNK as u64
    }

    #[inline(always)]
    pub(crate) fn with_stripe<R>(&self, f: impl FnOnce(&Stripe<C>, usize) -> R) -> R {
        #[cfg(test)]
        crate::sync::counted::LOOKUPS.set(crate::sync::counted::LOOKUPS.get() + 1);
        let index = index();
        f(self.stripes.get(&index), index.number())
    }

    #[inline(always)]
    pub(crate) fn mine<'a>(&'a self, pin: &'a Pin) -> &'a Stripe<C> {
        self.stripes.of(pin.index())
    }

    /// Marks this thread as at a shard, or on its way, until the mark is dropped. Marks nest.
    fn driving(&self) -> Driving<'_, P, C> {
        let index = index();
        self.stripes.get(&index).driving.add(1);
        Driving { engine: self, index }
    }

    /// Whether this thread is in a round of the driver: in a handler that one has called.
    pub(crate) fn is_driving(&self) -> bool {
        self.with_stripe(|mine, _| mine.is_driving())
    }

    /// The store type's share of each stripe.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = &C> {
        self.stripes.iter().map(|stripe| &stripe.frontend)
    }

    /// Sums each thread's numbers of a shard's slots in use, and keys, which may be negative. `of`
    /// says where a thread's share has its counts.
    pub(crate) fn balance<X>(
        &self,
        shard: usize,
        of: impl Fn(&C) -> &Shards<X>,
        numbers: impl Fn(&X) -> (u64, u64),
    ) -> (u64, u64) {
        let add = |sum: (u64, u64), (slots, keys): (u64, u64)| {
            (sum.0.wrapping_add(slots), sum.1.wrapping_add(keys))
        };
        let counts = self.stripes().map(|share| &of(share)[shard]);
        let (slots, keys) = counts.map(numbers).fold((0, 0), add);
        // Counters are read one after another while others count: a little below zero is zero.
        let sane = |n: u64| if n > i64::MAX as u64 { 0 } else { n };
        (sane(slots), sane(keys))
    }

    /// Makes sure that the driver looks at slot `id` by `tick`. Called after its lease was set.
    /// `Err` if the engine was shut down before: the caller ends the slot, or finds it ended.
    #[inline]
    pub(crate) fn enforce(&self, id: u32, tick: u64) -> Result<(), Refused> {
        match self.slots.header(id) {
            Some(header) => self.enforce_in(header, id, tick),
            None => Ok(()),
        }
    }

    /// [`enforce`](Self::enforce), given the header. No read-modify-write if the block covers it.
    #[inline(always)]
    pub(crate) fn enforce_in(&self, header: &Header, id: u32, tick: u64) -> Result<(), Refused> {
        if self.fence.is_covered(header, tick) {
            return Ok(());
        }
        match header.next.lower(tick) {
            Lowered::No => Ok(()),
            Lowered::Closed => Err(Refused::Closed),
            Lowered::Yes => {
                self.tell(id);
                Ok(())
            }
        }
    }

    #[cold]
    fn tell(&self, id: u32) {
        let Some(header) = self.slots.header(id) else {
            return;
        };
        let notices = &self.shards[self.shard_of(id)].notices;
        if let Some(tick) = notices.notify(id / BLOCK_U32, header) {
            self.wakeup.wake_by(tick);
        }
    }

    /// When something next expires, or earlier.
    pub(crate) fn next_expiration(&self) -> Option<u64> {
        self.shards.iter().filter_map(|shard| shard.notices.next()).min()
    }

    /// The time until [`next_expiration`](Self::next_expiration), for a caller that waits for it.
    pub(crate) fn wait_time(&self) -> Option<std::time::Duration> {
        let promises = self.stalls.promises(self.wakeup.has_reaper());
        let next = self.next_expiration().unwrap_or(NEVER);
        // The clock is read last: a stall in between makes the wait shorter (Q12).
        let reading = self.deadlines.reading();
        if let Some(before) = promises {
            let until = match next {
                NEVER => u64::MAX,
                next => self.deadlines.ticks().begins(next),
            };
            self.stalls.promised(before, self.deadlines.no_earlier(reading), until);
        }
        (next != NEVER).then(|| self.deadlines.wait(reading, next))
    }

    /// Publishes slot `id` in the index, unless `probe` takes a slot that is there already.
    pub(crate) fn publish(
        &self,
        pin: &Pin,
        hash: u32,
        id: u32,
        probe: &mut impl Probe,
        frontend: &impl Frontend<P>,
    ) -> Insert {
        let mut crowded = false;
        let shard = self.keys.shard_of_hash(hash);
        let index = self.keys.at(shard);
        let entered = index.insert(pin, hash, id, &mut crowded, probe);
        if crowded {
            index.grow_if_full(frontend.live(shard).1);
        }
        self.help_migrating(shard, crowded, frontend);
        if let Insert::Full = entered {
            self.admission.starves();
        }
        entered
    }

    /// Has words migrated after a key has gone into the index of `shard` the long way; `crowded` if
    /// that may have grown. This notifies the driver. If the driver is behind by more than a table,
    /// this thread migrates some words, unless another does; it does not take the driver's place.
    #[inline]
    fn help_migrating(&self, shard: usize, crowded: bool, frontend: &impl Frontend<P>) {
        let index = self.keys.at(shard);
        let waiting = index.tables_to_migrate();
        if crowded && waiting > 0 {
            self.wakeup.wake_by(AT_ONCE);
        }
        if waiting > 1 {
            if let Some(copier) = self.reclaim.pins.copier() {
                index.migrate(&copier, &mut { HELP }, |id| frontend.tail(id));
            }
        }
    }
}

impl<P: Payload, X> Engine<P, Shards<X>> {
    /// Sums one counter of all shards and threads.
    pub(crate) fn sum(&self, counter: impl Fn(&X) -> &Counter) -> u64 {
        self.stripes().flat_map(|share| share.iter()).map(|counts| counter(counts).get()).sum()
    }
}
