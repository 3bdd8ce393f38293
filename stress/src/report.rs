//! The report of a run: one JSON object, or text for people.

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::latency::{human, Percentiles};
use crate::options::Output;
use crate::sentences::sentence;
use indicatif::HumanCount;
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
    /// What the text shows of it line by line.
    #[serde(skip)]
    pub tables: Vec<Table>,
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
        debug_assert!(cfg!(test) || verdict.keys().all(|check| !sentence(check).is_empty()));
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
    fn counted(&self) -> Table {
        let counts = self.counts.iter();
        let counts = counts.filter(|(name, count)| **count > 0 || !name.starts_with("fault_"));
        let counts = counts.map(|(name, count)| [words(name), HumanCount(*count).to_string()]);
        let figures = self.figures.iter();
        let figures = figures.map(|(name, figure)| [words(name), format!("{figure:.2}")]);
        Table::new("Counts", ["", ""], counts.chain(figures))
    }

    /// The percentiles of all that was timed.
    fn times(&self) -> Table {
        let head = ["", "p50", "p90", "p99", "p99.9", "p99.99", "max", "measured"];
        let rows = self.latency.iter().map(|(name, p)| {
            let [p50, p90, p99, p99_9, p99_99, max] =
                [p.p50, p.p90, p.p99, p.p99_9, p.p99_99, p.max].map(human);
            [words(name), p50, p90, p99, p99_9, p99_99, max, HumanCount(p.count).to_string()]
        });
        Table::new("Times", head, rows)
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
        let tables = [self.counted(), self.times()];
        let tables = self.tables.iter().chain(&tables).filter(|table| !table.rows.is_empty());
        out.extend(tables.map(|table| table.text().trim_end().to_string()));
        out.push(String::new());
        out.extend(self.notes.iter().map(|note| format!("  note: {note}")));
        for (name, holds) in &self.checks {
            let verdict = if *holds { "ok" } else { "FAIL" };
            out.push(format!("  {verdict:<4} {name:<24} {}", sentence(name)));
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

/// Rows of text under a head; what stands first in a row is its name.
#[derive(Debug)]
pub struct Table {
    pub title: String,
    pub head: Vec<String>,
    /// Rows with as many cells as the head has.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const N: usize>(
        title: &str,
        head: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let rows = rows.into_iter().map(Vec::from).collect();
        Table { title: title.into(), head: head.map(String::from).to_vec(), rows }
    }

    /// The table as text in columns, names to the left, figures to the right.
    fn text(&self) -> String {
        let head = self.head.iter().any(|name| !name.is_empty()).then_some(&self.head);
        let rows = || head.into_iter().chain(&self.rows);
        let width = |at: usize| rows().map(|row| row[at].chars().count()).max();
        let widths: Vec<usize> = (0..self.head.len()).filter_map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(at, (cell, &width))| match at {
                0 => format!("  {cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            });
            cells.collect::<String>().trim_end().to_string()
        };
        let lines = std::iter::once(format!("\n  {}", self.title)).chain(rows().map(line));
        lines.collect::<Vec<_>>().join("\n") + "\n"
    }
}

/// A name in the JSON, for people.
fn words(name: &str) -> String {
    name.replace('_', " ")
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

    #[test]
    fn a_table_is_in_columns() {
        let rows = [["one", "1"], ["two more", "1000"]].map(|row| row.map(String::from));
        let text = Table::new("t", ["", "ns"], rows).text();
        assert_eq!(text, "\n  t\n              ns\n  one          1\n  two more  1000\n");
    }
}
