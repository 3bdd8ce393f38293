//! The driver's round: inboxes, wheels, due buckets, index words, memory.

use super::plan::Plan;
use super::{Claim, Driver, DriverShard, Engine, Face, Instant, Round, BUCKET_U32};
use crate::core::index::Index;
use crate::core::lease::Lease;
use crate::core::params::{BUCKET, CHUNK, CHUNK_BUCKETS};
use crate::core::prefetch;
use crate::core::slots::{Look, Released, Slot};
use crate::sync::Ordering;
use crate::time::NEVER;
use crate::wheel::Pop;

/// How many chunks a shard gives back in one round: at most some 4 MiB.
const RELEASE_AT_ONCE: u32 = 32;

/// How long until the driver looks again at a chunk that it could not give back, in nanoseconds.
const TEND_AGAIN: u64 = 1_000_000_000;

/// What became of looking after a shard's memory.
enum Tended {
    All,
    More,
    Later,
}

/// What the carrier gets of a round whose budget has been used up by expiry.
const CARRY_AT_LEAST: usize = 64;

/// How many due buckets are taken from a wheel before the first of them is looked at.
const AT_ONCE: usize = 8;

impl<C> Engine<C> {
    /// One round of the driver with the time `now`: empties the inboxes, ends what is due, looks after memory.
    ///
    /// `None` if another thread is at it. `budget` counts buckets, cascades, index words and expired
    /// entries; what it does not cover is carried forward.
    pub(crate) fn poll(&self, now: u64, mut budget: usize, face: &impl Face) -> Option<Round> {
        self.driver.enter(|driver| {
            let _driving = self.driving();
            self.round(driver, now, &mut budget, face)
        })
    }

    /// As [`poll`](Self::poll), beside a reaper, if there is one: it may be asleep, and does not know what this round has
    /// filed (W4).
    pub(crate) fn poll_beside(&self, now: u64, budget: usize, face: &impl Face) -> Option<Round> {
        let round = self.poll(now, budget, face)?;
        if let Some(tick) = round.next {
            self.wake_by(tick);
        }
        Some(round)
    }

    pub(super) fn round(
        &self,
        driver: &mut Driver,
        now: u64,
        budget: &mut usize,
        face: &impl Face,
    ) -> Round {
        let tick = self.ticks.at(now).max(driver.tick);
        driver.tick = tick;
        let relaxed = std::sync::atomic::Ordering::Relaxed;
        self.driven
            .store(now.max(self.driven.load(relaxed)), relaxed);
        let shards = self.shards.len();
        let first = driver.first;
        let mut more = false;
        let mut next: Option<u64> = None;
        for at in (0..shards).map(|at| (first + at) & (shards - 1)) {
            if *budget == 0 {
                more = true;
                driver.first = at;
                break;
            }
            more |= self.advance(
                &mut driver.shards[at],
                at,
                Instant { tick, now },
                budget,
                face,
            );
            let due = driver.shards[at].wheel.next_expiration();
            next = match (next, due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        if !more {
            self.caught_up.store(self.driven.load(relaxed), relaxed);
        }
        more |= self.carry(budget);
        // Before the wheels are asked for the live ones: what ends from here on asks again.
        if self.untended.swap(false, Ordering::AcqRel) || driver.tended != tick {
            driver.tended = tick;
            driver.lingers = false;
            for at in 0..shards {
                match self.tend(&mut driver.shards[at], at, face) {
                    Tended::All => {}
                    Tended::More => {
                        more = true;
                        // The next round is in the same tick.
                        self.untended.store(true, Ordering::Release);
                    }
                    // Something long-lived sits in the way: look again in a while.
                    Tended::Later => driver.lingers = true,
                }
            }
        }
        // Also if this round has not looked, because an earlier one of the same tick had.
        if driver.lingers {
            let then = self.ticks.at(now.saturating_add(TEND_AGAIN)) + 1;
            next = Some(next.map_or(then, |next| next.min(then)));
        }
        // A grace period that has not ended is looked at again at the next tick.
        if self.indexes.iter().any(Index::turn) {
            next = Some(next.map_or(tick + 1, |next| next.min(tick + 1)));
        }
        Round { more, next }
    }

    /// Advances one shard. True if the budget ran out.
    pub(super) fn advance(
        &self,
        driver: &mut DriverShard,
        at: usize,
        instant: Instant,
        budget: &mut usize,
        face: &impl Face,
    ) -> bool {
        loop {
            // What an earlier round left is worked off first; then what has come since.
            if driver.taken.is_empty() {
                driver.taken = self.shards[at].inbox.take();
            }
            let mut news = !driver.taken.is_empty();
            while let Some((bucket, next)) = driver.taken.pop(&self.slots) {
                *budget = budget.saturating_sub(1);
                if let Some(next) = next {
                    let id = self.local(bucket);
                    if driver.wheel.due(id).map_or(true, |due| next < due) {
                        driver.wheel.schedule(id, next);
                    }
                }
                if *budget == 0 {
                    return true;
                }
            }
            // Several at a time, so that the memory of one is fetched while another is looked at.
            let mut due = [0; AT_ONCE];
            let mut count = 0;
            let end = loop {
                if std::mem::take(&mut news) {
                    break None;
                }
                if count == AT_ONCE || count * BUCKET >= *budget {
                    break None;
                }
                match driver.wheel.pop(instant.tick, budget) {
                    Pop::Due { id, .. } => {
                        self.prefetch_bucket(driver, id, self.global(at, id));
                        due[count] = id;
                        count += 1;
                    }
                    Pop::Idle => break Some(false),
                    Pop::Budget => break Some(true),
                }
            };
            for &id in &due[..count] {
                self.prefetch_due(driver, id, self.global(at, id), instant);
            }
            for &id in &due[..count] {
                let bucket = self.global(at, id);
                if let Some(next) = self.scan(driver, id, bucket, instant, budget, face) {
                    driver.wheel.schedule(id, next);
                }
            }
            match end {
                Some(more) => return more,
                None if *budget == 0 => return true,
                None => {}
            }
        }
    }

    /// Starts fetching what looking at a bucket will touch first: its header, and its plan or its slots.
    fn prefetch_bucket(&self, driver: &DriverShard, local: u32, bucket: u32) {
        let first = bucket * BUCKET_U32;
        if let Some(header) = self.slots.header(first) {
            prefetch(header);
        }
        if !driver.plans.prefetch(local) {
            // Two slots to a cache line.
            for slot in self.slots.bucket(first).into_iter().flatten().step_by(2) {
                prefetch(slot);
            }
        }
    }

    /// Starts fetching the slots of a bucket that its plan says are due.
    fn prefetch_due(&self, driver: &mut DriverShard, local: u32, bucket: u32, instant: Instant) {
        let Some(plan) = driver.plans.get(local) else {
            return;
        };
        if let Some(slots) = self.slots.bucket(bucket * BUCKET_U32) {
            for at in plan.due(instant.tick) {
                prefetch(&slots[at]);
            }
        }
    }

    /// A bucket's number in its shard's wheel, dense from 0.
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn local(&self, bucket: u32) -> u32 {
        let (chunk, at) = (
            bucket as usize / CHUNK_BUCKETS,
            bucket as usize % CHUNK_BUCKETS,
        );
        (chunk / self.shards.len() * CHUNK_BUCKETS + at) as u32
    }

    /// The inverse of [`local`](Self::local).
    #[allow(clippy::cast_possible_truncation)]
    pub(super) fn global(&self, shard: usize, local: u32) -> u32 {
        let (chunk, at) = (
            local as usize / CHUNK_BUCKETS,
            local as usize % CHUNK_BUCKETS,
        );
        ((chunk * self.shards.len() + shard) * CHUNK_BUCKETS + at) as u32
    }

    /// Ends what is due in a bucket. Returns the tick that it is to be looked at again.
    fn scan(
        &self,
        driver: &mut DriverShard,
        local: u32,
        bucket: u32,
        instant: Instant,
        budget: &mut usize,
        face: &impl Face,
    ) -> Option<u64> {
        let first = bucket * BUCKET_U32;
        let header = self.slots.header(first)?;
        // From here on the bucket reads "never": inserters tell us of what comes.
        let Look { next: base, news } = header.next.take()?;
        let slots = self.slots.bucket(first)?;
        let now = instant.tick;
        let plan = driver.plans.get(local).filter(|_| {
            // With news, there may be more in the bucket than was noted.
            !news && Plan::holds(base, now)
        });
        let earliest = match plan {
            Some(mut plan) => {
                while let Some(at) = plan.pop(now) {
                    let deadline =
                        self.end_if_due(first, at, &slots[at], base, instant, budget, face);
                    plan.note(at, now, deadline);
                }
                plan.earliest(now)
            }
            None => {
                for slot in slots {
                    let lease = slot.lease();
                    if lease.state().expires() && lease.deadline_from(base) <= now {
                        face.prepare(slot, lease);
                    }
                }
                let mut deadlines = [NEVER; BUCKET];
                for (at, (slot, deadline)) in slots.iter().zip(&mut deadlines).enumerate() {
                    *deadline = self.end_if_due(first, at, slot, base, instant, budget, face);
                }
                driver.plans.make(local, now, &deadlines)
            }
        };
        if earliest != NEVER {
            // A minimum, never a store: inserters and touches may have lowered it since (W5, W11).
            header.next.put_back(earliest);
        }
        header.next.get()
    }

    /// Ends what is in a slot if it is due. Returns when to look at the slot again; [`NEVER`] if there is no need to.
    #[allow(clippy::too_many_arguments)]
    #[allow(clippy::cast_possible_truncation)] // a place in a bucket
    #[inline]
    fn end_if_due(
        &self,
        first: u32,
        at: usize,
        slot: &Slot,
        base: u64,
        instant: Instant,
        budget: &mut usize,
        face: &impl Face,
    ) -> u64 {
        let mut lease = slot.lease();
        while lease.state().expires() {
            // Everything in the bucket is due at `base` or later, or its inserter has yet to lower it.
            let deadline = lease.deadline_from(base);
            if deadline > instant.tick {
                return deadline;
            }
            let claim = Claim {
                id: first + at as u32,
                incarnation: lease.incarnation(),
                slot,
            };
            if !face.may_end(&claim, lease) {
                return instant.tick + 1;
            }
            match self.end(slot, lease) {
                Ok(()) => {
                    *budget = budget.saturating_sub(1);
                    face.expired(claim, lease, deadline, instant.now);
                    break;
                }
                // Touched or ended meanwhile: look again (Q6).
                Err(now) => lease = now,
            }
        }
        NEVER
    }

    /// The carrier's work in all indexes. True if there is more.
    pub(super) fn carry(&self, budget: &mut usize) -> bool {
        let mut more = false;
        for index in &self.indexes {
            if !index.wants_carrying() {
                continue;
            }
            // Emptied before the next copy begins, so none of these has a copy on its way.
            let mut head = index.limbo.swap(0, Ordering::AcqRel);
            while let Some(slot) = head
                .checked_sub(1)
                .and_then(|id| u32::try_from(id).ok())
                .and_then(|id| self.slot(id))
            {
                head = slot.key.load(Ordering::Relaxed);
                slot.set_lease(Lease::free(slot.lease().incarnation()));
            }
            // However much else there is to do, growth goes on.
            let mut share = (*budget).max(CARRY_AT_LEAST);
            more |= index.carry(&mut share);
            *budget = (*budget).min(share);
        }
        more
    }

    /// Takes chunks off a ring that is mostly free, and gives back what has drained.
    fn tend(&self, driver: &mut DriverShard, at: usize, face: &impl Face) -> Tended {
        let shard = &self.shards[at];
        let (live, keys) = face.live(at);
        self.indexes[at].shrink_if_empty(keys);
        let active = shard.active.load(Ordering::Acquire);
        driver.resident = driver.resident.max(active);
        // Keep twice what is live, and one chunk.
        #[allow(clippy::cast_possible_truncation)]
        let wanted = (live * 2 / CHUNK as u64) as u32 + 1;
        if active > 1 && wanted < active / 2 {
            // Fails if a thread adds a chunk just now: then it is not mostly free after all.
            let _ =
                shard
                    .active
                    .compare_exchange(active, wanted, Ordering::AcqRel, Ordering::Relaxed);
        }
        let active = shard.active.load(Ordering::Acquire);
        let mut released = 0;
        let mut in_use = false;
        // What a thread sat in the last time; what is on the ring again is none of ours.
        let mut aside = std::mem::take(&mut driver.aside);
        aside.retain(|&local| {
            let seen = (local >= active).then(|| self.let_go(driver, at, local));
            // The thread has moved on and told; of the end of what it has left there nobody tells.
            in_use |= seen == Some(Released::InUse);
            seen.is_some_and(|seen| seen != Released::Yes)
        });
        while driver.resident > active && released < RELEASE_AT_ONCE {
            let local = driver.resident - 1;
            match self.let_go(driver, at, local) {
                Released::Yes => released += 1,
                // For as long as it likes: it will tell when it moves on.
                Released::Owned => aside.push(local),
                Released::InUse => break,
            }
            driver.resident = local;
        }
        driver.aside = aside;
        #[allow(clippy::cast_possible_truncation)] // fewer than chunks
        let lingering = driver.resident - active + driver.aside.len() as u32;
        shard
            .lingering
            .store(lingering, std::sync::atomic::Ordering::Relaxed);
        if released > 0 && driver.resident == active {
            driver.wheel.shrink_to(active as usize * CHUNK_BUCKETS);
        }
        if released == RELEASE_AT_ONCE {
            Tended::More
        } else if driver.resident > active || in_use {
            Tended::Later
        } else {
            Tended::All
        }
    }

    /// Gives a chunk's memory back, if nobody is in it.
    fn let_go(&self, driver: &mut DriverShard, at: usize, local: u32) -> Released {
        let chunk = local as usize * self.shards.len() + at;
        self.slots.release(chunk, || {
            for (bucket, header) in self.slots.headers(chunk).into_iter().flatten().enumerate() {
                header.next.take();
                #[allow(clippy::cast_possible_truncation)]
                driver
                    .wheel
                    .deschedule(local * CHUNK_BUCKETS as u32 + bucket as u32);
            }
            driver.plans.let_go(local);
        })
    }

    /// Whether memory is waiting to be given back and the driver should be told.
    pub(crate) fn wants_tending(&self, face: &impl Face) -> bool {
        (0..self.shards.len()).any(|at| {
            let active = u64::from(self.shards[at].active.load(Ordering::Relaxed));
            active > 1 && face.live(at).0 * 2 / (CHUNK as u64) + 1 < active / 2
        })
    }

    /// Asks the driver to look after memory.
    pub(crate) fn tend_soon(&self) {
        self.untended.swap(true, Ordering::AcqRel);
        self.wake_by(1);
    }

    /// Announces that the reaper will sleep until `tick`, and says whether it may: nothing came meanwhile.
    pub(crate) fn announce(&self, tick: u64) -> bool {
        self.wake_at.swap(tick, Ordering::AcqRel);
        self.driver
            .enter(|driver| {
                let mut quiet = true;
                for (shard, driver) in self.shards.iter().zip(&mut driver.shards) {
                    if driver.taken.is_empty() {
                        driver.taken = shard.inbox.take();
                    }
                    // Somebody else may have polled since the round that `tick` comes from, and have filed what
                    // was in the inbox: then the wheel knows of something earlier.
                    quiet &= driver.taken.is_empty()
                        && driver
                            .wheel
                            .next_expiration()
                            .map_or(true, |due| due >= tick);
                }
                // Whoever asks for these does so before it lowers the announcement, as with the inbox.
                quiet
                    && !self.untended.load(Ordering::Acquire)
                    && !self.indexes.iter().any(Index::wants_carrying)
            })
            .unwrap_or(false)
    }

    /// For models: the clock has come to `tick`, which ends the reaper's sleep if it was announced to end by then.
    #[cfg(expiry_loom)]
    pub(crate) fn timer_fires(&self, tick: u64) {
        let announced = self.wake_at.fetch_add(0, Ordering::AcqRel);
        if announced != 0 && announced <= tick {
            self.waker.wake();
        }
    }

    /// For models: how many chunks are on the first shard's ring, and which ones have been used since their memory went back.
    #[cfg(expiry_loom)]
    pub(crate) fn chunks(&self) -> (u32, Vec<u32>) {
        let shard = &self.shards[0];
        let ever = shard.peak.load(Ordering::Acquire) & !super::SHUT;
        let used = |&local: &u32| {
            let slots = self.slots.chunk(local as usize * self.shards.len());
            let mut slots = slots.into_iter().flatten();
            slots.any(|slot| slot.lease().0 != 0)
        };
        let active = shard.active.load(Ordering::Acquire);
        (active, (0..ever).filter(used).collect())
    }

    /// The reaper is awake: nobody needs to wake it.
    pub(crate) fn awake(&self) {
        self.wake_at.swap(0, Ordering::AcqRel);
    }
}
