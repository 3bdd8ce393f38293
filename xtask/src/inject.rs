//! Seeded bugs: the engine built with `--cfg expiry_inject`, and each of its bugs found by the stress scenarios.

use crate::{cargo, Step};
use std::path::Path;

/// Runs the stress scenarios on an engine with one bug after the other, and demands that each is found; says by which checks.
pub fn step() -> Step {
    // Its own target directory, as for loom: these flags are for the whole build.
    let target = Path::new("target").join("inject");
    let test = ["test", "--locked", "--release", "-p", "stress"];
    let only = ["--test", "inject", "--", "--nocapture"];
    Step {
        env: vec![
            ("RUSTFLAGS", "--cfg expiry_inject -D warnings".into()),
            ("CARGO_TARGET_DIR", target.display().to_string()),
        ],
        ..cargo("seeded bugs", &[&test[..], &only[..]].concat())
    }
}
