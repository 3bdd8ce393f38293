//! Messages on their way, and the trees that they belong to.

use expiry::Root;
use smallvec::SmallVec;
use std::cell::Cell;
use std::fmt;

/// A tree that a tuple is a part of.
#[derive(Clone)]
pub(crate) struct Anchor {
    pub(crate) root: Root,
    /// What its ack says: its own edge, and those derived from it.
    pub(crate) xor: Cell<u64>,
}

pub(crate) type Anchors = SmallVec<[Anchor; 1]>;
pub(crate) type Roots = SmallVec<[Root; 1]>;

/// Where a tuple comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) component: u32,
    pub(crate) stream: u32,
    /// The task's number in its component.
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
/// # use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, VecSpout};
/// use expiry_topology::Tuple;
///
/// /// Drops what is odd: not a good idea.
/// struct Even;
///
/// impl Bolt<u64> for Even {
///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
///         if *tuple % 2 == 0 {
///             out.ack(tuple);
///         }
///     }
/// }
///
/// # let mut topology = TopologyBuilder::new();
/// # topology.spout("numbers", |_| VecSpout::new(0..5));
/// # topology.bolt("even", |_| Even).shuffle("numbers");
/// # let mut topology = topology.start_manual()?;
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

/// What an emitted message is derived from: `&tuple`; `&[&a, &b]` for a join, or `&held` of a `Vec`
/// or a slice of tuples or of references to them; or `()` for nothing, untracked.
///
/// # Examples
///
/// ```
/// use expiry_topology::{Bolt, BoltCollector, Parents, TopologyBuilder, Tuple, VecSpout};
///
/// fn note(out: &mut BoltCollector<'_, u64>, from: impl Parents<u64>, what: u64) {
///     out.emit(from, what);
/// }
///
/// struct Pairs(Vec<Tuple<u64>>);
///
/// impl Bolt<u64> for Pairs {
///     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
///         note(out, (), 1);           // of nothing
///         note(out, &tuple, 2);       // of one
///         self.0.push(tuple);
///         if self.0.len() == 2 {
///             note(out, &self.0, 3);  // of all of them
///             self.0.drain(..).for_each(|tuple| out.ack(tuple));
///         }
///     }
/// }
///
/// # struct Roots(std::sync::mpsc::Sender<(u64, usize)>);
/// # impl Bolt<u64> for Roots {
/// #     fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
/// #         self.0.send((*tuple, tuple.roots().count())).expect("it is read");
/// #         out.ack(tuple);
/// #     }
/// # }
/// # let (sender, came) = std::sync::mpsc::channel();
/// # let mut topology = TopologyBuilder::new();
/// # topology.spout("numbers", |_| VecSpout::new(0..2));
/// # topology.bolt("pairs", |_| Pairs(Vec::new())).shuffle("numbers");
/// # topology.bolt("roots", move |_| Roots(sender.clone())).shuffle("pairs");
/// # let mut topology = topology.start_manual()?;
/// # assert!(topology.settle(100));
/// let roots: Vec<(u64, usize)> = came.try_iter().collect(); // what has come, and how many trees it is a part of
/// assert_eq!(roots, [(1, 0), (2, 1), (1, 0), (2, 1), (3, 2)]);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
pub trait Parents<M>: sealed::Parents<M> {}

impl<M, P: sealed::Parents<M>> Parents<M> for P {}

pub(crate) mod sealed {
    use super::{Anchor, Anchors, Cell, SmallVec, Tuple};

    #[allow(private_interfaces)] // on purpose: no other crate can implement it
    pub trait Parents<M> {
        /// Calls `f` with every tree once, by one of the anchors that are parts of it.
        #[doc(hidden)]
        fn each(&self, f: &mut dyn FnMut(&Anchor));
    }

    #[allow(private_interfaces)]
    impl<M> Parents<M> for () {
        fn each(&self, _f: &mut dyn FnMut(&Anchor)) {}
    }

    #[allow(private_interfaces)]
    impl<M> Parents<M> for &Tuple<M> {
        fn each(&self, f: &mut dyn FnMut(&Anchor)) {
            self.anchors.iter().for_each(f);
        }
    }

    #[allow(private_interfaces)]
    impl<M> Parents<M> for &[&Tuple<M>] {
        fn each(&self, f: &mut dyn FnMut(&Anchor)) {
            once_each(self.iter().copied(), f);
        }
    }

    #[allow(private_interfaces)]
    impl<M> Parents<M> for &[Tuple<M>] {
        fn each(&self, f: &mut dyn FnMut(&Anchor)) {
            once_each(self.iter(), f);
        }
    }

    #[allow(private_interfaces)]
    impl<M> Parents<M> for &Vec<Tuple<M>> {
        fn each(&self, f: &mut dyn FnMut(&Anchor)) {
            once_each(self.iter(), f);
        }
    }

    #[allow(private_interfaces)]
    impl<M> Parents<M> for &Vec<&Tuple<M>> {
        fn each(&self, f: &mut dyn FnMut(&Anchor)) {
            once_each(self.iter().copied(), f);
        }
    }

    #[allow(private_interfaces)]
    impl<M, const N: usize> Parents<M> for &[&Tuple<M>; N] {
        fn each(&self, f: &mut dyn FnMut(&Anchor)) {
            Parents::<M>::each(&&self[..], f);
        }
    }

    /// One edge in each tree is enough, whichever of these are parts of it. (The same one in two
    /// anchors of a tree would cancel itself out there, and the tree would end while it is
    /// outstanding.) Sorted: a window joins thousands.
    fn once_each<'a, M: 'a>(
        tuples: impl Iterator<Item = &'a Tuple<M>>,
        f: &mut dyn FnMut(&Anchor),
    ) {
        let anchors = tuples.flat_map(|tuple| &tuple.anchors);
        let mut anchors: SmallVec<[&Anchor; 4]> = anchors.collect();
        anchors.sort_unstable_by_key(|anchor| anchor.root);
        anchors.dedup_by_key(|anchor| anchor.root);
        anchors.into_iter().for_each(f);
    }

    /// The anchors of a message that is derived from these, with an edge of its own in each of
    /// their trees.
    pub(crate) fn derive<M>(from: &impl Parents<M>, mut edge: impl FnMut() -> u64) -> Anchors {
        let mut anchors = Anchors::new();
        from.each(&mut |anchor| {
            let edge = edge();
            anchor.xor.set(anchor.xor.get() ^ edge);
            anchors.push(Anchor { root: anchor.root, xor: Cell::new(edge) });
        });
        anchors
    }
}
