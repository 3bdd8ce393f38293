//! Bolts that await. The futures run where the tests poll them, unless a test says otherwise.

#[allow(dead_code)]
#[path = "../../examples/fetch.rs"]
mod fetch;

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    concurrent, sink, Bolt, BoltCollector, Collect, Concurrent, Context, Failed, Failure, Hook,
    Replay, Simulation, TopologyBuilder, Tuple, VecSpout, WaitStrategy,
};
use std::collections::BTreeSet;
use std::future::{poll_fn, Future};
use std::mem::take;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{self, Poll, Wake};
use std::time::Duration;

type Spawned = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Wakes nothing: the test polls.
struct Noop;

impl Wake for Noop {
    fn wake(self: Arc<Self>) {}
}

/// Polls each future once, and drops those that have ended.
fn poll(futures: &mut Vec<Spawned>) {
    let waker = task::Waker::from(Arc::new(Noop));
    futures.retain_mut(|future| {
        future.as_mut().poll(&mut task::Context::from_waker(&waker)).is_pending()
    });
}

/// A runtime whose futures wait for answers that the test gives.
#[derive(Clone, Default)]
struct Server(Arc<Shared>);

#[derive(Default)]
struct Shared {
    futures: Mutex<Vec<Spawned>>,
    answered: Mutex<BTreeSet<u64>>,
    running: AtomicUsize,
    /// The most that have run together, and all that have.
    most: AtomicUsize,
    asked: AtomicUsize,
}

/// A future that runs.
struct Running(Server);

impl Drop for Running {
    fn drop(&mut self) {
        self.0 .0.running.fetch_sub(1, SeqCst);
    }
}

impl Server {
    fn spawner(&self) -> impl FnMut(Spawned) + Send {
        let server = self.clone();
        move |future| server.0.futures.lock().unwrap().push(future)
    }

    /// What a bolt's future does. It counts from the call on.
    fn ask(&self, n: u64) -> impl Future<Output = u64> + Send {
        let (server, running) = (self.clone(), Running(self.clone()));
        self.0.asked.fetch_add(1, SeqCst);
        let together = self.0.running.fetch_add(1, SeqCst) + 1;
        self.0.most.fetch_max(together, SeqCst);
        async move {
            let _running = running;
            poll_fn(|_| match server.0.answered.lock().unwrap().contains(&n) {
                true => Poll::Ready(n),
                false => Poll::Pending,
            })
            .await
        }
    }

    /// Gives answers, and lets the futures and the topology go on.
    fn answer(&self, numbers: impl IntoIterator<Item = u64>, topology: &mut Simulation) {
        self.0.answered.lock().unwrap().extend(numbers);
        let mut futures = take(&mut *self.0.futures.lock().unwrap());
        poll(&mut futures);
        self.0.futures.lock().unwrap().append(&mut futures);
        settle(topology);
    }

    fn running(&self) -> usize {
        self.0.running.load(SeqCst)
    }

    fn asked(&self) -> usize {
        self.0.asked.load(SeqCst)
    }
}

/// A bolt that sends on what the server answers.
fn asks(server: &Server, context: &Context, limit: usize) -> Concurrent<u64, u64> {
    let asked = server.clone();
    concurrent(context, limit, server.spawner(), move |n: u64| {
        let answer = asked.ask(n);
        async move { Ok([answer.await]) }
    })
}

fn ordered<In, Out>(in_order: bool, bolt: Concurrent<In, Out>) -> Concurrent<In, Out> {
    if in_order {
        bolt
    } else {
        bolt.unordered()
    }
}

/// So many numbers, a bolt that asks the server, and what it emits, until there is nothing to do.
fn asking(
    messages: u64,
    server: &Server,
    ask: impl Fn(Concurrent<u64, u64>) -> Concurrent<u64, u64> + Send + Sync + 'static,
    limit: usize,
) -> (VecSpout<u64>, Collect<u64>, Simulation) {
    let (clock, _, topology) = rig();
    let (given, seen, server) = (VecSpout::new(0..messages), Collect::new(), server.clone());
    let numbers = topology.spout("numbers", given.instances());
    let make = move |context: &Context| ask(asks(&server, context, limit));
    let ask = topology.bolt("ask", make).shuffle(&numbers);
    topology.bolt("seen", seen.instances()).shuffle(&ask);
    (given, seen, settled(topology, &clock))
}

/// In order, results that wait for their turn count towards the limit. A limit of 0 counts as 1.
#[test]
fn the_limit_is_reached_and_never_exceeded() {
    for limit in [0, 1, 4, 7] {
        let (server, most) = (Server::default(), limit.max(1) as u64);
        let (_, seen, mut topology) = asking(100, &server, |bolt| bolt, limit);
        for first in (0..100).step_by(most as usize) {
            let end = 100.min(first + most);
            assert_eq!(server.asked() as u64, end);
            server.answer(first + 1..end, &mut topology);
            assert_eq!((server.running(), server.asked() as u64), (1, end));
            assert!(!topology.is_finished());
            server.answer([first], &mut topology);
        }
        assert!(topology.is_finished() && seen.all().into_iter().eq(0..100));
        assert_eq!(server.0.most.load(SeqCst) as u64, most);
    }
}

/// Each answer makes room for one.
#[test]
fn without_order_the_limit_holds_too() {
    let server = Server::default();
    let (_, _, mut topology) = asking(100, &server, Concurrent::unordered, 4);
    for (ended, n) in (1..100).chain([0]).enumerate() {
        let asked = 100.min(ended + 4);
        assert_eq!((server.asked(), server.running()), (asked, asked - ended));
        server.answer([n], &mut topology);
    }
    assert!(topology.is_finished() && server.0.most.load(SeqCst) == 4);
}

#[test]
fn results_come_in_the_order_of_the_inputs_or_of_the_answers() {
    let orders = [(true, [0, 1, 2, 3]), (false, [2, 0, 3, 1])];
    for (in_order, expected) in orders {
        let server = Server::default();
        let order = move |bolt: Concurrent<_, _>| ordered(in_order, bolt);
        let (given, seen, mut topology) = asking(4, &server, order, 4);
        for n in [2, 0, 3, 1] {
            server.answer([n], &mut topology);
        }
        assert_eq!((seen.all(), given.acked()), (expected.to_vec(), expected.to_vec()));
    }
}

/// Notes the errors that are reported.
struct Errors(Log<String>);

impl Hook for Errors {
    fn error(&self, _: &Context, error: &str) {
        self.0.note(error.to_string());
    }
}

/// Why `n` fails in a bolt that is made like this, at once, and the errors that the bolt reports.
/// The other numbers are acked, by the same instance.
fn failure<B: Bolt<u64, u64> + 'static>(
    n: u64,
    make: impl Fn(&Context) -> B + Send + Sync + 'static,
) -> (String, Vec<String>) {
    let (clock, _, topology) = rig();
    let (given, made) = (VecSpout::new(0..10), Arc::new(AtomicUsize::new(0)));
    let errors = Log::new();
    topology.hook(Errors(errors.clone()));
    let count = made.clone();
    let make = move |context: &Context| {
        count.fetch_add(1, SeqCst);
        make(context)
    };
    let numbers = topology.spout("numbers", given.instances());
    let bolt = topology.bolt("ask", make).shuffle(&numbers);
    let picky = bolt.stream().map(|n| if n == 100 { panic!("in the emission") } else { n });
    topology.bolt("sink", |_| sink(|_: &u64, _| ())).shuffle(picky);
    let topology = settled(topology, &clock);
    assert!(topology.is_finished());
    let in_emission = u64::from(errors.all() == ["panicked: in the emission"]);
    assert_eq!((made.load(SeqCst), topology.metrics()[1].panics), (1, in_emission));
    assert!(given.acked().into_iter().eq((0..10).filter(|&acked| acked != n)));
    let failed = given.failed();
    assert!(failed.len() == 1 && failed[0].0 == n, "{failed:?}");
    (failed[0].1.to_string(), errors.all())
}

/// The error with which number 3 fails and that is reported, in a bolt of this function, whose
/// futures run where they are spawned.
fn error_of<F, I>(f: impl Fn(u64) -> F + Clone + Send + Sync + 'static) -> String
where
    F: Future<Output = Result<I, Failed>> + Send + 'static,
    I: IntoIterator<Item = u64> + 'static,
{
    let run = |future| poll(&mut vec![future]);
    let (why, errors) = failure(3, move |context| concurrent(context, 4, run, f.clone()));
    assert_eq!(why, format!("it was failed by \"ask\": {}", errors[0]));
    assert_eq!(errors.len(), 1);
    errors[0].clone()
}

#[test]
fn what_panics_fails_its_input_at_once() {
    let function = |n| {
        assert!(n != 3, "in the function");
        async move { Ok([n]) }
    };
    assert_eq!(error_of(function), "panicked: in the function");
    let future = |n| async move {
        assert!(n != 3, "in the future");
        Ok([n])
    };
    assert_eq!(error_of(future), "panicked: in the future");
    let results =
        |n| async move { Ok(std::iter::once(n).inspect(|&n| assert!(n != 3, "in the results"))) };
    assert_eq!(error_of(results), "panicked: in the results");
    let emission = |n| async move { Ok([if n == 3 { 100 } else { n }]) };
    assert_eq!(error_of(emission), "panicked: in the emission");
}

/// A runtime that drops a future unfinished, before or after it is first polled, and one whose
/// spawn function panics.
#[test]
fn an_input_whose_future_is_dropped_fails_at_once() {
    for polls in [false, true] {
        for panics in [false, true] {
            let (why, errors) = failure(2, move |context| {
                let mut spawned = 0;
                let spawn = move |future: Spawned| {
                    spawned += 1;
                    let mut futures = vec![future];
                    if polls || spawned != 3 {
                        poll(&mut futures);
                    }
                    assert!(!panics || spawned != 3, "the runtime is gone");
                };
                concurrent(context, 4, spawn, |n: u64| async move {
                    if n == 2 {
                        std::future::pending::<()>().await;
                    }
                    Ok([n])
                })
            });
            assert_eq!(why, "it was failed by \"ask\": its future was dropped unfinished");
            let is_told = errors.iter().any(|error| error == "panicked: the runtime is gone");
            assert_eq!((is_told, errors.len()), (panics, 1 + usize::from(panics)));
        }
    }
}

/// An error is a failure, which is replayed; a rejection is not. What a future returns is derived
/// from its input, so a failure of that fails the input.
#[test]
fn errors_fail_and_rejections_reject() {
    let (clock, _, topology) = rig();
    let (given, seen) = (VecSpout::new(["7", "seven", "", "0", "8"]), Collect::new());
    let numbers = topology
        .spout("numbers", given.instances())
        .replay(Replay::default().attempts(3).for_at_least(Duration::ZERO).base(SECOND));
    let parse = |text: &'static str| async move {
        match text {
            "" => Err(Failed::reject("it is empty")),
            "0" => Err(Failed::new("it is zero")),
            _ => Ok(Some(text.parse::<u64>()?)),
        }
    };
    let make = move |context: &_| concurrent(context, 4, |future| poll(&mut vec![future]), parse);
    let parse = topology.bolt("parse", make).shuffle(&numbers);
    topology.bolt("seen", seen.instances()).shuffle(&parse);
    topology
        .bolt("picky", |_| sink(|n: &u64, _| if *n == 8 { Err("it is eight") } else { Ok(()) }))
        .shuffle(&parse);
    let mut topology = topology.simulate(&clock).unwrap();
    run(&mut topology, &clock, SECOND * 100);
    assert!(topology.is_finished());
    assert_eq!((seen.all(), given.acked()), (vec![7, 8, 8, 8], vec![0]));
    let mut failed = given.failed();
    failed.sort_by_key(|(id, _)| *id);
    assert!(matches!(failed[1].1, Failure::Rejected { .. }));
    let failed: Vec<_> = failed.iter().map(|(_, why)| why.to_string()).collect();
    assert_eq!(
        failed,
        [
            "it was failed by \"parse\": invalid digit found in string",
            "it was rejected by \"parse\": it is empty",
            "it was failed by \"parse\": it is zero",
            "it was failed by \"picky\": it is eight",
        ]
    );
    let metrics = topology.metrics();
    assert_eq!((metrics[0].replayed, metrics[1].failed, metrics[1].errors), (6, 7, 7));
}

/// Panics at a number, the first time that it comes.
struct Dies(Concurrent<u64, u64>, Arc<AtomicBool>);

impl Bolt<u64, u64> for Dies {
    fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
        assert!(*tuple != 2 || self.1.swap(true, SeqCst), "the first instance dies");
        self.0.execute(tuple, out);
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn woken(&mut self, out: &mut BoltCollector<'_, u64>) {
        self.0.woken(out);
    }
}

/// The futures of an instance that is gone concern the next one neither by their number nor by
/// their results: their tuples time out. They drop what they return.
#[test]
fn the_futures_of_an_instance_end_with_it() {
    let (clock, _, topology) = rig();
    let (server, given, seen) = (Server::default(), VecSpout::new(0..6), Collect::new());
    let replay = Replay::default().base(SECOND).jitter(0.0);
    let numbers = topology.spout("numbers", given.instances()).replay(replay);
    let (asked, died) = (server.clone(), Arc::new(AtomicBool::new(false)));
    let make = move |context: &Context| Dies(asks(&asked, context, 3), died.clone());
    let ask = topology.bolt("ask", make).shuffle(&numbers);
    topology.bolt("seen", seen.instances()).shuffle(&ask);
    let mut topology = settled(topology, &clock);
    // 0 and 1 are the first instance's, 2 has failed, and the second instance has its three.
    assert_eq!((server.asked(), topology.metrics()[1].panics), (5, 1));
    server.answer([0, 1], &mut topology);
    assert_eq!((server.running(), server.asked(), seen.all()), (3, 5, vec![]));
    server.answer([3, 4, 5], &mut topology);
    assert_eq!((seen.take(), given.acked()), (vec![3, 4, 5], vec![3, 4, 5]));
    server.0.answered.lock().unwrap().insert(2);
    for _ in 0..20 {
        clock.advance(SECOND);
        settle(&mut topology);
        server.answer([], &mut topology);
    }
    assert!(topology.is_finished());
    assert_eq!((seen.all(), given.acked()), (vec![2, 0, 1], vec![3, 4, 5, 2, 0, 1]));
    assert_eq!((topology.metrics()[0].timed_out, topology.metrics()[0].failed), (2, 1));
}

/// A drain waits for futures.
#[test]
fn a_topology_is_at_rest_when_its_futures_are() {
    let server = Server::default();
    let (given, _, mut topology) = asking(10, &server, |bolt| bolt, 4);
    topology.deactivate();
    settle(&mut topology);
    assert!(!topology.is_at_rest());
    while server.running() > 0 {
        assert!(!topology.is_at_rest());
        server.answer(0..10, &mut topology);
    }
    assert!(topology.is_at_rest() && given.acked().into_iter().eq(0..10));
}

/// Futures that outlive their topology end in peace, and what they return is dropped.
#[test]
fn a_topology_is_killed_while_futures_run() {
    let (server, token, topology) = (Server::default(), Arc::new(()), TopologyBuilder::new());
    let numbers = topology.spout("numbers", |_| VecSpout::new(0..100));
    let (asked, result) = (server.clone(), token.clone());
    let make = move |context: &Context| {
        let (server, result) = (asked.clone(), result.clone());
        concurrent(context, 8, asked.spawner(), move |n: u64| {
            let (answer, result) = (server.ask(n), result.clone());
            async move {
                answer.await;
                Ok([result])
            }
        })
    };
    topology.bolt("ask", make).shuffle(&numbers);
    let topology = topology.start().unwrap();
    wait_for("eight futures", || server.running() == 8);
    let metrics = topology.kill();
    assert_eq!((metrics[0].acked, metrics[0].failed, metrics[1].panics), (0, 0, 0));
    server.0.answered.lock().unwrap().extend(0..100);
    let mut futures = take(&mut *server.0.futures.lock().unwrap());
    assert_eq!(futures.len(), 8);
    let rest = futures.split_off(4);
    poll(&mut futures);
    assert!(futures.is_empty());
    // The futures that are left keep no result of the others.
    assert_eq!((server.running(), Arc::strong_count(&token)), (4, 1 + 4));
    drop(rest);
    assert_eq!((server.running(), Arc::strong_count(&token)), (0, 1));
}

/// A bolt on a cycle with short queues: each number comes back one smaller, until it is 0.
#[test]
fn a_cycle_does_not_jam() {
    for in_order in [true, false] {
        let (server, clock) = (Server::default(), ManualClock::new());
        let (given, topology) = (VecSpout::new([50; 40]), builder(&clock));
        topology.queue(1).batch(1);
        let numbers = topology.spout("numbers", given.instances());
        let spawner = server.clone();
        let down = topology.bolt("down", move |context| {
            let f = |n: u64| async move {
                Ok(n.checked_sub(1).into_iter().chain((n % 7 == 0 && n > 7).then_some(3)))
            };
            let bolt = concurrent(context, 3, spawner.spawner(), f);
            ordered(in_order, bolt)
        });
        let back = down.stream();
        down.shuffle(&numbers).shuffle(back);
        let mut topology = topology.simulate(&clock).unwrap();
        settle(&mut topology);
        let mut overflow = 0;
        while !topology.is_finished() {
            assert!(!server.0.futures.lock().unwrap().is_empty(), "it hangs");
            server.answer([], &mut topology);
            overflow = topology.metrics()[1].overflow.max(overflow);
        }
        assert!(given.acked().len() == 40 && overflow > 0);
    }
}

/// Runs what three tasks spawn on threads of its own. Each answer needs a wake-up of its task,
/// whose thread sleeps.
#[test]
fn every_message_is_acked_on_threads() {
    for (limit, in_order) in [(1, true), (1, false), (16, true), (16, false)] {
        let (topology, given) = (TopologyBuilder::new(), VecSpout::new(0..20_000_u64));
        let (sender, receiver) = std::sync::mpsc::channel::<Spawned>();
        let receiver = Mutex::new(receiver);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let numbers = topology.wait(WaitStrategy::Park).spout("numbers", given.instances());
        let counts = (running.clone(), most.clone());
        let make = move |context: &Context| {
            let (sender, (running, most)) = (sender.clone(), counts.clone());
            let spawn = move |future| sender.send(future).expect("the runtime runs");
            let bolt = concurrent(context, limit, spawn, move |n: u64| {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                let running = running.clone();
                async move {
                    running.fetch_sub(1, SeqCst);
                    Ok([n])
                }
            });
            ordered(in_order, bolt)
        };
        topology.bolt("ask", make).parallelism(3).shuffle(&numbers);
        let topology = topology.start().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| loop {
                    let next = receiver.lock().unwrap().recv();
                    let Ok(future) = next else { break };
                    poll(&mut vec![future]);
                });
            }
            topology.wait(SECOND * 60).unwrap();
            let metrics = topology.kill();
            assert_eq!((metrics[0].acked, metrics[1].acked), (20_000, 20_000));
        });
        assert!((1..=3 * limit).contains(&most.load(SeqCst)));
        assert_eq!(running.load(SeqCst), 0);
    }
}

#[test]
fn pages_are_fetched() {
    assert!(fetch::run().unwrap());
}
