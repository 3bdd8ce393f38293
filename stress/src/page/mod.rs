//! The report as a page: one HTML file with everything in it, nothing fetched, no script.

mod chart;

pub use chart::{Chart, Kind, Unit, COLOURS};

use crate::latency::human;
use crate::live::Sample;
use crate::report::{thousands, Report, Table};
use crate::sentences::sentence;
use humantime::format_duration;
use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

const STYLE: &str = include_str!("style.css");

/// A line's name, and what of a sample it shows.
type Shown = (&'static str, fn(&Sample) -> f64);

/// What a run was like over time: each chart with its unit and its lines.
#[allow(clippy::cast_precision_loss)] // for the eye
const OVER_TIME: [(&str, Unit, &[Shown]); 7] = [
    ("Throughput", Unit::PerSecond, &[("", |s| s.per_s)]),
    ("Entries", Unit::Count, &[("", |s| s.live as f64)]),
    ("Expirations", Unit::PerSecond, &[("", |s| s.expired_per_s)]),
    (
        "Lateness of expirations, upper bounds to a factor of two",
        Unit::Nanos,
        &[("p50", |s| s.lateness_p50 as f64), ("p99", |s| s.lateness_p99 as f64)],
    ),
    (
        "Latency over time",
        Unit::Nanos,
        &[("p50", |s| s.latency_p50 as f64), ("p99", |s| s.latency_p99 as f64)],
    ),
    ("Reaper, share of a core", Unit::Share, &[("", |s| s.reaper)]),
    ("Resident memory", Unit::Bytes, &[("", |s| s.resident as f64)]),
];

impl Report {
    /// The page.
    pub fn page(&self) -> String {
        let title = format!("stress {}", self.scenario);
        let tables =
            [self.checks_table(), self.times(), self.counted(), self.about(), self.options()];
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    header {
                        h1 { (title) }
                        @if self.passed {
                            p.verdict.good { "PASSED" }
                        } @else {
                            p.verdict.bad { "FAILED: " (self.violations_total) " violations" }
                        }
                    }
                    pre.command { code { (self.command) } }
                    section.tiles {
                        @for (figure, of) in self.tiles() { div { strong { (figure) } span { (of) } } }
                    }
                    @if !self.violations.is_empty() {
                        section.violations {
                            h2 { "Violations" }
                            pre { @for text in &self.violations { (text) "\n" } }
                            @let more = self.violations_total - self.violations.len() as u64;
                            @if more > 0 { p { "and " (more) " more" } }
                        }
                    }
                    section.charts {
                        @for chart in self.charts.iter().filter(|chart| !chart.is_empty()) {
                            (figure(chart))
                        }
                    }
                    section.tables {
                        @for table in self.tables.iter().chain(&tables) { (rows(table)) }
                    }
                    @if !self.notes.is_empty() {
                        section {
                            h2 { "Notes" }
                            pre { @for note in &self.notes { (note) "\n" } }
                        }
                    }
                }
            }
        };
        page.into_string()
    }

    /// The figures to be seen first, each with what it is of.
    fn tiles(&self) -> Vec<(String, String)> {
        let operations = self.latency.iter().filter(|(name, _)| !name.contains("lateness"));
        let slowest = operations.max_by_key(|(_, latency)| latency.count);
        let slowest =
            slowest.map(|(name, latency)| (human(latency.p99), format!("p99 of {}", words(name))));
        let resident = self.series.samples().iter().map(|sample| sample.resident).max();
        let resident = resident.map(|resident| (bytes(resident), "resident at most".into()));
        let throughput = (format!("{}/s", thousands(self.ops_per_s)), self.operation.into());
        let tiles = [throughput, (format!("{:.1} s", self.seconds), "under load".into())];
        let last = [
            (self.checks.len().to_string(), "checks".into()),
            (self.seed.to_string(), "seed".into()),
        ];
        tiles.into_iter().chain(slowest).chain(resident).chain(last).collect()
    }

    fn checks_table(&self) -> Table {
        let verdict = |holds| if holds { "holds" } else { "violated" };
        let rows = self.checks.iter();
        let rows = rows.map(|(name, holds)| [sentence(name).into(), verdict(*holds).into()]);
        Table::new("Checks", ["", ""], rows)
    }

    fn about(&self) -> Table {
        let machine = &self.machine;
        let rows = [
            ("processor", machine.processor.clone()),
            ("hardware threads", machine.threads.to_string()),
            ("memory", bytes(machine.memory)),
            ("system", machine.system.clone()),
            ("load before", machine.load.to_string()),
            ("build", machine.build.into()),
        ];
        Table::new("Machine", ["", ""], rows.map(|(name, value)| [name.into(), value]))
    }

    fn options(&self) -> Table {
        let parameters = self.parameters.as_object().into_iter().flatten();
        let rows = parameters.filter_map(|(name, value)| Some([words(name), option(value)?]));
        Table::new("Options", ["", ""], rows)
    }

    /// The charts that every run has: the readings that were taken while it went on, and all times
    /// that were measured.
    pub fn usual_charts(&self) -> Vec<Chart> {
        let samples = self.series.samples();
        let is_there = |(_, of): &Shown| samples.iter().any(|sample| of(sample) > 0.0);
        let over_time = OVER_TIME.iter().filter(|(_, _, lines)| lines.iter().any(is_there));
        let over_time = over_time.map(|(title, unit, lines)| {
            let chart = Chart::new(title, ("time", Unit::Seconds), ("", *unit), Kind::Lines);
            let chart = lines.iter().fold(chart, |chart, (name, of)| {
                chart.with(name, samples.iter().map(|sample| (sample.at, of(sample))))
            });
            let faulty = samples.iter().filter(|sample| sample.faults > 0);
            Chart { marks: faulty.map(|sample| sample.at).collect(), ..chart }
        });
        let share = ("percentile", Unit::Quantile);
        let by_share = Chart::new("Times by percentile", share, ("", Unit::Nanos), Kind::Lines);
        let measured = self.latency.iter().filter(|(_, latency)| latency.count > 0);
        #[allow(clippy::cast_precision_loss)] // for the eye
        let by_share = measured.take(COLOURS).fold(by_share, |chart, (name, latency)| {
            let points = latency.curve.iter().map(|&(share, nanos)| (share, nanos as f64));
            chart.with(&words(name), points)
        });
        over_time.chain([by_share]).collect()
    }
}

fn rows(table: &Table) -> Markup {
    html! {
        @if !table.rows.is_empty() {
            div.wide[table.head.len() > 2] {
                h2 { (table.title) }
                table {
                    @if table.head.iter().any(|name| !name.is_empty()) {
                        tr { @for name in &table.head { th { (name) } } }
                    }
                    @for row in &table.rows {
                        tr {
                            @for (at, cell) in row.iter().enumerate() {
                                td.number[at > 0].good[cell == "holds"].bad[cell == "violated"] {
                                    (cell)
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)] // for the eye
fn bytes(count: u64) -> String {
    Unit::Bytes.label(count as f64)
}

fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            figcaption {
                strong { (chart.title) }
                @for (at, line) in chart.legend() {
                    span { i style=(format!("background: var(--line-{})", at % COLOURS)) {} (line.name) }
                }
                @if !chart.marks.is_empty() { span { i style="background: var(--bad)" {} "fault injected" } }
            }
            (PreEscaped(chart.draw()))
        }
    }
}

/// What an option was, as on the command line. `None` if it was not given, or is none.
fn option(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(values) => {
            let values: Option<Vec<String>> = values.iter().map(option).collect();
            values.filter(|values| !values.is_empty()).map(|values| values.join(", "))
        }
        Value::Object(_) => {
            let time = Duration::deserialize(value).ok()?;
            Some(format_duration(time).to_string())
        }
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

/// A name in the JSON, for people.
pub fn words(name: &str) -> String {
    name.replace('_', " ")
}
