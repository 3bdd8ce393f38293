//! Random programs of one tracker beside a plain sequential oracle, on a manual clock: every result, and all that there is after
//! each step, must be what the oracle says. `drive.rs` is the oracle; here is what programs are made of.
//!
//! For a longer run: `EXPIRY_PROP_CASES=1000 cargo test --release --test it sessions::random`, and
//! `EXPIRY_PROP_SEED=7` for other programs.

use super::drive::{Asked, Op, Run, Setup};
use super::histories;
use proptest::prelude::*;
use std::time::Duration;

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        10 => (1..40u32).prop_map(Asked::Intervals),
        3 => (1..100_000u32).prop_map(Asked::Intervals),
        3 => any::<u32>().prop_map(Asked::Nanos),
        1 => Just(Asked::Zero),
        1 => Just(Asked::Longest),
    ]
}

fn op(years: bool) -> impl Strategy<Value = Op> {
    let pick = any::<u64>;
    let owner = || 0..4u64;
    let step = prop_oneof![
        4 => (1..30u32).prop_map(Asked::Intervals),
        2 => any::<u32>().prop_map(Asked::Nanos),
    ];
    prop_oneof![
        12 => (asked(), owner(), any::<bool>()).prop_map(|(t, o, g)| Op::Create(t, o, g)),
        4 => (pick(), asked(), owner(), any::<bool>()).prop_map(|(p, t, o, g)| Op::Track(p, t, o, g)),
        8 => pick().prop_map(Op::Touch),
        4 => (pick(), asked()).prop_map(|(p, t)| Op::TouchFor(p, t)),
        6 => pick().prop_map(Op::TouchBy),
        3 => (pick(), asked()).prop_map(|(p, t)| Op::TouchByFor(p, t)),
        1 => prop::collection::vec((pick(), asked()), 0..150).prop_map(Op::Batch),
        3 => pick().prop_map(Op::SetClosing),
        4 => pick().prop_map(Op::Remove),
        4 => (pick(), owner()).prop_map(|(p, o)| Op::Check(p, o)),
        3 => (pick(), owner()).prop_map(|(p, o)| Op::SetOwner(p, o)),
        2 => pick().prop_map(Op::Upgrade),
        3 => Just(Op::TakeTouched),
        8 => step.prop_map(Op::Advance),
        4 => Just(Op::ToTheNext),
        3 => (1..4u32).prop_map(move |n| if years { Op::Years(n) } else { Op::Poll }),
        6 => Just(Op::Poll),
        2 => (1..20usize).prop_map(Op::PollBriefly),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let interval = prop_oneof![
        Just(Duration::from_micros(10)),
        Just(Duration::from_millis(1)),
        Just(Duration::from_nanos(12_345_678)),
        Just(Duration::from_secs(2)),
    ];
    let bounds = prop_oneof![
        2 => Just(None),
        2 => (1..10u32, 0..100u32).prop_map(|(least, more)| Some((least, least + more))),
    ];
    let capacity = prop_oneof![3 => Just(None), 1 => (1..30usize).prop_map(Some)];
    let shards = prop_oneof![Just(1usize), Just(2), Just(8)];
    (interval, bounds, capacity, shards, any::<bool>()).prop_map(
        |(interval, bounds, capacity, shards, collects)| Setup {
            interval,
            bounds,
            capacity,
            shards,
            collects,
        },
    )
}

fn programs(cases: u32, years: bool) {
    histories::run((cases, 9), setup(), (op(years), 600), |setup, ops| {
        let mut setup = setup.clone();
        if years {
            // Who makes room catches up with a jump in part, which the oracle does not follow.
            setup.capacity = None;
        }
        let mut run = Run::new(&setup);
        for (at, op) in ops.iter().enumerate() {
            run.step(op).map_err(|why| TestCaseError::fail(format!("step {at}, {op:?}: {why}")))?;
            if at % 16 == 0 {
                run.look()?;
            }
        }
        run.finish()
    });
}

/// C5, C9, Q13.
#[test]
fn random_programs_match_the_oracle() {
    programs(60, false);
}

/// C7: with jumps by which a tracker falls behind by more than a lease can tell.
#[test]
fn random_programs_with_jumps_of_years_match_the_oracle() {
    programs(40, true);
}
