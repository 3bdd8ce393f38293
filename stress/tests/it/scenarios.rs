//! The scenarios of one engine, end to end through the binary, about a second each.

use crate::common::{count, run, with_all};

/// Everything that can happen to roots, often, with timeouts that pass within the second.
const HARD: &str = "ack --fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.02 --late-rate 0.1 \
     --handoff-rate 0.2 --timeout 100ms --interval 1ms --in-flight 4000 --threads 3 --allowance 5s";

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
    let report = run("ack --seconds 1 --rate 5000 --in-flight 4000 --allowance 20s --threads 2");
    let since = &report["latency"]["issue_since_due"];
    assert_eq!(since["count"], report["counts"]["issued"]);
    let issued = count(&report, "issued");
    assert!((1..6_000).contains(&issued), "{issued}");
}

#[test]
fn a_backend_that_fails_behind_a_map() {
    let counts = ["evicted", "expired", "removed", "replaced", "failed_for_others"];
    for seed in 3..6 {
        with_all(&counts, 0.5, |seconds| {
            run(&format!("cache --seconds {seconds} --threads 4 --allowance 1m --seed {seed}"))
        });
    }
}

#[test]
fn growth_of_all_kinds_and_back() {
    let report = run("growth --entries 20000 --threads 3 --readers 2");
    assert_eq!(count(&report, "inserted"), 60_000);
}

#[test]
fn a_bounded_engine_lets_in_as_many_as_there_is_room_for() {
    let report = run("growth --bounded --entries 5000 --threads 3");
    // Each kind is full, and full again when a tenth has made room.
    assert_eq!(count(&report, "inserted"), 3 * 5500);
}

#[test]
fn what_threads_do_to_all_faces_is_linearizable() {
    let report = run("histories --seconds 1 --operations 2000");
    assert!(count(&report, "rounds") >= 14, "{report}");
    assert!(count(&report, "operations") > 10 * 3 * 2000, "{report}");
    assert!(count(&report, "polls") > 0);
    // Calls have overlapped, and not all in the same way.
    assert!(count(&report, "configurations_most") > 1, "{report}");
}

#[test]
fn one_key_and_four_threads() {
    for on in ["map", "queue", "acks", "roots", "sessions", "table"] {
        let args = "--keys 1 --threads 4 --seconds 0.1 --operations 1000 --seed 5";
        let report = run(&format!("histories --on {on} {args}"));
        assert!(count(&report, "histories") >= count(&report, "rounds"), "{report}");
    }
}

#[test]
fn every_fault_is_borne() {
    let report = run("faults --size 2000 --threads 2 --stall 50ms");
    assert_eq!(report["checks"].as_object().unwrap().len(), 10);
    assert_eq!(count(&report, "faults"), 35);
    assert!(count(&report, "operations") > 35 * 200);
    if cfg!(all(target_os = "linux", target_pointer_width = "64")) {
        assert!(count(&report, "pages_refused") > 0 && count(&report, "boxes_refused") > 0);
    }
}

#[test]
fn every_attack_is_borne() {
    let report = run("hostile --size 1000");
    assert_eq!(count(&report, "attacks"), 10);
    let ratios = report["figures"].as_object().unwrap();
    assert!(ratios.values().all(|ratio| ratio.as_f64() > Some(0.0)));
}
