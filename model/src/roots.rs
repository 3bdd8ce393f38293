//! A root of an `AckTracker`: its sequential model, by intervals.
//!
//! A root that callers choose is absent, or early, or in flight. An early root has *signs*: acks or
//! a fail that came before the init. An init of an early root takes the signs over in two steps.
//! Between them other calls see that the init has come, but acks cannot complete the root yet. A
//! renewal then moves the deadline that the init has set. Early signs expire unreported: a poll may
//! end them, and must if it can.
//!
//! A root that the tracker issues has no early signs. Each is an object by itself, from its issue
//! on; calls that come after its end must be refused, whatever has its slot by then.
//!
//! An ack that makes the edges cancel out is two steps: that, and the end, unless another call ends
//! the root in between. So is an init that takes over such signs.

use crate::due::{self, Due};
use crate::linear::{Span, Then};
use expiry::{Ack, AckError, Done, Reason};

/// How roots come.
#[derive(Debug, Clone, Copy)]
pub struct Roots {
    /// The tracker issues them, or callers choose them.
    pub issued: bool,
    /// How long an early root waits for its init, in ticks.
    pub early: u32,
}

/// The owner of a root: unique among the inits and issues of a round, and not 0.
pub type Owner = u32;

/// What a root may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There is no such root, nor a sign of one.
    Absent,
    /// There is one, or a sign of one.
    There(Root),
    /// An issued root has ended. A chosen one is absent then.
    Ended,
}

/// The state of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Root {
    stage: Stage,
    /// XOR of what has come.
    word: u8,
    /// A fail has come, which the init reports. Never of a root in flight.
    failed: bool,
    /// The owner that the init has named; 0 before it.
    owner: Owner,
    due: Due,
}

/// How far a root has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stage {
    /// Acks have come before the init.
    Early,
    /// The init has come, and has yet to take over what was early.
    Initing,
    /// The init has taken the signs over, and has yet to publish that the root is in flight.
    Merged,
    /// The root is in flight.
    Live,
}

use Stage::{Early, Initing, Live, Merged};
use State::{Absent, Ended, There};

/// An end that the calling thread delivered to the handler during the call, and its owner.
pub type Told = Option<(Reason, Owner)>;

/// A call and its answer. An answer of `None` is that the root is not live.
#[allow(missing_docs)] // The fields are what the caller gave and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// `init` or `issue`.
    Began {
        xor: u8,
        owner: Owner,
        timeout: u32,
        told: Told,
    },
    /// An init of what was in flight.
    Duplicate,
    Acked {
        xor: u8,
        answer: Option<Ack>,
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
    /// The handler received a timeout, with the tick when it was due.
    TimedOut {
        owner: Owner,
        due: u32,
    },
    /// The handler received an outcome that no call accounts for.
    ToldOf(Reason, Owner),
}

impl Did {
    /// Whether it changes nothing. See [`Model::only_looks`](crate::linear::Model::only_looks).
    pub fn is_look(&self) -> bool {
        matches!(
            self,
            Did::Duplicate | Did::Failed { answer: None, .. } | Did::Reset { answer: None, .. }
        )
    }
}

/// The result of the call, or `None` if the root was not live.
///
/// # Errors
///
/// Any other error of the call.
pub fn live<T>(done: Result<T, AckError>) -> Result<Option<T>, AckError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(AckError::NotLive) => Ok(None),
        Err(error) => Err(error),
    }
}

const FAILED: Reason = Reason::Failed { by: None };

/// How far an init of an early root has come. It has taken the place; then it has taken the signs
/// over, and they were not all (or they were); then the deadline is set, and the init has to end
/// the root.
const TAKEN: u32 = 1;
const OPEN: u32 = 2;
const COMPLETE: u32 = 3;
const CLOSING: u32 = 4;

/// The result of a step, if it can be made.
pub type Next = Option<(State, Then)>;

fn done(state: State) -> Next {
    Some((state, Then::Done))
}

impl State {
    /// The deadline after which no poll may leave it, if it has one.
    pub fn due(&mut self) -> Option<&mut Due> {
        match self {
            There(root) if matches!(root.stage, Early | Live) => Some(&mut root.due),
            _ => None,
        }
    }

    fn owner(self) -> Option<Owner> {
        match self {
            There(root) if root.stage != Early => Some(root.owner),
            _ => None,
        }
    }
}

impl Roots {
    /// The state after a root's end.
    pub fn over(self) -> State {
        if self.issued {
            Ended
        } else {
            Absent
        }
    }

    /// The result of the next step of a call. See [`Model::step`](crate::linear::Model::step).
    pub fn apply(self, state: State, call: &Span, did: Did, memory: u32) -> Next {
        match (did, state) {
            (Did::Began { xor, owner, timeout, told }, _) => {
                Self::begin(state, call, (xor, owner, timeout, told), memory)
            }
            (Did::Duplicate, _) => state.owner().and(done(state)),
            (Did::Acked { xor, answer, told }, _) => {
                self.ack(state, call, (xor, answer, told), memory)
            }
            (Did::Failed { answer, told }, _) => done(self.fail(state, call, answer, told)?),
            (Did::Reset { timeout, answer }, _) => done(self.reset(state, call, timeout, answer)?),
            (Did::TimedOut { owner, due }, There(root))
                if root.stage == Live && owner == root.owner =>
            {
                root.due.at(due)?.has_come(call).and(done(self.over()))
            }
            _ => None,
        }
    }

    /// What may come of a poll. It may also end what is early and due, and go on.
    pub fn polled(self, state: State, poll: &Span, since: u64, next: &mut Vec<(State, Then)>) {
        if matches!(state, There(Root { stage: Early, due, .. }) if due.has_come(poll).is_some()) {
            next.push((Absent, Then::Goes(CLOSING)));
        }
        next.extend(due::left_by_poll(state, State::due, poll, since));
    }
    /// The first sign of an early root. It waits for its init.
    fn early_sign(self, call: &Span, word: u8, failed: bool) -> Option<State> {
        let due = Due::after(call, self.early);
        (!self.issued).then_some(There(Root { stage: Early, word, failed, owner: 0, due }))
    }

    fn begin(state: State, call: &Span, did: (u8, Owner, u32, Told), memory: u32) -> Next {
        let (xor, owner, timeout, told) = did;
        let due = Due::after(call, timeout);
        let is_mine = state.owner() == Some(owner);
        let told_failed = told == Some((FAILED, owner));
        let goes = |root, then| Some((There(root), Then::Goes(then)));
        match (memory, state) {
            (0, Absent) if told.is_none() => {
                done(There(Root { stage: Live, word: xor, failed: false, owner, due }))
            }
            (0, There(root)) if root.stage == Early && root.failed && told_failed => done(Absent),
            (0, There(root)) if root.stage == Early && !root.failed => {
                goes(Root { stage: Initing, owner, due, ..root }, TAKEN)
            }
            (TAKEN, There(root)) if root.stage == Initing => {
                let word = root.word ^ xor;
                let then = if word == 0 { COMPLETE } else { OPEN };
                goes(Root { stage: Merged, word, owner, ..root }, then)
            }
            (OPEN | COMPLETE, There(root))
                if root.stage == Merged && root.failed && told_failed =>
            {
                done(Absent)
            }
            (OPEN | COMPLETE, There(root)) if root.stage == Merged && !root.failed => {
                let live = Root { stage: Live, owner, ..root };
                if memory == OPEN {
                    done(There(live))
                } else {
                    goes(live, CLOSING)
                }
            }
            (CLOSING, There(root))
                if root.stage == Live && is_mine && told == Some((Reason::Acked, owner)) =>
            {
                done(Absent)
            }
            // Another call has ended it.
            (OPEN | COMPLETE | CLOSING, _) if !is_mine && told.is_none() => done(state),
            _ => None,
        }
    }

    /// An ack that has made the edges cancel out remembers whose they were.
    fn ack(
        self,
        state: State,
        call: &Span,
        (xor, answer, told): (u8, Option<Ack>, Told),
        memory: u32,
    ) -> Next {
        if answer != Some(Ack::Completed) && told.is_some() {
            return None;
        }
        if memory != 0 {
            let is_mine = state.owner() == Some(memory);
            return match (state, answer) {
                (There(root), Some(Ack::Completed)) => {
                    let ends = root.stage == Live || root.stage == Merged && !root.failed;
                    let right = ends && is_mine && told == Some((Reason::Acked, root.owner));
                    right.then_some((self.over(), Then::Done))
                }
                // Another call has ended it, or failed it while its init is under way.
                (There(root), None) if root.stage == Merged && root.failed => done(state),
                (_, None) if !is_mine => done(state),
                _ => None,
            };
        }
        let root = match (state, answer) {
            (There(root), _) => root,
            (Absent, Some(Ack::Held)) => return done(self.early_sign(call, xor, false)?),
            (Ended, None) => return done(state),
            _ => return None,
        };
        let word = root.word ^ xor;
        let counted = There(Root { word, ..root });
        match (root.stage, answer) {
            (Early, Some(Ack::Held)) if root.failed => done(state),
            (Early, Some(Ack::Held)) => done(counted),
            (Initing | Merged, None) if root.failed => done(state),
            (Initing | Merged, _) if root.failed => None,
            // A call that has seen it as early may still answer so.
            (Initing, Some(Ack::Held | Ack::Pending)) => done(counted),
            (Merged | Live, Some(Ack::Pending)) if word != 0 => done(counted),
            (Merged | Live, Some(Ack::Completed) | None) if word == 0 => {
                Some((counted, Then::Goes(root.owner)))
            }
            _ => None,
        }
    }

    fn fail(self, state: State, call: &Span, answer: Option<Done>, told: Told) -> Option<State> {
        let root = match (state, answer, told) {
            (There(root), ..) => root,
            (Absent, Some(Done::Held), None) => return self.early_sign(call, 0, true),
            (Ended, None, None) => return Some(state),
            _ => return None,
        };
        let failed = There(Root { failed: true, ..root });
        match (root.stage, answer, told) {
            (Early, Some(Done::Held), None) => Some(failed),
            (Initing | Merged, None, None) if root.failed => Some(state),
            (Initing | Merged, Some(Done::Now), None) if !root.failed => Some(failed),
            (Live, Some(Done::Now), Some(told)) => {
                (told == (FAILED, root.owner)).then_some(self.over())
            }
            _ => None,
        }
    }

    fn reset(self, state: State, call: &Span, timeout: u32, answer: Option<Done>) -> Option<State> {
        let root = match (state, answer) {
            (There(root), _) => root,
            (Absent, Some(Done::Held)) => return self.early_sign(call, 0, false),
            (Ended, None) => return Some(state),
            _ => return None,
        };
        let ticks = match (root.stage, answer) {
            (Early, Some(Done::Held)) => self.early,
            (Initing | Merged, None) if root.failed => return Some(state),
            (Initing | Merged | Live, Some(Done::Now)) if !root.failed => timeout,
            _ => return None,
        };
        Some(There(Root { due: root.due.touched(call, ticks)?, ..root }))
    }
}
