//! What a run shows of itself while it goes on: a line a second on standard error.

use crate::latency::{human, Percentiles};
use crate::report::thousands;
use crate::usage::resident;
use crate::watch;
use expiry::{Metrics, StoreMetrics};
use std::time::{Duration, Instant};

/// How often a reading is taken.
const READING: Duration = Duration::from_millis(250);
/// How often a line is printed.
const LINE: Duration = Duration::from_secs(1);

/// A reading. Counts are those since the run began.
#[derive(Debug, Clone, Default)]
pub struct Gauge {
    /// What the throughput is of.
    pub done: u64,
    pub live: u64,
    pub expired: u64,
    /// Latency of operations since the reading before.
    pub latency: Option<Percentiles>,
    pub violations: u64,
    /// What else there is to say.
    pub text: String,
}

impl Gauge {
    /// What a tracker says.
    pub fn of_tracker(Metrics { total, .. }: &Metrics) -> Self {
        Gauge { live: total.live, expired: total.expired, ..Gauge::default() }
    }

    /// What a keyed store says.
    pub fn of_store(StoreMetrics { total, .. }: &StoreMetrics) -> Self {
        Gauge { live: total.live, expired: total.expired, ..Gauge::default() }
    }
}

/// A run as it is shown.
pub struct Live {
    scenario: &'static str,
    /// The last position of the run, if it is known.
    length: Option<u64>,
    began: Instant,
    read: Instant,
    /// When a line was printed last, and the operations by then.
    shown: (Instant, u64),
}

impl Live {
    /// Begins. `length` is the last position, if that is known.
    pub fn new(scenario: &'static str, length: Option<u64>) -> Self {
        let now = Instant::now();
        Live { scenario, length, began: now, read: now, shown: (now, 0) }
    }

    /// How long to wait before the next [`show`](Self::show).
    pub fn pause(&self) -> Duration {
        READING.saturating_sub(self.read.elapsed())
    }

    /// Takes a reading, if it is time to, and prints a line, if it is time to.
    #[allow(clippy::cast_precision_loss)] // counts and positions below 2^53
    pub fn show(&mut self, position: u64, gauge: impl FnOnce() -> Gauge) {
        if self.read.elapsed() < READING {
            return;
        }
        self.read = Instant::now();
        let (at, gauge, since) = (self.began.elapsed(), gauge(), self.shown.0.elapsed());
        watch::moved(position.rotate_left(32) ^ gauge.done);
        if since < LINE {
            return;
        }
        let per_s = gauge.done.saturating_sub(self.shown.1) as f64 / since.as_secs_f64();
        self.shown = (self.read, gauge.done);
        let (scenario, at) = (self.scenario, at.as_secs_f64());
        let percent = self.length.map(|length| {
            let percent = position.min(length).saturating_mul(100) / length.max(1);
            format!("  {percent} %")
        });
        let percent = percent.unwrap_or_default();
        eprintln!("{scenario} {at:>6.1} s{percent}  {}/s  {}", thousands(per_s), text(&gauge));
    }
}

/// Figures, whether all checks hold so far, and what else the scenario says.
#[allow(clippy::cast_precision_loss)] // counts below 2^53
fn text(gauge: &Gauge) -> String {
    let latency = gauge.latency.as_ref().map(|latency| {
        let [p50, p99, p99_9] = [latency.p50, latency.p99, latency.p99_9].map(human);
        format!("p50 {p50}  p99 {p99}  p99.9 {p99_9}")
    });
    let some =
        |count: u64, what| (count > 0).then(|| format!("{} {what}", thousands(count as f64)));
    let figures = [
        latency,
        some(gauge.live, "live"),
        some(gauge.expired, "expired"),
        some(resident() >> 20, "MiB"),
        Some(format!("{} violations", gauge.violations)),
        Some(gauge.text.clone()),
    ];
    figures.into_iter().flatten().collect::<Vec<_>>().join("  ")
}
