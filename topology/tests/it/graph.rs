//! Who gets what: groupings, streams; and what is refused when a topology is built.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{BuildError, Next, Refused, Replay, Spout, SpoutCollector, TopologyBuilder};
use std::collections::BTreeMap;
use std::time::Duration;

/// A topology of a spout with this many tasks, and one bolt whose tasks note what comes to them.
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
    let mut topology = builder.start_manual().unwrap();
    settle(&mut topology);
    assert!(topology.is_finished());
    let mut by_task = BTreeMap::<usize, Vec<u64>>::new();
    for (task, number) in came.all() {
        by_task.entry(task).or_default().push(number);
    }
    by_task
}

#[test]
fn shuffle_spreads_evenly_and_keeps_order() {
    let came = sink(1, 100, 4, |bolt| {
        bolt.shuffle("numbers");
    });
    assert_eq!(came.len(), 4);
    for numbers in came.values() {
        assert_eq!(numbers.len(), 25);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 4), "{numbers:?}");
    }
}

#[test]
fn equal_fields_go_to_the_same_task_whoever_emits() {
    let came = sink(3, 100, 4, |bolt| {
        bolt.fields("numbers", ["parity"]);
    });
    let all: usize = came.values().map(Vec::len).sum();
    assert_eq!(all, 300);
    for parity in 0..2 {
        let tasks =
            came.values().filter(|numbers| numbers.iter().any(|number| number % 2 == parity));
        assert_eq!(tasks.count(), 1);
    }
    // What is computed is hashed as what is borrowed.
    let computed = sink(3, 100, 4, |bolt| {
        bolt.fields("numbers", ["odd"]);
    });
    assert_eq!(computed, came);
    let came = sink(2, 500, 4, |bolt| {
        bolt.fields("numbers", ["parity", "number"]);
    });
    assert_eq!(came.len(), 4);
    for numbers in came.values() {
        assert!((200..300).contains(&numbers.len()), "{came:?}");
    }
}

#[test]
fn all_global_and_local() {
    let came = sink(1, 10, 3, |bolt| {
        bolt.all("numbers");
    });
    assert_eq!(came.values().map(Vec::len).collect::<Vec<_>>(), [10, 10, 10]);
    let came = sink(2, 10, 3, |bolt| {
        bolt.global("numbers");
    });
    assert_eq!(came.keys().collect::<Vec<_>>(), [&0]);
    let came = sink(4, 10, 3, |bolt| {
        bolt.local_or_shuffle("numbers");
    });
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
        // Nobody listens to it unless directly.
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
    let mut topology = builder.start_manual().unwrap();
    settle(&mut topology);
    let mut came = came.all();
    came.sort();
    let expected = [("default", 0, 5), ("direct", 2, 2), ("other", 0, 1)];
    assert_eq!(came, expected.map(|(stream, task, n)| (stream.to_string(), task, n)));
    // Three tracked ones, one of which had nobody to go to.
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

fn numbers(builder: &mut TopologyBuilder<u64>) {
    builder.spout("numbers", |_| Numbers::new([], &Log::new()));
}

fn nothing(_: &expiry_topology::Context) -> impl expiry_topology::Bolt<u64> {
    each(|_, _| ())
}

#[test]
fn bad_graphs_are_refused_by_name() {
    use BuildError::*;
    assert_eq!(refused(|_| ()), NoSpout);
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            numbers(builder);
        }),
        DuplicateName("numbers".into())
    );
    assert_eq!(
        refused(|builder| {
            builder.spout("", |_| Numbers::new([], &Log::new()));
        }),
        EmptyName
    );
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            builder.bolt("deaf", nothing);
        }),
        NoInput("deaf".into())
    );
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            builder.bolt("bolt", nothing).shuffle("nobody");
        }),
        UnknownComponent { component: "bolt".into(), source: "nobody".into() }
    );
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            builder.bolt("bolt", nothing).shuffle(("numbers", "late"));
        }),
        UnknownStream { component: "bolt".into(), source: "numbers".into(), stream: "late".into() }
    );
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            builder.bolt("bolt", nothing).fields("numbers", ["colour"]);
        }),
        UnknownField {
            component: "bolt".into(),
            source: "numbers".into(),
            stream: "default".into(),
            field: "colour".into()
        }
    );
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            builder.bolt("bolt", nothing).fields("numbers", []);
        }),
        NoFields("bolt".into())
    );
    assert_eq!(
        refused(|builder| {
            numbers(builder);
            builder.bolt("a", nothing).shuffle("b");
            builder.bolt("b", nothing).shuffle("a");
        }),
        Unreachable(vec!["a".into(), "b".into()])
    );
    for (tasks, threads) in [(0, 1), (1, 0), (1, 2)] {
        let bad = refused(|builder| {
            let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
            spout.parallelism(tasks).threads(threads);
        });
        let component = "numbers".to_string();
        assert_eq!(bad, BadParallelism { component, tasks, threads });
    }
    assert!(matches!(
        refused(|builder| {
            numbers(builder);
            let mut bolt = builder.bolt("bolt", nothing);
            bolt.shuffle("numbers").stream("default");
        }),
        DuplicateStream { .. }
    ));
    assert!(matches!(
        refused(|builder| {
            let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
            spout.field("n", |n: &u64| n).field("n", |n: &u64| n);
        }),
        DuplicateField { .. }
    ));
}

#[test]
fn bad_settings_are_refused_by_name() {
    let setting = |error| match error {
        BuildError::Setting { component, setting, .. } => (component, setting),
        other => panic!("{other:?}"),
    };
    let spout = |set: fn(&mut expiry_topology::SpoutSpec<'_, u64>)| {
        refused(|builder| set(&mut builder.spout("numbers", |_| Numbers::new([], &Log::new()))))
    };
    for bad in [
        spout(|spout| {
            spout.max_pending(0);
        }),
        spout(|spout| {
            spout.max_pending(usize::MAX);
        }),
    ] {
        assert_eq!(setting(bad), ("numbers".into(), "max_pending"));
    }
    for bad in [
        spout(|spout| {
            spout.replay(Replay::default().attempts(0));
        }),
        spout(|spout| {
            spout.replay(Replay::default().factor(0.5));
        }),
        spout(|spout| {
            spout.replay(Replay::default().factor(f64::NAN));
        }),
        spout(|spout| {
            spout.replay(Replay::default().jitter(1.5));
        }),
    ] {
        assert_eq!(setting(bad), ("numbers".into(), "replay"));
    }
    let topology = |set: fn(&mut TopologyBuilder<u64>)| {
        refused(|builder| {
            numbers(builder);
            set(builder);
        })
    };
    assert_eq!(
        setting(topology(|builder| {
            builder.queue(0);
        }))
        .1,
        "queue"
    );
    assert_eq!(
        setting(topology(|builder| {
            builder.batch(0);
        }))
        .1,
        "batch"
    );
    let tick = topology(|builder| {
        let mut bolt = builder.bolt("bolt", nothing);
        bolt.shuffle("numbers").tick_every(Duration::ZERO);
    });
    assert_eq!(setting(tick), ("bolt".into(), "tick_every"));
    assert_eq!(
        topology(|builder| {
            builder.timeout(Duration::ZERO);
        }),
        BuildError::Setting {
            component: String::new(),
            setting: "timeout",
            why: "is zero; for none it takes Duration::MAX"
        }
    );
    let replays = refused(|builder| {
        builder.acking(false);
        let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
        spout.replay(Default::default());
    });
    assert_eq!(setting(replays), ("numbers".into(), "replay"));
    let unnamed = refused(|builder| {
        let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
        spout.stream("");
    });
    assert_eq!(setting(unnamed), ("numbers".into(), "stream"));
    let unnamed = refused(|builder| {
        let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
        spout.field("", |number| number);
    });
    assert_eq!(setting(unnamed), ("numbers".into(), "field"));
    let spout_timeout = refused(|builder| {
        let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
        spout.timeout(Duration::ZERO);
    });
    assert_eq!(setting(spout_timeout), ("numbers".into(), "timeout"));
    let long_timeout = refused(|builder| {
        builder.interval(Duration::from_millis(1));
        let mut spout = builder.spout("numbers", |_| Numbers::new([], &Log::new()));
        spout.timeout(Duration::from_secs(18 * 365 * 86_400));
    });
    assert_eq!(setting(long_timeout), ("numbers".into(), "timeout"));
}
