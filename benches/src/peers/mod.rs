//! Every structure that does the work, behind one trait, statically dispatched.

mod maps;
mod tracker;
mod zookeeper;

pub use maps::{DashEntry, DashRemoveIf, Floor, Nothing, Papaya, Scc};
pub use tracker::{Chosen, Issued, TIMEOUT};
pub use zookeeper::ZooKeeper;

use crate::window::GROUP;
use expiry::Root;
use std::cell::Cell;

/// One fast hasher for all maps.
pub type Hasher = foldhash::fast::RandomState;

thread_local! {
    static OWNERS: Cell<u64> = const { Cell::new(0) };
}

/// Every peer calls this with the owner of a completed tree: a program would use the owner.
#[inline]
pub fn finished(owner: u64) {
    OWNERS.with(|sum| sum.set(sum.get().wrapping_add(owner)));
}

/// The sum of the owners that this thread was given since it last asked.
pub fn finished_owners() -> u64 {
    OWNERS.take()
}

/// What a peer's work can be checked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    None,
    Completions,
    Owners,
}

/// A tree that begins: `(key, xor of its edges, owner)`.
pub type New = (u64, u64, u64);

pub trait Id: Copy + Send + Sync + 'static {
    fn blank() -> Self;
}

impl Id for u64 {
    fn blank() -> u64 {
        0
    }
}

impl Id for Root {
    fn blank() -> Root {
        Root::from_bits(0)
    }
}

pub struct Batch<I> {
    pub at: [usize; GROUP],
    pub trees: [New; GROUP],
    /// What names them, once they have begun.
    pub ids: [I; GROUP],
    /// Buffers that are kept between batches: what `issue_many` takes and returns.
    pub issued: (Vec<(u64, u64)>, Vec<Root>),
}

impl<I: Id> Default for Batch<I> {
    fn default() -> Self {
        Batch {
            at: [0; GROUP],
            trees: [(0, 0, 0); GROUP],
            ids: [I::blank(); GROUP],
            issued: Default::default(),
        }
    }
}

/// A structure that does the work.
pub trait Peer: Sync + Send + Sized + 'static {
    const NAME: &'static str;
    /// What its work can be checked by.
    const PROOF: Proof = Proof::Owners;
    /// Whether it does anything on its own when no thread calls it.
    const EXPIRES: bool = false;
    /// What names a tree in flight: a key, or an id that was issued.
    type Id: Id;

    /// Empty, of default size, for about `in_flight` trees (only an array needs to know).
    fn new(in_flight: usize) -> Self;

    /// A tree begins. `at` is its position in the window, for a peer that has no other place for
    /// it.
    fn begin(&self, at: usize, tree: New) -> Self::Id;

    /// Acks an edge. Returns true if it was the tree's last, after [`finished`] got the owner.
    fn ack(&self, id: Self::Id, edge: u64) -> bool;

    /// A group of trees begins. A peer without batches begins one after the other.
    #[inline]
    fn begin_many(&self, batch: &mut Batch<Self::Id>) {
        let Batch { ids, at, trees, .. } = batch;
        for ((id, &at), &tree) in ids.iter_mut().zip(&*at).zip(&*trees) {
            *id = self.begin(at, tree);
        }
    }

    /// Acks the edges of a group of trees. Returns how many trees that completed.
    #[inline]
    fn ack_many(&self, acks: &[(Self::Id, u64)]) -> usize {
        acks.iter().map(|&(id, edge)| usize::from(self.ack(id, edge))).sum()
    }

    /// Waits, with a deadline, until what growing has left to do in the background is done.
    fn settle(&self) {}

    /// How many trees it has room for as it is, where that can be asked.
    fn slots(&self) -> Option<usize> {
        None
    }
}

pub trait Touch: Peer {
    fn touch(&self, id: Self::Id);
}
