//! The view on a terminal: some rows below what was printed before, which stays.

use super::{Gauge, Sample};
use crate::latency::human;
use crate::report::thousands;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{LineGauge, Paragraph, Sparkline, Wrap};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};
use std::io::{self, Stderr};
use std::time::Duration;

/// Rows of it.
const ROWS: u16 = 10;
/// Columns of what stands before a row, and of its figures.
const NAME: u16 = 12;
const FIGURES: u16 = 46;

/// A terminal with the view in its last rows.
pub struct View {
    terminal: Terminal<CrosstermBackend<Stderr>>,
}

impl View {
    /// Takes the rows.
    ///
    /// # Errors
    ///
    /// If the terminal does not say where its cursor is.
    pub fn open() -> io::Result<Self> {
        let terminal = Terminal::with_options(
            CrosstermBackend::new(io::stderr()),
            TerminalOptions {
                viewport: Viewport::Inline(ROWS),
            },
        )?;
        Ok(View { terminal })
    }

    /// Draws it.
    pub fn draw(
        &mut self,
        scenario: &str,
        (at, share): (Duration, Option<f64>),
        gauge: &Gauge,
        samples: &[Sample],
    ) -> io::Result<()> {
        let show = Show {
            scenario,
            at,
            share,
            gauge,
            samples,
        };
        self.terminal.draw(|frame| show.draw(frame)).map(drop)
    }

    /// Gives the rows back.
    pub fn close(mut self) {
        let _ = self.terminal.clear();
        let _ = self.terminal.backend_mut().flush();
    }
}

/// What is drawn.
struct Show<'a> {
    scenario: &'a str,
    at: Duration,
    share: Option<f64>,
    gauge: &'a Gauge,
    samples: &'a [Sample],
}

/// A row: its name, its figures, and what it was like over time.
type Row<'a> = (
    &'static str,
    String,
    Option<Box<dyn Fn(&Sample) -> f64 + 'a>>,
);

impl Show<'_> {
    fn draw(&self, frame: &mut Frame<'_>) {
        let rows = self.rows();
        let heights = [Constraint::Length(1)]
            .into_iter()
            .chain(rows.iter().map(|_| Constraint::Length(1)))
            .chain([Constraint::Min(1)]);
        let areas = Layout::vertical(heights).split(frame.area());
        self.head(frame, areas[0]);
        for (row, area) in rows.iter().zip(&areas[1..]) {
            self.row(frame, *area, row);
        }
        let last = areas[areas.len() - 1];
        frame.render_widget(
            Paragraph::new(self.gauge.text.as_str().dim()).wrap(Wrap { trim: true }),
            last,
        );
    }

    /// Scenario, time, how far it is, and whether all checks hold so far.
    fn head(&self, frame: &mut Frame<'_>, area: Rect) {
        let verdict = match self.gauge.violations {
            0 => " all checks hold ".black().on_green(),
            1 => " 1 violation ".white().on_red().bold(),
            n => format!(" {n} violations ").white().on_red().bold(),
        };
        let title = format!("{} {:.1} s ", self.scenario, self.at.as_secs_f64());
        let widths = [
            Constraint::Length(width(&title)),
            Constraint::Min(8),
            Constraint::Length(width(&verdict.content) + 1),
        ];
        let [left, middle, right] = Layout::horizontal(widths).areas(area);
        frame.render_widget(Line::from(title.bold()), left);
        if let Some(share) = self.share {
            let bar = LineGauge::default()
                .filled_style(Style::default().fg(Color::Cyan))
                .ratio(share.clamp(0.0, 1.0));
            frame.render_widget(bar, middle);
        }
        frame.render_widget(Line::from(vec![Span::raw(" "), verdict]), right);
    }

    fn rows(&self) -> Vec<Row<'_>> {
        let Some(now) = self.samples.last() else {
            return Vec::new();
        };
        let gauge = self.gauge;
        let mut rows: Vec<Row<'_>> = vec![(
            "throughput",
            format!("{}/s", thousands(now.per_s)),
            Some(Box::new(|sample| sample.per_s)),
        )];
        if let Some(latency) = &gauge.latency {
            rows.push((
                "latency",
                format!(
                    "p50 {}  p99 {}  p99.9 {}",
                    human(latency.p50),
                    human(latency.p99),
                    human(latency.p99_9)
                ),
                Some(Box::new(|sample| sample.latency_p99 as f64)),
            ));
        }
        if self.samples.iter().any(|sample| sample.live > 0) {
            rows.push((
                "live",
                thousands(gauge.live as f64),
                Some(Box::new(|sample| sample.live as f64)),
            ));
        }
        if gauge.expired > 0 {
            rows.push((
                "expired",
                format!("{}/s", thousands(now.expired_per_s)),
                Some(Box::new(|sample| sample.expired_per_s)),
            ));
        }
        if now.lateness_p99 > 0 {
            rows.push((
                "lateness",
                format!(
                    "p50 {}  p99 {}",
                    human(now.lateness_p50),
                    human(now.lateness_p99)
                ),
                Some(Box::new(|sample| sample.lateness_p99 as f64)),
            ));
        }
        if let Some((least, most)) = gauge.balance() {
            rows.push((
                "shards",
                format!(
                    "{} shards, {:.0} to {:.0} % of their mean",
                    gauge.shards.len(),
                    least * 100.0,
                    most * 100.0
                ),
                None,
            ));
        }
        if !gauge.reaper.is_zero() {
            rows.push((
                "reaper",
                format!("{:.1} % of a core", now.reaper * 100.0),
                Some(Box::new(|sample| sample.reaper)),
            ));
        }
        rows.push((
            "memory",
            format!("{:.1} MiB", now.resident as f64 / (1 << 20) as f64),
            Some(Box::new(|sample| sample.resident as f64)),
        ));
        rows
    }

    fn row(&self, frame: &mut Frame<'_>, area: Rect, (name, figures, over_time): &Row<'_>) {
        let widths = [
            Constraint::Length(NAME),
            Constraint::Max(FIGURES),
            Constraint::Min(0),
        ];
        let [left, middle, right] = Layout::horizontal(widths).areas(area);
        frame.render_widget(Line::from((*name).cyan()), left);
        frame.render_widget(Line::from(figures.as_str()), middle);
        if let Some(over_time) = over_time {
            let values: Vec<f64> = self.samples.iter().map(over_time).collect();
            let bars = bars(&values, usize::from(right.width));
            frame.render_widget(
                Sparkline::default()
                    .data(&bars)
                    .max(BAR)
                    .style(Style::default().fg(Color::Cyan)),
                right,
            );
        }
    }
}

/// The height of the highest bar.
const BAR: u64 = 1000;

/// All values in so many bars, as shares of the largest.
fn bars(values: &[f64], width: usize) -> Vec<u64> {
    let most = values.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 || width == 0 {
        return Vec::new();
    }
    let columns = width.min(values.len());
    let column = |at: usize| {
        let (from, to) = (
            at * values.len() / columns,
            (at + 1) * values.len() / columns,
        );
        let part = &values[from..to];
        part.iter().sum::<f64>() / part.len() as f64
    };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to 1000
    (0..columns)
        .map(|at| (column(at) / most * BAR as f64) as u64)
        .collect()
}

fn width(text: &str) -> u16 {
    u16::try_from(text.chars().count()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;
    use ratatui::backend::TestBackend;

    fn drawn(gauge: &Gauge, samples: &[Sample], columns: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(columns, ROWS)).unwrap();
        let show = Show {
            scenario: "ack",
            at: Duration::from_secs(12),
            share: Some(0.5),
            gauge,
            samples,
        };
        terminal.draw(|frame| show.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

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
        let sample = Sample {
            per_s: 3.2e6,
            live: 1,
            lateness_p99: 1 << 20,
            reaper: 0.032,
            ..Sample::default()
        };
        let text = drawn(&gauge, &[sample], 100);
        for part in [
            "ack 12.0 s",
            "all checks hold",
            "3.20 M/s",
            "p99 300 ns",
            "1.20 M",
            "90 to 110 %",
            "3.2 % of a core",
            "7 failed",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let text = drawn(&Gauge::default(), &[Sample::default()], 100);
        for part in ["latency", "shards", "reaper", "expired", "live"] {
            assert!(!text.contains(part), "{part} is in\n{text}");
        }
    }

    #[test]
    fn violations_are_in_it_and_a_narrow_terminal_is_no_matter() {
        let gauge = Gauge {
            violations: 3,
            ..Gauge::default()
        };
        assert!(drawn(&gauge, &[Sample::default()], 100).contains("3 violations"));
        for columns in [1, 10, 30] {
            drawn(&gauge, &[Sample::default(); 200], columns);
        }
    }

    #[test]
    fn bars_are_shares_of_the_largest() {
        assert_eq!(bars(&[1.0, 2.0, 4.0], 3), [250, 500, 1000]);
        assert_eq!(bars(&[1.0, 3.0, 4.0, 4.0], 2), [500, 1000]);
        assert!(bars(&[0.0], 5).is_empty() && bars(&[1.0], 0).is_empty());
    }
}
