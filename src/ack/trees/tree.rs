//! [`Tree`]: what a root keeps in its slot.
//!
//! Every operation on a slot loads word, key and lease in this order. The claimer stores key, word
//! and lease in this order, each with Release. So a thread that reads an occupant's word also reads
//! that occupant's key, or a later one. It reads that occupant's lease, the free lease before it,
//! or a later lease. A free lease is not live; if key or lease is a later occupant's, the swap of
//! the word fails. A thread may read the word of one occupant and the key of the next. Then it
//! cannot read the first one's lease: that was freed before the next key was stored.
//!
//! # The token
//!
//! Behind these words lies the root's token. Threads put it in and take it out; none reads it.
//!
//! * The thread that issues or inits the root puts the token in before it stores the lease. An init
//!   that takes an early entry over puts it in between the swap to `INITING` and the XOR that marks
//!   the word.
//! * The thread that ends the root takes the token before it frees the slot. That thread has seen
//!   the lease, or the mark, so it sees the token.
//! * An early entry has no token. If an early failure ends the root, the init puts the token in
//!   when it has won the swap to `DEAD`.

use crate::core::lease::Lease;
use crate::core::memory::ZeroValid;
use crate::core::occupancy::{Unnamed, Vacant};
use crate::core::slot::{Fields, Payload, Slot};
use crate::core::value::Place;
use crate::sync::{overwrite, step, AtomicU64, Ordering};
#[cfg(not(expiry_loom))]
use std::marker::PhantomData;

/// The payload of a tree's slot: 24 bytes, and the token. The word beside the slot is its birth
/// stamp, a clock reading in nanoseconds.
pub(crate) struct Tree<T> {
    /// The issued id, or the key that the caller chose. Only the claimer writes it.
    pub(crate) key: AtomicU64,
    /// The whitened XOR. Threads change it by compare-and-swap, from a value that they read before
    /// they checked the key and the lease. It is whitened with key and generation, so the swap
    /// fails on every later occupant (W6, W14).
    pub(super) word: AtomicU64,
    /// The owner's number. The thread that ended the slot reads it, and operators' walks.
    pub(crate) owner: AtomicU64,
    #[cfg(expiry_loom)]
    token: Place<T>,
    #[cfg(not(expiry_loom))]
    _token: PhantomData<fn() -> T>,
}

// SAFETY: atomics, valid as zeroes, and an empty place.
unsafe impl<T> ZeroValid for Tree<T> {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        let [key, word, owner] = std::array::from_fn(|_| AtomicU64::new(0));
        Tree { key, word, owner, token: Place::zeroed() }
    }
    fn zero(&self) {
        for word in [&self.key, &self.word, &self.owner] {
            // survives: a thread that reads this zero under an old lease changes a word that the
            // next claimer sets.
            word.store(0, Ordering::Release);
        }
    }
}

// SAFETY: the payload is the struct, and then a `Place<T>`, empty while the lease is `FREE`.
unsafe impl<T: 'static> Payload for Tree<T> {
    const SIZE: usize = Self::TOKEN + Place::<T>::SIZE;
    const ALIGN: usize = if Place::<T>::ALIGN > 8 { Place::<T>::ALIGN } else { 8 };
    type Note = AtomicU64;
    /// The tick at which the root has been idle for too long; see [`super::idle`].
    type Term = AtomicU64;
    #[cfg(expiry_loom)]
    type Cell = Self;
}

// SAFETY: it is made of atomics.
unsafe impl<T: 'static> Fields for Tree<T> {
    #[inline(always)]
    fn of(slot: Slot<'_, Self>) -> &Self {
        // SAFETY: the payload begins with the struct, made of atomics.
        unsafe { slot.as_fields() }
    }
}

impl<T: 'static> Tree<T> {
    /// Where the token begins.
    const TOKEN: usize = std::mem::size_of::<Self>().next_multiple_of(Place::<T>::ALIGN);

    #[cfg(not(expiry_loom))]
    #[inline(always)]
    pub(super) fn token(slot: Slot<'_, Self>) -> Place<T> {
        // SAFETY: the payload has the size and the alignment for it.
        unsafe { Place::at(slot.payload().wrapping_add(Self::TOKEN)) }
    }

    #[cfg(expiry_loom)]
    pub(super) fn token(slot: Slot<'_, Self>) -> &Place<T> {
        &slot.fields().token
    }
}

/// Without a token a slot takes 32 bytes: the lease and the three words.
#[cfg(not(expiry_loom))]
const _: () = assert!(crate::core::slot::units::<Tree<()>>() == 4);

/// Word and lease of the occupant with this key, if the lease is in one of `states`.
#[inline(always)]
pub(super) fn read<T: 'static>(
    slot: Slot<'_, Tree<T>>,
    key: u64,
    states: u16,
) -> Option<(u64, Lease)> {
    let tree = slot.fields();
    let word = tree.word.load(Ordering::Acquire);
    // Acquire: a thread that reads the key of the next occupant does not read the lease of the one
    // before (`an_early_ack_beside_a_root_of_the_same_hash` fails without it).
    let same = tree.key.load(Ordering::Acquire) == key;
    let lease = slot.lease();
    (same && lease.is_in(states)).then_some((word, lease))
}

/// Fills a claimed slot, with `token` if there is one, and publishes its lease.
#[inline(always)]
pub(super) fn occupy<'a, T: 'static>(
    vacant: Vacant<'a, Tree<T>>,
    (key, owner, token): (u64, u64, &mut Option<T>),
    word: u64,
    lease: Lease,
) -> Unnamed<'a, Tree<T>> {
    let slot = vacant.spot().slot;
    let tree = slot.fields();
    tree.key.store(key, Ordering::Release);
    step("occupied");
    // Release, as of the key: a list that reads it sees that the occupant before has ended
    // (`a_list_beside_the_next_root_of_a_slot` fails without).
    tree.owner.store(owner, Ordering::Release);
    if let Some(token) = token.take() {
        // SAFETY: just claimed.
        unsafe { Tree::token(slot).put(token) };
    }
    // A swap that was prepared against an earlier occupant may succeed before.
    overwrite(&tree.word, word, Ordering::Release);
    vacant.publish(lease)
}
