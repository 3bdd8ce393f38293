//! What a tree keeps in its slot.
//!
//! Every operation on a slot loads word, key and lease in this order. The claimer stores key, word
//! and lease in this order, each with Release. So a thread that reads an occupant's word also reads
//! that occupant's key, or a later one, and its lease, the free lease before it, or a later one.
//! With a later key or lease, the swap of the word would fail; and a free lease is not a live one.
//! A thread that reads the key of the next occupant beside the word of the one before does not read
//! the lease of the one before. The claimer has found that lease free before it stored the key.

use crate::core::lease::Lease;
use crate::core::slot::{fields, Slot};
use crate::core::slots::Spot;
use crate::sync::{step, AtomicU64, Ordering};

/// The payload of a tree's slot: 24 bytes. The word beside the slot is its birth stamp, a clock
/// reading in nanoseconds.
pub(crate) struct Tree {
    /// The issued id, or the key that the caller chose. Only the claimer writes it.
    pub(crate) key: AtomicU64,
    /// The whitened XOR. Threads change it by compare-and-swap, from a value that they read before
    /// they checked the key and the lease. It is whitened with key and generation, so the swap
    /// fails on every later occupant (W6, W14).
    pub(super) word: AtomicU64,
    /// The owner's token. Only the thread that ended the slot reads it.
    pub(crate) owner: AtomicU64,
}

fields!(
    Tree,
    AtomicU64 { key: AtomicU64::new(0), word: AtomicU64::new(0), owner: AtomicU64::new(0) }
);

impl Tree {
    /// Sets the word of a slot that the caller has claimed.
    ///
    /// A swap that was prepared against an earlier occupant may succeed until then; this store
    /// overwrites it. Under loom this is a swap, too: loom does not know that a store comes after a
    /// swap which read what the store's thread has seen.
    #[inline(always)]
    pub(crate) fn set_word(&self, word: u64) {
        #[cfg(not(expiry_loom))]
        self.word.store(word, Ordering::Release);
        #[cfg(expiry_loom)]
        self.word.swap(word, Ordering::Release);
    }
}

/// Word and lease of the occupant with this key, if its lease is in one of `states`, a set made by
/// [`set`](crate::core::lease::set).
#[inline(always)]
pub(super) fn read(slot: Slot<'_, Tree>, key: u64, states: u16) -> Option<(u64, Lease)> {
    let tree = slot.fields();
    let word = tree.word.load(Ordering::Acquire);
    let same = tree.key.load(Ordering::Acquire) == key;
    let lease = slot.lease();
    (same && lease.is_in(states)).then_some((word, lease))
}

/// Fills a claimed slot. It belongs to the caller alone until another thread finds the lease, which
/// publishes the rest.
#[inline(always)]
pub(super) fn occupy(spot: &Spot<'_, Tree>, key: u64, owner: u64, word: u64, lease: Lease) {
    let tree = spot.slot.fields();
    tree.key.store(key, Ordering::Release);
    step("occupied");
    tree.owner.store(owner, Ordering::Relaxed);
    tree.set_word(word);
    spot.slot.set_lease(lease);
}
