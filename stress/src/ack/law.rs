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
