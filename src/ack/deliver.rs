//! Telling the owner: a handler, or a bounded channel with a stated policy.
//!
//! Delivery is outside every internal state change: the slot has been freed before, so a handler may
//! call the tracker, be slow, or panic, and only its own thread is affected.

use super::outcome::Outcome;
use crate::panics::caught;
use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What happens to an outcome when the channel is full. Nothing is lost silently under any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The thread that ended the root waits for room: back-pressure. While the reaper waits, nothing
    /// expires. The channel must then be read by a thread that never ends roots itself: an ack, fail, poll or shutdown on
    /// the receiving thread would wait for itself once the channel is full.
    #[default]
    Wait,
    /// The outcome goes to a second, unbounded queue, from which the receiver reads once the first is
    /// empty. Order between the two is not kept, and the second has no bound: watch `spilled` in the metrics.
    Spill,
    /// The outcome is dropped and counted as `undelivered` in the metrics.
    Drop,
}

/// Something that wants to know how roots end. Implemented for closures.
pub trait Handler: Send + Sync + 'static {
    /// Called once for each tracked root, by the thread that ended it: the one whose ack was the last,
    /// the one that failed it, or the one that drives expiry. A panic is caught and counted.
    fn outcome(&self, outcome: &Outcome);
}

impl<F: Fn(&Outcome) + Send + Sync + 'static> Handler for F {
    fn outcome(&self, outcome: &Outcome) {
        self(outcome);
    }
}

/// The receiving end of a tracker's channel.
#[derive(Debug, Clone)]
pub struct Outcomes {
    bounded: Receiver<Outcome>,
    spill: Receiver<Outcome>,
}

impl Outcomes {
    /// The next outcome, if one is there. Never waits.
    #[must_use]
    pub fn try_next(&self) -> Option<Outcome> {
        self.bounded
            .try_recv()
            .or_else(|_| self.spill.try_recv())
            .ok()
    }

    /// The next outcome; waits up to `limit` for it. `None` if none came, or the tracker has been dropped.
    #[must_use]
    pub fn next_within(&self, limit: Duration) -> Option<Outcome> {
        if let Some(outcome) = self.try_next() {
            return Some(outcome);
        }
        crossbeam_channel::select! {
            recv(self.bounded) -> outcome => outcome.ok().or_else(|| self.spill.try_recv().ok()),
            recv(self.spill) -> outcome => outcome.ok().or_else(|| self.bounded.try_recv().ok()),
            default(limit) => None,
        }
    }

    /// Appends up to `most` outcomes that are there to `into`; returns how many. Never waits.
    pub fn drain_into(&self, into: &mut Vec<Outcome>, most: usize) -> usize {
        let before = into.len();
        into.extend(self.bounded.try_iter().take(most));
        let room = most - (into.len() - before);
        into.extend(self.spill.try_iter().take(room));
        into.len() - before
    }

    /// How many outcomes wait here.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bounded.len() + self.spill.len()
    }

    /// Whether none waits here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Iterator for Outcomes {
    type Item = Outcome;

    /// The next outcome; waits for it. `None` when the tracker has been dropped (all shares of it, not only shut down) and
    /// everything was received. After a shutdown, [`try_next`](Outcomes::try_next) until `None` gets the rest.
    fn next(&mut self) -> Option<Outcome> {
        if let Some(outcome) = self.try_next() {
            return Some(outcome);
        }
        // Either end closes only when the tracker is dropped, both at once.
        crossbeam_channel::select! {
            recv(self.bounded) -> outcome => outcome.ok().or_else(|| self.spill.try_recv().ok()),
            recv(self.spill) -> outcome => outcome.ok().or_else(|| self.bounded.try_recv().ok()),
        }
    }
}

/// How often who waits for room looks whether the tracker is being shut down.
const LOOK_UP: Duration = Duration::from_millis(20);

/// Where outcomes go.
pub(crate) enum Target {
    Nowhere,
    Handler(Box<dyn Handler>),
    Channel {
        bounded: Sender<Outcome>,
        spill: Sender<Outcome>,
        when_full: WhenFull,
    },
}

impl Target {
    pub(crate) fn channel(length: usize, when_full: WhenFull) -> (Target, Outcomes) {
        let (bounded, from_bounded) = crossbeam_channel::bounded(length);
        let (spill, from_spill) = crossbeam_channel::unbounded();
        (
            Target::Channel {
                bounded,
                spill,
                when_full,
            },
            Outcomes {
                bounded: from_bounded,
                spill: from_spill,
            },
        )
    }
}

pub(crate) struct Deliver {
    pub(crate) target: Target,
    pub(crate) panics: AtomicU64,
    pub(crate) spilled: AtomicU64,
    pub(crate) undelivered: AtomicU64,
    /// Nobody waits for room any more.
    closing: AtomicBool,
}

impl Deliver {
    pub(crate) fn new(target: Target) -> Self {
        Deliver {
            target,
            panics: AtomicU64::new(0),
            spilled: AtomicU64::new(0),
            undelivered: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }

    /// The tracker is being shut down, perhaps by the very thread that reads the channel: from here on, and for those
    /// that wait already, what has no room spills.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Tells the owner. Never panics.
    #[inline(always)]
    pub(crate) fn tell(&self, outcome: &Outcome) {
        match &self.target {
            Target::Nowhere => {}
            Target::Handler(handler) => {
                if caught(|| handler.outcome(outcome)) {
                    self.panics.fetch_add(1, Ordering::Relaxed);
                }
            }
            Target::Channel {
                bounded,
                spill,
                when_full,
            } => self.send(outcome, bounded, spill, *when_full),
        }
    }

    #[inline(never)] // keeps `tell` short
    fn send(
        &self,
        outcome: &Outcome,
        bounded: &Sender<Outcome>,
        spill: &Sender<Outcome>,
        when_full: WhenFull,
    ) {
        let spilled = |outcome| {
            self.spilled.fetch_add(1, Ordering::Relaxed);
            spill.send(outcome).is_ok()
        };
        let sent = match when_full {
            WhenFull::Wait => loop {
                match bounded.send_timeout(*outcome, LOOK_UP) {
                    Ok(()) => break true,
                    Err(SendTimeoutError::Timeout(outcome)) => {
                        if self.closing.load(Ordering::Acquire) {
                            break spilled(outcome);
                        }
                    }
                    Err(SendTimeoutError::Disconnected(_)) => break false,
                }
            },
            WhenFull::Drop => bounded.try_send(*outcome).is_ok(),
            WhenFull::Spill => match bounded.try_send(*outcome) {
                Ok(()) => true,
                Err(TrySendError::Full(outcome)) => spilled(outcome),
                Err(TrySendError::Disconnected(_)) => false,
            },
        };
        if !sent {
            self.undelivered.fetch_add(1, Ordering::Relaxed);
        }
    }
}
