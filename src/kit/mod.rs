//! What all store types are made with: builders, handles, shutdown, and where what ends goes.
//!
//! | module | what it has |
//! |---|---|
//! | [`setup`] | the settings that all builders share |
//! | [`target`] | where what ends goes: a listener, a channel, or a poll |
//! | [`handle`] | the handle of a store, of which the last one shuts it down |
//! | [`lifecycle`] | shutdown and drain |
//! | [`reaper`] | threads that drive stores |
//! | [`channel`], [`stream`] | what ends, for another thread or a task |
//! | [`capacity`] | a task's wait for room |
//! | [`polled`] | what a poll says |
//! | [`snapshot`] | metrics |
//! | [`panics`] | calls of the user's code |
//! | [`id`] | ids as text |
//! | [`trace`] | events, where the feature `tracing` is on |

#[cfg(feature = "async")]
pub(crate) mod capacity;
pub(crate) mod channel;
pub(crate) mod handle;
pub(crate) mod id;
pub(crate) mod lifecycle;
pub(crate) mod panics;
pub(crate) mod polled;
pub(crate) mod reaper;
pub(crate) mod setup;
pub(crate) mod snapshot;
#[cfg(feature = "async")]
pub(crate) mod stream;
pub(crate) mod target;
pub(crate) mod trace;
