//! `AckTracker`: issued and chosen ids, batches, the clock in both directions, and each way to end.

mod drive;
mod model;

use super::shared::shards;
use super::{each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use drive::{Keys, Kind, Move, Op, Pick, Run, Setup, Xor, YEAR};
use expiry::ShutdownMode;
use std::time::Duration;

/// Histories of an `AckTracker`.
pub struct Ack(pub Mix);

/// Weights of the steps, for histories of different character.
#[derive(Clone, Copy)]
pub struct Mix {
    /// Weights of the steps, in the order of `Ack::op`.
    ops: [u8; 20],
    /// Weights of inits: of the pool, of those used lately, of issued ones.
    inits: [u8; 3],
    /// Weights of what the clock does, in the order of `Mix::clock`.
    clock: [u8; 8],
    /// The most roots in a batch of begins, and in one of acks.
    batches: (usize, usize),
    /// A bound on the roots that is always there, and low.
    bounded: bool,
    /// An idle timeout. The clock does not go backwards then.
    idles: bool,
    /// Settings are chosen as the property tests do: a table that is full and a tracker without
    /// timeouts are less likely.
    likely: bool,
}

impl Mix {
    /// What the kept corpus was made for.
    pub(crate) const KEPT: Mix = Mix {
        ops: [12, 15, 15, 5, 5, 8, 4, 4, 3, 3, 3, 1, 1, 1, 0, 0, 0, 0, 0, 0],
        inits: [3, 3, 3],
        clock: [4, 8, 2, 6, 6, 2, 1, 2],
        batches: (200, 100),
        bounded: false,
        idles: false,
        likely: false,
    };

    /// Weights of issued roots, of chosen ones, and of early arrivals.
    pub const fn new(issued: u8, chosen: u8, early: u8) -> Mix {
        let init = 3 * chosen + 2 * early;
        Mix {
            // rustfmt would give each weight a line of its own.
            #[rustfmt::skip]
            ops: [
                3 * issued, init, 12, 3, 4, 8, 4, 4, 0, 0, 0, 0, 1, 1,
                early, early, early, 1, 1, 1,
            ],
            inits: [3 * chosen, 2 * early, 0],
            clock: [4, 8, 2, 6, 6, 0, 0, 0],
            batches: (2999, 499),
            bounded: false,
            idles: false,
            likely: true,
        }
    }

    /// Thousands of roots at once, and drains.
    pub const fn with_batches(mut self, weight: u8) -> Mix {
        (self.ops[8], self.ops[9], self.ops[10], self.ops[11]) = (weight, weight, weight, weight);
        self
    }

    /// The clock jumps by years.
    pub const fn with_years(mut self, weight: u8) -> Mix {
        self.clock[5] = weight;
        self
    }

    /// The clock goes backwards.
    pub const fn with_a_clock_that_goes_back(mut self, weight: u8) -> Mix {
        (self.clock[6], self.clock[7]) = (weight, weight);
        self
    }

    /// A root without an ack for a while ends before its timeout.
    pub const fn with_idle_timeouts(mut self) -> Mix {
        self.idles = true;
        self
    }

    /// A low bound on the roots.
    pub const fn bounded(mut self) -> Mix {
        self.bounded = true;
        self
    }
}

/// Which of these weights.
fn weighted(bytes: &mut Unstructured<'_>, weights: &[u8]) -> Result<usize> {
    let all: u16 = weights.iter().copied().map(u16::from).sum();
    let mut at = bytes.int_in_range(0..=all - 1)?;
    let lies_here = |&weight: &u8| {
        let here = at < u16::from(weight);
        at = at.saturating_sub(u16::from(weight));
        here
    };
    Ok(weights.iter().position(lies_here).expect("it is below their sum"))
}

fn pick(bytes: &mut Unstructured<'_>, weights: &[u8]) -> Result<Pick> {
    let n = u64::from(bytes.arbitrary::<u16>()?);
    Ok(match weighted(bytes, weights)? {
        0 => Pick::Pool(n),
        1 => Pick::Recent(n),
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
        19 => Kind::Nanos(YEAR),
        20 => Kind::Never,
        21 => Kind::Nanos(0),
        22 => Kind::TooLong,
        _ => Kind::Longest,
    })
}

/// A culprit. The largest id is among them.
fn culprit(bytes: &mut Unstructured<'_>, n: u64) -> Result<Option<u64>> {
    perhaps(bytes, |_| Ok(if n % 9 == 8 { u64::MAX } else { n % 9 }))
}

/// One of these; those before `common` only where settings are as the property tests choose them.
fn one_of<T: Copy>(
    bytes: &mut Unstructured<'_>,
    likely: bool,
    all: &[T],
    common: usize,
) -> Result<T> {
    bytes.choose(&all[if likely { 0 } else { common }..]).copied()
}

impl Ack {
    fn clock(&self, bytes: &mut Unstructured<'_>) -> Result<Move> {
        Ok(match weighted(bytes, &self.0.clock)? {
            0 => Move::Nanos(bytes.int_in_range(0..=4)?),
            1 => Move::Ticks(bytes.int_in_range(0..=3_999)?),
            2 => Move::Ticks(bytes.int_in_range(0..=399_999)?),
            3 => Move::Due(0),
            4 => Move::Due(1),
            5 => Move::Nanos(YEAR * bytes.int_in_range(1..=8u64)?),
            6 => Move::Back(bytes.int_in_range(0..=1_000_000_000_000)?),
            _ => Move::BackTicks(bytes.int_in_range(0..=4_999)?),
        })
    }
}

impl Histories for Ack {
    type Setup = Setup;
    type Op = Op;

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        const ANY: &[u8] = &[3, 3, 3];
        const POOL: &[u8] = &[1];
        let (n, (begins, acks)) = (u64::from(bytes.arbitrary::<u16>()?), self.0.batches);
        Ok(match weighted(bytes, &self.0.ops)? {
            0 => Op::Issue(xor(bytes)?, n, kind(bytes)?),
            1 => Op::Init(pick(bytes, &self.0.inits)?, xor(bytes)?, n, kind(bytes)?),
            2 => Op::Ack(pick(bytes, ANY)?, xor(bytes)?),
            3 => Op::Fail(pick(bytes, ANY)?, culprit(bytes, n)?),
            4 => Op::Reset(pick(bytes, ANY)?, kind(bytes)?),
            5 => Op::Clock(self.clock(bytes)?),
            6 => Op::Poll(bytes.int_in_range(1..=39)?),
            7 => Op::Settle(*bytes.choose(&[usize::MAX, 1, 7, 99])?),
            8 => Op::IssueBatch(bytes.int_in_range(1..=begins)?),
            9 => Op::InitBatch(n, bytes.int_in_range(1..=begins)?),
            10 => Op::AckBatch(bytes.arbitrary()?, n, bytes.int_in_range(1..=acks)?),
            11 => Op::Drain(bytes.arbitrary()?),
            12 => Op::FailAll(n),
            13 => Op::Look,
            // Only the property tests have these: early arrivals, and small batches.
            14 => Op::Ack(pick(bytes, POOL)?, xor(bytes)?),
            15 => Op::Fail(pick(bytes, POOL)?, culprit(bytes, n)?),
            16 => Op::Reset(pick(bytes, POOL)?, kind(bytes)?),
            17 => Op::IssueBatch(bytes.int_in_range(1..=39)?),
            18 => Op::InitBatch(n % 96, bytes.int_in_range(1..=39)?),
            _ => Op::AckBatch(bytes.arbitrary()?, n, bytes.int_in_range(1..=39)?),
        })
    }

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        let Mix { bounded, likely, idles, .. } = self.0;
        const MS: u64 = 1_000_000;
        let intervals = [MS, MS, MS, 10_000, MS, 12_345_678, 1_000_000_000, 3_600_000_000_000];
        let ticks = |bytes: &mut Unstructured<'_>| {
            let most = one_of(bytes, likely, &[999, 999, 999, 5, 1, 5, 999, 999_999_999], 4)?;
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
        const MANY: usize = 65_536;
        let held = [MANY, MANY, MANY, MANY, MANY, MANY, 0, 1, 2, 9, 39, MANY];
        Ok(Setup {
            interval: Duration::from_nanos(one_of(bytes, likely, &intervals, 3)?),
            timeout: match likely {
                true => (bytes.int_in_range(0..=7u8)? > 0).then(|| ticks(bytes)).transpose()?,
                false => perhaps(bytes, ticks)?,
            },
            idle_timeout: idles.then(|| ticks(bytes)).transpose()?,
            early_timeout: ticks(bytes)?,
            early_capacity: one_of(bytes, likely, &held, 6)?,
            capacity: match (bounded, likely) {
                (true, _) => Some(bytes.int_in_range(1..=23)?),
                (_, true) => match bytes.int_in_range(0..=5u8)? {
                    0 => Some(bytes.int_in_range(1..=39)?),
                    1 => Some(bytes.int_in_range(40..=2999)?),
                    _ => None,
                },
                _ => perhaps(bytes, |bytes| bytes.int_in_range(1..=300))?,
            },
            shards: shards(bytes)?,
            sampling: *bytes.choose(&[0.0, 0.5, 1.0])?,
            start: *bytes.choose(&[0, 1, u64::from(u32::MAX), 1 << 60])?,
            seed: bytes.arbitrary()?,
            keys: *bytes.choose(&keys)?,
            end: *bytes.choose(&[
                ShutdownMode::Cancel,
                ShutdownMode::Return,
                ShutdownMode::Drain(Duration::ZERO),
            ])?,
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup)?;
        each(ops, |_, op| run.step(op))?;
        run.finish()
    }
}
