//! Keys that expire: queues of leases, sessions, maps. Four faces of one [`store`] on the engine.
//!
//! `docs/keyed.md` has the room: what a slot holds, where each operation takes effect, and why a stale helper does no harm.

mod closing;
mod error;
mod idle;
mod lifetime;
mod living;
mod map;
mod metrics;
mod node;
mod queue;
mod replace;
mod session;
mod store;
mod time_cache;
mod walk;

pub use error::{InsertError, StoreError};
pub use lifetime::Lifetime;
pub use map::{Entry, ExpiringMap, ExpiringMapBuilder, Iter, OccupiedEntry, Ref, VacantEntry};
pub use metrics::{StoreMetrics, StoreShardMetrics};
pub use node::Ended;
pub use queue::{Expired, ExpiryQueue, ExpiryQueueBuilder, Handle, Updated};
pub use session::{
    Session, SessionError, SessionId, SessionInfo, SessionTracker, SessionTrackerBuilder, Tracked,
};
pub use store::Cause;
pub use time_cache::{TimeCacheMap, TimeCacheMapBuilder};
