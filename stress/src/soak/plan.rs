//! What a soak runs: of each cycle, the arguments of its runs.

use std::path::{Path, PathBuf};

/// Of one cycle and place: what varies.
struct Turn {
    seed: u64,
    cycle: usize,
    seconds: f64,
}

impl Turn {
    /// One of these, another one in the next cycle.
    fn of<T: Copy>(&self, some: &[T]) -> T {
        some[self.cycle % some.len()]
    }
}

/// The arguments of a scenario's run, without its seed.
type Arguments = fn(&Turn, &Path) -> String;

/// The scenarios of a cycle, each with what varies.
const RUNS: [(&str, Arguments); 11] = [
    ("ack", |turn, _| {
        format!(
            "ack --ids issued --order {} --batch {} --threads {} --in-flight {} --seconds {} --timeout 500ms --allowance 2m",
            turn.of(&["fifo", "shuffled"]),
            turn.of(&[1, 16, 64]),
            turn.of(&[2, 3, 4, 8, 16]),
            turn.of(&[1_000, 100_000, 500_000]),
            turn.seconds
        )
    }),
    ("ack", |turn, _| {
        format!(
            "ack --ids chosen --early-rate 0.1 --fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.01 --order {} --batch {} \
             --threads {} --in-flight {} --seconds {} --timeout 500ms --allowance 2m",
            turn.of(&["shuffled", "fifo"]),
            turn.of(&[16, 1]),
            turn.of(&[3, 2, 8, 4]),
            turn.of(&[4_000, 200_000]),
            turn.seconds
        )
    }),
    ("sessions", |turn, _| {
        format!(
            "sessions --contended {} --threads {} --seconds {}",
            turn.of(&["", "--strings"]),
            turn.of(&[2, 3, 4]),
            turn.seconds
        )
    }),
    ("ttl", |turn, _| {
        format!(
            "ttl --row {} {} --threads {} --memory 64 --seconds {} --allowance 2m",
            turn.of(&["23", "53", "9", "7"]),
            turn.of(&["--integers", ""]),
            turn.of(&[2, 3, 8]),
            turn.seconds
        )
    }),
    ("wordcount", |turn, text| {
        format!(
            "wordcount {} --drop {} --fail 0.002 --duplicate 0.002 --timeout 500ms --threads {} --max-pending {}",
            text.display(),
            turn.of(&["0.0005", "0", "0.001"]),
            turn.of(&[2, 3]),
            turn.of(&[65_536, 1_000])
        )
    }),
    ("growth", |turn, _| {
        format!(
            "growth {} --threads {} --readers {} --entries {:.0}",
            turn.of(&["", "--bounded"]),
            turn.of(&[2, 4, 3, 8]),
            turn.of(&[1, 2]),
            (turn.seconds * 1e5).clamp(1e4, turn.of(&[1e6, 3e6, 2e5]))
        )
    }),
    ("mass-expiry", |turn, _| {
        format!(
            "mass-expiry --intervals {} --pollers {} --budget {} --threads {} --entries {:.0} --seconds {} --allowance 2m",
            turn.of(&[1, 10, 100]),
            turn.of(&[0, 1, 2]),
            turn.of(&[4096, 100, 1_000_000]),
            turn.of(&[2, 4, 3]),
            (turn.seconds * 1e5).clamp(1e4, turn.of(&[2e6, 2e5])),
            turn.seconds / 2.0
        )
    }),
    ("faults", |turn, _| {
        format!(
            "faults --size {} --threads {} --stall {}ms",
            (turn.seconds * 1e3).clamp(2_000.0, turn.of(&[2e4, 1e5, 5e4])) as u64,
            turn.of(&[4, 2, 8]),
            (turn.seconds * 20.0).clamp(50.0, 1_000.0) as u64
        )
    }),
    ("hostile", |turn, _| {
        let size = (turn.seconds * 5e3).clamp(1_000.0, turn.of(&[2e4, 1e5])) as u64;
        format!("hostile --size {size}")
    }),
    ("histories", |turn, _| {
        format!(
            "histories --threads {} --keys {} --operations {} --seconds {}",
            turn.of(&[3, 2, 4]),
            turn.of(&[4, 1, 16, 2]),
            turn.of(&[20_000, 2_000]),
            turn.seconds
        )
    }),
    ("topology", |turn, text| {
        // Without faults a topology's throughput is another kind of load. Nothing may time out then, however busy the machine is.
        format!(
            "wordcount {} --timeout 10m --threads {} --spouts {}",
            text.display(),
            turn.of(&[1, 2, 4]),
            turn.of(&[1, 2])
        )
    }),
];

/// The names that `--only` takes.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = RUNS.iter().map(|run| run.0).collect();
    names.dedup();
    names
}

/// What runs in each cycle.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Places in [`RUNS`].
    chosen: Vec<usize>,
    also: Vec<String>,
    seconds: f64,
    seed: u64,
    text: PathBuf,
}

impl Plan {
    /// Those runs of `only` (all, if that is empty and there is no `also`), and `also`, of about so many seconds each.
    pub fn new(only: &[String], also: &[String], seconds: f64, seed: u64, text: PathBuf) -> Self {
        let all = only.is_empty() && also.is_empty();
        let asked = |at: &usize| all || only.iter().any(|name| name == RUNS[*at].0);
        Plan {
            chosen: (0..RUNS.len()).filter(asked).collect(),
            also: also.to_vec(),
            seconds,
            seed,
            text,
        }
    }

    /// How many runs a cycle has.
    pub fn runs(&self) -> usize {
        self.chosen.len() + self.also.len()
    }

    /// The arguments of a run.
    pub fn arguments(&self, cycle: u64, place: usize) -> String {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(cycle * 1_009 + place as u64);
        if let Some(&at) = self.chosen.get(place) {
            let turn = Turn {
                seed,
                // Not all of them at their first variant at the same time.
                cycle: cycle as usize + at,
                seconds: self.seconds,
            };
            return format!("{} --seed {}", RUNS[at].1(&turn, &self.text), turn.seed);
        }
        self.also[place - self.chosen.len()].clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Cli;
    use clap::Parser;

    #[test]
    fn all_arguments_are_accepted_and_change_from_cycle_to_cycle() {
        let plan = Plan::new(&[], &[], 20.0, 1, "/somewhere".into());
        assert_eq!(plan.runs(), RUNS.len());
        for place in 0..plan.runs() {
            let mut seen = std::collections::HashSet::new();
            for cycle in 0..20 {
                let arguments = plan.arguments(cycle, place);
                let words = ["stress"].into_iter().chain(arguments.split_whitespace());
                let parsed = Cli::try_parse_from(words);
                assert!(parsed.is_ok_and(|cli| cli.scenario.is_some()), "{arguments}");
                seen.insert(arguments);
            }
            assert_eq!(seen.len(), 20);
        }
    }
}
