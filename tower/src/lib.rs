#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bodies;
mod body;
mod clock;
mod deadline;
mod idle;
mod layer;
mod timer;

pub use bodies::{BodyTimeoutFuture, BodyTimeoutLayer, OfRequests, OfResponses};
pub use body::TimeoutBody;
pub use clock::TokioClock;
pub use deadline::{Deadline, DeadlineFuture, DeadlineLayer};
pub use idle::IdleTimeout;
pub use layer::{Answer, Ending, Fail, ResponseFuture, TimeoutLayer, TimeoutService};
pub use timer::ExpiryTimer;

/// The error that tower's layers put others into.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
