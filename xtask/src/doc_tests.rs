//! The doc tests, linked to one program for each crate.
//!
//! `rustdoc` links each example of edition 2021 by itself, and links the examples of edition 2024
//! together, which takes a fifth of the time. The crates are of edition 2021, because older
//! compilers are to build them. So this program names itself to cargo as `rustdoc`, and calls the
//! real one with the newer edition.

use super::{cargo, Step};
use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

/// Set where this program is to be `rustdoc`.
const AS_RUSTDOC: &str = "EXPIRY_AS_RUSTDOC";

pub fn step() -> Step {
    // The packages whose tests are run: with others, cargo would build what they share anew.
    let step = cargo(
        "doc tests",
        "test --locked --workspace --exclude loom-tests --exclude xtask --exclude expiry-benches \
         --all-features --doc",
    );
    match env::current_exe() {
        Ok(exe) => step.with("RUSTDOC", exe.display().to_string()).with(AS_RUSTDOC, "1"),
        Err(_) => step,
    }
}

/// Does what `rustdoc` does, if cargo has called this program as `rustdoc`.
pub fn as_rustdoc() -> Option<ExitCode> {
    env::var_os(AS_RUSTDOC)?;
    // It declares a function of C, in words that the oldest compiler knows and the edition does
    // not.
    let keeps = env::args_os().any(|arg| arg == "expiry_wheel");
    let newer = |arg: OsString| match arg.to_str() {
        Some("--edition=2021") if !keeps => "--edition=2024".into(),
        _ => arg,
    };
    let status = Command::new("rustdoc").args(env::args_os().skip(1).map(newer)).status();
    let passed = status.is_ok_and(|status| status.success());
    Some(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
