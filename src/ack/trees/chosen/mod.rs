//! Roots that callers choose: found through the index, and in any order of arrival.
//!
//! Acks, failures and renewals of a root may arrive before its init. The first of them makes an
//! *early entry*: a slot under the root's id, which holds what came. The init takes the early entry
//! over, or the early timeout ends it. An early entry has no owner, and no outcome.
//!
//! ```text
//!   first ack, first renewal           first failure
//!            |                               |
//!          EARLY ---- failure ----> EARLY_FAILED
//!            |                               |
//!       init begins                    init ends it
//!            v                               v
//!         INITING                       DEAD, Failed
//!            |------- failure ----> INITING_FAILED --- the init ends it ---> DEAD, Failed
//!      init goes on
//!            v
//!          LIVE ---- last ack, failure, timeout, shutdown ---> DEAD
//! ```
//!
//! An init that finds no early entry begins with LIVE. `core::lease` has all transitions.
//!
//! | module | sequence |
//! |---|---|
//! | [`init`] | the init of a root, and the publication of a slot |
//! | [`merge`] | the init of a root that has an early entry |
//! | [`ack`] | acks, and completion |
//! | [`early`] | the making of an early entry |
//! | [`fail`] | failures |
//! | [`renew`] | renewals |

mod ack;
mod early;
mod fail;
mod init;
mod merge;
mod renew;

use super::tree::{read, Tree};
use super::{Mine, Times, Trees};
use crate::core::index::{Candidate, Index};
use crate::core::lease::{set, Lease, State};
use crate::core::occupancy::Occupant;
use crate::core::slot::Slot;

/// The states of a chosen root that its index word leads to.
const HELD: u16 =
    set(&[State::Early, State::EarlyFailed, State::Initing, State::InitingFailed, State::Live]);

/// The states in which acks count.
const OPEN: u16 = set(&[State::Early, State::Initing, State::Live]);

/// A slot that the index named under a chosen id, with its word and lease as they were just then.
pub(super) struct Found<'a, T: 'static> {
    id: u32,
    slot: Slot<'a, Tree<T>>,
    word: u64,
    lease: Lease,
    /// The position of its index word in its home, if that was seen.
    position: Option<usize>,
}

impl<'a, T: 'static> Found<'a, T> {
    /// The root by a later lease.
    fn by(&self, lease: Lease) -> Occupant<'a, Tree<T>> {
        Occupant { id: self.id, slot: self.slot, lease }
    }
}

/// A chosen root's id, and the index that has it.
#[derive(Clone, Copy)]
pub(in crate::ack::trees) struct Key<'a> {
    id: u64,
    pub(in crate::ack::trees) hash: u32,
    /// The number of the index's shard.
    shard: usize,
    pub(in crate::ack::trees) index: &'a Index,
}

/// A chosen root on its way in, or its early entry.
#[derive(Clone, Copy)]
pub(super) struct New<'a> {
    pub(super) key: Key<'a>,
    pub(super) owner: u64,
    pub(super) times: Times,
}

impl<T: 'static> Trees<T> {
    /// The slot, if it holds `key` right now. The index led to it, from this `position`.
    #[inline(always)]
    pub(super) fn holds(&self, id: u32, key: u64, position: Option<usize>) -> Option<Found<'_, T>> {
        let slot = self.engine.slots.slot(id)?;
        let (word, lease) = read(slot, key, HELD)?;
        Some(Found { id, slot, word, lease, position })
    }

    #[inline(always)]
    pub(in crate::ack::trees) fn key(&self, id: u64) -> Key<'_> {
        let keys = &self.engine.keys;
        let hash = keys.hash(id);
        let shard = keys.shard_of_hash(hash);
        Key { id, hash, shard, index: keys.at(shard) }
    }

    /// The counters of the shard whose index has the key.
    #[inline(always)]
    pub(in crate::ack::trees) fn keys<'m>(
        &self,
        mine: &'m Mine,
        key: Key<'_>,
    ) -> &'m super::Counts {
        &mine.frontend.counts[key.shard]
    }

    #[inline(always)]
    pub(super) fn find(&self, key: Key<'_>) -> Option<Found<'_, T>> {
        let candidate = key.index.candidate(key.hash);
        self.find_at(candidate, key.id).or_else(|| self.find_anywhere(key))
    }

    /// The root, if it is at the likeliest place: the result of
    /// [`candidate`](crate::core::index::Index::candidate).
    #[inline(always)]
    pub(super) fn find_at(
        &self,
        candidate: Option<Candidate<'_>>,
        key: u64,
    ) -> Option<Found<'_, T>> {
        let candidate = candidate?;
        let found = self.holds(candidate.slot(), key, Some(candidate.position()))?;
        candidate.is_believed().then_some(found)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn find_anywhere(&self, key: Key<'_>) -> Option<Found<'_, T>> {
        let mut seen = None;
        key.index.find(key.hash, &mut |id| {
            seen = self.holds(id, key.id, None);
            seen.is_some()
        })?;
        seen
    }
}
