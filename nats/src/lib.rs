//! `expiry` beyond one machine, on NATS JetStream (server 2.12 or later).
//!
//! [`Nats`] is a worker's connection to the brokers. It checks what the rest of this crate is to
//! rely on: the server's version, JetStream, credentials, names. Sources, sinks and owned
//! partitions are yet to come.
#![forbid(unsafe_code)]

mod connect;
mod error;
mod names;

pub use connect::{Health, Nats, Options};
pub use error::NatsError;
