//! Roots of an `AckTracker`: their sequential model, and the calls that are made on them.
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

use super::check::{Span, Then};
use super::due::Due;
use super::record::{heard_of, left_by_poll, Log, Subject, Time, LONGEST};
use crate::options::Histories;
use expiry::{Ack, AckError, AckTracker, BuildError, Done, Lifetime, Outcome, Reason, RootId};
use rand::rngs::SmallRng;
use rand::Rng;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// The owner of a root: unique among the inits and issues of a round, and not 0.
type Owner = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Absent,
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
type Told = Option<(Reason, Owner)>;

/// An answer of `None` is that the root is not live.
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

const FAILED: Reason = Reason::Failed { by: None };

/// How far an init of an early root has come. It has taken the place; then it has taken the signs
/// over, and they were not all (or they were); then the deadline is set, and the init has to end
/// the root.
const TAKEN: u32 = 1;
const OPEN: u32 = 2;
const COMPLETE: u32 = 3;
const CLOSING: u32 = 4;

/// A tracker under load.
pub struct Load<const ISSUED: bool> {
    tracker: AckTracker,
    /// The bits of all issued roots by their owners.
    roots: Vec<AtomicU64>,
    /// The owner of the issued root at each place at which threads meet, or 0.
    places: Vec<AtomicU32>,
}

pub type Chosen = Load<false>;
pub type Issued = Load<true>;

type Next = Option<(State, Then)>;

fn done(state: State) -> Next {
    Some((state, Then::Done))
}

impl State {
    fn owner(self) -> Option<Owner> {
        match self {
            There(root) if root.stage != Early => Some(root.owner),
            _ => None,
        }
    }
}

impl<const ISSUED: bool> Load<ISSUED> {
    /// The first sign of an early root. It waits for as long as a root, the longest timeout.
    fn early(call: &Span, word: u8, failed: bool) -> Option<State> {
        let due = Due::after(call, LONGEST);
        (!ISSUED).then_some(There(Root { stage: Early, word, failed, owner: 0, due }))
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
                    right.then_some((Self::OVER, Then::Done))
                }
                // Another call has ended it, or failed it while its init is under way.
                (There(root), None) if root.stage == Merged && root.failed => done(state),
                (_, None) if !is_mine => done(state),
                _ => None,
            };
        }
        let root = match (state, answer) {
            (There(root), _) => root,
            (Absent, Some(Ack::Held)) => return done(Self::early(call, xor, false)?),
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

    fn fail(state: State, call: &Span, answer: Option<Done>, told: Told) -> Option<State> {
        let root = match (state, answer, told) {
            (There(root), ..) => root,
            (Absent, Some(Done::Held), None) => return Self::early(call, 0, true),
            (Ended, None, None) => return Some(state),
            _ => return None,
        };
        let failed = There(Root { failed: true, ..root });
        match (root.stage, answer, told) {
            (Early, Some(Done::Held), None) => Some(failed),
            (Initing | Merged, None, None) if root.failed => Some(state),
            (Initing | Merged, Some(Done::Now), None) if !root.failed => Some(failed),
            (Live, Some(Done::Now), Some(told)) => {
                (told == (FAILED, root.owner)).then_some(Self::OVER)
            }
            _ => None,
        }
    }

    fn reset(state: State, call: &Span, timeout: u32, answer: Option<Done>) -> Option<State> {
        let root = match (state, answer) {
            (There(root), _) => root,
            (Absent, Some(Done::Held)) => return Self::early(call, 0, false),
            (Ended, None) => return Some(state),
            _ => return None,
        };
        let ticks = match (root.stage, answer) {
            (Early, Some(Done::Held)) => LONGEST,
            (Initing | Merged, None) if root.failed => return Some(state),
            (Initing | Merged | Live, Some(Done::Now)) if !root.failed => timeout,
            _ => return None,
        };
        Some(There(Root { due: root.due.renewed(call, ticks)?, ..root }))
    }
}

/// What a thread knows: the owners that it has named, and an earlier one of each place.
pub struct Knowledge {
    first: Owner,
    next: Owner,
    before: Vec<Owner>,
}

impl<const ISSUED: bool> Subject for Load<ISSUED> {
    type State = State;
    type Did = Did;
    type Error = AckError;
    type Knowledge = Knowledge;
    const CHECK: &'static str = if ISSUED { "roots_linearizable" } else { "acks_linearizable" };
    const INITIAL: State = Absent;
    const OVER: State = if ISSUED { Ended } else { Absent };
    const POLLS_LOOK: bool = ISSUED;

    fn apply(state: State, call: &Span, did: Did, memory: u32) -> Next {
        match (did, state) {
            (Did::Began { xor, owner, timeout, told }, _) => {
                Self::begin(state, call, (xor, owner, timeout, told), memory)
            }
            (Did::Duplicate, _) => state.owner().and(done(state)),
            (Did::Acked { xor, answer, told }, _) => {
                Self::ack(state, call, (xor, answer, told), memory)
            }
            (Did::Failed { answer, told }, _) => done(Self::fail(state, call, answer, told)?),
            (Did::Reset { timeout, answer }, _) => done(Self::reset(state, call, timeout, answer)?),
            (Did::TimedOut { owner, due }, There(root))
                if root.stage == Live && owner == root.owner =>
            {
                root.due.at(due)?.has_come(call).and(done(Self::OVER))
            }
            _ => None,
        }
    }

    fn due(state: &mut State) -> Option<&mut Due> {
        match state {
            There(root) if matches!(root.stage, Early | Live) => Some(&mut root.due),
            _ => None,
        }
    }

    /// It may also end what is early and due, and go on.
    fn polled(state: State, poll: &Span, since: u64, next: &mut Vec<(State, Then)>) {
        if matches!(state, There(Root { stage: Early, due, .. }) if due.has_come(poll).is_some()) {
            next.push((Absent, Then::Goes(CLOSING)));
        }
        next.extend(left_by_poll::<Self>(state, poll, since));
    }

    fn is_look(did: &Did) -> bool {
        matches!(
            did,
            Did::Duplicate | Did::Failed { answer: None, .. } | Did::Reset { answer: None, .. }
        )
    }

    fn new(time: &Time, capacity: Option<usize>, options: &Histories) -> Result<Self, BuildError> {
        let now = time.clone();
        let mut builder = AckTracker::builder()
            .interval(time.interval())
            .timeout(time.ticks(LONGEST))
            .clock(time.clock.clone())
            .on_outcome(move |outcome: Outcome| {
                let owner = outcome.owner as Owner;
                let key = match outcome.root {
                    RootId::Chosen(key) => key,
                    RootId::Issued(_) => outcome.owner,
                };
                let did = match outcome.reason {
                    Reason::TimedOut { due, .. } => Did::TimedOut { owner, due: now.to_ticks(due) },
                    reason => Did::ToldOf(reason, owner),
                };
                now.hear(key, did);
            });
        if let Some(capacity) = capacity {
            builder = builder.capacity(capacity);
        }
        let issued = if ISSUED { u32::from(options.threads) * options.operations + 1 } else { 0 };
        Ok(Load {
            tracker: builder.build_manual()?,
            roots: (0..issued).map(|_| AtomicU64::new(0)).collect(),
            places: (0..options.keys).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    fn knowledge(&self, thread: u8, options: &Histories) -> Knowledge {
        let first = u32::from(thread) * options.operations + 1;
        Knowledge { first, next: first, before: vec![0; options.keys as usize] }
    }

    /// A key is a place, where roots are issued.
    fn operate(
        &self,
        key: u32,
        known: &mut Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    ) {
        let timeout = luck.random_range(1..=LONGEST);
        let chance = luck.random_range(0..100);
        if !ISSUED {
            if chance < 30 {
                self.start(key, known, (luck.random_range(1..=3), timeout), log);
            } else {
                self.act(RootId::Chosen(key.into()), key, (timeout, chance), luck, log);
            }
            return;
        }
        let (place, before) = (&self.places[key as usize], known.before[key as usize]);
        let owner = match place.load(Acquire) {
            _ if luck.random_bool(0.03) => before,
            // The root is so old that its slot may have another occupant.
            _ if luck.random_bool(0.03) && known.next > known.first => {
                luck.random_range(known.first..known.next)
            }
            owner => owner,
        };
        if owner == 0 || luck.random_bool(0.25) {
            known.before[key as usize] = place.load(Relaxed);
            let owner = known.next;
            if self.start(owner, known, (7, timeout), log) {
                place.store(owner, Release);
            }
        } else {
            let root = expiry::Root::from_bits(self.roots[owner as usize].load(Acquire));
            self.act(RootId::Issued(root), owner, (timeout, chance), luck, log);
        }
    }

    fn poll(&self) {
        while self.tracker.poll(usize::MAX).more {}
    }

    fn left(&self) -> u64 {
        self.tracker.len() as u64
    }

    fn ended(&self) -> u64 {
        let total = self.tracker.metrics().total;
        total.acked + total.failed + total.expired
    }

    fn put(&self, number: u64) -> bool {
        if ISSUED {
            self.tracker.issue(1, 0).is_ok()
        } else {
            self.tracker.init(number, 1, 0).is_ok()
        }
    }
}

impl<const ISSUED: bool> Load<ISSUED> {
    /// Issues a root, or inits one. False if it was refused.
    fn start(
        &self,
        key: u32,
        known: &mut Knowledge,
        (xor, timeout): (u8, u32),
        log: &mut Log<'_, Self>,
    ) -> bool {
        let owner = known.next;
        known.next += 1;
        let after = Lifetime::After(log.time.ticks(timeout));
        let call = || {
            let (edges, of) = (u64::from(xor), u64::from(owner));
            let begun = if ISSUED {
                let root = self.tracker.issue_for(edges, of, after);
                root.map(|root| self.roots[owner as usize].store(root.to_bits(), Release))
            } else {
                self.tracker.init_for(key.into(), edges, of, after)
            };
            match begun {
                Ok(()) => Ok(Did::Began { xor, owner, timeout, told: told(key) }),
                Err(AckError::Duplicate) => Ok(Did::Duplicate),
                Err(error) => Err(error),
            }
        };
        log.call(key, call).is_some()
    }

    fn act(
        &self,
        root: RootId,
        key: u32,
        (timeout, chance): (u32, u32),
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    ) {
        let after = Lifetime::After(log.time.ticks(timeout));
        // Acks of issued roots take mostly single edges, and now and then all at once.
        let xor = match luck.random_range(0..40) {
            _ if !ISSUED => luck.random_range(1..=3),
            0 => 7,
            edge => 1 << (edge % 3),
        };
        log.call(key, || {
            Ok(match chance {
                0..=79 => {
                    let answer = live(self.tracker.ack(root, u64::from(xor)))?;
                    Did::Acked { xor, answer, told: told(key) }
                }
                80..=87 => {
                    let answer = live(self.tracker.fail(root))?;
                    Did::Failed { answer, told: told(key) }
                }
                _ => {
                    let answer = live(self.tracker.reset_timeout_for(root, after))?;
                    Did::Reset { timeout, answer }
                }
            })
        });
    }
}

fn told(key: u32) -> Told {
    heard_of(key.into(), |did| match did {
        Did::ToldOf(reason, owner) => Some((reason, owner)),
        _ => None,
    })
}

/// The result of the call, or `None` if the root was not live.
fn live<T>(done: Result<T, AckError>) -> Result<Option<T>, AckError> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(AckError::NotLive) => Ok(None),
        Err(error) => Err(error),
    }
}
