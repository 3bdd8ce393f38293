//! What users write: spouts, bolts and hooks, and how they are called.

mod basic;
mod bolt;
mod context;
mod hook;
mod spout;

pub use basic::{basic, Basic, Derive, Done};
pub use bolt::Bolt;
pub use context::{Context, Waker};
pub use hook::Hook;
pub use spout::{Next, Spout};
