//! What the benches and the published figures of `expiry` share: one workload, one trait for everybody
//! who does it, and one module for each figure.
//!
//! # The workload
//!
//! A *lifecycle* is a tree's: init, then three acks, of which the last completes it and gives its owner back. A
//! [`window::Window`] keeps a fixed number of trees in flight; each step completes one and begins another in
//! its place, the oldest (FIFO) or a random one, in an order that was drawn before and is the same for
//! everybody.
//!
//! # What makes it fair
//!
//! * Same positions, same keys, same edge ids, all drawn before the clock starts; three edge ids and the id stay
//!   with a position, in 32 bytes. Where others get a key, who issues ids gets the place to keep the id.
//! * The window goes in groups of 16 steps for everybody, single or batch: it gathers the 16 entries first, so
//!   that its own cache misses overlap. What it costs on its own is printed: [`peers::Nothing`].
//! * A fresh structure for every round, grown from its default size, filled, left to settle, and warmed up
//!   before the clock starts. Rounds are interleaved: A B C A B C.
//! * One fast hasher for all maps, foldhash's fast one. `expiry` multiplies once more, by a secret factor,
//!   seeded, because its ids may come from strangers.
//! * The work is checked: everybody must have completed every tree, and given back the right owners.
//! * The maps have no expiry. The trackers have a reaper running and a timeout of 30 s.
//!
//! Timers (`wheel`), timeouts of futures (`timeouts`) and keyed stores ([`keyed`]) have workloads and
//! peers of their own, by the same rules; each module says what is fair among its peers.

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
