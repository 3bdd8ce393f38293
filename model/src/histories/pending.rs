//! `PendingTable`: every result, and the values that polls, `cancel_all` and `shutdown` return.
//!
//! Takes are made by the tickets of values that are there, of values that have left, and by numbers
//! that are no tickets.

use super::shared::{same, set, Span};
use super::stays::{pass, stay, Setup, Stay, Stays};
use super::{each, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::{LifetimeError, PendingTable, Polled, StoreError, Ticket};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Histories of a `PendingTable`.
pub struct Pending;

#[derive(Debug, Clone, Copy)]
pub enum Op {
    Insert(Stay),
    /// Inserts so many values by one call.
    InsertMany(usize, Stay),
    /// Inserts so many values, and takes each at once: the slots get other occupants.
    Churn(usize),
    /// Takes by one of the latest tickets, or by any.
    Take(u64),
    /// Takes by so many of the latest tickets in one call.
    TakeMany(usize),
    /// Takes by a number of its own.
    TakeNumber(u64),
    /// Takes by a ticket with one bit turned over.
    TakeNeighbour(u64, u32),
    Look(u64),
    CancelAll,
    Pass(Span),
    PassToTheNext,
    Poll,
    PollInto(usize),
    ShutDown,
}

/// A few, or about as many as a chunk has slots. The next values then get slots that earlier values
/// have had.
fn many(bytes: &mut Unstructured<'_>) -> Result<usize> {
    let few = bytes.arbitrary()?;
    bytes.int_in_range(if few { 0..=99 } else { 3_500..=4_500 })
}

impl Histories for Pending {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        Setup::of(bytes, 59)
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        Ok(match bytes.int_in_range(0..=63u8)? {
            0..=16 => Op::Insert(stay(bytes)?),
            17..=20 => Op::InsertMany(bytes.int_in_range(0..=299)?, stay(bytes)?),
            21..=23 => Op::Churn(many(bytes)?),
            24..=35 => Op::Take(bytes.arbitrary()?),
            36 | 37 => Op::TakeMany(2 * many(bytes)?),
            38 => Op::TakeNumber(*bytes.choose(&[0, 1, u64::MAX])?),
            39 => Op::TakeNumber(bytes.arbitrary()?),
            40 => Op::TakeNeighbour(bytes.arbitrary()?, bytes.int_in_range(0..=63)?),
            41..=44 => Op::Look(bytes.arbitrary()?),
            45 => Op::CancelAll,
            46..=50 => Op::Pass(pass(bytes)?),
            51..=54 => Op::PassToTheNext,
            55..=58 => Op::Poll,
            59..=62 => Op::PollInto(*bytes.choose(&[0, 1, 3, 20, 99])?),
            // One time in 256.
            _ if bytes.int_in_range(0..=3u8)? == 1 => Op::ShutDown,
            _ => Op::CancelAll,
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

/// A value is its number in the order of insertions, so it has the ticket at that place.
type Value = usize;

/// How many values have left, by the way that they took.
#[derive(Debug, Default)]
struct Left {
    taken: usize,
    expired: usize,
    closed: usize,
}

struct Run {
    table: PendingTable<Value>,
    stays: Stays,
    capacity: usize,
    tickets: Vec<Ticket>,
    /// Values that are there, and when they are due, in intervals, unless never.
    live: BTreeMap<Value, Option<u64>>,
    /// Values that insertions have ended, and that no poll has returned yet.
    lapsed: BTreeSet<Value>,
    left: Left,
    shut: bool,
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let stays = Stays::new(setup.interval, setup.timeout);
        let mut builder = PendingTable::builder()
            .interval(setup.interval)
            .shards(setup.shards)
            .clock(stays.time.clock.clone());
        set!(builder.capacity(setup.capacity));
        set!(builder.timeout(setup.timeout.map(|span| span.duration(setup.interval))));
        Run {
            table: builder.build_manual().unwrap(),
            stays,
            capacity: setup.capacity.unwrap_or(usize::MAX),
            tickets: Vec::new(),
            live: BTreeMap::new(),
            lapsed: BTreeSet::new(),
            left: Left::default(),
            shut: false,
        }
    }

    /// When the next value is due.
    fn next(&self) -> Option<u64> {
        self.live.values().flatten().min().copied()
    }

    /// Whether a value is there, and its time is up.
    fn is_due(&self, value: Value) -> bool {
        self.live.get(&value).is_some_and(|due| self.stays.are_over(*due))
    }

    /// Checks what an insertion has done, which came `to_full` or not.
    fn inserted(
        &mut self,
        to_full: bool,
        done: std::result::Result<Ticket, StoreError>,
        due: std::result::Result<Option<u64>, LifetimeError>,
    ) -> Found {
        let mut ended = Vec::new();
        if self.table.metrics().expired > self.left.expired as u64 {
            let gone = |value: &&Value| !self.table.contains(self.tickets[**value]);
            ended = self.live.keys().filter(gone).copied().collect();
        }
        let may = due.is_ok_and(|due| to_full || self.stays.is_behind(due));
        prop_assert!(may || ended.is_empty(), "it has ended {ended:?}");
        for value in ended {
            prop_assert!(self.is_due(value), "{value} has ended early");
            self.live.remove(&value);
            self.lapsed.insert(value);
            self.left.expired += 1;
        }
        let due = match (due, self.shut) {
            (Err(error), _) => Err(error.into()),
            (Ok(_), true) => Err(StoreError::Closed),
            (Ok(_), _) if self.live.len() >= self.capacity => {
                let left = self.live.keys().find(|value| self.is_due(**value));
                prop_assert!(left.is_none(), "there is no room, and {left:?} is due");
                Err(StoreError::Full)
            }
            (Ok(due), _) => Ok(due),
        };
        same!(done.err(), due.err());
        if let (Ok(ticket), Ok(due)) = (done, due) {
            self.live.insert(self.tickets.len(), due);
            self.tickets.push(ticket);
        }
        Ok(())
    }

    fn insert(&mut self, stay: Stay) -> Found {
        let (value, to_full) = (self.tickets.len(), self.live.len() >= self.capacity);
        let (lifetime, due) = self.stays.due(stay);
        let done = self.table.insert(value, lifetime).map_err(|refused| {
            assert_eq!(refused.value, value, "the error gives the value back");
            refused.error
        });
        self.inserted(to_full, done, due)
    }

    /// Inserts many values, where none is refused and none is due.
    fn insert_many(&mut self, count: usize, stay: Stay) -> Found {
        let fits = self.capacity - self.live.len() >= count && !self.shut;
        let (lifetime, Ok(due)) = self.stays.due(stay) else { return self.insert(stay) };
        if !fits || self.stays.is_behind(due) {
            return self.insert(stay);
        }
        let (first, mut tickets) = (self.tickets.len(), Vec::new());
        let done = self.table.insert_many(first..first + count, lifetime, &mut tickets);
        prop_assert_eq!((done.is_ok(), tickets.len()), (true, count));
        self.live.extend((first..first + count).map(|value| (value, due)));
        self.tickets.extend(tickets);
        Ok(())
    }

    /// A take by that ticket has returned `taken`.
    fn taken(&mut self, value: Value, taken: Option<Value>) -> Found {
        let live = self.live.remove(&value).map(|_| value);
        self.left.taken += usize::from(live.is_some());
        same!(taken, live);
        Ok(())
    }

    /// Mostly one of the last values: it is there, or has left.
    fn pick(&self, pick: u64) -> Option<Value> {
        let all = self.tickets.len();
        let recent = if pick % 4 == 0 { all } else { all.min(40) };
        let back = (pick as usize / 4).checked_rem(recent)?;
        Some(all - 1 - back)
    }

    fn take(&mut self, pick: u64) -> Found {
        let Some(value) = self.pick(pick) else { return Ok(()) };
        self.taken(value, self.table.take(self.tickets[value]))
    }

    fn take_many(&mut self, count: usize) -> Found {
        let from = self.tickets.len().saturating_sub(count);
        let taken: Vec<_> = self.table.take_many(&self.tickets[from..]).collect();
        same!(taken.len(), self.tickets.len() - from);
        taken.into_iter().enumerate().try_for_each(|(at, taken)| self.taken(from + at, taken))
    }

    fn take_number(&mut self, number: u64) -> Found {
        let ticket = Ticket::from(number);
        let taken = self.table.take(ticket);
        if let Some(value) = self.tickets.iter().position(|of| *of == ticket) {
            return self.taken(value, taken);
        }
        prop_assert_eq!(taken, None, "{} is no ticket", ticket);
        Ok(())
    }

    fn look(&self, pick: u64) -> Found {
        let Some(value) = self.pick(pick) else { return Ok(()) };
        let (ticket, live) = (self.tickets[value], self.live.get(&value));
        same!(self.table.contains(ticket), live.is_some());
        let left = live.map(|due| self.stays.left(*due));
        same!(self.table.remaining(ticket), left);
        Ok(())
    }

    /// Checks what a poll has returned: all that was due, unless there is more.
    fn polled(&mut self, expired: Vec<Value>, polled: Option<Polled>) -> Found {
        for value in expired {
            if !self.lapsed.remove(&value) {
                prop_assert!(self.is_due(value), "{value} has expired early, or again");
                self.live.remove(&value);
                self.left.expired += 1;
            }
        }
        prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
        if polled.is_some_and(|polled| polled.more) {
            return Ok(());
        }
        let left = self.live.keys().find(|value| self.is_due(**value));
        prop_assert!(left.is_none(), "left: {left:?}");
        self.stays.caught_up = self.stays.tick();
        if let (Some(polled), Some(next)) = (polled, self.next()) {
            let until = self.stays.until(next);
            prop_assert!(polled.next.is_some_and(|next| next <= until), "{polled:?}, {until:?}");
        }
        Ok(())
    }

    /// All that was there has been returned.
    fn emptied(&mut self, mut all: Vec<Value>) -> Found<usize> {
        all.sort_unstable();
        let live: Vec<Value> = std::mem::take(&mut self.live).into_keys().collect();
        same!(&all, &live);
        Ok(live.len())
    }

    fn shut_down(&mut self) -> Found {
        let mut left = self.table.shutdown();
        left.retain(|value| !self.lapsed.remove(value));
        prop_assert!(self.lapsed.is_empty(), "left: {:?}", self.lapsed);
        self.left.closed += self.emptied(left)?;
        self.shut = true;
        Ok(())
    }

    fn step(&mut self, op: Op) -> Found {
        match op {
            Op::Insert(stay) => self.insert(stay)?,
            Op::InsertMany(count, stay) => self.insert_many(count, stay)?,
            Op::Churn(count) if self.live.len() < self.capacity && !self.shut => {
                for _ in 0..count {
                    let value = self.tickets.len();
                    self.insert(Stay::Ever)?;
                    self.taken(value, self.table.take(self.tickets[value]))?;
                }
            }
            Op::Churn(_) => {}
            Op::Take(pick) => self.take(pick)?,
            Op::TakeMany(count) => self.take_many(count)?,
            Op::TakeNumber(number) => self.take_number(number)?,
            Op::TakeNeighbour(pick, bit) => {
                let neighbour = |value: Value| u64::from(self.tickets[value]) ^ 1 << bit;
                self.pick(pick).map(neighbour).map_or(Ok(()), |number| self.take_number(number))?;
            }
            Op::Look(pick) => self.look(pick)?,
            Op::CancelAll => {
                let all = self.table.cancel_all();
                self.left.taken += self.emptied(all)?;
            }
            Op::Pass(by) => self.stays.pass(by.duration(self.stays.interval)),
            Op::PassToTheNext => {
                let by = self.next().map_or(Duration::ZERO, |next| self.stays.until(next));
                self.stays.pass(by);
            }
            Op::Poll => {
                let expired = self.table.poll();
                self.polled(expired, None)?;
            }
            Op::PollInto(budget) => {
                let mut expired = Vec::new();
                let polled = self.table.poll_into(&mut expired, budget);
                self.polled(expired, Some(polled))?;
            }
            Op::ShutDown => self.shut_down()?,
        }
        let (metrics, left) = (self.table.metrics(), &self.left);
        let told = [metrics.live, metrics.inserted, metrics.taken, metrics.expired, metrics.closed];
        let all = [self.live.len(), self.tickets.len(), left.taken, left.expired, left.closed];
        same!(told, all.map(|count| count as u64));
        Ok(())
    }

    fn finish(mut self) -> Found {
        let distinct: BTreeSet<_> = self.tickets.iter().collect();
        prop_assert_eq!(distinct.len(), self.tickets.len(), "a ticket was issued twice");
        // Every value that is left expires, if time does not end before.
        let last = self.live.values().flatten().max().copied();
        self.stays.time.pass(last.map_or(Duration::ZERO, |last| self.stays.until(last)));
        self.step(Op::Poll)?;
        self.step(Op::ShutDown)?;
        self.step(Op::Insert(Stay::Ever))?;
        self.step(Op::TakeMany(usize::MAX))
    }
}
