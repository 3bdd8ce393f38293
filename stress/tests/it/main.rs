//! The scenarios from their command lines, in one program.

mod ack;
mod cache;
mod common;
mod faults;
mod histories;
mod loads;
#[cfg(feature = "nats")]
mod nats;
mod refusals;
mod report;
mod sessions;
mod ttl;
mod wordcount;
