//! Delivery: outcomes go to a handler, or to a bounded channel with a stated policy.
//!
//! The ending thread frees the slot before it delivers the outcome. So a handler may call the
//! tracker, be slow, or panic, and affects only its own thread.

use super::outcome::Outcome;
use crate::kit::panics::Panics;
#[cfg(feature = "async")]
use crate::kit::stream::Listeners;
use crate::kit::target::Target;

/// Something that wants to know how roots end. Implemented for closures. It gets each outcome by
/// value, and with it the root's token.
///
/// ```
/// use expiry::{AckTracker, Handler, Outcome};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::sync::Arc;
///
/// struct Timeouts(Arc<AtomicU64>);
///
/// impl Handler for Timeouts {
///     fn outcome(&self, outcome: Outcome) {
///         self.0.fetch_add(outcome.is_timed_out().into(), Relaxed);
///     }
/// }
///
/// let timeouts = Arc::new(AtomicU64::new(0));
/// let tracker = AckTracker::builder().on_outcome(Timeouts(timeouts.clone())).build()?;
/// assert_eq!(timeouts.load(Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Handler<T = ()>: Send + Sync + 'static {
    /// Called once for each tracked root, by the thread that ended it: the one whose ack was the
    /// last, the one that failed it, or the one that drives expiry. A panic is caught and counted.
    fn outcome(&self, outcome: Outcome<T>);
}

impl<T, F: Fn(Outcome<T>) + Send + Sync + 'static> Handler<T> for F {
    fn outcome(&self, outcome: Outcome<T>) {
        self(outcome);
    }
}

/// Where outcomes go, and the number of caught panics there.
pub(crate) struct Deliver<T> {
    pub(super) target: Target<Outcome<T>, dyn Handler<T>>,
    pub(super) panics: Panics,
}

impl<T: 'static> Deliver<T> {
    /// The tasks that wait for an outcome in the channel, if there are any.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(crate) fn awaited(&self) -> Option<&Listeners> {
        match &self.target {
            Target::Channel(sender) if sender.listeners.is_awaited() => Some(&sender.listeners),
            _ => None,
        }
    }

    /// Delivers an outcome; the caller wakes tasks that wait at a channel. Never panics.
    #[inline(always)]
    pub(crate) fn tell(&self, outcome: Outcome<T>) {
        // A token that no receiver takes is dropped here.
        let drops = std::mem::needs_drop::<T>();
        match &self.target {
            Target::Unheard | Target::Poll(_) if drops => self.panics.guard(|| drop(outcome)),
            Target::Unheard | Target::Poll(_) => {}
            Target::Listener(handler) => self.panics.guard(|| handler.outcome(outcome)),
            Target::Channel(sender) => sender.put(&self.panics, outcome),
        }
    }
}
