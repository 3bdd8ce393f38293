//! The verdict: compares the topology's counts with the direct count, and its metrics and the
//! tracker's with what was seen of it.

use super::direct::Direct;
use super::faults::FAULTS;
use super::files::Files;
use super::held;
use super::spout::SpoutTally;
use super::words::{show, Counts};
use crate::checks::{Check, Checks};
use crate::options::Wordcount;
use crate::report::Report;
use expiry::Metrics;
use expiry_topology::ComponentMetrics;
use std::collections::HashSet;
use std::time::Duration;

/// How many skipped files are named.
const NAMED: usize = 10;

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
    &NAMES[usize::from(!faults_off)..]
}

/// Everything that was seen.
pub struct Seen {
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
    /// What the topology says: of its spouts first.
    pub topology: Vec<ComponentMetrics>,
    /// What the tracker says.
    pub metrics: Metrics,
    /// How many tuples met each fault.
    pub faults: [u64; FAULTS.len()],
    /// How many tuples still waited for their late ack.
    pub held: u64,
    pub faults_off: bool,
}

impl Seen {
    fn words(&self) -> u64 {
        self.counted.values().sum()
    }

    /// A metric of the topology, all components together.
    fn sum(&self, of: fn(&ComponentMetrics) -> u64) -> u64 {
        self.topology.iter().map(of).sum()
    }
}

/// Checks everything that can be checked after the run.
pub fn verdict(seen: &Seen, checks: &Checks) {
    let counts = &seen.spouts.counts;
    let (lines, acked, issued) = (counts.lines, counts.acked, counts.roots);
    let (failed, timed_out) = (counts.failed, counts.timed_out);
    let total = &seen.metrics.total;
    checks
        .metrics_add_up(&seen.metrics, [issued, acked, failed, timed_out, seen.sum(|of| of.late)]);
    let told = &seen.topology[0];
    let lost = seen.sum(|of| of.transferred).abs_diff(seen.sum(|of| of.executed));
    let mishaps = seen.sum(|of| of.panics + of.errors + of.dead_letters);
    for (check, what, is, should) in [
        ("every_line_acked_once", "lines acked", acked, lines),
        ("every_line_acked_once", "lines read", lines, seen.direct.lines),
        ("one_outcome_each", "acks that completed", seen.sum(|of| of.trees_acked), acked),
        ("every_root_ended", "outcomes", acked + failed + timed_out, issued),
        ("one_outcome_each", "fails that took effect", seen.sum(|of| of.trees_failed), failed),
        ("nothing_left", "entries at the end", total.live, 0),
        ("nothing_left", "roots returned at shutdown", total.cancelled, 0),
        ("metrics_add_up", "emitted", told.emitted, issued),
        ("metrics_add_up", "lines acked", told.acked, acked),
        ("metrics_add_up", "attempts failed", told.failed, failed),
        ("metrics_add_up", "attempts timed out", told.timed_out, timed_out),
        ("metrics_add_up", "replayed", told.replayed + lines, issued),
        ("late_refused", "late acks not sent", seen.held, 0),
        ("no_surprises", "panics, errors, dead letters and tuples lost", mishaps + lost, 0),
    ] {
        checks.equal(check, what, is, should);
    }
    // Last, because it may say the most.
    word_by_word(seen, checks);
}

/// Word by word: counted = in the files + surplus. Without faults there is no surplus.
fn word_by_word(seen: &Seen, checks: &Checks) {
    let counts = [&seen.counted, &seen.direct.counts, &seen.surplus];
    let words: HashSet<_> = counts.iter().flat_map(|counts| counts.keys()).collect();
    for word in words {
        let [counted, direct, surplus] =
            counts.map(|counts| counts.get(word).copied().unwrap_or(0));
        let text = || {
            let word = show(word);
            format!("{word} counted {counted} times, {direct} in the files, {surplus} explained")
        };
        checks.expect("counts_explained", counted == direct + surplus, text);
        if seen.faults_off {
            checks.expect("counts_exact", counted == direct, text);
        }
    }
    let explained = seen.direct.words + seen.unsuccessful + seen.duplicated;
    checks.equal("counts_explained", "words counted", seen.words(), explained);
}

pub fn report(
    seen: &Seen,
    options: &Wordcount,
    took: Duration,
    files: &Files,
    checks: &Checks,
) -> Report {
    let (words, spouts) = (seen.words(), &seen.spouts);
    let mut report =
        Report::new("wordcount", ("words", words), took, options.seed, checks, options);
    let skipped = held(&files.skipped);
    let read = files.list.iter().filter(|source| source.read.get().is_some()).count();
    let faults = ["fault_drop", "fault_fail", "fault_duplicate", "fault_late"];
    report.counts.extend(spouts.counts.named());
    report.counts.extend(faults.into_iter().zip(seen.faults));
    report.counts.extend([
        ("files_read", read as u64),
        ("files_skipped", skipped.len() as u64),
        ("words_in_files", seen.direct.words),
        ("words_counted", words),
        ("words_of_failed_attempts", seen.unsuccessful),
        ("words_duplicated", seen.duplicated),
        ("replays", spouts.counts.roots.saturating_sub(spouts.counts.lines)),
        ("refused_as_late", seen.sum(|of| of.late)),
    ]);
    report.latency.insert("line", spouts.latency.percentiles());
    let timed_out = spouts.counts.timed_out;
    if timed_out > 0 {
        report.latency.insert("timeout_lateness", spouts.lateness.percentiles());
    }
    if seen.faults_off && timed_out > 0 {
        report.notes.push(format!(
            "{timed_out} timeouts without a fault: the machine is too busy for this --timeout; use a longer one"
        ));
    }
    report.notes.extend(skipped.iter().take(NAMED).map(|file| format!("skipped {file}")));
    report
}
