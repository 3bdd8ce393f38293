//! Messages on their way, and the trees that they belong to.

use expiry::Root;
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;

/// A tree that a tuple is a part of.
#[derive(Clone)]
pub struct Anchor {
    pub(crate) root: Root,
    /// The XOR of its own edge and of those derived from it, which its ack reports.
    pub(crate) xor: Cell<u64>,
}

/// The id of the edge to the next copy that is derived from a copy whose `xor` is this by now. So a
/// tree's edges follow from its seed and from what bolts emit, and are the same in each attempt:
/// bolts downstream know a message again by its edge. Never zero.
#[inline]
pub(crate) fn edge(xor: u64) -> u64 {
    // SplitMix64's step: all 64 bits of the result depend on all of `xor`.
    let mut x = xor.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).max(1)
}

pub(crate) type Anchors = SmallVec<[Anchor; 1]>;
pub(crate) type Roots = SmallVec<[Root; 1]>;

/// Where a tuple comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Which input of the bolt it came by: the number of the grouping, in the order of declaration.
    pub(crate) input: u32,
    /// The emitting task's number in its component.
    pub(crate) task: u32,
}

/// A message that has come to a bolt, and the trees that it is a part of: to be acked or failed,
/// once, through the [collector](crate::BoltCollector) of any bolt of this topology, now or later.
/// (Elsewhere its roots are as good as a guess: see [`Root`].) One that is dropped lets its trees
/// time out.
///
/// # Examples
///
/// ```
/// # use expiry_topology::{Bolt, BoltCollector, ManualClock, TopologyBuilder, VecSpout};
/// use expiry_topology::Tuple;
///
/// /// Drops what is odd: not a good idea.
/// struct Even;
///
/// impl Bolt<u64> for Even {
///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_>) {
///         if *tuple % 2 == 0 {
///             out.ack(tuple);
///         }
///     }
/// }
///
/// # let topology = TopologyBuilder::new();
/// # let numbers = topology.spout("numbers", |_| VecSpout::new(0..5));
/// # topology.bolt("even", |_| Even).shuffle(&numbers);
/// # let mut topology = topology.simulate(&ManualClock::new())?;
/// # assert!(topology.settle(100));
/// let [numbers, even] = &topology.metrics()[..] else { unreachable!("there are two") };
/// assert_eq!((numbers.acked, numbers.pending, even.held), (3, 2, 2)); // two will time out
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
#[must_use = "a tuple that is neither acked nor failed lets its trees time out"]
pub struct Tuple<M> {
    pub(crate) message: M,
    pub(crate) anchors: Anchors,
    pub(crate) origin: Origin,
    /// The clock reading when its bolt received it, if its latency is taken; else 0.
    pub(crate) received: u64,
}

impl<M> Tuple<M> {
    /// The message.
    pub fn message(&self) -> &M {
        &self.message
    }

    /// The number of the task that emitted it, in its component.
    pub fn source_task(&self) -> usize {
        self.origin.task as usize
    }

    /// The trees that it is a part of: none if it was emitted untracked, several behind a join.
    pub fn roots(&self) -> impl Iterator<Item = Root> + '_ {
        self.anchors.iter().map(|anchor| anchor.root)
    }

    /// A number that is the same in each attempt of the spout's message, where the bolts before
    /// emit the same each time. That of another message is another one. `None` if the tuple is
    /// untracked. After a restart it is the same only if the spout emits [by a
    /// seed](crate::SpoutCollector::emit_seeded). Read it before you emit from the tuple.
    pub fn lineage(&self) -> Option<u64> {
        self.anchors.iter().map(|anchor| anchor.xor.get()).reduce(|a, b| a ^ b)
    }

    /// Takes the message out, for code that wants it by value. The other half is the tuple that is
    /// to be acked or failed. For a text's own `split` call [`message`](Self::message) first.
    pub fn split(self) -> (M, Tuple<()>) {
        let Tuple { message, anchors, origin, received } = self;
        (message, Tuple { message: (), anchors, origin, received })
    }

    /// The tuple with another message in the place of its own.
    pub fn map<T>(self, map: impl FnOnce(M) -> T) -> Tuple<T> {
        let Tuple { message, anchors, origin, received } = self;
        Tuple { message: map(message), anchors, origin, received }
    }
}

impl<M> std::ops::Deref for Tuple<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M: fmt::Debug> fmt::Debug for Tuple<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tuple")
            .field("message", &self.message)
            .field("roots", &self.roots().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// What an emitted message is derived from: `&tuple`; `&[&a, &b]` for a join of tuples of one type
/// and `(&a, &b)` of two; `&held` of a `Vec` or a slice of tuples or of references to them; or `()`
/// for nothing, untracked.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, Bolt, BoltCollector, ManualClock, TopologyBuilder, Tuple, VecSpout};
///
/// struct Pairs(Vec<Tuple<u64>>);
///
/// impl Bolt<u64, u64> for Pairs {
///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
///         out.emit((), 1);           // of nothing
///         out.emit(&tuple, 2);       // of one
///         self.0.push(tuple);
///         if self.0.len() == 2 {
///             out.emit(&self.0, 3);  // of all of them
///             self.0.drain(..).for_each(|tuple| out.ack(tuple));
///         }
///     }
/// }
///
/// # let topology = TopologyBuilder::new();
/// # let numbers = topology.spout("numbers", |_| VecSpout::new(0..2));
/// # let pairs = topology.bolt("pairs", |_| Pairs(Vec::new())).shuffle(&numbers);
/// # topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&pairs);
/// # let mut topology = topology.simulate(&ManualClock::new())?;
/// # assert!(topology.settle(100));
/// assert_eq!((topology.metrics()[0].acked, topology.metrics()[2].executed), (2, 5));
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub trait Parents: sealed::Parents {}

impl<P: sealed::Parents> Parents for P {}

pub(crate) mod sealed {
    use super::{edge, Anchor, Anchors, Cell, SmallVec, Tuple};

    pub trait Parents {
        /// Calls `f` with every tree once, by one of the anchors that are parts of it.
        #[doc(hidden)]
        fn each(&self, f: impl FnMut(&Anchor));
    }

    impl Parents for () {
        fn each(&self, _f: impl FnMut(&Anchor)) {}
    }

    impl<M> Parents for &Tuple<M> {
        #[inline]
        fn each(&self, f: impl FnMut(&Anchor)) {
            self.anchors.iter().for_each(f);
        }
    }

    impl Parents for &Anchors {
        #[inline]
        fn each(&self, f: impl FnMut(&Anchor)) {
            self.iter().for_each(f);
        }
    }

    macro_rules! parents {
        ($([$($generics:tt)*] $of:ty: |$tuples:ident| $each:expr;)*) => {$(
            impl<$($generics)*> Parents for $of {
                #[inline]
        fn each(&self, f: impl FnMut(&Anchor)) {
                    let $tuples = self;
                    once_each($each, f);
                }
            }
        )*};
    }

    parents! {
        [M] &[&Tuple<M>]: |tuples| tuples.iter().flat_map(|tuple| &tuple.anchors);
        [M] &[Tuple<M>]: |tuples| tuples.iter().flat_map(|tuple| &tuple.anchors);
        [M] &Vec<Tuple<M>>: |tuples| tuples.iter().flat_map(|tuple| &tuple.anchors);
        [M] &Vec<&Tuple<M>>: |tuples| tuples.iter().flat_map(|tuple| &tuple.anchors);
        [M, const N: usize] &[&Tuple<M>; N]: |tuples| tuples.iter().flat_map(|tuple| &tuple.anchors);
        [A, B] (&Tuple<A>, &Tuple<B>): |pair| pair.0.anchors.iter().chain(&pair.1.anchors);
    }

    /// Calls `f` with one anchor of each tree: a message needs one edge there. (The same edge in
    /// two anchors of a tree would cancel itself out, and the tree would end while it is
    /// outstanding.) Sorted: a window joins thousands.
    fn once_each<'a>(anchors: impl Iterator<Item = &'a Anchor>, f: impl FnMut(&Anchor)) {
        let mut anchors: SmallVec<[&Anchor; 4]> = anchors.collect();
        anchors.sort_unstable_by_key(|anchor| anchor.root);
        anchors.dedup_by_key(|anchor| anchor.root);
        anchors.into_iter().for_each(f);
    }

    /// The anchors of a message derived from these, with an edge of its own in each tree.
    #[inline]
    pub(crate) fn derive(from: &impl Parents) -> Anchors {
        let mut anchors = Anchors::new();
        from.each(|anchor: &Anchor| {
            let edge = edge(anchor.xor.get());
            anchor.xor.set(anchor.xor.get() ^ edge);
            anchors.push(Anchor { root: anchor.root, xor: Cell::new(edge) });
        });
        anchors
    }
}
