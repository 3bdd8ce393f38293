//! The map: its sequential model, and the calls that are made on it.
//!
//! A key has no value, or a living one, or one that has expired as a call has observed, and whose
//! end has yet to be reported. The report is a step by itself. It lies between the beginning of the
//! poll or call whose thread reported it, and the listener's call.

use super::record::{set, Log, Subject, Time, LONGEST};
use crate::options::Histories;
use expiry::expiring_map::{Compute, Computed, Entry};
use expiry::{BuildError, ExpiringMap, InsertError, RemovalCause, StoreError};
use model::due::Due;
use model::linear::{Span, Then};
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
    /// A call has observed that it has expired.
    Lapsed {
        value: Value,
        due: Due,
    },
}

use State::{Absent, Lapsed, Live};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// A look that gave the value: `get`, `peek`, `entry`.
    Got(Option<Value>),
    /// `insert` and the value that it replaced, or `upsert` and the old value that it used.
    Inserted {
        value: Value,
        timeout: u32,
        replaced: Option<Value>,
    },
    /// `value` took the place of an observed entry that had `from`; or the call was refused,
    /// because that had changed.
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
    /// The listener received the expiry.
    Expired(Value),
}

impl State {
    /// The state if the call found no living value, and ensured that there will be none.
    fn is_gone(self, call: &Span) -> Option<Self> {
        match self {
            Live { value, due } => Some(Lapsed { value, due: due.has_come(call)? }),
            other => Some(other),
        }
    }

    /// The state if the call found this value living.
    fn lives(self, call: &Span, wanted: Value) -> Option<Self> {
        match self {
            Live { value, due } if value == wanted => {
                Some(Live { value, due: due.is_to_come(call)? })
            }
            _ => None,
        }
    }

    fn step(self, call: &Span, did: Did) -> Option<Self> {
        match (did, self) {
            (Did::Got(None) | Did::Remains(None) | Did::Touched { done: false, .. }, _) => {
                self.is_gone(call)
            }
            (Did::Got(Some(value)), _) => self.lives(call, value),
            (Did::Remains(Some(left)), Live { value, due }) => {
                let due = due.is_to_come(call)?;
                // It may fall due between two readings of the clock.
                let now = || due.has_come(call).filter(|_| left == 0);
                Some(Live { value, due: due.left(call, left).or_else(now)? })
            }
            (Did::Touched { timeout, done: true }, Live { value, due }) => {
                Some(Live { value, due: due.is_to_come(call)?.touched(call, timeout)? })
            }
            (
                Did::Inserted { value, timeout, replaced: from }
                | Did::Exchanged { from, value, timeout, done: true },
                _,
            ) => {
                match from {
                    Some(from) => self.lives(call, from).map(drop)?,
                    None => (self == Absent).then_some(())?,
                }
                Some(Live { value, due: Due::after(call, timeout) })
            }
            (Did::Exchanged { from: None, done: false, .. }, Live { value, .. }) => {
                self.lives(call, value)
            }
            (
                Did::Exchanged { from: Some(value), done: false, .. }
                | Did::RemovedThis { value, done: false },
                _,
            ) => match self {
                Live { value: other, .. } if other != value => Some(self),
                _ => self.is_gone(call),
            },
            (Did::Removed(Some(value)) | Did::RemovedThis { value, done: true }, _) => {
                self.lives(call, value).map(|_| Absent)
            }
            (Did::Removed(None), Absent) => Some(self),
            (Did::Expired(told), Live { value, due } | Lapsed { value, due }) if value == told => {
                due.has_come(call).map(|_| Absent)
            }
            _ => None,
        }
    }
}

/// A map under load.
pub struct Load {
    map: ExpiringMap<u64, Value>,
}

/// What a thread knows: the last value that it saw under each key, and how many it has made.
pub struct Knowledge {
    seen: Vec<Value>,
    made: u32,
}

impl Subject for Load {
    type State = State;
    type Did = Did;
    type Error = StoreError;
    type Knowledge = Knowledge;
    const CHECK: &'static str = "map_linearizable";
    const INITIAL: State = Absent;
    const OVER: State = Absent;

    fn apply(state: State, call: &Span, did: Did, _: u32) -> Option<(State, Then)> {
        Some((state.step(call, did)?, Then::Done))
    }

    fn due(state: &mut State) -> Option<&mut Due> {
        match state {
            Live { due, .. } | Lapsed { due, .. } => Some(due),
            Absent => None,
        }
    }

    fn is_look(did: &Did) -> bool {
        matches!(did, Did::Got(Some(_)) | Did::Remains(Some(_)))
    }

    fn new(time: &Time, capacity: Option<usize>, _: &Histories) -> Result<Self, BuildError> {
        let builder = set!(ExpiringMap::<u64, Value>::builder(), time, capacity);
        let now = time.clone();
        let map = builder.removal_listener(move |key: &u64, value: &Value, cause: RemovalCause| {
            if cause == RemovalCause::Expired {
                now.dawdle();
                now.hear(*key, Did::Expired(*value));
            }
        });
        Ok(Load { map: map.build_manual()? })
    }

    fn knowledge(&self, thread: u8, options: &Histories) -> Knowledge {
        Knowledge { seen: vec![0; options.keys as usize], made: u32::from(thread + 1) << 24 }
    }

    fn operate(
        &self,
        key: u32,
        known: &mut Knowledge,
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    ) {
        let (map, name) = (&self.map, u64::from(key));
        let timeout = luck.random_range(1..=LONGEST);
        let (now, after) = (log.time, log.time.ticks(timeout));
        let seen = known.seen[key as usize];
        known.made += 1;
        let value = known.made;
        let chance = luck.random_range(0..100);
        if chance >= 85 {
            return self.exchange(key, (value, timeout), luck, log);
        }
        let did = log.call(key, || {
            Ok(match chance {
                0..=24 => Did::Got(map.get(&name).as_deref().copied()),
                25..=29 => Did::Got(map.peek(&name).as_deref().copied()),
                30..=47 => {
                    let replaced = map.insert_for(name, value, after)?.as_deref().copied();
                    Did::Inserted { value, timeout, replaced }
                }
                48..=55 => Did::Removed(map.remove(&name).as_deref().copied()),
                56..=65 => Did::Touched { timeout, done: map.touch_for(&name, after)? },
                66..=70 => {
                    let done = map.remove_if(&name, |_, value| *value == seen).is_some();
                    Did::RemovedThis { value: seen, done }
                }
                71..=76 => Did::Remains(map.remaining(&name).map(|left| now.to_ticks(left))),
                77..=80 => {
                    let computed = map.compute(name, |old| match old {
                        Some(old) if *old == seen => Compute::Remove,
                        Some(_) => Compute::Keep,
                        None => Compute::PutFor(value, after.into()),
                    })?;
                    match computed {
                        Computed::Kept(entry) => Did::Got(Some(*entry)),
                        Computed::Removed(_) => Did::RemovedThis { value: seen, done: true },
                        _ => Did::Inserted { value, timeout, replaced: None },
                    }
                }
                _ => {
                    let replaced = map.upsert_for(name, after, |old| (value, old.copied()))?;
                    Did::Inserted { value, timeout, replaced }
                }
            })
        });
        if let Some(Did::Got(Some(value)) | Did::Inserted { value, .. }) = did {
            known.seen[key as usize] = value;
        }
    }

    fn poll(&self) {
        while self.map.poll(usize::MAX).more {}
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
    /// Looks at an entry and then exchanges or removes it: two calls.
    fn exchange(
        &self,
        key: u32,
        (value, timeout): (Value, u32),
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    ) {
        let (mut entry, removes) = (None, luck.random_bool(0.3));
        log.call(key, || {
            let found = entry.insert(self.map.entry(u64::from(key)));
            Ok(Did::Got(match found {
                Entry::Occupied(entry) => Some(*entry.get()),
                Entry::Vacant(_) => None,
            }))
        });
        if luck.random_bool(0.1) {
            // Its time may come in between.
            log.time.pass();
        }
        let after = log.time.ticks(timeout);
        log.call(key, || {
            let (from, done) = match entry.expect("the call before has looked") {
                Entry::Occupied(entry) if removes => {
                    let value = *entry.get();
                    return Ok(Did::RemovedThis { value, done: entry.remove().is_some() });
                }
                Entry::Occupied(entry) => {
                    (Some(*entry.get()), changed(entry.insert_for(value, after)))
                }
                Entry::Vacant(entry) => (None, changed(entry.insert_for(value, after))),
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
