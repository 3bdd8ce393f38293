//! The course of a root's life, drawn when it is issued.

use crate::error::Error;
use crate::mix::{mix, STEP};
use crate::options::{Ack, Ids};
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

#[derive(Debug, Clone)]
pub struct Planner {
    fail: f64,
    timeout: f64,
    duplicate: f64,
    reset: f64,
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
            reset: options.reset_rate,
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
            if rng.random_bool(self.reset) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{parsed, Scenario};
    use rand::SeedableRng;

    fn planner(args: &str, threads: usize) -> Result<Planner, Error> {
        let Scenario::Ack(options) = parsed(&format!("ack {args}")) else { unreachable!() };
        Planner::new(&options, threads)
    }

    #[test]
    fn each_kind_has_its_rate() {
        let planner = planner(
            "--fail-rate 0.3 --timeout-rate 0.2 --duplicate-rate 0.1 --handoff-rate 0.5",
            2,
        )
        .unwrap();
        let mut rng = SmallRng::seed_from_u64(1);
        let plans: Vec<Plan> = (0..100_000).map(|_| planner.draw(&mut rng)).collect();
        let share =
            |of: &dyn Fn(&Plan) -> bool| plans.iter().filter(|plan| of(plan)).count() as f64 / 1e5;
        for (kind, rate) in [
            (Kind::Complete, 0.4),
            (Kind::Fail, 0.3),
            (Kind::TimeOut, 0.2),
            (Kind::RepeatLast, 0.05),
            (Kind::RepeatOther, 0.05),
        ] {
            assert!((share(&|plan| plan.kind == kind) - rate).abs() < 0.01, "{kind:?}");
        }
        assert!((share(&|plan| plan.reset > 0) - 0.1).abs() < 0.01);
        assert!((share(&|plan| plan.handoff) - 0.35).abs() < 0.01);
    }

    #[test]
    fn what_cannot_be_is_refused_or_left_out() {
        assert!(planner("--fail-rate 0.9 --timeout-rate 0.2", 2).is_err());
        assert!(planner("--early-rate 0.1", 2).is_err());
        assert!(planner("--early-rate 0.1 --ids chosen", 2).is_ok());
        let alone = planner("--handoff-rate 1 --duplicate-rate 0.5 --edges 1", 1).unwrap();
        let mut rng = SmallRng::seed_from_u64(1);
        assert!((0..1000)
            .map(|_| alone.draw(&mut rng))
            .all(|plan| { !plan.handoff && plan.kind != Kind::RepeatOther }));
    }

    #[test]
    fn edges_are_not_zero_and_differ() {
        let edges: std::collections::HashSet<u64> = (0..1000).map(|n| edge(0, n)).collect();
        assert!(edges.len() == 1000 && !edges.contains(&0));
        assert_eq!(all_edges(9, 2), edge(9, 0) ^ edge(9, 1));
    }
}
