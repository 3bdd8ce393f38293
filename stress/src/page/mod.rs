//! The report as a page: one HTML file with everything in it, nothing fetched, no script.

mod chart;

pub use chart::{Chart, Kind, Unit, COLOURS};

use crate::latency::{human, Percentiles};
use crate::live::Sample;
use crate::report::{thousands, Report, Table};
use crate::sentences::sentence;
use humantime::format_duration;
use indicatif::HumanCount;
use maud::{html, Markup, PreEscaped, DOCTYPE};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

const STYLE: &str = include_str!("style.css");

/// A name, and what is taken for it.
type Column<T, U> = (&'static str, fn(&T) -> U);

impl Report {
    /// The page.
    pub fn page(&self) -> String {
        let title = format!("stress {}", self.scenario);
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
                        (verdict(self.passed, self.violations_total))
                    }
                    pre.command { code { (self.command) } }
                    (self.tiles())
                    (self.violated())
                    section.charts {
                        @for chart in self.charts.iter().filter(|chart| !chart.is_empty()) {
                            (figure(chart))
                        }
                    }
                    section.tables {
                        @for table in &self.tables { (rows(table)) }
                        (self.checks_table())
                        (self.latency_table())
                        (self.numbers())
                        (self.about())
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

    /// The figures to be seen first.
    fn tiles(&self) -> Markup {
        let operations = self.latency.iter().filter(|(name, _)| !name.contains("lateness"));
        let slowest = operations.max_by_key(|(_, latency)| latency.count);
        let resident = self.series.samples().iter().map(|sample| sample.resident).max();
        html! {
            section.tiles {
                (tile(&format!("{}/s", thousands(self.ops_per_s)), self.operation))
                (tile(&format!("{:.1} s", self.seconds), "under load"))
                @if let Some((name, latency)) = slowest {
                    (tile(&human(latency.p99), &format!("p99 of {}", words(name))))
                }
                @if let Some(resident) = resident {
                    (tile(&bytes(resident), "resident at most"))
                }
                (tile(&self.checks.len().to_string(), "checks"))
                (tile(&self.seed.to_string(), "seed"))
            }
        }
    }

    fn violated(&self) -> Markup {
        html! {
            @if !self.violations.is_empty() {
                section.violations {
                    h2 { "Violations" }
                    pre { @for text in &self.violations { (text) "\n" } }
                    @let more = self.violations_total - self.violations.len() as u64;
                    @if more > 0 { p { "and " (more) " more" } }
                }
            }
        }
    }

    fn checks_table(&self) -> Markup {
        html! {
            div {
                h2 { "Checks" }
                table {
                    @for (name, holds) in &self.checks {
                        tr {
                            td { (sentence(name)) }
                            td class=(if *holds { "good" } else { "bad" }) {
                                (if *holds { "holds" } else { "violated" })
                            }
                        }
                    }
                }
            }
        }
    }

    fn latency_table(&self) -> Markup {
        let columns: [Column<Percentiles, u64>; 6] = [
            ("p50", |p| p.p50),
            ("p90", |p| p.p90),
            ("p99", |p| p.p99),
            ("p99.9", |p| p.p99_9),
            ("p99.99", |p| p.p99_99),
            ("max", |p| p.max),
        ];
        html! {
            @if !self.latency.is_empty() {
                div.wide {
                    h2 { "Times" }
                    table {
                        tr {
                            th {}
                            @for (name, _) in &columns { th { (name) } }
                            th { "measured" }
                        }
                        @for (name, latency) in &self.latency {
                            tr {
                                td { (words(name)) }
                                @for (_, of) in &columns { td.number { (human(of(latency))) } }
                                td.number { (latency.count) }
                            }
                        }
                    }
                }
            }
        }
    }

    fn numbers(&self) -> Markup {
        html! {
            div {
                h2 { "Counts" }
                table {
                    @for (name, count) in self.shown_counts() {
                        tr { td { (words(name)) } td.number { (HumanCount(count)) } }
                    }
                    @for (name, figure) in &self.figures {
                        tr { td { (words(name)) } td.number { (format!("{figure:.2}")) } }
                    }
                }
            }
        }
    }

    /// Where and how it was run.
    fn about(&self) -> Markup {
        let machine = &self.machine;
        let parameters = self.parameters.as_object().into_iter().flatten();
        html! {
            div {
                h2 { "Machine" }
                table {
                    tr { td { "processor" } td.number { (machine.processor) } }
                    tr { td { "hardware threads" } td.number { (machine.threads) } }
                    tr { td { "memory" } td.number { (bytes(machine.memory)) } }
                    tr { td { "system" } td.number { (machine.system) } }
                    tr { td { "load before" } td.number { (machine.load) } }
                    tr { td { "build" } td.number { (machine.build) } }
                }
                h2 { "Options" }
                table {
                    @for (name, value) in parameters.filter_map(|(name, value)| Some((name, option(value)?))) {
                        tr { td { (words(name)) } td.number { (value) } }
                    }
                }
            }
        }
    }

    /// The charts that every run has: of what was read while it went on, and of all times that were measured.
    pub fn usual_charts(&self) -> Vec<Chart> {
        let samples = self.series.samples();
        let mut charts: Vec<Chart> = Vec::new();
        let mut over_time = |title: &str, unit, lines: &[Column<Sample, f64>]| {
            let is_there = |of: fn(&Sample) -> f64| samples.iter().any(|sample| of(sample) > 0.0);
            if !lines.iter().any(|(_, of)| is_there(*of)) {
                return;
            }
            let chart = Chart::new(title, ("time", Unit::Seconds), ("", unit), Kind::Lines);
            charts.push(lines.iter().fold(chart, |chart, (name, of)| {
                chart.with(name, samples.iter().map(|sample| (sample.at, of(sample))))
            }));
        };
        #[allow(clippy::cast_precision_loss)] // for the eye
        {
            over_time("Throughput", Unit::PerSecond, &[("", |s| s.per_s)]);
            over_time("Entries", Unit::Count, &[("", |s| s.live as f64)]);
            over_time("Expirations", Unit::PerSecond, &[("", |s| s.expired_per_s)]);
            over_time(
                "Lateness of expirations",
                Unit::Nanos,
                &[("p50", |s| s.lateness_p50 as f64), ("p99", |s| s.lateness_p99 as f64)],
            );
            over_time(
                "Latency over time",
                Unit::Nanos,
                &[("p50", |s| s.latency_p50 as f64), ("p99", |s| s.latency_p99 as f64)],
            );
            over_time("Reaper, share of a core", Unit::Share, &[("", |s| s.reaper)]);
            over_time("Resident memory", Unit::Bytes, &[("", |s| s.resident as f64)]);
        }
        let measured = self.latency.iter().filter(|(_, latency)| latency.count > 0);
        let by_share = Chart::new(
            "Times by percentile",
            ("percentile", Unit::Quantile),
            ("", Unit::Nanos),
            Kind::Lines,
        );
        #[allow(clippy::cast_precision_loss)] // for the eye
        let by_share = measured.take(COLOURS).fold(by_share, |chart, (name, latency)| {
            let points = latency.curve.iter().map(|&(share, nanos)| (share, nanos as f64));
            chart.with(&words(name), points)
        });
        charts.push(by_share);
        charts
    }
}

fn verdict(passed: bool, violations: u64) -> Markup {
    html! {
        @if passed {
            p.verdict.good { "PASSED" }
        } @else {
            p.verdict.bad { "FAILED: " (violations) " violations" }
        }
    }
}

fn rows(table: &Table) -> Markup {
    html! {
        div.wide {
            h2 { (table.title) }
            table {
                tr { @for name in &table.head { th { (name) } } }
                @for row in &table.rows {
                    tr {
                        @for (at, cell) in row.iter().enumerate() {
                            td.number[at > 0] { (cell) }
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

fn tile(figure: &str, of: &str) -> Markup {
    html! { div { strong { (figure) } span { (of) } } }
}

fn figure(chart: &Chart) -> Markup {
    html! {
        figure {
            figcaption {
                strong { (chart.title) }
                @for (at, line) in chart.legend() {
                    span { i style=(format!("background: var(--line-{})", at % COLOURS)) {} (line.name) }
                }
            }
            (PreEscaped(chart.draw()))
        }
    }
}

/// What an option was, as it would be said on the command line. `None` if it was not given, or is none.
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
fn words(name: &str) -> String {
    name.replace('_', " ")
}
