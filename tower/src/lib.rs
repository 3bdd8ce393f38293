#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod clock;
mod idle;
mod layer;
mod timer;

pub use body::TimeoutBody;
pub use clock::TokioClock;
pub use idle::IdleTimeout;
pub use layer::{Answer, Fail, ResponseFuture, TimeoutLayer, TimeoutService};
pub use timer::ExpiryTimer;

/// The error that tower's layers put others into.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
