//! `expiry` beyond one machine, on NATS JetStream (server 2.12 or later).
//!
//! [`Nats`] is a worker's connection to the brokers. It checks what the rest of this crate is to
//! rely on: the server's version, JetStream, credentials, names. [`StreamSpout`] is a consumer of a
//! stream as the spout of a topology, [`StreamSink`] makes bolts that publish. [`Nats::partitions`]
//! gives each partition of a set one owner among the workers. [`Nats::leases`] gives a key one
//! holder, with a fencing token, and [`Nats::leader`] elects a leader. [`Nats::sessions`] keeps the
//! sessions of clients over many front-ends. [`Nats::once`] are idempotency keys, [`Nats::timers`]
//! timers that outlive every process. The guide `docs/guide/nats.md` has examples, what is
//! promised, and how to operate it.
//!
//! The feature `topology`, on by default, has sources, sinks and timers. Users of leases, sessions,
//! keys or partitions alone go without it, and do not build `expiry-topology`. The feature
//! `brokers` starts local servers, for tests and trials. The feature `metrics` publishes counters
//! through the facade of that name.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "brokers")]
pub mod brokers;
#[cfg(all(doctest, feature = "topology"))]
#[doc = include_str!("../../docs/guide/nats.md")]
struct GuideDoctests;

mod base;
mod clock;
mod connect;
#[cfg(feature = "topology")]
mod custody;
mod error;
mod keep;
mod keyed;
mod leases;
mod message;
mod once;
mod ownership;
mod partitions;
mod sessions;
#[cfg(feature = "topology")]
mod sink;
#[cfg(feature = "topology")]
mod source;
#[cfg(feature = "topology")]
mod timers;

pub use connect::{Nats, Options};
pub use error::{Loss, NatsError};
pub use leases::{Election, Leader, Lease, LeaseSet, LeaseStats, Leases};
pub use once::{Claim, Guard, Once, OnceSet};
pub use partitions::{Change, Held, PartitionSet, PartitionStats, Partitions, MOST_RECORDS};
pub use sessions::{Ended, SessionId, SessionSet, SessionStats, Sessions};
#[cfg(feature = "topology")]
#[cfg_attr(docsrs, doc(cfg(feature = "topology")))]
pub use sink::{Outgoing, StreamSink};
#[cfg(feature = "topology")]
#[cfg_attr(docsrs, doc(cfg(feature = "topology")))]
pub use source::{Incoming, MessageId, SourceOptions, SourceStats, StreamSource, StreamSpout};
#[cfg(feature = "topology")]
#[cfg_attr(docsrs, doc(cfg(feature = "topology")))]
pub use timers::{TimerSet, Timers};
