//! Tests of the public interface, in one program.

mod async_bolts;
mod attack;
mod attack_lanes;
mod chaos;
mod common;
mod dead;
mod flow;
mod graph;
mod making;
#[cfg(feature = "metrics")]
mod metrics;
mod panics;
mod restart;
#[cfg(feature = "stream")]
mod streams;
mod threads;
mod trees;
mod windows;
