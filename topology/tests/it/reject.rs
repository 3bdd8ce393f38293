//! Permanent failures: a message that a bolt rejects gets no other attempt.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{basic, Context, DeadLetter, ManualTopology, Replay, TopologyBuilder};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// A dead letter's message, its number of attempts, and its failure.
type Letter = (u64, u32, String);

/// A rig whose spout emits these numbers, each up to five times, and a log of its dead letters.
fn rejecting<const N: usize>(
    numbers_of: [u64; N],
) -> (ManualClock, Log<Told>, Log<Letter>, TopologyBuilder<u64>) {
    let (clock, told, mut builder) = rig();
    let letters = Log::new();
    let log = letters.clone();
    builder.on_dead_letter(move |letter: DeadLetter<u64>| {
        log.note((letter.message, letter.attempts, letter.failure.to_string()));
    });
    let replay = Replay::default().base(SECOND).jitter(0.0);
    builder.spout("numbers", numbers_by(N, numbers_of, &told)).replay(replay);
    (clock, told, letters, builder)
}

fn finished(builder: TopologyBuilder<u64>, clock: &ManualClock) -> ManualTopology<u64> {
    let mut topology = builder.start_manual().unwrap();
    run(&mut topology, clock, SECOND * 100);
    assert!(topology.is_finished());
    topology
}

fn ends(told: &Log<Told>) -> Vec<Told> {
    let mut told = told.all();
    told.retain(|told| matches!(told, Told::Ack(_) | Told::Fail(..)));
    told
}

fn letter(message: u64, attempts: u32, failure: &str) -> Letter {
    (message, attempts, failure.to_string())
}

/// A rejected message is a dead letter at its first attempt, with the reason. A plain failure
/// beside it is replayed.
#[test]
fn a_rejected_message_is_given_up_at_once() {
    let (clock, told, letters, mut builder) = rejecting([1, 2]);
    let attempts = Arc::new(AtomicU64::new(0));
    bolt_with(&mut builder, "picky", "numbers", attempts, |attempts, tuple, out| match *tuple {
        1 => out.reject(tuple, "it is one"),
        _ if attempts.fetch_add(1, Relaxed) == 0 => out.fail_with(tuple, "once more"),
        _ => out.ack(tuple),
    });
    let topology = finished(builder, &clock);
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
    let (clock, told, letters, mut builder) = rejecting([1]);
    let attempts = Arc::new(AtomicU64::new(0));
    // In simulations the bolt that was declared first executes first.
    bolt_with(&mut builder, "fails", "numbers", attempts, |attempts, tuple, out| {
        match attempts.fetch_add(1, Relaxed) {
            0 => out.fail(tuple),
            _ => out.ack(tuple),
        }
    });
    bolt(&mut builder, "rejects", "numbers", |tuple, out| out.reject(tuple, "no"));
    let topology = finished(builder, &clock);
    assert_eq!(letters.all(), [letter(1, 2, "it was rejected by \"rejects\": no")]);
    assert_eq!(ends(&told), [Told::Fail(1, Why::Rejected)]);
    let rejects = &topology.metrics()[2];
    assert_eq!((rejects.failed, rejects.trees_failed, rejects.late), (2, 1, 1));
}

/// A rejection that comes after the timeout of its attempt concerns neither the next attempt nor the
/// failure that the same thread causes next.
#[test]
fn a_rejection_after_a_timeout_is_dropped() {
    let (clock, told, letters, mut builder) = rejecting([1]);
    let slow = |_: &Context| {
        let (mut late, mut attempts) = (None, 0);
        each(move |tuple, out| {
            attempts += 1;
            match (attempts, late.take()) {
                (1, _) => late = Some(tuple),
                (_, Some(late)) => {
                    out.reject(late, "too late");
                    out.fail(tuple);
                }
                (_, None) => out.ack(tuple),
            }
        })
    };
    builder.bolt("slow", slow).shuffle("numbers");
    let topology = finished(builder, &clock);
    assert_eq!((letters.all(), ends(&told)), (vec![], vec![Told::Ack(1)]));
    let (numbers, slow) = (&topology.metrics()[0], &topology.metrics()[1]);
    assert_eq!((numbers.timed_out, numbers.failed, slow.late), (1, 1, 1));
}

/// A `basic` bolt rejects its input whatever it returns. A bolt that panics has not rejected.
#[test]
fn a_function_rejects_its_input() {
    let (clock, told, letters, mut builder) = rejecting([1, 2, 3, 4]);
    let panics = Arc::new(AtomicU64::new(0));
    builder
        .bolt("picky", move |_| {
            let panics = panics.clone();
            basic(move |n: &u64, out| {
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
        .shuffle("numbers");
    let topology = finished(builder, &clock);
    let by = |n: u64| format!("it was rejected by \"picky\": {n} is odd");
    assert_eq!(letters.all(), [letter(3, 1, &by(3)), letter(1, 2, &by(1))]);
    let picky = &topology.metrics()[1];
    assert_eq!((picky.failed, picky.errors, picky.panics), (3, 3, 1), "{:?}", told.all());
}

/// On threads, where rejections, failures and acks of the same trees race: a rejection that ends its
/// tree gives up its message, and all other messages are acked in the end.
#[test]
fn each_rejection_that_ends_a_tree_gives_up_its_message() {
    const MESSAGES: u64 = 30_000;
    let (told, letters) = (Log::new(), Log::new());
    let mut builder = TopologyBuilder::new();
    let log = letters.clone();
    builder.batch(4).on_dead_letter(move |letter: DeadLetter<u64>| {
        log.note((letter.message, letter.failure.to_string()));
    });
    let replay = Replay::default().without_limit().base(Duration::ZERO);
    builder.spout("numbers", numbers_by(64, 0..MESSAGES, &told)).replay(replay);
    bolt(&mut builder, "rejects", "numbers", |tuple, out| match *tuple % 3 {
        0 => out.reject(tuple, "a third"),
        _ => out.ack(tuple),
    });
    let mut executed = 0;
    bolt(&mut builder, "fails", "numbers", move |tuple, out| {
        executed += 1;
        match executed % 2 {
            0 => out.fail_with(tuple, "a half"),
            _ => out.ack(tuple),
        }
    });
    let topology = builder.start().unwrap();
    topology.wait(SECOND * 60).unwrap();
    let mut letters = letters.take();
    letters.sort();
    let why = "it was rejected by \"rejects\": a third";
    let thirds = (0..MESSAGES).step_by(3).map(|n| (n, why.to_string()));
    assert!(letters.into_iter().eq(thirds));
    let (numbers, rejects) = (&topology.metrics()[0], &topology.metrics()[1]);
    assert_eq!((numbers.acked, numbers.dead_letters), (MESSAGES * 2 / 3, MESSAGES / 3));
    assert_eq!(rejects.trees_failed, MESSAGES / 3);
    assert!(numbers.replayed > 0);
}
