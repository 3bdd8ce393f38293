//! Keys that expire: queues of leases, sessions, maps. Four faces of one [`store`] on the engine.
//!
//! `docs/keyed.md` has the room: what a slot holds, where each operation takes effect, and why a stale helper does no harm.

mod closing;
mod error;
mod map;
mod node;
mod queue;
mod replace;
mod session;
mod store;

pub use error::{InsertError, StoreError};
pub use map::{ExpiringMap, ExpiringMapBuilder, Ref};
pub use node::Ended;
pub use queue::{Expired, ExpiryQueue, ExpiryQueueBuilder, Handle, Updated};
pub use session::{
    Session, SessionError, SessionId, SessionInfo, SessionTracker, SessionTrackerBuilder, Tracked,
};
pub use store::Cause;
