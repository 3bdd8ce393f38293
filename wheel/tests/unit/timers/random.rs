//! Random histories. Deterministic; for a longer run: `EXPIRY_PROP_CASES=100000 cargo test
//! --release -p expiry-wheel --lib`, and `EXPIRY_PROP_SEED=7` for other histories.

use super::drive;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn any_history_agrees_with_the_oracle() {
    let mut seed = [5; 32];
    seed[..8].copy_from_slice(&setting("EXPIRY_PROP_SEED").unwrap_or(0).to_le_bytes());
    let config = Config {
        cases: setting("EXPIRY_PROP_CASES").map_or(500, |cases| cases as u32),
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let fired = std::cell::Cell::new(0);
    let cases = std::cell::Cell::new(0);
    let ran = runner.run(&prop::collection::vec(any::<u8>(), 0..1500), |bytes| {
        fired.set(fired.get() + drive::run(&bytes));
        cases.set(cases.get() + 1);
        Ok(())
    });
    match ran {
        Ok(()) => {}
        Err(TestError::Fail(reason, bytes)) => panic!("{reason}\n{bytes:?}"),
        Err(error) => panic!("{error}"),
    }
    assert!(fired.get() > 10 * cases.get(), "{} fired", fired.get());
}
