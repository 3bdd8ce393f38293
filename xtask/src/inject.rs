//! Seeded bugs: the engine built with `--cfg expiry_inject`, and each of its bugs found by the stress scenarios.

use crate::{cargo, Step};
use std::path::Path;

/// Runs the stress scenarios on an engine with one bug after the other, and demands that each is found, and that each check is
/// seen to fail; says by which checks each was found.
pub fn step() -> Step {
    // Its own target directory, as for loom: these flags are for the whole build.
    let target = Path::new("target").join("inject");
    let test = ["test", "--locked", "--release", "-p", "stress"];
    // One test after the other: each keeps all cores busy.
    let only = ["--test", "inject", "--", "--nocapture", "--test-threads=1"];
    Step {
        env: vec![
            ("RUSTFLAGS", "--cfg expiry_inject -D warnings".into()),
            ("CARGO_TARGET_DIR", target.display().to_string()),
        ],
        ..cargo("seeded bugs", &[&test[..], &only[..]].concat())
    }
}
