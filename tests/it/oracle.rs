//! Long random histories of one tracker beside a plain sequential oracle, on a manual clock.
//!
//! Every result, every outcome and, after each step, the number of entries must be what the oracle says. `oracle/model.rs` is
//! the oracle, `oracle/drive.rs` compares the two; here is what histories are made of.
//!
//! For a longer run: `EXPIRY_PROP_CASES=5000 cargo test --release --test it oracle`, and `EXPIRY_PROP_SEED=7` for other histories.

mod drive;
use crate::support::histories;
mod model;

use drive::{Keys, Kind, Move, Op, Pick, Run, Setup, Xor};
use expiry::Fate;
use proptest::prelude::*;
use proptest::strategy::Union;
use std::time::Duration;

/// Weights of the steps, for histories of different character.
#[derive(Clone, Copy)]
struct Mix {
    issued: u32,
    chosen: u32,
    early: u32,
    batches: u32,
    clock: u32,
    back: u32,
    years: u32,
}

const PLAIN: Mix = Mix { issued: 4, chosen: 4, early: 2, batches: 0, clock: 4, back: 0, years: 0 };

fn pick() -> impl Strategy<Value = Pick> {
    prop_oneof![
        2 => any::<u64>().prop_map(Pick::Pool),
        4 => any::<u64>().prop_map(Pick::Recent),
        3 => any::<u64>().prop_map(Pick::Issued),
    ]
}

fn xor() -> impl Strategy<Value = Xor> {
    prop_oneof![1 => Just(Xor::Zero), 8 => Just(Xor::Rest), 6 => Just(Xor::Random)]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        12 => Just(Kind::Default),
        3 => Just(Kind::Tick),
        4 => (1..20_000u64).prop_map(Kind::Short),
        1 => Just(Kind::Year),
        1 => Just(Kind::Never),
        1 => Just(Kind::Zero),
        1 => Just(Kind::TooLong),
        1 => Just(Kind::Longest),
    ]
}

/// A choice between those whose weight is not zero.
fn weighted<T: std::fmt::Debug>(
    choices: impl IntoIterator<Item = (u32, BoxedStrategy<T>)>,
) -> impl Strategy<Value = T> {
    let choices = choices.into_iter().filter(|&(weight, _)| weight > 0);
    Union::new_weighted(choices.collect())
}

fn clock(mix: Mix) -> impl Strategy<Value = Move> {
    weighted([
        (4, (0..5u64).prop_map(Move::Nanos).boxed()),
        (8, (0..4_000u64).prop_map(Move::Ticks).boxed()),
        (2, (0..400_000u64).prop_map(Move::Ticks).boxed()),
        (6, Just(Move::Due(0)).boxed()),
        (6, Just(Move::Due(1)).boxed()),
        (mix.years, (1..9u64).prop_map(Move::Years).boxed()),
        (mix.back, (0..1_000_000_000_000u64).prop_map(Move::Back).boxed()),
        (mix.back, (0..5_000u64).prop_map(Move::BackTicks).boxed()),
    ])
}

fn op(mix: Mix) -> impl Strategy<Value = Op> {
    let culprit = || {
        prop_oneof![
            2 => Just(None),
            4 => (0..9u64).prop_map(Some),
            1 => Just(Some(u64::MAX)),
        ]
    };
    let pool = || any::<u64>().prop_map(Pick::Pool);
    let recent = || any::<u64>().prop_map(Pick::Recent);
    let budget = prop_oneof![
        2 => Just(usize::MAX),
        1 => Just(1usize),
        1 => 2..100usize,
    ];
    let issue = (xor(), any::<u64>(), kind()).prop_map(|(x, o, t)| Op::Issue(x, o, t));
    let init =
        |pick| (pick, xor(), any::<u64>(), kind()).prop_map(|(p, x, o, t)| Op::Init(p, x, o, t));
    let ack = |pick| (pick, xor()).prop_map(|(p, x)| Op::Ack(p, x));
    let fail = |pick| (pick, culprit()).prop_map(|(p, by)| Op::Fail(p, by));
    let reset = |pick| (pick, kind()).prop_map(|(p, t)| Op::Reset(p, t));
    let issue_batch = |most: usize| (1..most).prop_map(Op::IssueBatch);
    let init_batch =
        |keys: u64, most: usize| (0..keys, 1..most).prop_map(|(f, n)| Op::InitBatch(f, n));
    let ack_batch = |most: usize| {
        (any::<bool>(), any::<u64>(), 1..most).prop_map(|(i, f, n)| Op::AckBatch(i, f, n))
    };
    weighted([
        (3 * mix.issued, issue.boxed()),
        (3 * mix.chosen, init(pool().boxed()).boxed()),
        (2 * mix.early, init(recent().boxed()).boxed()),
        (mix.early, ack(pool().boxed()).boxed()),
        (mix.early, fail(pool().boxed()).boxed()),
        (mix.early, reset(pool().boxed()).boxed()),
        (12, ack(pick().boxed()).boxed()),
        (3, fail(pick().boxed()).boxed()),
        (4, reset(pick().boxed()).boxed()),
        (2 * mix.clock, clock(mix).prop_map(Op::Clock).boxed()),
        (mix.clock, (1..40usize).prop_map(Op::Poll).boxed()),
        (mix.clock, budget.prop_map(Op::Settle).boxed()),
        (mix.batches, issue_batch(3000).boxed()),
        (mix.batches, init_batch(1 << 16, 3000).boxed()),
        (mix.batches, ack_batch(500).boxed()),
        (mix.batches, any::<bool>().prop_map(Op::Drain).boxed()),
        (1, issue_batch(40).boxed()),
        (1, init_batch(96, 40).boxed()),
        (1, ack_batch(40).boxed()),
        (1, any::<u64>().prop_map(Op::FailAll).boxed()),
        (1, Just(Op::Look).boxed()),
    ])
}

fn setup() -> impl Strategy<Value = Setup> {
    let interval = prop_oneof![
        1 => Just(Duration::from_micros(10)),
        4 => Just(Duration::from_millis(1)),
        1 => Just(Duration::from_nanos(12_345_678)),
        1 => Just(Duration::from_secs(1)),
        1 => Just(Duration::from_secs(3600)),
    ];
    let ticks = || {
        prop_oneof![
            2 => Just((1u64, 0u64)),
            2 => (1..6u64, 0..1000u64),
            6 => (1..1000u64, 0..1000u64),
            1 => (1_000_000..1_000_000_000u64, 0..1000u64),
        ]
    };
    let keys = prop_oneof![
        Just(Keys::Sequential),
        Just(Keys::EqualLowBits),
        Just(Keys::EqualHighBits),
        Just(Keys::Extremes),
        Just(Keys::DenseBlocks),
        Just(Keys::Random),
    ];
    let capacity = prop_oneof![4 => Just(None), 1 => (1..40usize).prop_map(Some),
                               1 => (40..3000usize).prop_map(Some)];
    let early_capacity = prop_oneof![1 => 0..3usize, 1 => 3..40usize, 4 => Just(65_536usize)];
    let shards = prop_oneof![Just(1usize), Just(2), Just(8)];
    let sampling = prop_oneof![1 => Just(0.0), 1 => Just(0.5), 2 => Just(1.0)];
    let start = prop_oneof![Just(0u64), any::<u32>().prop_map(u64::from), Just(1u64 << 60)];
    let end =
        prop_oneof![Just(Fate::Cancel), Just(Fate::Return), Just(Fate::Drain(Duration::ZERO))];
    (
        (interval, prop_oneof![1 => Just(None), 7 => ticks().prop_map(Some)], ticks()),
        (early_capacity, capacity, shards, sampling),
        (start, any::<u64>(), keys, end),
    )
        .prop_map(|((interval, timeout, early_timeout), counts, (start, seed, keys, end))| {
            let (early_capacity, capacity, shards, sampling) = counts;
            Setup {
                interval,
                timeout,
                early_timeout,
                early_capacity,
                capacity,
                shards,
                sampling,
                start,
                seed,
                keys,
                end,
            }
        })
}

fn histories(cases: u32, length: usize, mix: Mix, setup: impl Strategy<Value = Setup>) {
    histories::run((cases, 7), setup, (op(mix), length), |setup, ops| {
        let mut run = Run::new(setup)?;
        for op in ops {
            run.step(op)?;
        }
        run.finish()
    });
}

/// A1, A2, A4, A9, A10, A12: everything mixed, the clock only going forwards.
#[test]
fn mixed_histories_match_the_oracle() {
    histories(20, 3000, PLAIN, setup());
}

/// A13: issued roots alone, many of them late or doubled.
#[test]
fn histories_of_issued_roots_match_the_oracle() {
    let mix = Mix { issued: 10, chosen: 0, early: 0, ..PLAIN };
    histories(10, 3000, mix, setup());
}

/// A2, A14: mostly early arrivals, with small caps.
#[test]
fn histories_of_early_arrivals_match_the_oracle() {
    let mix = Mix { issued: 0, chosen: 1, early: 12, ..PLAIN };
    histories(14, 3000, mix, setup());
}

/// F5, F6, F8: thousands of roots at once from a tiny table, drained, and filled again.
#[test]
fn histories_with_growth_and_drains_match_the_oracle() {
    let mix = Mix { batches: 2, ..PLAIN };
    histories(10, 300, mix, setup());
}

/// B7, F3: jumps of years between the steps.
#[test]
fn histories_with_jumps_of_years_match_the_oracle() {
    let mix = Mix { years: 3, ..PLAIN };
    histories(14, 2000, mix, setup());
}

/// The contract of `Clock`: if it goes backwards, nothing expires early and nothing is lost.
#[test]
fn histories_with_a_clock_that_goes_backwards_match_the_oracle() {
    let mix = Mix { back: 3, ..PLAIN };
    histories(14, 2000, mix, setup());
}

/// F5: with a bound on the capacity that is often met.
#[test]
fn histories_at_the_capacity_match_the_oracle() {
    let mix = Mix { early: 4, ..PLAIN };
    let bounded = (setup(), 1..24usize)
        .prop_map(|(setup, capacity)| Setup { capacity: Some(capacity), ..setup });
    histories(14, 3000, mix, bounded);
}
