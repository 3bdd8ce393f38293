//! `ExpiringMap`.

mod drive;

use crate::{each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use drive::{Deed, Meanwhile, Op, Run, Term, INTERVAL};

/// Histories of an `ExpiringMap`.
pub struct Map;

fn term(bytes: &mut Unstructured<'_>) -> Result<Term> {
    Ok(match bytes.int_in_range(0..=13u8)? {
        0..=5 => Term::Default,
        6 => Term::Never,
        7 => Term::Zero,
        _ => Term::After(bytes.int_in_range(1..=8000)?),
    })
}

fn meanwhile(bytes: &mut Unstructured<'_>) -> Result<Meanwhile> {
    Ok(match bytes.int_in_range(0..=7u8)? {
        0..=3 => Meanwhile::Nothing,
        4 => Meanwhile::Insert,
        5 => Meanwhile::Remove,
        6 => Meanwhile::Touch,
        _ => Meanwhile::Pass(bytes.int_in_range(0..=5000)?),
    })
}

impl Histories for Map {
    /// The time to live and the time to idle.
    type Setup = (Option<u64>, Option<u64>);
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Self::Setup> {
        let time = |bytes: &mut Unstructured<'_>| bytes.int_in_range(INTERVAL..=9000);
        Ok((perhaps(bytes, time)?, perhaps(bytes, time)?))
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let key = bytes.int_in_range(0..=5u8)?;
        Ok(match bytes.int_in_range(0..=31u8)? {
            0..=5 => Op::Insert(key, term(bytes)?, term(bytes)?),
            6..=9 => Op::Get(key),
            10 => Op::Peek(key),
            11 | 12 => Op::Remaining(key),
            13..=15 => Op::Touch(key, term(bytes)?),
            16 | 17 => Op::Remove(key),
            18 => Op::RemoveIf(key),
            19 => Op::OrInsert(key),
            20 | 21 => {
                let deed = *bytes.choose(&[Deed::Insert, Deed::Remove])?;
                Op::Entry(key, deed, meanwhile(bytes)?)
            }
            22 => Op::Upsert(key),
            23 => Op::Retain,
            24 => Op::Iterate,
            25..=28 => Op::Pass(bytes.int_in_range(0..=3000)?),
            29 => Op::Poll(bytes.int_in_range(1..=7)?),
            _ => Op::Poll(usize::MAX),
        })
    }

    fn run(&self, &(live, idle): &Self::Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(live, idle);
        each(ops, |_, &op| run.step(op))?;
        run.finish()
    }
}
