//! A lock-free concurrent expiry engine: for servers in which millions of things must either finish, be renewed, or time
//! out, exactly once, on every core. One engine, several stores.
//!
//! # Five minutes
//!
//! ```
//! use expiry::{AckTracker, RemovalCause, ExpiringMap, ExpiryQueue, Outcome, Tuple};
//! use std::time::Duration;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // Values that are found until their time is up; each end is told once.
//!     let answers = ExpiringMap::builder()
//!         .time_to_live(Duration::from_secs(60))
//!         .removal_listener(|question: &String, _: &u32, cause: RemovalCause| println!("{question}: {cause}"))
//!         .build()?;
//!     answers.insert("6 * 7".to_string(), 42)?;
//!     assert_eq!(answers.get("6 * 7").as_deref(), Some(&42));
//!
//!     // Keys that must be touched to live.
//!     let leases = ExpiryQueue::builder()
//!         .expiry_listener(|worker: &u64| println!("worker {worker} has fallen silent"))
//!         .build()?;
//!     leases.update(7, Duration::from_secs(10))?;
//!     assert!(leases.touch(&7, Duration::from_secs(10))?); // in time
//!
//!     // Messages, and all that is derived from them, to be finished.
//!     let tracker = AckTracker::builder()
//!         .timeout(Duration::from_secs(30))
//!         .on_outcome(|outcome: &Outcome| println!("{outcome:?}")) // acked, failed, timed out, or cancelled
//!         .build()?;
//!     let mut message = Tuple::root(&tracker, 42)?;
//!     let part = message.emit();
//!     message.ack()?;
//!     part.ack()?; // the last one: acked
//!     Ok(())
//! }
//! ```
//!
//! # Which one do I need?
//!
//! | you have | use | guide |
//! |---|---|---|
//! | keys and values that expire | [`ExpiringMap`] | [`guide::maps`] |
//! | code that was written for Storm's class of that name | [`TimeCacheMap`] | [`guide::maps`] |
//! | keys that must be touched to live: leases, heartbeats | [`ExpiryQueue`] | [`guide::leases_and_sessions`] |
//! | clients with sessions, owners, an orderly close | [`SessionTracker`] | [`guide::leases_and_sessions`] |
//! | work in one process, derived from messages | [`Tuple`] handles on an [`AckTracker`] | [`guide::acks`] |
//! | ids from elsewhere, arriving in any order | [`AckTracker::init`], [`ack`](AckTracker::ack), [`fail`](AckTracker::fail) | [`guide::acks`] |
//! | a pipeline of sources and steps, with replay | the crate `expiry-topology` | `docs/guide/topology.md` |
//! | a map whose entries die unless renewed, coarsely, and one owner | [`RotatingMap`] | [`guide::wheels_and_generations`] |
//! | timers in a loop of your own | [`TimerWheel`], in [`wheel`] | [`guide::wheels_and_generations`] |
//! | futures that may take too long, under tokio or any executor | `Timeouts`, with the feature `async` | `guide::timeouts` |
//! | tasks that wait: for outcomes, for room, for the end | `ReceiverStream`, `room`, `shutdown_async`, with the feature `async` | `guide::timeouts` |
//!
//! What trackers and queues tell a handler they can put into a channel, for a thread of yours or for a task:
//! [`build_with_channel`](AckTrackerBuilder::build_with_channel), [`Receiver`].
//!
//! # Without a thread
//!
//! Each store with a reaper thread can do without, for an event loop, or for a simulation with a [`ManualClock`]. It is built by
//! `build_manual`, and threads of yours poll it. [`Polled`] says whether the budget ran out, and how long there is nothing to do.
//!
//! | store | polled by | which returns, beside a [`Polled`] |
//! |---|---|---|
//! | [`AckTracker`] | [`poll(budget)`](AckTracker::poll) | outcomes go to the handler, or to the channel of `build_manual_with_channel` |
//! | `Timeouts` | `poll(budget)` | it wakes the tasks |
//! | [`ExpiringMap`], [`TimeCacheMap`] | [`poll(budget)`](ExpiringMap::poll) | the listener is called |
//! | [`ExpiryQueue`], [`SessionTracker`] | [`poll_into(vec, budget)`](ExpiryQueue::poll_into), or [`poll()`](ExpiryQueue::poll) for all | what has expired, unless there is a listener or a channel |
//! | [`TimerWheel`] | [`pop(now)`](TimerWheel::pop), [`advance(now, f)`](TimerWheel::advance) and their limited forms | the timer; how many fired. [`expiration_delay()`](TimerWheel::expiration_delay) says how long to sleep |
//! | [`RotatingMap`] | [`rotate()`](RotatingMap::rotate), once a period of yours | the dead |
//!
//! The sleep is an upper bound: something may begin meanwhile that is due sooner, and that wakes nobody. And what is due by it may be nothing: a renewed
//! entry's old deadline, or memory to be given back. So sleep no longer than the shortest timeout that matters, and ask `is_empty()` whether all is done.
//!
//! # What to know
//!
//! * **Refused is not lost.** Errors say what to do, and insertions give back what was to go in. [`AckError::NotLive`] is
//!   normal in a server: the tree has timed out or failed in the meantime. Drop the work; do not stop the thread.
//! * **Never early, late by an interval.** Deadlines are rounded up to the interval of the builder; then comes the reaper's delay, which the
//!   metrics have as [`Lateness`].
//! * **Clocks.** [`CoarseClock`] unless you say otherwise; [`MonotonicClock`] reads exactly; `BootClock` (Linux) counts suspended time; [`ManualClock`] is for tests; [`Clock`] is for your own.
//!   Time that the machine spends suspended does not count with these.
//! * **Memory only.** Nothing survives a restart; sources replay, holders come back.
//! * **Minimum Rust version** 1.74, with all features. What is tested is Linux on x86-64; it builds for other systems and for 32 bits, but not
//!   where there are no 64-bit atomics.
//!
//! # Features
//!
//! None is on unless asked for.
//!
//! | feature | adds | dependencies |
//! |---|---|---|
//! | `async` (`tokio` is the same) | `Timeouts` for futures, streams of what has ended, waiting for room, shutdowns as futures | `futures-core` 0.3, for the trait `Stream` |
//! | `metrics` | `publish` on snapshots of counters, for the recorder that the process has: module `publish` | `metrics` 0.24 |
//! | `tracing` | events at what is rare: stalls, panics, growth, shutdown, full channels, no memory | `tracing` 0.1 |
//! | `serde` | settings from configuration files: module `settings`; snapshots can be serialized | `serde` 1, `humantime` 2 |
//!
//! How to use the last three: `docs/guide/operations.md`, [`guide`]. Of other crates nothing is in the public interface but traits that are implemented:
//! futures-core's with `async`, serde's with `serde`. Another major version of one of these is a breaking change here, of any other dependency it is none; but `metrics` and `tracing` have to be of the version for
//! which the process has its recorder and its subscriber.
//!
//! What exactly is promised, and what shows it: [`guide::guarantees`]. From moka, `DelayQueue`, `tokio::time`, dashmap, Storm, ZooKeeper, Caffeine or Kafka:
//! [`guide::migration`]. How it works: `docs/design.md`.

#![cfg_attr(docsrs, feature(doc_cfg))]
// The models reach what they need, not everything, and some of the sizes are 1.
#![cfg_attr(expiry_loom, allow(dead_code, clippy::modulo_one, clippy::unnecessary_min_or_max))]

#[cfg(all(doctest, feature = "async"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(not(target_has_atomic = "64"))]
compile_error!("expiry needs 64-bit atomics, which this target has not");

mod ack;
#[cfg(feature = "async")]
mod capacity;
mod channel;
mod core;
mod error;
mod hash;
mod id;
mod keyed;
mod lifecycle;
#[cfg(expiry_loom)]
#[doc(hidden)]
pub mod model;
mod panics;
mod polled;
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod publish;
mod rotating;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub mod settings;
mod setup;
mod snapshot;
#[cfg(feature = "async")]
mod stream;
mod sync;
mod time;
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub mod timeouts;
mod trace;
pub mod wheel;

pub use ack::{
    edge, Ack, AckError, AckMany, AckTracker, AckTrackerBuilder, Done, Handler, InFlight, Metrics,
    OnDrop, Outcome, Outcomes, Reason, Root, RootId, ShardMetrics, ShutdownMode, Tuple,
};
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub use capacity::CapacityReady;
pub use channel::{Receiver, WhenFull};
pub use core::lateness::Lateness;
pub use error::BuildError;
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub use error::Closed;
pub use hash::{DefaultHasher, RandomState};
pub use id::ParseIdError;
pub use keyed::{
    Expired, ExpiringMap, ExpiringMapBuilder, ExpiryQueue, ExpiryQueueBuilder, Handle, InsertError,
    Lifetimes, Ref, RemovalCause, Removed, Session, SessionError, SessionId, SessionInfo,
    SessionTracker, SessionTrackerBuilder, StoreError, StoreMetrics, StoreShardMetrics,
    TimeCacheMap, TimeCacheMapBuilder, Tracked, Updated,
};
#[doc(hidden)]
pub use panics::{inside, is_inside};
pub use polled::Polled;
pub use rotating::{GenerationsError, RotatingMap};
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub use stream::ReceiverStream;
#[cfg(target_os = "linux")]
pub use time::BootClock;
pub use time::{Clock, CoarseClock, Lifetime, ManualClock, MonotonicClock};
#[cfg(feature = "async")]
#[cfg_attr(docsrs, doc(cfg(feature = "async")))]
pub use timeouts::{Timeouts, TimeoutsBuilder};
pub use wheel::{Geometry, TimerId, TimerWheel};

/// Entries, guards and iterators of [`ExpiringMap`].
pub mod expiring_map {
    pub use crate::keyed::{Entry, Guard, Iter, OccupiedEntry, VacantEntry};
}

/// Iterators of [`RotatingMap`].
pub mod rotating_map {
    pub use crate::rotating::{Dead, IntoIter, Iter};
}

/// How to use each store: to be read, and run as tests.
#[cfg(any(doc, doctest))]
pub mod guide {
    #[doc = include_str!("../docs/guide/acks.md")]
    pub mod acks {}

    #[doc = include_str!("../docs/guide/leases-and-sessions.md")]
    pub mod leases_and_sessions {}

    #[doc = include_str!("../docs/guide/maps.md")]
    pub mod maps {}

    #[doc = include_str!("../docs/guide/counters.md")]
    pub mod counters {}

    #[doc = include_str!("../docs/guide/shutdown.md")]
    pub mod shutdown {}

    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    #[doc = include_str!("../docs/guide/timeouts.md")]
    pub mod timeouts {}

    #[cfg(all(feature = "metrics", feature = "serde", feature = "tracing"))]
    #[cfg_attr(docsrs, doc(cfg(all(feature = "metrics", feature = "serde", feature = "tracing"))))]
    #[doc = include_str!("../docs/guide/operations.md")]
    pub mod operations {}

    #[doc = include_str!("../docs/guide/wheels-and-generations.md")]
    pub mod wheels_and_generations {}

    #[doc = include_str!("../docs/guarantees.md")]
    pub mod guarantees {}

    #[doc = include_str!("../docs/migration.md")]
    pub mod migration {}
}
