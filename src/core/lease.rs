//! The lease: one word that decides every beginning, every end and every renewal of a slot.
//!
//! ```text
//!   63                        24 23          8   7    6     4 3     0
//!  +----------------------------+-------------+------+--------+-------+
//!  | deadline, ticks mod 2^40   | generation  | used | lowered| state |
//!  +----------------------------+-------------+------+--------+-------+
//! ```
//!
//! # States and the threads that change them
//!
//! ```text
//!  FREE -> LIVE_ISSUED               the owner of the block, by a store: the id it returns is the only way in
//!  FREE -> LIVE, EARLY*              the owner of the block, by a store, before it publishes the slot in the index
//!  LIVE, EARLY* -> FREE              the claimer, by a store, if the index refused it: no other thread was in it
//!  EARLY -> EARLY_FAILED             a fail that came before the init
//!  EARLY -> INITING -> LIVE          one init; the first swap refuses duplicates
//!  INITING -> INITING_FAILED         a fail that met an init; that init reports it
//!  FREE -> LIVE_IDLE                 as LIVE, of a keyed entry with a time to idle
//!  FREE -> WITHHELD*                 as LIVE, LIVE_IDLE, of an entry that a load puts in
//!  WITHHELD* -> LIVE, LIVE_IDLE      that load, unless a later call has invalidated it
//!  LIVE, LIVE_IDLE -> FORWARD        the replacer of a keyed entry, by compare-and-swap: its value lives in another slot
//!  LIVE -> CLOSING                   a keyed entry is neither touched nor expired from here on, only ended
//!  LIVE, LIVE_IDLE -> LAPSED         the thread that reports a keyed entry as expired before the driver has ended it
//!  LIVE*, EARLY*, INITING*, WITHHELD*, CLOSING, LAPSED -> DEAD   the one that ends it, by compare-and-swap: from here on it owns the slot
//!  DEAD, FORWARD -> FREE             the thread that ended it, or the driver from the deferred-free list, by a store
//!  FREE -> FREE                      the driver, as owner of all blocks of a chunk, gives its memory back: zeroes
//!  FREE -> DEAD                      the claimer, by a store: while it clones a waker, or to retire the slot for good
//!  DEAD -> LIVE_ISSUED               that claimer, or the thread that ended the entry to change its waker, by a store
//!  LIVE*, EARLY*, INITING -> the same  a touch: only the deadline changes
//! ```
//!
//! A slot with a hashed key is in use from the moment that the index has its word, not from its
//! lease. Other threads come to it through the index only, or through another slot's FORWARD lease.
//! The driver, which comes to it through its block, makes sure that the index leads to it before
//! it ends it. So between the store of the lease and the publication the claimer still owns it.
//!
//! The lease of a slot that is FORWARD names the slot with the new value, where other leases hold
//! the deadline. The lease of a DEAD slot on the deferred-free list names the next slot of that
//! list ([`Lease::link`]); of other DEAD slots that link is 0.
//!
//! # Widths, and what remains possible
//!
//! The slot's generation changes with every claim of the slot and has 16 bits. A keyed entry's
//! compare-and-swap under a pin never meets a later occupant, because no slot is reused under a
//! pin. Without a pin (trees, handles) it could succeed on a later occupant if two things happen.
//! The thread sleeps through a multiple of 2^16 - 1 occupancies of this one slot, *and* the
//! deadline comes out the same in its 40 bits. Slots are reused in rotation (a chunk of 4096 at the
//! least), so that takes at least 2^28 inserts by that thread's shard within one interval. (But if
//! a chunk's memory goes back while a slot in it is near the wrap, the generations of all its slots
//! start over: see [`Slots::release`](super::slots::Slots::release). A slot that has had few
//! occupants then repeats its few generations.) An issued id has 16 random bits on top (see
//! [`IssuedId`]).
//!
//! Each renewal that sets a nearer deadline counts in `lowered`, which has 3 bits. So a renewal's
//! swap fails if others have lowered the lease since its look and brought it back to the same tick.
//! It could succeed only after a multiple of 8 such lowerings. A touch that leaves the deadline of
//! an entry with a time to idle counts there, too (`keyed::idle`).
//!
//! `used` is the visited bit of a map that evicts (`keyed::store::evict`). A `get` sets it and a sweep
//! clears it, by a compare-and-swap of the whole lease. In other stores it says nothing.
//!
//! Threads compare deadlines by their distance from a near tick (the block's next expiration),
//! never as absolute numbers. So uptime has no limit, and timeouts are limited to 2^39 - 2 ticks.

use crate::time::NEVER;

pub(crate) const GENERATION_BITS: u32 = 16;
const GENERATION_SHIFT: u32 = 8;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// One renewal that has lowered the deadline, and the mask of their count.
const LOWERED_ONE: u64 = 1 << 4;
const LOWERED_MASK: u64 = 7 << 4;
/// The entry has been used since the last sweep.
const USED: u64 = 1 << 7;
const DEADLINE_BITS: u32 = 40;
const DEADLINE_SHIFT: u32 = 64 - DEADLINE_BITS;
const DEADLINE_MASK: u64 = (1 << DEADLINE_BITS) - 1;

/// What a slot is doing. See the module's head for the transitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// No thread owns it. All zero bits, so fresh memory is free slots.
    Free = 0,
    Early = 1,
    EarlyFailed = 2,
    Initing = 3,
    InitingFailed = 4,
    Live = 5,
    LiveIssued = 6,
    Dead = 7,
    /// Its entry has a new value, in the slot that the lease names.
    Forward = 8,
    /// A caller is closing it: it is neither touched nor expired.
    Closing = 9,
    /// The entry has expired, and a caller has observed that, but no thread has ended it yet.
    Lapsed = 10,
    /// As `Live`, of an entry with a time to idle.
    LiveIdle = 11,
    /// A load has put the entry in, and has yet to show it: no look-up finds it.
    Withheld = 12,
    /// As `Withheld`, of an entry with a time to idle.
    WithheldIdle = 13,
}

/// A set of states, for [`Lease::is_in`].
pub(crate) const fn set(states: &[State]) -> u16 {
    let mut set = 0;
    let mut at = 0;
    while at < states.len() {
        set |= 1 << states[at] as u16;
        at += 1;
    }
    set
}

/// The states that the driver ends when their deadline has passed.
pub(crate) const EXPIRING: u16 = set(&[
    State::Early,
    State::EarlyFailed,
    State::Live,
    State::LiveIssued,
    State::LiveIdle,
    State::Lapsed,
    State::Withheld,
    State::WithheldIdle,
]);

/// The states of a root that other threads have reported before its init.
pub(crate) const EARLY: u16 = set(&[State::Early, State::EarlyFailed]);

/// A lease word, by value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease(pub(crate) u64);

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}#{}@{}", self.state(), self.generation(), self.0 >> DEADLINE_SHIFT)
    }
}

impl Lease {
    #[inline]
    pub(crate) fn new(state: State, generation: u32, deadline: u64) -> Self {
        Lease(
            state as u64
                | u64::from(generation & GENERATION_MASK) << GENERATION_SHIFT
                | Self::bits(deadline),
        )
    }

    /// The bits of a deadline, which is [`expressible`](crate::time::expressible): all ones are
    /// those of [`NEVER`].
    #[inline(always)]
    fn bits(deadline: u64) -> u64 {
        debug_assert!(deadline == NEVER || deadline & DEADLINE_MASK != DEADLINE_MASK);
        deadline << DEADLINE_SHIFT
    }

    #[inline]
    pub(crate) fn state(self) -> State {
        // One comparison: every value but the last is its state.
        match self.0 & 15 {
            0 => State::Free,
            1 => State::Early,
            2 => State::EarlyFailed,
            3 => State::Initing,
            4 => State::InitingFailed,
            5 => State::Live,
            6 => State::LiveIssued,
            8 => State::Forward,
            9 => State::Closing,
            10 => State::Lapsed,
            11 => State::LiveIdle,
            12 => State::Withheld,
            13 => State::WithheldIdle,
            // No state above 13 is ever written.
            _ => State::Dead,
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32 & GENERATION_MASK
    }

    /// Whether its state is one of `states`, a set made by [`set`]: one test, no jump table.
    #[inline]
    pub(crate) fn is_in(self, states: u16) -> bool {
        states >> (self.0 & 15) & 1 != 0
    }

    #[inline(always)]
    pub(crate) fn is(self, state: State) -> bool {
        self.0 & 15 == state as u64
    }

    #[inline]
    pub(crate) fn with_state(self, state: State) -> Self {
        Lease(self.0 & !15 | state as u64)
    }

    /// The lease of a live entry that is withheld.
    #[cold]
    pub(crate) fn withheld(self) -> Self {
        match self.state() {
            State::LiveIdle => self.with_state(State::WithheldIdle),
            _ => self.with_state(State::Withheld),
        }
    }

    /// The lease of a withheld entry when look-ups find it; `None` if it is not withheld.
    pub(crate) fn shown(self) -> Option<Self> {
        match self.state() {
            State::Withheld => Some(self.with_state(State::Live)),
            State::WithheldIdle => Some(self.with_state(State::LiveIdle)),
            _ => None,
        }
    }

    /// Whether a use of the entry changes nothing.
    #[inline(always)]
    pub(crate) fn is_used_and_live(self) -> bool {
        self.0 & (USED | 15) == USED | State::Live as u64
    }

    #[inline(always)]
    pub(crate) fn is_used(self) -> bool {
        self.0 & USED != 0
    }

    /// The same lease of an entry that has been used.
    #[inline(always)]
    pub(crate) fn used(self) -> Self {
        Lease(self.0 | USED)
    }

    /// The same lease after a sweep.
    pub(crate) fn unused(self) -> Self {
        Lease(self.0 & !USED)
    }

    /// The same lease with another deadline. A nearer one counts in `lowered`.
    #[inline]
    pub(crate) fn with_deadline(self, deadline: u64) -> Self {
        let counted = if self.is_after(deadline) { self.counted() } else { self };
        counted.with_later(deadline)
    }

    /// The same lease, with one more in `lowered`: a swap from what it was fails.
    #[inline]
    pub(crate) fn counted(self) -> Self {
        let counted = (self.0 & LOWERED_MASK).wrapping_add(LOWERED_ONE) & LOWERED_MASK;
        Lease(self.0 & !LOWERED_MASK | counted)
    }

    /// [`with_deadline`](Self::with_deadline) for a deadline that is not nearer: it counts nothing.
    #[inline(always)]
    pub(crate) fn with_later(self, deadline: u64) -> Self {
        Lease(Self::bits(deadline) | self.0 & !(DEADLINE_MASK << DEADLINE_SHIFT))
    }

    /// The same occupancy, in a state in which the lease has a link instead of a deadline.
    #[inline]
    pub(crate) fn with_link(self, state: State, link: u32) -> Self {
        let generation = self.0 & (u64::from(GENERATION_MASK) << GENERATION_SHIFT);
        Lease(u64::from(link) << DEADLINE_SHIFT | generation | state as u64)
    }

    /// The slot that a lease with a link names.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // a link has 32 bits
    pub(crate) fn link(self) -> u32 {
        (self.0 >> DEADLINE_SHIFT) as u32
    }

    /// The lease of the slot after its end.
    #[inline]
    pub(crate) fn ended(self) -> Self {
        self.with_link(State::Dead, 0)
    }

    /// A free slot that remembers its generation.
    #[inline]
    pub(crate) fn free(generation: u32) -> Self {
        Lease(u64::from(generation) << GENERATION_SHIFT)
    }

    /// The full deadline, given a tick at most 2^40 - 1 ticks before it.
    #[inline]
    pub(crate) fn deadline_from(self, not_before: u64) -> u64 {
        let packed = self.0 >> DEADLINE_SHIFT;
        if packed == DEADLINE_MASK {
            return NEVER;
        }
        // A clock of 64-bit nanoseconds counts fewer than 2^51 ticks: only `NEVER` wraps round.
        not_before.wrapping_add(packed.wrapping_sub(not_before) & DEADLINE_MASK)
    }

    /// The full deadline, given a tick less than 2^39 ticks away from it, on either side.
    #[inline]
    pub(crate) fn deadline_near(self, tick: u64) -> u64 {
        let half = 1 << (DEADLINE_BITS - 1);
        if tick >= half {
            self.deadline_from(tick - half)
        } else {
            // Before tick 2^39 every deadline is below 2^40 and stands in the lease in full.
            self.deadline_from(0)
        }
    }

    /// Whether the deadline is after this tick, which is less than 2^39 ticks away from it.
    #[inline]
    pub(crate) fn is_after(self, tick: u64) -> bool {
        self.deadline_near(tick) > tick
    }
}

/// The generation after `last`; never 0, because a free slot of generation 0 is a page of zeroes.
#[inline]
pub(crate) fn next_generation(last: u32) -> u32 {
    let next = (last + 1) & GENERATION_MASK;
    if next == 0 {
        1
    } else {
        next
    }
}

/// An id that the engine issued: which slot, which generation of it, and 16 random bits.
///
/// ```text
///   63      48 47           32 31                0
///  +----------+---------------+-------------------+
///  | nonce    | generation   | slot              |
///  +----------+---------------+-------------------+
/// ```
///
/// The slot keeps the whole id as its key. So an old id is accepted only if the same generation has
/// come round and the nonce agrees. The generation comes round 2^16 - 1 occupancies later, or
/// sooner where it has started over (see the module's head). The odds are 1 in 2^16 then, and 1 in
/// 2^32 for an id that is older and otherwise arbitrary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IssuedId(pub(crate) u64);

impl IssuedId {
    #[inline]
    pub(crate) fn new(slot: u32, generation: u32, nonce: u16) -> Self {
        IssuedId(u64::from(nonce) << 48 | u64::from(generation) << 32 | u64::from(slot))
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn slot(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
#[path = "../../tests/unit/core_lease.rs"]
mod tests;
