//! Declared bolts: what they listen to, and how messages are divided among their tasks.

use super::stage::{stage, Stage};
use super::Source;
use crate::emit::Output;
use crate::inbox::Inbox;
use crate::lanes::{Batch, Choice, Lanes};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, OnceLock};

/// The queues of a bolt's tasks, once the topology is assembled.
pub(super) type Inboxes<In> = OnceLock<Vec<Arc<Inbox<Batch<In>>>>>;

/// A bolt of a topology that is being declared: for its settings, for what it listens to, and for
/// bolts that listen to it.
///
/// Groupings add up: a bolt that listens twice to a stream gets each of its messages twice.
/// Messages are in order from one task to another by one grouping. What a bolt listens to is of one
/// type: a join [maps](crate::Stream::map) its sides to an enum.
///
/// # Examples
///
/// A join of two types:
///
/// ```
/// use expiry_topology::{Bolt, BoltCollector, Collect, ManualClock, TopologyBuilder, Tuple, VecSpout};
/// use std::collections::HashMap;
///
/// #[derive(Clone)]
/// enum Either {
///     Order(u64),
///     Payment(u64),
/// }
///
/// impl Either {
///     fn id(&self) -> u64 {
///         let (Either::Order(id) | Either::Payment(id)) = self;
///         *id
///     }
/// }
///
/// /// Holds the side that comes first.
/// struct Join(HashMap<u64, Tuple<Either>>);
///
/// impl Bolt<Either, u64> for Join {
///     fn execute(&mut self, tuple: Tuple<Either>, out: &mut BoltCollector<'_, u64>) {
///         let id = tuple.id();
///         match self.0.remove(&id) {
///             Some(other) => {
///                 out.emit(&[&tuple, &other], id);
///                 out.ack(tuple);
///                 out.ack(other);
///             }
///             None => drop(self.0.insert(id, tuple)),
///         }
///     }
/// }
///
/// let (paid, topology) = (Collect::new(), TopologyBuilder::new());
/// let orders = topology.spout("orders", |_| VecSpout::new([1, 2, 3]));
/// let payments = topology.spout("payments", |_| VecSpout::new([3, 1]));
/// let join = topology
///     .bolt("join", |_| Join(HashMap::new()))
///     .parallelism(4)
///     .key_by(orders.stream().map(Either::Order), Either::id)
///     .key_by(payments.stream().map(Either::Payment), Either::id);
/// topology.bolt("paid", paid.instances()).shuffle(&join);
/// assert!(topology.simulate(&ManualClock::new())?.settle(100));
/// assert_eq!(paid.all().len(), 2);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
///
/// A bolt of another type does not compile:
///
/// ```compile_fail,E0271
/// # use expiry_topology::{sink, TopologyBuilder, VecSpout};
/// let topology = TopologyBuilder::new();
/// let words = topology.spout("words", |_| VecSpout::new(["to", "be"]));
/// topology.bolt("numbers", |_| sink(|_: &u64, _| ())).shuffle(&words);
/// ```
pub struct BoltStage<'t, In, Out> {
    pub(super) stage: Stage<'t>,
    pub(super) inboxes: Arc<Inboxes<In>>,
    pub(super) output: Arc<Output<Out>>,
}

stage!(BoltStage [In] Out: inboxes output);

impl<'t, In: Clone + Send + 'static, Out> BoltStage<'t, In, Out> {
    /// Each message goes to one of the bolt's tasks, in turn.
    pub fn shuffle(self, source: impl Source<'t, Message = In>) -> Self {
        self.listen(source, Choice::Shuffle)
    }

    /// Messages of which `key` borrows the same value go to the same task: `|order| &order.id`.
    pub fn fields<K: Hash + ?Sized>(
        self,
        source: impl Source<'t, Message = In>,
        key: impl Fn(&In) -> &K + Send + Sync + 'static,
    ) -> Self {
        self.listen(
            source,
            Choice::Key(Arc::new(move |message, state| state.hash_one(key(message)))),
        )
    }

    /// As [`fields`](Self::fields), by a value that is computed from the message: `|order|
    /// order.customer / 100`.
    pub fn key_by<K: Hash>(
        self,
        source: impl Source<'t, Message = In>,
        key: impl Fn(&In) -> K + Send + Sync + 'static,
    ) -> Self {
        self.listen(
            source,
            Choice::Key(Arc::new(move |message, state| state.hash_one(key(message)))),
        )
    }

    /// Each message goes to all of the bolt's tasks.
    pub fn all(self, source: impl Source<'t, Message = In>) -> Self {
        self.listen(source, Choice::All)
    }

    /// All messages go to the bolt's first task.
    pub fn global(self, source: impl Source<'t, Message = In>) -> Self {
        self.listen(source, Choice::Global)
    }

    /// Each message goes to the task whose number `task` returns, modulo the number of the bolt's
    /// tasks: the emitting component puts it into the message.
    pub fn direct(
        self,
        source: impl Source<'t, Message = In>,
        task: impl Fn(&In) -> usize + Send + Sync + 'static,
    ) -> Self {
        self.listen(source, Choice::Direct(Arc::new(task)))
    }

    fn listen(self, source: impl Source<'t, Message = In>, choice: Choice<In>) -> Self {
        let source = source.into_stream();
        let inboxes = self.inboxes.clone();
        let is_own = std::ptr::eq(source.builder, self.stage.builder);
        self.stage.set(|spec| {
            spec.strays |= !is_own;
            #[allow(clippy::cast_possible_truncation)] // no bolt has 2^32 groupings
            let input = spec.inputs.len() as u32;
            spec.inputs.push(source.from);
            if is_own {
                (source.tap)(Box::new(move |sender| {
                    let inboxes = inboxes.get().expect("queues are made before tasks");
                    let (choice, sender) = (choice.clone(), sender.clone());
                    Box::new(Lanes::new(inboxes, input, choice, sender))
                }));
            }
        });
        self
    }
}
