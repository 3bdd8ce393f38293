//! The scenarios from their command lines, in one program.

mod common;
#[cfg(feature = "nats")]
mod nats;
mod refusals;
mod report;
mod scenarios;
mod wordcount;
