//! Trees of tuples: branches, joins, several trees, their outcomes, and the calls that spouts
//! receive.

use crate::common::*;
use expiry_topology::{
    Bolt, BoltCollector, Context, Failure, Next, Replay, Spout, SpoutCollector, Tuple,
};
use std::time::Duration;

/// Makes bolts that join two tuples each.
fn joins(_: &Context) -> impl Bolt<u64, u64> {
    let mut first: Option<Tuple<u64>> = None;
    each(move |tuple, out| match first.take() {
        None => first = Some(tuple),
        Some(other) => {
            out.emit(&[&other, &tuple], *other + *tuple);
            out.ack(other);
            out.ack(tuple);
        }
    })
}

/// A tuple in several trees: what is derived from two messages is outstanding in both, and its
/// failure or rejection ends both.
#[test]
fn a_join_is_in_the_trees_of_all_that_it_joins() {
    for end in [None, Some(Why::Failed), Some(Why::Rejected)] {
        let (clock, told, builder) = rig();
        let numbers = builder.spout("numbers", numbers([1, 2, 3], &told));
        let pairs = builder.bolt("pairs", joins).shuffle(&numbers);
        bolt(&builder, "sum", &pairs, move |tuple, out| {
            assert_eq!(tuple.roots().count(), 2);
            match end {
                None => out.ack(tuple),
                Some(Why::Rejected) => out.reject(tuple, "no sum"),
                Some(_) => out.fail(tuple),
            }
        });
        let mut topology = settled(builder, &clock);
        let mut ends: Vec<Told> = told.all().split_off(5);
        ends.sort_by_key(|told| format!("{told:?}"));
        let expected = [1, 2].map(|id| end.map_or(Told::Ack(id), |why| Told::Fail(id, why)));
        assert_eq!(ends, expected, "the third is held");
        clock.advance(SECOND * 12);
        settle(&mut topology);
        assert_eq!(told.all().last(), Some(&Told::Fail(3, Why::TimedOut)));
    }
}

/// Self-anchoring: a message derived twice from the same tuple, or from two tuples of the same
/// tree, is outstanding once in it.
#[test]
fn an_edge_is_derived_once_in_a_tree() {
    let (clock, told, builder) = rig();
    let numbers = builder.spout("numbers", numbers([1], &told));
    let twice = bolt(&builder, "twice", &numbers, |tuple, out| {
        out.emit(&[&tuple, &tuple], 10);
        out.emit(&tuple, 11);
        out.ack(tuple);
    });
    let join = builder.bolt("join", joins).shuffle(&twice);
    let late = Log::new();
    bolt_with(&builder, "drops", &join, late.clone(), |late, tuple, _| late.note(*tuple));
    let mut topology = settled(builder, &clock);
    assert_eq!(late.all(), [21]);
    assert_eq!(told.all().last(), Some(&Told::Emitted(1)), "one of its tuples is outstanding");
    clock.advance(SECOND * 12);
    settle(&mut topology);
    assert_eq!(told.all().last(), Some(&Told::Fail(1, Why::TimedOut)));
}

/// A spout can tell timeouts from failures. A timeout also comes while as many messages are pending
/// as may be.
#[test]
fn timeouts_come_while_max_pending_holds_the_spout_up() {
    let (clock, told, builder) = rig();
    let numbers = builder.spout("numbers", numbers_by(5, 1..=7, &told)).max_pending(3);
    bolt(&builder, "odd", &numbers, |tuple, out| match *tuple % 2 {
        0 => out.fail(tuple),
        _ => drop(tuple),
    });
    let mut topology = settled(builder, &clock);
    let emitted =
        |told: &[Told]| told.iter().filter(|told| matches!(told, Told::Emitted(_))).count();
    // 2 and 4 have failed at once, and made room; 1, 3 and 5 are dropped.
    assert_eq!(emitted(&told.all()), 5);
    let metrics = &topology.metrics()[0];
    assert_eq!((metrics.pending, metrics.failed, metrics.timed_out), (3, 2, 0));
    clock.advance(SECOND * 5);
    settle(&mut topology);
    assert!(topology.metrics()[0].skipped_max_pending >= SECOND * 5);
    clock.advance(SECOND * 7);
    settle(&mut topology);
    let metrics = &topology.metrics()[0];
    assert_eq!((metrics.pending, metrics.failed, metrics.timed_out), (1, 3, 3));
    run(&mut topology, &clock, SECOND * 60);
    for number in 1..=7 {
        let failure = if number % 2 == 0 { Why::Failed } else { Why::TimedOut };
        let told = told.all().iter().filter(|told| **told == Told::Fail(number, failure)).count();
        assert_eq!(told, 1, "{number}");
    }
}

/// A bolt that works for long renews the timeout of what it holds.
#[test]
fn a_bolt_may_begin_a_timeout_anew() {
    let (clock, told, builder) = rig();
    let numbers = builder.spout("numbers", numbers([1], &told));
    let mut ticks = 0;
    let slow = holds(&builder, "slow", &numbers, move |held, out| {
        ticks += 1;
        assert!(held.iter().all(|tuple| out.reset_timeout(tuple)));
        if ticks == 10 {
            held.drain(..).for_each(|tuple| out.ack(tuple));
        }
    });
    slow.tick_every(SECOND * 8);
    let mut topology = builder.simulate(&clock).unwrap();
    let took = run(&mut topology, &clock, SECOND * 1000);
    assert_eq!(took, SECOND * 80);
    assert_eq!(told.all().last(), Some(&Told::Ack(1)));
}

/// A message that fails is emitted again after its pause, under a new root, up to the limit. Then
/// it is a dead letter.
#[test]
fn replays_back_off_and_end_in_a_dead_letter() {
    let ((clock, told, builder), seen, noted) = (rig(), Log::new(), Log::new());
    let replay = Replay::default()
        .attempts(4)
        .for_at_least(Duration::ZERO)
        .base(SECOND)
        .factor(3.0)
        .cap(SECOND * 5)
        .jitter(0.0);
    let numbers = builder.spout("numbers", numbers([1, 2], &told)).replay(replay);
    bolt_with(
        &builder,
        "picky",
        &numbers,
        (seen.clone(), clock.clone()),
        move |(seen, clock), tuple, out| {
            let root = tuple.roots().next().unwrap();
            seen.note((*tuple, expiry::Clock::now(clock) / 1_000_000_000, root));
            // The second one succeeds at its third attempt.
            let attempts = seen.all().iter().filter(|seen| seen.0 == 2).count();
            if *tuple == 2 && attempts == 3 {
                out.ack(tuple);
            } else {
                out.fail_with(tuple, format_args!("not at attempt {attempts}"));
            }
        },
    );
    let log = noted.clone();
    letters(&builder, &numbers, move |letter| {
        let id = letter.id.clone();
        log.note((letter.message, id, letter.attempts, letter.failure.to_string()));
    });
    let topology = ran(builder, &clock, SECOND * 100);
    let times = |number| -> Vec<u64> {
        let of = seen.all().into_iter().filter(|seen| seen.0 == number);
        of.map(|(_, at, _)| at).collect()
    };
    assert_eq!(times(1), [0, 1, 4, 9]);
    assert_eq!(times(2), [0, 1, 4]);
    let mut roots: Vec<_> = seen.all().iter().map(|seen| seen.2).collect();
    roots.sort();
    roots.dedup();
    assert_eq!(roots.len(), 7, "each attempt has a root of its own");
    assert_eq!(
        noted.all(),
        [(1, "1".to_string(), 4, "it was failed by \"picky\": not at attempt 3".to_string())]
    );
    assert_eq!(ends(&told), [Told::Ack(2), Told::Fail(1, Why::Failed)]);
    let metrics = &topology.metrics()[0];
    assert_eq!(
        (metrics.emitted, metrics.replayed, metrics.dead_letters, metrics.pending),
        (8, 5, 1, 0),
        "the letter is emitted too"
    );
    assert!(topology.is_finished());
}

/// With acking off a message is acked as soon as it is emitted.
#[test]
fn without_acking_a_message_is_acked_at_once() {
    let (clock, told, builder) = rig();
    builder.acking(false);
    let numbers = builder.spout("numbers", numbers(1..=3, &told));
    builder
        .bolt("lose", |_| each(|tuple, _| assert_eq!(tuple.roots().count(), 0)))
        .shuffle(&numbers);
    let mut topology = settled(builder, &clock);
    assert!(topology.is_finished() && topology.tracker_metrics().is_none());
    for number in 1..=3 {
        assert!(told.all().contains(&Told::Ack(number)));
    }
    clock.advance(Duration::from_secs(1000));
    settle(&mut topology);
    assert_eq!(topology.metrics()[0].timed_out, 0);
}

/// A spout is called before each further attempt, with the tracker's reason, and may change the
/// message for it.
#[test]
fn a_spout_may_change_what_is_emitted_again() {
    struct Counts(Log<(u64, Failure)>, bool);
    impl Spout<u64> for Counts {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            let _ = out.emit(10, 7);
            Next::Done
        }

        fn replay(&mut self, &id: &u64, failure: &Failure, message: &mut u64) {
            self.0.note((id, failure.clone()));
            *message += 1;
            assert!(!self.1, "what is changed before a panic is kept");
        }
    }
    for panics in [false, true] {
        let ((clock, _, builder), told, came) = (rig(), Log::new(), Log::new());
        let counts = builder
            .spout("counts", {
                let told = told.clone();
                move |_| Counts(told.clone(), panics)
            })
            .replay(Replay::default().attempts(3).for_at_least(Duration::ZERO));
        bolt_with(&builder, "picky", &counts, came.clone(), move |came, tuple, out| {
            came.note(*tuple);
            match *tuple {
                10 => out.fail(tuple),
                11 => drop(tuple),
                _ => out.ack(tuple),
            }
        });
        let topology = ran(builder, &clock, SECOND * 60);
        assert_eq!(came.all(), [10, 11, 12]);
        let told = told.all();
        assert_eq!(told.len(), 2, "not of the last one");
        let failed = |failure: &Failure| matches!(failure, Failure::Failed { by: Some(by), why: None } if &**by == "picky");
        assert!(told[0].0 == 7 && failed(&told[0].1), "{told:?}");
        let (7, Failure::TimedOut { due, seen }) = told[1] else {
            panic!("{told:?}");
        };
        assert!(due >= SECOND * 10 && seen >= due, "{due:?} {seen:?}");
        let spout = &topology.metrics()[0];
        assert_eq!((spout.acked, spout.panics), (1, 2 * u64::from(panics)));
    }
}

/// A spout's ids are of its own type. Each is moved into the message's last call, also after a
/// panic of the spout in between. A refused emission gives it back.
#[test]
fn ids_are_of_the_spouts_own_type() {
    #[derive(Debug)]
    struct Id(String);
    struct Own(u64, Log<String>);
    impl Spout<u64, Id> for Own {
        fn replay_by_default() -> Replay {
            Replay::once()
        }

        fn next(&mut self, out: &mut SpoutCollector<'_, u64, Id>) -> Next {
            while self.0 < 3 {
                out.emit(self.0, Id(format!("m{}", self.0))).unwrap();
                self.0 += 1;
            }
            let refused = out.emit(3, Id("m3".to_string())).unwrap_err();
            assert_eq!((refused.message, &*refused.id.0), (3, "m3"));
            Next::Done
        }

        fn ack(&mut self, Id(id): Id) {
            self.1.note(format!("{id} acked"));
            panic!("another instance gets the other outcomes");
        }

        fn fail(&mut self, Id(id): Id, _: &Failure) {
            self.1.note(format!("{id} given up"));
        }
    }
    let ((clock, _, builder), told) = (rig(), Log::new());
    let log = told.clone();
    let own = builder.spout("own", move |_| Own(log.all().len() as u64 * 9, log.clone()));
    bolt(&builder, "picky", &own.max_pending(3), |tuple, out| match *tuple {
        0 => out.ack(tuple),
        _ => out.fail(tuple),
    });
    let topology = settled(builder, &clock);
    let mut told = told.all();
    told.sort();
    assert_eq!(told, ["m0 acked", "m1 given up", "m2 given up"]);
    assert_eq!(topology.metrics()[0].panics, 1);
}

/// Bolts' metrics say what their acks and fails did to trees, and a bolt can learn it at once.
#[test]
fn acks_and_fails_that_come_late_are_counted() {
    struct Keeps(Vec<Tuple<u64>>, Log<(u64, bool)>);
    impl Bolt<u64, u64> for Keeps {
        fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
            match *tuple {
                1 => out.ack(tuple),
                2 => out.fail(tuple),
                _ => self.0.push(tuple),
            }
        }

        fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
            for tuple in self.0.drain(..) {
                match *tuple {
                    5 => out.fail(tuple),
                    6 => out.ack(tuple),
                    number => self.1.note((number, out.ack_now(tuple))),
                }
            }
        }
    }
    for (tick, acked, late) in [(SECOND, true, 0), (SECOND * 20, false, 4)] {
        let ((clock, _, builder), log) = (rig(), Log::new());
        let numbers = builder.spout("numbers", |_| Numbers::new(1..7, &Log::new()));
        builder
            .bolt("keeps", {
                let log = log.clone();
                move |_| Keeps(Vec::new(), log.clone())
            })
            .tick_every(tick)
            .shuffle(&numbers);
        let mut topology = settled(builder, &clock);
        clock.advance(tick);
        settle(&mut topology);
        assert_eq!(log.all(), [(3, acked), (4, acked)]);
        let bolt = &topology.metrics()[1];
        let effective = u64::from(acked);
        assert_eq!(bolt.trees_acked, 1 + 3 * effective);
        assert_eq!(bolt.trees_failed, 1 + effective);
        assert_eq!((bolt.late, bolt.errors), (late, 0));
    }
}

/// A window: what a bolt has held until a tick goes on as one message, derived from all of it. A
/// simulation runs to its end by itself, also where a spout is never done. What bolts hold is
/// counted meanwhile.
#[test]
fn a_window_is_derived_from_all_that_it_holds() {
    struct Endless(Log<u64>);
    impl Spout<u64> for Endless {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            let number = self.0.all().len() as u64;
            if number < 6 && out.emit(number, number).is_ok() {
                self.0.note(number);
                return Next::Ready;
            }
            Next::Asleep
        }
    }
    let ((clock, _, builder), ticks, came) = (rig(), Log::new(), Log::new());
    let endless = builder.spout("endless", |_| Endless(Log::new()));
    let log = ticks.clone();
    let window = holds(&builder, "window", &endless, move |held, out| {
        log.note(out.now());
        let sum = held.iter().map(|tuple| **tuple).sum();
        let references: Vec<&Tuple<u64>> = held.iter().collect();
        out.emit(&references, sum);
        out.emit(&*held, sum + 100);
        out.emit(&held[..], sum + 200);
        held.drain(..).for_each(|tuple| out.ack(tuple));
    });
    let window = window.tick_every(SECOND * 3);
    bolt_with(&builder, "sink", &window, came.clone(), move |came, tuple, out| {
        came.note((*tuple, tuple.roots().count()));
        out.ack(tuple);
    });
    let mut topology = settled(builder, &clock);
    assert_eq!(topology.metrics()[1].held, 6);
    assert!(!topology.is_at_rest());
    topology.deactivate();
    assert!(topology.run(100));
    assert_eq!(ticks.all(), [SECOND * 3]);
    assert_eq!(came.all(), [(15, 6), (115, 6), (215, 6)]);
    let metrics = topology.metrics();
    assert_eq!((metrics[0].acked, metrics[1].held), (6, 0));
    assert!(topology.is_at_rest() && !topology.is_finished());
}
