//! `PendingTable`: every result, and the values that polls, `cancel_all` and `shutdown` return.
//!
//! Takes are made by the tickets of values that are there, of values that have left, and by numbers
//! that are no tickets.

use super::shared::{same, set};
use super::waiting::{all_of, stay, All, Setup, Stay, Value, Waiting};
use super::{each, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::{LifetimeError, PendingTable, StoreError, Ticket};
use proptest::prelude::*;
use std::collections::BTreeSet;

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
    All(All),
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
            number => Op::All(All::of(number, bytes)?),
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}

struct Run {
    table: PendingTable<Value>,
    waiting: Waiting<Value>,
    /// A value has the ticket at its place.
    tickets: Vec<Ticket>,
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let waiting = Waiting::new(setup);
        let mut builder = PendingTable::builder()
            .interval(setup.interval)
            .shards(setup.shards)
            .clock(waiting.stays.time.clock.clone());
        set!(builder.capacity(setup.capacity));
        set!(builder.timeout(setup.timeout.map(|span| span.duration(setup.interval))));
        Run { table: builder.build_manual().unwrap(), waiting, tickets: Vec::new() }
    }

    /// Checks what an insertion has done, which came `to_full` or not.
    fn inserted(
        &mut self,
        to_full: bool,
        done: std::result::Result<Ticket, StoreError>,
        due: std::result::Result<Option<u64>, LifetimeError>,
    ) -> Found {
        let may = due.is_ok_and(|due| to_full || self.waiting.stays.is_behind(due));
        if self.table.metrics().expired > self.waiting.counts.expired {
            let gone = |value: Value, _| !self.table.contains(self.tickets[value]);
            self.waiting.lapses(may, gone)?;
        }
        let due = match due {
            Err(error) => Err(error.into()),
            Ok(_) if self.waiting.shut => Err(StoreError::Closed),
            Ok(_) if self.waiting.is_full() => {
                self.waiting.none_is_due()?;
                Err(StoreError::Full)
            }
            Ok(due) => Ok(due),
        };
        same!(done.err(), due.err());
        if let (Ok(ticket), Ok(due)) = (done, due) {
            self.comes(ticket, due);
        }
        Ok(())
    }

    fn comes(&mut self, ticket: Ticket, due: Option<u64>) {
        let value = self.tickets.len();
        self.waiting.live.insert(value, (value, due));
        self.waiting.counts.inserted += 1;
        self.tickets.push(ticket);
    }

    fn insert(&mut self, stay: Stay) -> Found {
        let (value, to_full) = (self.tickets.len(), self.waiting.is_full());
        let (lifetime, due) = self.waiting.stays.due(stay);
        let done = self.table.insert(value, lifetime).map_err(|refused| {
            assert_eq!(refused.value, value, "the error gives the value back");
            refused.error
        });
        self.inserted(to_full, done, due)
    }

    /// Inserts many values, where none is refused and none is due.
    fn insert_many(&mut self, count: usize, stay: Stay) -> Found {
        let Waiting { stays, capacity, live, shut, .. } = &self.waiting;
        let fits = capacity - live.len() >= count && !shut;
        let (lifetime, Ok(due)) = stays.due(stay) else { return self.insert(stay) };
        if !fits || stays.is_behind(due) {
            return self.insert(stay);
        }
        let (first, mut tickets) = (self.tickets.len(), Vec::new());
        let done = self.table.insert_many(first..first + count, lifetime, &mut tickets);
        prop_assert_eq!((done.is_ok(), tickets.len()), (true, count));
        tickets.into_iter().for_each(|ticket| self.comes(ticket, due));
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
        self.waiting.taken(value, self.table.take(self.tickets[value]))
    }

    fn take_many(&mut self, count: usize) -> Found {
        let from = self.tickets.len().saturating_sub(count);
        let taken: Vec<_> = self.table.take_many(&self.tickets[from..]).collect();
        same!(taken.len(), self.tickets.len() - from);
        taken
            .into_iter()
            .enumerate()
            .try_for_each(|(at, taken)| self.waiting.taken(from + at, taken))
    }

    fn take_number(&mut self, number: u64) -> Found {
        let ticket = Ticket::from(number);
        let taken = self.table.take(ticket);
        if let Some(value) = self.tickets.iter().position(|of| *of == ticket) {
            return self.waiting.taken(value, taken);
        }
        prop_assert_eq!(taken, None, "{} is no ticket", ticket);
        Ok(())
    }

    fn look(&self, pick: u64) -> Found {
        let Some(value) = self.pick(pick) else { return Ok(()) };
        let (ticket, live) = (self.tickets[value], self.waiting.live.get(&value));
        same!(self.table.contains(ticket), live.is_some());
        let left = live.map(|(_, due)| self.waiting.stays.left(*due));
        same!(self.table.remaining(ticket), left);
        Ok(())
    }

    fn step(&mut self, op: Op) -> Found {
        match op {
            Op::Insert(stay) => self.insert(stay)?,
            Op::InsertMany(count, stay) => self.insert_many(count, stay)?,
            Op::Churn(count) if !self.waiting.is_full() && !self.waiting.shut => {
                for _ in 0..count {
                    let value = self.tickets.len();
                    self.insert(Stay::Ever)?;
                    self.waiting.taken(value, self.table.take(self.tickets[value]))?;
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
            Op::All(all) => {
                let returned = all_of!(self.table, all, |value| (value, value));
                self.waiting.step(all, returned)?;
            }
        }
        let (metrics, counts) = (self.table.metrics(), self.waiting.counts);
        let told = [metrics.live, metrics.inserted, metrics.taken, metrics.expired, metrics.closed];
        let live = self.waiting.live.len() as u64;
        same!(told, [live, counts.inserted, counts.taken, counts.expired, counts.closed]);
        Ok(())
    }

    fn finish(mut self) -> Found {
        let distinct: BTreeSet<_> = self.tickets.iter().collect();
        prop_assert_eq!(distinct.len(), self.tickets.len(), "a ticket was issued twice");
        self.waiting.pass_to_the_last();
        self.step(Op::All(All::Poll))?;
        self.step(Op::All(All::ShutDown))?;
        self.step(Op::Insert(Stay::Ever))?;
        self.step(Op::TakeMany(usize::MAX))
    }
}
