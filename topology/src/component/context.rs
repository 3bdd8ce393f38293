//! What an instance is made with: its task's name and number, and a way to wake the task.

use crate::inbox::Call;
use std::fmt;
use std::sync::Arc;

/// Says which task an instance belongs to.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Context, TopologyBuilder, VecSpout};
///
/// /// Each task has its share of the numbers.
/// fn share(context: &Context) -> VecSpout<u64> {
///     assert_eq!(format!("{context:?}"), format!("numbers[{} of 4]", context.task()));
///     let (task, tasks) = (context.task() as u64, context.tasks() as u64);
///     VecSpout::new(100 * task / tasks..100 * (task + 1) / tasks)
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

    /// Returns a handle that wakes this task's thread, for code that has something for the
    /// instance. A spout that has returned [`Next::Idle`](crate::Next::Idle) or
    /// [`Next::Asleep`](crate::Next::Asleep) is asked again; a bolt's
    /// [`woken`](crate::Bolt::woken) is called. Take the handle where an instance is made, in
    /// [`open`](crate::Spout::open), or in [`prepare`](crate::Bolt::prepare). It works for all
    /// instances of the task.
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

/// Wakes a task's thread, which asks its spout again, or calls its bolt's
/// [`woken`](crate::Bolt::woken); see [`Context::waker`].
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
    /// Makes the task ask its spout again, or call its bolt. Call it when there is something to
    /// find: send first, then wake. It costs a fence while the task's thread is awake.
    pub fn wake(&self) {
        self.0.call();
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waker")
    }
}
