//! Spouts: what a topology's messages come from.

use super::Context;
use crate::collect::SpoutCollector;
use crate::replay::{Failure, Replay};

/// What a spout answers when it has been asked for messages.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, ManualClock, Next, Spout, SpoutCollector, TopologyBuilder};
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
/// # let (clock, topology) = (ManualClock::new(), TopologyBuilder::new());
/// # let beats = topology.spout("beats", |_| Beats(0));
/// # topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&beats);
/// # let mut topology = topology.simulate(&clock)?;
/// assert!(topology.settle(100) && topology.metrics()[0].emitted == 1);
/// clock.advance(Duration::from_secs(2));
/// assert!(topology.settle(100) && topology.is_finished());
/// assert_eq!(topology.metrics()[0].acked, 3);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// There may be more: the spout is asked again at once.
    Ready,
    /// There is no message just now. The spout is asked again after a millisecond, or when its
    /// [`Waker`](crate::Waker) is used.
    Idle,
    /// There is no message until the spout's [`Waker`](crate::Waker) is used: the spout is not
    /// asked before. (Nor is an instance that follows a panic.)
    Asleep,
    /// There will be no more messages. The spout is not asked again, but is still called with the
    /// outcomes of the messages that it has emitted.
    Done,
}

/// A source of messages. One thread calls all functions of an instance, one after another, so none
/// of them should block: while one blocks, the spout gets no acks, and none of its messages is
/// emitted again.
///
/// An instance that panics is replaced, without a [`close`](Self::close). The next instance is
/// called with the outcomes of all messages of the task, by their ids. The topology does not
/// need distinct ids. But if two messages share one, the spout does not know which of them has
/// ended.
///
/// `Id` is the type of the ids: a number, or what the spout needs to settle the message at its
/// source. The task keeps a message's id while the message is pending, and moves it into the last
/// call.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, Failure, ManualClock, Next, Replay, Spout, SpoutCollector, TopologyBuilder};
/// use std::sync::mpsc::{channel, Sender};
/// use std::time::Duration;
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
///     fn replay(&mut self, id: &u64, _: &Failure, word: &mut String) {
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
/// let topology = TopologyBuilder::new();
/// let words = topology
///     .spout("words", move |_| Words(vec!["or", "BE", "2"], sender.clone()))
///     .replay(Replay::default().attempts(2).for_at_least(Duration::ZERO));
/// topology
///     .bolt("lower", |_| sink(|w: &String, _| if w.contains(char::is_lowercase) { Ok(()) } else { Err("not lower case") }))
///     .shuffle(&words);
/// let mut topology = topology.simulate(&clock)?;
/// assert!(topology.run(1_000));
/// let mut told: Vec<String> = told.try_iter().collect();
/// told.sort();
/// assert_eq!(told, ["0 acked", "1 acked", "1 once more", "2 given up", "2 once more"]);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[allow(unused_variables)]
pub trait Spout<M, Id = u64>: Send {
    /// How its messages are emitted again, if [`replay`](crate::SpoutStage::replay) is not set.
    fn replay_by_default() -> Replay
    where
        Self: Sized,
    {
        Replay::default()
    }

    /// The first call of an instance, also after a restart. It can neither fail nor report: do what
    /// may go wrong in [`next`](Self::next). A topology that
    /// [starts inactive](crate::TopologyBuilder::start_inactive) opens its spouts at the first
    /// activation. After that an instance that panics is replaced at once, also while the topology
    /// is inactive.
    fn open(&mut self, context: &Context) {}

    /// Asks for messages. The spout emits one or a few now, while there is
    /// [room](SpoutCollector::room). The call is not made while there is no room, while bolts have
    /// no room for what was emitted before, or while the topology is inactive.
    fn next(&mut self, out: &mut SpoutCollector<'_, M, Id>) -> Next;

    /// All that was derived from this id's message has been acked. Called once for each message.
    fn ack(&mut self, id: Id) {}

    /// The message with this id is given up: its last attempt has failed or timed out, or a bolt
    /// has rejected it. Called once for each such message, instead of `ack`. If the spout's [dead
    /// letters](crate::SpoutStage::dead_letters) go to bolts, the call comes when the letter has
    /// ended. With [`Replay::once`] the first attempt is the last one, and the spout may emit the
    /// message again by itself, as in Storm.
    fn fail(&mut self, id: Id, failure: &Failure) {}

    /// An attempt at the message with this id has failed or timed out, and another one follows
    /// after the pause, with `message`. The spout may change the message for it, for example to
    /// count the attempts. The topology emits it: the spout need do nothing.
    fn replay(&mut self, id: &Id, failure: &Failure, message: &mut M) {}

    /// The time that [`tick_every`](crate::SpoutStage::tick_every) set has passed. Ticks come also
    /// while there is no room, or the topology is inactive. A tick emits nothing.
    fn tick(&mut self) {}

    /// The topology is active, from the beginning or again: `next` is called from now on.
    fn activate(&mut self) {}

    /// The topology has become inactive: `next` is not called. The other calls go on.
    fn deactivate(&mut self) {}

    /// The last call, also if the topology is killed or dropped. The spout gets no outcome of
    /// messages that are pending by then. A spout that was never opened is not closed.
    fn close(&mut self) {}
}
