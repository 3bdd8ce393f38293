//! Messages that are given up: rejections, and the bolts that dead letters go to.

use crate::common::*;
use expiry_topology::{
    basic, sink, BoltCollector, Context, Derive, Failure, Hook, Next, Replay, Simulation,
    SpoutStage, TopologyBuilder, Tuple,
};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// A dead letter's message, its number of attempts, and its failure.
type Letter = (u64, u32, String);

/// Runs a topology whose spout emits these numbers, each up to five times, with these bolts.
/// Returns a log of its dead letters.
fn rejecting<const N: usize>(
    numbers_of: [u64; N],
    declare: impl FnOnce(&TopologyBuilder, &SpoutStage<'_, u64>),
) -> (Log<Told>, Log<Letter>, Simulation) {
    let (clock, told, builder) = rig();
    let noted = Log::new();
    let replay = Replay::default().for_at_least(Duration::ZERO).base(SECOND).jitter(0.0);
    let numbers = builder.spout("numbers", numbers_by(N, numbers_of, &told)).replay(replay);
    declare(&builder, &numbers);
    let log = noted.clone();
    letters(&builder, &numbers, move |letter| {
        log.note((letter.message, letter.attempts, letter.failure.to_string()));
    });
    let topology = ran(builder, &clock, SECOND * 100);
    assert!(topology.is_finished());
    (told, noted, topology)
}

fn letter(message: u64, attempts: u32, failure: &str) -> Letter {
    (message, attempts, failure.to_string())
}

/// A rejected message is a dead letter at its first attempt, with the reason. A plain failure
/// beside it is replayed.
#[test]
fn a_rejected_message_is_given_up_at_once() {
    let (told, letters, topology) = rejecting([1, 2], |builder, numbers| {
        let attempts = Arc::new(AtomicU64::new(0));
        bolt_with(builder, "picky", numbers, attempts, |attempts, tuple, out| match *tuple {
            1 => out.reject(tuple, "it is one"),
            _ if attempts.fetch_add(1, Relaxed) == 0 => out.fail_with(tuple, "once more"),
            _ => out.ack(tuple),
        });
    });
    assert_eq!(letters.all(), [letter(1, 1, "it was rejected by \"picky\": it is one")]);
    assert_eq!(ends(&told), [Told::Fail(1, Why::Rejected), Told::Ack(2)]);
    let (numbers, picky) = (&topology.metrics()[0], &topology.metrics()[1]);
    assert_eq!((numbers.replayed, numbers.dead_letters, numbers.failed), (1, 1, 2));
    assert_eq!((picky.failed, picky.trees_failed, picky.errors), (2, 2, 0));
}

/// A rejection counts only if it ends its tree. After a plain failure, the message is replayed, and
/// its next attempt can be rejected.
#[test]
fn a_rejection_after_another_failure_is_dropped() {
    let (told, letters, topology) = rejecting([1], |builder, numbers| {
        let attempts = Arc::new(AtomicU64::new(0));
        // In simulations the bolt that was declared first executes first.
        bolt_with(builder, "fails", numbers, attempts, |attempts, tuple, out| {
            match attempts.fetch_add(1, Relaxed) {
                0 => out.fail(tuple),
                _ => out.ack(tuple),
            }
        });
        bolt(builder, "rejects", numbers, |tuple, out| out.reject(tuple, "no"));
    });
    assert_eq!(letters.all(), [letter(1, 2, "it was rejected by \"rejects\": no")]);
    assert_eq!(ends(&told), [Told::Fail(1, Why::Rejected)]);
    let rejects = &topology.metrics()[2];
    assert_eq!((rejects.failed, rejects.trees_failed, rejects.late), (2, 1, 1));
}

/// A `basic` bolt rejects its input whatever it returns. A bolt that panics has not rejected.
#[test]
fn a_function_rejects_its_input() {
    let (told, letters, topology) = rejecting([1, 2, 3, 4], |builder, numbers| {
        let panics = Arc::new(AtomicU64::new(0));
        builder
            .bolt("picky", move |_| {
                let panics = panics.clone();
                sink(move |n: &u64, out| {
                    if n % 2 == 1 {
                        out.reject(format_args!("{n} is odd"));
                    }
                    if *n == 1 && panics.fetch_add(1, Relaxed) == 0 {
                        std::panic::resume_unwind(Box::new("once"));
                    }
                    if *n == 3 {
                        Err("overruled")
                    } else {
                        Ok(())
                    }
                })
            })
            .shuffle(numbers);
    });
    let by = |n: u64| format!("it was rejected by \"picky\": {n} is odd");
    assert_eq!(letters.all(), [letter(3, 1, &by(3)), letter(1, 2, &by(1))]);
    let picky = &topology.metrics()[1];
    assert_eq!((picky.failed, picky.errors, picky.panics), (3, 3, 1), "{:?}", told.all());
}

/// On threads, where rejections, failures and acks of the same trees race: a rejection that ends
/// its tree gives up its message, whose letter is acked once, and all other messages are acked.
#[test]
fn each_rejection_that_ends_a_tree_gives_up_its_message() {
    const MESSAGES: u64 = 30_000;
    let (told, letters) = (Log::new(), Log::new());
    let builder = TopologyBuilder::new();
    builder.batch(4);
    let numbers = builder
        .spout("numbers", numbers_by(64, 0..MESSAGES, &told))
        .replay(Replay::default().without_limit().base(Duration::ZERO));
    bolt(&builder, "rejects", &numbers, |tuple, out| match *tuple % 3 {
        0 => out.reject(tuple, "a third"),
        _ => out.ack(tuple),
    });
    let mut executed = 0;
    let mut is_every_other = move || {
        executed += 1;
        executed % 2 == 0
    };
    let mut is_failed = is_every_other;
    bolt(&builder, "fails", &numbers, move |tuple, out| match is_every_other() {
        true => out.fail_with(tuple, "a half"),
        false => out.ack(tuple),
    });
    let log = letters.clone();
    let thirds = numbers.dead_letters().map(|letter| letter.message);
    bolt(&builder, "thirds", thirds, move |tuple, out| {
        if is_failed() {
            return out.fail(tuple);
        }
        log.note(*tuple);
        out.ack(tuple);
    });
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    let thirds: Vec<u64> = (0..MESSAGES).step_by(3).collect();
    let mut failed: Vec<u64> = Vec::new();
    for told in ends(&told) {
        if let Told::Fail(id, why) = told {
            assert_eq!(why, Why::Rejected);
            failed.push(id);
        }
    }
    let mut acked = letters.take();
    acked.sort_unstable();
    failed.sort_unstable();
    assert!(acked == thirds && failed == thirds);
    let (numbers, rejects) = (&topology.metrics()[0], &topology.metrics()[1]);
    assert_eq!((numbers.acked, numbers.dead_letters), (MESSAGES * 2 / 3, MESSAGES / 3));
    assert_eq!(rejects.trees_failed, MESSAGES / 3);
    assert!(numbers.replayed > 0);
}

/// What a bolt does with each attempt at a dead letter.
type Acts = fn(u64, Tuple<u64>, &mut BoltCollector<'_, u64>);

/// A dead letter is a message in flight until a bolt has acked it: it keeps its place, is replayed
/// if it fails, and the spout's `fail` is called with the message's failure when it has ended.
#[test]
fn a_dead_letter_that_goes_to_a_bolt_ends_before_its_message() {
    let lost = |why: &str| vec![format!("a dead letter was not acked: {why}")];
    let cases: [(Acts, u64, Vec<String>); 4] = [
        (|_, tuple, out| out.ack(tuple), 1, vec![]),
        (|nth, tuple, out| if nth < 3 { out.fail(tuple) } else { out.ack(tuple) }, 3, vec![]),
        (|_, tuple, out| out.reject(tuple, "no"), 1, lost("it was rejected by \"dead\": no")),
        (|_, tuple, out| out.fail(tuple), 5, lost("it was failed by \"dead\"")),
    ];
    for (acts, attempts, errors) in cases {
        let (clock, told, builder) = rig();
        let (came, reported) = (Log::new(), Log::new());
        let replay = Replay::default().for_at_least(Duration::ZERO).base(SECOND).jitter(0.0);
        builder.hook(Errors(reported.clone()));
        let numbers = builder.spout("numbers", numbers([7], &told)).replay(replay).max_pending(1);
        let mut attempt = 0;
        bolt(&builder, "picky", &numbers, move |tuple, out| {
            attempt += 1;
            match attempt {
                1 => out.fail(tuple),
                _ => out.reject(tuple, "it is seven"),
            }
        });
        let dead = numbers.dead_letters();
        bolt_with(
            &builder,
            "dead",
            dead.map(|letter| letter.message * 100 + u64::from(letter.attempts)),
            came.clone(),
            move |came, tuple, out| {
                came.note(*tuple);
                acts(came.all().len() as u64, tuple, out);
            },
        );
        let mut topology = builder.simulate(&clock).unwrap();
        topology.hold("dead", true);
        settle(&mut topology);
        clock.advance(SECOND);
        settle(&mut topology);
        let numbers = &topology.metrics()[0];
        assert_eq!((numbers.pending, numbers.dead_letters, ends(&told)), (1, 1, vec![]));
        topology.hold("dead", false);
        run(&mut topology, &clock, SECOND * 100);
        assert!(topology.is_finished());
        assert_eq!(came.all(), vec![702; attempts as usize]);
        assert_eq!(ends(&told), [Told::Fail(7, Why::Rejected)]);
        let failed = "it was failed by \"picky\", false".to_string();
        let given_up = "it was rejected by \"picky\": it is seven, true".to_string();
        assert_eq!(reported.all(), [vec![failed, given_up], errors].concat());
        let numbers = &topology.metrics()[0];
        assert_eq!((numbers.acked, numbers.replayed, numbers.dead_letters), (0, attempts, 1));
    }
}

/// Notes the failures of a spout's messages, and errors.
struct Errors(Log<String>);

impl Hook for Errors {
    fn spout_fail(&self, _: &Context, _: &dyn Debug, failure: &Failure, is_last: bool) {
        self.0.note(format!("{failure}, {is_last}"));
    }
    fn error(&self, _: &Context, error: &str) {
        self.0.note(error.to_string());
    }
}

/// A letter that no bolt listens to, that no bolt gets, or whose function panics, ends with its
/// message.
#[test]
fn each_spouts_dead_letters_have_their_own_way() {
    let (clock, told, builder) = rig();
    let [unheard, dropped, panics] = [("unheard", 1), ("dropped", 2), ("panics", 3)]
        .map(|(name, number)| builder.spout(name, numbers([number], &told)));
    let none = dropped.dead_letters().filter_map(|_| None);
    let panicking = panics.dead_letters().map(|_| std::panic::resume_unwind(Box::new("no letter")));
    bolt(&builder, "picky", &unheard, |tuple, out| out.fail(tuple))
        .shuffle(&dropped)
        .shuffle(&panics)
        .shuffle(none)
        .shuffle(panicking);
    let topology = settled(builder, &clock);
    assert!(topology.is_finished());
    let mut ends = ends(&told);
    ends.sort_by_key(|told| format!("{told:?}"));
    assert_eq!(ends, [1, 2, 3].map(|id| Told::Fail(id, Why::Failed)));
    let spouts = &topology.metrics()[..3];
    assert_eq!([0, 1, 2].map(|at| spouts[at].panics), [0, 0, 1]);
    assert_eq!([0, 1, 2].map(|at| spouts[at].dead_letters), [1, 1, 1]);
}

/// A database that is away for ten minutes makes no dead letters. One that stays away makes them
/// after a quarter of an hour.
#[test]
fn an_outage_of_ten_minutes_uses_up_no_message() {
    for (away, letters) in [(SECOND * 2, 0), (SECOND * 600, 0), (Duration::MAX, 100)] {
        let (clock, _, builder) = rig();
        let given = expiry_topology::VecSpout::new(0..100_u64);
        let spout = builder.spout("numbers", given.instances()).replay(Replay::default());
        let now = clock.clone();
        let stores = move |_: &u64, _: &mut Derive<'_, '_, ()>| {
            let now = Duration::from_nanos(expiry::Clock::now(&now));
            if now < away {
                Err("it is away")
            } else {
                Ok(())
            }
        };
        builder.bolt("database", move |_| sink(stores.clone())).shuffle(&spout);
        let mut topology = builder.simulate(&clock).unwrap();
        let took = run(&mut topology, &clock, SECOND * 1000);
        let numbers = &topology.metrics()[0];
        assert_eq!((numbers.dead_letters, numbers.acked), (letters, 100 - letters), "{away:?}");
        assert!(letters == 0 || took >= SECOND * 900, "{took:?}");
    }
}

/// Bolts downstream know a message again: after a replay, and in another process by its seed.
#[test]
fn each_attempt_of_a_message_has_the_same_lineage() {
    struct Seeded(u64);
    impl expiry_topology::Spout<u64> for Seeded {
        fn next(&mut self, out: &mut expiry_topology::SpoutCollector<'_, u64>) -> Next {
            (0..5).for_each(|n| out.emit_seeded(n, n, self.0 + n).unwrap());
            Next::Done
        }
    }
    let lineages = |seed: u64| {
        let (clock, _, builder) = rig();
        let seen = Log::new();
        let spout = builder.spout("seeded", move |_| Seeded(seed));
        let two = |n: &u64, out: &mut Derive<'_, '_, u64>| (0..2).for_each(|c| out.emit(n * 2 + c));
        let twice = builder.bolt("twice", move |_| basic(two)).all(&spout);
        bolt_with(&builder, "ends", &twice, seen.clone(), |seen, tuple, out| {
            let is_new = seen.all().iter().all(|(n, _)| n != &*tuple);
            seen.note((*tuple, tuple.lineage().unwrap()));
            if is_new {
                out.fail(tuple)
            } else {
                out.ack(tuple)
            }
        });
        let topology = ran(builder, &clock, SECOND * 1000);
        assert!(topology.metrics()[0].replayed >= 5);
        seen.all().into_iter().collect::<BTreeSet<_>>()
    };
    let (one, other) = (lineages(1000), lineages(2000));
    let distinct: BTreeSet<_> = one.iter().chain(&other).map(|(_, lineage)| lineage).collect();
    assert_eq!((one.len(), distinct.len()), (10, 20), "one lineage for each message");
    assert_eq!(one, lineages(1000));
}
