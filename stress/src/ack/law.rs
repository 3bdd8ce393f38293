//! The law of a root: what may be true at the end of its life, whatever has happened in between.

use std::time::Duration;

/// How a root ended, by the outcomes that the handler received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Acked,
    Failed,
    TimedOut,
    /// Cancelled, or something that this program does not know.
    Other,
}

/// The life of a root: its ledger entry, and the results of the threads that took part.
#[derive(Debug, Clone)]
pub struct Life {
    pub end: End,
    /// The XOR that it began with.
    pub init: u64,
    /// The XOR of all acks that were accepted.
    pub accepted: u64,
    /// How many of these said that they completed it.
    pub completed: u32,
    /// How many fails said that they took effect.
    pub failed: u32,
    /// Whether an ack came before the init, so that the init itself may have completed it.
    pub early: bool,
    /// Whether so much time passed between the two that the ack may have expired before the init.
    pub early_lost: bool,
    /// Time from a clock reading before its init (or the last reset that took effect) to one after
    /// its end; for timeouts.
    pub at_least: Duration,
    /// From a clock reading after its init (or the last reset) to one after its end; for timeouts.
    pub at_most: Duration,
    /// When its timeout was due, and when the tracker saw it.
    pub due_and_seen: (Duration, Duration),
}

#[derive(Debug, Clone, Copy)]
pub struct Promise {
    pub timeout: Duration,
    /// The most that the outcome may come later: the interval, the lag of a cheap clock, and the
    /// reaper's allowance.
    pub late: Duration,
}

/// What is wrong with a life: for each breach a check's name and the reason.
pub fn breaches(life: &Life, promise: &Promise) -> Vec<(&'static str, &'static str)> {
    let mut wrong = Vec::new();
    let mut law = |check, holds: bool, reason| {
        if !holds {
            wrong.push((check, reason));
        }
    };
    let all = life.accepted == life.init;
    let (acked, failed) = (life.end == End::Acked, life.end == End::Failed);
    law("no_surprises", life.end != End::Other, "ended for no reason that it can have");
    law("completions_true", !acked || all, "acked, though not all of its edges were");
    law(
        "completions_true",
        !all || acked || life.early_lost,
        "all of its edges were acked, and it was not",
    );
    law("one_outcome_each", life.completed <= 1, "two acks completed it");
    law("one_outcome_each", life.failed <= 1, "two fails took effect");
    law(
        "one_outcome_each",
        acked || life.completed == 0,
        "an ack completed it, and it ended otherwise",
    );
    law(
        "one_outcome_each",
        failed == (life.failed == 1),
        "a fail took effect and it did not fail, or the reverse",
    );
    let by_init = life.early && life.completed == 0;
    law(
        "one_outcome_each",
        !acked || life.completed == 1 || by_init,
        "acked, but no ack completed it",
    );
    if life.end == End::TimedOut {
        let (due, seen) = life.due_and_seen;
        law("none_early", seen >= due, "seen before it was due");
        law("none_early", life.at_least >= promise.timeout, "timed out before its timeout");
        let latest = promise.timeout.saturating_add(promise.late);
        law("none_late", life.at_most <= latest, "timed out later than promised");
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISE: Promise =
        Promise { timeout: Duration::from_millis(100), late: Duration::from_millis(10) };

    fn life(end: End) -> Life {
        let ms = Duration::from_millis;
        Life {
            end,
            init: 7,
            accepted: if end == End::Acked { 7 } else { 3 },
            completed: u32::from(end == End::Acked),
            failed: u32::from(end == End::Failed),
            early: false,
            early_lost: false,
            at_least: ms(105),
            at_most: ms(105),
            due_and_seen: (ms(100), ms(101)),
        }
    }

    /// The checks that a life fails once it is spoilt.
    fn failing(end: End, spoil: impl FnOnce(&mut Life)) -> Vec<&'static str> {
        let mut life = life(end);
        spoil(&mut life);
        let mut checks: Vec<_> =
            breaches(&life, &PROMISE).into_iter().map(|(check, _)| check).collect();
        checks.dedup();
        checks
    }

    #[test]
    fn lives_that_are_lawful() {
        for end in [End::Acked, End::Failed, End::TimedOut] {
            assert!(failing(end, |_| {}).is_empty(), "{end:?}");
        }
        // An init that found all acks there.
        assert!(failing(End::Acked, |life| (life.completed, life.early) = (0, true)).is_empty());
    }

    #[test]
    fn false_and_missing_completions() {
        assert_eq!(failing(End::Acked, |life| life.accepted = 6), ["completions_true"]);
        assert_eq!(failing(End::TimedOut, |life| life.accepted = 7), ["completions_true"]);
        let lost = |life: &mut Life| (life.accepted, life.early, life.early_lost) = (7, true, true);
        assert!(failing(End::TimedOut, lost).is_empty());
        assert_eq!(failing(End::Failed, |life| life.accepted = 7), ["completions_true"]);
    }

    #[test]
    fn ends_that_are_told_twice_or_not_at_all() {
        let one = ["one_outcome_each"];
        assert_eq!(failing(End::Acked, |life| life.completed = 2), one);
        assert_eq!(failing(End::Acked, |life| life.completed = 0), one);
        assert_eq!(failing(End::Acked, |life| life.failed = 1), one);
        assert_eq!(failing(End::Failed, |life| life.failed = 0), one);
        assert_eq!(failing(End::Failed, |life| life.failed = 2), one);
        assert_eq!(failing(End::Failed, |life| life.completed = 1), one);
        assert_eq!(failing(End::TimedOut, |life| life.completed = 1), one);
        assert_eq!(failing(End::TimedOut, |life| life.failed = 1), one);
        assert_eq!(failing(End::Other, |_| {}), ["no_surprises"]);
    }

    #[test]
    fn timeouts_out_of_time() {
        let ms = Duration::from_millis;
        assert_eq!(failing(End::TimedOut, |life| life.at_least = ms(99)), ["none_early"]);
        assert_eq!(failing(End::TimedOut, |life| life.due_and_seen.1 = ms(99)), ["none_early"]);
        assert_eq!(failing(End::TimedOut, |life| life.at_most = ms(111)), ["none_late"]);
        // The law ignores the times of other ends.
        assert!(failing(End::Acked, |life| life.at_least = ms(0)).is_empty());
    }
}
