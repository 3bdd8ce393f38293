//! Stress harness.
fn main() {}
