//! `ExpiryQueue`, of either form of keys.

mod drive;

use crate::{capacity, each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use drive::{Key, Op, Pass, Run, Setup, Term, LONGEST};
use std::marker::PhantomData;
use std::time::Duration;

/// Histories of an `ExpiryQueue` of keys `K`.
pub struct Queue<K> {
    /// Few keys and small budgets are more likely than in the corpus, and a bound on the entries is less likely.
    few: bool,
    keys: PhantomData<K>,
}

impl<K> Queue<K> {
    /// Those of the property tests.
    pub const RANDOM: Self = Queue { few: true, keys: PhantomData };
    const KEPT: Self = Queue { few: false, keys: PhantomData };
}

/// Runs a history of a queue of integers, or of strings.
pub(crate) fn from_bytes(bytes: &[u8]) {
    match bytes.first() {
        Some(first) if first & 1 == 1 => crate::from_bytes(&bytes[1..], |_| Ok(Queue::<u64>::KEPT)),
        Some(_) => crate::from_bytes(&bytes[1..], |_| Ok(Queue::<String>::KEPT)),
        None => {}
    }
}

fn term(bytes: &mut Unstructured<'_>) -> Result<Term> {
    Ok(match bytes.int_in_range(0..=18u8)? {
        0 | 1 => Term::Nanos(bytes.int_in_range(1..=1 << 32)?),
        2..=9 => Term::Intervals(bytes.int_in_range(1..=39)?),
        10..=13 => Term::Intervals(bytes.int_in_range(1..=1_000_000)?),
        14 => Term::Intervals(bytes.int_in_range(1..=LONGEST)?),
        15 => Term::Zero,
        16 => Term::Longest,
        17 => Term::TooLong,
        _ => Term::Endless,
    })
}

fn pass(bytes: &mut Unstructured<'_>) -> Result<Pass> {
    Ok(match bytes.int_in_range(0..=25u8)? {
        0 => Pass::Nothing,
        1..=4 => Pass::Nanos(bytes.arbitrary::<u32>()?.into()),
        5..=12 => Pass::Intervals(bytes.int_in_range(0..=29)?),
        13..=16 => Pass::Intervals(bytes.int_in_range(0..=99_999)?),
        17 | 18 => Pass::Hours(bytes.int_in_range(1..=99)?),
        19..=24 => Pass::ToTheNext,
        _ => Pass::Jump(bytes.int_in_range(1..=8)?, bytes.int_in_range(0..=2)?),
    })
}

impl<K: Key> Histories for Queue<K> {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        let intervals = [10_000, 1_000_000, 12_345_678, 2_000_000_000];
        Ok(Setup {
            interval: Duration::from_nanos(*bytes.choose(&intervals)?),
            start: Duration::from_nanos(
                perhaps(bytes, |bytes| bytes.arbitrary::<u32>())?.map_or(0, u64::from),
            ),
            shards: *bytes.choose(&[1, 2, 8])?,
            capacity: capacity(bytes, self.few, 59)?,
            keys: {
                let most = if self.few { *bytes.choose(&[7, 79, 4999])? } else { 4999 };
                bytes.int_in_range(1..=most)?
            },
        })
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let key = u64::from(bytes.arbitrary::<u16>()?);
        Ok(match bytes.int_in_range(0..=61u8)? {
            0..=15 => Op::Update(key, term(bytes)?),
            16 | 17 => Op::UpdateRow(key, bytes.int_in_range(1..=199)?, term(bytes)?),
            18..=25 => Op::Touch(key, term(bytes)?),
            26..=33 => Op::TouchBy(key, term(bytes)?),
            34..=38 => Op::Remove(key),
            39..=50 => Op::Pass(pass(bytes)?),
            51..=54 => Op::Poll,
            55..=60 => {
                let most = if self.few && bytes.arbitrary()? { 3 } else { 99 };
                Op::PollInto(bytes.int_in_range(0..=most)?)
            }
            _ => Op::Dump,
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::<K>::new(setup);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}
