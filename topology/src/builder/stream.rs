//! Streams: the messages of a component, as bolts listen to them.

use super::{Stage, TopologyBuilder};
use crate::emit::{Listen, Output};
use crate::lanes::{Map, Mapped};
use crate::task::debug;
use std::borrow::Cow;
use std::sync::Arc;

/// Notes a listener of a stream.
pub(crate) type Tap<M> = Arc<dyn Fn(Listen<M>) + Send + Sync>;

/// The messages of a component, or some of them, or what a function makes of them.
///
/// # Examples
///
/// A bolt whose messages are of two kinds, and go to two bolts:
///
/// ```
/// use expiry_topology::{basic, Collect, ManualClock, TopologyBuilder, VecSpout};
///
/// #[derive(Clone)]
/// enum Parsed {
///     Number(u64),
///     Garbage(String),
/// }
///
/// let (numbers, garbage) = (Collect::new(), Collect::new());
/// let topology = TopologyBuilder::new();
/// let lines = topology.spout("lines", |_| VecSpout::new(["7", "seven"]));
/// let parse = |line: &&str| line.parse().map_or_else(|_| Parsed::Garbage(line.to_string()), Parsed::Number);
/// let parsed = topology.bolt("parse", move |_| basic(move |line, out| out.emit(parse(line)))).shuffle(&lines);
/// topology
///     .bolt("numbers", numbers.instances())
///     .shuffle(parsed.stream().filter_map(|parsed| if let Parsed::Number(n) = parsed { Some(*n) } else { None }));
/// topology
///     .bolt("garbage", garbage.instances())
///     .shuffle(parsed.stream().filter_map(|parsed| if let Parsed::Garbage(line) = parsed { Some(line.clone()) } else { None }));
/// assert!(topology.simulate(&ManualClock::new())?.settle(100));
/// assert_eq!((numbers.all(), garbage.all()), (vec![7], vec!["seven".to_string()]));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub struct Stream<'t, M> {
    pub(super) builder: &'t TopologyBuilder,
    /// The component.
    pub(super) from: usize,
    pub(super) tap: Tap<M>,
}

impl<M> Clone for Stream<'_, M> {
    fn clone(&self) -> Self {
        Stream { builder: self.builder, from: self.from, tap: self.tap.clone() }
    }
}

debug!([M] Stream<'_, M>, |it| "Stream({:?})", it.builder.name_of(it.from));

impl<'t, M: Clone + Send + 'static> Stream<'t, M> {
    pub(super) fn new(stage: Stage<'t>, output: &Arc<Output<M>>) -> Self {
        let output = output.clone();
        let tap = Arc::new(move |listen| output.add(listen));
        Stream { builder: stage.builder, from: stage.at, tap }
    }

    fn mapped<T: Clone + Send + 'static>(self, map: Map<M, T>) -> Stream<'t, T> {
        let Stream { builder, from, tap } = self;
        let tap = Arc::new(move |listen: Listen<T>| {
            let map = map.clone();
            tap(Box::new(move |sender| {
                Box::new(Mapped { map: map.clone(), inner: listen(sender) })
            }));
        });
        Stream { builder, from, tap }
    }

    /// What a function makes of the messages. The emitting thread calls it, once for each grouping
    /// that listens. Where it panics the emission does.
    #[must_use]
    pub fn map<T: Clone + Send + 'static>(
        self,
        map: impl Fn(M) -> T + Send + Sync + 'static,
    ) -> Stream<'t, T> {
        self.mapped(Arc::new(move |message| Some(map(message.into_owned()))))
    }

    /// As [`map`](Self::map), without the messages that the function makes nothing of: they have no
    /// tuple there.
    #[must_use]
    pub fn filter_map<T: Clone + Send + 'static>(
        self,
        map: impl Fn(&M) -> Option<T> + Send + Sync + 'static,
    ) -> Stream<'t, T> {
        self.mapped(Arc::new(move |message| map(&message)))
    }

    /// The messages for which a function returns `true`.
    #[must_use]
    pub fn filter(self, keeps: impl Fn(&M) -> bool + Send + Sync + 'static) -> Self {
        self.mapped(Arc::new(move |message: Cow<'_, M>| {
            keeps(&message).then(|| message.into_owned())
        }))
    }
}

/// What a bolt can listen to: a reference to a spout, to a bolt, or to a stream; or a stream.
pub trait Source<'t> {
    /// The type of the messages.
    type Message: Clone + Send + 'static;

    /// Returns them as a stream.
    fn into_stream(self) -> Stream<'t, Self::Message>;
}

impl<'t, M: Clone + Send + 'static> Source<'t> for Stream<'t, M> {
    type Message = M;

    fn into_stream(self) -> Stream<'t, M> {
        self
    }
}

impl<'t, M: Clone + Send + 'static> Source<'t> for &Stream<'t, M> {
    type Message = M;

    fn into_stream(self) -> Stream<'t, M> {
        self.clone()
    }
}
