//! The course of a root's life, drawn when it is issued.

use crate::error::Error;
use crate::options::{Ack, Ids};
use model::mix::{mix, STEP};
use rand::rngs::SmallRng;
use rand::Rng;

/// The main event of a root's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// All of its edges are acked.
    #[default]
    Complete,
    /// Some of its edges are acked, then it is failed.
    Fail,
    /// Some of its edges are acked, and it is left to its timeout.
    TimeOut,
    /// All are acked, the last one again: that must change nothing.
    RepeatLast,
    /// All are acked, and one of them again before the last one: its edge is open again, for ever.
    RepeatOther,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Plan {
    pub kind: Kind,
    /// All edges but the first are acked by another thread, at the same time.
    pub handoff: bool,
    /// The first edge is acked before the init.
    pub early: bool,
    /// The timeout is reset once, at about this part of it (in 256ths; 0 for never).
    pub reset: u16,
}

/// Share of the roots left to their timeout whose timeout is reset once.
const RESET: f64 = 0.5;

#[derive(Debug, Clone)]
pub struct Planner {
    fail: f64,
    timeout: f64,
    duplicate: f64,
    handoff: f64,
    early: f64,
    edges: u32,
}

impl Planner {
    /// The plans that the options ask for, for this many threads.
    pub fn new(options: &Ack, threads: usize) -> Result<Self, Error> {
        let sum = options.fail_rate + options.timeout_rate + options.duplicate_rate;
        if sum > 1.0 + 1e-9 {
            return Err(Error::Shares {
                names: "--fail-rate, --timeout-rate and --duplicate-rate",
                sum,
            });
        }
        if options.early_rate > 0.0 && options.ids == Ids::Issued {
            return Err(Error::Option {
                option: "--early-rate",
                why: "is for ids that are known before the init; use --ids chosen".into(),
            });
        }
        Ok(Planner {
            fail: options.fail_rate,
            timeout: options.timeout_rate,
            duplicate: options.duplicate_rate,
            handoff: if threads > 1 { options.handoff_rate } else { 0.0 },
            early: options.early_rate,
            edges: options.edges,
        })
    }

    pub fn draw(&self, rng: &mut SmallRng) -> Plan {
        let mut plan = Plan::default();
        let main: f64 = rng.random();
        if main < self.fail {
            plan.kind = Kind::Fail;
        } else if main < self.fail + self.timeout {
            plan.kind = Kind::TimeOut;
            if rng.random_bool(RESET) {
                // Around the deadline, where it meets the reaper.
                plan.reset = rng.random_range(200..=270);
            }
            return plan;
        } else if main < self.fail + self.timeout + self.duplicate {
            let last = self.edges == 1 || rng.random();
            plan.kind = if last { Kind::RepeatLast } else { Kind::RepeatOther };
            return plan;
        }
        plan.handoff = self.edges > 1 && self.handoff > 0.0 && rng.random_bool(self.handoff);
        plan.early = plan.kind == Kind::Complete && self.early > 0.0 && rng.random_bool(self.early);
        plan
    }
}

/// The id of a root's edge: a function of the root's base, and never zero. So edges need no memory.
#[inline]
pub fn edge(base: u64, number: u32) -> u64 {
    mix(base.wrapping_add(u64::from(number).wrapping_mul(STEP))).max(1)
}

#[inline]
pub fn all_edges(base: u64, edges: u32) -> u64 {
    (0..edges).fold(0, |xor, number| xor ^ edge(base, number))
}
