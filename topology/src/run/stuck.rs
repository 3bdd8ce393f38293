//! Why a topology did not come to rest in time.

use crate::metrics::ComponentMetrics;
use std::fmt;
use std::time::Duration;

/// A topology has not come to rest in time.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stuck {
    /// The components that are not at rest.
    pub components: Vec<StuckComponent>,
    /// Number of tuples that were sent and have not been executed. (Bolts have executed the tuples
    /// that they hold.)
    pub under_way: u64,
}

/// A component that is not at rest. For [`Topology::wait`](crate::Topology::wait) a spout that is
/// not done is one of them, even with nothing pending.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StuckComponent {
    /// What it has been doing: see its `pending`, `held`, `queued` and `overflow`.
    pub metrics: ComponentMetrics,
    /// Whether the component is a spout that is not done, and the call waits for that.
    pub is_awaited: bool,
    /// How long one of the component's tasks has been in a call of users' code: a spout that
    /// blocks, for example.
    pub busy: Duration,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let under_way = self.under_way;
        write!(f, "the topology has not come to rest in time: {under_way} tuples are under way;")?;
        for component in &self.components {
            let metrics = &component.metrics;
            write!(f, " {:?} (", metrics.name)?;
            let figures = [
                (metrics.pending, "pending"),
                (metrics.held, "held"),
                (metrics.queued as u64, "batches queued"),
                (metrics.overflow, "batches without room"),
            ];
            if component.is_awaited {
                f.write_str("not done, ")?;
            }
            for (figure, what) in figures.into_iter().filter(|(figure, _)| *figure > 0) {
                write!(f, "{figure} {what}, ")?;
            }
            if component.busy.is_zero() {
                f.write_str("not in its own code)")?;
            } else {
                write!(f, "in its own code for {:?})", component.busy)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Stuck {}
