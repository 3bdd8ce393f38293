//! Tests of the public interface, in one program. Tests that measure or change their process are in
//! `tests/alone`.

#![cfg(not(expiry_loom))]

mod api;
mod attack;
mod attack_keyed;
mod bad_input;
mod clock_panics;
mod compute;
mod docs;
mod drops;
#[cfg(feature = "async")]
mod each_other;
mod eviction;
mod expiring_map;
mod expiry_policy;
mod features;
#[cfg(feature = "async")]
mod handles;
mod keyed_leases;
mod loads;
mod looks;
mod many;
#[cfg(feature = "metrics")]
mod metrics;
mod oracle;
mod pending;
mod queue;
#[cfg(feature = "async")]
mod reaper;
mod removals;
mod rig;
#[cfg(feature = "async")]
mod room;
mod save;
mod session_tokens;
mod sessions;
#[cfg(feature = "serde")]
mod settings;
#[cfg(feature = "async")]
mod shutdown;
#[cfg(feature = "async")]
mod streams;
mod support;
mod threads;
#[cfg(feature = "async")]
mod timeouts;
mod tokens;
mod tracker_leases;
