//! Roots that callers choose: their sequential model, and the calls that are made on them.
//!
//! A root is absent, or there are early signs of it, or it is in flight; an init that finds early signs takes them over in two steps,
//! between which others see that it has come, but acks cannot complete it yet; a renewal then moves the deadline that the init has set. What makes the
//! edges cancel out and the end are two steps as well. Early signs expire untold: a poll may end them, and must if it can.

use super::check::{Call, Model, Then};
use super::due::Due;
use super::record::{heard_of, Heard, Kind, Log, Subject, Time, LONGEST};
use super::roots::{acked, chosen, ended, tracker, Answer};
use expiry::{AckError, AckTracker, Done, Lifetime};
use rand::rngs::SmallRng;
use rand::Rng;

/// No two inits of a round have the same.
type Owner = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Absent,
    There(Root),
}

/// What there is of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Root {
    stage: Stage,
    /// XOR of what has come.
    word: u8,
    /// A fail has come, which the init tells. Never of a root in flight.
    failed: bool,
    /// The owner that the init has named; 0 before it.
    owner: Owner,
    due: Due,
}

/// How far a root has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// What there is has come before the init.
    Early,
    /// The init has come, and has yet to take over what was early.
    Initing,
    /// The init has taken that over, and has yet to say that the root is in flight.
    Merged,
    /// The root is in flight.
    Live,
}

use Stage::{Early, Initing, Live, Merged};
use State::{Absent, There};

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
            There(root) if root.stage != Early => Some(root.owner),
            _ => None,
        }
    }

    fn init(self, call: &Call<Did>, memory: u32, next: &mut Next) {
        let Did::Inited { xor, owner, timeout, told } = call.did else {
            return;
        };
        let due = Due::after(call, timeout);
        let is_mine = self.owner() == Some(owner);
        let told_failed = told == Some((Kind::Failed, owner));
        let mut becomes = |state, then| next.push((state, then));
        match (memory, self) {
            (0, Absent) if told.is_none() => {
                let (stage, word, failed) = (Live, xor, false);
                let root = Root { stage, word, failed, owner, due };
                becomes(There(root), Then::Done);
            }
            (0, There(root)) if root.stage == Early && root.failed && told_failed => {
                becomes(Absent, Then::Done);
            }
            (0, There(root)) if root.stage == Early && !root.failed => {
                let stage = Initing;
                let taken = Root { stage, owner, due, ..root };
                becomes(There(taken), Then::Goes(TAKEN));
            }
            (TAKEN, There(root)) if root.stage == Initing => {
                let (stage, word) = (Merged, root.word ^ xor);
                let merged = Root { stage, word, owner, ..root };
                let then = if word == 0 { COMPLETE } else { OPEN };
                becomes(There(merged), Then::Goes(then));
            }
            (OPEN | COMPLETE, There(root))
                if root.stage == Merged && root.failed && told_failed =>
            {
                becomes(Absent, Then::Done);
            }
            (OPEN | COMPLETE, There(root)) if root.stage == Merged && !root.failed => {
                let stage = Live;
                let then = match memory {
                    OPEN => Then::Done,
                    _ => Then::Goes(CLOSING),
                };
                becomes(There(Root { stage, owner, ..root }), then);
            }
            (CLOSING, There(root))
                if root.stage == Live && is_mine && told == Some((Kind::Acked, owner)) =>
            {
                becomes(Absent, Then::Done);
            }
            // Another call has ended it.
            (OPEN | COMPLETE | CLOSING, _) if !is_mine && told.is_none() => {
                becomes(self, Then::Done);
            }
            _ => {}
        }
    }

    fn ack(self, call: &Call<Did>, memory: u32, next: &mut Next) {
        let Did::Acked { xor, answer, told } = call.did else {
            return;
        };
        let mut becomes = |state, then| next.push((state, then));
        if memory != 0 {
            let mine = self.owner().filter(|&owner| closing(owner) == memory);
            match (self, answer) {
                (There(root), Answer::Completed)
                    if (root.stage == Live || root.stage == Merged && !root.failed)
                        && mine.is_some()
                        && told == Some((Kind::Acked, root.owner)) =>
                {
                    becomes(Absent, Then::Done);
                }
                // Another call has ended it, or failed it while its init is under way.
                (There(root), Answer::NotLive) if root.stage == Merged && root.failed => {
                    becomes(self, Then::Done);
                }
                (_, Answer::NotLive) if mine.is_none() => becomes(self, Then::Done),
                _ => {}
            }
            return;
        }
        let root = match (self, answer) {
            (There(root), _) => root,
            (Absent, Answer::Held) => return becomes(early(call, xor, false), Then::Done),
            (Absent, _) => return,
        };
        let word = root.word ^ xor;
        let counted = There(Root { word, ..root });
        match (root.stage, answer) {
            (Early, Answer::Held) if root.failed => becomes(self, Then::Done),
            (Early, Answer::Held) => becomes(counted, Then::Done),
            (Initing | Merged, Answer::NotLive) if root.failed => becomes(self, Then::Done),
            (Initing | Merged, _) if root.failed => {}
            // A call that has seen it as early may say so still.
            (Initing, Answer::Held | Answer::Pending) => becomes(counted, Then::Done),
            (Merged | Live, Answer::Pending) if word != 0 => becomes(counted, Then::Done),
            (Merged | Live, Answer::Completed | Answer::NotLive) if word == 0 => {
                becomes(counted, Then::Goes(closing(root.owner)));
            }
            _ => {}
        }
    }

    fn fail(self, call: &Call<Did>) -> Option<Self> {
        let Did::Failed { answer, told } = call.did else {
            return None;
        };
        let root = match (self, answer, told) {
            (There(root), ..) => root,
            (Absent, Some(Done::Held), None) => return Some(early(call, 0, true)),
            (Absent, ..) => return None,
        };
        let failed = There(Root { failed: true, ..root });
        match (root.stage, answer, told) {
            (Early, Some(Done::Held), None) => Some(failed),
            (Initing | Merged, None, None) if root.failed => Some(self),
            (Initing | Merged, Some(Done::Now), None) if !root.failed => Some(failed),
            (Live, Some(Done::Now), Some(told)) => {
                (told == (Kind::Failed, root.owner)).then_some(Absent)
            }
            _ => None,
        }
    }

    fn reset(self, call: &Call<Did>, timeout: u32, answer: Option<Done>) -> Option<Self> {
        let root = match (self, answer) {
            (There(root), _) => root,
            (Absent, Some(Done::Held)) => return Some(early(call, 0, false)),
            (Absent, _) => return None,
        };
        let ticks = match (root.stage, answer) {
            (Early, Some(Done::Held)) => LONGEST,
            (Initing | Merged, None) if root.failed => return Some(self),
            (Initing | Merged | Live, Some(Done::Now)) if !root.failed => timeout,
            _ => return None,
        };
        let due = root.due.renewed(call, ticks)?;
        Some(There(Root { due, ..root }))
    }

    /// That a poll has gone by: it may end what is early and due, and begin again.
    fn polled(self, call: &Call<Did>, since: u64, next: &mut Next) {
        match self {
            There(root) if matches!(root.stage, Early | Live) => {
                if root.stage == Early && root.due.has_come(call).is_some() {
                    next.push((Absent, Then::Goes(CLOSING)));
                }
                let left = root.due.is_left(call, since);
                next.extend(left.map(|due| (There(Root { due, ..root }), Then::Done)));
            }
            other => next.push((other, Then::Done)),
        }
    }
}

/// The first sign of a root. Early signs wait for as long as a root, the longest timeout.
fn early(call: &Call<Did>, word: u8, failed: bool) -> State {
    There(Root { stage: Early, word, failed, owner: 0, due: Due::after(call, LONGEST) })
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
            (Did::TimedOut { owner, due: told }, There(root)) if root.stage == Live => {
                let right = root.due.at(told).and_then(|due| due.has_come(call));
                next.extend(right.filter(|_| owner == root.owner).map(|_| done(Absent)));
            }
            (Did::Over, Absent) => next.push(done(Absent)),
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
        let time = Lifetime::After(log.time.ticks(timeout));
        let told = || heard_of(id).map(|heard| (heard.kind, heard.token as Owner));
        match luck.random_range(0..100) {
            0..=29 => {
                *owner += 1;
                let (xor, owner) = (luck.random_range(1..=3), *owner);
                log.call::<AckError>(key, || {
                    match tracker.init_with(id, u64::from(xor), u64::from(owner), time) {
                        Ok(()) => Ok(Did::Inited { xor, owner, timeout, told: told() }),
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
        Ok(Load { tracker: tracker(time, capacity, chosen)? })
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
