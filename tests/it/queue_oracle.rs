//! Long random histories of one `ExpiryQueue` beside a sequential oracle, on a manual clock, in both forms of its keys: every result,
//! what polls return and in which order, the wait time after each step, and what there is. `queue_oracle/drive.rs` is the oracle; here
//! is what histories are made of.
//!
//! For more and for other histories see `tests/support/histories.rs`.

mod drive;
use crate::support::histories;

use drive::{Key, Op, Pass, Run, Setup, Term, LONGEST};
use proptest::prelude::*;
use std::time::Duration;

fn term() -> impl Strategy<Value = Term> {
    prop_oneof![
        2 => any::<u32>().prop_map(|nanos| Term::Nanos(1 + u64::from(nanos))),
        8 => (1..40u64).prop_map(Term::Intervals),
        4 => (1..1_000_000u64).prop_map(Term::Intervals),
        1 => (1..LONGEST).prop_map(Term::Intervals),
        1 => Just(Term::Zero),
        1 => Just(Term::Longest),
        1 => Just(Term::TooLong),
        1 => Just(Term::Endless),
    ]
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        1 => Just(Pass::Nothing),
        4 => any::<u32>().prop_map(|nanos| Pass::Nanos(nanos.into())),
        8 => (0..30u64).prop_map(Pass::Intervals),
        4 => (0..100_000u64).prop_map(Pass::Intervals),
        2 => (1..100u32).prop_map(Pass::Hours),
        6 => Just(Pass::ToTheNext),
        1 => (1..9u64, 0..3u64).prop_map(|(times, more)| Pass::Jump(times, more)),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = any::<u64>;
    let budget = prop_oneof![0..4usize, 4..100usize];
    prop_oneof![
        16 => (key(), term()).prop_map(|(key, term)| Op::Update(key, term)),
        2 => (key(), 1..200u64, term()).prop_map(|(key, n, term)| Op::UpdateRow(key, n, term)),
        8 => (key(), term()).prop_map(|(key, term)| Op::Touch(key, term)),
        8 => (key(), term()).prop_map(|(pick, term)| Op::TouchBy(pick, term)),
        5 => key().prop_map(Op::Remove),
        12 => pass().prop_map(Op::Pass),
        4 => Just(Op::Poll),
        6 => budget.prop_map(Op::PollInto),
        1 => Just(Op::Dump),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let interval = prop_oneof![
        Just(Duration::from_micros(10)),
        Just(Duration::from_millis(1)),
        Just(Duration::from_nanos(12_345_678)),
        Just(Duration::from_secs(2)),
    ];
    let start = prop_oneof![Just(0), any::<u32>().prop_map(u64::from)];
    let shards = prop_oneof![Just(1usize), Just(2), Just(8)];
    let capacity = prop_oneof![3 => Just(None), 1 => (1..60usize).prop_map(Some)];
    let keys = prop_oneof![1..8u64, 8..80u64, 80..5000u64];
    (interval, start, shards, capacity, keys).prop_map(
        |(interval, start, shards, capacity, keys)| Setup {
            interval,
            start: Duration::from_nanos(start),
            shards,
            capacity,
            keys,
        },
    )
}

fn histories<K: Key>(cases: u32) {
    histories::run((cases, 13), setup(), (op(), 400), |setup, ops| {
        let mut run = Run::<K>::new(setup);
        for &op in ops {
            run.step(op).map_err(|why| TestCaseError::fail(format!("{op:?}: {why}")))?;
        }
        run.finish()
    });
}

#[test]
fn random_histories_of_integers_match_the_oracle() {
    histories::<u64>(100);
}

#[test]
fn random_histories_of_strings_match_the_oracle() {
    histories::<String>(100);
}
