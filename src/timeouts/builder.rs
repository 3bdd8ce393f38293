//! Settings of [`Timeouts`].

use super::waiters::Waiters;
use super::Timeouts;
use crate::error::BuildError;
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use std::sync::Arc;

/// Settings of [`Timeouts`].
///
/// ```
/// use expiry::timeouts::TimerError;
/// use expiry::{MonotonicClock, Timeouts};
/// use std::time::Duration;
///
/// let timeouts = Timeouts::builder()
///     .interval(Duration::from_micros(100))
///     .capacity(100_000)            // beyond it: `TimerError::Full`
///     .shards(4)
///     .reaper_budget(1024)
///     .clock(MonotonicClock::new()) // exact
///     .build()?;                    // starts the reaper
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// timeouts.sleep(Duration::from_micros(300)).await?;
/// # Ok::<(), TimerError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct TimeoutsBuilder {
    setup: Setup,
}

builder! { TimeoutsBuilder<> }

impl Default for TimeoutsBuilder {
    fn default() -> Self {
        TimeoutsBuilder { setup: Setup { asymmetric: true, ..Setup::by_milliseconds(1) } }
    }
}

impl TimeoutsBuilder {
    setters! {
        "futures",
        /// 1 ms unless set.
        interval,
        /// The most futures that may wait at once; beyond it a new one is refused with
        /// [`TimerError::Full`](super::TimerError::Full). Exact; unbounded unless set.
        capacity,
        /// As on a system without a fence of two sides.
        #[cfg(any(test, expiry_loom))]
        #[doc(hidden)]
        without_fence() sets setup.asymmetric = false;
    }

    /// Builds, and starts the reaper: a thread that sleeps until something is due, and wakes the
    /// tasks that wait for it.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which setting is out of range, or what the system refused.
    pub fn build(self) -> Result<Timeouts, BuildError> {
        self.built(true)
    }

    /// Builds without a thread: only [`Timeouts::poll`] wakes tasks. A future that waits stays
    /// pending until then, even if its time is up. Otherwise as [`build`](Self::build).
    pub fn build_manual(self) -> Result<Timeouts, BuildError> {
        self.built(false)
    }

    fn built(self, reaper: bool) -> Result<Timeouts, BuildError> {
        let (config, _) = self.setup.config(&[])?;
        let waiters = Arc::new(Waiters::new(config)?);
        let owner = Owner::new(&waiters, |waiters| &waiters.engine, &self.setup, reaper)?;
        Ok(Timeouts { waiters, owner })
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/timeouts_builder.rs"]
mod tests;
