//! The inbox: inserters notify the driver here that a block's next expiration came nearer.
//!
//! An intrusive lock-free stack of blocks, linked through their headers. A push is rare: a thread
//! pushes a block that was idle, or one that gets a deadline nearer than all others in it.
//!
//! * A block is in the stack at most once: a thread takes its `queued` flag by a swap before it
//!   pushes. A thread that finds the flag taken need not push: the thread that took it will, or the
//!   driver is about to look (W10).
//! * The driver takes the whole stack by a swap, so there is no ABA. For each block it reads the
//!   link, *then* clears the flag, *then* reads the block's next expiration. If it cleared the flag
//!   first, a second push could overwrite the link and lose the rest of the list (W9). An inserter
//!   lowers the next expiration before it swaps the flag. If it finds the flag taken, its swap
//!   comes before the driver's, so the driver reads the lowered value.

use super::header::Header;
use super::params::BLOCK_U32;
use super::slot::Payload;
use super::slots::Slots;
use crate::sync::{AtomicU32, Ordering};

/// A shard's inbox.
pub(crate) struct Inbox {
    /// The block on top plus one; 0 if empty.
    head: AtomicU32,
}

/// Blocks that the driver has taken and not yet looked at: still flagged, so no other chain has
/// them.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    next: u32,
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Inbox { head: AtomicU32::new(0) }
    }

    /// Puts `block` in, unless it is in or on its way in. Lock-free.
    pub(crate) fn push(&self, block: u32, header: &Header) {
        // AcqRel: Release publishes the lowered next expiration to the driver's clearing swap.
        if header.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // This thread's alone between the flag and the swap below, whose Release publishes it.
            header.link.store(head, Ordering::Relaxed);
            match self.head.compare_exchange_weak(
                head,
                block + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes all that is in it, by a read-modify-write even when it is empty. The driver looks here
    /// once more after it has announced how long it will sleep: either it sees a push, or the
    /// pusher sees the announcement (W4).
    pub(crate) fn take(&self) -> Taken {
        Taken { next: self.head.swap(0, Ordering::AcqRel) }
    }
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.next == 0
    }

    /// The next block, unflagged, with its next expiration if it has one.
    pub(crate) fn pop<P: Payload>(&mut self, slots: &Slots<P>) -> Option<(u32, Option<u64>)> {
        let block = self.next.checked_sub(1)?;
        let header = slots.header(block * BLOCK_U32)?;
        self.next = header.link.load(Ordering::Relaxed);
        header.queued.swap(false, Ordering::AcqRel);
        Some((block, header.next.get()))
    }
}
