//! The ledger has one word for each entry of a run. The word says whether the entry was accepted,
//! what callers got, and how its end was delivered.
//!
//! A number names an entry. All changes of its word are read-modify-writes: of two
//! that contradict each other the second finds the first. The ledger reports an error when it sees
//! it, or in [`Ledger::close`], under the scenario's name for that check, see [`Names`].

use crate::checks::{Check, Checks};
use crate::latency::{human, Latency};
use expiry::RemovalCause;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, OnceLock};

/// The flags of a word.
const ACCEPTED: u64 = 1;
const RETURNED_REPLACED: u64 = 1 << 1;
const RETURNED_REMOVED: u64 = 1 << 2;
const TOLD_EXPIRED: u64 = 1 << 3;
const TOLD_REMOVED: u64 = 1 << 4;
const TOLD_REPLACED: u64 = 1 << 5;
const TOLD_CLOSED: u64 = 1 << 6;
const TOLD_EVICTED: u64 = 1 << 7;
const TOLD: u64 = TOLD_EXPIRED | TOLD_REMOVED | TOLD_REPLACED | TOLD_CLOSED | TOLD_EVICTED;

/// Entries of a page.
const PAGE: usize = 1 << 16;

/// What a scenario calls an entry, and the checks under which its ledger reports.
#[derive(Debug, Clone, Copy)]
pub struct Names {
    /// An entry, in the texts of violations.
    pub entry: &'static str,
    /// An entry expired before, or after, the time at which it may.
    pub early: Check,
    pub late: Check,
    /// An entry had a second end.
    pub again: Check,
    /// At the close: an accepted entry has no end, or one that was refused has.
    pub ends: Check,
    /// At the close: an entry that a call returned as replaced or removed has another end. `None`
    /// if the scenario does not note returns.
    pub returns: Option<Check>,
    /// An end was delivered for an entry that was never begun, or with an unknown cause.
    pub unknown: Check,
}

/// How many entries were accepted, and how many ended how.
#[derive(Debug, Default, PartialEq)]
pub struct Ends {
    pub accepted: u64,
    pub expired: u64,
    pub removed: u64,
    pub replaced: u64,
    pub evicted: u64,
    pub closed: u64,
}

/// All entries of a run.
#[derive(Debug)]
pub struct Ledger {
    pages: Box<[OnceLock<Box<[AtomicU64]>>]>,
    /// Entries that there may be: their numbers are smaller.
    room: usize,
    names: Names,
    checks: Arc<Checks>,
    lateness: Mutex<Latency>,
}

impl Ledger {
    /// A ledger with room for so many entries. It takes memory for them as they come.
    pub fn new(room: usize, names: Names, checks: Arc<Checks>) -> Self {
        let pages = (0..room.div_ceil(PAGE)).map(|_| OnceLock::new()).collect();
        Ledger { pages, room, names, checks, lateness: Mutex::default() }
    }

    /// Takes the memory for all entries now.
    pub fn with_all_pages(self) -> Self {
        (0..self.room).step_by(PAGE).for_each(|count| {
            self.word(count as u64);
        });
        self
    }

    /// The word of an entry. `None` if there is no room for an entry of this number.
    fn word(&self, number: u64) -> Option<&AtomicU64> {
        let number = usize::try_from(number).ok().filter(|&number| number < self.room)?;
        let page = self.pages.get(number / PAGE)?;
        let page = page.get_or_init(|| (0..PAGE).map(|_| AtomicU64::new(0)).collect());
        page.get(number % PAGE)
    }

    /// Sets a flag.
    fn note(&self, number: u64, flag: u64) {
        let Some(word) = self.word(number) else {
            let Names { entry, unknown, .. } = self.names;
            let text = || format!("no account is kept of {entry} {number:#x}: use fewer --seconds");
            return self.checks.violated(unknown, text);
        };
        word.fetch_or(flag, AcqRel);
    }

    /// How many entries there may be.
    pub fn room(&self) -> usize {
        self.room
    }

    /// The engine said that it is in. Its end may have been delivered already.
    pub fn accepted(&self, number: u64) {
        self.note(number, ACCEPTED);
    }

    /// It was returned to the caller that replaced or removed it.
    pub fn returned(&self, number: u64, by: RemovalCause) {
        let replaced = by == RemovalCause::Replaced;
        self.note(number, if replaced { RETURNED_REPLACED } else { RETURNED_REMOVED });
    }

    /// Its end was delivered at the clock reading `now`. If it expired, that had to be `within`
    /// these readings, the first of which is when it was due.
    pub fn told(&self, number: u64, cause: RemovalCause, now: u64, within: RangeInclusive<u64>) {
        let Names { entry, again, unknown, .. } = self.names;
        let told = match cause {
            RemovalCause::Expired => TOLD_EXPIRED,
            RemovalCause::Removed => TOLD_REMOVED,
            RemovalCause::Replaced => TOLD_REPLACED,
            RemovalCause::Size => TOLD_EVICTED,
            RemovalCause::Closed => TOLD_CLOSED,
            _ => 0,
        };
        let Some(word) = self.word(number).filter(|_| told != 0) else {
            let text = || format!("{entry} {number:#x}, which was never begun, ended: {cause:?}");
            return self.checks.violated(unknown, text);
        };
        if cause == RemovalCause::Expired {
            self.timely(number, now, within);
        }
        let first = |known: u64| (known & TOLD == 0).then_some(known | told);
        if let Err(known) = word.fetch_update(AcqRel, Acquire, first) {
            self.checks.violated(again, || {
                format!("{entry} {number} is told as {cause:?} and was before: {:?}", flags(known))
            });
        }
    }

    fn timely(&self, number: u64, now: u64, within: RangeInclusive<u64>) {
        let Names { entry, early, late, .. } = self.names;
        let (due, latest) = within.into_inner();
        self.checks.expect(early, now >= due, || {
            format!("{entry} {number} expired {} early", human(due - now))
        });
        self.checks.expect(late, now <= latest, || {
            format!("{entry} {number} was told {} after its time", human(now - due))
        });
        if let Ok(mut lateness) = self.lateness.lock() {
            lateness.record_nanos(now.saturating_sub(due));
        }
    }

    /// How long after they were due entries were reported as expired.
    pub fn lateness(&self) -> Latency {
        self.lateness.lock().map_or_else(|_| Latency::new(), |lateness| lateness.clone())
    }

    /// Judges each entry, after the engine has been shut down.
    pub fn close(&self) -> Ends {
        let mut ends = Ends::default();
        for (first, page) in (0..).step_by(PAGE).zip(&self.pages) {
            for (word, number) in page.get().into_iter().flatten().zip(first..) {
                match word.load(Acquire) {
                    0 => {}
                    known => self.judge(number, known, &mut ends),
                }
            }
        }
        ends
    }

    fn judge(&self, number: u64, known: u64, ends: &mut Ends) {
        let entry = self.names.entry;
        let is = |flags| known & flags != 0;
        self.checks.expect(self.names.ends, is(ACCEPTED) == is(TOLD), || {
            format!("{entry} {number} was accepted or has ended, and not both: {:?}", flags(known))
        });
        if let Some(returns) = self.names.returns {
            let agree = is(RETURNED_REPLACED) <= is(TOLD_REPLACED)
                && is(RETURNED_REMOVED) <= is(TOLD_REMOVED);
            self.checks.expect(returns, agree, || {
                format!("of {entry} {number} callers and listener disagree: {:?}", flags(known))
            });
        }
        ends.accepted += u64::from(is(ACCEPTED));
        ends.expired += u64::from(is(TOLD_EXPIRED));
        ends.removed += u64::from(is(TOLD_REMOVED));
        ends.replaced += u64::from(is(TOLD_REPLACED));
        ends.evicted += u64::from(is(TOLD_EVICTED));
        ends.closed += u64::from(is(TOLD_CLOSED));
    }
}

/// The names of a word's flags.
fn flags(known: u64) -> Vec<&'static str> {
    const FLAGS: [&str; 8] = [
        "accepted",
        "returned by the insert that replaced it",
        "returned by a remove",
        "told as expired",
        "told as removed",
        "told as replaced",
        "told as closed",
        "told as evicted",
    ];
    (0..).zip(FLAGS).filter(|(bit, _)| known >> bit & 1 != 0).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use RemovalCause::*;

    const NAMES: Names = Names {
        entry: "entry",
        early: "none_early",
        late: "none_late",
        again: "told_once",
        ends: "one_end_each",
        returns: Some("returns_agree"),
        unknown: "no_surprises",
    };

    /// The counts and failing checks of a story about entries of the second page. The entries are
    /// due at 100 and at 110 at the latest.
    fn failing(story: impl FnOnce(&Ledger, u64)) -> (Ends, Vec<Check>) {
        let names = ["none_early", "none_late", "told_once", "one_end_each"];
        let names = [&names[..], &["returns_agree", "no_surprises"]].concat();
        let checks = Arc::new(Checks::new(&names));
        let ledger = Ledger::new(80_000, NAMES, checks.clone());
        story(&ledger, 70_000);
        (ledger.close(), checks.failing())
    }

    fn told(ledger: &Ledger, number: u64, cause: RemovalCause, now: u64) {
        ledger.told(number, cause, now, 100..=110)
    }

    #[test]
    fn stories_that_are_whole() {
        let (ends, wrong) = failing(|ledger, one| {
            ledger.accepted(one);
            told(ledger, one, Expired, 107);
            // The end may be delivered before the insert has returned.
            told(ledger, one + 1, Removed, 78);
            ledger.returned(one + 1, Removed);
            ledger.accepted(one + 1);
            ledger.accepted(one + 2);
            ledger.returned(one + 2, Replaced);
            told(ledger, one + 2, Replaced, 79);
            ledger.accepted(one + 3);
            told(ledger, one + 3, Closed, 80);
            assert_eq!(ledger.lateness().percentiles().max, 7);
        });
        let should =
            Ends { accepted: 4, expired: 1, removed: 1, replaced: 1, evicted: 0, closed: 1 };
        assert_eq!((ends, wrong), (should, vec![]));
    }

    #[test]
    fn stories_that_are_not() {
        let act = |ledger: &Ledger, one, act: &str| match act {
            "accepted" => ledger.accepted(one),
            "taken" => ledger.returned(one, Removed),
            "swapped" => ledger.returned(one, Replaced),
            "expires" => told(ledger, one, Expired, 110),
            "closes" => told(ledger, one, Closed, 1),
            "is removed" => told(ledger, one, Removed, 1),
            "is replaced" => told(ledger, one, Replaced, 1),
            "early" => told(ledger, one, Expired, 99),
            "late" => told(ledger, one, Expired, 111),
            "beyond" => told(ledger, 80_000, Expired, 100),
            "no room" => ledger.accepted(80_000),
            _ => panic!("{act}"),
        };
        let rows: [(&[&str], Check); 12] = [
            (&["accepted"], "one_end_each"),
            (&["closes"], "one_end_each"),
            (&["accepted", "expires", "closes"], "told_once"),
            (&["accepted", "expires", "expires"], "told_once"),
            (&["accepted", "early"], "none_early"),
            (&["accepted", "late"], "none_late"),
            (&["accepted", "expires", "taken"], "returns_agree"),
            (&["accepted", "is removed", "swapped", "taken"], "returns_agree"),
            (&["accepted", "is removed", "swapped"], "returns_agree"),
            (&["accepted", "expires", "swapped"], "returns_agree"),
            (&["beyond"], "no_surprises"),
            (&["no room"], "no_surprises"),
        ];
        for (acts, check) in rows {
            let (_, wrong) = failing(|ledger, one| acts.iter().for_each(|it| act(ledger, one, it)));
            assert_eq!(wrong, [check], "{acts:?}");
        }
    }
}
