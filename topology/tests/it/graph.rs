//! Which tasks get which message: groupings, streams; and what is refused when a topology is built.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    BoltStage, BuildError, Collect, Context, DeadLetter, Next, Replay, Spout, SpoutCollector,
    SpoutStage, TopologyBuilder, VecSpout,
};
use std::collections::BTreeMap;
use std::time::Duration;

type Sink<'t> = BoltStage<'t, u64, u64>;
type Source<'t> = SpoutStage<'t, u64>;

/// A topology of a spout with this many tasks, and one bolt whose tasks note what they receive.
fn into_sink(
    spouts: usize,
    numbers: u64,
    tasks: usize,
    group: impl for<'t> Fn(Sink<'t>, &Source<'t>) -> Sink<'t>,
) -> BTreeMap<usize, Vec<u64>> {
    let ((clock, _, builder), came) = (rig(), Log::new());
    let source = builder
        .spout("numbers", move |context| {
            let number = context.task() as u64 * 1000;
            Numbers::new(number..number + numbers, &Log::new())
        })
        .parallelism(spouts);
    let bolt = builder.bolt("sink", {
        let came = came.clone();
        move |context| {
            let (came, task) = (came.clone(), context.task());
            each(move |tuple, out| {
                came.note((task, *tuple));
                out.ack(tuple);
            })
        }
    });
    group(bolt.parallelism(tasks), &source);
    let topology = settled(builder, &clock);
    assert!(topology.is_finished());
    let mut by_task = BTreeMap::<usize, Vec<u64>>::new();
    for (task, number) in came.all() {
        by_task.entry(task).or_default().push(number);
    }
    by_task
}

#[test]
fn shuffle_spreads_evenly_and_keeps_order() {
    let came = into_sink(1, 100, 4, |bolt, numbers| bolt.shuffle(numbers));
    assert_eq!(came.len(), 4);
    for numbers in came.values() {
        assert_eq!(numbers.len(), 25);
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 4), "{numbers:?}");
    }
}

#[test]
fn equal_keys_go_to_the_same_task_whoever_emits() {
    fn parity(number: &u64) -> &i32 {
        &[0, 1][(number % 2) as usize]
    }
    let came = into_sink(3, 100, 4, |bolt, numbers| bolt.fields(numbers, parity));
    let all: usize = came.values().map(Vec::len).sum();
    assert_eq!(all, 300);
    for parity in 0..2 {
        let tasks =
            came.values().filter(|numbers| numbers.iter().any(|number| number % 2 == parity));
        assert_eq!(tasks.count(), 1);
    }
    // What is computed is hashed as what is borrowed.
    let odd = |number: &u64| (number % 2) as i32;
    let computed = into_sink(3, 100, 4, |bolt, numbers| bolt.key_by(numbers, odd));
    assert_eq!(computed, came);
    let came = into_sink(2, 500, 4, |bolt, numbers| bolt.key_by(numbers, |n| (n % 2, *n)));
    assert_eq!(came.len(), 4);
    for numbers in came.values() {
        assert!((200..300).contains(&numbers.len()), "{came:?}");
    }
}

#[test]
fn all_global_and_direct() {
    let came = into_sink(1, 10, 3, |bolt, numbers| bolt.all(numbers));
    assert_eq!(came.values().map(Vec::len).collect::<Vec<_>>(), [10, 10, 10]);
    let came = into_sink(2, 10, 3, |bolt, numbers| bolt.global(numbers));
    assert_eq!(came.keys().collect::<Vec<_>>(), [&0]);
    let came = into_sink(1, 10, 3, |bolt, numbers| bolt.direct(numbers, |n| *n as usize));
    assert_eq!(came, [(0, vec![0, 3, 6, 9]), (1, vec![1, 4, 7]), (2, vec![2, 5, 8])].into());
}

#[test]
fn maps_and_filters() {
    let clock = ManualClock::new();
    let (texts, odd) = (Collect::<String>::new(), Collect::<u64>::new());
    let builder = builder(&clock);
    let ways = builder.spout("ways", |_| VecSpout::new(0..4_u64));
    builder
        .bolt("texts", texts.instances())
        .parallelism(2)
        .global(ways.stream().map(|n| format!("<{n}>")))
        .all(ways.stream().filter_map(|n| (*n == 2).then(|| "two".to_string())));
    builder.bolt("odd", odd.instances()).shuffle(ways.stream().filter(|n| n % 2 == 1));
    let topology = settled(builder, &clock);
    assert_eq!(odd.all(), [1, 3]);
    let mut texts = texts.all();
    texts.sort();
    assert_eq!(texts, ["<0>", "<1>", "<2>", "<3>", "two", "two"]);
    let metrics = topology.metrics();
    assert_eq!((metrics[0].acked, metrics[0].transferred), (4, 8));
    let inputs = &metrics[1].inputs;
    let of = |at: usize| (inputs[at].source.as_str(), inputs[at].executed, inputs[at].acked);
    assert_eq!((of(0), of(1)), (("ways", 4, 4), ("ways", 2, 2)));
}

/// The tasks that each message was sent to, after the name of the component that emitted it.
type Sent = Log<(&'static str, Vec<(usize, usize)>)>;

/// Emits three messages, and one that is not tracked.
struct Ways(Sent);

impl Spout<u64> for Ways {
    fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
        for n in 0..3 {
            out.emit(n, n).unwrap();
            self.0.note(("ways", out.sent_to().to_vec()));
        }
        out.emit_untracked(3);
        self.0.note(("ways", out.sent_to().to_vec()));
        Next::Done
    }
}

/// The last grouping's closure panics over the second message, which no task gets.
#[test]
fn components_that_ask_learn_which_tasks_get_a_message() {
    let ((clock, _, builder), sent) = (rig(), Sent::new());
    let noted = sent.clone();
    let ways = builder.spout("ways", move |_| Ways(noted.clone())).note_sent();
    let passes = |name| {
        let pass = bolt_with(&builder, name, &ways, sent.clone(), move |sent, tuple, out| {
            out.emit(&tuple, *tuple);
            sent.note((name, out.sent_to().to_vec()));
            out.ack(tuple);
        });
        let behind = builder.bolt(&format!("behind {name}"), Collect::new().instances());
        behind.parallelism(2).all(&pass);
        pass
    };
    passes("asks").note_sent();
    passes("does not ask");
    let ends = builder.bolt("ends", Collect::new().instances()).parallelism(2);
    ends.all(ways.stream().filter(|n| *n == 2)).direct(&ways, |n| match n {
        1 => panic(),
        n => *n as usize,
    });
    settled(builder, &clock);
    let of = |name| {
        let sent = sent.all().into_iter().filter(|(by, _)| *by == name);
        sent.map(|(_, tasks)| tasks).collect::<Vec<_>>()
    };
    // Groupings are numbered in the order of declaration.
    let first = vec![(0, 0), (1, 0), (3, 0)];
    let third = vec![(0, 0), (1, 0), (2, 0), (2, 1), (3, 0)];
    let untracked = vec![(0, 0), (1, 0), (3, 1)];
    assert_eq!(of("ways"), [first, vec![], third, untracked]);
    assert_eq!(of("asks"), [[(0, 0), (0, 1)]; 3]);
    assert_eq!(of("does not ask"), [[], [], []]);
}

/// A message that no listener keeps is acked.
#[test]
fn what_is_filtered_out_everywhere_is_acked() {
    let (clock, told, builder) = rig();
    let source = builder.spout("numbers", numbers(0..4, &told));
    builder.bolt("none", Collect::new().instances()).shuffle(source.stream().filter(|_| false));
    let topology = settled(builder, &clock);
    assert_eq!((topology.metrics()[0].acked, topology.metrics()[1].executed), (4, 0));
}

/// Latencies are taken of one in so many, of each grouping by itself.
#[test]
fn latencies_are_sampled_as_often_as_asked() {
    for (every, taken) in [(1, 12), (4, 3), (0, 0)] {
        let (clock, told, builder) = rig();
        builder.sample_every(every);
        let source = builder.spout("numbers", numbers(0..12, &told));
        bolt(&builder, "sink", &source, |tuple, out| out.ack(tuple));
        let metrics = settled(builder, &clock).metrics();
        let input = &metrics[1].inputs[0];
        let counts = [&metrics[0].latency, &metrics[1].latency, &input.execute, &input.process];
        assert_eq!(counts.map(|latency| latency.count()), [taken; 4]);
    }
}

/// A spout ticks, also while it has no room.
#[test]
fn spouts_tick() {
    struct Ticks(Log<u64>);
    impl Spout<u64> for Ticks {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            out.emit(1, 1).map_or(Next::Idle, |()| Next::Ready)
        }
        fn tick(&mut self) {
            self.0.note(1);
        }
    }
    let ((clock, _, builder), ticks) = (rig(), Log::new());
    builder.timeout(SECOND * 100);
    let noted = ticks.clone();
    let source =
        builder.spout("ticks", move |_| Ticks(noted.clone())).max_pending(1).tick_every(SECOND * 3);
    bolt(&builder, "drop", &source, |_, _| ());
    let mut topology = builder.simulate(&clock).unwrap();
    for _ in 0..10 {
        settle(&mut topology);
        clock.advance(SECOND);
    }
    assert_eq!(ticks.all().len(), 3);
}

/// What building a topology of this says.
fn refused(declare: impl FnOnce(&TopologyBuilder)) -> BuildError {
    let builder = TopologyBuilder::new();
    declare(&builder);
    let error = builder.simulate(&ManualClock::new()).expect_err("it is refused");
    assert!(!error.to_string().is_empty());
    error
}

/// As [`refused`], of these calls.
macro_rules! refused {
    ($builder:ident: $($call:tt)+) => {
        refused(|$builder| { $($call)+; })
    };
}

fn none(_: &Context) -> Numbers {
    Numbers::new([], &Log::new())
}

fn spout(builder: &TopologyBuilder) -> Source<'_> {
    builder.spout("numbers", none)
}

fn nothing(_: &Context) -> impl expiry_topology::Bolt<u64, u64> {
    each(|_, _| ())
}

#[test]
fn bad_graphs_are_refused_by_name() {
    use BuildError::*;
    let other = TopologyBuilder::new();
    let cases = [
        (refused(|_| ()), NoSpout),
        (refused!(b: spout(b); spout(b)), DuplicateName("numbers".into())),
        (refused!(b: b.spout("", none)), EmptyName),
        (refused!(b: spout(b); b.bolt("deaf", nothing)), NoInput("deaf".into())),
        (
            refused!(b:
                let a = b.bolt("a", nothing);
                let b_ = b.bolt("b", nothing).shuffle(&a);
                spout(b);
                a.shuffle(&b_)),
            Unreachable(vec!["a".into(), "b".into()]),
        ),
    ];
    for (error, expected) in cases {
        assert_eq!(error, expected);
    }
    let builder = TopologyBuilder::new();
    builder.bolt("lost", nothing).shuffle(&spout(&other)).shuffle(&spout(&builder));
    assert_eq!(builder.start().unwrap_err(), OtherTopology("lost".into()));
    for (tasks, threads) in [(0, 1), (1, 0), (1, 2)] {
        let bad = refused!(b: spout(b).parallelism(tasks).threads(threads));
        assert_eq!(bad, BadParallelism { component: "numbers".into(), tasks, threads });
    }
    let shards = refused!(b: spout(b); b.shards(3));
    assert_eq!(shards, Tracker(expiry::BuildError::BadShards { shards: 3 }));
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
        (refused!(b: spout(b).tick_every(Duration::ZERO)), "numbers", "tick_every"),
        (refused!(b: b.acking(false); spout(b).replay(Default::default())), "numbers", "replay"),
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

/// A full tracker holds the spouts back, and loses nothing.
#[test]
fn the_capacity_of_the_tracker_bounds_all_spouts_together() {
    let (clock, told, builder) = rig();
    builder.capacity(5);
    let source = builder.spout("numbers", numbers(0..50, &told)).parallelism(2);
    let sink = Collect::new();
    builder.bolt("sink", sink.instances()).shuffle(&source);
    let letters = Collect::<DeadLetter<u64>>::new();
    builder.bolt("letters", letters.instances()).shuffle(source.dead_letters());
    let mut topology = builder.simulate(&clock).unwrap();
    topology.hold("sink", true);
    settle(&mut topology);
    assert!(topology.tracker_metrics().unwrap().total.live <= 5);
    topology.hold("sink", false);
    assert!(topology.run(100_000));
    assert_eq!((sink.all().len(), topology.metrics()[0].acked, letters.all().len()), (100, 100, 0));
}
