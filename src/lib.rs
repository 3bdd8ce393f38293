//! A lock-free concurrent expiry engine: millions of things that must either finish, be renewed, or time
//! out, exactly once, on every core.
//!
//! | you have | use |
//! |---|---|
//! | keys and values that expire | [`ExpiringMap`] |
//! | keys that must be touched to live: leases, heartbeats | [`ExpiryQueue`] |
//! | clients with sessions, owners, an orderly close | [`SessionTracker`] |
//! | code that was written for Storm's class of that name | [`TimeCacheMap`] |
//! | work in one process, derived from messages | [`Tuple`] handles on an [`AckTracker`] |
//! | ids from elsewhere, arriving in any order | [`AckTracker::init`], [`ack`](AckTracker::ack), [`fail`](AckTracker::fail) |
//! | an event loop, a simulation | [`build_manual`](AckTrackerBuilder::build_manual) and [`poll`](AckTracker::poll), of each face |
//! | a thread of your own for outcomes | [`build_with_channel`](AckTrackerBuilder::build_with_channel) |
//! | a map whose entries die unless renewed, coarsely, and one owner | [`RotatingMap`] |
//! | timers in a loop of your own | [`TimerWheel`], in [`wheel`] |
//! | futures that may take too long, under tokio or any executor | `Timeouts`, with the feature `tokio` |
//!
//! ```
//! use expiry::{AckTracker, Outcome, Tuple};
//!
//! let tracker = AckTracker::builder()
//!     .on_outcome(|outcome: &Outcome| println!("{outcome:?}"))
//!     .build()?;
//! let mut message = Tuple::root(&tracker, 42)?;
//! let part = message.emit();
//! message.ack()?;
//! part.ack()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```
//! use expiry::ExpiringMap;
//! use std::time::Duration;
//!
//! let cache = ExpiringMap::builder().time_to_live(Duration::from_secs(60)).build()?;
//! cache.insert("key".to_string(), 42)?;
//! assert_eq!(cache.get("key").as_deref(), Some(&42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An ack that is refused as [`AckError::NotLive`] is normal in a server: the tree has timed out or failed in the
//! meantime. Drop the work; do not stop the thread.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The models reach what they need, not everything, and some of the sizes are 1.
#![cfg_attr(
    expiry_loom,
    allow(dead_code, clippy::modulo_one, clippy::unnecessary_min_or_max)
)]

#[cfg(all(doctest, feature = "async"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod ack;
mod channel;
mod core;
mod error;
#[cfg(expiry_inject)]
#[doc(hidden)]
pub mod inject;
#[cfg(not(expiry_inject))]
mod inject;
mod keyed;
#[cfg(expiry_loom)]
#[doc(hidden)]
pub mod model;
mod panics;
mod rotating;
mod setup;
mod sync;
mod time;
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub mod timeouts;
pub mod wheel;

pub use ack::{
    edge, Ack, AckError, AckMany, AckTracker, AckTrackerBuilder, Done, Fate, Handler, InFlight,
    Metrics, OnDrop, Outcome, Outcomes, Polled, Reason, Root, RootId, ShardMetrics, Tuple,
};
pub use channel::{Receiver, WhenFull};
pub use core::lateness::Lateness;
pub use error::BuildError;
pub use keyed::{
    Cause, Ended, Expired, ExpiringMap, ExpiringMapBuilder, ExpiryQueue, ExpiryQueueBuilder,
    Handle, InsertError, Lifetime, Ref, Session, SessionError, SessionId, SessionInfo,
    SessionTracker, SessionTrackerBuilder, StoreError, StoreMetrics, StoreShardMetrics,
    TimeCacheMap, TimeCacheMapBuilder, Tracked, Updated,
};
pub use rotating::{GenerationsError, RotatingMap};
pub use time::{Clock, CoarseClock, ManualClock, MonotonicClock, Timeout};
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use timeouts::{Timeouts, TimeoutsBuilder};
pub use wheel::{Geometry, TimerId, TimerWheel};

/// Entries and iterators of [`ExpiringMap`].
pub mod expiring_map {
    pub use crate::keyed::{Entry, Iter, OccupiedEntry, VacantEntry};
}

/// Iterators of [`RotatingMap`].
pub mod rotating_map {
    pub use crate::rotating::{Dead, IntoIter, Iter};
}
