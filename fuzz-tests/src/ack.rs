//! `AckTracker`: issued and chosen ids, batches, the clock in both directions, and each way to end.

#[path = "../../tests/it/oracle/drive.rs"]
mod drive;
#[path = "../../tests/it/oracle/model.rs"]
mod model;

use crate::{must_hold, perhaps, steps};
use arbitrary::{Result, Unstructured};
use drive::{Keys, Kind, Move, Op, Pick, Run, Setup, Xor};
use expiry::Fate;
use std::time::Duration;

fn pick(bytes: &mut Unstructured<'_>) -> Result<Pick> {
    let n = u64::from(bytes.arbitrary::<u16>()?);
    Ok(match bytes.int_in_range(0..=8u8)? {
        0..=2 => Pick::Pool(n),
        3..=5 => Pick::Recent(n),
        _ => Pick::Issued(n),
    })
}

fn xor(bytes: &mut Unstructured<'_>) -> Result<Xor> {
    Ok(match bytes.int_in_range(0..=14u8)? {
        0 => Xor::Zero,
        1..=8 => Xor::Rest,
        _ => Xor::Random,
    })
}

fn kind(bytes: &mut Unstructured<'_>) -> Result<Kind> {
    Ok(match bytes.int_in_range(0..=23u8)? {
        0..=11 => Kind::Default,
        12..=14 => Kind::Tick,
        15..=18 => Kind::Short(bytes.int_in_range(1..=19_999)?),
        19 => Kind::Year,
        20 => Kind::Never,
        21 => Kind::Zero,
        22 => Kind::TooLong,
        _ => Kind::Longest,
    })
}

fn clock(bytes: &mut Unstructured<'_>) -> Result<Move> {
    Ok(match bytes.int_in_range(0..=30u8)? {
        0..=3 => Move::Nanos(bytes.int_in_range(0..=4)?),
        4..=11 => Move::Ticks(bytes.int_in_range(0..=3_999)?),
        12 | 13 => Move::Ticks(bytes.int_in_range(0..=399_999)?),
        14..=19 => Move::Due(0),
        20..=25 => Move::Due(1),
        26 | 27 => Move::Years(bytes.int_in_range(1..=8)?),
        28 => Move::Back(bytes.int_in_range(0..=1_000_000_000_000)?),
        _ => Move::BackTicks(bytes.int_in_range(0..=4_999)?),
    })
}

fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let n = u64::from(bytes.arbitrary::<u16>()?);
    Ok(match bytes.int_in_range(0..=79u8)? {
        0..=11 => Op::Issue(xor(bytes)?, n, kind(bytes)?),
        12..=26 => Op::Init(pick(bytes)?, xor(bytes)?, n, kind(bytes)?),
        27..=41 => Op::Ack(pick(bytes)?, xor(bytes)?),
        42..=46 => Op::Fail(pick(bytes)?, perhaps(bytes, |_| Ok(n % 9))?),
        47..=51 => Op::Reset(pick(bytes)?, kind(bytes)?),
        52..=59 => Op::Clock(clock(bytes)?),
        60..=63 => Op::Poll(bytes.int_in_range(1..=39)?),
        64..=67 => Op::Settle(*bytes.choose(&[usize::MAX, 1, 7, 99])?),
        68..=70 => Op::IssueBatch(bytes.int_in_range(1..=200)?),
        71..=73 => Op::InitBatch(n, bytes.int_in_range(1..=200)?),
        74..=76 => Op::AckBatch(bytes.arbitrary()?, n, bytes.int_in_range(1..=100)?),
        77 => Op::Drain(bytes.arbitrary()?),
        78 => Op::FailAll(n),
        _ => Op::Look,
    })
}

fn setup(bytes: &mut Unstructured<'_>) -> Result<Setup> {
    let intervals = [10_000, 1_000_000, 12_345_678, 1_000_000_000, 3_600_000_000_000];
    let ticks = |bytes: &mut Unstructured<'_>| {
        let most = *bytes.choose(&[1, 5, 999, 999_999_999])?;
        Ok((bytes.int_in_range(1..=most)?, bytes.int_in_range(0..=999)?))
    };
    let keys = [
        Keys::Sequential,
        Keys::EqualLowBits,
        Keys::EqualHighBits,
        Keys::Extremes,
        Keys::DenseBlocks,
        Keys::Random,
    ];
    Ok(Setup {
        interval: Duration::from_nanos(*bytes.choose(&intervals)?),
        timeout: perhaps(bytes, ticks)?,
        early_timeout: ticks(bytes)?,
        early_capacity: *bytes.choose(&[0, 1, 2, 9, 39, 65_536])?,
        capacity: perhaps(bytes, |bytes| bytes.int_in_range(1..=300))?,
        shards: *bytes.choose(&[1, 2, 8])?,
        sampling: *bytes.choose(&[0.0, 0.5, 1.0])?,
        start: *bytes.choose(&[0, 1, u64::from(u32::MAX), 1 << 60])?,
        seed: bytes.arbitrary()?,
        keys: *bytes.choose(&keys)?,
        end: *bytes.choose(&[Fate::Cancel, Fate::Return, Fate::Drain(Duration::ZERO)])?,
    })
}

/// Runs a history of one `AckTracker`.
pub fn ack(bytes: &[u8]) {
    let bytes = &mut Unstructured::new(bytes);
    let Ok(setup) = setup(bytes) else { return };
    let Ok(ops) = steps(bytes, op) else { return };
    let history = || {
        let mut run = Run::new(&setup)?;
        ops.iter().try_for_each(|op| run.step(op))?;
        run.finish()
    };
    must_hold(history(), &setup, &ops);
}
