//! What users write: spouts, bolts, and what they are told.

use crate::collect::{BoltCollector, SpoutCollector};
use crate::error::EmitError;
use crate::inbox::Call;
use crate::replay::Failure;
use crate::tuple::Tuple;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which task this is.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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

    /// Wakes this task's thread: for whoever has something for a spout that has said [`Next::Idle`]. To be had where an instance
    /// is made, or in [`open`](Spout::open); it is good for all instances of the task.
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
    /// Makes it look again. To be called when there is something to see: send first, then wake. Costs a fence where it is awake.
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

/// What a spout says when it has been asked for messages.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, ManualClock, Next, Spout, SpoutCollector, TopologyBuilder};
/// use std::time::Duration;
///
/// /// Emits once a second, three times.
/// struct Beats(u64);
///
/// impl Spout<u64> for Beats {
///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
///         if self.0 == 3 {
///             return Next::Done;
///         }
///         if out.now() < Duration::from_secs(self.0) {
///             return Next::Idle; // ask again in a millisecond
///         }
///         self.0 += 1;
///         out.emit(self.0, self.0).map_or(Next::Idle, |()| Next::Ready)
///     }
/// }
///
/// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
/// # topology.clock(clock.clone());
/// # topology.spout("beats", |_| Beats(0));
/// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("beats");
/// # let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100) && topology.metrics()[0].emitted == 1);
/// clock.advance(Duration::from_secs(2));
/// assert!(topology.settle(100) && topology.is_finished());
/// assert_eq!(topology.metrics()[0].acked, 3);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Ask again at once.
    Ready,
    /// There is nothing just now. It is asked again after a millisecond, or when its [`Waker`] is used.
    Idle,
    /// There is nothing until its [`Waker`] is used: it is not asked before. (Nor by an instance that follows a panic.)
    Asleep,
    /// There will be nothing more. It is not asked again, but still told what becomes of what it has emitted.
    Done,
}

/// A source of messages. All of its functions are called by its own thread, one after another, so none of them should block: while
/// one does, it is not told of acks, and nothing of it is emitted again. An instance that panics is replaced, without a
/// [`close`](Self::close); the next one is told what becomes of the messages that it has emitted, by their tokens. These need
/// not differ for the topology, but if a message cannot be told by its token the spout does not know which one has ended.
///
/// # Examples
///
/// ```
/// use expiry_topology::{basic, Failure, ManualClock, Next, Replay, Spout, SpoutCollector, TopologyBuilder};
/// use std::sync::mpsc::{channel, Sender};
///
/// /// Emits words; what it notes is what it was told.
/// struct Words(Vec<&'static str>, Sender<String>);
///
/// impl Spout<String> for Words {
///     fn next(&mut self, out: &mut SpoutCollector<'_, String>) -> Next {
///         let Some(word) = self.0.pop() else { return Next::Done };
///         out.emit(word.to_string(), self.0.len() as u64).map_or(Next::Idle, |()| Next::Ready)
///     }
///
///     fn ack(&mut self, id: u64) {
///         self.1.send(format!("{id} acked")).expect("it is read");
///     }
///
///     fn replay(&mut self, id: u64, _: &Failure, word: &mut String) {
///         *word = word.to_lowercase();
///         self.1.send(format!("{id} once more")).expect("it is read");
///     }
///
///     fn fail(&mut self, id: u64, _: &Failure) {
///         self.1.send(format!("{id} given up")).expect("it is read");
///     }
/// }
///
/// let (clock, (sender, told)) = (ManualClock::new(), channel());
/// let mut topology = TopologyBuilder::new();
/// topology.clock(clock.clone());
/// topology.spout("words", move |_| Words(vec!["or", "BE", "2"], sender.clone())).replay(Replay::default().attempts(2));
/// topology
///     .bolt("lower", |_| basic(|w: &String, _| if w.contains(char::is_lowercase) { Ok(()) } else { Err("not lower case") }))
///     .shuffle("words");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.run(1_000, |next| clock.advance(next)));
/// let mut told: Vec<String> = told.try_iter().collect();
/// told.sort();
/// assert_eq!(told, ["0 acked", "1 acked", "1 once more", "2 given up", "2 once more"]);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub trait Spout<M>: Send {
    /// Before anything else, also after a restart. It can neither fail nor report: what may go wrong is for
    /// [`next`](Self::next).
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Context, Next, Spout, SpoutCollector, TopologyBuilder};
    /// /// Numbers of which each task has its share.
    /// struct Share(std::ops::Range<u64>);
    ///
    /// impl Spout<u64> for Share {
    ///     fn open(&mut self, context: &Context) {
    ///         let first = 10 * context.task() as u64;
    ///         self.0 = first..first + 10;
    ///     }
    ///
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         self.0.next().map_or(Next::Done, |n| out.emit(n, n).map_or(Next::Idle, |()| Next::Ready))
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("share", |_| Share(0..0)).parallelism(3);
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("share");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(1_000));
    /// assert_eq!(topology.metrics()[0].acked, 30);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn open(&mut self, context: &Context) {
        let _ = context;
    }

    /// Asks for messages: to be emitted now, one or a few, while there is [room](SpoutCollector::room). Not called while there is none,
    /// nor while bolts have none for what was emitted before, nor while the topology is inactive.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// struct Countdown(u64);
    ///
    /// impl Spout<u64> for Countdown {
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         if self.0 == 0 {
    ///             return Next::Done;
    ///         }
    ///         out.emit(self.0, self.0).expect("it is asked only while there is room");
    ///         self.0 -= 1;
    ///         Next::Ready
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("countdown", |_| Countdown(5)).max_pending(2);
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("countdown");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(1_000));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].panics), (5, 0));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn next(&mut self, out: &mut SpoutCollector<'_, M>) -> Next;

    /// All that was derived from the message with this token has been acked. Once for each.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::{atomic::{AtomicU64, Ordering::Relaxed}, Arc};
    /// # struct Lines { next: u64, committed: Arc<AtomicU64> }
    /// impl Spout<u64> for Lines {
    /// #     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    /// #         self.next += 1;
    /// #         out.emit(self.next, self.next).map_or(Next::Idle, |()| if self.next < 3 { Next::Ready } else { Next::Done })
    /// #     }
    ///     fn ack(&mut self, id: u64) {
    ///         self.committed.fetch_max(id, Relaxed); // where to begin after a restart
    ///     }
    /// }
    ///
    /// # let committed = Arc::new(AtomicU64::new(0));
    /// # let mut topology = TopologyBuilder::new();
    /// # let shared = committed.clone();
    /// # topology.spout("lines", move |_| Lines { next: 0, committed: shared.clone() });
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("lines");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(committed.load(Relaxed), 3); // of three lines
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn ack(&mut self, id: u64) {
        let _ = id;
    }

    /// The message with this token is given up: its last attempt has failed or timed out. Once for each, instead of an ack. Without
    /// [`replay`](crate::SpoutSpec::replay) the first attempt is the last one, and the spout may emit it again by itself, as in
    /// Storm.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Failure, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// # struct One(Sender<(u64, String)>);
    /// impl Spout<&'static str> for One {
    /// #     fn next(&mut self, out: &mut SpoutCollector<'_, &'static str>) -> Next {
    /// #         out.emit("seven", 7).map_or(Next::Idle, |()| Next::Done)
    /// #     }
    ///     fn fail(&mut self, id: u64, failure: &Failure) {
    ///         self.0.send((id, failure.to_string())).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, failed) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("one", move |_| One(sender.clone()));
    /// topology
    ///     .bolt("parse", |_| basic(|text: &&str, _| text.parse::<u64>().map(|_| ())))
    ///     .shuffle("one"); // emits "seven", with the token 7
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert!(failed.try_iter().eq([(7, r#"it was failed by "parse": invalid digit found in string"#.to_string())]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn fail(&mut self, id: u64, failure: &Failure) {
        let _ = (id, failure);
    }

    /// An attempt at the message with this token has failed or timed out, and there is another one, after the pause: with `message`,
    /// which may be changed for it, say to count the attempts. It is emitted by the topology: nothing is to be done here.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Failure, ManualClock, Next, Replay, Spout, SpoutCollector, TopologyBuilder};
    /// # struct One;
    /// #[derive(Clone)]
    /// struct Job {
    ///     attempt: u32,
    /// }
    ///
    /// impl Spout<Job> for One {
    /// #     fn next(&mut self, out: &mut SpoutCollector<'_, Job>) -> Next {
    /// #         out.emit(Job { attempt: 1 }, 0).map_or(Next::Idle, |()| Next::Done)
    /// #     }
    ///     fn replay(&mut self, _: u64, _: &Failure, job: &mut Job) {
    ///         job.attempt += 1;
    ///     }
    /// }
    ///
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// topology.spout("one", |_| One).replay(Replay::default());
    /// topology
    ///     .bolt("third", |_| basic(|job: &Job, _| if job.attempt < 3 { Err("too early") } else { Ok(()) }))
    ///     .shuffle("one");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.run(1_000, |next| clock.advance(next)));
    /// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].replayed), (1, 2));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn replay(&mut self, id: u64, failure: &Failure, message: &mut M) {
        let _ = (id, failure, message);
    }

    /// The topology has become active, or is so from the beginning: `next` is called from now on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// # struct Source(Sender<&'static str>);
    /// impl Spout<u64> for Source {
    ///     fn activate(&mut self) {
    ///         self.0.send("open the socket").expect("it is read");
    ///     }
    ///
    ///     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    ///         self.0.send("read from it").expect("it is read");
    ///         out.emit(1, 0).map_or(Next::Idle, |()| Next::Done)
    ///     }
    /// }
    ///
    /// # let (sender, done) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.start_inactive();
    /// # topology.spout("source", move |_| Source(sender.clone()));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("source");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!(done.try_iter().count(), 0); // it was started inactive
    /// topology.activate();
    /// assert!(topology.settle(100));
    /// assert!(done.try_iter().eq(["open the socket", "read from it"]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn activate(&mut self) {}

    /// It has become inactive: `next` is not called, the rest goes on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// # struct Source(Sender<&'static str>);
    /// impl Spout<u64> for Source {
    /// #     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    /// #         out.emit(1, 0).map_or(Next::Idle, |()| Next::Ready)
    /// #     }
    ///     fn deactivate(&mut self) {
    ///         self.0.send("close the socket").expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, done) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("source", move |_| Source(sender.clone()));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("source");
    /// # let mut topology = topology.start_manual()?;
    /// for _ in 0..10 {
    ///     topology.step(); // it always has more
    /// }
    /// topology.deactivate();
    /// assert!(topology.settle(100)); // and is asked for no more of it
    /// assert_eq!(done.try_recv()?, "close the socket");
    /// assert_eq!((topology.metrics()[0].emitted > 0, topology.metrics()[0].pending), (true, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn deactivate(&mut self) {}

    /// The last call, also if the topology is killed or dropped: of what is pending by then it is not told.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry_topology::{basic, Next, Spout, SpoutCollector, TopologyBuilder};
    /// # use std::sync::mpsc::{channel, Sender};
    /// # struct Source(Sender<&'static str>);
    /// impl Spout<u64> for Source {
    /// #     fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
    /// #         out.emit(1, 0).map_or(Next::Idle, |()| Next::Done)
    /// #     }
    ///     fn ack(&mut self, _: u64) {
    ///         self.0.send("acked").expect("it is read");
    ///     }
    ///
    ///     fn close(&mut self) {
    ///         self.0.send("closed").expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, told) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("source", move |_| Source(sender.clone()));
    /// # topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("source");
    /// let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100));
    /// drop(topology);
    /// assert!(told.try_iter().eq(["acked", "closed"]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn close(&mut self) {}
}

/// A step of the work. All of its functions are called by its own thread, one after another. An instance that panics is replaced,
/// without a [`cleanup`](Self::cleanup); what it held times out.
///
/// ```
/// use expiry_topology::{Bolt, BoltCollector, Tuple};
/// # use std::time::Duration;
///
/// /// Emits the sum of what has come since the last tick, and acks it then.
/// struct Sums(Vec<Tuple<u64>>);
///
/// impl Bolt<u64> for Sums {
///     fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
///         self.0.push(tuple);
///     }
///
///     fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
///         let sum = self.0.iter().map(|tuple| tuple.message()).sum();
///         out.emit(&self.0, sum); // derived from all of them
///         self.0.drain(..).for_each(|tuple| out.ack(tuple));
///     }
/// }
///
/// # let mut topology = expiry_topology::TopologyBuilder::new();
/// topology
///     .bolt("sums", |_| Sums(Vec::new()))
///     .shuffle("numbers")
///     .tick_every(Duration::from_secs(1));
/// ```
pub trait Bolt<M>: Send {
    /// Before anything else, also after a restart.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, Context, TopologyBuilder, Tuple};
    /// # use std::sync::mpsc::{channel, Sender};
    /// struct Write(Option<String>, Sender<String>);
    ///
    /// impl Bolt<u64> for Write {
    ///     fn prepare(&mut self, context: &Context) {
    ///         self.0 = Some(format!("part-{}", context.task())); // the file of this task
    ///     }
    ///
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.1.send(self.0.clone().expect("it is prepared")).expect("it is read");
    ///         out.ack(tuple);
    ///     }
    /// }
    ///
    /// # let (sender, written) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..2));
    /// # topology.bolt("write", move |_| Write(None, sender.clone())).parallelism(2).all("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// # let mut written: Vec<String> = written.try_iter().collect();
    /// # written.sort();
    /// assert_eq!(written, ["part-0", "part-0", "part-1", "part-1"]);
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn prepare(&mut self, context: &Context) {
        let _ = context;
    }

    /// A tuple has come: to be acked or failed, now or later, in a call of this bolt. A panic fails it, and the bolt is made anew. It
    /// may come for a message whose tree has ended, by a failure elsewhere or a timeout: its ack does nothing then.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// struct Even;
    ///
    /// impl Bolt<u64> for Even {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         match *tuple {
    ///             n if n % 2 == 0 => out.ack(tuple),
    ///             7 => panic!("that fails it too"),
    ///             _ => out.fail(tuple),
    ///         }
    ///     }
    /// }
    ///
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// # topology.bolt("even", |_| Even).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// let [numbers, even] = &topology.metrics()[..] else { unreachable!("there are two") };
    /// assert_eq!((numbers.acked, numbers.failed, even.panics), (5, 5, 1));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>);

    /// The time that [`tick_every`](crate::BoltSpec::tick_every) asked for has passed: also while the topology is inactive, and not
    /// while what this bolt has emitted finds no room. While the topology is [drained](crate::Topology::drain) it comes early, once for
    /// what was executed last.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple};
    /// # use std::time::Duration;
    /// # #[derive(Default)]
    /// # struct Rate(u64);
    /// impl Bolt<u64> for Rate {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.0 += 1;
    ///         out.ack(tuple);
    ///     }
    ///
    ///     fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
    ///         out.emit((), std::mem::take(&mut self.0)); // how many in a second
    ///     }
    /// }
    ///
    /// # let (sender, came) = std::sync::mpsc::channel();
    /// # let (clock, mut topology) = (ManualClock::new(), TopologyBuilder::new());
    /// # topology.clock(clock.clone());
    /// # topology.spout("numbers", |_| Numbers(0..10));
    /// topology.bolt("rate", |_| Rate::default()).shuffle("numbers").tick_every(Duration::from_secs(1));
    /// # topology.bolt("sink", move |_| {
    /// #     let sender = sender.clone();
    /// #     expiry_topology::basic(move |n: &u64, _| sender.send(*n).expect("it is read"))
    /// # }).shuffle("rate");
    /// # let mut topology = topology.start_manual()?;
    /// for _ in 0..3 {
    ///     assert!(topology.settle(100));
    ///     clock.advance(Duration::from_secs(1));
    /// }
    /// assert!(came.try_iter().eq([10, 0]));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    fn tick(&mut self, out: &mut BoltCollector<'_, M>) {
        let _ = out;
    }

    /// The last call, also if the topology is killed or dropped. Nothing can be emitted or acked any more; when a topology has
    /// been [drained](crate::Topology::drain) no bolt holds anything that is pending.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
    /// # use std::sync::mpsc::{channel, Sender};
    /// # struct Sum(u64, Sender<u64>);
    /// impl Bolt<u64> for Sum {
    ///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
    ///         self.0 += *tuple;
    ///         out.ack(tuple);
    ///     }
    ///
    ///     fn cleanup(&mut self) {
    ///         self.1.send(self.0).expect("it is read");
    ///     }
    /// }
    ///
    /// # let (sender, sums) = channel();
    /// # let mut topology = TopologyBuilder::new();
    /// # topology.spout("numbers", |_| Numbers(0..5));
    /// # topology.bolt("sum", move |_| Sum(0, sender.clone())).shuffle("numbers");
    /// # let mut topology = topology.start_manual()?;
    /// assert!(topology.settle(100) && sums.try_recv().is_err());
    /// drop(topology);
    /// assert_eq!(sums.try_recv()?, 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn cleanup(&mut self) {}
}

/// A bolt that is a function of messages: what it emits is derived from its input, which is acked when it returns, or failed if it
/// returns an error. The error is [reported](BoltCollector::report), and the spout is told of it, at each attempt.
///
/// ```
/// # use expiry_topology::{basic, BoltCollector, Tuple};
/// let parse = || basic(|text: &String, out| text.parse::<u32>().map(|n| out.emit(n.to_string())));
/// let print = || basic(|text: &String, _| println!("{text}"));
/// # let mut topology = expiry_topology::TopologyBuilder::new();
/// # topology.bolt("parse", move |_| parse());
/// # topology.bolt("print", move |_| print());
/// ```
pub fn basic<M, D: Done, F: FnMut(&M, &mut Derive<'_, '_, M>) -> D>(f: F) -> Basic<F> {
    Basic(f)
}

/// See [`basic`].
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, Bolt, TopologyBuilder};
///
/// /// A step that other topologies use too.
/// fn halve() -> impl Bolt<u64> {
///     basic(|n: &u64, out| match n % 2 {
///         0 => Ok(out.emit(n / 2)),
///         _ => Err("it is odd"),
///     })
/// }
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| Numbers(0..5));
/// topology.bolt("halve", |_| halve()).shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].failed), (3, 2));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Basic<F>(F);

impl<F> fmt::Debug for Basic<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Basic")
    }
}

/// What a [`basic`] bolt may return: nothing, or an error.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, TopologyBuilder};
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| Numbers(0..5));
/// topology.bolt("any", |_| basic(|_: &u64, _| ())).shuffle("numbers");
/// topology
///     .bolt("small", |_| basic(|n: &u64, _| if *n < 4 { Ok(()) } else { Err(format!("{n} is too large")) }))
///     .shuffle("numbers");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[1].acked, topology.metrics()[2].failed, topology.metrics()[2].errors), (5, 1, 1));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub trait Done {
    /// Why the input is to be failed, if it is.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry_topology::Done;
    ///
    /// assert_eq!(().failure(), None);
    /// assert_eq!(Ok::<(), &str>(()).failure(), None);
    /// assert_eq!(Err("too late").failure(), Some("too late".to_string()));
    /// ```
    fn failure(self) -> Option<String>;
}

impl Done for () {
    fn failure(self) -> Option<String> {
        None
    }
}

impl<E: fmt::Display> Done for Result<(), E> {
    fn failure(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}

/// Emits what a [`basic`] bolt derives from its input.
///
/// # Examples
///
/// ```
#[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
/// use expiry_topology::{basic, Derive, TopologyBuilder};
///
/// fn divisors(n: &u64, out: &mut Derive<'_, '_, u64>) {
///     (1..=*n).filter(|d| n % d == 0).for_each(|d| out.emit(d));
/// }
///
/// let mut topology = TopologyBuilder::new();
/// topology.spout("numbers", |_| Numbers(12..13));
/// topology.bolt("divisors", |_| basic(divisors)).shuffle("numbers");
/// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("divisors");
/// let mut topology = topology.start_manual()?;
/// assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[2].executed, topology.metrics()[0].acked), (6, 1)); // when all six are acked
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Derive<'a, 'b, M> {
    tuple: &'a Tuple<M>,
    out: &'a mut BoltCollector<'b, M>,
}

impl<M> fmt::Debug for Derive<'_, '_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Derive")
    }
}

impl<M: Clone> Derive<'_, '_, M> {
    /// Emits a message on the default stream.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..5));
    /// topology.bolt("twice", |_| basic(|n: &u64, out| { out.emit(*n); out.emit(*n) })).shuffle("numbers");
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle("twice");
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[1].emitted, topology.metrics()[2].executed), (10, 10));
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit(&mut self, message: M) {
        self.out.emit(self.tuple, message);
    }

    /// Emits a message on another stream.
    ///
    /// # Errors
    ///
    /// [`Refused::UndeclaredStream`](crate::Refused::UndeclaredStream), with the message.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
    /// # use expiry_topology::{basic, TopologyBuilder};
    /// # let mut topology = TopologyBuilder::new();
    /// topology.spout("numbers", |_| Numbers(0..5));
    /// topology
    ///     .bolt("sort", |_| basic(|n: &u64, out| out.emit_on(if *n < 2 { "small" } else { "large" }, *n))) // `Err` fails it
    ///     .shuffle("numbers")
    ///     .stream("small");
    /// topology.bolt("sink", |_| basic(|_: &u64, _| ())).shuffle(("sort", "small"));
    /// # let mut topology = topology.start_manual()?;
    /// # assert!(topology.settle(100));
    /// assert_eq!((topology.metrics()[2].executed, topology.metrics()[1].failed), (2, 3)); // "large" is not declared
    /// # Ok::<(), expiry_topology::BuildError>(())
    /// ```
    pub fn emit_on(&mut self, stream: &str, message: M) -> Result<(), EmitError<M>> {
        self.out.emit_on(stream, self.tuple, message)
    }
}

impl<M, D, F> Bolt<M> for Basic<F>
where
    M: Clone,
    D: Done,
    F: FnMut(&M, &mut Derive<'_, '_, M>) -> D + Send,
{
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_, M>) {
        let done = (self.0)(&tuple.message, &mut Derive { tuple: &tuple, out });
        match done.failure() {
            None => out.ack(tuple),
            Some(error) => {
                out.report(&error);
                out.fail_with(tuple, &error);
            }
        }
    }
}

/// Told of what happens, by the thread to which it happens: for tracing and one's own metrics. A panic in here is
/// caught, and counted as one of the component.
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
    /// A message was emitted on this stream; by a spout, at each attempt.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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

    /// A spout is told that a message was acked, so long after its first emission.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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

    /// A spout's attempt has not succeeded; there is another one if it `is_last` is false.
    ///
    /// # Examples
    ///
    /// ```
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
    #[cfg_attr(doc, doc = include_str!("docs/numbers.txt"))]
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
