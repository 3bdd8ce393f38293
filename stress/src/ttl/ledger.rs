//! The ledger of values: for each, that it was inserted, what returned it, and what its end was told to be, and when.

use crate::checks::Checks;
use expiry::RemovalCause;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::OnceLock;

/// What is known of a value; above these bits is when its end was told.
const INSERTED: u64 = 1;
const RETURNED_REPLACED: u64 = 1 << 1;
const RETURNED_REMOVED: u64 = 1 << 2;
const TOLD_EXPIRED: u64 = 1 << 3;
const TOLD_REMOVED: u64 = 1 << 4;
const TOLD_REPLACED: u64 = 1 << 5;
const TOLD_CLOSED: u64 = 1 << 6;
const TOLD: u64 = TOLD_EXPIRED | TOLD_REMOVED | TOLD_REPLACED | TOLD_CLOSED;
const TIME: u32 = 8;

/// Values of a page, and pages of a thread.
const PAGE: usize = 1 << 16;
const PAGES: usize = 1 << 14;
/// A value's number has its thread above these bits.
const NUMBER: u32 = 40;

type Page = Box<[AtomicU64]>;

/// What returned a value to its caller.
#[derive(Debug, Clone, Copy)]
pub enum Returned {
    /// An insert that replaced it.
    Replaced,
    /// A remove.
    Removed,
}

/// All values of all threads.
#[derive(Debug)]
pub struct Ledger {
    pages: Box<[OnceLock<Page>]>,
}

/// How many values ended how.
#[derive(Debug, Default, PartialEq)]
pub struct Ends {
    /// Values that were inserted.
    pub inserted: u64,
    /// Expired, removed, replaced, closed.
    pub expired: u64,
    pub removed: u64,
    pub replaced: u64,
    pub closed: u64,
}

/// The number of a thread's next value.
pub fn number(thread: usize, count: u64) -> u64 {
    (thread as u64) << NUMBER | count
}

impl Ledger {
    /// A ledger for so many threads.
    pub fn new(threads: usize) -> Self {
        Ledger { pages: (0..threads * PAGES).map(|_| OnceLock::new()).collect() }
    }

    /// What is known of a value. `None` if this program has made no such value.
    fn entry(&self, number: u64) -> Option<&AtomicU64> {
        let count = (number & ((1 << NUMBER) - 1)) as usize;
        let page = (number >> NUMBER) as usize * PAGES + count / PAGE;
        let page = self.pages.get(page).filter(|_| count / PAGE < PAGES)?;
        let page = page.get_or_init(|| (0..PAGE).map(|_| AtomicU64::new(0)).collect());
        page.get(count % PAGE)
    }

    fn note(&self, number: u64, what: u64) {
        if let Some(entry) = self.entry(number) {
            entry.fetch_or(what, AcqRel);
        }
    }

    /// Whether there is room for a value of this number.
    pub fn has_room(&self, number: u64) -> bool {
        self.entry(number).is_some()
    }

    /// It was inserted.
    pub fn inserted(&self, number: u64) {
        self.note(number, INSERTED);
    }

    /// It was returned to a caller.
    pub fn returned(&self, number: u64, by: Returned) {
        self.note(
            number,
            match by {
                Returned::Replaced => RETURNED_REPLACED,
                Returned::Removed => RETURNED_REMOVED,
            },
        );
    }

    /// Its end was told at a clock reading.
    pub fn told(&self, number: u64, cause: RemovalCause, now: u64, checks: &Checks) {
        let told = match cause {
            RemovalCause::Expired => TOLD_EXPIRED,
            RemovalCause::Removed => TOLD_REMOVED,
            RemovalCause::Replaced => TOLD_REPLACED,
            RemovalCause::Closed => TOLD_CLOSED,
            _ => 0,
        };
        let entry = self.entry(number).filter(|_| told != 0);
        let Some(entry) = entry else {
            return checks
                .violated("no_surprises", || format!("value {number} ended as {cause:?}"));
        };
        let before = entry.fetch_update(AcqRel, Acquire, |known| {
            (known & TOLD == 0).then_some(known | told | now.max(1) << TIME)
        });
        if let Err(known) = before {
            checks.violated("told_once", || {
                format!("value {number} is told as {cause:?} and was before: {known:#b}")
            });
        }
    }

    /// When its end was told, if it was.
    pub fn told_at(&self, number: u64) -> Option<u64> {
        let known = self.entry(number)?.load(Acquire);
        (known & TOLD != 0).then_some(known >> TIME)
    }

    /// Holds the stories of all values against what may be, after the map has been dropped.
    pub fn close(&self, checks: &Checks) -> Ends {
        let mut ends = Ends::default();
        let pages = self.pages.iter().filter_map(OnceLock::get);
        for entry in pages.flat_map(|page| page.iter()) {
            let known = entry.load(Acquire) & ((1 << TIME) - 1);
            if known != 0 {
                judge(known, &mut ends, checks);
            }
        }
        ends
    }
}

fn judge(known: u64, ends: &mut Ends, checks: &Checks) {
    let is = |what| known & what != 0;
    checks.expect("one_end_each", is(INSERTED) == is(TOLD), || {
        format!("inserted or told of an end, and not both: {known:#b}")
    });
    let agree =
        is(RETURNED_REPLACED) == is(TOLD_REPLACED) && is(RETURNED_REMOVED) == is(TOLD_REMOVED);
    checks.expect("returns_agree", agree, || {
        format!("what was returned is not what was told: {known:#b}")
    });
    ends.inserted += u64::from(is(INSERTED));
    ends.expired += u64::from(is(TOLD_EXPIRED));
    ends.removed += u64::from(is(TOLD_REMOVED));
    ends.replaced += u64::from(is(TOLD_REPLACED));
    ends.closed += u64::from(is(TOLD_CLOSED));
}

#[cfg(test)]
mod tests {
    use super::super::real::NAMES;
    use super::*;
    use crate::checks::Check;

    fn failing(story: impl FnOnce(&Ledger, u64, &Checks)) -> (Ends, Vec<Check>) {
        let (ledger, checks) = (Ledger::new(2), Checks::new(&NAMES));
        story(&ledger, number(1, 70_000), &checks);
        let ends = ledger.close(&checks);
        (ends, checks.failing())
    }

    #[test]
    fn stories_that_are_whole() {
        let (ends, wrong) = failing(|ledger, one, checks| {
            ledger.inserted(one);
            assert_eq!(ledger.told_at(one), None);
            ledger.told(one, RemovalCause::Expired, 77, checks);
            assert_eq!(ledger.told_at(one), Some(77));
            // The end may be told before the insert has returned.
            ledger.told(one + 1, RemovalCause::Removed, 78, checks);
            ledger.returned(one + 1, Returned::Removed);
            ledger.inserted(one + 1);
            ledger.inserted(one + 2);
            ledger.returned(one + 2, Returned::Replaced);
            ledger.told(one + 2, RemovalCause::Replaced, 79, checks);
        });
        let should = Ends { inserted: 3, expired: 1, removed: 1, replaced: 1, closed: 0 };
        assert_eq!((ends, wrong), (should, vec![]));
    }

    #[test]
    fn stories_without_an_end_or_with_two() {
        let (_, wrong) = failing(|ledger, one, _| ledger.inserted(one));
        assert_eq!(wrong, ["one_end_each"]);
        let (_, wrong) =
            failing(|ledger, one, checks| ledger.told(one, RemovalCause::Closed, 1, checks));
        assert_eq!(wrong, ["one_end_each"]);
        let (_, wrong) = failing(|ledger, one, checks| {
            ledger.inserted(one);
            ledger.told(one, RemovalCause::Expired, 1, checks);
            ledger.told(one, RemovalCause::Closed, 1, checks);
        });
        assert_eq!(wrong, ["told_once"]);
    }

    #[test]
    fn what_is_returned_must_be_told_so() {
        for (returned, cause) in [
            (Some(Returned::Removed), RemovalCause::Expired),
            (Some(Returned::Replaced), RemovalCause::Removed),
            (None, RemovalCause::Removed),
            (None, RemovalCause::Replaced),
        ] {
            let (_, wrong) = failing(|ledger, one, checks| {
                ledger.inserted(one);
                ledger.told(one, cause, 1, checks);
                if let Some(by) = returned {
                    ledger.returned(one, by);
                }
            });
            assert_eq!(wrong, ["returns_agree"], "{returned:?} {cause:?}");
        }
    }

    #[test]
    fn values_that_nobody_made() {
        let (_, wrong) = failing(|ledger, _, checks| {
            ledger.told(number(2, 0), RemovalCause::Expired, 1, checks)
        });
        assert_eq!(wrong, ["no_surprises"]);
        assert!(!Ledger::new(1).has_room(number(0, 1 << 39)));
    }
}
