//! What other threads can ask of a running topology: its metrics, and whether it is at rest.

use super::{Stuck, StuckComponent};
use crate::builder::Queued;
use crate::component::Registry;
use crate::inbox::Bell;
use crate::metrics::{ComponentMetrics, Stats};
use crate::task::Shared;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// What one task shows to other threads.
pub(super) struct Window {
    pub(super) component: usize,
    pub(super) stats: Arc<Stats>,
    /// The number of batches in the task's queue.
    pub(super) queued: Queued,
}

/// The outside of a topology's tasks.
pub(super) struct Board {
    pub(super) windows: Vec<Window>,
    /// For each component those that it listens to, and its counters.
    pub(super) components: Vec<(Vec<usize>, Arc<Registry>)>,
    pub(super) bells: Vec<Arc<Bell>>,
    pub(super) shared: Arc<Shared>,
}

impl Board {
    /// Wakes all threads, however they wait.
    pub(super) fn wake(&self) {
        self.bells.iter().for_each(|bell| bell.wake());
    }

    /// The components' names, in the order in which they were declared.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.shared.names.iter().map(|name| &**name)
    }

    pub(super) fn metrics(&self) -> Vec<ComponentMetrics> {
        let new = |(name, (inputs, registry)): (&str, &(Vec<usize>, Arc<Registry>))| {
            let sources = inputs.iter().map(|&from| self.shared.names[from].to_string());
            let mut metrics = ComponentMetrics::new(name, sources);
            metrics.own = registry.all();
            metrics
        };
        let mut metrics: Vec<_> = self.names().zip(&self.components).map(new).collect();
        for window in &self.windows {
            metrics[window.component].add(&window.stats, (window.queued)());
        }
        metrics
    }

    pub(super) fn tracker_metrics(&self) -> Option<expiry::Metrics> {
        self.shared.tracker.as_ref().map(|tracker| tracker.metrics())
    }

    /// Opens or closes the gate of the spouts.
    pub(super) fn activate(&self, active: bool) {
        self.shared.gate.set(active);
        self.wake();
    }

    /// Whether bolts have executed every message that was sent, and no spout has one pending.
    pub(super) fn is_quiet(&self) -> bool {
        let pending = || self.windows.iter().any(|window| window.stats.pending.get() != 0);
        !pending() && self.under_way() == 0 && !pending()
    }

    /// Number of tuples that were sent, and that no bolt has executed.
    fn under_way(&self) -> u64 {
        let stats = || self.windows.iter().map(|window| &window.stats);
        // The executed tuples are counted first. What their execution has sent is then in the other
        // sum, which so is never less.
        let executed: u64 = stats().map(|stats| stats.executed()).sum();
        let sent: u64 = stats().map(|stats| stats.transferred.get()).sum();
        sent - executed
    }

    /// Whether no spout is asked for messages, nor is about to be.
    pub(super) fn is_silent(&self) -> bool {
        !self.windows.iter().any(|window| window.stats.visitor.is_inside())
    }

    /// Whether all spouts have said that they will emit no more.
    pub(super) fn is_done(&self) -> bool {
        let mut stats = self.windows.iter().map(|window| &window.stats);
        stats.all(|stats| !stats.is_spout || stats.is_done.load(Ordering::Acquire))
    }

    /// The components that keep a topology from coming to rest. With `is_done_asked`, a spout that
    /// is not done is one of them.
    pub(super) fn stuck(&self, is_done_asked: bool) -> Stuck {
        let now = self.shared.clock.now();
        let mut components = Vec::new();
        for (at, metrics) in self.metrics().into_iter().enumerate() {
            let tasks = || {
                let tasks = self.windows.iter().filter(move |window| window.component == at);
                tasks.map(|window| &window.stats)
            };
            let since =
                tasks().map(|stats| stats.busy_since.get()).filter(|&since| since != 0).min();
            let busy = Duration::from_nanos(since.map_or(0, |since| now.saturating_sub(since)));
            let is_awaited = is_done_asked
                && tasks().any(|stats| stats.is_spout && !stats.is_done.load(Ordering::Acquire));
            let ComponentMetrics { pending, held, queued, overflow, .. } = metrics;
            let has_some = pending + held + overflow > 0 || queued > 0;
            if is_awaited || has_some || since.is_some() {
                components.push(StuckComponent { metrics, is_awaited, busy });
            }
        }
        Stuck { components, under_way: self.under_way() }
    }
}
