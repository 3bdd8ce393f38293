//! What a run shows of itself while it goes on, on standard error: a view that is redrawn on a
//! terminal, a line per second elsewhere. The run keeps what was shown as a series, for the report.

mod series;
mod view;

pub use series::{Sample, Series};

use crate::latency::Percentiles;
use crate::report::thousands;
use crate::watch;
use expiry::{Lateness, Metrics, StoreMetrics};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use view::View;

/// How often a reading is taken, and a terminal redrawn.
const REDRAW: Duration = Duration::from_millis(250);
/// How often a line is printed elsewhere.
const LINE: Duration = Duration::from_secs(1);

/// A reading. Counts and times are those since the run began.
#[derive(Debug, Clone, Default)]
pub struct Gauge {
    /// What the throughput is of.
    pub done: u64,
    pub live: u64,
    pub expired: u64,
    /// How late expirations were seen.
    pub lateness: Lateness,
    /// Entries of each shard.
    pub shards: Vec<u64>,
    /// How long the reaper has worked.
    pub reaper: Duration,
    /// Latency of operations since the reading before.
    pub latency: Option<Percentiles>,
    pub violations: u64,
    /// Faults that the scenario has injected.
    pub faults: u64,
    /// What else there is to say.
    pub text: String,
}

/// A reading of an engine's metrics. A tracker's and a store's are of two types with these fields.
macro_rules! of {
    ($metrics:expr) => {{
        let metrics = $metrics;
        Gauge {
            live: metrics.total.live,
            expired: metrics.total.expired,
            lateness: metrics.total.lateness,
            shards: metrics.shards.iter().map(|shard| shard.live).collect(),
            reaper: metrics.reaper_busy,
            ..Gauge::default()
        }
    }};
}

impl Gauge {
    /// What a tracker says.
    pub fn of_tracker(metrics: Metrics) -> Self {
        of!(metrics)
    }

    /// What a keyed store says.
    pub fn of_store(metrics: StoreMetrics) -> Self {
        of!(metrics)
    }

    /// The largest shard beside the mean, and the smallest. `None` where there is nothing to
    /// compare.
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    pub fn balance(&self) -> Option<(f64, f64)> {
        let (least, most) = (self.shards.iter().min()?, self.shards.iter().max()?);
        let mean = self.shards.iter().sum::<u64>() as f64 / self.shards.len() as f64;
        (mean > 0.0).then(|| (*least as f64 / mean, *most as f64 / mean))
    }
}

/// A run as it is shown.
pub struct Live {
    view: Option<View>,
    /// The last position of the run, if it is known.
    length: Option<u64>,
    began: Instant,
    read: Instant,
    said: Instant,
    /// Operations when the last line was printed.
    before: u64,
    series: Series,
    /// Nothing is read.
    blind: bool,
}

impl Live {
    /// Begins. `length` is the last position, if that is known.
    pub fn new(scenario: &'static str, length: Option<u64>) -> Self {
        let now = Instant::now();
        let terminal = std::io::stderr().is_terminal();
        Live {
            view: terminal.then(|| View::open(scenario, length.is_some())),
            length,
            began: now,
            read: now,
            said: now,
            before: 0,
            series: Series::default(),
            blind: false,
        }
    }

    /// A view that reads and shows nothing.
    pub fn without_readings(self) -> Self {
        Live { blind: true, ..self }
    }

    /// How long to wait before the next [`show`](Self::show).
    pub fn pause(&self) -> Duration {
        REDRAW.saturating_sub(self.read.elapsed())
    }

    /// Takes a reading, if it is time to, and shows it.
    pub fn show(&mut self, position: u64, gauge: impl FnOnce() -> Gauge) {
        if self.read.elapsed() < REDRAW {
            return;
        }
        self.read = Instant::now();
        if self.blind {
            return watch::moved(position);
        }
        let (at, gauge) = (self.began.elapsed(), gauge());
        watch::moved(position.rotate_left(32) ^ gauge.done);
        self.series.read(at, &gauge);
        let Some(view) = &self.view else {
            self.line(at, gauge.done, &gauge.text);
            return;
        };
        #[allow(clippy::cast_precision_loss)] // positions below 2^53
        let share = self.length.map(|length| position as f64 / length.max(1) as f64);
        view.draw(at, share, &gauge, self.series.samples());
    }

    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    fn line(&mut self, at: Duration, done: u64, text: &str) {
        let since = self.said.elapsed();
        if since < LINE {
            return;
        }
        let rate = done.saturating_sub(self.before) as f64 / since.as_secs_f64();
        self.said = Instant::now();
        self.before = done;
        let rate = thousands(rate);
        eprintln!("{:>6.1} s  {rate}/s  {text}", at.as_secs_f64());
    }

    /// Clears the view, and returns the readings.
    pub fn finish(mut self) -> Series {
        if let Some(view) = self.view.take() {
            view.close();
        }
        self.series
    }
}
