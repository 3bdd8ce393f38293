//! `stress ttl`, end to end through the binary, about a second each.

use crate::common::{self, count, with_all};

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("ttl {args}"))
}

#[test]
fn every_row_in_real_time() {
    for row in [9, 11, 23, 53] {
        let report =
            run(&format!("--row {row} --seconds 0.05 --keys 500 --allowance 20s --threads 3"));
        assert!(count(&report, "requests") > 0, "{row}");
        let ends = ["expired", "removed", "replaced", "closed"];
        let ends: u64 = ends.iter().map(|end| count(&report, end)).sum();
        assert_eq!(count(&report, "inserted"), ends, "{row}");
    }
}

#[test]
fn values_end_in_all_ways() {
    with_all(&["expired", "removed", "replaced"], 0.7, |seconds| {
        run(&format!("--seconds {seconds} --keys 2000 --squeeze 2000 --allowance 20s"))
    });
    let report = run("--integers --seconds 0.2 --keys 500 --allowance 20s");
    assert!(count(&report, "deleted") > 0 && count(&report, "not_stored") > 0);
}
