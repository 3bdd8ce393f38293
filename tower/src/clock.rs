//! tokio's clock, paused in tests.

use expiry::{Clock, Timeouts};
use std::cell::Cell;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{timeout, Instant};

/// The most steps of one poll.
const BUDGET: usize = 4096;

thread_local!(
    /// Whether this thread reads the clock because it drives timeouts.
    static DRIVING: Cell<bool> = const { Cell::new(false) }
);

/// The clock of a tokio runtime as a [`Clock`]. It follows `tokio::time::pause` and `advance`, so
/// that tests with timeouts of an hour take no time.
///
/// It is for tests, as each reading enters the runtime, and for timeouts without a reaper, as that
/// sleeps by the machine's time: [`drive`](Self::drive) them. A thread outside of the runtime reads
/// the runtime's clock, too.
///
/// # Examples
///
/// As in a `#[tokio::test(start_paused = true)]`:
///
/// ```
/// use expiry::Timeouts;
/// use expiry_tower::TokioClock;
/// use std::{sync::Arc, time::Duration};
///
/// # let mut builder = tokio::runtime::Builder::new_current_thread();
/// # let runtime = builder.enable_time().start_paused(true).build()?;
/// # runtime.block_on(async {
/// let clock = TokioClock::new();
/// let timeouts = Arc::new(Timeouts::builder().clock(clock.clone()).build_manual()?);
/// tokio::spawn(clock.drive(timeouts.clone()));
///
/// let began = tokio::time::Instant::now();
/// timeouts.sleep(Duration::from_secs(3600)).await?; // in no time
/// assert!(began.elapsed() >= Duration::from_secs(3600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TokioClock {
    runtime: Handle,
    origin: Instant,
    /// Notified of each reading that is not a driver's: a deadline may follow it.
    read: Arc<Notify>,
}

impl TokioClock {
    /// The clock of the current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime.
    #[must_use]
    pub fn new() -> Self {
        let runtime = Handle::current();
        TokioClock { runtime, origin: Instant::now(), read: Arc::default() }
    }

    /// Wakes what is due of timeouts that have this clock, and sleeps by tokio's clock until the
    /// next deadline. It never ends: spawn it in the clock's runtime, which drops it with its other
    /// tasks.
    ///
    /// A task that sets a nearer deadline has read this clock for that, which wakes the driver. The
    /// driver then looks after the task's turn, and before tokio moves a paused clock. That holds
    /// in a runtime of one thread, as one whose clock is paused is. A deadline that another thread
    /// sets meanwhile may be seen only when the driver wakes next.
    ///
    /// # Panics
    ///
    /// In a runtime without a time driver.
    pub async fn drive(self, timeouts: impl Deref<Target = Timeouts>) {
        loop {
            DRIVING.set(true);
            let polled = timeouts.poll(BUDGET);
            DRIVING.set(false);
            match polled.next {
                _ if polled.more => tokio::task::yield_now().await,
                // Time is up, or a task has read the clock: both are a reason to look again.
                Some(next) => drop(timeout(next, self.read.notified()).await),
                // Without a timer of tokio's, by which a paused clock would jump.
                None => self.read.notified().await,
            }
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> u64 {
        if !DRIVING.get() {
            self.read.notify_one();
        }
        let _runtime = self.runtime.enter();
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for TokioClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioClock").field("origin", &self.origin).finish_non_exhaustive()
    }
}
