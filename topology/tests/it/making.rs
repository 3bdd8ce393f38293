//! Instances that may be impossible to make.

use crate::common::*;
use expiry_topology::{BuildError, Collect, Replay, TopologyBuilder, VecSpout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Notes its drop, and panics there.
struct Drops(Log<usize>, usize);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.note(self.1);
        std::panic::resume_unwind(Box::new("no drop"));
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

/// A topology that starts inactive makes the spouts that may fail, and opens none. One that ends so
/// closes none.
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
        let mut topology = settled(builder, &clock);
        assert_eq!((made.all(), told.all()), (vec!["may fail"], vec![]));
        if ends {
            drop(topology);
            assert_eq!((made.all(), told.all()), (vec!["may fail"], vec![]));
            continue;
        }
        topology.activate();
        settle(&mut topology);
        assert_eq!((made.all(), came.all()), (vec!["may fail", "cannot fail"], vec![7, 7]));
        assert_eq!(told.all().iter().filter(|told| **told == Told::Open).count(), 2);
    }
}
