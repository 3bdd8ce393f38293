//! The report of a run: one JSON object, or text for people.

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::latency::{human, Percentiles};
use crate::options::Output;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// What came of a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub scenario: &'static str,
    /// How long the load lasted, without preparation and verification.
    pub seconds: f64,
    /// Operations per second; `operation` says which.
    pub ops_per_s: f64,
    pub operation: &'static str,
    pub seed: u64,
    pub passed: bool,
    pub checks: BTreeMap<Check, bool>,
    /// What was violated, in words; of many, the first.
    pub violations: Vec<String>,
    pub violations_total: u64,
    /// The options that the run had.
    pub parameters: serde_json::Value,
    pub counts: BTreeMap<&'static str, u64>,
    /// Rates and shares that are not whole numbers.
    pub figures: BTreeMap<&'static str, f64>,
    /// Durations in nanoseconds.
    pub latency: BTreeMap<&'static str, Percentiles>,
    /// What was left out and why, for instance files that are not text; of many, the first.
    pub notes: Vec<String>,
}

impl Report {
    /// A report of the checks, with everything else empty.
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    pub fn new(
        scenario: &'static str,
        (operation, operations): (&'static str, u64),
        took: Duration,
        seed: u64,
        checks: &Checks,
        parameters: &impl Serialize,
    ) -> Self {
        let (verdict, violations, violations_total) = checks.verdict();
        let seconds = took.as_secs_f64();
        Report {
            scenario,
            seconds,
            ops_per_s: operations as f64 / seconds.max(1e-9),
            operation,
            seed,
            passed: verdict.values().all(|&holds| holds),
            checks: verdict,
            violations,
            violations_total,
            // The options are plain structs, which always have a JSON form.
            parameters: serde_json::to_value(parameters).unwrap_or_default(),
            ..Report::default()
        }
    }

    /// Prints it, and writes what was asked for.
    pub fn print(&self, output: &Output) -> Result<(), Error> {
        use std::io::Write;
        // Strings, numbers and maps with string keys: always has a JSON form.
        let object = || serde_json::to_string(self).unwrap_or_default();
        let to_stdout = output.json.as_deref().is_some_and(|file| file.as_os_str() == "-");
        let text = if to_stdout { object() } else { self.text() };
        // A reader that has gone away is not the run's fault.
        let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
        match &output.json {
            Some(file) if !to_stdout => {
                std::fs::write(file, object() + "\n").map_err(Error::unwritable(file))
            }
            _ => Ok(()),
        }
    }

    /// The counts, without the faults that were not asked for, and the figures.
    fn counted(&self) -> Vec<Vec<String>> {
        let counts = self.counts.iter();
        let counts = counts.filter(|(name, count)| **count > 0 || !name.starts_with("fault_"));
        let counts = counts.map(|(name, count)| vec![words(name), grouped(*count)]);
        let figures = self.figures.iter();
        let figures = figures.map(|(name, figure)| vec![words(name), format!("{figure:.2}")]);
        counts.chain(figures).collect()
    }

    /// The percentiles of all that was timed, below their names.
    fn times(&self) -> Vec<Vec<String>> {
        let head = ["", "p50", "p90", "p99", "p99.9", "p99.99", "max", "measured"];
        let rows = self.latency.iter().map(|(name, p)| {
            let times = [p.p50, p.p90, p.p99, p.p99_9, p.p99_99, p.max].into_iter().map(human);
            let count = grouped(p.count);
            [words(name)].into_iter().chain(times).chain([count]).collect()
        });
        [head.map(String::from).to_vec()].into_iter().chain(rows).collect()
    }

    fn text(&self) -> String {
        let mut out = vec![format!(
            "{}: {:.2} s, {} {}/s, seed {}",
            self.scenario,
            self.seconds,
            thousands(self.ops_per_s),
            self.operation,
            self.seed
        )];
        out.push(columns(&self.counted()));
        if !self.latency.is_empty() {
            out.push(columns(&self.times()));
        }
        out.push(String::new());
        out.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        for (name, holds) in &self.checks {
            let verdict = if *holds { "ok" } else { "FAIL" };
            out.push(format!("  {verdict:<4} {name}"));
        }
        out.extend(self.violations.iter().map(|text| format!("  violation: {text}")));
        let more = self.violations_total - self.violations.len() as u64;
        if more > 0 {
            out.push(format!("  and {more} violations more"));
        }
        out.push(if self.passed { "PASSED".into() } else { "FAILED".into() });
        out.join("\n")
    }
}

/// Rows as text in columns, names to the left, figures to the right.
fn columns(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
            text += &match at {
                0 => format!("\n  {cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            };
        }
    }
    text
}

/// A name in the JSON, for people.
fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// A count with a comma between each three digits.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// A rate with a unit that fits.
pub fn thousands(rate: f64) -> String {
    match rate {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e3 => format!("{:.1} K", r / 1e3),
        r => format!("{r:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(checks: &Checks) -> Report {
        Report::new("x", ("ops", 10), Duration::from_secs(2), 7, checks, &[1, 2])
    }

    #[test]
    fn a_violation_fails_the_report() {
        let checks = Checks::new(&["sound", "whole"]);
        let good = report(&checks);
        assert!(good.passed && good.text().ends_with("PASSED"));
        checks.violated("whole", || "a piece is missing".into());
        let bad = report(&checks);
        assert!(!bad.passed && bad.text().ends_with("FAILED"));
        assert!(bad.text().contains("whole: a piece is missing"));
    }
}
