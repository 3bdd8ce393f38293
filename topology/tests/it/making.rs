//! Instances that may be impossible to make.

use crate::common::*;
use expiry_topology::{
    Bolt, BoltCollector, BuildError, Collect, Context, Replay, TopologyBuilder, Tuple, VecSpout,
    WaitStrategy,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Notes its drop.
struct Drops(Log<usize>, usize);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

fn no_instance(builder: TopologyBuilder) -> (String, usize, String) {
    match builder.start().unwrap_err() {
        BuildError::NoInstance { component, task, why } => (component, task, why),
        other => panic!("{other:?}"),
    }
}

/// An instance that cannot be made makes the start fail, with the component's name. Instances that
/// were made before are dropped.
#[test]
fn a_start_fails_with_an_instance() {
    for panics in [false, true] {
        let builder = TopologyBuilder::new();
        let numbers = builder.try_spout("numbers", |_| Ok::<_, String>(VecSpout::new([1])));
        let dropped = Log::new();
        let log = dropped.clone();
        builder
            .try_bolt("sink", move |context| {
                let held = match (context.task(), panics) {
                    (2, true) => std::panic::resume_unwind(Box::new("it is the third")),
                    (2, false) => return Err("it is the third"),
                    (task, _) => Drops(log.clone(), task),
                };
                Ok(each(move |tuple, out| {
                    let _ = &held;
                    out.ack(tuple);
                }))
            })
            .parallelism(4)
            .shuffle(&numbers);
        let why = if panics { "panicked: it is the third" } else { "it is the third" };
        assert_eq!(no_instance(builder), ("sink".to_string(), 2, why.to_string()));
        assert_eq!(dropped.all(), [0, 1]);
    }
}

/// An instance that follows a panic, and cannot be made, is tried again after a pause.
#[test]
fn an_instance_that_cannot_be_made_again_is_tried_later() {
    let (clock, _, builder) = rig();
    let (given, made) = (VecSpout::new([1]), AtomicUsize::new(0));
    let numbers = builder.spout("numbers", given.instances()).replay(Replay::default());
    builder
        .try_bolt("sink", move |_| {
            let made = made.fetch_add(1, Relaxed);
            if made == 1 || made == 2 {
                return Err("not yet");
            }
            Ok(each(move |tuple, out| match made {
                0 => std::panic::resume_unwind(Box::new("the first")),
                _ => out.ack(tuple),
            }))
        })
        .shuffle(&numbers);
    let mut topology = settled(builder, &clock);
    assert_eq!(topology.metrics()[1].errors, 2, "the panic, and one attempt before the pause");
    run(&mut topology, &clock, SECOND * 10);
    assert_eq!(given.acked(), [0]);
    let sink = &topology.metrics()[1];
    assert_eq!((sink.panics, sink.errors), (1, 3));
}

/// A topology that starts inactive makes the components that may fail, and opens and prepares none.
/// One that ends so closes none and cleans none up.
#[test]
fn an_inactive_start_makes_what_may_fail() {
    for ends in [true, false] {
        let (clock, told, builder) = rig();
        let (made, came) = (Log::new(), Collect::new());
        builder.start_inactive();
        let (log, make) = (made.clone(), numbers([7], &told));
        let may_fail = builder.try_spout("may fail", move |context| {
            log.note("may fail");
            Ok::<_, String>(make(context))
        });
        let (log, make) = (made.clone(), numbers([7], &told));
        let cannot_fail = builder.spout("cannot fail", move |context| {
            log.note("cannot fail");
            make(context)
        });
        builder.bolt("sink", came.instances()).shuffle(&may_fail).shuffle(&cannot_fail);
        let (log, calls) = (made.clone(), Log::new());
        let noted = calls.clone();
        let may_fail = builder
            .try_bolt("bolt", move |_| {
                log.note("bolt");
                Ok::<_, String>(Noted(noted.clone()))
            })
            .shuffle(&may_fail)
            .tick_every(SECOND);
        let (log, noted) = (made.clone(), calls.clone());
        let cannot_fail = builder.bolt("last bolt", move |_| {
            log.note("last bolt");
            Noted(noted.clone())
        });
        cannot_fail.shuffle(&may_fail);
        let mut topology = settled(builder, &clock);
        run(&mut topology, &clock, SECOND * 10);
        let first = vec!["may fail", "bolt"];
        let all = || (made.all(), told.all(), calls.all());
        assert_eq!((all(), topology.next_due()), ((first.clone(), vec![], vec![]), None));
        if ends {
            drop(topology);
            assert_eq!(all(), (first, vec![], vec![]));
            continue;
        }
        topology.activate();
        settle(&mut topology);
        assert_eq!(made.all(), [&first[..], &["cannot fail", "last bolt"]].concat());
        assert_eq!((came.all(), calls.all()), (vec![7, 7], vec!["prepare"; 2]));
        assert_eq!(told.all().iter().filter(|told| **told == Told::Open).count(), 2);
    }
}

/// Notes its first and its last call.
struct Noted(Log<&'static str>);

impl Bolt<u64, u64> for Noted {
    fn prepare(&mut self, _: &Context) {
        self.0.note("prepare");
    }
    fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
        out.ack(tuple);
    }
    fn cleanup(&mut self) {
        self.0.note("cleanup");
    }
}

/// A bolt that has not looked while the topology was active is made, and executes what came.
#[test]
fn a_bolt_that_missed_the_activation_executes_what_came() {
    let (clock, told, builder) = rig();
    builder.start_inactive();
    let numbers = builder.spout("numbers", numbers(0..3, &told));
    acks_all(&builder, "sink", &numbers);
    let mut topology = settled(builder, &clock);
    topology.deactivate();
    topology.activate();
    topology.hold("sink", true);
    settle(&mut topology);
    topology.deactivate();
    settle(&mut topology);
    topology.hold("sink", false);
    settle(&mut topology);
    assert_eq!(acks(&told).len(), 3);
}

/// An activation that comes about when a bolt's thread begins to sleep is not missed.
#[test]
fn an_activation_wakes_the_bolts() {
    for _ in 0..100 {
        let (calls, builder) = (Log::new(), TopologyBuilder::new());
        let empty =
            builder.start_inactive().wait(WaitStrategy::Park).spout("empty", |_| VecSpout::new([]));
        let log = calls.clone();
        builder.bolt("noted", move |_| Noted(log.clone())).shuffle(&empty);
        let topology = builder.start().unwrap();
        topology.activate();
        wait_for("the bolt", || calls.all() == ["prepare"]);
        topology.kill();
        assert_eq!(calls.all(), ["prepare", "cleanup"]);
    }
}
