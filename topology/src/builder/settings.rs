//! The settings of a topology.

use super::TopologyBuilder;
use crate::component::Hook;
use crate::replay::DeadLetter;
use crate::wait::WaitStrategy;
use expiry::Clock;
use std::sync::Arc;
use std::time::Duration;

impl<M: Clone + Send + 'static> TopologyBuilder<M> {
    /// How long all that is derived from a message may take, counted from each attempt. The time in
    /// which bolts hold tuples counts, too. `Duration::MAX` sets no limit.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, second, mut topology) = (ManualClock::new(), Duration::from_secs(1), TopologyBuilder::new());
    /// topology.clock(clock.clone()).timeout(10 * second);
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true); // it does not come to it
    /// assert!(topology.settle(100));
    /// clock.advance(9 * second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 0);
    /// clock.advance(2 * second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// The granularity of timeouts. The default is a 300th of the timeout, between 1 ms and 1 s.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let (clock, second, mut topology) = (ManualClock::new(), Duration::from_secs(1), TopologyBuilder::new());
    /// topology.clock(clock.clone()).timeout(10 * second).interval(4 * second);
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// clock.advance(11 * second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 0); // 10 s, rounded up to 12
    /// clock.advance(second);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn interval(&mut self, interval: Duration) -> &mut Self {
        self.interval = Some(interval);
        self
    }

    /// Whether trees are tracked. If not, a message is acked as soon as it is emitted, and no
    /// message times out: delivery is at most once.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.acking(false);
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology.bolt("lossy", |_| basic(|_: &u64, _| Err::<(), _>("nobody hears of this"))).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 0));
    /// assert!(topology.tracker().is_none());
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn acking(&mut self, acking: bool) -> &mut Self {
        self.acking = acking;
        self
    }

    /// How many batches the queue of a bolt's task holds.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.queue(4).batch(1);
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(1_000));
    /// let [numbers, sink] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((numbers.emitted, numbers.overflow, sink.queued), (5, 1, 4)); // then the spout is not asked
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn queue(&mut self, batches: usize) -> &mut Self {
        self.queue = batches;
        self
    }

    /// How many messages a batch holds at most.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.batch(10);
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(1_000));
    /// assert_eq!((topology.metrics()[0].emitted, topology.metrics()[1].queued), (100, 10));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn batch(&mut self, messages: usize) -> &mut Self {
        self.batch = messages;
        self
    }

    /// How long a message waits at most for others of its batch, while its task has more to do. (A
    /// task that has nothing to do sends what it has.)
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, ManualClock, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.clock(ManualClock::new());
    /// topology.flush_every(Duration::ZERO); // each message at once, though 64 might travel together
    /// topology.spout("numbers", |_| Numbers(0..20));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(1_000));
    /// assert_eq!(topology.metrics()[1].queued, 20); // batches
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn flush_every(&mut self, time: Duration) -> &mut Self {
        self.flush_every = time;
        self
    }

    /// How threads wait whose tasks have nothing to do.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use std::time::Duration;
    /// use expiry_topology::{basic, Parking, TopologyBuilder};
    ///
    /// let mut topology = TopologyBuilder::new();
    /// topology.wait(Parking); // threads that have nothing to do cost nothing, at once
    /// topology.spout("numbers", |_| Numbers(0..100));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let topology = topology.start()?;
    /// topology.wait(Duration::from_secs(60))?;
    /// assert_eq!(topology.metrics()[0].acked, 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait(&mut self, strategy: impl WaitStrategy) -> &mut Self {
        self.wait = Arc::new(strategy);
        self
    }

    /// The clock that timeouts, pauses and ticks go by. It must not panic. If it does not run with
    /// real time, threads look at it once a millisecond; [`start_manual`](Self::start_manual) is
    /// better then.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # use std::time::Duration;
    /// # let mut topology = TopologyBuilder::new();
    /// use expiry_topology::ManualClock;
    ///
    /// let (clock, hour) = (ManualClock::new(), Duration::from_secs(3600));
    /// topology.clock(clock.clone()).timeout(24 * hour);
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// clock.advance(23 * hour);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 0);
    /// clock.advance(2 * hour);
    /// assert!(topology.settle(100) && topology.metrics()[0].timed_out == 1); // and no day has passed
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn clock(&mut self, clock: impl Clock) -> &mut Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Spouts emit nothing until [`Topology::activate`](crate::Topology::activate).
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.start_inactive();
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[0].emitted, 0);
    /// topology.activate();
    /// assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[0].emitted, 3);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn start_inactive(&mut self) -> &mut Self {
        self.inactive = true;
        self
    }

    /// Adds a hook, which is called at each event.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// use expiry_topology::{basic, Context, Hook, TopologyBuilder};
    /// use std::sync::mpsc::{channel, Sender};
    ///
    /// struct Trace(Sender<String>);
    ///
    /// impl<M> Hook<M> for Trace {
    ///     fn error(&self, task: &Context, error: &str) {
    ///         self.0.send(format!("{task:?}: {error}")).expect("it is read");
    ///     }
    /// }
    ///
    /// let (sender, traced) = channel();
    /// let mut topology = TopologyBuilder::new();
    /// topology.hook(Trace(sender));
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|n: &u64, _| Err::<(), _>(format!("{n} is none of mine")))).shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert!(traced.try_iter().eq(["sink[0 of 1]: 0 is none of mine".to_string()]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn hook(&mut self, hook: impl Hook<M> + 'static) -> &mut Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Sets the handler of messages that are given up. The spout's thread calls it before the
    /// spout's `fail`. With a handler, or with [`replay`](crate::SpoutSpec::replay), a copy of each
    /// pending message is kept. If the handler panics, the panic is counted, the letter is gone,
    /// and the spout's `fail` is called all the same.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, letters) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.on_dead_letter(move |letter| sender.send((letter.message, letter.failure.to_string())).expect("it is read"));
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology
    ///     .bolt("sink", |_| basic(|n: &u64, _| if *n == 1 { Err("it is 1") } else { Ok(()) }))
    ///     .shuffle("numbers");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// assert!(letters.try_iter().eq([(1, r#"it was failed by "sink": it is 1"#.to_string())]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn on_dead_letter(
        &mut self,
        handler: impl Fn(DeadLetter<M>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_dead_letter = Some(Box::new(handler));
        self
    }

    /// Makes groupings, edges and jitter reproducible, as far as threads allow.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// use expiry_topology::{basic, BuildError, ManualClock, TopologyBuilder};
    /// fn tasks_of_numbers(seed: u64) -> Result<Vec<(usize, u64)>, BuildError> {
    ///     # let (sender, came) = std::sync::mpsc::channel();
    ///     let mut topology = TopologyBuilder::new();
    ///     topology.clock(ManualClock::new()).seed(seed);
    ///     topology.spout("numbers", |_| Numbers(0..100)).field("number", |n: &u64| n);
    ///     # topology
    ///     #     .bolt("sink", move |context| {
    ///     #         let (task, sender) = (context.task(), sender.clone());
    ///     #         basic(move |n: &u64, _| sender.send((task, *n)).expect("it is read"))
    ///     #     })
    ///     #     .parallelism(4)
    ///     #     .fields("numbers", ["number"]);
    ///     # let mut topology = topology.start_manual()?;
    ///     # assert!(topology.settle(1_000));
    ///     // and a bolt of four tasks that groups by that field, and sends both here
    ///     Ok(came.try_iter().collect())
    /// }
    ///
    /// assert_eq!(tasks_of_numbers(7)?, tasks_of_numbers(7)?);
    /// assert_ne!(tasks_of_numbers(7)?, tasks_of_numbers(8)?);
    /// # Ok::<(), BuildError>(())
    /// ```
    pub fn seed(&mut self, seed: u64) -> &mut Self {
        self.seed = Some(seed);
        self
    }
}
