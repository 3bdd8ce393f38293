//! Block headers: what the driver knows of 16 slots without looking into them.

use super::memory::ZeroValid;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Header of one block. All zero: nothing in it expires.
#[repr(C, align(16))]
pub(crate) struct Header {
    pub(crate) next: NextExpiration,
    /// The block after this one in its shard's inbox, plus one.
    pub(crate) link: AtomicU32,
    /// Whether the block is in the inbox (or on its way).
    pub(crate) queued: AtomicBool,
    /// Whether a thread owns the free slots in the block; see `core::slots`.
    pub(super) owned: AtomicBool,
}

impl Header {
    /// Lets other threads own the block. Only its owner calls this.
    ///
    /// Loom needs a swap, as in `sync::overwrite`.
    pub(super) fn give_back(&self) {
        #[cfg(not(expiry_loom))]
        self.owned.store(false, Ordering::Release);
        #[cfg(expiry_loom)]
        self.owned.swap(false, Ordering::Release);
    }
}

/// A block's next expiration, a lower bound of the deadlines in it, and a *dirty bit*: something
/// may have been put in, or touched, since the driver looked.
///
/// The word holds the *urgency*, the distance of the tick from the last possible one: zero reads
/// "never", and earlier means greater. The dirty bit is the lowest bit. Inserter and driver change
/// the word only by read-modify-writes. If the inserter's comes first, the driver's swap reads it,
/// and the driver sees the inserter's slot and the dirty bit. If the driver's swap comes first, the
/// inserter sees that it lowered "never", and notifies the driver (W5, W11). Closing works the same
/// way: after [`close`](Self::close) an inserter finds the block closed, before it the closer finds
/// the slot (W8).
pub(crate) struct NextExpiration(AtomicU64);

/// What [`NextExpiration::lower`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lowered {
    /// A tick at least as early was known.
    No,
    /// The block's next expiration is now this one, and the caller notifies the driver.
    Yes,
    /// The engine has shut down.
    Closed,
}

/// What the driver finds when it looks at a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Nothing in the block is due before this tick.
    pub(crate) next: u64,
    /// The dirty bit.
    pub(crate) news: bool,
}

const CLOSED: u64 = u64::MAX;
const NEWS: u64 = 1;

/// The last tick there is: never.
const LAST: u64 = u64::MAX >> 1;

impl NextExpiration {
    pub(crate) fn never() -> Self {
        NextExpiration(AtomicU64::new(0))
    }

    /// Tick 0 would read as closed: tick 1, due no later than the first advance, replaces it.
    #[inline]
    fn urgency(tick: u64) -> u64 {
        (LAST - tick.clamp(1, LAST)) << 1
    }

    /// The tick of a word; `None` if that is never.
    #[inline]
    fn tick(word: u64) -> Option<u64> {
        match word & !NEWS {
            0 => None,
            urgency => Some(LAST - (urgency >> 1)),
        }
    }

    /// Makes the next expiration at most `tick`. Always one read-modify-write, also if nothing
    /// changes: that orders it against [`take`](Self::take).
    #[inline]
    pub(crate) fn lower(&self, tick: u64) -> Lowered {
        let urgency = Self::urgency(tick);
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // AcqRel: Release publishes the lease to `take` and `close`; Acquire sees what they
            // did.
            match self.0.compare_exchange_weak(
                seen,
                seen.max(urgency) | NEWS,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(CLOSED) => return Lowered::Closed,
                Ok(before) if before | NEWS < urgency => return Lowered::Yes,
                Ok(_) => return Lowered::No,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether [`lower`](Self::lower) would change nothing. The caller has a fence before this, and
    /// relies on nothing else that the load has seen.
    #[inline(always)]
    pub(crate) fn covers(&self, tick: u64) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        seen & NEWS != 0 && seen != CLOSED && seen >= Self::urgency(tick)
    }

    /// Makes the next expiration at most `tick`; the dirty bit stays. Only the driver calls this.
    pub(crate) fn put_back(&self, tick: u64) {
        let urgency = Self::urgency(tick);
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            // survives: stronger than needed: a Relaxed read-modify-write passes on the inserter's
            // Release too, and the driver publishes nothing by it.
            match self.0.compare_exchange_weak(
                seen,
                seen.max(urgency | seen & NEWS),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the next expiration, and leaves "never" without the dirty bit. `None` if it was never,
    /// or closed. Only the driver calls this.
    pub(crate) fn take(&self) -> Option<Look> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen == CLOSED {
                return None;
            }
            let next = Self::tick(seen)?;
            match self.0.compare_exchange_weak(seen, 0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    let news = seen & NEWS != 0;
                    return Some(Look { next, news });
                }
                Err(now) => seen = now,
            }
        }
    }

    /// Makes a shard's next expiration at most `tick`, and sets the dirty bit.
    #[cold]
    pub(crate) fn name(&self, tick: u64) {
        // The dirty bit first, or the driver, which knows nothing of it, could raise the reported
        // tick.
        // survives: the reporting thread has pushed its block. The driver, whose `raise` fails by
        // this, takes the inbox by a swap: loom reads the newest value there, hardware may not
        // (W4). Holds for both.
        self.0.fetch_or(NEWS, Ordering::AcqRel);
        self.0.fetch_max(Self::urgency(tick) | NEWS, Ordering::AcqRel);
    }

    /// Sets a shard's next expiration to `tick`. Only the shard's driver calls this, at the tick
    /// `now`. An earlier one that is yet to come stays: its block may still be on its way. Returns
    /// the next expiration. If the dirty bit has been set since the last call, returns `None` and
    /// leaves the tick. `heard` is what the driver keeps of the word.
    pub(crate) fn raise(&self, heard: &mut u64, now: u64, tick: u64) -> Option<u64> {
        let named = Self::tick(*heard).filter(|&named| named > now);
        let next = named.map_or(tick, |named| named.min(tick));
        let urgency = Self::urgency(next);
        // The swap is needed also if nothing changes: it fails if the dirty bit is set.
        // survives: stronger than needed: where it succeeds no dirty bit was set, and no thread
        // reads behind it.
        match self.0.compare_exchange(*heard, urgency, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => {
                *heard = urgency;
                Some(next)
            }
            Err(_) => {
                // What comes from here on sets the dirty bit again.
                // survives: the other side of `name`. The driver takes the inbox after this, by a
                // swap.
                *heard = self.0.fetch_and(!NEWS, Ordering::AcqRel) & !NEWS;
                None
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        // survives: one word. The driver has taken it before, the reaper has announced, and a
        // pusher compares it with what it announces.
        match self.0.load(Ordering::Acquire) {
            CLOSED => None,
            word => Self::tick(word),
        }
    }

    /// From now on every inserter finds the block closed.
    pub(crate) fn close(&self) {
        self.0.swap(CLOSED, Ordering::AcqRel);
    }
}

// SAFETY: integers and flags behind atomics; zero is false.
unsafe impl ZeroValid for Header {
    #[cfg(expiry_loom)]
    fn zeroed() -> Self {
        Header {
            next: NextExpiration::never(),
            link: AtomicU32::new(0),
            queued: AtomicBool::new(false),
            owned: AtomicBool::new(false),
        }
    }
    fn zero(&self) {
        // survives: headers are not given back.
        self.next.0.store(0, Ordering::Release);
        self.link.store(0, Ordering::Release);
        self.queued.store(false, Ordering::Release);
        self.owned.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/core_header.rs"]
mod tests;
