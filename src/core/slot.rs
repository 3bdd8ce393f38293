//! One slot: a lease, and the payload that it is the lease of, in one place in memory.
//!
//! ```text
//!   Slot<P> = { lease: AtomicU64, payload: P }
//! ```
//!
//! A store type chooses its payload. There are two kinds:
//!
//! * [`Fields`]: a struct of atomics, which any thread may read at any time (ack trees, wakers).
//! * [`Owned<T>`](super::value::Owned): a plain value. The claiming thread writes it. Any thread
//!   may read it while it is pinned and has found the slot published. The thread that ended the
//!   slot takes it, or the driver, which has the slot from the deferred-free list.
//!
//! A tree's slot has both: atomics, and behind them a value that no thread reads in place.
//!
//! The distance between slots, the *stride*, is computed from the payload's size, so that small
//! payloads take small slots. Under loom a slot is a struct, and the payload a cell whose accesses
//! loom checks.

use super::lease::Lease;
use super::memory::ZeroValid;
use crate::sync::{overwrite, AtomicU32, AtomicU64, Ordering};
use std::marker::PhantomData;

/// What a store type keeps in a slot, and beside it.
///
/// # Safety
///
/// `SIZE` and `ALIGN` are those of what the payload's accessors read and write. All zero bits are a
/// slot without a payload.
pub(crate) unsafe trait Payload: Sized + 'static {
    /// Size of what lies in the slot, in bytes.
    const SIZE: usize;
    /// Its alignment, at most 64.
    const ALIGN: usize;
    /// A word beside each slot, in an array of its own: 16 of them share a cache line or two.
    type Note: Note;
    /// Whether the notes stay when a chunk's memory goes back. Each then counts how often its
    /// slot's generations have started over.
    const NOTES_STAY: bool = false;
    /// What few slots need, in an array of its own: a page of it exists once it has been written.
    type Term: ZeroValid;
    /// What stands for the payload under loom.
    #[cfg(expiry_loom)]
    type Cell: ZeroValid;
}

/// The word beside a slot. The deferred-free list links forwarded slots through it.
pub(crate) trait Note: ZeroValid {
    /// Makes it name a slot.
    fn set_link(&self, link: u32);
    /// The slot that it names.
    fn link(&self) -> u32;
}

impl Note for AtomicU32 {
    #[inline]
    fn set_link(&self, link: u32) {
        // Published by the swap of the list's head.
        self.store(link, Ordering::Relaxed);
    }

    #[inline]
    fn link(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }
}

#[allow(clippy::cast_possible_truncation)] // a link has 32 bits
impl Note for AtomicU64 {
    fn set_link(&self, link: u32) {
        self.store(link.into(), Ordering::Relaxed);
    }

    fn link(&self) -> u32 {
        self.load(Ordering::Relaxed) as u32
    }
}

/// For payloads whose slots are never forwarded.
impl Note for () {
    fn set_link(&self, _: u32) {}

    fn link(&self) -> u32 {
        u32::MAX
    }
}

/// Where the payload begins in a slot, and how far apart slots are, in bytes.
#[cfg(not(expiry_loom))]
const fn layout<P: Payload>() -> (usize, usize) {
    assert!(P::ALIGN <= 64 && P::ALIGN.is_power_of_two());
    let align = if P::ALIGN > 8 { P::ALIGN } else { 8 };
    let offset = 8usize.next_multiple_of(P::ALIGN);
    (offset, (offset + P::SIZE).next_multiple_of(align))
}

/// A slot array's element: a word of 8 bytes, [`units`] to a slot. Under loom: a slot.
#[cfg(not(expiry_loom))]
#[repr(C)]
pub(crate) struct Unit<P> {
    lease: AtomicU64,
    _payload: PhantomData<fn() -> P>,
}
#[cfg(expiry_loom)]
pub(crate) struct Unit<P: Payload> {
    lease: AtomicU64,
    cell: P::Cell,
}

// SAFETY: an atomic; what lies in the other words is no payload as long as the lease is `FREE`.
unsafe impl<P: Payload> ZeroValid for Unit<P> {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Unit { lease: AtomicU64::new(0), cell: P::Cell::zeroed() }
    }
    fn zero(&self) {
        // survives: as `AtomicU32::zero`. A thread that still holds the slot's place reads a free
        // lease, and follows nothing.
        self.lease.store(0, Ordering::Release);
        #[cfg(expiry_loom)]
        self.cell.zero();
    }
}

/// How many units make a slot.
#[cfg(not(expiry_loom))]
pub(crate) const fn units<P: Payload>() -> usize {
    layout::<P>().1 / 8
}
#[cfg(expiry_loom)]
pub(crate) const fn units<P: Payload>() -> usize {
    1
}

/// A slot of a store that lives for `'a`. Copied freely: the lease says which thread owns it.
pub(crate) struct Slot<'a, P: Payload> {
    at: *const Unit<P>,
    _slots: PhantomData<&'a Unit<P>>,
}

/// `Clone` and `Copy` of what names a slot. Derived ones would ask the same of the payload.
macro_rules! copies {
    ($type:ident) => {
        impl<P: $crate::core::slot::Payload> Clone for $type<'_, P> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P: $crate::core::slot::Payload> Copy for $type<'_, P> {}
    };
}

pub(crate) use copies;

copies!(Slot);

// SAFETY: a shared reference to atomics; what is done with payloads has its own conditions.
unsafe impl<P: Payload> Send for Slot<'_, P> {}
// SAFETY: as above.
unsafe impl<P: Payload> Sync for Slot<'_, P> {}

impl<'a, P: Payload> Slot<'a, P> {
    /// # Safety
    ///
    /// At `at` begin the units of a slot, which stay for `'a`.
    #[inline(always)]
    pub(super) unsafe fn at(at: *const Unit<P>) -> Self {
        Slot { at, _slots: PhantomData }
    }

    /// Its address, for a prefetch.
    #[inline(always)]
    pub(crate) fn address(self) -> *const u8 {
        self.at.cast()
    }

    #[inline(always)]
    fn word(self) -> &'a AtomicU64 {
        // SAFETY: by the promise of `at`.
        unsafe { &(*self.at).lease }
    }

    /// The lease. Acquire pairs with the Release of its publication: the payload is there.
    #[inline(always)]
    pub(crate) fn lease(self) -> Lease {
        Lease(self.word().load(Ordering::Acquire))
    }

    /// The lease, for a caller that follows nothing in it.
    #[inline(always)]
    pub(crate) fn lease_relaxed(self) -> Lease {
        Lease(self.word().load(Ordering::Relaxed))
    }

    /// The newest lease, by a read-modify-write: later changers see what the caller has done.
    pub(crate) fn lease_in_order(self) -> Lease {
        Lease(self.word().fetch_add(0, Ordering::AcqRel))
    }

    /// Replaces the lease if it is still `from`; else returns what it is.
    #[inline]
    pub(crate) fn swap_lease(self, from: Lease, to: Lease) -> Result<(), Lease> {
        self.word()
            .compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Acquire)
            .map(drop)
            .map_err(Lease)
    }

    /// Ends the occupancy of this lease. One caller succeeds, and owns the slot alone from here on.
    #[inline]
    pub(crate) fn end(self, lease: Lease) -> Result<(), Lease> {
        self.swap_lease(lease, lease.ended())
    }

    /// Publishes a lease on a slot that the caller owns alone.
    #[inline(always)]
    pub(crate) fn set_lease(self, lease: Lease) {
        self.word().store(lease.0, Ordering::Release);
    }

    /// Makes the lease of a slot that the caller has ended name the next slot of a list. Another
    /// thread may be at [`lease_in_order`](Self::lease_in_order), which changes nothing.
    #[inline(always)]
    pub(crate) fn set_link(self, lease: Lease) {
        // survives: the swap of the list's head publishes the link.
        overwrite(self.word(), lease.0, Ordering::Release);
    }

    #[cfg(not(expiry_loom))]
    const LAYOUT: (usize, usize) = layout::<P>();

    #[cfg(not(expiry_loom))]
    #[inline(always)]
    pub(crate) fn payload(self) -> *mut u8 {
        self.at.cast::<u8>().wrapping_add(Self::LAYOUT.0).cast_mut()
    }

    #[cfg(expiry_loom)]
    pub(super) fn cell(self) -> &'a P::Cell {
        // SAFETY: by the promise of `at`.
        unsafe { &(*self.at).cell }
    }
}

/// A payload of atomics, for which all zero bits are valid.
///
/// # Safety
///
/// As [`ZeroValid`]; made by [`fields`].
pub(crate) unsafe trait Fields: Payload + Sync {
    fn of(slot: Slot<'_, Self>) -> &Self;
}

impl<'a, P: Fields> Slot<'a, P> {
    #[inline(always)]
    pub(crate) fn fields(self) -> &'a P {
        P::of(self)
    }
}

#[cfg(not(expiry_loom))]
impl<P: Payload> Slot<'_, P> {
    /// Gives [`fields`] the payload.
    ///
    /// # Safety
    ///
    /// The payload is a `P`, of atomics, valid as zeroes.
    #[inline(always)]
    pub(crate) unsafe fn as_fields<'a>(self) -> &'a P
    where
        Self: 'a,
    {
        // SAFETY: the caller's: it lies there, aligned, for as long as the slot.
        unsafe { &*self.payload().cast::<P>() }
    }
}

#[cfg(expiry_loom)]
impl<P: Payload<Cell = P>> Slot<'_, P> {
    pub(crate) unsafe fn as_fields<'a>(self) -> &'a P
    where
        Self: 'a,
    {
        self.cell()
    }
}

/// Declares a struct of atomics to be a payload, with the word beside it.
#[cfg(any(feature = "async", expiry_loom, test))]
macro_rules! fields {
    ($type:ty, $note:ty { $($field:ident : $make:expr),* $(,)? }) => {
        // SAFETY: listed field by field below: atomics, valid as zeroes.
        unsafe impl $crate::core::memory::ZeroValid for $type {
            #[cfg(expiry_loom)]
            fn zeroed() -> Self {
                Self { $($field: $make),* }
            }
            fn zero(&self) {
                $(let _ = stringify!($make); self.$field.store(0, $crate::sync::Ordering::Release);)*
            }
        }
        // SAFETY: the payload is the struct.
        unsafe impl $crate::core::slot::Payload for $type {
            const SIZE: usize = std::mem::size_of::<Self>();
            const ALIGN: usize = std::mem::align_of::<Self>();
            type Note = $note;
            type Term = ();
            #[cfg(expiry_loom)]
            type Cell = Self;
        }
        // SAFETY: it is made of atomics.
        unsafe impl $crate::core::slot::Fields for $type {
            #[inline(always)]
            fn of(slot: $crate::core::slot::Slot<'_, Self>) -> &Self {
                // SAFETY: the payload is the struct, made of atomics.
                unsafe { slot.as_fields() }
            }
        }
    };
}

#[cfg(any(feature = "async", expiry_loom, test))]
pub(crate) use fields;
