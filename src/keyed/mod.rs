//! Keys that expire: maps, queues of leases, sessions and pending values. These four store types
//! share one [`store`] on the engine.
//!
//! `docs/design.md` has the protocol of an entry ("Life of an entry"), where each operation takes
//! effect, and which user code runs under a pin ("Where user code runs").

mod error;
mod expiry;
mod given;
mod idle;
mod lifetimes;
mod living;
mod map;
mod metrics;
mod pending;
mod queue;
mod removals;
mod removed;
mod session;
mod store;
mod time_cache;

pub use error::{InsertError, StoreError};
pub use expiry::Expiry;
pub use lifetimes::Lifetimes;
pub use map::{
    Compute, Computed, Current, Entry, ExpiringMap, ExpiringMapBuilder, Guard, Iter, LoadError,
    LoadGuard, Loaded, OccupiedEntry, Ref, Save, Saved, VacantEntry, Value,
};
pub use metrics::{StoreMetrics, StoreShardMetrics};
pub use pending::{PendingEntry, PendingMap, PendingMapBuilder, PendingMapError};
pub use queue::{Expired, ExpiryQueue, ExpiryQueueBuilder, Handle, Updated};
pub use removed::Removed;
pub use session::{
    NewSession, Session, SessionError, SessionId, SessionInfo, SessionTracker,
    SessionTrackerBuilder, Tracked,
};
pub use store::{EvictionPolicy, RemovalCause};
pub use time_cache::{TimeCacheMap, TimeCacheMapBuilder};
