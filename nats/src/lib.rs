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
//! The feature `brokers` starts local servers, for tests and trials. The feature `metrics`
//! publishes counters through the facade of that name.
#![forbid(unsafe_code)]

#[cfg(feature = "brokers")]
pub mod brokers;
#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/nats.md")]
struct GuideDoctests;

mod base;
mod clock;
mod connect;
mod custody;
mod error;
mod keep;
mod keyed;
mod leases;
mod once;
mod ownership;
mod partitions;
mod sessions;
mod sink;
mod source;
mod timers;

pub use connect::{Health, Nats, Options};
pub use error::NatsError;
pub use leases::{Election, Leader, Lease, LeaseSet, LeaseStats, Leases};
pub use once::{Claim, Guard, Once, OnceSet};
pub use partitions::{Change, Held, PartitionSet, PartitionStats, Partitions, MOST_RECORDS};
pub use sessions::{Ended, SessionId, SessionSet, SessionStats, Sessions};
pub use sink::{Outgoing, StreamSink};
pub use source::{Incoming, MessageId, SourceOptions, SourceStats, StreamSource, StreamSpout};
pub use timers::{TimerSet, Timers};
