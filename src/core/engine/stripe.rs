//! A stripe: what one thread keeps to itself of one engine.

use super::cursor::Cursor;
use super::deadline::LastDeadlines;
use super::reclaim;
use crate::core::threads::Counter;

/// A thread's stripe. Written by one thread at a time; see [`core::threads`](crate::core::threads).
pub(crate) struct Stripe<C> {
    pub(super) cursor: Cursor,
    /// Number of slots that the thread has freed, in all shards. Every
    /// [`CHUNK`](crate::core::params::CHUNK) slots it asks whether memory can go back.
    pub(super) ended: Counter,
    pub(crate) deadlines: LastDeadlines,
    /// Non-zero while the thread is in a round of the driver, handlers included.
    pub(super) driving: Counter,
    /// Number of the thread's entries that were refused for want of room.
    pub(super) refused: Counter,
    /// By how many shards the beginning of the thread's next round is past the one of its index.
    pub(super) further: Counter,
    /// The slots that the thread has ended and that are not free yet.
    pub(super) reclaim: reclaim::Mine,
    /// The store type's share.
    pub(crate) frontend: C,
}

impl<C> Stripe<C> {
    pub(super) fn new(frontend: C) -> Self {
        Stripe {
            cursor: Cursor::default(),
            ended: Counter::default(),
            deadlines: LastDeadlines::default(),
            driving: Counter::default(),
            refused: Counter::default(),
            further: Counter::default(),
            reclaim: reclaim::Mine::new(),
            frontend,
        }
    }

    /// Whether this thread is in a round of the driver: in a handler that one has called.
    #[inline(always)]
    pub(crate) fn is_driving(&self) -> bool {
        self.driving.get() != 0
    }
}
