//! The core: slots, their index, their expiry. Everything that is lock-free is in here.
//!
//! ```text
//!   faces (ack)  ->  engine  ->  index   ->  slots  ->  sync
//!                       |  ->  inbox   ->
//!                       |  ->  wheel (single owner: the driver)
//! ```
//!
//! A slot ([`slots`]) is one live thing; its [`lease`] decides. Slots sit in buckets of 16 whose headers have
//! an atomic next expiration. [`engine`] claims slots, ends them, and drives their expiry: one driver
//! at a time (the reaper thread, or whoever polls) keeps a wheel of buckets per shard. [`inbox`] is how
//! others tell it of earlier deadlines, [`index`] how ids that callers choose are found, [`threads`]
//! what each thread keeps to itself.

pub(crate) mod engine;
pub(crate) mod inbox;
pub(crate) mod index;
pub(crate) mod lateness;
pub(crate) mod lease;
pub(crate) mod params;
pub(crate) mod reaper;
pub(crate) mod slots;
pub(crate) mod threads;

pub(crate) use crate::sync::{prefetch, prefetch_at};
