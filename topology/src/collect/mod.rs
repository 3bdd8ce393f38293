//! Collectors: what spouts and bolts emit, ack and fail with.

mod bolt;
mod spout;

pub use bolt::BoltCollector;
pub use spout::SpoutCollector;
