//! The runs of a soak's cycles, and their arguments.

use std::path::PathBuf;

/// The runs of a cycle: the name for `--only`, and the arguments without a seed. Braces enclose
/// arguments that vary, as [`filled`] says.
const RUNS: [(&str, &str); 11] = [
    (
        "ack",
        "ack --ids issued --order {fifo|shuffled} --batch {1|16|64} --threads {2|3|4|8|16} \
         --in-flight {1000|100000|500000} --seconds {seconds} --timeout 500ms --allowance 2m",
    ),
    (
        "ack",
        "ack --ids chosen --early-rate 0.1 --fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.01 \
         --order {shuffled|fifo} --batch {16|1} --threads {3|2|8|4} --in-flight {4000|200000} \
         --seconds {seconds} --timeout 500ms --allowance 2m",
    ),
    ("sessions", "sessions {|--strings} --threads {2|3|4} --seconds {seconds}"),
    (
        "ttl",
        "ttl --row {23|53|9|7} {--integers|} --threads {2|3|8} --memory 64 --seconds {seconds} \
         --allowance 2m",
    ),
    (
        "wordcount",
        "wordcount {text} --drop {0.0005|0|0.001} --fail 0.002 --duplicate 0.002 --timeout 500ms \
         --threads {2|3} --max-pending {65536|1000}",
    ),
    (
        "growth",
        "growth {|--bounded} --threads {2|4|3|8} --readers {1|2} \
         --entries {100000 x 10000 to 1000000|3000000|200000}",
    ),
    (
        "mass-expiry",
        "mass-expiry --intervals {1|10|100} --pollers {0|1|2} --budget {4096|100|1000000} \
         --threads {2|4|3} --entries {100000 x 10000 to 2000000|200000} --seconds {half} --allowance 2m",
    ),
    (
        "faults",
        "faults --size {1000 x 2000 to 20000|100000|50000} --threads {4|2|8} --stall {20 x 50 to 1000}ms",
    ),
    ("hostile", "hostile --size {5000 x 1000 to 20000|100000}"),
    (
        "histories",
        "histories --threads {3|2|4} --keys {4|1|16|2} --operations {20000|2000} --seconds {seconds}",
    ),
    // Without faults, a topology's throughput is another kind of load. Nothing may time out then,
    // however busy the machine is.
    ("topology", "wordcount {text} --timeout 10m --threads {1|2|4} --spouts {1|2}"),
];

/// A run's arguments in a cycle. `{a|b}` is one of these, another one in the next cycle.
/// `{seconds}` and `{half}` are the run's and half of them. `{N x LEAST to MOST|MOST}` is N for
/// each second, within bounds of which the upper one varies. `{text}` is a folder.
fn filled(run: &str, cycle: usize, seconds: f64, text: &str) -> String {
    let turn = |some: &str| {
        let some: Vec<_> = some.split('|').collect();
        some[cycle % some.len()].to_string()
    };
    // The numbers are those in `RUNS`.
    let number = |text: &str| text.parse::<f64>().expect("a number");
    let mut parts = run.split('{');
    let mut all = parts.next().unwrap_or_default().to_string();
    for (hole, rest) in parts.filter_map(|part| part.split_once('}')) {
        all += &match (hole, hole.split_once(" x ")) {
            ("seconds", _) => seconds.to_string(),
            ("half", _) => (seconds / 2.0).to_string(),
            ("text", _) => text.to_string(),
            (_, Some((each, bounds))) => {
                let (least, most) = bounds.split_once(" to ").expect("two bounds");
                let size = seconds * number(each);
                size.clamp(number(least), number(&turn(most))).floor().to_string()
            }
            (some, None) => turn(some),
        };
        all += rest;
    }
    all
}

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
    /// The runs of `only` and of `also`, of about so many seconds each. If both are empty, all runs
    /// are taken.
    pub fn new(only: &[String], also: &[String], seconds: f64, seed: u64, text: PathBuf) -> Self {
        let all = only.is_empty() && also.is_empty();
        let asked = |at: &usize| all || only.iter().any(|name| name == RUNS[*at].0);
        let chosen = (0..RUNS.len()).filter(asked).collect();
        Plan { chosen, also: also.to_vec(), seconds, seed, text }
    }

    /// How many runs a cycle has.
    pub fn runs(&self) -> usize {
        self.chosen.len() + self.also.len()
    }

    /// The arguments of a run.
    pub fn arguments(&self, cycle: u64, place: usize) -> String {
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(cycle * 1_009 + place as u64);
        let Some(&at) = self.chosen.get(place) else {
            return self.also[place - self.chosen.len()].clone();
        };
        // The runs are not all at their first variant at the same time.
        let cycle = cycle as usize + at;
        let run = filled(RUNS[at].1, cycle, self.seconds, &self.text.display().to_string());
        format!("{run} --seed {seed}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Cli;
    use clap::Parser;

    #[test]
    fn what_is_in_braces_varies() {
        let run = "a {|--b} --c {1|2}ms --d {seconds} {half} {10 x 50 to 1000|60} {text}";
        assert_eq!(filled(run, 0, 20.0, "t"), "a  --c 1ms --d 20 10 200 t");
        assert_eq!(filled(run, 1, 7.5, "t"), "a --b --c 2ms --d 7.5 3.75 60 t");
        assert_eq!(filled(run, 2, 1.0, "t"), "a  --c 1ms --d 1 0.5 50 t");
    }

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
