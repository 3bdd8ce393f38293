//! Which tasks get which message: groupings, streams; and what is refused when a topology is built.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    BuildError, Context, Next, Refused, Replay, Spout, SpoutCollector, SpoutSpec, TopologyBuilder,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// A topology of a spout with this many tasks, and one bolt whose tasks note what they receive.
fn sink(
    spouts: usize,
    numbers: u64,
    tasks: usize,
    group: impl FnOnce(&mut expiry_topology::BoltSpec<'_, u64>),
) -> BTreeMap<usize, Vec<u64>> {
    let (clock, came) = (ManualClock::new(), Log::new());
    let mut builder = builder(&clock);
    builder
        .spout("numbers", move |context| {
            let number = context.task() as u64 * 1000;
            Numbers::new(number..number + numbers, &Log::new())
        })
        .parallelism(spouts)
        .field("parity", |number: &u64| if number % 2 == 0 { &0 } else { &1 })
        .computed_field("odd", |number: &u64| (number % 2) as i32)
        .field("number", |number: &u64| number);
    let mut bolt = builder.bolt("sink", {
        let came = came.clone();
        move |context| {
            let (came, task) = (came.clone(), context.task());
            each(move |tuple, out| {
                came.note((task, *tuple));
                out.ack(tuple);
            })
        }
    });
    bolt.parallelism(tasks);
    group(&mut bolt);
    let topology = settled(builder);
    assert!(topology.is_finished());
    let mut by_task = BTreeMap::<usize, Vec<u64>>::new();
    for (task, number) in came.all() {
        by_task.entry(task).or_default().push(number);
    }
    by_task
}

/// As [`sink`], of a bolt with this grouping.
macro_rules! sink {
    ($spouts:expr, $numbers:expr, $tasks:expr, $($group:tt)+) => {
        sink($spouts, $numbers, $tasks, |bolt| {
            bolt.$($group)+;
        })
    };
}

#[test]
fn shuffle_spreads_evenly_and_keeps_order() {
    let came = sink!(1, 100, 4, shuffle("numbers"));
    assert_eq!(came.len(), 4);
    for numbers in came.values() {
        assert_eq!(numbers.len(), 25);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 4), "{numbers:?}");
    }
}

#[test]
fn equal_fields_go_to_the_same_task_whoever_emits() {
    let came = sink!(3, 100, 4, fields("numbers", ["parity"]));
    let all: usize = came.values().map(Vec::len).sum();
    assert_eq!(all, 300);
    for parity in 0..2 {
        let tasks =
            came.values().filter(|numbers| numbers.iter().any(|number| number % 2 == parity));
        assert_eq!(tasks.count(), 1);
    }
    // What is computed is hashed as what is borrowed.
    let computed = sink!(3, 100, 4, fields("numbers", ["odd"]));
    assert_eq!(computed, came);
    let came = sink!(2, 500, 4, fields("numbers", ["parity", "number"]));
    assert_eq!(came.len(), 4);
    for numbers in came.values() {
        assert!((200..300).contains(&numbers.len()), "{came:?}");
    }
}

#[test]
fn all_global_and_local() {
    let came = sink!(1, 10, 3, all("numbers"));
    assert_eq!(came.values().map(Vec::len).collect::<Vec<_>>(), [10, 10, 10]);
    let came = sink!(2, 10, 3, global("numbers"));
    assert_eq!(came.keys().collect::<Vec<_>>(), [&0]);
    let came = sink!(4, 10, 3, local_or_shuffle("numbers"));
    assert!(came[&1].iter().all(|number| number / 1000 == 1));
    assert_eq!(came[&0].len(), 20, "of the first and the fourth");
}

/// Emits one message in each way.
struct Ways;

impl Spout<u64> for Ways {
    fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
        out.emit_on("other", 1, 1).unwrap();
        out.emit_direct("direct", 2, 2, 2).unwrap();
        let refused = out.emit_direct("direct", 3, 3, 3).unwrap_err();
        assert_eq!((refused.message, refused.why), (3, Refused::NoSuchTask));
        let refused = out.emit_on("nowhere", 4, 4).unwrap_err();
        assert_eq!((refused.message, refused.why), (4, Refused::UndeclaredStream));
        out.emit_untracked(5).unwrap();
        // Components listen to it by direct grouping only.
        out.emit_on("direct", 6, 6).unwrap();
        Next::Done
    }
}

#[test]
fn streams_and_direct_messages() {
    let (clock, came) = (ManualClock::new(), Log::new());
    let mut builder = builder(&clock);
    builder.spout("ways", |_| Ways).stream("other").stream("direct");
    let mut bolt = builder.bolt("sink", {
        let came = came.clone();
        move |context| {
            let (came, task) = (came.clone(), context.task());
            each(move |tuple, out| {
                let (component, stream) = out.source(&tuple);
                assert_eq!(component, "ways");
                came.note((stream.to_string(), task, *tuple));
                out.ack(tuple);
            })
        }
    });
    bolt.parallelism(3).global("ways").global(("ways", "other")).direct(("ways", "direct"));
    let topology = settled(builder);
    let mut came = came.all();
    came.sort();
    let expected = [("default", 0, 5), ("direct", 2, 2), ("other", 0, 1)];
    assert_eq!(came, expected.map(|(stream, task, n)| (stream.to_string(), task, n)));
    // Three were tracked; one of them had no task to go to.
    assert_eq!((topology.metrics()[0].acked, topology.metrics()[0].pending), (3, 0));
}

/// What building a topology of this says.
fn refused(declare: impl FnOnce(&mut TopologyBuilder<u64>)) -> BuildError {
    let mut builder = TopologyBuilder::new();
    declare(&mut builder);
    let error = builder.start_manual().expect_err("it is refused");
    assert!(!error.to_string().is_empty());
    error
}

/// As [`refused`], of these calls.
macro_rules! refused {
    ($builder:ident: $($call:expr);+) => {
        refused(|$builder| { $($call;)+ })
    };
}

fn none(_: &Context) -> Numbers {
    Numbers::new([], &Log::new())
}

fn spout(builder: &mut TopologyBuilder<u64>) -> SpoutSpec<'_, u64> {
    builder.spout("numbers", none)
}

fn nothing(_: &Context) -> impl expiry_topology::Bolt<u64> {
    each(|_, _| ())
}

#[test]
fn bad_graphs_are_refused_by_name() {
    use BuildError::*;
    let nobody = UnknownComponent { component: "bolt".into(), source: "nobody".into() };
    let cases = [
        (refused(|_| ()), NoSpout),
        (refused!(b: spout(b); spout(b)), DuplicateName("numbers".into())),
        (refused!(b: b.spout("", none)), EmptyName),
        (refused!(b: spout(b); b.bolt("deaf", nothing)), NoInput("deaf".into())),
        (refused!(b: spout(b); b.bolt("bolt", nothing).shuffle("nobody")), nobody),
        (
            refused!(b: spout(b); b.bolt("bolt", nothing).shuffle(("numbers", "late"))),
            UnknownStream {
                component: "bolt".into(),
                source: "numbers".into(),
                stream: "late".into(),
            },
        ),
        (
            refused!(b: spout(b); b.bolt("bolt", nothing).fields("numbers", ["colour"])),
            UnknownField {
                component: "bolt".into(),
                source: "numbers".into(),
                stream: "default".into(),
                field: "colour".into(),
            },
        ),
        (
            refused!(b: spout(b); b.bolt("bolt", nothing).fields("numbers", [])),
            NoFields("bolt".into()),
        ),
        (
            refused!(b:
                spout(b);
                b.bolt("a", nothing).shuffle("b");
                b.bolt("b", nothing).shuffle("a")),
            Unreachable(vec!["a".into(), "b".into()]),
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error, expected);
    }
    for (tasks, threads) in [(0, 1), (1, 0), (1, 2)] {
        let bad = refused!(b: spout(b).parallelism(tasks).threads(threads));
        assert_eq!(bad, BadParallelism { component: "numbers".into(), tasks, threads });
    }
    let twice = refused!(b: spout(b); b.bolt("bolt", nothing).shuffle("numbers").stream("default"));
    assert!(matches!(twice, DuplicateStream { .. }));
    let twice = refused!(b: spout(b).field("n", |n: &u64| n).field("n", |n: &u64| n));
    assert!(matches!(twice, DuplicateField { .. }));
}

#[test]
fn bad_settings_are_refused_by_name() {
    let long = Duration::from_secs(18 * 365 * 86_400);
    let cases = [
        (refused!(b: spout(b).max_pending(0)), "numbers", "max_pending"),
        (refused!(b: spout(b).max_pending(usize::MAX)), "numbers", "max_pending"),
        (refused!(b: spout(b).replay(Replay::default().attempts(0))), "numbers", "replay"),
        (refused!(b: spout(b).replay(Replay::default().factor(0.5))), "numbers", "replay"),
        (refused!(b: spout(b).replay(Replay::default().factor(f64::NAN))), "numbers", "replay"),
        (refused!(b: spout(b).replay(Replay::default().jitter(1.5))), "numbers", "replay"),
        (refused!(b: spout(b); b.queue(0)), "", "queue"),
        (refused!(b: spout(b); b.batch(0)), "", "batch"),
        (
            refused!(b:
                spout(b);
                b.bolt("bolt", nothing).shuffle("numbers").tick_every(Duration::ZERO)),
            "bolt",
            "tick_every",
        ),
        (refused!(b: b.acking(false); spout(b).replay(Default::default())), "numbers", "replay"),
        (refused!(b: spout(b).stream("")), "numbers", "stream"),
        (refused!(b: spout(b).field("", |number| number)), "numbers", "field"),
        (refused!(b: spout(b).timeout(Duration::ZERO)), "numbers", "timeout"),
        (
            refused!(b: b.interval(Duration::from_millis(1)); spout(b).timeout(long)),
            "numbers",
            "timeout",
        ),
    ];
    for (error, at, name) in cases {
        match error {
            BuildError::Setting { component, setting, .. } => {
                assert_eq!((&*component, setting), (at, name));
            }
            other => panic!("{at} {name}: {other:?}"),
        }
    }
    let why = "is zero; for none it takes Duration::MAX";
    let zero = BuildError::Setting { component: String::new(), setting: "timeout", why };
    assert_eq!(refused!(b: spout(b); b.timeout(Duration::ZERO)), zero);
}
