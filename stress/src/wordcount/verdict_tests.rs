//! Every check of the verdict fails when it should.

use super::super::spout::Counted;
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
    let (mut lines, mut bolt) = (ComponentMetrics::default(), ComponentMetrics::default());
    (lines.emitted, lines.acked, lines.failed, lines.replayed) = (3, 2, 1, 1);
    (bolt.trees_acked, bolt.trees_failed, bolt.late) = (2, 1, 1);
    let counts = Counted { lines: 2, roots: 3, acked: 2, failed: 1, ..Counted::default() };
    Seen {
        direct,
        counted,
        surplus,
        unsuccessful: 1,
        duplicated: 0,
        spouts: SpoutTally { counts, ..SpoutTally::default() },
        topology: vec![lines, bolt],
        metrics: three_roots(),
        faults: [0; FAULTS.len()],
        held: 0,
        faults_off: false,
    }
}

#[test]
fn each_check_fails_when_it_should_and_no_other_does() {
    type Spoil = fn(&mut Seen);
    let cases: [(&[Check], &[Spoil]); 10] = [
        (&[], &[|_| {}]),
        (&["counts_exact"], &[|seen| seen.faults_off = true]),
        (
            &["counts_explained"],
            &[
                |seen| add(&mut seen.counted, b"b", 1),
                |seen| add(&mut seen.counted, b"never seen", 1),
                |seen| add(&mut seen.surplus, b"b", 1),
                |seen| seen.counted.retain(|word, _| **word != b"d"[..]),
                |seen| seen.unsuccessful += 1,
                |seen| {
                    // The sums are right; the words are not.
                    *seen.counted.get_mut(&b"b"[..]).unwrap() += 1;
                    *seen.counted.get_mut(&b"c"[..]).unwrap() -= 1;
                },
            ],
        ),
        // Never even read.
        (&["every_line_acked_once"], &[|seen| seen.direct.lines += 1]),
        (
            &["one_outcome_each"],
            &[|seen| seen.topology[1].trees_acked += 1, |seen| seen.topology[1].trees_failed -= 1],
        ),
        (&["metrics_add_up", "nothing_left"], &[|seen| seen.metrics.total.cancelled = 1]),
        (&["nothing_left"], &[|seen| seen.metrics.total.live = 1]),
        (
            &["metrics_add_up"],
            &[
                |seen| seen.metrics.total.inserted += 1,
                |seen| seen.metrics.total.acked += 1,
                |seen| seen.metrics.total.failed += 1,
                |seen| seen.metrics.total.expired += 1,
                |seen| seen.metrics.total.late += 1,
                |seen| seen.metrics.total.lateness.counts[0] += 1,
                |seen| seen.metrics.handler_panics += 1,
                |seen| seen.metrics.undelivered += 1,
                |seen| seen.topology[0].emitted += 1,
                |seen| seen.topology[0].acked += 1,
                |seen| seen.topology[0].failed += 1,
                |seen| seen.topology[0].timed_out += 1,
                |seen| seen.topology[0].replayed += 1,
                |seen| seen.topology[1].late += 1,
            ],
        ),
        (
            &["no_surprises"],
            &[
                |seen| seen.topology[1].panics += 1,
                |seen| seen.topology[1].errors += 1,
                |seen| seen.topology[0].dead_letters += 1,
                |seen| seen.topology[0].transferred += 1,
            ],
        ),
        (&["late_refused"], &[|seen| seen.held += 1]),
    ];
    for (fail, spoils) in cases {
        for (nth, spoil) in spoils.iter().enumerate() {
            assert_eq!(failing(*spoil), fail, "{nth}");
        }
    }
    let lost = failing(|seen| seen.spouts.counts.acked -= 1);
    assert!(lost.contains(&"every_line_acked_once") && lost.contains(&"every_root_ended"));
}

/// The checks that fail when `spoil` has had its way.
fn failing(spoil: fn(&mut Seen)) -> Vec<Check> {
    let mut seen = sound();
    spoil(&mut seen);
    let checks = Checks::new(&NAMES);
    verdict(&seen, &checks);
    checks.failing()
}
