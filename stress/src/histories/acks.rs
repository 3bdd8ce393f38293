//! Roots that callers choose: their sequential model, and the calls that are made on them.
//!
//! A root is absent, or there are early signs of it, or it is in flight; an init that finds early signs takes them over in two steps,
//! between which others see that it has come, but acks cannot complete it yet; a renewal then moves the deadline that the init has set. What makes the
//! edges cancel out and the end are two steps as well. Early signs expire untold: a poll may end them, and must if it can.

use super::check::{Call, Model, Then};
use super::due::Due;
use super::record::{heard_of, Heard, Kind, Log, Subject, Time, LONGEST};
use super::roots::{acked, chosen, ended, tracker, Answer};
use expiry::{AckError, AckTracker, Done, Timeout};
use rand::rngs::SmallRng;
use rand::Rng;

/// No two inits of a round have the same.
type Owner = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Absent,
    /// What has come before its init.
    Early {
        word: u8,
        failed: bool,
        due: Due,
    },
    /// Its init has come, and has yet to take over what was early.
    Initing {
        word: u8,
        failed: bool,
        owner: Owner,
        due: Due,
    },
    /// It has, and has yet to say that it is in flight.
    Merged {
        word: u8,
        failed: bool,
        owner: Owner,
        due: Due,
    },
    Live {
        word: u8,
        owner: Owner,
        due: Due,
    },
}

/// An end, and whose.
type Told = Option<(Kind, Owner)>;

/// Timeouts are in ticks. `told` is what the handler was told meanwhile, by this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    Inited {
        xor: u8,
        owner: Owner,
        timeout: u32,
        told: Told,
    },
    /// An init of what was in flight.
    Duplicate,
    Acked {
        xor: u8,
        answer: Answer,
        told: Told,
    },
    Failed {
        answer: Option<Done>,
        told: Told,
    },
    Reset {
        timeout: u32,
        answer: Option<Done>,
    },
    /// The handler was told that it timed out, and when it was due.
    TimedOut {
        owner: Owner,
        due: u32,
    },
    /// A poll has gone by. See [`Due::is_left`].
    Polled {
        since: u64,
    },
    /// Nothing may be there.
    Over,
    /// The handler was told something that no call accounts for.
    ToldOf(Kind, Owner),
}

pub struct Acks;

/// How far an init has come that found early signs: it has taken the place; it has taken them over, and they were not all, or they
/// were; the deadline is set, and it has to end it.
const TAKEN: u32 = 1;
const OPEN: u32 = 2;
const COMPLETE: u32 = 3;
const CLOSING: u32 = 4;

/// What an ack remembers that made the edges cancel out: whose.
fn closing(owner: Owner) -> u32 {
    owner + 1
}

type Next = Vec<(State, Then)>;

impl State {
    fn owner(self) -> Option<Owner> {
        match self {
            State::Absent | State::Early { .. } => None,
            State::Initing { owner, .. }
            | State::Merged { owner, .. }
            | State::Live { owner, .. } => Some(owner),
        }
    }

    fn init(self, call: &Call<Did>, memory: u32, next: &mut Next) {
        let Did::Inited {
            xor,
            owner,
            timeout,
            told,
        } = call.did
        else {
            return;
        };
        let due = Due::after(call, timeout);
        let live = |word, due| State::Live { word, owner, due };
        let is_mine = self.owner() == Some(owner);
        let failed = Some((Kind::Failed, owner));
        match (memory, self) {
            (0, State::Absent) if told.is_none() => next.push((live(xor, due), Then::Done)),
            (0, State::Early { failed: true, .. }) if told == failed => {
                next.push((State::Absent, Then::Done));
            }
            (
                0,
                State::Early {
                    word,
                    failed: false,
                    ..
                },
            ) => {
                let failed = false;
                next.push((
                    State::Initing {
                        word,
                        failed,
                        owner,
                        due,
                    },
                    Then::Goes(TAKEN),
                ));
            }
            (
                TAKEN,
                State::Initing {
                    word, failed, due, ..
                },
            ) => {
                let word = word ^ xor;
                let then = if word == 0 { COMPLETE } else { OPEN };
                next.push((
                    State::Merged {
                        word,
                        failed,
                        owner,
                        due,
                    },
                    Then::Goes(then),
                ));
            }
            (OPEN | COMPLETE, State::Merged { failed: true, .. }) if told == failed => {
                next.push((State::Absent, Then::Done));
            }
            (
                OPEN,
                State::Merged {
                    word,
                    failed: false,
                    due,
                    ..
                },
            ) => {
                next.push((live(word, due), Then::Done));
            }
            (
                COMPLETE,
                State::Merged {
                    word,
                    failed: false,
                    due,
                    ..
                },
            ) => {
                next.push((live(word, due), Then::Goes(CLOSING)));
            }
            (CLOSING, State::Live { .. }) if is_mine && told == Some((Kind::Acked, owner)) => {
                next.push((State::Absent, Then::Done));
            }
            // Somebody else has ended it.
            (OPEN | COMPLETE | CLOSING, _) if !is_mine && told.is_none() => {
                next.push((self, Then::Done));
            }
            _ => {}
        }
    }

    fn ack(self, call: &Call<Did>, memory: u32, next: &mut Next) {
        let Did::Acked { xor, answer, told } = call.did else {
            return;
        };
        if memory != 0 {
            let mine = self.owner().filter(|&owner| closing(owner) == memory);
            match (self, answer) {
                (
                    State::Live { owner, .. }
                    | State::Merged {
                        owner,
                        failed: false,
                        ..
                    },
                    Answer::Completed,
                ) if mine.is_some() && told == Some((Kind::Acked, owner)) => {
                    next.push((State::Absent, Then::Done));
                }
                // Somebody else has ended it, or failed it while its init is under way.
                (State::Merged { failed: true, .. }, Answer::NotLive) => {
                    next.push((self, Then::Done));
                }
                (_, Answer::NotLive) if mine.is_none() => next.push((self, Then::Done)),
                _ => {}
            }
            return;
        }
        let counted = |word: u8, owner| match (answer, word) {
            (Answer::Pending, 1..) => Some(Then::Done),
            (Answer::Completed | Answer::NotLive, 0) => Some(Then::Goes(closing(owner))),
            _ => None,
        };
        match (self, answer) {
            (State::Absent, Answer::Held) => next.push((early(call, xor, false), Then::Done)),
            (State::Early { failed: true, .. }, Answer::Held) => next.push((self, Then::Done)),
            (State::Early { word, due, .. }, Answer::Held) => {
                let (word, failed) = (word ^ xor, false);
                next.push((State::Early { word, failed, due }, Then::Done));
            }
            (
                State::Initing { failed: true, .. } | State::Merged { failed: true, .. },
                Answer::NotLive,
            ) => next.push((self, Then::Done)),
            (State::Initing { failed: true, .. } | State::Merged { failed: true, .. }, _) => {}
            // Who has seen it as early may say so still.
            (
                State::Initing {
                    word,
                    failed,
                    owner,
                    due,
                },
                Answer::Held | Answer::Pending,
            ) => {
                let word = word ^ xor;
                next.push((
                    State::Initing {
                        word,
                        failed,
                        owner,
                        due,
                    },
                    Then::Done,
                ));
            }
            (
                State::Merged {
                    word,
                    failed,
                    owner,
                    due,
                },
                _,
            ) => {
                let word = word ^ xor;
                let to = State::Merged {
                    word,
                    failed,
                    owner,
                    due,
                };
                next.extend(counted(word, owner).map(|then| (to, then)));
            }
            (State::Live { word, owner, due }, _) => {
                let word = word ^ xor;
                let to = State::Live { word, owner, due };
                next.extend(counted(word, owner).map(|then| (to, then)));
            }
            _ => {}
        }
    }

    fn fail(self, call: &Call<Did>) -> Option<Self> {
        let Did::Failed { answer, told } = call.did else {
            return None;
        };
        match (self, answer, told) {
            (State::Absent, Some(Done::Held), None) => Some(early(call, 0, true)),
            (State::Early { word, due, .. }, Some(Done::Held), None) => Some(State::Early {
                word,
                failed: true,
                due,
            }),
            (
                State::Initing { failed: true, .. } | State::Merged { failed: true, .. },
                None,
                None,
            ) => Some(self),
            (
                State::Initing {
                    word,
                    failed: false,
                    owner,
                    due,
                },
                Some(Done::Now),
                None,
            ) => {
                let failed = true;
                Some(State::Initing {
                    word,
                    failed,
                    owner,
                    due,
                })
            }
            (
                State::Merged {
                    word,
                    failed: false,
                    owner,
                    due,
                },
                Some(Done::Now),
                None,
            ) => {
                let failed = true;
                Some(State::Merged {
                    word,
                    failed,
                    owner,
                    due,
                })
            }
            (State::Live { owner, .. }, Some(Done::Now), Some(told)) => {
                (told == (Kind::Failed, owner)).then_some(State::Absent)
            }
            _ => None,
        }
    }

    fn reset(self, call: &Call<Did>, timeout: u32, answer: Option<Done>) -> Option<Self> {
        match (self, answer) {
            (State::Absent, Some(Done::Held)) => Some(early(call, 0, false)),
            (State::Early { word, failed, due }, Some(Done::Held)) => Some(State::Early {
                word,
                failed,
                due: due.renewed(call, LONGEST)?,
            }),
            (State::Live { word, owner, due }, Some(Done::Now)) => Some(State::Live {
                word,
                owner,
                due: due.renewed(call, timeout)?,
            }),
            (State::Initing { failed: true, .. } | State::Merged { failed: true, .. }, None) => {
                Some(self)
            }
            (
                State::Initing {
                    word,
                    failed: false,
                    owner,
                    due,
                },
                Some(Done::Now),
            ) => Some(State::Initing {
                word,
                failed: false,
                owner,
                due: due.renewed(call, timeout)?,
            }),
            (
                State::Merged {
                    word,
                    failed: false,
                    owner,
                    due,
                },
                Some(Done::Now),
            ) => Some(State::Merged {
                word,
                failed: false,
                owner,
                due: due.renewed(call, timeout)?,
            }),
            _ => None,
        }
    }

    /// That a poll has gone by: it may end what is early and due, and begin again.
    fn polled(self, call: &Call<Did>, since: u64, next: &mut Next) {
        match self {
            State::Early { word, failed, due } => {
                if due.has_come(call).is_some() {
                    next.push((State::Absent, Then::Goes(CLOSING)));
                }
                let left = due.is_left(call, since);
                next.extend(left.map(|due| (State::Early { word, failed, due }, Then::Done)));
            }
            State::Live { word, owner, due } => {
                let left = due.is_left(call, since);
                next.extend(left.map(|due| (State::Live { word, owner, due }, Then::Done)));
            }
            other => next.push((other, Then::Done)),
        }
    }
}

/// The first sign of a root. Early signs wait for as long as a root, the longest timeout.
fn early(call: &Call<Did>, word: u8, failed: bool) -> State {
    State::Early {
        word,
        failed,
        due: Due::after(call, LONGEST),
    }
}

impl Model for Acks {
    type State = State;
    type Did = Did;

    fn step(state: &State, call: &Call<Did>, memory: u32, next: &mut Next) {
        let done = |state| (state, Then::Done);
        match (call.did, *state) {
            (Did::Inited { .. }, state) => state.init(call, memory, next),
            (Did::Acked { .. }, state) => state.ack(call, memory, next),
            (Did::Polled { since }, state) => state.polled(call, since, next),
            (Did::Failed { .. }, state) => next.extend(state.fail(call).map(done)),
            (Did::Reset { timeout, answer }, state) => {
                next.extend(state.reset(call, timeout, answer).map(done));
            }
            (Did::Duplicate, state) if state.owner().is_some() => next.push(done(state)),
            (
                Did::TimedOut { owner, due: told },
                State::Live {
                    owner: whose, due, ..
                },
            ) => {
                let right = due.at(told).and_then(|due| due.has_come(call));
                next.extend(
                    right
                        .filter(|_| owner == whose)
                        .map(|_| done(State::Absent)),
                );
            }
            (Did::Over, State::Absent) => next.push(done(State::Absent)),
            _ => {}
        }
    }

    fn only_looks(did: &Did) -> bool {
        matches!(did, Did::Duplicate)
    }
}

/// A tracker under load.
pub struct Load {
    tracker: AckTracker,
}

impl Subject for Load {
    type Model = Acks;
    /// The owner that comes next.
    type Knowledge = Owner;
    const CHECK: &'static str = "acks_linearizable";
    const INITIAL: State = State::Absent;

    fn knowledge(&self, thread: u8, _: u32) -> Owner {
        u32::from(thread + 1) << 24
    }

    fn operate(&self, key: u32, owner: &mut Owner, luck: &mut SmallRng, log: &mut Log<'_, Did>) {
        let (tracker, id) = (&self.tracker, u64::from(key));
        let timeout = luck.random_range(1..=LONGEST);
        let time = Timeout::After(log.time.ticks(timeout));
        let told = || heard_of(id).map(|heard| (heard.kind, heard.token as Owner));
        match luck.random_range(0..100) {
            0..=29 => {
                *owner += 1;
                let (xor, owner) = (luck.random_range(1..=3), *owner);
                log.call::<AckError>(key, || {
                    match tracker.init_with(id, u64::from(xor), u64::from(owner), time) {
                        Ok(()) => Ok(Did::Inited {
                            xor,
                            owner,
                            timeout,
                            told: told(),
                        }),
                        Err(AckError::Duplicate) => Ok(Did::Duplicate),
                        Err(error) => Err(error),
                    }
                });
            }
            30..=79 => {
                let xor = luck.random_range(1..=3);
                log.call::<AckError>(key, || {
                    let answer = acked(tracker.ack(id, u64::from(xor)))?;
                    let told = told();
                    Ok(Did::Acked { xor, answer, told })
                });
            }
            80..=88 => {
                log.call::<AckError>(key, || {
                    let answer = live(tracker.fail(id))?;
                    let told = told();
                    Ok(Did::Failed { answer, told })
                });
            }
            _ => {
                log.call::<AckError>(key, || {
                    let answer = live(tracker.reset_timeout_to(id, time))?;
                    Ok(Did::Reset { timeout, answer })
                });
            }
        }
    }

    fn poll(&self) {
        while self.tracker.poll(usize::MAX).more {}
    }

    fn polled(since: u64) -> Did {
        Did::Polled { since }
    }

    fn told(heard: &Heard) -> Did {
        let owner = heard.token as Owner;
        match heard.due {
            Some(due) => Did::TimedOut { owner, due },
            None => Did::ToldOf(heard.kind, owner),
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

    fn put(&self, number: u64) -> bool {
        self.tracker.init(number, 1, 0).is_ok()
    }
}

impl Load {
    /// # Errors
    ///
    /// If the tracker cannot be built.
    pub fn new(time: &Time, capacity: Option<usize>) -> Result<Self, expiry::BuildError> {
        Ok(Load {
            tracker: tracker(time, capacity, chosen)?,
        })
    }
}

/// What was done; nothing if the root was not live.
fn live(done: Result<Done, AckError>) -> Result<Option<Done>, AckError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(AckError::NotLive) => Ok(None),
        Err(error) => Err(error),
    }
}
