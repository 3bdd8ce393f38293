//! What an instance is made with: its task's name and number, and a way to wake the task.

use crate::inbox::Call;
use crate::task::{debug, lock};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task;
use std::time::Duration;

/// Says which task an instance belongs to.
#[derive(Clone)]
pub struct Context {
    pub(crate) component: Arc<str>,
    pub(crate) task: usize,
    pub(crate) tasks: usize,
    pub(crate) call: Arc<Call>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) timeout: Duration,
}

impl Context {
    /// The component's name.
    #[must_use]
    pub fn component(&self) -> &str {
        &self.component
    }

    /// The task's number in its component, from 0.
    #[must_use]
    pub fn task(&self) -> usize {
        self.task
    }

    /// How many tasks the component has.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// The shortest timeout that a message of the topology may have.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns a metric of the component's own, which its tasks share by the name. It is one of
    /// [`ComponentMetrics::own`](crate::ComponentMetrics::own) from now on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{sink, ManualClock, TopologyBuilder, VecSpout};
    /// # let topology = TopologyBuilder::new();
    /// # let lines = topology.spout("lines", |_| VecSpout::new(["to be", "or not"]));
    /// topology
    ///     .bolt("sink", |context| {
    ///         let bytes = context.counter("bytes");
    ///         sink(move |line: &&str, _| bytes.add(line.len() as u64))
    ///     })
    ///     .shuffle(&lines);
    /// # let mut topology = topology.simulate(&ManualClock::new())?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[1].own, [("bytes".to_string(), 11)]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn counter(&self, name: &str) -> Counter {
        self.registry.counter(name)
    }

    /// Returns a handle that wakes this task's thread, for code that has something for the
    /// instance. A spout that has returned [`Next::Idle`](crate::Next::Idle) or
    /// [`Next::Asleep`](crate::Next::Asleep) is asked again; a bolt's
    /// [`woken`](crate::Bolt::woken) is called. Take the handle where an instance is made, in
    /// [`open`](crate::Spout::open), or in [`prepare`](crate::Bolt::prepare). It works for all
    /// instances of the task. A thread that waits by [`Sleep`](crate::WaitStrategy::Sleep) sleeps
    /// on, and makes that call afterwards.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.call.clone())
    }
}

debug!([] Context, |it| "{}[{} of {}]", it.component, it.task, it.tasks);

/// The counters of a component, by their names.
#[derive(Default)]
pub(crate) struct Registry(Mutex<Vec<(String, Counter)>>);

impl Registry {
    /// The counter of this name, which is made if there is none.
    fn counter(&self, name: &str) -> Counter {
        let mut counters = lock(&self.0);
        if let Some((_, counter)) = counters.iter().find(|(known, _)| known == name) {
            return counter.clone();
        }
        let counter = Counter::default();
        counters.push((name.to_string(), counter.clone()));
        counter
    }

    /// All names and values, in the order in which they were registered.
    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        let counters = lock(&self.0);
        counters.iter().map(|(name, counter)| (name.clone(), counter.get())).collect()
    }
}

/// A metric of a component's own: see [`Context::counter`]. Clones share the value.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds to it: one atomic operation.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets it.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Wakes a task's thread, which asks its spout again, or calls its bolt's
/// [`woken`](crate::Bolt::woken); see [`Context::waker`].
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, ManualClock, Next, Spout, SpoutCollector, TopologyBuilder};
/// use std::sync::{mpsc, Mutex};
///
/// /// Emits what is sent to it.
/// struct Pushed(mpsc::Receiver<u64>);
///
/// impl Spout<u64> for Pushed {
///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
///         match self.0.try_recv() {
///             Ok(n) => out.emit(n, n).map_or(Next::Idle, |()| Next::Ready),
///             Err(mpsc::TryRecvError::Empty) => Next::Asleep,
///             Err(mpsc::TryRecvError::Disconnected) => Next::Done,
///         }
///     }
/// }
///
/// let (sender, receiver) = mpsc::channel();
/// let (give, wakers) = mpsc::channel();
/// let receiver = Mutex::new(Some(receiver));
/// let topology = TopologyBuilder::new();
/// let pushed = topology.spout("pushed", move |context| {
///     give.send(context.waker()).expect("it is read");
///     Pushed(receiver.lock().unwrap().take().expect("it is made once"))
/// });
/// # topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&pushed);
/// # let mut topology = topology.simulate(&ManualClock::new())?;
/// # assert!(topology.settle(100));
/// let waker = wakers.try_recv()?;
/// sender.send(7)?; // send first, then wake
/// waker.wake();
/// assert!(topology.settle(100));
/// assert_eq!(topology.metrics()[0].acked, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Waker(Arc<Call>);

impl Waker {
    /// Makes the task ask its spout again, or call its bolt. Call it when there is something to
    /// find: send first, then wake. It costs a fence while the task's thread is awake.
    pub fn wake(&self) {
        self.0.call();
    }
}

impl From<Waker> for task::Waker {
    /// The waker of a future or a stream that the instance polls by itself.
    fn from(waker: Waker) -> Self {
        waker.0.into()
    }
}

debug!([] Waker, |_it| "Waker");
