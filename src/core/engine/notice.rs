//! Notices: how a deadline reaches the wheel.
//!
//! ```text
//!   inserting thread                          the shard's driver
//!   lease := LIVE, deadline d                 take the inbox, schedule the blocks in it
//!   block.lower(d)    (read-modify-write)    n := block.take()         (read-modify-write)
//!   if that lowered it:                       scan the block's leases (all of them; without the
//!     push the block on the inbox              dirty bit those that the last scan found due now)
//!     read the block's next expiration       block.put_back(the minimum that it found)
//!     lower the shard's to that, which        schedule the block at block.get()
//!       sets its dirty bit                    raise the shard's next expiration to the wheel's;
//!     lower the announced wake-up               or, with the dirty bit, begin again
//!                                                                        (read-modify-write)
//! ```
//!
//! Both sides change a block's next expiration by read-modify-writes only, so one comes first. If
//! the inserting thread's does, the driver's scan sees the lease. If the driver's does, the
//! inserting thread finds "never", or a later tick: it lowers that, and pushes the block (W5). A
//! touch to an earlier deadline does the same (W11).
//!
//! The pushing thread reports the *block's* next expiration, read after the push, and not its own
//! deadline. It may push for another thread too, which has found the block flagged (W10).
//!
//! # A shard's next expiration
//!
//! It is always a lower bound of the deadlines in the shard's blocks, whether the wheel has a block
//! or a thread is about to push it. The driver raises it only at the end of its round, and only if
//! no thread has reported a tick since before the driver took the inbox. A reported tick that is
//! yet to come stays, although the inbox was empty: another thread may be about to push its block
//! (W10). A poll does not find a block whose push is held up for longer than its deadline, and may
//! pass by one whose report is.
//!
//! A thread that finds its block lowered relies on the thread that has lowered it, which may have
//! yet to report. Until then the shard may show a later tick. As one thread at a time inserts into
//! a block, this takes a renewal: of a key whose insertion is under way, or to a nearer deadline.

use crate::core::header::{Header, NextExpiration};
use crate::core::inbox::{Inbox, Taken};
use crate::core::slot::Payload;
use crate::core::slots::Slots;
use crate::sync::step;

/// A shard's notices: what inserting threads leave for its driver.
pub(super) struct Notices {
    inbox: Inbox,
    /// The shard's next expiration, or earlier. Notifying threads lower it, the driver raises it.
    next: NextExpiration,
}

impl Notices {
    pub(super) fn new() -> Self {
        Notices { inbox: Inbox::new(), next: NextExpiration::never() }
    }

    /// Notifies the driver of a block whose next expiration was lowered, and returns that one.
    pub(super) fn notify(&self, block: u32, header: &Header) -> Option<u64> {
        self.inbox.push(block, header);
        step("pushed");
        // The block's, not the caller's own: the push may have been for another thread, too (W10).
        let tick = header.next.get()?;
        // After the push: a driver that raises it has taken the inbox with the block in it.
        self.next.name(tick);
        Some(tick)
    }

    pub(super) fn next(&self) -> Option<u64> {
        self.next.get()
    }
}

/// What a shard's driver has taken of the [`Notices`], and what it has last read.
#[derive(Default)]
pub(super) struct Heard {
    taken: Taken,
    /// The shard's next expiration as the driver last left or read it.
    next: u64,
}

impl Heard {
    /// Takes the inbox, unless an earlier round has left something of it, which comes first.
    /// Returns whether there is something to [pop](Self::pop).
    pub(super) fn take(&mut self, notices: &Notices) -> bool {
        if self.taken.is_empty() {
            self.taken = notices.inbox.take();
        }
        !self.taken.is_empty()
    }

    /// The next block of which the driver was notified, with its next expiration if it has one.
    pub(super) fn pop<P: Payload>(&mut self, slots: &Slots<P>) -> Option<(u32, Option<u64>)> {
        self.taken.pop(slots)
    }

    /// Raises the shard's next expiration to the `wheel`'s. Returns what it is then; `None` if a
    /// thread has reported a tick since the last time: the driver has to take the inbox again.
    pub(super) fn raise(&mut self, notices: &Notices, now: u64, wheel: u64) -> Option<u64> {
        // A thread that has reported since has set the dirty bit.
        notices.next.raise(&mut self.next, now, wheel)
    }
}
