//! Keys that expire: queues of leases, sessions, maps. Four faces of one [`store`] on the engine.
//!
//! `docs/keyed.md` has the room: what a slot holds, where each operation takes effect, and why a stale helper does no harm.

mod error;
mod idle;
mod lifetime;
mod living;
mod map;
mod node;
mod queue;
mod replace;
mod store;
mod walk;

pub use error::{InsertError, StoreError};
pub use lifetime::Lifetime;
pub use map::{Entry, ExpiringMap, ExpiringMapBuilder, Iter, OccupiedEntry, Ref, VacantEntry};
pub use node::Ended;
pub use queue::{Expired, ExpiryQueue, ExpiryQueueBuilder, Handle, Updated};
pub use store::Cause;
