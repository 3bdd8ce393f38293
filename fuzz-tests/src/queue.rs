//! `ExpiryQueue`, of either form of keys.

#[path = "../../tests/it/queue_oracle/drive.rs"]
mod drive;

use crate::{must_hold, perhaps, steps};
use arbitrary::{Result, Unstructured};
use drive::{Key, Op, Pass, Run, Setup, Term, LONGEST};
use std::time::Duration;

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

fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let key = u64::from(bytes.arbitrary::<u16>()?);
    Ok(match bytes.int_in_range(0..=61u8)? {
        0..=15 => Op::Update(key, term(bytes)?),
        16 | 17 => Op::UpdateRow(key, bytes.int_in_range(1..=199)?, term(bytes)?),
        18..=25 => Op::Touch(key, term(bytes)?),
        26..=33 => Op::TouchBy(key, term(bytes)?),
        34..=38 => Op::Remove(key),
        39..=50 => Op::Pass(pass(bytes)?),
        51..=54 => Op::Poll,
        55..=60 => Op::PollInto(bytes.int_in_range(0..=99)?),
        _ => Op::Dump,
    })
}

fn setup(bytes: &mut Unstructured<'_>) -> Result<Setup> {
    let intervals = [10_000, 1_000_000, 12_345_678, 2_000_000_000];
    Ok(Setup {
        interval: Duration::from_nanos(*bytes.choose(&intervals)?),
        start: Duration::from_nanos(
            perhaps(bytes, |bytes| bytes.arbitrary::<u32>())?.map_or(0, u64::from),
        ),
        shards: *bytes.choose(&[1, 2, 8])?,
        capacity: perhaps(bytes, |bytes| bytes.int_in_range(1..=59))?,
        keys: bytes.int_in_range(1..=4999)?,
    })
}

fn history<K: Key>(setup: &Setup, ops: &[Op]) {
    let mut run = Run::<K>::new(setup);
    let found = ops.iter().try_for_each(|&op| run.step(op));
    must_hold(found.and_then(|()| run.finish()), setup, ops);
}

/// Runs a history of one `ExpiryQueue`.
pub fn queue(bytes: &[u8]) {
    let bytes = &mut Unstructured::new(bytes);
    let Ok(integers) = bytes.arbitrary::<bool>() else {
        return;
    };
    let Ok(setup) = setup(bytes) else { return };
    let Ok(ops) = steps(bytes, op) else { return };
    if integers {
        history::<u64>(&setup, &ops);
    } else {
        history::<String>(&setup, &ops);
    }
}
