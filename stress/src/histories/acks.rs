//! Roots of an `AckTracker`, and the calls that are made on them.

use super::record::{heard_of, set, Log, Subject, Time, LONGEST};
use crate::options::Histories;
use expiry::{AckError, AckTracker, BuildError, Lifetime, Outcome, Reason, RootId};
use model::due::Due;
use model::linear::{Span, Then};
pub use model::roots::Did;
use model::roots::{live, Next, Owner, Roots, State, Told};
use rand::rngs::SmallRng;
use rand::Rng;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

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
    const INITIAL: State = State::Absent;
    const OVER: State = if ISSUED { State::Ended } else { State::Absent };
    const POLLS_LOOK: bool = ISSUED;

    fn apply(state: State, call: &Span, did: Did, memory: u32) -> Next {
        Self::ROOTS.apply(state, call, did, memory)
    }

    fn due(state: &mut State) -> Option<&mut Due> {
        state.due()
    }

    fn polled(state: State, poll: &Span, since: u64, next: &mut Vec<(State, Then)>) {
        Self::ROOTS.polled(state, poll, since, next);
    }

    fn is_look(did: &Did) -> bool {
        did.is_look()
    }

    fn new(time: &Time, capacity: Option<usize>, options: &Histories) -> Result<Self, BuildError> {
        let now = time.clone();
        let builder = set!(AckTracker::builder(), time, capacity)
            .timeout(time.ticks(LONGEST))
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
    const ROOTS: Roots = Roots { issued: ISSUED, early: LONGEST };

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
