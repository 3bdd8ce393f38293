//! Hooks: what observes a topology.

use super::Context;
use crate::replay::Failure;
use std::time::Duration;

/// Called at each event, by the thread on which it happens, for tracing and for metrics of your
/// own. A panic in a hook is caught, and counted as one of the component.
///
/// ```
/// use expiry_topology::{Context, Hook, TopologyBuilder};
///
/// struct Trace;
///
/// impl<M> Hook<M> for Trace {
///     fn error(&self, task: &Context, error: &str) {
///         eprintln!("{task:?}: {error}");
///     }
/// }
///
/// let mut topology = TopologyBuilder::<u64>::new();
/// topology.hook(Trace);
/// ```
pub trait Hook<M>: Send + Sync {
    /// A message was emitted on this stream. For a spout's message, the hook is called at each
    /// attempt.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Hook, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct Trace(Sender<String>);
    ///
    /// impl Hook<u64> for Trace {
    ///     fn emit(&self, task: &Context, stream: &str, message: &u64) {
    ///         self.0.send(format!("{task:?} on {stream}: {message}")).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, traced) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.hook(Trace(sender));
    /// # topology.spout("numbers", |_| Numbers(0..2));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// let traced: Vec<String> = traced.try_iter().collect();
    /// assert_eq!(traced, ["numbers[0 of 1] on default: 0", "numbers[0 of 1] on default: 1"]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn emit(&self, task: &Context, stream: &str, message: &M) {
        let _ = (task, stream, message);
    }

    /// A bolt has executed a tuple, in so much time.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Hook, ManualClock, TopologyBuilder};
    /// # use std::{sync::mpsc::{channel, Sender}, time::Duration};
    /// struct Slow(Sender<Duration>);
    ///
    /// impl<M> Hook<M> for Slow {
    ///     fn execute(&self, _: &Context, took: Duration) {
    ///         if took > Duration::from_secs(1) {
    ///             self.0.send(took).expect("it is read");
    ///         }
    ///     }
    /// }
    ///
    /// # let (sender, slow) = channel();
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// topology.hook(Slow(sender));
    /// # topology.spout("numbers", |_| Numbers(0..3));
    /// topology
    ///     .bolt("sink", move |_| { let clock = clock.clone(); basic(move |n: &u64, _| clock.advance(Duration::from_secs(*n))) })
    ///     .shuffle("numbers"); // 0, 1 and 2 seconds
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert!(slow.try_iter().eq([Duration::from_secs(2)]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn execute(&self, task: &Context, took: Duration) {
        let _ = (task, took);
    }

    /// A bolt has acked a tuple.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Hook, TopologyBuilder};
    /// # use std::sync::{atomic::{AtomicU64, Ordering::Relaxed}, Arc};
    /// struct Acks(Arc<AtomicU64>);
    ///
    /// impl<M> Hook<M> for Acks {
    ///     fn ack(&self, _: &Context) {
    ///         self.0.fetch_add(1, Relaxed);
    ///     }
    /// }
    ///
    /// # let (acks, mut topology) = (Arc::new(AtomicU64::new(0)), TopologyBuilder::new());
    /// topology.hook(Acks(acks.clone()));
    /// topology.spout("numbers", |_| Numbers(0..5));
    /// topology.bolt("sink", |_| basic(|n: &u64, _| if n % 2 == 0 { Ok(()) } else { Err("it is odd") })).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(acks.load(Relaxed), 3);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn ack(&self, task: &Context) {
        let _ = task;
    }

    /// A bolt has failed a tuple.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Hook, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct Fails(Sender<String>);
    ///
    /// impl<M> Hook<M> for Fails {
    ///     fn fail(&self, task: &Context) {
    ///         self.0.send(task.component().to_string()).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, fails) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.hook(Fails(sender));
    /// topology.spout("numbers", |_| Numbers(0..3));
    /// topology.bolt("even", |_| basic(|n: &u64, _| if n % 2 == 0 { Ok(()) } else { Err("it is odd") })).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert!(fails.try_iter().eq(["even".to_string()]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn fail(&self, task: &Context) {
        let _ = task;
    }

    /// A spout's message was acked, so long after its first emission. The hook is called before the
    /// spout's `ack`.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Hook, ManualClock, TopologyBuilder};
    /// # use std::{sync::mpsc::{channel, Sender}, time::Duration};
    /// struct Times(Sender<(u64, Duration)>);
    ///
    /// impl<M> Hook<M> for Times {
    ///     fn spout_ack(&self, _: &Context, id: u64, took: Duration) {
    ///         self.0.send((id, took)).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, times) = channel();
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// topology.hook(Times(sender));
    /// # topology.spout("numbers", |_| Numbers(7..8));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// topology.hold("sink", true);
    /// assert!(topology.settle(100));
    /// clock.advance(Duration::from_secs(3));
    /// topology.hold("sink", false);
    /// assert!(topology.settle(100));
    /// assert!(times.try_iter().eq([(7, Duration::from_secs(3))]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn spout_ack(&self, task: &Context, id: u64, took: Duration) {
        let _ = (task, id, took);
    }

    /// An attempt at a spout's message has failed. There is another attempt if `is_last` is false.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Failure, Hook, ManualClock, Replay, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct Attempts(Sender<(u64, bool)>);
    ///
    /// impl<M> Hook<M> for Attempts {
    ///     fn spout_fail(&self, _: &Context, id: u64, _: &Failure, is_last: bool) {
    ///         self.0.send((id, is_last)).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, attempts) = channel();
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// topology.hook(Attempts(sender));
    /// topology.spout("numbers", |_| Numbers(7..8)).replay(Replay::default().attempts(3));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| Err::<(), _>("no"))).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.run(1_000, |next| clock.advance(next)));
    /// assert!(attempts.try_iter().eq([(7, false), (7, false), (7, true)]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn spout_fail(&self, task: &Context, id: u64, failure: &Failure, is_last: bool) {
        let _ = (task, id, failure, is_last);
    }

    /// A component reports an error, or has panicked.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, Context, Hook, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct Errors(Sender<String>);
    ///
    /// impl<M> Hook<M> for Errors {
    ///     fn error(&self, task: &Context, error: &str) {
    ///         self.0.send(format!("{}: {error}", task.component())).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, errors) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.hook(Errors(sender));
    /// topology.spout("numbers", |_| Numbers(0..1));
    /// topology.bolt("sink", |_| basic(|_: &u64, _| Err::<(), _>("no"))).shuffle("numbers");
    /// topology.bolt("fuse", |_| basic(|n: &u64, _| assert_ne!(*n, 0))).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(errors.try_recv()?, "sink: no");
    /// assert!(errors.try_recv()?.starts_with("fuse: panicked: "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn error(&self, task: &Context, error: &str) {
        let _ = (task, error);
    }
}
