//! The core: slots, their index, their expiry. Everything that is lock-free is in here.
//!
//! ```text
//!   ack, keyed, timeouts  ->  engine  ->  index     ->  slots  ->  slot, header, memory  ->  sync
//!                               |   ->  inbox     ->
//!                               |   ->  deferred  ->
//!                               |   ->  wheel (single owner: the driver)
//! ```
//!
//! A slot ([`slot`]) is one live thing: a [`lease`], which decides, and the payload of the store
//! type. Slots sit in blocks of 16 ([`slots`]) whose headers ([`header`]) have an atomic next
//! expiration. [`engine`] claims slots, ends them, and drives their expiry: one driver at a time
//! (the reaper thread, or a thread that polls) keeps a wheel of blocks per shard. Inserting threads
//! notify it of earlier deadlines through the [`inbox`]. [`index`] finds hashed keys. [`threads`]
//! has the stripes: what each thread keeps to itself, such as its [`pins`] and its list of slots
//! that are not free yet ([`deferred`]). [`memory`] maps zeroed pages and gives them back.

pub(crate) mod deferred;
pub(crate) mod engine;
pub(crate) mod header;
pub(crate) mod inbox;
pub(crate) mod index;
pub(crate) mod lateness;
pub(crate) mod lease;
pub(crate) mod memory;
pub(crate) mod occupancy;
pub(crate) mod params;
pub(crate) mod pins;
pub(crate) mod reaper;
mod run;
pub(crate) mod shards;
pub(crate) mod slot;
pub(crate) mod slots;
pub(crate) mod threads;
pub(crate) mod value;

pub(crate) use crate::sync::prefetch_at;
