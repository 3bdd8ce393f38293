//! `expiry` beyond one machine, on NATS JetStream (server 2.12 or later).
//!
//! | type | what it does |
//! |---|---|
//! | [`Nats`] | a connection, its health, its counters |
//! | [`StreamSpout`] | a JetStream pull consumer as a spout: acks a message when its tree is done |
//! | [`StreamSink`] | a bolt that publishes, and acks its tuple when the stream has stored it |
//! | [`Partitions`] | gives each partition of a set one owner among the workers, and a fence |
//!
//! JetStream stores, replicates and elects. This crate connects it to ack trees and to ownership.
//! A guide is in `docs/guide/nats.md`.
#![forbid(unsafe_code)]
#![allow(dead_code)] // until its modules are in

mod clock;
mod connect;
mod error;
mod metrics;
mod names;

#[cfg(feature = "brokers")]
pub mod brokers;

pub use connect::{Health, Nats, Options};
pub use error::NatsError;
pub use metrics::Metrics;
