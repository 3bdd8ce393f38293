//! A spout of what a stream gives.

use super::{Context, Next, Spout};
use crate::collect::SpoutCollector;
use crate::task::{debug, lock};
use futures_core::Stream;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{self, Poll};

/// A spout of what a stream gives. The id of a message is its number, from 0.
///
/// The spout polls the stream on its task's thread, for one message at a time, and only while there
/// is room: so [`max_pending`](crate::SpoutStage::max_pending) and full bolts hold the stream back.
/// While the stream is pending, the spout is [`Asleep`](Next::Asleep) until the stream wakes it.
/// When the stream ends, the spout is done. A stream that needs a runtime's context is made inside
/// of it, or polled by a task of that runtime, which sends on.
///
/// The topology emits a message again that fails: the stream hears nothing of it. A stream that
/// panics is dropped with the instance. The next instance has the stream that it is made with.
///
/// # Examples
///
/// ```
/// use expiry_topology::{Collect, ManualClock, StreamSpout, TopologyBuilder};
///
/// let words = futures_util::stream::iter(["to", "be"]); // or a channel's, or a server's
/// let (seen, topology) = (Collect::new(), TopologyBuilder::new());
/// let words = topology.spout("words", StreamSpout::new(words).instances());
/// topology.bolt("seen", seen.instances()).shuffle(&words);
/// assert!(topology.simulate(&ManualClock::new())?.run(100));
/// assert_eq!(seen.all(), ["to", "be"]);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct StreamSpout<S> {
    /// None: another instance has, or had, the stream.
    stream: Option<Pin<Box<S>>>,
    emitted: u64,
    /// The task's waker, from `open` on.
    waker: Option<task::Waker>,
}

impl<S> StreamSpout<S> {
    /// A spout of this stream: `move |_| StreamSpout::new(connect())` makes a stream for each task,
    /// and for each instance that follows a panic.
    pub fn new(stream: S) -> Self {
        Self::of(Some(Box::pin(stream)))
    }

    fn of(stream: Option<Pin<Box<S>>>) -> Self {
        StreamSpout { stream, emitted: 0, waker: None }
    }
}

impl<S: Send + 'static> StreamSpout<S> {
    /// Returns what makes this spout once, for
    /// [`TopologyBuilder::spout`](crate::TopologyBuilder::spout). Other tasks, and an instance that
    /// follows a panic, have no stream, and are done at once.
    pub fn instances(self) -> impl Fn(&Context) -> Self + Send + Sync + 'static {
        let stream = Mutex::new(self.stream);
        move |_| Self::of(lock(&stream).take())
    }
}

impl<S: Stream + Send> Spout<S::Item> for StreamSpout<S>
where
    S::Item: Clone + 'static,
{
    fn open(&mut self, context: &Context) {
        self.waker = Some(context.waker().into());
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, S::Item>) -> Next {
        let (Some(stream), Some(waker)) = (&mut self.stream, &self.waker) else {
            return Next::Done;
        };
        match stream.as_mut().poll_next(&mut task::Context::from_waker(waker)) {
            Poll::Ready(Some(message)) => {
                self.emitted += 1;
                // A spout is asked only while there is room.
                out.emit(message, self.emitted - 1).map_or(Next::Idle, |()| Next::Ready)
            }
            Poll::Ready(None) => Next::Done,
            Poll::Pending => Next::Asleep,
        }
    }
}

debug!([S] StreamSpout<S>, |it| "StreamSpout {{ emitted: {}, .. }}", it.emitted);
