//! Pause grace: leases that no caller could have renewed, because the process was stalled (row C8).
//!
//! # When it was stalled
//!
//! At its end each round notes when the next one has to begin: at the next expiration then known,
//! or at once if that has come. A driver that leaves a shard after that time postpones it: a slow
//! thread is no stall. If a round begins later than this time by more than the threshold, while no
//! thread drives any shard, the process was stalled: from the tick `from` at which the round should
//! have begun to the tick `to` at which it does.
//!
//! Only a round that was *supposed* to come can be late. That depends on the thread that drives:
//!
//! * The reaper sleeps until the next expiration, so it is supposed to come then.
//! * A caller that has asked for the wait time since the last round is supposed to come at its end.
//! * The engine knows only the habit of any other caller. The time by which it is late (after the
//!   last round, or after the time it was given) is a *gap*. After two gaps in a row that exceed
//!   the threshold, the shorter one is the caller's *habit*: the next round is supposed to come
//!   that much later. Shorter gaps that add up to more than the threshold end the habit.
//!
//! ```text
//!   threshold 5 s, an entry due 3 s after each round, a caller that polls each 10 s:
//!   round      0     10       20       30        40
//!   gap              10       10       10        10
//!   habit      0     0        0        10        10
//!              due 3 stall    stall    expires   expires
//! ```
//!
//! Without the habit, each of these rounds would find a stall, and nothing would ever expire.
//!
//! # What becomes of the leases
//!
//! Every lease with a deadline from `from` to `to` gets the length of the stall, `to - from + 1`,
//! on top. Its new deadline is after `to`, so no lease gets it twice. The rule stands until rounds
//! that began later have worked off every shard, however small their budgets. The driver applies it
//! where it would end the lease, by the swap of a touch. An earlier touch makes this needless; a
//! later one renews.
//!
//! # The deciding thread
//!
//! One thread at a time decides ([`Exclusive`]). A thread that finds another one deciding returns
//! as if that one drove all shards. A round that began before the decision, with an earlier reading
//! of the clock, ends nothing that was due after that reading.

use super::deadline::Deadlines;
use crate::kit::trace::event;
use crate::sync::exclusive::Exclusive;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::time::expressible;
use std::sync::atomic::AtomicU64 as Statistic;
use std::sync::atomic::Ordering::Relaxed;

/// A longer one, in ticks, is a jump of the clock.
const LONGEST: u64 = 1 << 38;

/// The process was stalled from the first of these ticks to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    from: u64,
    to: u64,
}

/// The deadline in place of this one, after these stalls in their order.
pub(super) fn graced(pauses: &[Pause], deadline: u64) -> u64 {
    pauses.iter().fold(deadline, |deadline, pause| {
        if (pause.from..=pause.to).contains(&deadline) {
            expressible(deadline + (pause.to - pause.from + 1))
        } else {
            deadline
        }
    })
}

/// Looks out for stalls, if a threshold is set.
pub(super) struct Stalls {
    watch: Option<Watch>,
}

struct Watch {
    threshold: u64,
    /// The clock reading by which a round has to begin.
    expected: AtomicU64,
    /// The clock reading at which a caller that has asked is to come back; 0 if none has.
    told: Statistic,
    /// Some stalls are still to be allowed for. Set before `expected` is put off.
    standing: AtomicBool,
    pauses: Exclusive<Vec<Pause>>,
    rhythm: Exclusive<Rhythm>,
}

impl Watch {
    /// Expects no round before there is anything.
    fn new(threshold: u64) -> Self {
        Watch {
            threshold,
            expected: AtomicU64::new(u64::MAX),
            told: Statistic::new(0),
            standing: AtomicBool::new(false),
            pauses: Exclusive::new(Vec::new()),
            rhythm: Exclusive::new(Rhythm::default()),
        }
    }

    /// The habit of callers, after one of them has made this round.
    fn habit_after(&self, round: (u64, u64)) -> u64 {
        let told = self.told.swap(0, Relaxed);
        let noted = self.rhythm.enter(|rhythm| {
            rhythm.note(round, told, self.threshold);
            rhythm.habit()
        });
        noted.unwrap_or(0)
    }
}

/// How rarely callers poll of their own accord.
#[derive(Default)]
struct Rhythm {
    /// The clock reading at which the last round ended; `None` before the first one.
    ended: Option<u64>,
    /// The last two gaps that were longer than the threshold; 0 where there was none.
    long: [u64; 2],
    /// The sum of the gaps since then.
    short: u64,
}

impl Rhythm {
    /// Notes a round between these clock readings. The caller was to come at `told`, or 0.
    fn note(&mut self, (began, ended): (u64, u64), told: u64, threshold: u64) {
        if let Some(last) = self.ended {
            let gap = began.saturating_sub(last.max(told));
            if gap > threshold {
                self.long = [gap, self.long[0]];
                self.short = 0;
            } else {
                self.short = self.short.saturating_add(gap);
                if self.short > threshold {
                    self.long = [0, 0];
                }
            }
        }
        self.ended = Some(ended);
    }

    /// How much later than wanted the next round is supposed to come.
    fn habit(&self) -> u64 {
        self.long[0].min(self.long[1])
    }
}

impl Stalls {
    /// A stall is longer than `threshold` nanoseconds; with `None` nothing looks out for stalls.
    pub(super) fn new(threshold: Option<u64>) -> Self {
        Stalls { watch: threshold.map(Watch::new) }
    }

    /// The stalls that a round allows for which begins now, in this tick. `None` if another thread
    /// is deciding that. `attended` says whether a thread drives any shard, and `is_past` whether
    /// rounds that began after a tick have worked off all shards.
    pub(super) fn standing(
        &self,
        deadlines: &Deadlines,
        (now, tick): (u64, u64),
        attended: impl FnOnce() -> bool,
        is_past: impl Fn(u64) -> bool,
    ) -> Option<Vec<Pause>> {
        let Some(watch) = &self.watch else {
            return Some(Vec::new());
        };
        let is_late = |expected: u64| now.saturating_sub(expected) > watch.threshold;
        // The order matters: a thread that sees the expectation put off sees why.
        let late = is_late(watch.expected.load(Ordering::Acquire));
        // survives: a poll in time has read, with Acquire, an expectation put off. Each change of
        // that after the store of `standing` passes a Release on. The store survives, too.
        if !late && !watch.standing.load(Ordering::Acquire) {
            return Some(Vec::new());
        }
        let mut stalled = None;
        let standing = watch.pauses.enter(|pauses| {
            // Before the expectation is looked at: a thread that leaves a shard has put it off.
            let attended = attended();
            // survives: `attended` has read the shard with Acquire. What other deciding threads
            // have stored comes by `pauses`.
            let expected = watch.expected.load(Ordering::Acquire);
            pauses.retain(|pause| !is_past(pause.to));
            if is_late(expected) && !attended {
                // The first tick of which not all is due before.
                let from = deadlines.ticks().at(expected - 1) + 1;
                if from <= tick && tick - from < LONGEST {
                    pauses.push(Pause { from, to: tick });
                    stalled = Some(tick - from + 1);
                }
            }
            watch.standing.store(!pauses.is_empty(), Ordering::Release);
            watch.expected.fetch_max(now.saturating_add(1), Ordering::AcqRel);
            pauses.clone()
        });
        if let Some(ticks) = stalled {
            #[allow(clippy::cast_precision_loss)] // for people
            let seconds = deadlines.ticks().interval().as_secs_f64() * ticks as f64;
            event!(WARN, "process was stalled: leases are extended", seconds = seconds);
        }
        standing
    }

    /// Whether a thread is deciding about a stall: it counts as the driver of all shards.
    pub(super) fn is_deciding(&self) -> bool {
        let watch = self.watch.as_ref();
        watch.is_some_and(|watch| watch.pauses.is_taken())
    }

    /// Called when this thread is about to leave a shard: puts the expectation off.
    pub(super) fn attended(&self, deadlines: &Deadlines) {
        if let Some(watch) = &self.watch {
            let now = deadlines.now();
            // survives: the thread gives its shard back after this, with Release; the deciding
            // thread looks there first. A read-modify-write passes on what earlier threads
            // released.
            watch.expected.fetch_max(now.saturating_add(1), Ordering::AcqRel);
        }
    }

    /// Called after a round that began at clock reading `began`. `next` is the next expiration.
    pub(super) fn expect(
        &self,
        deadlines: &Deadlines,
        began: u64,
        has_reaper: bool,
        next: impl FnOnce() -> Option<u64>,
    ) {
        let Some(watch) = &self.watch else { return };
        // If another thread is deciding, or has just been round, that will do.
        watch.pauses.enter(|_| {
            let due = next().map_or(u64::MAX, |next| deadlines.ticks().begins(next));
            let now = deadlines.now();
            let habit = if has_reaper { 0 } else { watch.habit_after((began, now)) };
            let soonest = now.saturating_add(1).saturating_add(habit);
            watch.expected.store(soonest.max(due), Ordering::Release);
        });
    }

    /// The expectation before a caller's wait time is worked out, for [`promised`](Self::promised).
    pub(super) fn promises(&self, has_reaper: bool) -> Option<u64> {
        let watch = self.watch.as_ref().filter(|_| !has_reaper)?;
        // Acquire: the wait time is worked out after this. An older one could take the place of the
        // expectation that a round has left.
        // survives: no model of stalls asks for a wait time. This holds for `promised`, too.
        Some(watch.expected.load(Ordering::Acquire))
    }

    /// Notes that the engine asks a caller at clock reading `now` to come back at `until`
    /// ([`u64::MAX`]: not before there is anything). `before` is what [`promises`](Self::promises)
    /// has returned: if a round has ended or a shard was left since, that expectation stands.
    pub(super) fn promised(&self, before: u64, now: u64, until: u64) {
        let Some(watch) = &self.watch else { return };
        let habit = watch.rhythm.enter(|rhythm| rhythm.habit()).unwrap_or(0);
        let due = until.max(now.saturating_add(1)).saturating_add(habit);
        let set = watch.expected.compare_exchange(before, due, Ordering::AcqRel, Ordering::Relaxed);
        if set.is_ok() {
            watch.told.store(until, Relaxed);
        }
    }
}
