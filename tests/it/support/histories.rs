//! Random histories: how many and which ones the environment says, and the smallest one found that fails.
//!
//! `EXPIRY_PROP_CASES` is how many, instead of what each test has as its own; `EXPIRY_PROP_SEED` makes them others. A run without
//! them is deterministic.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::fmt::Debug;

/// What a history has found.
pub type Found = Result<(), TestCaseError>;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// Runs so many histories, each of a setup and up to `length` steps, and panics with the smallest one that fails. `family` sets
/// those of one test file apart from another's.
pub fn run<S: Strategy, O: Strategy>(
    (cases, family): (u32, u8),
    setup: S,
    (op, length): (O, usize),
    history: impl Fn(&S::Value, &[O::Value]) -> Found,
) where
    S::Value: Debug,
    O::Value: Debug,
{
    let cases = number("EXPIRY_PROP_CASES").map_or(cases, |n| u32::try_from(n).unwrap_or(u32::MAX));
    let mut seed = [family; 32];
    seed[..8].copy_from_slice(&number("EXPIRY_PROP_SEED").unwrap_or(0).to_le_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: number("PROPTEST_MAX_SHRINK_ITERS").map_or(4000, |n| n as u32),
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = (setup, prop::collection::vec(op, 1..length));
    match runner.run(&strategy, |(setup, ops)| history(&setup, &ops)) {
        Ok(()) => {}
        Err(TestError::Fail(why, (setup, ops))) => {
            panic!("{why}\nsmallest history found, of {} steps:\n{setup:#?}\n{ops:?}", ops.len())
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}
