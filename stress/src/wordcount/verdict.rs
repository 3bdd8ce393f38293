//! The verdict: what the topology has counted against the direct count, and its metrics and the tracker's against what was seen of
//! it.

use super::direct::Direct;
use super::faults::{Fault, FAULTS};
use super::files::Files;
use super::spout::SpoutTally;
use super::words::{show, Counts};
use crate::checks::{Check, Checks};
use crate::options::Wordcount;
use crate::report::Report;
use expiry::Metrics;
use expiry_topology::ComponentMetrics;
use std::time::Duration;

/// Every check of this scenario.
const NAMES: [Check; 13] = [
    // Only where faults are off; the rest hold always.
    "counts_exact",
    "counts_explained",
    "acked_means_counted",
    "every_line_acked_once",
    "every_root_ended",
    "one_outcome_each",
    "none_early",
    "late_refused",
    "max_pending_exact",
    "nothing_left",
    "metrics_add_up",
    "same_input",
    "no_surprises",
];

/// The names of the checks that are made.
pub fn names(faults_off: bool) -> &'static [Check] {
    if faults_off {
        &NAMES
    } else {
        &NAMES[1..]
    }
}

/// What the metrics of a topology say, all components together.
#[derive(Debug, Default)]
pub struct Told {
    /// Of the spouts.
    pub emitted: u64,
    /// Lines acked.
    pub acked: u64,
    /// Attempts.
    pub failed: u64,
    /// Attempts.
    pub timed_out: u64,
    /// Attempts but the first ones.
    pub replayed: u64,
    /// Acks that completed their tree.
    pub trees_acked: u64,
    /// Fails that took effect.
    pub trees_failed: u64,
    /// Acks and fails that were refused because the tree had ended.
    pub late: u64,
    /// Panics, reported errors, dead letters, and tuples that were not executed.
    pub mishaps: u64,
}

impl From<&[ComponentMetrics]> for Told {
    fn from(components: &[ComponentMetrics]) -> Self {
        let mut told = Told::default();
        let (mut sent, mut executed) = (0, 0);
        for of in components {
            told.trees_acked += of.trees_acked;
            told.trees_failed += of.trees_failed;
            told.late += of.late;
            told.mishaps += of.panics + of.errors + of.dead_letters;
            sent += of.transferred;
            executed += of.executed;
        }
        told.mishaps += sent.abs_diff(executed);
        if let Some(spouts) = components.first() {
            told.emitted = spouts.emitted;
            told.acked = spouts.acked;
            told.failed = spouts.failed;
            told.timed_out = spouts.timed_out;
            told.replayed = spouts.replayed;
        }
        told
    }
}

/// Everything that was seen.
pub struct Seen {
    /// What is in the files.
    pub direct: Direct,
    /// What the pipeline has counted.
    pub counted: Counts,
    /// What it has counted beyond once per word of each line, as far as attempts have recorded it.
    pub surplus: Counts,
    /// How much of that is due to attempts that did not succeed.
    pub unsuccessful: u64,
    /// How much to tuples that were delivered twice.
    pub duplicated: u64,
    /// What all spouts saw.
    pub spouts: SpoutTally,
    /// What the topology says.
    pub topology: Told,
    /// What the tracker says.
    pub metrics: Metrics,
    /// How many tuples met each fault.
    pub faults: [u64; FAULTS.len()],
    /// How many tuples still waited for their late ack.
    pub held: u64,
    /// Whether there were no faults.
    pub faults_off: bool,
}

impl Seen {
    fn words(&self) -> u64 {
        self.counted.values().sum()
    }
}

/// Checks everything that can be checked once the run is over.
pub fn verdict(seen: &Seen, checks: &Checks) {
    let lines = seen.spouts.lines;
    let acked = seen.spouts.acked;
    let once = "every_line_acked_once";
    checks.equal(once, "lines acked", acked, lines);
    checks.equal(once, "lines read", lines, seen.direct.lines + seen.spouts.cuts);
    checks.equal("one_outcome_each", "acks that completed", seen.topology.trees_acked, acked);

    let (issued, failed) = (seen.spouts.issued, seen.spouts.failed);
    let timed_out = seen.spouts.timed_out;
    checks.equal("every_root_ended", "outcomes", acked + failed + timed_out, issued);
    checks.equal("one_outcome_each", "fails that took effect", seen.topology.trees_failed, failed);

    let total = &seen.metrics.total;
    checks.equal("nothing_left", "entries at the end", total.live, 0);
    checks.equal("nothing_left", "roots returned at shutdown", total.cancelled, 0);
    let counted = [issued, acked, failed, timed_out, seen.topology.late];
    checks.metrics_add_up(&seen.metrics, counted);
    let told = &seen.topology;
    for (what, is, should) in [
        ("emitted", told.emitted, issued),
        ("lines acked", told.acked, acked),
        ("attempts failed", told.failed, failed),
        ("attempts timed out", told.timed_out, timed_out),
        ("replayed", told.replayed + lines, issued),
    ] {
        checks.equal("metrics_add_up", what, is, should);
    }
    checks.equal("late_refused", "late acks not sent", seen.held, 0);
    let mishaps = "panics, errors, dead letters and tuples lost";
    checks.equal("no_surprises", mishaps, told.mishaps, 0);
    // Last, because it may say the most.
    counts(seen, checks);
}

/// Word by word: counted = in the files + surplus. Without faults there is no surplus.
fn counts(seen: &Seen, checks: &Checks) {
    let of = |counts: &Counts, word: &[u8]| counts.get(word).copied().unwrap_or(0);
    // A word that was counted, or is in the files, or in the books, is looked at at least once.
    let all = [&seen.counted, &seen.direct.counts, &seen.surplus];
    for (nth, counts) in all.iter().enumerate() {
        for word in counts.keys() {
            if all[..nth].iter().any(|before| before.contains_key(word)) {
                continue;
            }
            let counted = of(&seen.counted, word);
            let (direct, surplus) = (of(&seen.direct.counts, word), of(&seen.surplus, word));
            checks.expect("counts_explained", counted == direct + surplus, || {
                format!(
                    "{} counted {counted} times, {direct} in the files, {surplus} explained",
                    show(word)
                )
            });
            if seen.faults_off {
                checks.expect("counts_exact", counted == direct, || {
                    format!("{} counted {counted} times, {direct} in the files", show(word))
                });
            }
        }
    }
    let explained = seen.direct.words + seen.unsuccessful + seen.duplicated;
    checks.equal("counts_explained", "words counted", seen.words(), explained);
}

/// The report.
pub fn report(
    seen: &Seen,
    options: &Wordcount,
    took: Duration,
    files: &Files,
    checks: &Checks,
) -> Report {
    let words = seen.words();
    let mut report =
        Report::new("wordcount", ("words", words), took, options.seed, checks, options);
    let lines = seen.spouts.lines;
    let skipped = files.lock();
    let timed_out = seen.spouts.timed_out;
    report.counts.extend([
        ("files_read", files.list.len() as u64 - read_skips(files)),
        ("files_skipped", skipped.counts.values().sum()),
        ("bytes", seen.spouts.bytes),
        ("lines", lines),
        ("lines_cut", seen.spouts.cuts),
        ("words_in_files", seen.direct.words),
        ("words_counted", words),
        ("words_of_failed_attempts", seen.unsuccessful),
        ("words_duplicated", seen.duplicated),
        ("distinct_words", seen.direct.counts.len() as u64),
        ("roots", seen.spouts.issued),
        ("replays", seen.spouts.issued - lines.min(seen.spouts.issued)),
        ("most_attempts", seen.spouts.most_attempts),
        ("acked", seen.spouts.acked),
        ("failed", seen.spouts.failed),
        ("timed_out", timed_out),
        ("refused_as_late", seen.topology.late),
        ("fault_drop", seen.faults[Fault::Drop as usize]),
        ("fault_fail", seen.faults[Fault::Fail as usize]),
        ("fault_duplicate", seen.faults[Fault::Duplicate as usize]),
        ("fault_late", seen.faults[Fault::Late as usize]),
        ("fault_stall", seen.faults[Fault::Stall as usize]),
    ]);
    #[allow(clippy::cast_precision_loss)] // counts below 2^53
    report.figures.extend([
        ("lines_per_s", lines as f64 / took.as_secs_f64()),
        ("reaper_busy_ms", seen.metrics.reaper_busy.as_secs_f64() * 1e3),
    ]);
    report.latency.insert("line", seen.spouts.latency.percentiles());
    if timed_out > 0 {
        let lateness = seen.spouts.lateness.percentiles();
        report.latency.insert("timeout_lateness", lateness);
    }
    if seen.faults_off && timed_out > 0 {
        report.notes.push(format!(
            "{timed_out} timeouts without a fault: the machine is too busy for this --timeout; use a longer one"
        ));
    }
    report
        .notes
        .extend(skipped.counts.iter().map(|(kind, n)| format!("{n} files skipped: {kind}")));
    report.notes.extend(skipped.named.iter().cloned());
    report
}

/// How many listed files were not read.
fn read_skips(files: &Files) -> u64 {
    let unread = |source: &&super::files::Source| {
        source.read.load(std::sync::atomic::Ordering::Relaxed) == super::files::UNREAD
    };
    files.list.iter().filter(unread).count() as u64
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
