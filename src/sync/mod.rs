//! The one door to atomics, cells, threads and pinning.
//!
//! Everything in the crate whose correctness depends on the memory model comes through here, so that
//! a build with `--cfg expiry_loom` runs the very same code under the loom model checker. Statistics
//! (counters that decide nothing) deliberately use [`core::sync::atomic`] in both builds: the checker
//! would spend its time on them.

#[cfg(not(expiry_loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

#[cfg(expiry_loom)]
pub(crate) use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(expiry_loom)]
pub(crate) use loom::thread;
#[cfg(not(expiry_loom))]
pub(crate) use std::thread;

pub(crate) mod exclusive;
pub(crate) mod grace;
pub(crate) mod park;
