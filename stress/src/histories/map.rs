//! The map: its sequential model, and the calls that are made on it.
//!
//! A key has no value, or a living one, or one that was told to be gone because its time is up and whose end has yet to be told.
//! That a value has expired is a step by itself: from the time that the poll, or the call, began whose thread told the listener,
//! to the time that the listener was told.

use super::check::{Call, Model, Then};
use super::due::Due;
use super::record::{Heard, Kind, Log, Subject, Time, LONGEST};
use expiry::expiring_map::Entry;
use expiry::{ExpiringMap, InsertError, RemovalCause, StoreError};
use rand::rngs::SmallRng;
use rand::Rng;

/// A value; no two that are inserted in a round are the same.
type Value = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Absent,
    Live {
        value: Value,
        due: Due,
    },
    /// Somebody was told that it is gone.
    Lapsed {
        value: Value,
        due: Due,
    },
}

/// Timeouts are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// A look that gave the value: `get`, `peek`, `entry`.
    Got(Option<Value>),
    /// `insert`, and what it replaced.
    Inserted {
        value: Value,
        timeout: u32,
        replaced: Option<Value>,
    },
    /// `upsert`, and what it made the new value of.
    Upserted {
        value: Value,
        timeout: u32,
        from: Option<Value>,
    },
    /// An entry that was looked at was put in place of `from`; or refused, because that has changed.
    Exchanged {
        from: Option<Value>,
        value: Value,
        timeout: u32,
        done: bool,
    },
    Removed(Option<Value>),
    /// `remove_if` it is this value, or the removal of an entry that was looked at and had it.
    RemovedThis {
        value: Value,
        done: bool,
    },
    Touched {
        timeout: u32,
        done: bool,
    },
    /// How many ticks are left.
    Remains(Option<u32>),
    /// The listener was told.
    Expired(Value),
    /// A poll has gone by. See [`Due::is_left`].
    Polled {
        since: u64,
    },
    /// Nothing may be there.
    Over,
}

pub struct Map;

impl State {
    /// That the call found no living value, and made sure that there will be none.
    fn is_gone(self, call: &Call<Did>) -> Option<Self> {
        match self {
            State::Live { value, due } => Some(State::Lapsed { value, due: due.has_come(call)? }),
            other => Some(other),
        }
    }

    /// That the call found this value living.
    fn lives(self, call: &Call<Did>, wanted: Value) -> Option<Self> {
        match self {
            State::Live { value, due } if value == wanted => {
                Some(State::Live { value, due: due.is_to_come(call)? })
            }
            _ => None,
        }
    }

    fn step(self, call: &Call<Did>) -> Option<Self> {
        let put = |value, timeout| State::Live { value, due: Due::after(call, timeout) };
        match call.did {
            Did::Got(None) | Did::Remains(None) | Did::Touched { done: false, .. } => {
                self.is_gone(call)
            }
            Did::Got(Some(value)) => self.lives(call, value),
            Did::Remains(Some(left)) => match self {
                State::Live { value, due } => Some(State::Live {
                    value,
                    due: due.is_to_come(call)?.left(call, left).or_else(|| {
                        // Its time came between two readings of the clock.
                        due.is_to_come(call)?.has_come(call).filter(|_| left == 0)
                    })?,
                }),
                _ => None,
            },
            Did::Touched { timeout, done: true } => match self {
                State::Live { value, due } => {
                    Some(State::Live { value, due: due.is_to_come(call)?.renewed(call, timeout)? })
                }
                _ => None,
            },
            Did::Inserted { value, timeout, replaced: from }
            | Did::Upserted { value, timeout, from }
            | Did::Exchanged { from, value, timeout, done: true } => {
                match from {
                    Some(from) => self.lives(call, from).map(drop)?,
                    None => (self == State::Absent).then_some(())?,
                }
                Some(put(value, timeout))
            }
            Did::Exchanged { from: None, done: false, .. } => match self {
                State::Live { value, .. } => self.lives(call, value),
                _ => None,
            },
            Did::Exchanged { from: Some(value), done: false, .. }
            | Did::RemovedThis { value, done: false } => match self {
                State::Live { value: other, .. } if other != value => Some(self),
                _ => self.is_gone(call),
            },
            Did::Removed(Some(value)) | Did::RemovedThis { value, done: true } => {
                self.lives(call, value).map(|_| State::Absent)
            }
            Did::Removed(None) => (self == State::Absent).then_some(self),
            Did::Expired(told) => match self {
                State::Live { value, due } | State::Lapsed { value, due } if value == told => {
                    due.has_come(call).map(|_| State::Absent)
                }
                _ => None,
            },
            Did::Polled { since } => match self {
                State::Absent => Some(self),
                State::Live { value, due } => {
                    Some(State::Live { value, due: due.is_left(call, since)? })
                }
                State::Lapsed { value, due } => {
                    Some(State::Lapsed { value, due: due.is_left(call, since)? })
                }
            },
            Did::Over => (self == State::Absent).then_some(self),
        }
    }
}

impl Model for Map {
    type State = State;
    type Did = Did;

    fn step(state: &State, call: &Call<Did>, _: u32, next: &mut Vec<(State, Then)>) {
        next.extend(state.step(call).map(|state| (state, Then::Done)));
    }

    fn only_looks(did: &Did) -> bool {
        matches!(did, Did::Got(Some(_)) | Did::Remains(Some(_)) | Did::Polled { .. })
    }
}

/// A map under load.
pub struct Load {
    map: ExpiringMap<u64, Value>,
}

/// What a thread knows: the value that it saw last under each key, and how many it has made.
pub struct Knowledge {
    seen: Vec<Value>,
    made: u32,
}

impl Subject for Load {
    type Model = Map;
    type Knowledge = Knowledge;
    const CHECK: &'static str = "map_linearizable";
    const INITIAL: State = State::Absent;

    fn knowledge(&self, thread: u8, keys: u32) -> Knowledge {
        Knowledge { seen: vec![0; keys as usize], made: u32::from(thread + 1) << 24 }
    }

    fn operate(
        &self,
        key: u32,
        known: &mut Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Did>,
    ) {
        let (map, name) = (&self.map, u64::from(key));
        let timeout = luck.random_range(1..=LONGEST);
        let time = log.time.ticks(timeout);
        let seen = known.seen[key as usize];
        let mut fresh = || {
            known.made += 1;
            known.made
        };
        let did = match luck.random_range(0..100) {
            0..=24 => {
                log.call::<StoreError>(key, || Ok(Did::Got(map.get(&name).as_deref().copied())))
            }
            25..=29 => {
                log.call::<StoreError>(key, || Ok(Did::Got(map.peek(&name).as_deref().copied())))
            }
            30..=47 => {
                let value = fresh();
                log.call::<StoreError>(key, || {
                    let replaced = map.insert_with_lifetime(name, value, time)?;
                    Ok(Did::Inserted { value, timeout, replaced: replaced.as_deref().copied() })
                })
            }
            48..=55 => log.call::<StoreError>(key, || {
                Ok(Did::Removed(map.remove(&name).as_deref().copied()))
            }),
            56..=65 => log.call::<StoreError>(key, || {
                let done = map.touch_with_lifetime(&name, time)?;
                Ok(Did::Touched { timeout, done })
            }),
            66..=70 => log.call::<StoreError>(key, || {
                let done = map.remove_if(&name, |_, value| *value == seen).is_some();
                Ok(Did::RemovedThis { value: seen, done })
            }),
            71..=76 => log.call::<StoreError>(key, || {
                let left = map.remaining(&name);
                Ok(Did::Remains(left.map(|left| log.time.to_ticks(left))))
            }),
            77..=84 => {
                let value = fresh();
                log.call::<StoreError>(key, || {
                    let from = map.upsert_with_lifetime(name, time, |old| (value, old.copied()))?;
                    Ok(Did::Upserted { value, timeout, from })
                })
            }
            _ => {
                let value = fresh();
                self.exchange(key, (value, timeout), luck, log);
                None
            }
        };
        if let Some(Did::Got(Some(value)) | Did::Inserted { value, .. }) = did {
            known.seen[key as usize] = value;
        }
    }

    fn poll(&self) {
        while self.map.poll(usize::MAX) {}
    }

    fn polled(since: u64) -> Did {
        Did::Polled { since }
    }

    fn told(heard: &Heard) -> Did {
        Did::Expired(heard.token as Value)
    }

    fn over() -> Did {
        Did::Over
    }

    fn left(&self) -> u64 {
        self.map.len() as u64
    }

    fn ended(&self) -> u64 {
        self.map.metrics().total.expired
    }

    fn put(&self, number: u64) -> bool {
        self.map.insert(number, 0).is_ok()
    }
}

impl Load {
    /// # Errors
    ///
    /// If the map cannot be built.
    pub fn new(time: &Time, capacity: Option<usize>) -> Result<Self, expiry::BuildError> {
        let mut builder =
            ExpiringMap::<u64, Value>::builder().interval(time.interval()).clock(time.clock());
        if let Some(capacity) = capacity {
            builder = builder.capacity(capacity);
        }
        let now = time.clone();
        let map = builder.removal_listener(move |key: &u64, value: &Value, cause: RemovalCause| {
            if cause == RemovalCause::Expired {
                now.hear_slowly(*key, u64::from(*value), Kind::Expired, None);
            }
        });
        Ok(Load { map: map.build_manual()? })
    }

    /// Looks at an entry and then exchanges or removes it: two calls.
    fn exchange(
        &self,
        key: u32,
        (value, timeout): (Value, u32),
        luck: &mut SmallRng,
        log: &mut Log<'_, Did>,
    ) {
        let (mut entry, removes) = (None, luck.random_bool(0.3));
        log.call::<StoreError>(key, || {
            let found = self.map.entry(u64::from(key));
            let got = match &found {
                Entry::Occupied(entry) => Some(*entry.get()),
                Entry::Vacant(_) => None,
            };
            entry = Some(found);
            Ok(Did::Got(got))
        });
        if luck.random_bool(0.1) {
            // Its time may come in between.
            log.time.pass();
        }
        let time = log.time.ticks(timeout);
        log.call::<StoreError>(key, || {
            let (from, done) = match entry {
                Some(Entry::Occupied(entry)) if removes => {
                    let value = *entry.get();
                    let done = entry.remove().is_some();
                    return Ok(Did::RemovedThis { value, done });
                }
                Some(Entry::Occupied(entry)) => {
                    (Some(*entry.get()), changed(entry.insert_with_lifetime(value, time)))
                }
                Some(Entry::Vacant(entry)) => {
                    (None, changed(entry.insert_with_lifetime(value, time)))
                }
                None => return Err(StoreError::Changed),
            };
            Ok(Did::Exchanged { from, value, timeout, done: done? })
        });
    }
}

/// Whether it was done, or refused because the entry had changed.
fn changed<T>(done: Result<T, InsertError<u64, Value>>) -> Result<bool, StoreError> {
    match done {
        Ok(_) => Ok(true),
        Err(refused) if refused.error == StoreError::Changed => Ok(false),
        Err(refused) => Err(refused.error),
    }
}
