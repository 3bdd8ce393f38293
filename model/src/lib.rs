//! The sequential specifications of the public types.
//!
//! [`histories`] holds one model of each type, and what any bytes mean as a history of it. It is
//! there with the feature `proptest`.
//!
//! Where calls overlap, [`linear`] asks whether any order explains their answers. The scenario
//! `stress histories` and the generated programs of `loom-tests` do. [`due`] and [`roots`] hold
//! what a deadline and a root may be within an interval. [`mix`] makes the numbers that programs and
//! workloads draw.

pub mod due;
#[cfg(feature = "proptest")]
pub mod histories;
pub mod linear;
pub mod mix;
pub mod roots;

#[cfg(feature = "proptest")]
pub use histories::*;
