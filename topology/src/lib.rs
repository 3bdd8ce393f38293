//! Spouts, bolts, and the executor around [`expiry`]'s ack trees: pipelines in one process that
//! account for every message. After Apache Storm.
//!
//! A [`Spout`] emits messages. A [`Bolt`] is given [`Tuple`]s, emits messages that are derived from
//! them, and acks or fails them. When all that was derived from a message has been acked the spout
//! is told so. What fails, or takes too long, is emitted again if the spout has a [`Replay`]: bolts
//! may see a message more than once, and none is lost without its spout being told. Messages of one
//! topology are of one type, which is cloned where one goes to several tasks: an enum, if
//! components exchange different things.
//!
//! Who knows Storm: messages are emitted again by the topology, not by the spout, which is told of
//! each attempt by [`replay`](Spout::replay), and by [`fail`](Spout::fail) only when one is given
//! up. A [`basic`] bolt is a `BaseBasicBolt`; any other one acks and fails by itself, and names
//! what its messages are derived from whenever it emits.
//!
//! ```
//! use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
//! use std::time::Duration;
//!
//! struct Lines(Vec<String>);
//!
//! impl Spout<String> for Lines {
//!     fn next(&mut self, out: &mut SpoutCollector<'_, String>) -> Next {
//!         match self.0.pop() {
//!             Some(line) => {
//!                 // It is asked only while there is room.
//!                 out.emit(line, 0).expect("there is room for a message");
//!                 Next::Ready
//!             }
//!             None => Next::Done,
//!         }
//!     }
//! }
//!
//! let mut topology = TopologyBuilder::new();
//! topology.spout("lines", |_| Lines(vec!["to be or not to be".to_string()]));
//! topology
//!     .bolt("split", |_| basic(|line: &String, out| line.split(' ').for_each(|word| out.emit(word.into()))))
//!     .shuffle("lines")
//!     .field("word", |word: &String| word);
//! topology
//!     .bolt("print", |_| basic(|word: &String, _| println!("{word}")))
//!     .parallelism(2)
//!     .fields("split", ["word"]);
//! let topology = topology.start()?;
//! topology.wait(Duration::from_secs(10))?;
//! assert_eq!(topology.metrics()[0].acked, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `Numbers(0..10)`, in the examples of this crate's items, is a spout that emits these numbers,
//! each with itself as its id.
//!
//! With the feature `metrics`, snapshots of components' counters are published through the facade
//! of that name: module `publish`.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide/topology.md")]
struct GuideDoctests;

mod bolt_task;
mod builder;
mod collect;
mod component;
mod emit;
mod error;
mod gate;
mod graph;
mod inbox;
mod instance;
mod metrics;
#[cfg(expiry_loom)]
#[doc(hidden)]
pub mod model;
mod outcomes;
#[cfg(feature = "metrics")]
pub mod publish;
mod replay;
mod run;
mod spout_task;
mod sync;
mod task;
mod tuple;
mod wait;

pub use builder::{BoltSpec, Source, SpoutSpec, TopologyBuilder};
/// Of [`expiry`], what it takes to use a topology.
pub use expiry::{AckTracker, Clock, CoarseClock, ManualClock, Root};

pub use collect::{BoltCollector, SpoutCollector};
pub use component::{basic, Basic, Bolt, Context, Derive, Done, Hook, Next, Spout, Waker};
pub use error::{BuildError, EmitError, Refused};
pub use graph::DEFAULT;
pub use metrics::{ComponentMetrics, Latency};
pub use replay::{DeadLetter, Failure, Replay};
pub use run::{ManualTopology, Stuck, StuckComponent, Topology};
pub use tuple::{Parents, Tuple};
pub use wait::{Parking, Progressive, Sleeping, Wait, WaitStrategy};
