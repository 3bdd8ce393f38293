//! Delivery: outcomes go to a handler, or to a bounded channel with a stated policy.
//!
//! Delivery is outside every internal state change: the slot has been freed before, so a handler
//! may call the tracker, be slow, or panic, and only its own thread is affected.

use super::outcome::Outcome;
use crate::channel::Sender;
use crate::panics::caught;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Something that wants to know how roots end. Implemented for closures.
///
/// ```
/// use expiry::{AckTracker, Handler, Outcome};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::sync::Arc;
///
/// struct Timeouts(Arc<AtomicU64>);
///
/// impl Handler for Timeouts {
///     fn outcome(&self, outcome: &Outcome) {
///         self.0.fetch_add(outcome.is_timed_out().into(), Relaxed);
///     }
/// }
///
/// let timeouts = Arc::new(AtomicU64::new(0));
/// let tracker = AckTracker::builder().on_outcome(Timeouts(timeouts.clone())).build()?;
/// assert_eq!(timeouts.load(Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Called once for each tracked root, by the thread that ended it: the one whose ack was the
    /// last, the one that failed it, or the one that drives expiry. A panic is caught and counted.
    fn outcome(&self, outcome: &Outcome);
}

impl<F: Fn(&Outcome) + Send + Sync + 'static> Handler for F {
    fn outcome(&self, outcome: &Outcome) {
        self(outcome);
    }
}

/// Where outcomes go.
pub(crate) enum Target {
    Nowhere,
    Handler(Arc<dyn Handler>),
    Channel(Sender<Outcome>),
}

pub(crate) struct Deliver {
    target: Target,
    pub(crate) panics: AtomicU64,
}

impl Deliver {
    pub(crate) fn new(target: Target) -> Self {
        Deliver { target, panics: AtomicU64::new(0) }
    }

    /// Closes the channel's waiting: the tracker is being shut down, and no thread waits for room
    /// any more.
    pub(crate) fn close(&self) {
        if let Target::Channel(sender) = &self.target {
            sender.close();
        }
    }

    /// Whether outcomes go into a channel: delivery runs no code of the user's then.
    pub(crate) fn is_channel(&self) -> bool {
        matches!(self.target, Target::Channel(_))
    }

    /// Ends the channel: all outcomes have been delivered.
    pub(crate) fn finish(&self) {
        if let Target::Channel(sender) = &self.target {
            sender.finish();
        }
    }

    /// Number of outcomes that had no room and spilled, and number of those that were lost.
    pub(crate) fn astray(&self) -> (u64, u64) {
        match &self.target {
            Target::Channel(sender) => sender.astray(),
            _ => (0, 0),
        }
    }

    /// Whether a task waits for an outcome that was delivered.
    #[cfg(feature = "async")]
    #[inline(always)]
    pub(crate) fn is_awaited(&self) -> bool {
        matches!(&self.target, Target::Channel(sender) if sender.is_awaited())
    }

    /// Wakes those tasks. Never panics.
    #[cfg(feature = "async")]
    pub(crate) fn wake(&self) {
        if let Target::Channel(sender) = &self.target {
            sender.wake();
        }
    }

    /// Delivers an outcome. The caller has yet to wake tasks that wait at a channel. Never panics.
    #[inline(always)]
    pub(crate) fn tell(&self, outcome: &Outcome) {
        match &self.target {
            Target::Nowhere => {}
            Target::Handler(handler) => {
                if caught(|| handler.outcome(outcome)) {
                    self.panics.fetch_add(1, Ordering::Relaxed);
                }
            }
            Target::Channel(sender) => {
                sender.put(*outcome);
            }
        }
    }
}
