//! Options that make no sense are refused and say why; and runs whose checks fail are failures.

use crate::common::{error, failing, stress, words};

#[test]
fn what_makes_no_sense_is_refused() {
    let cases: [(&str, &[(&str, &str)]); 7] = [
        ("nonsense", &[("", "--help")]),
        (
            "ack",
            &[
                ("--fail-rate 0.9 --timeout-rate 0.9", "at most 1"),
                ("--early-rate 0.5", "--ids chosen"),
                ("--timeout 0s", "is zero"),
                ("--timeout 1ms --interval 1s", "above the timeout"),
                ("--interval 1us", "too short"),
            ],
        ),
        (
            "wordcount src",
            &[
                ("--drop 1.5", "from 0 to 1"),
                ("--drop 0.6 --late 0.6", "at most 1"),
                ("--spouts 4 --max-pending 3", "at least 4"),
                ("--timeout 0s", "is zero"),
                ("--timeout 1ms --interval 1s", "above the timeout"),
                ("--timeout 10000y --interval 1ms", "too long"),
            ],
        ),
        ("histories", &[("--seconds 0", "above 0")]),
        ("faults", &[("--only dancing", "they are reaper_blocked")]),
        ("hostile", &[("--only dancing", "they are weak_hasher")]),
        ("soak", &[("--only dancing", "they are ack")]),
    ];
    for (scenario, options) in cases {
        for (options, why) in options {
            error(&stress(&words(&format!("{scenario} {options}"))), why);
        }
    }
}

/// No thread is punctual to microseconds, without any allowance, thousands of times.
#[test]
fn a_check_that_fails_fails_the_run() {
    let args = "ack --seconds 0.3 --timeout-rate 1 --fail-rate 0 --duplicate-rate 0 \
                --timeout 10ms --interval 10us --allowance 0s --in-flight 1000";
    let json = failing(args, "none_late", "none_early");
    assert_eq!(json["passed"], false);
    assert!(json["violations"].to_string().contains("later than promised"), "{json}");
}
