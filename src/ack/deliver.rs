//! Delivery: outcomes go to a handler, or to a bounded channel with a stated policy.
//!
//! The ending thread frees the slot before it delivers the outcome. So a handler may call the
//! tracker, be slow, or panic, and affects only its own thread.

use super::outcome::Outcome;
use crate::kit::panics::Panics;
#[cfg(feature = "async")]
use crate::kit::stream::Listeners;
use crate::kit::target::Target;

/// Called for each outcome. It may use the tracker, be slow, or panic.
pub(super) type Handler<T> = dyn Fn(Outcome<T>) + Send + Sync;

/// Where outcomes go, and the number of caught panics there.
pub(crate) struct Deliver<T> {
    pub(super) target: Target<Outcome<T>, Handler<T>>,
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
            Target::Listener(handler) => self.panics.guard(|| handler(outcome)),
            Target::Channel(sender) => sender.put(&self.panics, outcome),
        }
    }
}
