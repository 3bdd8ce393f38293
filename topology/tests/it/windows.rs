//! Windows: what holds the tuples of a key until they are complete, or their time is up.

use crate::common::*;
use expiry_topology::{sink, window, Collect, Derive, ManualClock, Simulation, Tuple, VecSpout};

/// A window's key, and its messages.
type Closed = (u64, Vec<u64>);

fn of(_: &u64, held: &[Tuple<u64>]) -> Vec<u64> {
    held.iter().map(|tuple| **tuple).collect()
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

/// A topology whose windows are of three messages with one last digit, or of ten seconds.
fn windows(numbers: &[u64]) -> (ManualClock, VecSpout<u64>, Collect<Closed>, Simulation) {
    let ((clock, _, builder), seen) = (rig(), Collect::new());
    builder.timeout(SECOND * 60);
    let given = VecSpout::new(numbers.to_vec());
    let numbers = builder.spout("numbers", given.instances());
    let three = |held: &[Tuple<u64>]| held.len() == 3;
    let close = |key: &u64, held: &[Tuple<u64>]| Some((*key, of(key, held)));
    let windows = builder
        .bolt("windows", move |_| window(SECOND * 10, |n| n % 10, three, close))
        .key_by(&numbers, |n| n % 10)
        .tick_every(SECOND);
    builder.bolt("seen", seen.instances()).shuffle(&windows);
    let topology = builder.simulate(&clock).unwrap();
    (clock, given, seen, topology)
}

#[test]
fn a_full_window_closes_at_once_and_the_next_begins_anew() {
    let (clock, given, seen, mut topology) = windows(&[1, 2, 11, 21, 31]);
    settle(&mut topology);
    assert_eq!(seen.all(), [(1, vec![1, 11, 21])]);
    assert_eq!(sorted(given.acked()), [0, 2, 3]);
    clock.advance(SECOND * 9);
    settle(&mut topology);
    assert_eq!(seen.all().len(), 1, "the window that was full has left no timer");
    clock.advance(SECOND);
    settle(&mut topology);
    assert_eq!(seen.all()[1..], [(2, vec![2]), (1, vec![31])]);
    assert_eq!(sorted(given.acked()), [0, 1, 2, 3, 4]);
}

#[test]
fn what_a_window_emits_is_derived_from_all_its_tuples() {
    let ((clock, _, builder), given) = (rig(), VecSpout::new(1..=4));
    let numbers = builder.spout("numbers", given.instances());
    let two = |held: &[Tuple<u64>]| held.len() == 2;
    let windows =
        builder.bolt("windows", move |_| window(SECOND, |_| 0, two, of)).shuffle(&numbers);
    let refuses = |tuple: &u64, out: &mut Derive<'_, '_, ()>| {
        if *tuple == 2 {
            out.reject("it is 2");
        }
    };
    builder.bolt("refuses", move |_| sink(refuses)).shuffle(&windows);
    assert!(builder.simulate(&clock).unwrap().run(100));
    let failed = given.failed().into_iter().map(|(id, _)| id).collect();
    assert_eq!((sorted(failed), sorted(given.acked())), (vec![0, 1], vec![2, 3]));
}
