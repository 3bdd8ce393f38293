//! Polling: rounds over the shards, and the time until which the reaper sleeps. The head of
//! `core::engine` has the protocol.

use super::pause::Pause;
use super::shard::Shard;
use super::wakeup::AT_ONCE;
use super::{Engine, Frontend, Instant, Round, Share, Work};
use crate::core::slot::Payload;
use crate::kit::polled::Polled;
use crate::sync::Ordering;
use crate::time::NEVER;

impl<P: Payload, C> Engine<P, C> {
    /// One round with the time `now`, over all shards that no other thread drives: empties the
    /// inboxes, ends what is due, looks after memory. The reaper calls this.
    pub(crate) fn poll(&self, now: u64, share: Share, frontend: &impl Frontend<P>) -> Round {
        self.go_round(now, share, frontend, |_| ())
    }

    /// [`poll`](Self::poll) beside a reaper, if there is one: asleep, it does not know what this
    /// round has scheduled or left, so the round wakes it (W4).
    pub(crate) fn poll_beside(
        &self,
        now: u64,
        budget: usize,
        frontend: &impl Frontend<P>,
    ) -> Round {
        let depart = |at| self.wakeup.depart(|| self.wanted(at).min(self.reclaim.wanted()));
        let round = self.go_round(now, Share::of(budget), frontend, depart);
        if !self.is_driving() {
            self.close_what_was_left(frontend);
        }
        round
    }

    /// [`poll_beside`](Self::poll_beside) once: `more` also if other threads drove some shards.
    pub(crate) fn poll_once(&self, budget: usize, frontend: &impl Frontend<P>) -> Polled {
        let reading = self.deadlines.reading();
        let round = self.poll_beside(self.deadlines.no_earlier(reading), budget, frontend);
        self.tell_drains();
        let more = round.more || round.busy;
        Polled { more, ..Polled::of(round, reading, &self.deadlines) }
    }

    /// [`poll_beside`](Self::poll_beside) for a caller that wants what is due. Unless this round
    /// has `found` something, it makes another if another driver may have left its shard with
    /// something due (Q10).
    pub(crate) fn poll_shared(
        &self,
        budget: usize,
        frontend: &impl Frontend<P>,
        mut found: impl FnMut() -> bool,
    ) -> Polled {
        loop {
            let reading = self.deadlines.reading();
            let now = self.deadlines.no_earlier(reading);
            let round = self.poll_beside(now, budget, frontend);
            self.tell_drains();
            if found() || round.more || !round.busy || !self.is_due(now) {
                return Polled::of(round, reading, &self.deadlines);
            }
        }
    }

    /// After a poll, the tasks that wait for the end of a shutdown look again.
    /// `close_what_was_left` makes a fence between the round's ends and this look.
    fn tell_drains(&self) {
        #[cfg(feature = "async")]
        if self.admission.is_refusing() {
            self.admission.parted();
        }
    }

    fn go_round(
        &self,
        now: u64,
        share: Share,
        frontend: &impl Frontend<P>,
        left: impl Fn(usize),
    ) -> Round {
        let mut round = Round { more: false, busy: true, next: None };
        if self.is_driving() {
            return round;
        }
        let driving = self.driving();
        let now = self.deadlines.begin_round(now);
        let tick = self.deadlines.ticks().at(now);
        let Some(pauses) = self.standing_pauses(now, tick) else {
            return round;
        };
        round.busy = false;
        let pauses = &pauses;
        let instant = Instant { tick, now, pauses };
        let mut work = Work { share, budget: share.budget, ended: 0 };
        let shards = self.shards();
        let (first, further) = self.first_shard();
        let mut next = NEVER;
        for nth in 0..shards {
            if work.budget == 0 {
                round.more = true;
                // Begin there next time, so that a small budget reaches all of them.
                self.with_stripe(|mine, _| mine.further.set(further + nth as u64));
                break;
            }
            let at = (first + nth) & (shards - 1);
            let visit = self.shards[at].driver.enter(|driver| {
                // A later round may have been here: time does not go back for a shard.
                (driver.tick <= tick).then(|| self.visit(driver, at, instant, &mut work, frontend))
            });
            match visit.flatten() {
                Some(visit) => {
                    round.more |= visit.more;
                    next = next.min(visit.next);
                }
                None => round.busy = true,
            }
            if visit.is_some() {
                left(at);
            }
        }
        if let Some(least) = self.shards.iter().map(|shard| shard.caught_up()).min() {
            self.deadlines.end_round(least);
        }
        drop(driving);
        let at_once = work.ended > 0 && self.gathers_for() == 1;
        round.more |= self.reclaim(tick, at_once, share, frontend);
        let has_reaper = self.wakeup.has_reaper();
        self.stalls.expect(&self.deadlines, now, has_reaper, || self.next_expiration());
        next = next.min(self.reclaim.wanted());
        round.next = (next != NEVER).then_some(next);
        round
    }

    fn standing_pauses(&self, now: u64, tick: u64) -> Option<Vec<Pause>> {
        let caught_up = |shard: &Shard| self.deadlines.ticks().at(shard.caught_up());
        self.stalls.standing(
            &self.deadlines,
            (now, tick),
            || self.shards.iter().any(|shard| shard.driver.is_taken()),
            |tick| self.shards.iter().all(|shard| caught_up(shard) > tick),
        )
    }

    /// The shard that this thread's round begins with, which differs between threads, and by how
    /// many shards that is past the one of its index.
    fn first_shard(&self) -> (usize, u64) {
        self.with_stripe(|mine, index| {
            let further = mine.further.get();
            // Threads with neighbouring indices are to begin far from each other.
            let spread = (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
            #[allow(clippy::cast_possible_truncation)] // modulo the number of shards
            let first = self.shards.shard(spread.wrapping_add(further) as usize);
            (first, further)
        })
    }

    /// The shards that no thread drives.
    fn unattended(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.shards()).filter(|&at| !self.shards[at].driver.is_taken())
    }

    /// The tick by which a driver should come to a shard; [`NEVER`] if nothing is wanted there.
    pub(super) fn wanted(&self, at: usize) -> u64 {
        let shard = &self.shards[at];
        if shard.ring.is_asked() || self.keys.at(at).wants_migration() {
            return AT_ONCE;
        }
        let next = shard.notices.next().unwrap_or(NEVER);
        // survives: a driver at the shard has it from the driver before. Another reader has changed
        // the announcement before, AcqRel. A thread that wants something says so before its own
        // change of the announcement.
        next.min(shard.maintenance.load(Ordering::Acquire))
    }

    /// Whether this thread could find something due at `now`: in a shard that no thread drives.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        let tick = self.deadlines.ticks().at(now);
        let due = |at: usize| self.shards[at].notices.next().is_some_and(|next| next <= tick);
        !self.is_driving() && !self.stalls.is_deciding() && self.unattended().any(due)
    }

    /// The awake reaper announces that it would sleep until `tick`. Returns whether it may.
    pub(crate) fn may_sleep_until(&self, tick: u64) -> bool {
        self.wakeup.announce(tick, || {
            self.unattended().all(|at| self.wanted(at) >= tick) && self.reclaim.wanted() >= tick
        })
    }

    /// Asks the driver to look after memory, if some can be given back.
    #[cold]
    #[inline(never)]
    pub(crate) fn tend_if_wanted(&self, frontend: &impl Frontend<P>) {
        if (0..self.shards()).any(|at| self.shards[at].ring.can_shrink(|| frontend.live(at).0)) {
            self.tend_soon();
        }
    }

    /// Asks the driver to look after memory.
    pub(super) fn tend_soon(&self) {
        for shard in self.shards.iter() {
            shard.ring.ask();
        }
        self.wakeup.wake_by(AT_ONCE);
    }
}
