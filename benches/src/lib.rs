//! What the benches and the published figures of `expiry` share: one workload, one trait for all
//! peers that do it, and one module for each figure.
//!
//! A *lifecycle* is a tree's: init, then three acks, of which the last completes it and returns its
//! owner. A [`window::Window`] keeps a fixed number of trees in flight. Each step completes one and
//! begins another in its place, the oldest (FIFO) or a random one. These rules make it fair:
//!
//! * Positions, keys and edge ids are the same, and all drawn before the clock starts. Three edge
//!   ids and the id stay with a position, in 32 bytes.
//! * The window goes in groups of 16 steps for every peer, single or batch. It gathers the 16
//!   entries first, so that its own cache misses overlap. Its own cost is printed:
//!   [`peers::Nothing`].
//! * Every round has a fresh structure, grown from its default size, filled, left to settle, and
//!   warmed up before the clock starts. Rounds are interleaved: A B C A B C.
//! * One fast hasher for all maps, foldhash's fast one. `expiry` multiplies once more, by a secret
//!   factor, because an attacker may choose its ids.
//! * Every peer must have completed every tree, and given back the right owners.
//! * The maps have no expiry. The trackers have a reaper running and a timeout of 30 s.
//!
//! Timers (`wheel`), timeouts of futures (`timeouts`) and keyed stores ([`keyed`]) have workloads
//! and peers of their own, by the same rules; each module says what is fair among its peers.

// What is public here is for `figures` and the criterion benches alone.
#![allow(missing_docs)]

pub mod expire;
pub mod figures;
pub mod keyed;
pub mod lab;
pub mod peers;
mod process;
mod report;
mod timeouts;
mod timers;
mod wheel;
pub mod window;
