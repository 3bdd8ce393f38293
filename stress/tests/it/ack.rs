//! `stress ack`, end to end through the binary, about a second each.

use crate::common::{self, count, with_all};

/// Everything that can happen, often, with timeouts that pass within the second.
const HARD: &str =
    "--fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.02 --late-rate 0.1 --handoff-rate 0.2 \
                    --timeout 100ms --interval 1ms --in-flight 4000 --threads 3 --allowance 5s";

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("ack {args}"))
}

fn hard(args: &str) -> serde_json::Value {
    let all =
        ["acked", "failed", "timed_out", "repeated", "after_end", "handed_off", "resets_done"];
    with_all(&all, 0.7, |seconds| run(&format!("{HARD} --seconds {seconds} {args}")))
}

#[test]
fn issued_roots_in_order_and_shuffled_in_batches() {
    let report = hard("");
    assert!(count(&report, "refused") > 0);
    assert_eq!(count(&report, "held_late"), 0);
    hard("--order shuffled --batch 16");
}

#[test]
fn chosen_roots_in_order_and_shuffled_in_batches() {
    let report = hard("--ids chosen --early-rate 0.1");
    assert!(count(&report, "early_merged") > 0 && count(&report, "early_expired") > 0);
    let report = hard("--ids chosen --early-rate 0.1 --order shuffled --batch 16");
    assert!(count(&report, "held_late") > 0);
}

/// In an open loop as many roots are begun as are due, whatever becomes of them. Each one's time
/// counts from when it was due.
#[test]
fn an_open_loop_goes_by_its_schedule() {
    let report = run("--seconds 1 --rate 5000 --in-flight 4000 --allowance 20s --threads 2");
    let since = &report["latency"]["issue_since_due"];
    assert_eq!(since["count"], report["counts"]["issued"]);
    let issued = count(&report, "issued");
    assert!((1..6_000).contains(&issued), "{issued}");
    assert_eq!(report["figures"]["asked_trees_per_s"], 5000.0);
}
