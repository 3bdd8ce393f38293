//! Each public type beside its oracle: any bytes are a history of one.
//!
//! The oracles, and what does the same to both sides, are those of the property tests, by path. What is here is how a history is read
//! from bytes. `fuzz/` has a target for each of these functions; `tests/corpus.rs` runs what the fuzzer has kept, with a
//! stable compiler. The wheel reads its bytes by itself: `src/wheel/tests`.

mod ack;
mod map;
mod queue;
mod rotating;
mod sessions;
mod time_cache;
mod timeouts;
mod topology;

pub use ack::ack;
pub use map::map;
pub use queue::queue;
pub use rotating::rotating;
pub use sessions::sessions;
pub use time_cache::time_cache;
pub use timeouts::timeouts;
pub use topology::topology;

use arbitrary::{Result, Unstructured};
use std::fmt::Debug;

/// Runs the history that bytes are.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: [(&str, Target); 8] = [
    ("ack", ack),
    ("map", map),
    ("queue", queue),
    ("rotating", rotating),
    ("sessions", sessions),
    ("time_cache", time_cache),
    ("timeouts", timeouts),
    ("topology", topology),
];

/// The longest history.
const STEPS: usize = 400;

/// As many steps as there are bytes for.
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

/// Panics if a history has found something, with the history.
fn must_hold<E: Debug>(found: std::result::Result<(), E>, setup: &dyn Debug, steps: &[impl Debug]) {
    if let Err(why) = found {
        panic!("{why:?}\n{setup:?}\n{steps:?}");
    }
}

/// `None` one time in two.
fn perhaps<T>(
    bytes: &mut Unstructured<'_>,
    some: impl FnOnce(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Option<T>> {
    bytes.arbitrary::<bool>()?.then(|| some(bytes)).transpose()
}
