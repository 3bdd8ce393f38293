//! A lock-free concurrent expiry engine: for servers in which millions of things must finish, be
//! renewed, or time out, each exactly once. One engine, several stores.
//!
//! # Which one do I need?
//!
//! | you have | use | guide |
//! |---|---|---|
//! | keys and values that expire | [`ExpiringMap`] | [`guide::maps`] |
//! | counters of a window: rate limits, quotas | [`ExpiringMap`], [`Lifetimes::keep`] | [`guide::counters`] |
//! | keys that must be touched to live: leases, heartbeats | [`ExpiryQueue`] | [`guide::leases_and_sessions`] |
//! | clients with sessions, owners, an orderly close | [`SessionTracker`] | [`guide::leases_and_sessions`] |
//! | work in one process, derived from messages | [`Tuple`] handles on an [`AckTracker`] | [`guide::acks`] |
//! | ids from elsewhere, arriving in any order | [`AckTracker::init`], [`ack`](AckTracker::ack), [`fail`](AckTracker::fail) | [`guide::acks`] |
//! | things in flight under ids that the store issues: requests | [`PendingTable`] | [`guide::pending`] |
//! | futures that may take too long, under tokio or any executor | [`Timeouts`], with the feature `async` | [`guide::timeouts`] |
//! | a pipeline of sources and steps, with replay | the crate `expiry-topology` | `docs/guide/topology.md` |
//! | timers in a loop of your own | [`TimerWheel`], in [`wheel`] | [`guide::wheels_and_generations`] |
//! | a map with one owner, whose entries end unless renewed | [`RotatingMap`] | [`guide::wheels_and_generations`] |
//! | code written for Storm's `TimeCacheMap` | [`TimeCacheMap`] | [`guide::maps`] |
//!
//! To stop a server in order: [`guide::shutdown`]. To move from moka, `DelayQueue`,
//! `tokio::time`, dashmap, Storm, ZooKeeper, Caffeine or Kafka: [`guide::migration`].
//!
//! # An example
//!
//! Keys and values that expire. The page of each type begins with an example, too.
//!
//! ```
//! use expiry::ExpiringMap;
//! use std::time::Duration;
//!
//! let answers = ExpiringMap::new(Duration::from_secs(60))?; // starts a reaper thread
//! answers.insert("6 * 7", 42)?;
//! assert_eq!(answers.get("6 * 7").as_deref(), Some(&42));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Listeners, channels, tasks
//!
//! A store reports what has ended to a listener, or into a bounded channel
//! ([`build_with_channel`](AckTrackerBuilder::build_with_channel), [`Receiver`]) that a thread or
//! a task reads. With the feature `async` the receiver becomes a [`ReceiverStream`], `room` waits
//! for a free place, and `shutdown_async` for the end.
//!
//! # Without a thread
//!
//! `build_manual` builds a store without a reaper thread, for an event loop, or for a simulation
//! with a [`ManualClock`]. Threads of the caller poll it. [`Polled`] says whether the budget ran
//! out, and how long there is nothing to do.
//!
//! | store | polled by | what has ended goes to |
//! |---|---|---|
//! | [`AckTracker`] | [`poll(budget)`](AckTracker::poll) | the handler, or the channel of `build_manual_with_channel` |
//! | [`Timeouts`] | `poll(budget)` | the tasks, which it wakes |
//! | [`ExpiringMap`], [`TimeCacheMap`] | [`poll(budget)`](ExpiringMap::poll) | the listener, or the channel |
//! | [`ExpiryQueue`], [`SessionTracker`], [`PendingTable`], [`PendingMap`] | [`poll_into(vec, budget)`](ExpiryQueue::poll_into), or [`poll()`](ExpiryQueue::poll) for all | the caller, unless there is a listener or a channel |
//! | [`TimerWheel`] | [`pop(now)`](TimerWheel::pop), [`advance(now, f)`](TimerWheel::advance) | the caller; [`expiration_delay()`](TimerWheel::expiration_delay) says how long to sleep |
//! | [`RotatingMap`] | [`rotate()`](RotatingMap::rotate), once a period of yours | the caller |
//!
//! The time to sleep is an upper bound: a new entry may be due sooner, and wakes no polling
//! thread. So sleep no longer than the shortest timeout that matters. `is_empty()` says whether
//! all is done.
//!
//! # What to know
//!
//! * **Refused is not lost.** A refusal changes nothing, and a map gives key and value back.
//!   [`AckError::NotLive`] is normal in a server: the tree has timed out or failed. Drop the
//!   work, and do not stop the thread.
//! * **Never early, late by an interval.** The engine rounds deadlines up to the builder's
//!   interval, or without one by up to a 256th of the timeout (1 ms to 1 s); then comes the
//!   reaper's delay, which the metrics show as [`Lateness`].
//! * **Threads.** Each store has a reaper thread of its own, or shares a [`Reaper`].
//! * **Clocks.** [`CoarseClock`] is the default, [`MonotonicClock`] reads exactly, `BootClock`
//!   (Linux) counts suspended time, [`ManualClock`] is for tests, [`Clock`] is for your own.
//! * **Memory only.** Over a restart sources replay, and holders come back; a map can
//!   [`save`](ExpiringMap::save) its entries.
//! * **Rust 1.74**, with all features, and 64-bit atomics. The tests run on x86-64 Linux.
//!
//! [`guide::guarantees`] has each promise, and the test or model behind it.
//!
//! # Under loom
//!
//! With `RUSTFLAGS="--cfg expiry_loom"` the stores take loom's atomics, and small sizes. A crate
//! that links this one can so model its own code and a store as one: [`guide::loom`].
//!
//! # Features
//!
//! No feature is on by default.
//!
//! | feature | adds | dependencies |
//! |---|---|---|
//! | `async` (`tokio` is the same) | [`Timeouts`], streams of what has ended, waiting for room, shutdowns as futures | `futures-core` 0.3, for the trait `Stream` |
//! | `metrics` | `publish` on snapshots of counters: module [`publish`] | `metrics` 0.24 |
//! | `tracing` | events for stalls, panics, growth, shutdown, full channels, no memory | `tracing` 0.1 |
//! | `serde` | settings from configuration files: module [`settings`]; snapshots can be serialized | `serde` 1, `humantime` 2 |
//!
//! [`guide::operations`] shows the last three. The public interface contains other crates' traits
//! only: those of futures-core (`async`) and serde (`serde`). Another major version of these two
//! is a breaking change here. `metrics` and `tracing` must have the version of the process's
//! recorder and subscriber.
//!
// With a feature these are links to what it adds, else to the table of features.
#![cfg_attr(
    feature = "async",
    doc = "[`Timeouts`]: crate::Timeouts\n[`ReceiverStream`]: crate::ReceiverStream\n[`guide::timeouts`]: crate::guide::timeouts"
)]
#![cfg_attr(
    not(feature = "async"),
    doc = "[`Timeouts`]: #features\n[`ReceiverStream`]: #features\n[`guide::timeouts`]: #features"
)]
#![cfg_attr(feature = "metrics", doc = "[`publish`]: crate::publish")]
#![cfg_attr(not(feature = "metrics"), doc = "[`publish`]: #features")]
#![cfg_attr(feature = "serde", doc = "[`settings`]: crate::settings")]
#![cfg_attr(not(feature = "serde"), doc = "[`settings`]: #features")]
#![cfg_attr(
    all(feature = "metrics", feature = "serde", feature = "tracing"),
    doc = "[`guide::operations`]: crate::guide::operations"
)]
#![cfg_attr(
    not(all(feature = "metrics", feature = "serde", feature = "tracing")),
    doc = "[`guide::operations`]: #features"
)]
// docs.rs says of each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// The models reach what they need, not everything, and some of the sizes are 1.
#![cfg_attr(expiry_loom, allow(dead_code, clippy::modulo_one, clippy::unnecessary_min_or_max))]

#[cfg(all(doctest, feature = "async"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("expiry needs 64-bit atomics, which this target has not");

mod ack;
mod core;
mod error;
mod hash;
mod keyed;
mod kit;
#[cfg(expiry_loom)]
#[doc(hidden)]
#[path = "../tests/loom/model.rs"]
pub mod model;
mod pending;
#[cfg(feature = "metrics")]
pub mod publish;
#[cfg(feature = "serde")]
pub mod settings;
mod sync;
mod time;
#[cfg(feature = "async")]
pub mod timeouts;

/// Timers of one owner: the crate [`expiry_wheel`], which can also be used alone. Its head tells
/// time, geometry, ways to fire, and costs.
pub mod wheel {
    #[doc(inline)]
    pub use expiry_wheel::{
        Fired, Geometry, GeometryError, Iter, NotScheduled, Popped, Progress, Timer, TimerId,
        TimerWheel,
    };
}

pub use ack::{
    edge, Ack, AckError, AckTracker, AckTrackerBuilder, Done, InFlight, Metrics, OnDrop, Outcome,
    Outcomes, Reason, Root, RootId, ShardMetrics, ShutdownMode, Tuple,
};
pub use core::lateness::Lateness;
#[cfg(feature = "async")]
pub use error::Closed;
pub use error::{BuildError, TokenError};
#[doc(inline)]
pub use expiry_wheel::{GenerationsError, Geometry, RotatingMap, TimerId, TimerWheel};
pub use hash::{DefaultHasher, RandomState};
pub use keyed::{
    EvictionPolicy, Expired, ExpiringMap, ExpiringMapBuilder, Expiry, ExpiryQueue,
    ExpiryQueueBuilder, Handle, InsertError, Lifetimes, LoadError, NewSession, PendingEntry,
    PendingMap, PendingMapBuilder, PendingMapError, Ref, RemovalCause, Removed, Session,
    SessionError, SessionId, SessionInfo, SessionTracker, SessionTrackerBuilder, StoreError,
    StoreMetrics, StoreShardMetrics, TimeCacheMap, TimeCacheMapBuilder, Tracked, Updated,
};
#[cfg(feature = "async")]
pub use kit::capacity::CapacityReady;
pub use kit::channel::{Receiver, WhenFull};
pub use kit::id::ParseIdError;
#[doc(hidden)]
pub use kit::panics::{inside, is_inside};
pub use kit::polled::Polled;
pub use kit::reaper::Reaper;
#[cfg(feature = "async")]
pub use kit::stream::ReceiverStream;
pub use pending::{PendingError, PendingMetrics, PendingTable, PendingTableBuilder, Ticket};
#[cfg(target_os = "linux")]
pub use time::BootClock;
pub use time::{Clock, CoarseClock, Lifetime, LifetimeError, ManualClock, MonotonicClock};
#[cfg(feature = "async")]
pub use timeouts::{Timeouts, TimeoutsBuilder};

/// Entries, guards and iterators of [`ExpiringMap`].
pub mod expiring_map {
    pub use crate::keyed::{
        Compute, Computed, Current, Entry, Guard, Iter, LoadGuard, Loaded, OccupiedEntry, Save,
        Saved, VacantEntry, Value,
    };
}

/// Iterators of [`RotatingMap`].
pub mod rotating_map {
    #[doc(inline)]
    pub use expiry_wheel::rotating_map::{Dead, IntoIter, Iter};
}

/// How to use each store: to be read, and run as tests.
#[cfg(any(doc, doctest))]
pub mod guide {
    // rustdoc copies no files: the picture stands at the end of the page.
    #[doc = include_str!("../docs/guide/acks.md")]
    #[doc = "\n## In a picture\n\n<style>img[src^='../pictures/']{display:none}</style>\n"]
    #[doc = include_str!("../docs/pictures/acks.svg")]
    pub mod acks {}

    #[doc = include_str!("../docs/guide/leases-and-sessions.md")]
    #[doc = "\n## In a picture\n\n<style>img[src^='../pictures/']{display:none}</style>\n"]
    #[doc = include_str!("../docs/pictures/lease.svg")]
    pub mod leases_and_sessions {}

    #[doc = include_str!("../docs/guide/maps.md")]
    pub mod maps {}

    #[doc = include_str!("../docs/guide/pending.md")]
    pub mod pending {}

    #[doc = include_str!("../docs/guide/counters.md")]
    pub mod counters {}

    #[doc = include_str!("../docs/guide/shutdown.md")]
    pub mod shutdown {}

    #[cfg(feature = "async")]
    #[doc = include_str!("../docs/guide/timeouts.md")]
    pub mod timeouts {}

    #[cfg(all(feature = "metrics", feature = "serde", feature = "tracing"))]
    #[doc = include_str!("../docs/guide/operations.md")]
    pub mod operations {}

    #[doc = include_str!("../docs/guide/wheels-and-generations.md")]
    pub mod wheels_and_generations {}

    #[doc = include_str!("../docs/guide/loom.md")]
    pub mod loom {}

    #[doc = include_str!("../docs/guarantees.md")]
    pub mod guarantees {}

    #[doc = include_str!("../docs/migration.md")]
    pub mod migration {}
}
