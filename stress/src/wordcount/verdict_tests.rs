//! Every check of the verdict fails when it should.

use super::super::words::add;
use super::*;
use crate::checks::three_roots;

/// A run of two lines with five words, one of which failed once after it had counted "a".
fn sound() -> Seen {
    let mut direct = Direct::default();
    direct.text(&b"a b c\nd a\n"[..]);
    let mut counted = direct.counts.clone();
    add(&mut counted, b"a", 1);
    let mut surplus = Counts::default();
    add(&mut surplus, b"a", 1);
    Seen {
        direct,
        counted,
        surplus,
        unsuccessful: 1,
        duplicated: 0,
        spouts: SpoutTally { lines: 2, issued: 3, acked: 2, failed: 1, ..SpoutTally::default() },
        topology: Told {
            emitted: 3,
            acked: 2,
            failed: 1,
            replayed: 1,
            trees_acked: 2,
            trees_failed: 1,
            late: 1,
            ..Told::default()
        },
        metrics: three_roots(),
        faults: [0; FAULTS.len()],
        held: 0,
        faults_off: false,
    }
}

/// The checks that fail when `spoil` has had its way.
fn failing(spoil: impl FnOnce(&mut Seen)) -> Vec<Check> {
    let mut seen = sound();
    spoil(&mut seen);
    let checks = Checks::new(&NAMES);
    verdict(&seen, &checks);
    checks.failing()
}

#[test]
fn a_sound_run_passes() {
    assert!(failing(|_| {}).is_empty());
}

#[test]
fn a_surplus_without_faults_is_not_exact() {
    assert_eq!(failing(|seen| seen.faults_off = true), ["counts_exact"]);
}

#[test]
fn a_word_too_many_too_few_or_swapped_is_not_explained() {
    for spoil in [
        |seen: &mut Seen| add(&mut seen.counted, b"b", 1),
        |seen: &mut Seen| add(&mut seen.counted, b"never seen", 1),
        |seen: &mut Seen| add(&mut seen.surplus, b"b", 1),
        |seen: &mut Seen| seen.counted.retain(|word, _| **word != b"d"[..]),
        |seen: &mut Seen| seen.unsuccessful += 1,
        |seen: &mut Seen| {
            // The sums are right; the words are not.
            *seen.counted.get_mut(&b"b"[..]).unwrap() += 1;
            *seen.counted.get_mut(&b"c"[..]).unwrap() -= 1;
        },
    ] {
        assert_eq!(failing(spoil), ["counts_explained"]);
    }
}

#[test]
fn a_lost_line_is_seen() {
    let lost = failing(|seen| seen.spouts.acked -= 1);
    assert!(lost.contains(&"every_line_acked_once") && lost.contains(&"every_root_ended"));
    // Never even read.
    assert_eq!(failing(|seen| seen.direct.lines += 1), ["every_line_acked_once"]);
}

#[test]
fn completions_and_fails_must_match_outcomes() {
    assert_eq!(failing(|seen| seen.topology.trees_acked += 1), ["one_outcome_each"]);
    assert_eq!(failing(|seen| seen.topology.trees_failed -= 1), ["one_outcome_each"]);
}

#[test]
fn what_is_left_is_seen() {
    let left = failing(|seen| seen.metrics.total.cancelled = 1);
    assert_eq!(left, ["metrics_add_up", "nothing_left"]);
    assert_eq!(failing(|seen| seen.metrics.total.live = 1), ["nothing_left"]);
}

#[test]
fn metrics_must_add_up() {
    for spoil in [
        |seen: &mut Seen| seen.metrics.total.inserted += 1,
        |seen: &mut Seen| seen.metrics.total.acked += 1,
        |seen: &mut Seen| seen.metrics.total.failed += 1,
        |seen: &mut Seen| seen.metrics.total.expired += 1,
        |seen: &mut Seen| seen.metrics.total.late += 1,
        |seen: &mut Seen| seen.metrics.lateness.counts[0] += 1,
        |seen: &mut Seen| seen.metrics.handler_panics += 1,
        |seen: &mut Seen| seen.metrics.undelivered += 1,
        |seen: &mut Seen| seen.topology.emitted += 1,
        |seen: &mut Seen| seen.topology.acked += 1,
        |seen: &mut Seen| seen.topology.failed += 1,
        |seen: &mut Seen| seen.topology.timed_out += 1,
        |seen: &mut Seen| seen.topology.replayed += 1,
        |seen: &mut Seen| seen.topology.late += 1,
    ] {
        assert_eq!(failing(spoil), ["metrics_add_up"]);
    }
}

#[test]
fn mishaps_and_late_acks_not_sent_are_seen() {
    assert_eq!(failing(|seen| seen.topology.mishaps += 1), ["no_surprises"]);
    assert_eq!(failing(|seen| seen.held += 1), ["late_refused"]);
}
