//! Spouts, bolts, and the executor around [`expiry`]'s ack trees: pipelines in one process that
//! account for every message. After Apache Storm.
//!
//! A [`Spout`] emits messages. A [`Bolt`] receives [`Tuple`]s, emits messages that are derived from
//! them, and acks or fails them. The spout is notified once all that was derived from a message has
//! been acked. A message that fails or takes too long is emitted again if the spout has a
//! [`Replay`]. So bolts may see a message more than once, and no message is lost without a call of
//! its spout. The messages of each component have a type of their own, and are cloned where they go
//! to several tasks. A bolt that listens to messages of another type does not compile.
//!
//! For users of Storm: the topology emits messages again, not the spout. It calls the spout's
//! [`replay`](Spout::replay) for each attempt, and [`fail`](Spout::fail) only for a message that it
//! gives up. A [`basic`] bolt is a `BaseBasicBolt`. Any other bolt acks and fails tuples itself,
//! and names the parents of each message that it emits.
//!
//! ```
//! use expiry_topology::{basic, sink, Next, Spout, SpoutCollector, TopologyBuilder};
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
//! let topology = TopologyBuilder::new();
//! let lines = topology.spout("lines", |_| Lines(vec!["to be or not to be".to_string()]));
//! let words = topology
//!     .bolt("split", |_| basic(|line: &String, out| line.split(' ').for_each(|word| out.emit(word.to_string()))))
//!     .shuffle(&lines);
//! topology
//!     .bolt("print", |_| sink(|word: &String, _| println!("{word}")))
//!     .parallelism(2)
//!     .fields(&words, |word| word);
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
//! # use expiry_topology::{basic, Collect, ManualClock, TopologyBuilder, VecSpout};
//! let (given, seen, topology) = (VecSpout::new(["to", "be"]), Collect::new(), TopologyBuilder::new());
//! let words = topology.spout("words", given.instances());
//! let trim = topology.bolt("trim", |_| basic(|word: &&str, out| out.emit(word.len()))).shuffle(&words);
//! topology.bolt("seen", seen.instances()).shuffle(&trim);
//! assert!(topology.simulate(&ManualClock::new())?.run(100));
//! assert_eq!((seen.all(), given.acked()), (vec![2, 2], vec![0, 1]));
//! # Ok::<(), expiry_topology::BuildError>(())
//! ```
//!
//! With the feature `metrics`, snapshots of components' counters are published through the facade
//! of that name: module `publish`. With the feature `stream`, any stream is a spout: `StreamSpout`.
#![cfg_attr(docsrs, feature(doc_cfg))]
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
mod lanes;
mod metrics;
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

/// What the models in `loom-tests` look at by itself.
#[cfg(expiry_loom)]
#[doc(hidden)]
pub mod model {
    pub use crate::gate::{Gate, Visitor};
    pub use crate::inbox::{Bell, Call, Jam, Room};
}

pub use builder::{BoltStage, Source, SpoutStage, Stream, TopologyBuilder};
/// Types of [`expiry`] that a topology's user needs.
pub use expiry::{AckTracker, Clock, CoarseClock, ManualClock, Root};

pub use collect::{BoltCollector, SpoutCollector};
#[cfg(feature = "stream")]
#[cfg_attr(docsrs, doc(cfg(feature = "stream")))]
pub use component::StreamSpout;
pub use component::{
    basic, concurrent, sink, window, Basic, Bolt, Concurrent, Context, Counter, Derive, Done, Hook,
    Next, Seen, Spout, Waker,
};
pub use error::{BuildError, EmitError, Failed};
pub use metrics::{ComponentMetrics, InputMetrics, Latency};
pub use parts::{Collect, VecSpout};
pub use replay::{DeadLetter, Failure, Replay};
pub use run::{Simulation, Stuck, StuckComponent, Topology};
pub use tuple::{Parents, Tuple};
pub use wait::WaitStrategy;
