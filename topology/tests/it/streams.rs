//! Spouts of streams.

use crate::common::{panic, wait_for};
use expiry::ManualClock;
use expiry_topology::{sink, Collect, StreamSpout, TopologyBuilder};
use futures_core::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// What a stream gives: numbers. `None` is its end, and it panics at 13.
#[derive(Clone, Default)]
struct Numbers(Arc<Mutex<Given>>);

#[derive(Default)]
struct Given {
    numbers: VecDeque<Option<u64>>,
    polls: usize,
    waker: Option<Waker>,
}

impl Numbers {
    fn of(numbers: impl IntoIterator<Item = u64>) -> Self {
        let all = Numbers::default();
        all.0.lock().unwrap().numbers.extend(numbers.into_iter().map(Some));
        all
    }

    fn put(&self, number: Option<u64>) {
        let waker = {
            let mut given = self.0.lock().unwrap();
            given.numbers.push_back(number);
            given.waker.take()
        };
        waker.expect("it is asked for more").wake();
    }

    fn polls(&self) -> usize {
        self.0.lock().unwrap().polls
    }

    fn await_polls(&self, polls: usize) {
        wait_for("polls of the stream", || self.polls() >= polls);
    }
}

impl Stream for Numbers {
    type Item = u64;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<u64>> {
        let next = {
            let mut given = self.0.lock().unwrap();
            let next = given.numbers.pop_front();
            given.polls += 1;
            if next.is_none() {
                given.waker = Some(context.waker().clone());
            }
            next
        };
        match next {
            Some(Some(13)) => panic(),
            Some(number) => Poll::Ready(number),
            None => Poll::Pending,
        }
    }
}

#[test]
fn a_pending_stream_is_polled_only_when_it_wakes_its_spout() {
    let (numbers, seen, topology) = (Numbers::of([1, 2]), Collect::new(), TopologyBuilder::new());
    let spout = topology.spout("numbers", StreamSpout::new(numbers.clone()).instances());
    topology.bolt("seen", seen.instances()).shuffle(&spout);
    let clock = ManualClock::new();
    let mut topology = topology.simulate(&clock).unwrap();
    for (more, polls) in [(Some(3), 3), (Some(4), 5), (None, 7)] {
        for _ in 0..10 {
            assert!(topology.settle(1000) && !topology.is_finished());
            assert_eq!(numbers.polls(), polls);
            clock.advance(Duration::from_millis(10));
        }
        numbers.put(more);
    }
    assert!(topology.settle(1000) && topology.is_finished());
    assert_eq!((seen.all(), numbers.polls()), (vec![1, 2, 3, 4], 8));
}

#[test]
fn a_stream_wakes_its_spouts_thread() {
    let (numbers, topology) = (Numbers::default(), TopologyBuilder::new());
    let spout = topology.spout("numbers", StreamSpout::new(numbers.clone()).instances());
    topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&spout);
    let topology = topology.start().unwrap();
    for n in 0..10 {
        numbers.await_polls(2 * n as usize + 1);
        numbers.put(Some(n));
    }
    numbers.await_polls(21);
    numbers.put(None);
    topology.wait(Duration::from_secs(60)).unwrap();
    assert_eq!((topology.metrics()[0].acked, numbers.polls()), (10, 22));
}

#[test]
fn pending_messages_hold_the_stream_back() {
    let (numbers, topology) = (Numbers::of(0..10), TopologyBuilder::new());
    let spout = topology.spout("numbers", StreamSpout::new(numbers.clone()).instances());
    topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&spout.max_pending(4));
    let mut topology = topology.simulate(&ManualClock::new()).unwrap();
    topology.hold("sink", true);
    assert!(topology.settle(1000));
    assert_eq!(numbers.polls(), 4);
    topology.hold("sink", false);
    assert!(topology.settle(1000));
    assert_eq!((topology.metrics()[0].acked, numbers.polls()), (10, 11));
}

#[test]
fn an_instance_follows_a_stream_that_panics() {
    let (clock, topology) = (ManualClock::new(), TopologyBuilder::new());
    let streams = Mutex::new(vec![Numbers::of([3]), Numbers::of([1, 2, 13])]);
    let each = move |_: &_| StreamSpout::new(streams.lock().unwrap().pop().expect("two are made"));
    let each = topology.spout("each", each);
    let once = topology.spout("once", StreamSpout::new(Numbers::of([1, 13, 2])).instances());
    topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(&each).shuffle(&once);
    let mut topology = topology.simulate(&clock).unwrap();
    for _ in 0..10 {
        assert!(topology.settle(1000));
        clock.advance(Duration::from_secs(1));
    }
    let [each, once, _] = &topology.metrics()[..] else { panic!("two spouts and a bolt") };
    assert_eq!((each.panics, each.acked), (1, 3), "the next instance has the next stream");
    assert_eq!((once.panics, once.acked), (1, 1), "the next instance is done");
}
