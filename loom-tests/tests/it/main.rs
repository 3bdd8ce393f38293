//! All models, in one program.

#![cfg(expiry_loom)]
mod ack_trees;
mod eviction;
mod forward;
mod index_growth;
mod keyed;
mod linearizability;
mod loads;
mod map;
mod memory;
mod pending;
mod polling;
mod publication;
mod removals;
mod replace;
mod room;
mod session_tokens;
mod sessions;
mod shutdown;
mod streams;
mod timeouts;
mod tokens;
mod topology;
mod wheel_inbox_reaper;
