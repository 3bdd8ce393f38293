//! `SessionTracker`.

mod drive;

use crate::{capacity, each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use drive::{Asked, Op, Run, Setup};
use std::time::Duration;

/// Histories of a `SessionTracker`.
pub struct Sessions {
    /// Whether the clock jumps by years, by more than a lease can tell.
    years: bool,
    /// The most sessions that are touched at once.
    batch: u8,
}

impl Sessions {
    /// Those of the property tests.
    pub fn random(years: bool) -> Self {
        Sessions { years, batch: 149 }
    }

    pub(crate) fn kept(bytes: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Sessions { years: bytes.arbitrary()?, batch: 40 })
    }
}

fn asked(bytes: &mut Unstructured<'_>) -> Result<Asked> {
    Ok(match bytes.int_in_range(0..=17u8)? {
        0..=9 => Asked::Intervals(bytes.int_in_range(1..=39)?),
        10..=12 => Asked::Intervals(bytes.int_in_range(1..=99_999)?),
        13..=15 => Asked::Nanos(bytes.arbitrary()?),
        16 => Asked::Zero,
        _ => Asked::Longest,
    })
}

impl Histories for Sessions {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        let intervals = [10_000, 1_000_000, 12_345_678, 2_000_000_000];
        let bounds = |bytes: &mut Unstructured<'_>| {
            let least = bytes.int_in_range(1..=9)?;
            Ok((least, least + bytes.int_in_range(0..=99)?))
        };
        Ok(Setup {
            interval: Duration::from_nanos(*bytes.choose(&intervals)?),
            bounds: perhaps(bytes, bounds)?,
            // A create that makes room catches up with a jump in part, which the model does not follow.
            capacity: capacity(bytes, self.batch > 40, 29)?.filter(|_| !self.years),
            shards: *bytes.choose(&[1, 2, 8])?,
            collects: bytes.arbitrary()?,
        })
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let pick = u64::from(bytes.arbitrary::<u16>()?);
        let owner = bytes.int_in_range(0..=3u64)?;
        Ok(match bytes.int_in_range(0..=83u8)? {
            0..=11 => Op::Create(asked(bytes)?, owner, bytes.arbitrary()?),
            12..=15 => Op::Track(pick, asked(bytes)?, owner, bytes.arbitrary()?),
            16..=23 => Op::Touch(pick),
            24..=27 => Op::TouchFor(pick, asked(bytes)?),
            28..=33 => Op::TouchBy(pick),
            34..=36 => Op::TouchByFor(pick, asked(bytes)?),
            37 => {
                let n = bytes.int_in_range(0..=self.batch)?;
                let item = |_| Ok((bytes.arbitrary::<u16>()?.into(), asked(bytes)?));
                Op::Batch((0..n).map(item).collect::<Result<_>>()?)
            }
            38..=40 => Op::SetClosing(pick),
            41..=44 => Op::Remove(pick),
            45..=48 => Op::Check(pick, owner),
            49..=51 => Op::SetOwner(pick, owner),
            52 | 53 => Op::Upgrade(pick),
            54..=56 => Op::TakeTouched,
            57..=60 => Op::Advance(Asked::Intervals(bytes.int_in_range(1..=29)?)),
            61..=64 => Op::Advance(Asked::Nanos(bytes.arbitrary()?)),
            65..=69 => Op::ToTheNext,
            70..=73 if self.years => Op::Years(bytes.int_in_range(1..=3)?),
            70..=80 => Op::Poll,
            _ => Op::PollBriefly(bytes.int_in_range(1..=19)?),
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup);
        each(ops, |at, op| {
            run.step(op)?;
            if at % 16 == 0 {
                run.look()?;
            }
            Ok(())
        })?;
        run.finish()
    }
}
