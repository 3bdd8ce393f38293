//! Each timer's story: which place it has, and how it has ended.
//!
//! A place has one timer at a time, and counts them. Its owner, the thread that schedules, begins a timer, enters that it
//! was cancelled, and begins the next one only when it has entered or found an end. Whoever is told that a timer has fired
//! enters that. Both by the swap of one word, so that of two ends the second finds the first.

use crate::checks::{Check, Checks};
use std::sync::atomic::{AtomicU64, Ordering::*};

/// The check that nothing fires that was cancelled.
pub const CANCELLED_IS_CANCELLED: Check = "cancelled_never_fires";
/// The check that nothing fires twice.
pub const FIRES_ONCE: Check = "fires_once";

/// How a place's timer has ended, in the low bits of its word; its number is above.
const OPEN: u64 = 0;
const CANCELLED: u64 = 1;
const FIRED: u64 = 2;
const HOW: u64 = 3;

/// How many of a place's earlier timers are remembered as cancelled or not.
const REMEMBERED: u64 = 64;

#[derive(Default)]
#[repr(align(32))]
struct Place {
    /// The number of its timer, and how that has ended.
    word: AtomicU64,
    /// The clock when it was told to have fired. Written before that is entered.
    at: AtomicU64,
    /// Bit `n`: whether the timer `n + 1` numbers before the present one was cancelled.
    before: AtomicU64,
}

/// All places.
pub struct Ledger {
    places: Vec<Place>,
}

impl Ledger {
    pub fn new(places: usize) -> Self {
        Ledger {
            places: (0..places).map(|_| Place::default()).collect(),
        }
    }

    /// The next timer of a place, whose last one has ended. Its key.
    pub fn begin(&self, place: usize) -> u64 {
        let at = &self.places[place];
        let word = at.word.load(Relaxed);
        let before = at.before.load(Relaxed) << 1 | u64::from(word & HOW == CANCELLED);
        at.before.store(before, Relaxed);
        let number = (word >> 2) + 1;
        at.word.store(number << 2 | OPEN, Release);
        number << 32 | place as u64
    }

    /// The present timer of a place was cancelled, or is given up.
    pub fn cancelled(&self, place: usize, checks: &Checks) {
        let at = &self.places[place];
        let open = at.word.load(Relaxed) & !HOW;
        let done = at
            .word
            .compare_exchange(open, open | CANCELLED, AcqRel, Acquire);
        checks.expect(CANCELLED_IS_CANCELLED, done.is_ok(), || {
            format!(
                "timer {} of place {place} was cancelled, and has fired",
                open >> 2
            )
        });
    }

    /// A timer was told to have fired.
    pub fn fired(&self, key: u64, now: u64, checks: &Checks) {
        let (number, place) = (key >> 32, key & u64::from(u32::MAX));
        let Some(at) = self.places.get(place as usize) else {
            checks.violated(FIRES_ONCE, || {
                format!("key {key:#x} fired, and nobody has it")
            });
            return;
        };
        let word = at.word.load(Acquire);
        // A number has as many bits here as in the key.
        let present = (word >> 2) & u64::from(u32::MAX);
        if present != number || word & HOW != OPEN {
            let ago = present.wrapping_sub(number) & u64::from(u32::MAX);
            let was_cancelled = match ago {
                0 => word & HOW == CANCELLED,
                _ => ago <= REMEMBERED && at.before.load(Relaxed) >> (ago - 1) & 1 == 1,
            };
            let check = if was_cancelled {
                CANCELLED_IS_CANCELLED
            } else {
                FIRES_ONCE
            };
            checks.violated(check, || {
                format!("timer {number} of place {place} fired, {ago} before the present one, which is {word:#b}")
            });
            return;
        }
        at.at.store(now, Relaxed);
        if at
            .word
            .compare_exchange(word, word | FIRED, AcqRel, Acquire)
            .is_err()
        {
            // Told twice at the same time, or cancelled: what is there now says which.
            self.fired(key, now, checks);
        }
    }

    /// When the present timer of a place was told to have fired, if it was.
    #[inline]
    pub fn fired_at(&self, place: usize) -> Option<u64> {
        let at = &self.places[place];
        (at.word.load(Acquire) & HOW == FIRED).then(|| at.at.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(act: impl FnOnce(&Ledger, &Checks)) -> Vec<Check> {
        let (ledger, checks) = (
            Ledger::new(2),
            Checks::new(&[CANCELLED_IS_CANCELLED, FIRES_ONCE]),
        );
        act(&ledger, &checks);
        checks.failing()
    }

    #[test]
    fn one_end_each() {
        let failing = after(|ledger, checks| {
            for now in 1..200 {
                let key = ledger.begin(1);
                if now % 3 == 0 {
                    ledger.cancelled(1, checks);
                } else {
                    assert_eq!(ledger.fired_at(1), None);
                    ledger.fired(key, now, checks);
                    assert_eq!(ledger.fired_at(1), Some(now));
                }
            }
        });
        assert_eq!(failing, [""; 0]);
    }

    #[test]
    fn a_second_end_is_noticed() {
        let twice = |ledger: &Ledger, checks: &Checks| {
            let key = ledger.begin(0);
            ledger.fired(key, 1, checks);
            ledger.fired(key, 2, checks);
        };
        assert_eq!(after(twice), [FIRES_ONCE]);
        let both = |ledger: &Ledger, checks: &Checks| {
            let key = ledger.begin(0);
            ledger.fired(key, 1, checks);
            ledger.cancelled(0, checks);
        };
        assert_eq!(after(both), [CANCELLED_IS_CANCELLED]);
        let of_nobody = |ledger: &Ledger, checks: &Checks| ledger.fired(1 << 32 | 7, 1, checks);
        assert_eq!(after(of_nobody), [FIRES_ONCE]);
    }

    #[test]
    fn what_fires_long_after_its_end_is_told_from_what_was_cancelled() {
        for (is_cancelled, check) in [(true, CANCELLED_IS_CANCELLED), (false, FIRES_ONCE)] {
            for later in [0, 1, 63] {
                let failing = after(|ledger, checks| {
                    let key = ledger.begin(0);
                    if is_cancelled {
                        ledger.cancelled(0, checks);
                    } else {
                        ledger.fired(key, 1, checks);
                    }
                    for now in 0..later {
                        let key = ledger.begin(0);
                        ledger.fired(key, now, checks);
                    }
                    ledger.begin(0);
                    ledger.fired(key, 9, checks);
                });
                assert_eq!(failing, [check], "{is_cancelled} {later}");
            }
        }
    }
}
