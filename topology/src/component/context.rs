//! What an instance is made with: its task's name and number, and a way to wake the task.

use crate::inbox::Call;
use std::fmt;
use std::sync::Arc;

/// Says which task an instance belongs to.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
/// use expiry_topology::{basic, Context, TopologyBuilder};
///
/// /// Each task has its share of the numbers.
/// fn share(context: &Context) -> Numbers {
///     assert_eq!(format!("{context:?}"), format!("numbers[{} of 4]", context.task()));
///     let (task, tasks) = (context.task() as u64, context.tasks() as u64);
///     Numbers(100 * task / tasks..100 * (task + 1) / tasks)
/// }
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", share).parallelism(4);
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(1_000) && topology.metrics()[0].panics == 0);
/// assert_eq!(topology.metrics()[0].acked, 100);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Context {
    pub(crate) component: Arc<str>,
    pub(crate) task: usize,
    pub(crate) tasks: usize,
    pub(crate) call: Arc<Call>,
}

impl Context {
    /// The component's name.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let (sender, names) = std::sync::mpsc::channel();
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", move |context| {
    ///     sender.send(context.component().to_string()).expect("it is read");
    ///     Numbers(0..3)
    /// });
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(names.try_recv()?, "numbers");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn component(&self) -> &str {
        &self.component
    }

    /// The task's number in its component, from 0.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |context| Numbers(0..1 + context.task() as u64)).parallelism(4);
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(topology.metrics()[0].emitted, 1 + 2 + 3 + 4);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn task(&self) -> usize {
        self.task
    }

    /// How many tasks the component has.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("../docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |context| Numbers(0..100 / context.tasks() as u64)).parallelism(4);
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(1_000));
    /// assert_eq!(topology.metrics()[0].emitted, 4 * 25);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks
    }

    /// Returns a handle that wakes this task's thread, for code that has something for a spout that
    /// has returned [`Next::Idle`](crate::Next::Idle). Take it where an instance is made, or in
    /// [`open`](crate::Spout::open). It works for all instances of the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::{basic, Context, Next, Spout, SpoutCollector, TopologyBuilder, Waker};
    /// use std::sync::mpsc::{channel, Sender};
    ///
    /// /// Where others get its waker.
    /// struct Asleep(Sender<Waker>);
    ///
    /// impl Spout<u64> for Asleep {
    ///     fn open(&mut self, context: &Context) {
    ///         self.0.send(context.waker()).expect("it is read");
    ///     }
    ///
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         out.emit(1, 0).map_or(Next::Idle, |()| Next::Asleep) // one each time that it is asked
    ///     }
    /// }
    ///
    /// # let (sender, wakers) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("asleep", move |_| Asleep(sender.clone()));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("asleep");
    /// # let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100) && topology.metrics()[0].emitted == 1);
    /// wakers.try_recv()?.wake();
    /// assert!(topology.settle(100) && topology.metrics()[0].emitted == 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(self.call.clone())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{} of {}]", self.component, self.task, self.tasks)
    }
}

/// Wakes a task's thread; see [`Context::waker`].
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
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
/// let mut topology = TopologyBuilder::new();
/// topology.spout("pushed", move |context| {
///     give.send(context.waker()).expect("it is read");
///     Pushed(receiver.lock().unwrap().take().expect("it is made once"))
/// });
/// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("pushed");
/// # let mut topology = topology.start_manual()?;
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
    /// Makes the task look again. Call it when there is something to find: send first, then wake.
    /// It costs a fence while the task's thread is awake.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::{atomic::{AtomicU64, Ordering::Relaxed}, mpsc, Arc};
    /// # struct Level(Arc<AtomicU64>);
    /// impl Spout<u64> for Level {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         let level = self.0.swap(0, Relaxed);
    ///         if level > 0 {
    ///             out.emit(level, 0).expect("there is room");
    ///         }
    ///         Next::Asleep
    ///     }
    /// }
    ///
    /// # let (give, wakers) = mpsc::channel();
    /// # let (level, mut topology) = (Arc::new(AtomicU64::new(0)), TopologyBuilder::new());
    /// # let seen = level.clone();
    /// # topology.spout("level", move |context| {
    /// #     give.send(context.waker()).expect("it is read");
    /// #     Level(seen.clone())
    /// # });
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("level");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// let waker = wakers.try_recv()?; // the spout has sent what `Context::waker` gave it
    /// level.store(7, Relaxed);
    /// assert!(topology.settle(100) && topology.metrics()[0].emitted == 0);
    /// waker.wake();
    /// assert!(topology.settle(100) && topology.metrics()[0].emitted == 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wake(&self) {
        self.0.call();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
