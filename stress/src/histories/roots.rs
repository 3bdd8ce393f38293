//! Roots that the tracker issues: their sequential model, and the calls that are made on them.
//!
//! Each root is an object by itself, from its issue on; calls that come after its end must be refused, whoever has its slot by
//! then. An ack that makes the edges cancel out is two steps: that, and the end, unless somebody else ends the root in
//! between.

use super::check::{Call, Model, Then};
use super::due::Due;
use super::record::{heard_of, Heard, Kind, Log, Subject, Time, LONGEST};
use expiry::{Ack, AckError, AckTracker, Done, Lifetime, Outcome, Reason, Root, RootId};
use rand::rngs::SmallRng;
use rand::Rng;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Unborn,
    /// What is outstanding.
    Live {
        word: u8,
        due: Due,
    },
    Ended,
}

/// What an ack came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Pending,
    Completed,
    NotLive,
    /// Of chosen roots: held for its init.
    Held,
}

/// Timeouts are in ticks. Who ends a root must have heard of that by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    Issued {
        xor: u8,
        timeout: u32,
    },
    Acked {
        xor: u8,
        answer: Answer,
    },
    Failed {
        done: bool,
    },
    Reset {
        timeout: u32,
        done: bool,
    },
    /// The handler was told that it timed out, and when it was due.
    TimedOut {
        due: u32,
    },
    /// A poll has gone by. See [`Due::is_left`].
    Polled {
        since: u64,
    },
    /// It must have ended.
    Over,
    /// The call ended it, and the handler was not told, or told something else.
    Untold,
    /// The handler was told something that this thread has not done.
    ToldOf(Kind),
}

pub struct Roots;

/// The ack that made the edges cancel out has yet to end the root.
const CLOSING: u32 = 1;

impl State {
    fn step(self, call: &Call<Did>, memory: u32) -> Option<(Self, Then)> {
        let done = |state| Some((state, Then::Done));
        match (call.did, self) {
            (Did::Issued { xor, timeout }, State::Unborn) => {
                done(State::Live { word: xor, due: Due::after(call, timeout) })
            }
            (Did::Acked { answer, .. }, state) if memory == CLOSING => match (answer, state) {
                (Answer::Completed, State::Live { .. }) => done(State::Ended),
                (Answer::NotLive, State::Ended) => done(state),
                _ => None,
            },
            (Did::Acked { xor, answer }, State::Live { word, due }) => {
                let word = word ^ xor;
                let then = match (answer, word) {
                    (Answer::Pending, 1..) => Then::Done,
                    (Answer::Completed | Answer::NotLive, 0) => Then::Goes(CLOSING),
                    _ => return None,
                };
                Some((State::Live { word, due }, then))
            }
            (Did::Failed { done: true }, State::Live { .. }) => done(State::Ended),
            (Did::Reset { timeout, done: true }, State::Live { word, due }) => {
                done(State::Live { word, due: due.renewed(call, timeout)? })
            }
            (Did::TimedOut { due: told }, State::Live { due, .. }) => {
                due.at(told)?.has_come(call)?;
                done(State::Ended)
            }
            (Did::Polled { since }, State::Live { word, due }) => {
                done(State::Live { word, due: due.is_left(call, since)? })
            }
            (
                Did::Acked { answer: Answer::NotLive, .. }
                | Did::Failed { done: false }
                | Did::Reset { done: false, .. }
                | Did::Over,
                State::Ended,
            ) => done(self),
            (Did::Polled { .. }, State::Unborn | State::Ended) => done(self),
            _ => None,
        }
    }
}

impl Model for Roots {
    type State = State;
    type Did = Did;

    fn step(state: &State, call: &Call<Did>, memory: u32, next: &mut Vec<(State, Then)>) {
        next.extend(state.step(call, memory));
    }

    fn only_looks(did: &Did) -> bool {
        matches!(
            did,
            Did::Polled { .. } | Did::Failed { done: false } | Did::Reset { done: false, .. }
        )
    }
}

/// A tracker under load.
pub struct Load {
    tracker: AckTracker,
    /// The bits of all roots by their numbers.
    roots: Vec<AtomicU64>,
    /// Which root, plus one, is to be had at each place at which threads meet.
    places: Vec<AtomicU32>,
    /// How many roots a thread may issue.
    share: u32,
}

/// What a thread knows: how many roots it has issued and may issue; and one that each place had before.
pub struct Knowledge {
    first: u32,
    next: u32,
    end: u32,
    before: Vec<u32>,
}

/// The edges of a root.
const EDGES: [u8; 3] = [1, 2, 4];

impl Subject for Load {
    type Model = Roots;
    type Knowledge = Knowledge;
    const CHECK: &'static str = "roots_linearizable";
    const INITIAL: State = State::Unborn;

    fn knowledge(&self, thread: u8, keys: u32) -> Knowledge {
        let first = u32::from(thread) * self.share;
        Knowledge { first, next: first, end: first + self.share, before: vec![0; keys as usize] }
    }

    /// A key is a place here.
    fn operate(
        &self,
        key: u32,
        known: &mut Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Did>,
    ) {
        let (place, before) = (&self.places[key as usize], &mut known.before[key as usize]);
        let timeout = luck.random_range(1..=LONGEST);
        let number = match place.load(Acquire) {
            _ if luck.random_bool(0.03) => *before,
            // So old that its slot may have another tenant.
            _ if luck.random_bool(0.03) && known.next > known.first => {
                luck.random_range(known.first..known.next) + 1
            }
            number => number,
        };
        let Some(number) = number.checked_sub(1).filter(|_| luck.random_bool(0.75)) else {
            if known.next < known.end {
                *before = place.load(Relaxed);
                if self.issue(known.next, timeout, log) {
                    place.store(known.next + 1, Release);
                }
                known.next += 1;
            }
            return;
        };
        let root = Root::from_bits(self.roots[number as usize].load(Acquire));
        self.act(root, number, (timeout, luck.random_range(0..100)), log);
    }

    fn poll(&self) {
        while self.tracker.poll(usize::MAX).more {}
    }

    fn polled(since: u64) -> Did {
        Did::Polled { since }
    }

    fn told(heard: &Heard) -> Did {
        match heard.due {
            Some(due) => Did::TimedOut { due },
            None => Did::ToldOf(heard.kind),
        }
    }

    fn over() -> Did {
        Did::Over
    }

    fn left(&self) -> u64 {
        self.tracker.len() as u64
    }

    fn ended(&self) -> u64 {
        ended(&self.tracker)
    }

    fn put(&self, _number: u64) -> bool {
        self.tracker.issue(1, 0).is_ok()
    }
}

impl Load {
    /// # Errors
    ///
    /// If the tracker cannot be built.
    pub fn new(
        time: &Time,
        capacity: Option<usize>,
        (places, threads, share): (u32, u8, u32),
    ) -> Result<Self, expiry::BuildError> {
        let all = u32::from(threads) * share;
        Ok(Load {
            // The roots of all places have one number each, their owner.
            tracker: tracker(time, capacity, |outcome| outcome.owner)?,
            roots: (0..all).map(|_| AtomicU64::new(0)).collect(),
            places: (0..places).map(|_| AtomicU32::new(0)).collect(),
            share,
        })
    }

    /// Issues the root of this number. False if it was refused.
    fn issue(&self, number: u32, timeout: u32, log: &mut Log<'_, Did>) -> bool {
        let xor = EDGES.iter().fold(0, |all, edge| all ^ edge);
        let after = Lifetime::After(log.time.ticks(timeout));
        log.call::<AckError>(number, || {
            let (edges, owner) = (u64::from(xor), u64::from(number));
            let root = self.tracker.issue_with(edges, owner, after)?;
            self.roots[number as usize].store(root.to_bits(), Release);
            Ok(Did::Issued { xor, timeout })
        })
        .is_some()
    }

    fn act(&self, root: Root, number: u32, (timeout, kind): (u32, u32), log: &mut Log<'_, Did>) {
        let tracker = &self.tracker;
        let told = |kind| heard_of(u64::from(number)).is_some_and(|heard| heard.kind == kind);
        match kind {
            0..=79 => {
                // Mostly single edges, now and then all at once.
                let xor = match EDGES.get(kind as usize / 26) {
                    Some(&edge) => edge,
                    None => 7,
                };
                log.call::<AckError>(number, || {
                    let answer = acked(tracker.ack(root, u64::from(xor)))?;
                    if answer == Answer::Completed && !told(Kind::Acked) {
                        return Ok(Did::Untold);
                    }
                    Ok(Did::Acked { xor, answer })
                });
            }
            80..=87 => {
                log.call::<AckError>(number, || match tracker.fail(root) {
                    Ok(Done::Now) if !told(Kind::Failed) => Ok(Did::Untold),
                    Ok(_) => Ok(Did::Failed { done: true }),
                    Err(AckError::NotLive) => Ok(Did::Failed { done: false }),
                    Err(error) => Err(error),
                });
            }
            _ => {
                let after = log.time.ticks(timeout);
                log.call::<AckError>(number, || {
                    match tracker.reset_timeout_to(root, Lifetime::After(after)) {
                        Ok(_) => Ok(Did::Reset { timeout, done: true }),
                        Err(AckError::NotLive) => Ok(Did::Reset { timeout, done: false }),
                        Err(error) => Err(error),
                    }
                });
            }
        }
    }
}

/// A tracker without a reaper whose handler notes what it is told, under the number that `number` makes of it.
pub fn tracker(
    time: &Time,
    capacity: Option<usize>,
    number: impl Fn(&Outcome) -> u64 + Send + Sync + 'static,
) -> Result<AckTracker, expiry::BuildError> {
    let now = time.clone();
    let mut builder = AckTracker::builder()
        .interval(time.interval())
        .timeout(time.ticks(LONGEST))
        .clock(time.clock())
        .on_outcome(move |outcome: &Outcome| {
            let (kind, due) = match outcome.reason {
                Reason::Acked => (Kind::Acked, None),
                Reason::Failed { .. } => (Kind::Failed, None),
                Reason::TimedOut { due, .. } => (Kind::Expired, Some(now.to_ticks(due))),
                _ => (Kind::Other, None),
            };
            now.hear(number(outcome), outcome.owner, kind, due);
        });
    if let Some(capacity) = capacity {
        builder = builder.capacity(capacity);
    }
    builder.build_manual()
}

/// How many roots have ended, and somebody was told, by the tracker's count.
pub fn ended(tracker: &AckTracker) -> u64 {
    let total = tracker.metrics().total;
    total.acked + total.failed + total.expired
}

/// What an ack came to.
///
/// # Errors
///
/// What it should not have come to.
pub fn acked(ack: Result<Ack, AckError>) -> Result<Answer, AckError> {
    Ok(match ack {
        Ok(Ack::Pending) => Answer::Pending,
        Ok(Ack::Completed) => Answer::Completed,
        Ok(Ack::Held) => Answer::Held,
        Err(AckError::NotLive) => Answer::NotLive,
        Err(error) => return Err(error),
    })
}

/// The number that a chosen root is.
pub fn chosen(outcome: &Outcome) -> u64 {
    match outcome.root {
        RootId::Chosen(key) => key,
        RootId::Issued(_) => u64::MAX,
    }
}
