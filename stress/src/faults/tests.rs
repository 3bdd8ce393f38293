//! The watchdog.

use super::*;
use crate::options::{parsed, Scenario};

fn options(args: &str) -> Faults {
    match parsed(&format!("faults {args}")) {
        Scenario::Faults(options) => options,
        _ => unreachable!(),
    }
}

fn ground(checks: &Arc<Checks>) -> Ground {
    let options = Arc::new(options("--size 1000 --limit 100ms"));
    Ground::new("x", Kind::Map, &options, checks)
}

#[test]
fn a_fault_that_gets_stuck_is_a_violation() {
    let checks = Arc::new(Checks::new(&["x", NOBODY_STUCK]));
    let fault: Fault = ("x", |_| true, |_| std::thread::park());
    inject(fault, ground(&checks), &checks);
    assert_eq!(checks.failing(), [NOBODY_STUCK]);
}

#[test]
fn a_fault_that_panics_is_a_violation() {
    let checks = Arc::new(Checks::new(&["x", NOBODY_STUCK]));
    let fault: Fault = ("x", |_| true, |_| std::panic::resume_unwind(Box::new("planned")));
    inject(fault, ground(&checks), &checks);
    assert_eq!(checks.failing(), [NOBODY_STUCK]);
    assert!(checks.verdict().1[0].contains("planned"));
}
