//! Tests of a spout's own checks: outcomes that come twice, for no attempt or too early, and room
//! that is not what it should be.

use super::*;
use crate::wordcount::bolts::{Stage, Worker};
use crate::wordcount::tests::{begun, prepared};
use expiry::ManualClock;
use expiry_topology::{Simulation, TopologyBuilder};

/// A spout with an attempt at a line with the id 0, all of whose words are counted.
fn begun_by_hand(run: &Arc<Run>) -> Reader {
    let mut reader = Reader::new(run);
    let line = reader.read().unwrap();
    reader.bytes += line.text.len();
    let piece = reader.begin(0, line, 0);
    piece.attempt.has_words(1);
    piece.attempt.count(0);
    reader
}

#[test]
fn outcomes_too_many_and_outcomes_of_nobody_are_violations() {
    let (run, _dir) = prepared("");
    let mut reader = begun_by_hand(&run);
    // The pending one; it again; those that no spout has emitted.
    for (id, violations) in [(0, 0), (0, 1), (1, 2), (7 << 32, 3), (1 << 32, 4)] {
        reader.ack(id);
        assert_eq!(run.checks.violations(), violations, "{id:#x}");
    }
    assert_eq!(run.checks.failing(), ["one_outcome_each"]);
}

#[test]
fn a_line_that_is_given_up_or_ends_otherwise_is_a_violation() {
    let (run, _dir) = prepared("");
    let mut reader = begun_by_hand(&run);
    let mut message = Piece::line(reader.pending[&0].clone());
    reader.replay(&0, &Failure::Failed { by: None, why: None }, &mut message);
    assert_eq!((message.attempt.number, reader.tally.counts.failed), (1, 1));
    assert_eq!(run.checks.violations(), 0);
    let rejected = Failure::Rejected { by: "split".into(), why: "no".into() };
    reader.replay(&0, &rejected, &mut message);
    assert_eq!(run.checks.violations(), 1);
    reader.fail(0, &rejected);
    assert_eq!(run.checks.violations(), 2);
    assert_eq!(run.checks.failing(), ["no_surprises"]);
    // The attempt that it was at has had no outcome.
    drop((reader, message));
    assert!(!run.checks.holds("every_root_ended"));
}

/// A topology in which so many lines may be pending, read by a spout that `make` makes of a reader.
fn at_most<S: Spout<Piece> + 'static>(
    most: usize,
    run: &Arc<Run>,
    make: impl Fn(Reader) -> S + Send + Sync + 'static,
) -> Simulation {
    let builder = TopologyBuilder::new();
    let own = run.clone();
    let lines = builder.spout("lines", move |_| make(Reader::new(&own))).max_pending(most);
    let own = run.clone();
    builder.bolt("split", move |_| Worker::new(Stage::Split(Vec::new()), &own)).shuffle(&lines);
    builder.simulate(&ManualClock::new()).unwrap()
}

#[test]
fn a_line_that_is_refused_is_a_violation_and_comes_again() {
    /// Does not look whether there is room.
    struct Eager(Reader);
    impl Spout<Piece> for Eager {
        fn next(&mut self, out: &mut SpoutCollector<'_, Piece>) -> Next {
            while let Some(line) = self.0.refused.take().or_else(|| self.0.read()) {
                let text = line.text.clone();
                if !self.0.emit(line, out) {
                    let kept = self.0.refused.as_ref().map(|line| line.text.clone());
                    assert_eq!(kept, Some(text));
                    break;
                }
            }
            Next::Done
        }
    }
    let (run, _dir) = prepared("");
    let mut topology = at_most(1, &run, Eager);
    topology.step();
    assert!(!run.checks.holds("no_surprises"));
    let metrics = &topology.metrics()[0];
    assert_eq!((metrics.emitted, metrics.panics), (1, 0));
}

#[test]
fn room_for_more_or_fewer_lines_is_a_violation() {
    for (most, sound) in [(1, false), (2, true), (3, false)] {
        let (run, _dir) = prepared("");
        let mut topology = at_most(most, &run, |reader| reader);
        topology.step();
        assert_eq!(run.checks.holds("max_pending_exact"), sound, "{most}");
    }
}

#[test]
fn a_timeout_that_is_early_by_any_clock_is_a_violation() {
    let ms = Duration::from_millis;
    for (due, seen, began, took, sound) in [
        (10, 10, 0, 10, true),
        (10, 9, 0, 10, false),
        (10, 12, 0, 9, false),
        (10, 12, 2, 10, true),
        (10, 12, 3, 10, false),
    ] {
        let checks = Checks::new(&["none_early"]);
        not_early(&checks, (ms(due), ms(seen)), (ms(began), ms(took)), ms(10));
        // Each of them may be violated twice.
        assert_eq!(checks.holds("none_early"), sound, "{due} {seen} {began} {took}");
    }
}

#[test]
fn a_line_that_times_out_comes_again_as_another_attempt() {
    let args = "--drop 1 --timeout 1s --interval 1ms";
    let (run, _dir) = prepared(args);
    let clock = ManualClock::new();
    let mut topology = begun(args, &run, &clock);
    clock.advance(Duration::from_secs(2));
    assert!(topology.settle(1000));
    clock.advance(Duration::from_millis(2));
    assert!(topology.settle(1000));
    assert_eq!(topology.metrics()[0].replayed, 2);
    drop(topology);
    let tally = &*held(&run.spouts);
    assert_eq!((tally.counts.timed_out, tally.counts.roots, tally.most_attempts), (2, 4, 2));
    assert_eq!(tally.lateness.percentiles().count, 2);
    assert_eq!(tally.latency.percentiles().count, 0, "none of them was acked");
}
