//! Outcomes on their way: a thread has decided to end a root, and has yet to deliver the outcome.
//!
//! A shutdown closes the channel of outcomes when no more come. So each thread announces that it is
//! about to end a root before the swap that ends it, and withdraws the announcement when it has
//! delivered the outcome. A shutdown that finds the root ended therefore finds the announcement,
//! and waits until it is withdrawn (`Trees::have_delivered`).
//!
//! A shutdown inside a call of the user's code does not wait. It notes that the channel's end is
//! *left* to the threads that deliver, makes a fence, and looks again whether none is announced. A
//! thread that withdraws an announcement and finds that a shutdown has begun (`engine::fence`)
//! makes a fence, too, and looks at both. So of the shutdown and all these threads the one whose
//! fence comes last finds the note and no announcement, and ends the channel.

use super::{Mine, Trees};
#[cfg(feature = "async")]
use crate::{
    kit::target::Target,
    sync::{fence, Ordering},
};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number of roots that one thread is about to end, or has ended, and whose outcomes it has yet to
/// deliver. Only that thread writes it. (A standard atomic also under loom.)
#[derive(Debug, Default)]
pub(super) struct Undelivered(AtomicU64);

impl Undelivered {
    /// Runs `f`, which may do anything, a shutdown included, after the outcome of the last
    /// announcement was delivered, and without that announcement. Earlier ones stand: `f` may run
    /// in a waker that this thread calls while it has another outcome to deliver.
    #[cfg(feature = "async")]
    #[cold]
    pub(super) fn without_last(&self, f: impl FnOnce()) {
        let announced = self.0.load(Relaxed);
        self.0.store(announced - 1, Release);
        f();
        self.0.store(announced, Relaxed);
    }

    /// Whether the thread has delivered all outcomes. Acquire pairs with the release of
    /// [`Delivering`]: what the thread has put into the channel is visible then.
    fn are_delivered(&self) -> bool {
        // survives: loom sees neither this standard atomic nor crossbeam's channel.
        self.0.load(Acquire) == 0
    }
}

impl<T: 'static> Trees<T> {
    /// Announces, until the guard is dropped, that this thread is about to end a root and to
    /// deliver its outcome. Called before the swap that ends the root.
    #[inline(always)]
    pub(super) fn announce<'a>(&'a self, mine: &'a Mine) -> Delivering<'a, T> {
        let Undelivered(count) = &mine.frontend.undelivered;
        // One thread writes, so this need not be a read-modify-write.
        count.store(count.load(Relaxed) + 1, Relaxed);
        Delivering { trees: self, count }
    }

    /// Whether no thread has an outcome to deliver.
    pub(super) fn are_delivered(&self) -> bool {
        self.engine.stripes().all(|share| share.undelivered.are_delivered())
    }

    /// Ends the channel if a shutdown has left that to the threads that deliver, and none has an
    /// outcome to deliver any more.
    #[cfg(feature = "async")]
    #[cold]
    #[inline(never)]
    pub(super) fn finish_what_was_left(&self) {
        // survives: `left` and the announcements are standard atomics.
        fence(Ordering::SeqCst);
        if let Target::Channel(sender) = &self.target {
            if self.left.load(Acquire) && self.are_delivered() {
                sender.finish();
            }
        }
    }
}

/// One announcement of [`Undelivered`]. Dropping it takes the announcement back.
pub(super) struct Delivering<'a, T: 'static> {
    #[cfg_attr(not(feature = "async"), allow(dead_code))]
    trees: &'a Trees<T>,
    count: &'a AtomicU64,
}

impl<T: 'static> Drop for Delivering<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let announced = self.count.load(Relaxed);
        // Release pairs with `are_delivered`: a thread that finds no announcement finds the
        // outcome.
        // survives: loom sees neither this standard atomic nor crossbeam's channel.
        self.count.store(announced - 1, Release);
        #[cfg(feature = "async")]
        if self.trees.engine.fence.is_closing() {
            self.trees.finish_what_was_left();
        }
    }
}
