//! The view on a terminal: some rows below what was printed before, which stays.

use super::{Gauge, Sample};
use crate::latency::human;
use crate::report::thousands;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// The length of the bar that shows how far the run is.
const LENGTH: u64 = 1000;
/// Columns for the course of a figure over time.
const COLUMNS: usize = 30;
/// The heights of a column.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last rows of the terminal.
pub struct View {
    scenario: &'static str,
    rows: ProgressBar,
}

impl View {
    /// Takes the rows. A run whose last position is unknown has no bar.
    pub fn open(scenario: &'static str, has_length: bool) -> Self {
        let bar = if has_length { " {wide_bar:.cyan}" } else { "" };
        let style = ProgressStyle::with_template(&format!("{{prefix:.bold}}{bar}\n{{msg}}"));
        // The template is a constant, which the library accepts.
        let style = style.expect("a valid template");
        View { scenario, rows: ProgressBar::new(LENGTH).with_style(style) }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to LENGTH
    pub fn draw(&self, at: Duration, share: Option<f64>, gauge: &Gauge, samples: &[Sample]) {
        let share = share.unwrap_or(0.0).clamp(0.0, 1.0);
        self.rows.set_position((share * LENGTH as f64) as u64);
        self.rows.set_prefix(format!("{} {:.1} s", self.scenario, at.as_secs_f64()));
        self.rows.set_message(text(gauge, samples));
    }

    /// Gives the rows back.
    pub fn close(self) {
        self.rows.finish_and_clear();
    }
}

/// The text of the view: whether all checks hold so far, a row for each figure with its course over
/// time, and the scenario's own line.
#[allow(clippy::cast_precision_loss)] // for the eye
fn text(gauge: &Gauge, samples: &[Sample]) -> String {
    let none = Sample::default();
    let now = samples.last().unwrap_or(&none);
    let checks = match gauge.violations {
        0 => "PASSED so far".into(),
        1 => "1 violation".into(),
        n => format!("{n} violations"),
    };
    let latency = gauge.latency.as_ref().map(|latency| {
        let [p50, p99, p99_9] = [latency.p50, latency.p99, latency.p99_9].map(human);
        format!("p50 {p50}  p99 {p99}  p99.9 {p99_9}")
    });
    let has_lived = samples.iter().any(|sample| sample.live > 0);
    let lateness = (now.lateness_p99 > 0)
        .then(|| format!("p50 {}  p99 {}", human(now.lateness_p50), human(now.lateness_p99)));
    let shards = gauge.balance().map(|(least, most)| {
        let (shards, least, most) = (gauge.shards.len(), least * 100.0, most * 100.0);
        format!("{shards} shards, {least:.0} to {most:.0} % of their mean")
    });
    let row = |name: &str, figures: Option<String>, of: Option<fn(&Sample) -> f64>| {
        let bars = of.map_or(String::new(), |of| bars(samples.iter().map(of).collect()));
        Some(format!("{name:<12}{:<46}{bars}", figures?))
    };
    let rows = [
        row("checks", Some(checks), None),
        row("throughput", Some(format!("{}/s", thousands(now.per_s))), Some(|s| s.per_s)),
        row("latency", latency, Some(|s| s.latency_p99 as f64)),
        row("live", has_lived.then(|| thousands(gauge.live as f64)), Some(|s| s.live as f64)),
        row(
            "expired",
            (gauge.expired > 0).then(|| format!("{}/s", thousands(now.expired_per_s))),
            Some(|s| s.expired_per_s),
        ),
        row("lateness", lateness, Some(|s| s.lateness_p99 as f64)),
        row(
            "reaper",
            (!gauge.reaper.is_zero()).then(|| format!("{:.1} % of a core", now.reaper * 100.0)),
            Some(|s| s.reaper),
        ),
        row(
            "memory",
            Some(format!("{:.1} MiB", now.resident as f64 / f64::from(1 << 20))),
            Some(|s| s.resident as f64),
        ),
        row("shards", shards, None),
        Some(gauge.text.clone()),
    ];
    rows.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// All values in so many columns at most, each as high as its share of the largest.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below the number of heights
fn bars(values: Vec<f64>) -> String {
    let parts = values.chunks(values.len().div_ceil(COLUMNS).max(1));
    let means = parts.map(|part| part.iter().sum::<f64>() / part.len() as f64);
    let most = means.clone().fold(f64::MIN_POSITIVE, f64::max);
    let highest = (HEIGHTS.len() - 1) as f64;
    means.map(|mean| HEIGHTS[(mean / most * highest).max(0.0) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    #[test]
    fn it_shows_what_there_is_and_nothing_else() {
        let mut latency = Latency::new();
        latency.record_nanos(300);
        let gauge = Gauge {
            live: 1_200_000,
            expired: 5,
            shards: vec![90, 110],
            reaper: Duration::from_millis(3),
            latency: Some(latency.percentiles()),
            text: "7 failed".into(),
            ..Gauge::default()
        };
        let (per_s, lateness_p99, reaper) = (3.2e6, 1 << 20, 0.032);
        let sample = Sample { per_s, live: 1, lateness_p99, reaper, ..Sample::default() };
        let wrong = Gauge { violations: 3, ..Gauge::default() };
        let all = "PASSED so far|3.20 M/s|p99 300 ns|1.20 M|90 to 110 %|3.2 % of a core|7 failed";
        for (gauge, sample, has, has_not) in [
            (gauge, sample, all, "violation"),
            (Gauge::default(), Sample::default(), "checks", "latency|shards|reaper|expired|live"),
            (wrong, Sample::default(), "3 violations", "PASSED"),
        ] {
            let shown = text(&gauge, &[sample]);
            assert!(has.split('|').all(|part| shown.contains(part)), "{has}\n{shown}");
            assert!(!has_not.split('|').any(|part| shown.contains(part)), "{has_not}\n{shown}");
        }
    }

    #[test]
    fn bars_are_shares_of_the_largest() {
        assert_eq!(bars(vec![0.0, 2.0, 4.0]), "▁▄█");
        assert_eq!(bars((0..300).map(f64::from).collect()).chars().count(), 30);
        assert_eq!((bars(vec![]), bars(vec![0.0])), ("".into(), "▁".into()));
    }

    /// Nothing is drawn where there is no terminal, and a run may end at any time.
    #[test]
    fn it_is_drawn_and_closed() {
        for has_length in [true, false] {
            let view = View::open("ack", has_length);
            let (gauge, samples) = (Gauge::default(), [Sample::default(); 200]);
            view.draw(Duration::from_secs(12), Some(2.0), &gauge, &samples);
            assert_eq!(view.rows.prefix(), "ack 12.0 s");
            view.close();
        }
    }
}
