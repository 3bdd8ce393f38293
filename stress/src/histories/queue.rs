//! The queue: its sequential model, and the calls that are made on it.
//!
//! A key is there until a poll returns it, even if its time is up, and can be renewed until then.
//! Most answers say when it expires.

use super::record::{set, Log, Subject, Time, LONGEST};
use crate::keys::Key;
use crate::options::Histories;
use expiry::{BuildError, ExpiryQueue, Handle, LifetimeError, StoreError, Updated};
use model::due::Due;
use model::linear::{Span, Then};
use rand::rngs::SmallRng;
use rand::Rng;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Absent,
    /// It has had this handle since it was put in.
    Live {
        handle: Handle,
        due: Due,
    },
}

use State::{Absent, Live};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// `update` put it in.
    Inserted { handle: Handle, timeout: u32, expiry: u32 },
    /// `update` renewed it; with no expiry in the answer, it had that expiry already.
    Renewed { timeout: u32, expiry: Option<u32> },
    /// `touch`, by a handle if there is one.
    Touched { by: Option<Handle>, timeout: u32, done: bool },
    /// When it would have expired.
    Removed(Option<u32>),
    /// When it expires, and its handle.
    Got(Option<(u32, Handle)>),
    /// `update` with a timeout of zero, and whether it was refused.
    Refused(bool),
    /// A poll returned it, and said when it was due.
    Expired { expiry: u32 },
}

impl State {
    fn step(self, call: &Span, did: Did) -> Option<Self> {
        if let Did::Refused(is_refused) = did {
            return is_refused.then_some(self);
        }
        let (handle, due) = match self {
            Live { handle, due } => (handle, due),
            Absent => {
                return match did {
                    Did::Inserted { handle, timeout, expiry } => {
                        Some(Live { handle, due: Due::after(call, timeout).at(expiry)? })
                    }
                    Did::Removed(None) | Did::Got(None) | Did::Touched { done: false, .. } => {
                        Some(self)
                    }
                    _ => None,
                };
            }
        };
        match did {
            Did::Renewed { timeout, expiry: Some(expiry) } => {
                Some(Live { handle, due: due.renewed(call, timeout)?.at(expiry)? })
            }
            // This call has written nothing: see `Due::touched`.
            Did::Renewed { timeout, expiry: None } => {
                Some(Live { handle, due: due.left(call, timeout)? })
            }
            Did::Touched { by, timeout, done } => {
                let is_its = by.is_none_or(|by| by == handle);
                match done {
                    true if is_its => Some(Live { handle, due: due.touched(call, timeout)? }),
                    false if !is_its => Some(self),
                    _ => None,
                }
            }
            Did::Removed(Some(expiry)) => due.at(expiry).map(|_| Absent),
            Did::Got(Some((expiry, told))) if told == handle => {
                Some(Live { handle, due: due.at(expiry)? })
            }
            Did::Expired { expiry } => due.at(expiry)?.has_come(call).map(|_| Absent),
            _ => None,
        }
    }
}

/// A queue under load.
pub struct Load<K: Key> {
    queue: ExpiryQueue<K>,
    time: Time,
}

impl<K: Key> Subject for Load<K> {
    type State = State;
    type Did = Did;
    type Error = StoreError;
    /// The handles that a thread has of each key: the one that it saw last, and an old one.
    type Knowledge = Vec<[Option<Handle>; 2]>;
    const CHECK: &'static str = "queue_linearizable";
    const INITIAL: State = Absent;
    const OVER: State = Absent;

    fn apply(state: State, call: &Span, did: Did, _: u32) -> Option<(State, Then)> {
        Some((state.step(call, did)?, Then::Done))
    }

    fn due(state: &mut State) -> Option<&mut Due> {
        match state {
            Live { due, .. } => Some(due),
            Absent => None,
        }
    }

    fn is_look(did: &Did) -> bool {
        matches!(
            did,
            Did::Got(_) | Did::Touched { done: false, .. } | Did::Removed(None) | Did::Refused(_)
        )
    }

    fn new(time: &Time, capacity: Option<usize>, _: &Histories) -> Result<Self, BuildError> {
        let builder = set!(ExpiryQueue::<K>::builder(), time, capacity);
        Ok(Load { queue: builder.build_manual()?, time: time.clone() })
    }

    fn knowledge(&self, _: u8, options: &Histories) -> Self::Knowledge {
        vec![[None; 2]; options.keys as usize]
    }

    fn operate(
        &self,
        key: u32,
        known: &mut Self::Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    ) {
        let (queue, name) = (&self.queue, K::of(u64::from(key)));
        let timeout = luck.random_range(1..=LONGEST);
        let after = log.time.ticks(timeout);
        let ticks = |time| self.time.to_ticks(time);
        let [last, old] = known[key as usize];
        // An old handle's slot may have had many other occupants.
        let by = if luck.random_bool(0.6) { last } else { old };
        let by = by.filter(|_| luck.random_bool(0.5));
        let chance = luck.random_range(0..100);
        let did = log.call(key, || {
            Ok(match (chance, by) {
                (0..=1, _) => {
                    let zero = Err(StoreError::Lifetime(LifetimeError::Zero));
                    Did::Refused(queue.update(name, Duration::ZERO) == zero)
                }
                (2..=34, _) => match queue.update(name, after)? {
                    Updated::Inserted { expiry, handle } => {
                        Did::Inserted { handle, timeout, expiry: ticks(expiry) }
                    }
                    Updated::Renewed { expiry } => {
                        Did::Renewed { timeout, expiry: Some(ticks(expiry)) }
                    }
                    Updated::Unchanged => Did::Renewed { timeout, expiry: None },
                },
                (35..=69, Some(handle)) => {
                    Did::Touched { by, timeout, done: queue.touch_by(handle, after)? }
                }
                (35..=69, None) => Did::Touched { by, timeout, done: queue.touch(&name, after)? },
                (70..=84, _) => Did::Removed(queue.remove(&name).map(ticks)),
                _ => Did::Got(queue.get(&name).map(|(expiry, handle)| (ticks(expiry), handle))),
            })
        });
        if let Some(Did::Inserted { handle, .. } | Did::Got(Some((_, handle)))) = did {
            let old = old.filter(|_| luck.random_bool(0.99)).or(last);
            known[key as usize] = [Some(handle), old];
        }
    }

    fn poll(&self) {
        for expired in self.queue.poll() {
            let expiry = self.time.to_ticks(expired.expiry());
            self.time.hear(K::number(&expired), Did::Expired { expiry });
        }
    }

    fn left(&self) -> u64 {
        self.queue.len() as u64
    }

    fn ended(&self) -> u64 {
        self.queue.metrics().total.expired
    }

    fn put(&self, number: u64) -> bool {
        self.queue.update(K::of(number), self.time.ticks(1)).is_ok()
    }
}
