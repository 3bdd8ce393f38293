//! What users write: spouts, bolts and hooks, and how they are called.

mod basic;
mod bolt;
mod concurrent;
mod context;
mod hook;
mod spout;
#[cfg(feature = "stream")]
mod stream;
mod window;

pub use basic::{basic, sink, Basic, Derive, Done};
pub use bolt::Bolt;
pub use concurrent::{concurrent, Concurrent};
pub(crate) use context::Registry;
pub use context::{Context, Counter, Waker};
pub use hook::{Hook, Seen};
pub use spout::{Next, Spout};
#[cfg(feature = "stream")]
#[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
pub use stream::StreamSpout;
pub use window::window;
