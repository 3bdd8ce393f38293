//! The driver's work at a shard: inbox, wheel, index words, memory. [`super::scan`] ends entries.

use super::plan::Plans;
use super::ring::Tended;
use super::scan::{Due, DUE_BLOCKS};
use super::shard::{DriverShard, Shard};
use super::{Engine, Frontend, Instant, Work};
#[cfg(feature = "tracing")]
use crate::core::index::Index;
use crate::core::params::{BLOCK, CHUNK_BLOCKS};
use crate::core::slot::Payload;
use crate::core::slots::Released;
#[cfg(feature = "tracing")]
use crate::kit::trace::event;
use crate::sync::Ordering;
use crate::time::NEVER;
use expiry_wheel::dense::{Pop, Wheel};

/// After how many nanoseconds the driver looks again at a chunk that it could not give back.
const TEND_AGAIN: u64 = 1_000_000_000;

/// How often memory is maintained where entries end all the time, in nanoseconds.
const TEND_EVERY: u64 = 20_000_000;

/// The longest that a look at a grace period is put off, in nanoseconds.
const PATIENCE: u64 = 100_000_000;

/// What a visit leaves of a shard.
#[derive(Clone, Copy)]
pub(super) struct Visit {
    /// The budget ran out.
    pub(super) more: bool,
    /// The tick at which to come back.
    pub(super) next: u64,
}

/// What migration gets of a round that has no budget left after expiry.
const CARRY_AT_LEAST: usize = 64;

impl<P: Payload, C> Engine<P, C> {
    /// The driver's work at a shard: the inbox, what is due, the index's words, memory.
    pub(super) fn visit(
        &self,
        driver: &mut DriverShard,
        at: usize,
        instant: Instant<'_>,
        work: &mut Work,
        frontend: &impl Frontend<P>,
    ) -> Visit {
        let shard = &self.shards[at];
        driver.tick = instant.tick;
        // The reaper, too, sleeps until then.
        let wanted = self.wanted(at);
        if wanted > instant.tick && driver.tend_at > instant.tick {
            return self.pass_by(shard, instant.now, wanted);
        }
        let ended = work.ended;
        let next = self.advance(driver, at, instant, work, frontend);
        if next.is_some() {
            shard.set_caught_up(instant.now);
        }
        // However much else there is to do, growth goes on.
        let left = self.migrate(at, work.budget.max(CARRY_AT_LEAST), frontend);
        let mut more = next.is_none() || left == 0;
        work.budget = work.budget.min(left);
        // Before memory is maintained, which may want a table whose grace period is over. If that
        // is not over, this is not the last look.
        let waits = self.keys.at(at).turn(|| self.reclaim.pins.turn());
        // Before `live` is read: what ends from here on asks again.
        let asked = shard.ring.take_asked();
        let tends = asked || driver.tend_at <= instant.tick;
        if tends {
            let every = self.deadlines.ticks().within(TEND_EVERY);
            // Under a grace period, the next visit looks again.
            driver.tend_at = if waits { 0 } else { instant.tick + every };
            let tended = self.tend(driver, at, frontend);
            // Something long-lived sits in the way: look again in a while.
            driver.lingers = tended == Tended::Later;
            if tended == Tended::More {
                more = true;
                // The next visit is in the same tick.
                shard.ring.ask();
            }
            #[cfg(not(expiry_loom))]
            if at == 0 && instant.now >= driver.cleared.saturating_add(TEND_AGAIN) {
                driver.cleared = instant.now;
                self.reclaim.pins.clear_seats();
            }
        }
        // What has ended here may have been the last key of an index that was maintained before.
        driver.lingers |= work.ended > ended && (self.shards() > 1 || !tends);
        let mut maintenance = NEVER;
        // Also if this visit has not looked, because an earlier one of the same tick had.
        if driver.lingers {
            maintenance = self.deadlines.ticks().at(instant.now.saturating_add(TEND_AGAIN)) + 1;
        }
        driver.backoff = if waits {
            let backoff = self.more_backoff(driver.backoff);
            maintenance = maintenance.min(instant.tick + backoff);
            backoff
        } else {
            0
        };
        // Soon, if a smaller table has just been installed.
        if self.keys.at(at).wants_migration() {
            maintenance = maintenance.min(instant.tick + 1);
        }
        // The shard's next expiration need not cover what the budget has left: a thread that has
        // found a block taken leaves its notification to the driver.
        if next.is_none() {
            maintenance = instant.tick;
        }
        if maintenance != shard.maintenance.load(Ordering::Relaxed) {
            // survives: one word, with nothing behind it. The reaper reads it after its
            // announcement, which a driver that left the shard has changed before (`depart`).
            shard.maintenance.store(maintenance, Ordering::Release);
        }
        #[cfg(feature = "tracing")]
        self.tell_of_growth(driver, at);
        self.stalls.attended(&self.deadlines);
        Visit { more, next: next.unwrap_or(NEVER).min(maintenance) }
    }

    /// A visit to a shard of which nothing is `wanted` yet.
    #[inline]
    fn pass_by(&self, shard: &Shard, now: u64, wanted: u64) -> Visit {
        shard.set_caught_up(now);
        self.stalls.attended(&self.deadlines);
        Visit { more: false, next: wanted }
    }

    /// Logs if a shard's index has another size than at the last look.
    #[cfg(feature = "tracing")]
    fn tell_of_growth(&self, driver: &mut DriverShard, at: usize) {
        let index = self.keys.at(at);
        let (tables, to) = index.shape();
        if tables > 1 || to == driver.words {
            return;
        }
        let from = match std::mem::replace(&mut driver.words, to) {
            0 => Index::capacity_of(0),
            from => from,
        };
        if to > from {
            event!(DEBUG, "index grew", shard = at, from = from, to = to);
        } else if to < from {
            event!(DEBUG, "index shrank", shard = at, from = from, to = to);
        }
    }

    /// By how many ticks to put off the next look at a grace period that does not end.
    pub(super) fn more_backoff(&self, backoff: u64) -> u64 {
        let most = self.deadlines.ticks().within(PATIENCE);
        (backoff * 2).clamp(1, most)
    }

    /// Advances a shard. Returns when something in it next expires; `None` if the budget ran out.
    fn advance(
        &self,
        driver: &mut DriverShard,
        at: usize,
        instant: Instant<'_>,
        work: &mut Work,
        frontend: &impl Frontend<P>,
    ) -> Option<u64> {
        let shard = &self.shards[at];
        loop {
            let mut news = driver.heard.take(&shard.notices);
            while let Some((block, next)) = driver.heard.pop(&self.slots) {
                work.budget = work.budget.saturating_sub(1);
                if let Some(next) = next {
                    let id = self.slots.local_block(block);
                    if driver.wheel.due(id).map_or(true, |due| next < due) {
                        driver.wheel.schedule(id, next);
                    }
                }
                if work.budget == 0 {
                    return None;
                }
            }
            // Several at a time, so that the memory of one is fetched while another is looked at.
            let at_once = match work.share.until {
                Some(_) if frontend.runs_users_code() && !self.fence.exists() => 1,
                _ => DUE_BLOCKS,
            };
            let end = loop {
                let count = driver.due.len();
                let is_enough = count == at_once || count * BLOCK >= work.budget;
                if std::mem::take(&mut news) || is_enough {
                    break None;
                }
                match driver.wheel.pop(instant.tick, &mut work.budget) {
                    Pop::Due { id, .. } => {
                        let block = self.slots.block_of(at, id);
                        self.prefetch_block(driver, id, block);
                        driver.due.push(Due::new(id, block));
                    }
                    Pop::Idle => break Some(false),
                    Pop::Budget => break Some(true),
                }
            };
            let scans = !driver.due.is_empty();
            self.scan_all(driver, instant, work, frontend);
            if scans && work.share.is_over() {
                work.budget = 0;
            }
            match end {
                Some(true) => return None,
                Some(false) => {
                    let wheel = driver.wheel.next_expiration().unwrap_or(NEVER);
                    let raised = driver.heard.raise(&shard.notices, instant.tick, wheel);
                    if raised.is_some() {
                        return raised;
                    }
                }
                None if work.budget == 0 => return None,
                None => {}
            }
        }
    }

    /// Migrates words of a shard's index. Returns the budget left: 0 if there is more to do.
    fn migrate(&self, at: usize, mut budget: usize, frontend: &impl Frontend<P>) -> usize {
        let index = self.keys.at(at);
        if !index.wants_migration() {
            return budget;
        }
        let copier = self.reclaim.pins.copier();
        if copier.is_some_and(|copier| index.migrate(&copier, &mut budget, |id| frontend.tail(id)))
        {
            return 0;
        }
        budget.max(1)
    }

    /// Takes chunks off a ring that is mostly free, and gives back what has drained.
    fn tend(&self, driver: &mut DriverShard, at: usize, frontend: &impl Frontend<P>) -> Tended {
        self.keys.at(at).shrink_if_empty(|| frontend.live(at).1);
        let DriverShard { wheel, plans, resident, .. } = driver;
        let let_go = |local| self.let_go(wheel, plans, at, local);
        let (tended, left) = self.shards[at].ring.release(resident, || frontend.live(at).0, let_go);
        if let Some(chunks) = left {
            wheel.shrink_to(chunks as usize * CHUNK_BLOCKS);
        }
        tended
    }

    /// Gives a chunk's memory back, if no thread is in it.
    fn let_go(&self, wheel: &mut Wheel, plans: &mut Plans, at: usize, local: u32) -> Released {
        let chunk = self.slots.chunk_of(at, local);
        self.slots.release(chunk, || {
            for (block, header) in self.slots.headers(chunk).into_iter().flatten().enumerate() {
                header.next.take();
                #[allow(clippy::cast_possible_truncation)]
                wheel.cancel(local * CHUNK_BLOCKS as u32 + block as u32);
            }
            plans.let_go(local);
        })
    }

    /// For models: [`Ring::chunks`](super::ring::Ring::chunks) of the first shard.
    #[cfg(expiry_loom)]
    pub(crate) fn chunks(&self) -> (u32, Vec<u32>) {
        self.shards[0].ring.chunks(&self.slots)
    }
}
