//! What a run shows of itself while it goes on, on standard error: rows that are redrawn on a
//! terminal, a line a second elsewhere.

use crate::latency::{human, Percentiles};
use crate::report::thousands;
use crate::usage::resident;
use crate::watch;
use expiry::{Metrics, StoreMetrics};
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often a reading is taken, and a terminal redrawn.
const REDRAW: Duration = Duration::from_millis(250);
/// How often a line is printed elsewhere.
const LINE: Duration = Duration::from_secs(1);
/// The length of the bar that shows how far the run is.
const LENGTH: u64 = 1000;

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

/// A run as it is shown. The rows are cleared when it is dropped.
pub struct Live {
    scenario: &'static str,
    /// The last rows of the terminal, if there is one.
    rows: Option<ProgressBar>,
    /// The last position of the run, if it is known.
    length: Option<u64>,
    began: Instant,
    read: Instant,
    /// When something was shown last, and the operations by then.
    shown: (Instant, u64),
}

impl Live {
    /// Begins. `length` is the last position, if that is known.
    pub fn new(scenario: &'static str, length: Option<u64>) -> Self {
        let now = Instant::now();
        let bar = length.map_or("", |_| " {wide_bar:.cyan}");
        let style = ProgressStyle::with_template(&format!("{{prefix:.bold}}{bar}\n{{msg}}"));
        // The template is a constant, which the library accepts.
        let style = style.expect("a valid template");
        let rows = std::io::stderr().is_terminal();
        let rows = rows.then(|| ProgressBar::new(LENGTH).with_style(style));
        Live { scenario, rows, length, began: now, read: now, shown: (now, 0) }
    }

    /// How long to wait before the next [`show`](Self::show).
    pub fn pause(&self) -> Duration {
        REDRAW.saturating_sub(self.read.elapsed())
    }

    /// Takes a reading, if it is time to, and shows it.
    #[allow(clippy::cast_precision_loss)] // counts and positions below 2^53
    pub fn show(&mut self, position: u64, gauge: impl FnOnce() -> Gauge) {
        if self.read.elapsed() < REDRAW {
            return;
        }
        self.read = Instant::now();
        let (at, gauge, since) = (self.began.elapsed(), gauge(), self.shown.0.elapsed());
        watch::moved(position.rotate_left(32) ^ gauge.done);
        if self.rows.is_none() && since < LINE {
            return;
        }
        let per_s = gauge.done.saturating_sub(self.shown.1) as f64 / since.as_secs_f64();
        self.shown = (self.read, gauge.done);
        let Some(rows) = &self.rows else {
            let per_s = thousands(per_s);
            return eprintln!("{:>6.1} s  {per_s}/s  {}", at.as_secs_f64(), gauge.text);
        };
        if let Some(length) = self.length {
            rows.set_position(position.min(length).saturating_mul(LENGTH) / length.max(1));
        }
        rows.set_prefix(format!("{} {:.1} s", self.scenario, at.as_secs_f64()));
        rows.set_message(text(&gauge, per_s));
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(rows) = &self.rows {
            rows.finish_and_clear();
        }
    }
}

/// The rows: whether all checks hold so far, figures, and the scenario's own line.
fn text(gauge: &Gauge, per_s: f64) -> String {
    let checks = match gauge.violations {
        0 => "PASSED so far".into(),
        n => format!("violations so far: {n}"),
    };
    let latency = gauge.latency.as_ref().map(|latency| {
        let [p50, p99, p99_9] = [latency.p50, latency.p99, latency.p99_9].map(human);
        format!("p50 {p50}  p99 {p99}  p99.9 {p99_9}")
    });
    let some = |count: u64| (count > 0).then(|| HumanCount(count).to_string());
    let rows = [
        ("checks", Some(checks)),
        ("throughput", Some(format!("{}/s", thousands(per_s)))),
        ("latency", latency),
        ("live", some(gauge.live)),
        ("expired", some(gauge.expired)),
        ("memory", Some(HumanBytes(resident()).to_string())),
    ];
    let rows = rows.into_iter().filter_map(|(name, says)| Some(format!("{name:<12}{}\n", says?)));
    rows.collect::<String>() + &gauge.text
}
