//! A lock-free concurrent expiry engine: millions of things that must either finish, be renewed, or time
//! out, exactly once, on every core.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The models reach what they need, not everything.
#![cfg_attr(expiry_loom, allow(dead_code))]

mod ack;
mod core;
#[cfg(expiry_loom)]
#[doc(hidden)]
pub mod model;
mod sync;
mod time;
#[allow(dead_code)] // a later public type uses the rest
mod wheel;

pub use ack::{
    edge, Ack, AckError, AckMany, AckTracker, AckTrackerBuilder, BuildError, Done, Fate, Handler,
    InFlight, Lateness, Metrics, OnDrop, Outcome, Outcomes, Polled, Reason, Root, RootId,
    ShardMetrics, Timeout, Tuple, WhenFull,
};
pub use time::{Clock, CoarseClock, ManualClock, MonotonicClock};
