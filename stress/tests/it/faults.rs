//! `stress faults` and `stress hostile`, end to end through the binary, small.

use crate::common::{count, run};

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
    assert!(report["figures"]
        .as_object()
        .unwrap()
        .values()
        .all(|ratio| ratio.as_f64() > Some(0.0)));
}
