//! What operators can see.

use crate::gate::Visitor;
use crate::task::lock;
use crate::tuple::Origin;
use hdrhistogram::Histogram;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::Duration;

/// A count that one task writes and any thread reads: no read-modify-write.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(n);
        // Release, and acquire below: a thread that has read that a message was executed also reads
        // what that message's execution has emitted.
        self.0.store(sum, Ordering::Release);
    }

    #[inline]
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Release);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// How long something took: a histogram with two significant digits.
#[derive(Clone)]
pub struct Latency(Histogram<u64>);

impl Default for Latency {
    fn default() -> Self {
        Latency(Histogram::new(2).expect("2 digits are allowed"))
    }
}

impl Latency {
    /// How many were taken.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// What so many per cent took at most; zero if there are none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_secs_f64(self.0.mean() / 1e9)
    }

    /// The longest.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.0.max())
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latency")
            .field("count", &self.count())
            .field("p50", &self.percentile(50.0))
            .field("p99", &self.percentile(99.0))
            .field("max", &self.max())
            .finish()
    }
}

/// A latency that one task takes and any thread reads.
#[derive(Default)]
pub(crate) struct Taken(Mutex<Latency>);

impl Taken {
    /// Notes how long something took, in nanoseconds.
    pub(crate) fn took(&self, nanos: u64) {
        // A task does not wait for a reader of its metrics: it leaves this sample out.
        let Ok(mut latency) = self.0.try_lock() else {
            return;
        };
        // It resizes itself up to 2^63, which is 292 years.
        let _ = latency.0.record(nanos);
    }

    fn add_to(&self, sum: &mut Latency) {
        let latency = lock(&self.0);
        sum.0.add(&latency.0).expect("it resizes itself");
    }
}

#[derive(Default)]
pub(crate) struct Input {
    pub(crate) executed: Count,
    pub(crate) acked: Count,
    pub(crate) failed: Count,
    pub(crate) execute: Taken,
    pub(crate) process: Taken,
}

#[derive(Default)]
pub(crate) struct Stats {
    /// The inputs of a bolt.
    pub(crate) inputs: Vec<Input>,
    pub(crate) emitted: Count,
    pub(crate) transferred: Count,
    /// Messages of a spout.
    pub(crate) acked: Count,
    /// Attempts of a spout.
    pub(crate) failed: Count,
    pub(crate) trees_acked: Count,
    pub(crate) trees_failed: Count,
    pub(crate) late: Count,
    pub(crate) timed_out: Count,
    pub(crate) replayed: Count,
    pub(crate) dead_letters: Count,
    pub(crate) panics: Count,
    pub(crate) errors: Count,
    /// Messages pending: in flight, or to be emitted again.
    pub(crate) pending: Count,
    /// Batches that had no room downstream, now.
    pub(crate) overflow: Count,
    pub(crate) skipped_max_pending: Count,
    pub(crate) skipped_inactive: Count,
    pub(crate) skipped_back_pressure: Count,
    pub(crate) is_spout: bool,
    /// Inside while it is a spout that may be asked for messages.
    pub(crate) visitor: Visitor,
    /// It is a spout that has no more messages.
    pub(crate) is_done: AtomicBool,
    /// Since which clock reading the component's own code has been running; 0 if it is not.
    pub(crate) busy_since: Count,
    /// From the emission of a spout's message to its ack.
    pub(crate) latency: Taken,
}

impl Stats {
    pub(crate) fn spout() -> Self {
        Stats { is_spout: true, ..Stats::default() }
    }

    pub(crate) fn bolt(inputs: usize) -> Self {
        let inputs = (0..inputs).map(|_| Input::default()).collect();
        Stats { inputs, ..Stats::default() }
    }

    /// The input by which a tuple came. A tuple of another bolt counts for the first one.
    #[inline]
    pub(crate) fn input(&self, origin: Origin) -> &Input {
        self.inputs.get(origin.input as usize).unwrap_or(&self.inputs[0])
    }

    /// Number of tuples that a bolt has executed.
    pub(crate) fn executed(&self) -> u64 {
        self.inputs.iter().map(|input| input.executed.get()).sum()
    }
}

/// What a bolt did with the messages of one of its groupings, all its tasks together.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InputMetrics {
    /// The component that it listens to.
    pub source: String,
    /// Tuples that it executed.
    pub executed: u64,
    /// Tuples that it acked.
    pub acked: u64,
    /// Tuples that it failed.
    pub failed: u64,
    /// From the call of `execute` to its return.
    pub execute: Latency,
    /// From the receipt of a tuple to its ack or fail.
    pub process: Latency,
}

/// A component's, all its tasks together. Monotonic but for `pending`, `held`, `queued` and
/// `overflow`; read one after another while others count.
///
/// # Examples
///
/// ```
/// # use expiry_topology::{sink, ManualClock, TopologyBuilder, VecSpout};
/// # let topology = TopologyBuilder::new();
/// let numbers = topology.spout("numbers", |_| VecSpout::new(0..10));
/// topology.bolt("even", |_| sink(|n: &u64, _| if n % 2 == 0 { Ok(()) } else { Err("it is odd") })).shuffle(&numbers);
/// let mut topology = topology.simulate(&ManualClock::new())?;
/// assert!(topology.settle(100));
/// for component in topology.metrics() {
///     println!("{}: {} emitted, {} held, {} errors", component.name, component.emitted, component.held, component.errors);
/// }
/// let [numbers, even] = &topology.metrics()[..] else { unreachable!("there are two") };
/// assert_eq!((numbers.acked, numbers.failed, numbers.pending), (5, 5, 0));
/// assert_eq!((even.executed, even.acked, even.failed, even.errors), (10, 5, 5, 5));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ComponentMetrics {
    /// Its name.
    pub name: String,
    /// How many tasks it has.
    pub tasks: usize,
    /// Messages that it emitted; by a spout, each attempt counted.
    pub emitted: u64,
    /// Copies of these that were sent: one for each task that one goes to.
    pub transferred: u64,
    /// Tuples that it executed, those that it panicked over included: at rest, as many in all as
    /// were transferred. For bolts only.
    pub executed: u64,
    /// Tuples that a bolt acked, or messages of a spout whose tree was acked.
    pub acked: u64,
    /// Tuples that a bolt failed, those that it panicked over included; or attempts of a spout that
    /// failed, timeouts not included.
    pub failed: u64,
    /// Tuples that it was given and has neither acked nor failed: which it holds now, or has
    /// dropped. For bolts only.
    pub held: u64,
    /// Trees that ended with one of its acks. Of bolts.
    pub trees_acked: u64,
    /// Trees that ended with one of its fails, panics included. Of bolts.
    pub trees_failed: u64,
    /// Acks and fails that came when their tree had ended: without effect. Of bolts.
    pub late: u64,
    /// Attempts that timed out. Of spouts.
    pub timed_out: u64,
    /// Messages emitted again. Of spouts.
    pub replayed: u64,
    /// Messages given up. Of spouts.
    pub dead_letters: u64,
    /// Panics that were caught: of its instances, each followed by a restart; and of hooks, and of
    /// what copies and groups its messages, where the instance goes on.
    pub panics: u64,
    /// Errors that it has reported, and one for each panic.
    pub errors: u64,
    /// Messages pending now: in flight, or waiting to be emitted again. Of spouts.
    pub pending: u64,
    /// Batches in its queues now. Of bolts.
    pub queued: usize,
    /// Batches that it could not send on yet, now.
    pub overflow: u64,
    /// Of spouts: time without emissions because as much was pending as may be, over all tasks.
    pub skipped_max_pending: Duration,
    /// Time in which it did nothing new because it was not active.
    pub skipped_inactive: Duration,
    /// Time in which it did nothing new because those after it had no room.
    pub skipped_back_pressure: Duration,
    /// A bolt's latency runs from the call of `execute` to its return. A spout's latency runs from
    /// the first emission of a message to its ack, attempts and pauses included. One in
    /// [so many](crate::TopologyBuilder::sample_every) is taken, but for those that end while
    /// metrics are read.
    pub latency: Latency,
    /// Of a bolt: its groupings, in the order of declaration.
    pub inputs: Vec<InputMetrics>,
    /// The component's own [counters](crate::Context::counter).
    pub own: Vec<(String, u64)>,
}

/// Adds a task's counters to its component's, field by field.
macro_rules! sums {
    ($sum:ident += $stats:ident: $($field:ident)+) => {
        $($sum.$field += $stats.$field.get();)+
    };
}

impl ComponentMetrics {
    pub(crate) fn new(name: &str, sources: impl Iterator<Item = String>) -> Self {
        let inputs = sources.map(|source| InputMetrics { source, ..InputMetrics::default() });
        let (name, inputs) = (name.to_string(), inputs.collect());
        ComponentMetrics { name, inputs, ..ComponentMetrics::default() }
    }

    pub(crate) fn add(&mut self, stats: &Stats, queued: usize) {
        self.tasks += 1;
        self.queued += queued;
        sums! {
            self += stats: emitted transferred acked failed trees_acked trees_failed late timed_out
                replayed dead_letters panics errors pending overflow
        }
        for (sum, input) in self.inputs.iter_mut().zip(&stats.inputs) {
            let (acked, failed) = (input.acked.get(), input.failed.get());
            let executed = input.executed.get();
            (sum.executed, self.executed) = (sum.executed + executed, self.executed + executed);
            (sum.acked, self.acked) = (sum.acked + acked, self.acked + acked);
            (sum.failed, self.failed) = (sum.failed + failed, self.failed + failed);
            // A tuple that a bolt acks before it panics then is failed too.
            self.held += executed.saturating_sub(acked + failed);
            input.execute.add_to(&mut sum.execute);
            input.execute.add_to(&mut self.latency);
            input.process.add_to(&mut sum.process);
        }
        for (sum, count) in [
            (&mut self.skipped_max_pending, &stats.skipped_max_pending),
            (&mut self.skipped_inactive, &stats.skipped_inactive),
            (&mut self.skipped_back_pressure, &stats.skipped_back_pressure),
        ] {
            *sum += Duration::from_nanos(count.get());
        }
        stats.latency.add_to(&mut self.latency);
    }
}
