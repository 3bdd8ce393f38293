//! The scenarios from their command lines, in one program.

mod ack;
mod common;
mod faults;
mod histories;
mod loads;
mod report;
mod sessions;
mod soak;
mod ttl;
mod wordcount;
