//! `stress histories`, end to end through the binary, a few seconds in all.

use crate::common::{self, count};

fn run(args: &str) -> serde_json::Value {
    common::run(&format!("histories {args}"))
}

#[test]
fn what_threads_do_to_all_faces_is_linearizable() {
    let report = run("--seconds 1 --operations 2000");
    assert!(count(&report, "rounds") >= 14, "{report}");
    assert!(count(&report, "operations") > 10 * 3 * 2000, "{report}");
    assert!(count(&report, "polls") > 0);
    // Calls have overlapped, and not all in the same way.
    assert!(count(&report, "configurations_most") > 1, "{report}");
}

#[test]
fn one_key_and_four_threads() {
    for on in ["map", "queue", "acks", "roots", "sessions", "table"] {
        let report = run(&format!(
            "--on {on} --keys 1 --threads 4 --seconds 0.1 --operations 1000 --seed 5"
        ));
        let histories = count(&report, "histories");
        assert!(histories >= count(&report, "rounds"), "{report}");
    }
}
