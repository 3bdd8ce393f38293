//! A build without seeded bugs has none to be injected, and says how to make one that has.
#![cfg(not(expiry_inject))]

use std::process::Command;

#[test]
fn a_build_without_seeded_bugs_refuses_to_inject_one() {
    let stress = || Command::new(env!("CARGO_BIN_EXE_stress"));
    let asked = [
        stress().args(["--inject-bug", "list"]).output(),
        stress()
            .args(["ack", "--seconds", "0.01", "--inject-bug", "lost-ack/1000"])
            .output(),
        stress()
            .args(["ack", "--seconds", "0.01"])
            .env("EXPIRY_INJECT", "lost-ack")
            .output(),
    ];
    for output in asked {
        let output = output.unwrap();
        let why = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{why}");
        assert!(
            why.contains("--cfg expiry_inject") && output.stdout.is_empty(),
            "{why}"
        );
    }
}
