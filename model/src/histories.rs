//! One sequential model of each public type, and what any bytes mean as a history of it.
//!
//! The property tests (`tests/it/oracle.rs`) call [`random`], which makes the bytes. The fuzz
//! targets (`fuzz/`) call the functions in [`TARGETS`] with bytes of the fuzzer's, and
//! `tests/corpus.rs` calls them with the bytes that were kept, and two of them with random ones.
//! Both read a history by the same [`Histories`], and run it beside the same model. The wheel has
//! its driver in `wheel/tests/unit/timers`, because that looks inside.

mod ack;
mod bounded;
mod map;
mod pending;
mod pending_map;
mod queue;
mod rotating;
mod sessions;
mod shared;
mod time_cache;
#[cfg(feature = "async")]
mod timeouts;
#[cfg(feature = "topology")]
mod topology;
mod waiting;

pub use ack::{Ack, Mix};
pub use bounded::Bounded;
pub use map::Map;
pub use pending::Pending;
pub use pending_map::PendingUnderKeys;
pub use queue::Queue;
pub use rotating::Rotating;
pub use sessions::Sessions;

use arbitrary::{Result, Unstructured};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::fmt::Debug;

/// Runs the history that bytes are.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("ack", |bytes| from_bytes(bytes, |_| Ok(Ack(Mix::KEPT)))),
    ("map", |bytes| from_bytes(bytes, |_| Ok(Map { loads: false }))),
    ("pending", |bytes| from_bytes(bytes, |_| Ok(Pending))),
    ("queue", queue::queue),
    ("rotating", |bytes| from_bytes(bytes, |_| Ok(Rotating))),
    ("sessions", |bytes| from_bytes(bytes, Sessions::kept)),
    ("time_cache", time_cache::time_cache),
    #[cfg(feature = "async")]
    ("timeouts", timeouts::timeouts),
    #[cfg(feature = "topology")]
    ("topology", topology::topology),
];

/// Runs the history that the bytes encode, by the target of that name.
pub fn run(target: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    found.unwrap_or_else(|| panic!("there is no target {target}")).1(bytes);
}

/// What a history has found.
pub type Found<T = ()> = std::result::Result<T, TestCaseError>;

/// The parts of histories of one type, and how one is run beside the model.
///
/// The bytes in `fuzz/corpus` keep their meaning only while a reader takes the same bytes in the
/// same order. A reader that the property tests call with other choices than the fuzzer has a field
/// that says so.
pub trait Histories {
    /// How the store is built.
    type Setup: Debug;
    /// One step.
    type Op: Debug;

    /// Reads how the store is built.
    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Self::Setup>;

    /// Reads one step.
    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Self::Op>;

    /// Does the same to the store and to the model. The error says where they differ.
    fn run(&self, setup: &Self::Setup, ops: &[Self::Op]) -> Found;
}

/// The longest history that is read from bytes.
const STEPS: usize = 400;

/// Reads as many steps as there are bytes for.
fn steps<T>(
    bytes: &mut Unstructured<'_>,
    mut step: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let mut steps = Vec::new();
    while !bytes.is_empty() && steps.len() < STEPS {
        steps.push(step(bytes)?);
    }
    Ok(steps)
}

/// Takes each step. The error says which step has found it.
fn each<O: Debug>(ops: &[O], mut step: impl FnMut(usize, &O) -> Found) -> Found {
    ops.iter().enumerate().try_for_each(|(at, op)| {
        let found = step(at, op);
        found.map_err(|why| TestCaseError::fail(format!("step {at}, {op:?}: {why}")))
    })
}

/// Runs the history that the bytes encode. Panics with the history if the store and the model
/// differ.
fn from_bytes<H: Histories>(
    bytes: &[u8],
    histories: impl FnOnce(&mut Unstructured<'_>) -> Result<H>,
) {
    let bytes = &mut Unstructured::new(bytes);
    let Ok(histories) = histories(bytes) else { return };
    let Ok(setup) = histories.setup(bytes) else { return };
    let Ok(ops) = steps(bytes, |bytes| histories.op(bytes)) else { return };
    if let Err(why) = histories.run(&setup, &ops) {
        panic!("{why}\n{setup:?}\n{ops:?}");
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")))
}

/// What a reader makes of random bytes. They are repeated, so that a step with many parts has no
/// lack of them.
fn read<T: Debug>(reader: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> impl Strategy<Value = T> {
    proptest::array::uniform32(any::<u8>()).prop_map(move |bytes| {
        reader(&mut Unstructured::new(&bytes.repeat(32))).expect("all bytes mean something")
    })
}

/// Runs so many random histories of up to `length` steps, and panics with the smallest one found
/// that fails. `family` sets the histories of one test apart from another's.
///
/// `EXPIRY_PROP_CASES` sets their number, in place of each test's own; `EXPIRY_PROP_SEED` makes
/// them others. A run without them is deterministic.
pub fn random(histories: impl Histories, (cases, family): (u32, u8), length: usize) {
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
    let op = read(|bytes| histories.op(bytes));
    let strategy = (read(|bytes| histories.setup(bytes)), prop::collection::vec(op, 1..length));
    match runner.run(&strategy, |(setup, ops)| histories.run(&setup, &ops)) {
        Ok(()) => {}
        Err(TestError::Fail(why, (setup, ops))) => {
            panic!("{why}\nsmallest history found, of {} steps:\n{setup:#?}\n{ops:?}", ops.len())
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
}

/// `None` one time in two.
fn perhaps<T>(
    bytes: &mut Unstructured<'_>,
    some: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    bytes.arbitrary::<bool>()?.then(|| some(bytes)).transpose()
}

/// A bound on the entries, one time in two, or one time in four.
fn capacity(bytes: &mut Unstructured<'_>, seldom: bool, most: usize) -> Result<Option<usize>> {
    let bounded = bytes.int_in_range(0..=if seldom { 3u8 } else { 1 })? == 1;
    bounded.then(|| bytes.int_in_range(1..=most)).transpose()
}
