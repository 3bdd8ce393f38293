//! The queue: its sequential model, and the calls that are made on it.
//!
//! A key is there until a poll gives it out, be it that its time is up, and can be renewed until then. Most answers say when it
//! expires.

use super::check::{Call, Model, Then};
use super::due::Due;
use super::record::{Heard, Kind, Log, Subject, Time, LONGEST};
use crate::sessions::Key;
use expiry::{ExpiryQueue, Handle, StoreError, Updated};
use rand::rngs::SmallRng;
use rand::Rng;
use std::marker::PhantomData;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Absent,
    /// Since it was put in it has this handle.
    Live {
        handle: Handle,
        due: Due,
    },
}

/// Times are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// `update` put it in.
    Inserted { handle: Handle, timeout: u32, expiry: u32 },
    /// `update` renewed it; it had that time already if none is told.
    Renewed { timeout: u32, expiry: Option<u32> },
    /// `touch`, by a handle if there is one.
    Touched { by: Option<Handle>, timeout: u32, done: bool },
    /// When it would have expired.
    Removed(Option<u32>),
    /// When it expires, and its handle.
    Got(Option<(u32, Handle)>),
    /// A poll gave it out, and said when it was due.
    Expired { expiry: u32 },
    /// A poll has gone by. See [`Due::is_left`].
    Polled { since: u64 },
    /// It may not be there.
    Over,
}

pub struct Queue;

impl State {
    fn step(self, call: &Call<Did>) -> Option<Self> {
        let due_at = |expiry: u32, timeout| Due::after(call, timeout).at(expiry);
        match (call.did, self) {
            (Did::Inserted { handle, timeout, expiry }, State::Absent) => {
                Some(State::Live { handle, due: due_at(expiry, timeout)? })
            }
            (Did::Renewed { timeout, expiry }, State::Live { handle, due }) => {
                let due = match expiry {
                    Some(expiry) => due.renewed(call, timeout)?.at(expiry)?,
                    None => due.unchanged(call, timeout)?,
                };
                Some(State::Live { handle, due })
            }
            (Did::Touched { by, timeout, done: true }, State::Live { handle, due })
                if by.is_none() || by == Some(handle) =>
            {
                Some(State::Live { handle, due: due.renewed(call, timeout)? })
            }
            (Did::Touched { by, done: false, .. }, state) => match state {
                State::Live { handle, .. } if by.is_none() || by == Some(handle) => None,
                other => Some(other),
            },
            (Did::Removed(Some(expiry)), State::Live { due, .. }) => {
                due.at(expiry).map(|_| State::Absent)
            }
            (Did::Got(Some((expiry, told))), State::Live { handle, due }) if told == handle => {
                let due = due.at(expiry)?;
                Some(State::Live { handle, due })
            }
            (Did::Removed(None) | Did::Got(None) | Did::Over, State::Absent) => Some(self),
            (Did::Expired { expiry }, State::Live { due, .. }) => {
                due.at(expiry)?.has_come(call).map(|_| State::Absent)
            }
            (Did::Polled { .. }, State::Absent) => Some(self),
            (Did::Polled { since }, State::Live { handle, due }) => {
                Some(State::Live { handle, due: due.is_left(call, since)? })
            }
            _ => None,
        }
    }
}

impl Model for Queue {
    type State = State;
    type Did = Did;

    fn step(state: &State, call: &Call<Did>, _: u32, next: &mut Vec<(State, Then)>) {
        next.extend(state.step(call).map(|state| (state, Then::Done)));
    }

    fn only_looks(did: &Did) -> bool {
        matches!(
            did,
            Did::Got(_)
                | Did::Touched { done: false, .. }
                | Did::Removed(None)
                | Did::Polled { .. }
        )
    }
}

/// A queue under load.
pub struct Load<K: Key> {
    queue: ExpiryQueue<K>,
    time: Time,
    _keys: PhantomData<K>,
}

impl<K: Key> Subject for Load<K> {
    type Model = Queue;
    /// The handles that a thread has of each key: the one that it saw last, and an old one.
    type Knowledge = Vec<[Option<Handle>; 2]>;
    const CHECK: &'static str = "queue_linearizable";
    const INITIAL: State = State::Absent;

    fn knowledge(&self, _: u8, keys: u32) -> Self::Knowledge {
        vec![[None; 2]; keys as usize]
    }

    fn operate(
        &self,
        key: u32,
        known: &mut Self::Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Did>,
    ) {
        let (queue, name) = (&self.queue, K::of(u64::from(key)));
        let timeout = luck.random_range(1..=LONGEST);
        let time = log.time.ticks(timeout);
        let ticks = |time| self.time.to_ticks(time);
        let [last, old] = known[key as usize];
        // The slot of an old one may have had many others.
        let by = if luck.random_bool(0.6) { last } else { old };
        let by = by.filter(|_| luck.random_bool(0.5));
        let did = match luck.random_range(0..100) {
            0..=34 => log.call::<StoreError>(key, || {
                queue.update(name, time).map(|updated| match updated {
                    Updated::Inserted { expiry, handle } => {
                        Did::Inserted { handle, timeout, expiry: ticks(expiry) }
                    }
                    Updated::Renewed { expiry } => {
                        Did::Renewed { timeout, expiry: Some(ticks(expiry)) }
                    }
                    Updated::Unchanged => Did::Renewed { timeout, expiry: None },
                })
            }),
            35..=69 => log.call::<StoreError>(key, || {
                let done = match by {
                    Some(handle) => queue.touch_by(handle, time),
                    None => queue.touch(&name, time),
                };
                done.map(|done| Did::Touched { by, timeout, done })
            }),
            70..=84 => log.call::<StoreError>(key, || {
                let removed = queue.remove(&name).map(ticks);
                Ok(Did::Removed(removed))
            }),
            _ => log.call::<StoreError>(key, || {
                let got = queue.get(&name);
                let got = got.map(|(expiry, handle)| (ticks(expiry), handle));
                Ok(Did::Got(got))
            }),
        };
        if let Some(Did::Inserted { handle, .. } | Did::Got(Some((_, handle)))) = did {
            let old = old.filter(|_| luck.random_bool(0.99)).or(last);
            known[key as usize] = [Some(handle), old];
        }
    }

    fn poll(&self) {
        for expired in self.queue.poll() {
            let due = self.time.to_ticks(expired.expiry());
            let number = K::number(&expired);
            self.time.hear(number, 0, Kind::Expired, Some(due));
        }
    }

    fn polled(since: u64) -> Did {
        Did::Polled { since }
    }

    fn told(heard: &Heard) -> Did {
        Did::Expired { expiry: heard.due.unwrap_or(0) }
    }

    fn over() -> Did {
        Did::Over
    }

    fn left(&self) -> u64 {
        self.queue.len() as u64
    }

    fn ended(&self) -> u64 {
        self.queue.metrics().total.expired
    }

    fn put(&self, number: u64) -> bool {
        let done = self.queue.update(K::of(number), self.time.ticks(1));
        done.is_ok()
    }
}

impl<K: Key> Load<K> {
    /// # Errors
    ///
    /// If the queue cannot be built.
    pub fn new(time: &Time, capacity: Option<usize>) -> Result<Self, expiry::BuildError> {
        let mut builder = ExpiryQueue::<K>::builder().interval(time.interval()).clock(time.clock());
        if let Some(capacity) = capacity {
            builder = builder.capacity(capacity);
        }
        Ok(Load { queue: builder.build_manual()?, time: time.clone(), _keys: PhantomData })
    }
}
