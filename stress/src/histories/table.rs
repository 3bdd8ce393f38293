//! A pending table: its sequential model, and the calls that are made on it.
//!
//! Each value is an object by itself, from its insertion on. It is there until one call takes it,
//! or a poll finds its time up. After that its ticket reaches nothing, whatever has its slot then.

use super::record::{set, Log, Subject, Time, LONGEST};
use crate::options::Histories;
use expiry::{BuildError, PendingTable, StoreError, Ticket};
use model::due::Due;
use model::linear::{Span, Then};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::Rng;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Share of operations that insert a value, which takes another's place.
const INSERTS: f64 = 0.4;
/// Share of calls that are made by the ticket of any earlier value.
const STALE: f64 = 0.1;

/// A value, and its ticket.
type Ticketed = (u32, Ticket);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Unborn,
    Live(Due),
    Ended,
}

use State::{Ended, Live, Unborn};

/// A call by a value's ticket, and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    /// With this timeout.
    Inserted(u32),
    /// Whether the value that was taken is the ticket's own.
    Took(Option<bool>),
    /// So many ticks were left.
    Remains(Option<u32>),
    /// `cancel_all` returned it.
    Cancelled,
    /// A poll returned it.
    Expired,
}

impl State {
    fn step(self, call: &Span, did: Did) -> Option<Self> {
        Some(match (self, did) {
            (Unborn, Did::Inserted(timeout)) => Live(Due::after(call, timeout)),
            (Live(_), Did::Took(Some(true)) | Did::Cancelled) => Ended,
            (Live(due), Did::Expired) => due.has_come(call).map(|_| Ended)?,
            (Live(due), Did::Remains(Some(0))) => Live(due.has_come(call)?),
            (Live(due), Did::Remains(Some(left))) => Live(due.left(call, left)?),
            (Ended, Did::Took(None) | Did::Remains(None)) => Ended,
            _ => return None,
        })
    }
}

/// A table under load.
pub struct Load {
    table: PendingTable<u32>,
    time: Time,
    /// The last value that was inserted at each place at which threads meet.
    places: Vec<Mutex<Option<Ticketed>>>,
    /// Values so far: no two are the same.
    values: AtomicU32,
}

impl Subject for Load {
    type State = State;
    type Did = Did;
    type Error = StoreError;
    /// All values that the thread has inserted.
    type Knowledge = Vec<Ticketed>;
    const CHECK: &'static str = "table_linearizable";
    const INITIAL: State = Unborn;
    const OVER: State = Ended;

    fn apply(state: State, call: &Span, did: Did, _: u32) -> Option<(State, Then)> {
        Some((state.step(call, did)?, Then::Done))
    }

    fn due(state: &mut State) -> Option<&mut Due> {
        match state {
            Live(due) => Some(due),
            Unborn | Ended => None,
        }
    }

    fn is_look(did: &Did) -> bool {
        matches!(did, Did::Remains(_) | Did::Took(None))
    }

    fn new(time: &Time, capacity: Option<usize>, options: &Histories) -> Result<Self, BuildError> {
        Ok(Load {
            table: set!(PendingTable::builder(), time, capacity).build_manual()?,
            time: time.clone(),
            places: (0..options.keys).map(|_| Mutex::new(None)).collect(),
            values: AtomicU32::new(0),
        })
    }

    fn knowledge(&self, _: u8, _: &Histories) -> Vec<Ticketed> {
        Vec::new()
    }

    /// A key is a place here.
    fn operate(
        &self,
        key: u32,
        known: &mut Vec<Ticketed>,
        luck: &mut SmallRng,
        log: &mut Log<'_, Self>,
    ) {
        let stale = known.choose(luck).copied().filter(|_| luck.random_bool(STALE));
        let there = stale.or_else(|| *self.at(key)).filter(|_| !luck.random_bool(INSERTS));
        let Some((value, ticket)) = there else {
            let value = self.values.fetch_add(1, Relaxed);
            let (timeout, mut inserted) = (luck.random_range(1..=LONGEST), None);
            let after = log.time.ticks(timeout);
            log.call(value, || {
                inserted = Some((value, self.table.insert(value, after)?));
                Ok(Did::Inserted(timeout))
            });
            *self.at(key) = inserted;
            return known.extend(inserted);
        };
        let (table, chance) = (&self.table, luck.random_range(0..1000));
        let took = |value, taken: Option<u32>| Did::Took(taken.map(|taken| taken == value));
        let cancelled = |value| (value, Ok(Did::Cancelled));
        match chance {
            0..=4 => log.calls(|| table.cancel_all().into_iter().map(cancelled).collect()),
            5..=99 => {
                let (values, tickets): (Vec<_>, Vec<_>) =
                    (0..self.places.len() as u32).filter_map(|key| *self.at(key)).unzip();
                let taken = || values.iter().zip(table.take_many(&tickets));
                let did = |(&value, taken)| (value, Ok(took(value, taken)));
                log.calls(|| taken().map(did).collect());
            }
            100..=799 => drop(log.call(value, || Ok(took(value, table.take(ticket))))),
            _ => drop(log.call(value, || {
                Ok(Did::Remains(table.remaining(ticket).map(|left| self.time.to_ticks(left))))
            })),
        }
    }

    fn poll(&self) {
        for value in self.table.poll() {
            self.time.hear(value.into(), Did::Expired);
        }
    }

    fn left(&self) -> u64 {
        self.table.len() as u64
    }

    fn ended(&self) -> u64 {
        self.table.metrics().expired
    }

    fn put(&self, number: u64) -> bool {
        self.table.insert(number as u32, self.time.ticks(1)).is_ok()
    }
}

impl Load {
    fn at(&self, place: u32) -> MutexGuard<'_, Option<Ticketed>> {
        self.places[place as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
