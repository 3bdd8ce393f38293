//! Spouts, bolts, and the executor around [`expiry`]'s ack trees: pipelines in one process that
//! account for every message. After Apache Storm.
//!
//! A [`Spout`] emits messages. A [`Bolt`] receives [`Tuple`]s, emits messages that are derived from
//! them, and acks or fails them. The spout is notified once all that was derived from a message has
//! been acked. A message that fails or takes too long is emitted again if the spout has a
//! [`Replay`]. So bolts may see a message more than once, and no message is lost without a call of
//! its spout. Messages of one topology have one type, and are cloned where they go to several
//! tasks. Use an enum if components exchange different things.
//!
//! For users of Storm: the topology emits messages again, not the spout. It calls the spout's
//! [`replay`](Spout::replay) for each attempt, and [`fail`](Spout::fail) only for a message that it
//! gives up. A [`basic`] bolt is a `BaseBasicBolt`. Any other bolt acks and fails tuples itself,
//! and names the parents of each message that it emits.
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
//! A test puts a bolt between a [`VecSpout`], which emits the test's messages, and a [`Collect`],
//! which keeps what comes. It needs no threads and no waiting:
//!
//! ```
//! # use expiry_topology::{basic, Collect, TopologyBuilder, VecSpout};
//! let (words, seen, mut topology) = (VecSpout::new(["to", "be"]), Collect::new(), TopologyBuilder::new());
//! topology.spout("words", words.instances());
//! topology.bolt("trim", |_| basic(|word: &&str, out| out.emit(&word[1..]))).shuffle("words");
//! topology.bolt("seen", seen.instances()).shuffle("trim");
//! assert!(topology.start_manual()?.settle(100));
//! assert_eq!((seen.all(), words.acked()), (vec!["o", "e"], vec![0, 1]));
//! # Ok::<(), expiry_topology::BuildError>(())
//! ```
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
mod parts;
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
/// Types of [`expiry`] that a topology's user needs.
pub use expiry::{AckTracker, Clock, CoarseClock, ManualClock, Root};

pub use collect::{BoltCollector, SpoutCollector};
pub use component::{basic, Basic, Bolt, Context, Derive, Done, Hook, Next, Spout, Waker};
pub use error::{BuildError, EmitError, Refused};
pub use graph::DEFAULT;
pub use metrics::{ComponentMetrics, Latency};
pub use parts::{Collect, VecSpout};
pub use replay::{DeadLetter, Failure, Replay};
pub use run::{ManualTopology, Stuck, StuckComponent, Topology};
pub use tuple::{Parents, Tuple};
pub use wait::{Parking, Progressive, Sleeping, Wait, WaitStrategy};
