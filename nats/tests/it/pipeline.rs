//! Sources and sinks on three brokers.

use crate::rig::{Rig, Worker};
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use expiry_nats::{
    Incoming, MessageId, NatsError, Outgoing, SourceOptions, StreamSource, StreamSpout,
};
use expiry_topology::{basic, sink, Derive, Replay, Topology, TopologyBuilder};
use expiry_topology::{Next, Spout, SpoutCollector};
use futures_util::StreamExt;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{mpsc, Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const LARGE: u64 = 1_000_000;

/// An `ack_wait` of tests that count deliveries. The broker of a busy machine delivers a message
/// again that the source has not looked at within 2 s.
const PATIENT: Duration = Duration::from_secs(60);

fn number(payload: &[u8]) -> Result<u64, String> {
    let text = std::str::from_utf8(payload).map_err(|error| error.to_string())?;
    assert_ne!(text, "panic");
    text.parse().map_err(|_| format!("{text:?} is no number"))
}

fn options() -> SourceOptions {
    SourceOptions::new("in", "work")
        .ack_wait(2 * SECOND)
        .attempts(3)
        .for_at_least(SECOND)
        .window(400)
}

fn decode(incoming: &Incoming<'_>) -> Result<u64, String> {
    number(incoming.payload)
}

/// The numbers in the stream `out`, in order.
fn passed_on(rig: &Rig) -> Vec<u64> {
    let mut numbers: Vec<_> = rig.read("out").iter().map(|m| number(&m.payload).unwrap()).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether so many numbers have come out, and the consumer has an ack for all that it knows of. The
/// broker that leads the consumer may learn of the last messages after the publisher.
fn passed_on_and_acked(rig: &Rig, numbers: u64) -> bool {
    rig.messages("out") >= numbers && rig.unacked("in", "work") == 0
}

/// Whether the source says that it cannot store dead letters. While a request of one of its tasks
/// for messages fails, it says that instead.
fn is_refused(source: &StreamSource<u64>) -> bool {
    source.last_error().is_some_and(|error| error.contains("dead letter"))
}

fn pass_on(n: &u64, out: &mut Derive<'_, '_, u64>) {
    out.emit(*n);
}

/// A stage: numbers of the stream `in`, a bolt, numbers to the stream `out`. That of [`LARGE`] is
/// too large for the server.
fn stage<D: expiry_topology::Done + 'static>(
    worker: &Worker,
    options: SourceOptions,
    bolt: impl Fn(&u64, &mut Derive<'_, '_, u64>) -> D + Clone + Send + Sync + 'static,
) -> (Topology, Arc<StreamSource<u64>>) {
    let source = crate::joined(worker, || worker.nats.source(options.clone(), decode));
    let source = Arc::new(source);
    let sinks = worker.enter(|nats| {
        nats.sink(|number: &u64| -> Result<Outgoing, &str> {
            let (subject, id) = ("out.numbers".into(), number.to_string());
            let payload = if *number == LARGE { vec![0; 2 << 20] } else { id.clone().into() };
            Ok(Outgoing { subject, payload, id: Some(id), ..Outgoing::default() })
        })
    });
    let topology = TopologyBuilder::new();
    topology.timeout(20 * SECOND);
    let replay = Replay::default().attempts(2).for_at_least(Duration::ZERO);
    let spouts = source.clone();
    let input = topology.spout("in", move |context| spouts.spout(context)).parallelism(2);
    let step = topology.bolt("step", move |_| basic(bolt.clone())).shuffle(&input.replay(replay));
    topology.bolt("out", move |context| sinks.bolt(context)).shuffle(&step);
    (topology.start().unwrap(), source)
}

#[test]
fn a_stage_acks_what_it_has_passed_on_and_buries_what_it_cannot_do() {
    let rig = Rig::start();
    rig.publish(1..=1000);
    rig.put("in.numbers", "seven");
    rig.put("in.numbers", "panic");
    rig.put("in.numbers", &LARGE.to_string());
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = attempts.clone();
    let step = move |n: &u64, out: &mut Derive<'_, '_, u64>| match n {
        500 => {
            out.reject("it is never right");
            Ok(())
        }
        600 => {
            counted.fetch_add(1, Ordering::Relaxed);
            Err("it is not right".to_string())
        }
        n => {
            pass_on(n, out);
            Ok(())
        }
    };
    let worker = rig.patient_worker("a");
    let (topology, source) = stage(&worker, options().ack_wait(PATIENT), step);
    rig.until("the stream is empty", || rig.messages("in") == 0);
    topology.kill();
    let expected: Vec<u64> = (1..=1000).filter(|n| ![500, 600].contains(n)).collect();
    assert_eq!(passed_on(&rig), expected);
    assert_eq!(attempts.load(Ordering::Relaxed), 6);
    let letters = rig.read("dead").into_iter().map(|letter| {
        let headers = letter.headers;
        let text = |name: &str| headers.get(name).unwrap().to_string();
        assert_eq!(
            (text("Expiry-Stream"), text("Expiry-Subject")),
            ("in".into(), "in.numbers".into())
        );
        let payload = String::from_utf8(letter.payload.to_vec()).unwrap();
        (payload, (text("Expiry-Deliveries"), text("Expiry-Reason")))
    });
    let mut letters: HashMap<String, (String, String)> = letters.collect();
    let mut letter = |payload: &str| letters.remove(payload).unwrap();
    let reason = "it does not decode: \"seven\" is no number";
    assert_eq!(letter("seven"), ("1".into(), reason.into()));
    assert_eq!(letter("500"), ("1".into(), "it is never right".into()));
    let reason = "it was failed by \"step\": it is not right";
    assert_eq!(letter("600"), ("3".into(), reason.into()));
    let reason = "it does not decode: the decoder panicked";
    assert_eq!(letter("panic"), ("1".into(), reason.into()));
    let (deliveries, reason) = letter(&LARGE.to_string());
    assert!(deliveries == "1" && reason.contains("limit of 1048576 exceeded"), "{reason}");
    assert!(letters.is_empty());
    let stats = source.stats();
    assert_eq!((stats.acked, stats.dead, stats.naks), (998, 5, 2));
    // The I/O task sets its gauges after it has answered the broker.
    rig.until("a request finds no more", || source.stats().waiting == 0);
    rig.until("the task holds none", || source.stats().held == 0);
}

/// Each attempt publishes under the same id, also beside one that has not ended.
#[test]
fn what_an_attempt_publishes_again_is_stored_once() {
    let rig = Rig::start();
    rig.publish(1..=100);
    let worker = rig.patient_worker("a");
    let source = crate::joined(&worker, || worker.nats.source(options(), decode));
    let sinks = worker.enter(|nats| {
        nats.sink(|n: &u64| -> Result<Outgoing, &str> {
            let (subject, payload) = ("out.numbers".into(), n.to_string().into());
            Ok(Outgoing { subject, payload, ..Outgoing::default() })
        })
    });
    let topology = TopologyBuilder::new();
    let input = topology.spout("in", move |context| source.spout(context));
    let step = topology.bolt("step", |_| basic(pass_on)).shuffle(&input);
    topology.bolt("out", move |context| sinks.bolt(context)).shuffle(&step);
    let failed = Mutex::new(std::collections::HashSet::new());
    let failed = Arc::new(failed);
    topology
        .bolt("once", move |_| {
            let failed = failed.clone();
            sink(move |n: &u64, _| match failed.lock().unwrap().insert(*n) {
                true => Err("for the first time"),
                false => Ok(()),
            })
        })
        .shuffle(&input);
    let topology = topology.start().unwrap();
    rig.until("all are acked", || rig.messages("in") == 0);
    assert_eq!(topology.metrics()[0].replayed, 100);
    topology.kill();
    assert!(passed_on(&rig).into_iter().eq(1..=100));
}

/// Two consumers are two applications: what one publishes or buries is no duplicate of the other's.
#[test]
fn two_consumers_of_a_stream_have_ids_of_their_own() {
    let rig = Rig::start();
    rig.stream("both", "both.>");
    (1..=10).for_each(|number| rig.put("both.numbers", &number.to_string()));
    let worker = rig.worker("a");
    let topologies = ["one", "other"].map(|consumer| {
        let options = SourceOptions::new("both", consumer).dead_letters("it.dead.in");
        let source = crate::joined(&worker, || worker.nats.source(options.clone(), decode));
        let sinks = worker.enter(|nats| {
            nats.sink(|n: &u64| match n {
                10 => Err("it is poison"),
                n => {
                    let (subject, payload) = ("out.numbers".into(), n.to_string().into());
                    Ok(Outgoing { subject, payload, ..Outgoing::default() })
                }
            })
        });
        let topology = TopologyBuilder::new();
        let input = topology.spout("in", move |context| source.spout(context));
        topology.bolt("out", move |context| sinks.bolt(context)).shuffle(&input);
        topology.start().unwrap()
    });
    let consumers = ["one", "other"];
    rig.until("all are acked", || consumers.iter().all(|it| rig.unacked("both", it) == 0));
    for topology in topologies {
        topology.kill();
    }
    assert_eq!((rig.messages("out"), rig.messages("dead")), (18, 2));
}

/// A message that no stream takes is no matter of time.
#[test]
fn a_message_that_no_attempt_can_publish_is_rejected_at_once() {
    let rig = Rig::start();
    rig.publish(1..=2);
    let worker = rig.patient_worker("a");
    let source = crate::joined(&worker, || worker.nats.source(options(), decode));
    let sinks = worker.enter(|nats| {
        nats.sink(|n: &u64| -> Result<Outgoing, &str> {
            let subject = ["out.numbers", "out. numbers"][usize::from(*n == 1)].into();
            Ok(Outgoing { subject, payload: b"2".to_vec(), ..Outgoing::default() })
        })
    });
    let topology = TopologyBuilder::new();
    let input = topology.spout("in", move |context| source.spout(context));
    topology.bolt("out", move |context| sinks.bolt(context)).shuffle(&input);
    let topology = topology.start().unwrap();
    rig.until("both have ended", || rig.messages("in") == 0);
    assert_eq!((topology.metrics()[0].replayed, rig.messages("dead")), (0, 1));
    topology.kill();
    assert_eq!(passed_on(&rig), [2]);
}

#[test]
fn a_source_goes_on_beside_dead_letters_that_are_too_large_or_refused() {
    let rig = Rig::start();
    rig.limit("dead", 1);
    rig.put("in.numbers", &"x".repeat(1 << 20)); // with headers it is too large
    let worker = rig.worker("a");
    let kept = |n: &u64, out: &mut Derive<'_, '_, u64>| match n {
        1..=500 => out.reject("it is poison"),
        n => out.emit(*n),
    };
    let (topology, source) = stage(&worker, options().window(100), kept); // less than the poison
    rig.until("the large one is buried", || rig.messages("dead") == 1);
    let letter = rig.read("dead").remove(0);
    assert_eq!(letter.headers.get("Expiry-Truncated").unwrap().as_str(), "1048576");
    rig.publish(1..=600);
    rig.publish(10_001..=11_000);
    rig.until("all others are passed on", || rig.messages("out") == 1100);
    rig.until("the refusal is shown", || is_refused(&source));
    rig.limit("dead", -1);
    rig.until("the stream is empty", || rig.messages("in") == 0);
    topology.kill();
    assert_eq!(rig.messages("dead"), 501);
}

#[test]
fn nothing_is_lost_when_workers_and_brokers_die() {
    let rig = Rig::start();
    let workers = ["a", "b"].map(|name| rig.worker(name));
    let mut running: Vec<_> =
        workers.iter().map(|worker| stage(worker, options().attempts(50), pass_on)).collect();
    rig.publish(1..=3000);
    rig.brokers.kill(0);
    rig.publish(3001..=6000);
    // The first worker's connection and outcomes are gone; its topology goes on for nothing.
    let [dead, _alive] = workers;
    dead.runtime.shutdown_background();
    rig.publish(6001..=9000);
    rig.brokers.restart(0).unwrap();
    rig.until("all are passed on and acked", || passed_on_and_acked(&rig, 9000));
    for (topology, _) in running.drain(..) {
        topology.kill();
    }
    let mut numbers = passed_on(&rig);
    let stored = numbers.len();
    numbers.dedup();
    println!("stored twice or more: {}", stored - numbers.len());
    assert!(numbers.into_iter().eq(1..=9000));
    assert_eq!(rig.messages("dead"), 0);
}

#[test]
fn a_slow_bolt_holds_a_window_which_the_broker_does_not_deliver_again() {
    let rig = Rig::start();
    rig.publish(1..=500);
    let worker = rig.worker("a");
    let executed = Arc::new(Mutex::new(HashMap::<u64, u32>::new()));
    let noted = executed.clone();
    let step = move |n: &u64, _: &mut Derive<'_, '_, u64>| {
        *noted.lock().unwrap().entry(*n).or_default() += 1;
        std::thread::sleep(Duration::from_millis(100)); // a window takes twice `ack_wait`
    };
    let (topology, source) = stage(&worker, options().window(60).ack_wait(3 * SECOND), step);
    let (mut most, mut waiting) = (0, 0);
    rig.until("70 are acked", || {
        most = most.max(source.stats().held);
        waiting = waiting.max(source.stats().waiting);
        source.stats().acked >= 70
    });
    topology.kill();
    let stats = source.stats();
    assert!(most > 60 && most <= 120 && stats.in_progress > 0, "{most} held, {stats:?}");
    assert!((380..500).contains(&waiting), "{waiting} waited of 500");
    assert!(executed.lock().unwrap().values().all(|times| *times == 1));
    assert_eq!(stats.redelivered_held, 0);
}

/// A message whose drop panics, if it is the first one that is dropped.
#[derive(Clone)]
struct Fragile(Arc<AtomicBool>);

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "it was to panic");
    }
}

/// A spout that reports when its topology has deactivated it.
struct Reports(StreamSpout<Fragile>, mpsc::Sender<()>);

impl Spout<Fragile, MessageId> for Reports {
    fn next(&mut self, out: &mut SpoutCollector<'_, Fragile, MessageId>) -> Next {
        self.0.next(out)
    }

    fn ack(&mut self, id: MessageId) {
        self.0.ack(id);
    }

    fn activate(&mut self) {
        self.0.activate();
    }

    fn deactivate(&mut self) {
        self.0.deactivate();
        self.1.send(()).unwrap();
    }

    fn close(&mut self) {
        self.0.close();
    }
}

/// The decoder waits until the spout is inactive, so what it decodes comes too late for the spout.
/// A message that panics when the source drops it does not end the source.
#[test]
fn a_deactivated_source_keeps_no_message_from_other_workers() {
    let rig = Rig::start();
    rig.publish(1..=100);
    let workers = ["a", "b"].map(|name| rig.worker(name));
    let (deactivated, inactive) = mpsc::channel();
    let (decodes, decoding) = mpsc::channel();
    let wait = Arc::new(Mutex::new(move || {
        if decodes.send(()).is_ok() {
            inactive.recv_timeout(30 * SECOND).expect("the spout is deactivated");
        }
    }));
    let source = crate::joined(&workers[0], || {
        let (wait, panics) = (wait.clone(), Arc::new(AtomicBool::new(true)));
        let decode = move |_: &Incoming<'_>| -> Result<_, String> {
            wait.lock().unwrap()();
            Ok(Fragile(panics.clone()))
        };
        workers[0].nats.source(options(), decode)
    });
    let topology = TopologyBuilder::new();
    let spout = move |context: &_| Reports(source.spout(context), deactivated.clone());
    let input = topology.spout("in", spout);
    topology.bolt("sink", |_| sink(|_: &Fragile, _| ())).shuffle(&input);
    let inactive = topology.start().unwrap();
    decoding.recv_timeout(30 * SECOND).expect("a message is decoded");
    drop(decoding); // the others do not wait
    inactive.deactivate();
    let (topology, _source) = stage(&workers[1], options(), pass_on);
    rig.until("the other worker has all", || rig.messages("in") == 0);
    assert_eq!(rig.messages("out"), 100);
    topology.kill();
    inactive.activate();
    rig.publish(101..=200);
    rig.until("the source that was inactive goes on", || rig.messages("in") == 0);
    inactive.kill();
}

/// A task asks for no more bytes than its window has left. A message that is larger than the window
/// comes when the task holds nothing else, and messages after it come as before.
#[test]
fn a_source_holds_a_window_of_bytes_and_takes_a_larger_message_alone() {
    let rig = Rig::start();
    const WINDOW: usize = 1_500_000;
    let put = |size: usize| rig.put_with("in.bytes", &[], &vec![b'x'; size]);
    (0..20).for_each(|_| put(400_000));
    let worker = rig.worker("a");
    let options = |window| SourceOptions::new("in", "work").window_bytes(window);
    // The first message waits in the bolt until the source holds more than `first` bytes.
    let run = |window, first: u64| {
        let size = |incoming: &Incoming<'_>| Ok::<_, String>(incoming.payload.len());
        let source = crate::joined(&worker, || worker.nats.source(options(window), size));
        let (source, largest) = (Arc::new(source), Arc::new(AtomicU64::new(0)));
        let (spouts, held, most) = (source.clone(), source.clone(), largest.clone());
        let topology = TopologyBuilder::new();
        let input = topology.spout("in", move |context| spouts.spout(context));
        let slow = move |_: &usize, _: &mut Derive<'_, '_, ()>| {
            while most.load(Ordering::Relaxed) == 0 && held.stats().held_bytes <= first {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            most.fetch_max(held.stats().held_bytes, Ordering::Relaxed);
        };
        topology.bolt("slow", move |_| sink(slow.clone())).shuffle(&input);
        let topology = topology.start().unwrap();
        rig.until("all are acked", || rig.messages("in") == 0);
        topology.kill();
        let stats = source.stats();
        assert_eq!((stats.pull_errors, stats.held_bytes), (0, 0), "{:?}", source.last_error());
        largest.load(Ordering::Relaxed)
    };
    let most = run(WINDOW, 800_000);
    assert!(most > 800_000 && most <= WINDOW as u64, "{most} bytes were held");
    [100_000, 900_000, 100_000, 100_000, 900_000, 900_000].into_iter().for_each(put);
    let most = run(300_000, 0);
    assert!((900_000..1_000_000).contains(&most), "{most} bytes were held");
}

#[test]
fn without_a_majority_nothing_is_acked_and_all_goes_on_afterwards() {
    let rig = Rig::start();
    let worker = rig.worker("a");
    let (topology, source) = stage(&worker, options().attempts(50), pass_on);
    rig.publish(1..=1000);
    rig.until("some are acked", || source.stats().acked > 0);
    rig.brokers.pause(1);
    rig.brokers.pause(2);
    std::thread::sleep(6 * SECOND); // longer than a request waits
    rig.brokers.go_on(1);
    rig.brokers.go_on(2);
    rig.until("all are passed on and acked", || passed_on_and_acked(&rig, 1000));
    topology.kill();
    let mut numbers = passed_on(&rig);
    numbers.dedup();
    assert_eq!((numbers.len(), rig.messages("dead")), (1000, 0));
}

#[test]
fn a_deleted_consumer_is_made_again_and_a_dead_letter_without_a_stream_stays() {
    let rig = Rig::start();
    let worker = rig.worker("a");
    let step = |n: &u64, out: &mut Derive<'_, '_, u64>| match n {
        7 => out.reject("seven"),
        n => out.emit(*n),
    };
    let (topology, source) = stage(&worker, options(), step);
    rig.publish(1..=5);
    rig.until("five are acked", || rig.messages("in") == 0);
    rig.delete_consumer("in", "work");
    rig.delete_stream("dead");
    rig.publish(6..=20);
    rig.until("the dead letter is refused", || source.stats().dead_refused > 1);
    rig.until("the others are acked", || rig.messages("in") == 1);
    rig.until("the refusal is shown", || is_refused(&source));
    rig.stream("dead", "it.dead.in");
    rig.until("the dead letter is stored", || rig.messages("in") == 0);
    rig.until("all is well", || source.last_error().is_none());
    // The sequences of the new stream are those that were acked before.
    rig.delete_stream("in");
    rig.until("the stream is missed", || source.last_error().is_some());
    rig.stream("in", "in.>");
    rig.publish(21..=40);
    rig.until("all are passed on", || rig.messages("out") == 39);
    rig.until("the stream is empty", || rig.messages("in") == 0);
    topology.kill();
    assert_eq!(rig.messages("dead"), 1);
}

#[test]
fn a_flood_of_poison_that_waits_for_its_next_attempt_does_not_hold_up_the_others() {
    let rig = Rig::start();
    rig.publish(1..=2000);
    let worker = rig.worker("a");
    let step = |n: &u64, out: &mut Derive<'_, '_, u64>| {
        if *n <= 1000 {
            return Err("poison"); // more than twice the window
        }
        out.emit(*n);
        Ok(())
    };
    let options = options().for_at_least(90 * SECOND);
    let (topology, source) = stage(&worker, options, step);
    rig.until("all others are acked", || rig.messages("in") == 1000);
    rig.until("each poison has failed", || source.stats().naks >= 1000);
    rig.until("all acks are confirmed", || source.stats().acked == 1000);
    topology.kill();
    assert_eq!(rig.messages("out"), 1000);
}

/// The message's first delivery may not be its last, nor may deliveries that failed nothing count.
#[test]
fn a_failing_message_is_no_dead_letter_before_its_time() {
    let rig = Rig::start();
    rig.publish(1..=1);
    let worker = rig.patient_worker("a");
    let began = Arc::new(OnceLock::new());
    let first = began.clone();
    let fail = move |_: &u64, _: &mut Derive<'_, '_, u64>| {
        first.get_or_init(Instant::now);
        Err("not yet")
    };
    let options = options().attempts(1).for_at_least(3 * SECOND).ack_wait(PATIENT);
    let (topology, source) = stage(&worker, options, fail);
    rig.until("it is buried", || rig.messages("dead") == 1);
    assert!(began.get().unwrap().elapsed() >= 3 * SECOND);
    rig.until("it has left the stream", || rig.messages("in") == 0);
    topology.kill();
    assert_eq!((source.stats().naks, source.stats().dead), (1, 1));
}

#[test]
fn a_suspect_whose_trial_a_closing_source_cuts_off_is_not_lost() {
    let rig = Rig::start();
    let worker = rig.worker("a");
    let options = || options().attempts(1);
    drop(crate::joined(&worker, || worker.nats.source(options(), decode)));
    rig.publish(1..=1);
    let fetch = async || {
        let found = worker.nats.context().get_consumer_from_stream("work", "in").await;
        let consumer: PullConsumer = found.ok()?;
        consumer.fetch().max_messages(1).messages().await.ok()?.next().await?.ok()
    };
    for _ in 0..4 {
        // The brokers may elect a leader meanwhile, and answer nothing.
        rig.until("a worker dies with the message", || worker.runtime.block_on(fetch()).is_some());
    }
    let (tries, tried) = mpsc::channel();
    let (ends, end) = mpsc::channel::<()>();
    let end = Arc::new(Mutex::new(end));
    let step = move |n: &u64, out: &mut Derive<'_, '_, u64>| {
        tries.send(()).unwrap();
        let _ = end.lock().unwrap().recv();
        out.emit(*n);
    };
    let (topology, source) = stage(&worker, options(), step);
    tried.recv_timeout(60 * SECOND).expect("it has its trial");
    rig.until("the source holds it", || source.stats().held == 1);
    std::thread::scope(|scope| {
        scope.spawn(|| topology.kill());
        rig.until("the source has given it back", || source.stats().held == 0);
        drop(ends); // the trial ends when the source is closed
    });
    assert_eq!((rig.messages("in"), rig.messages("out")), (1, 0));
    let (topology, _source) = stage(&worker, options(), pass_on);
    rig.until("it has left the stream", || rig.messages("in") == 0);
    topology.kill();
    assert_eq!((rig.messages("dead"), rig.messages("out")), (1, 0));
}

#[test]
fn bad_settings_and_missing_streams_are_typed_errors() {
    let rig = Rig::start();
    let worker = rig.worker("a");
    // Asks again while the brokers do not answer.
    let refused = |options: SourceOptions| {
        let asked = || worker.runtime.block_on(worker.nats.source(options.clone(), decode));
        let answers = std::iter::repeat_with(|| asked().unwrap_err()).take(20);
        let mut answers = answers.skip_while(|e| matches!(e, NatsError::Unanswered { .. }));
        answers.next().expect("the brokers answer")
    };
    let shown = |error: &dyn Display| error.to_string();
    for (options, missing) in [
        (SourceOptions::new("none", "work"), "none"),
        (options().dead_letters("nowhere"), "nowhere"),
    ] {
        let found = refused(options);
        assert!(matches!(&found, NatsError::NoStream { name, .. } if name == missing), "{found}");
    }
    assert!(matches!(refused(SourceOptions::new("a.b", "work")), NatsError::Name { .. }));
    assert!(matches!(refused(SourceOptions::new("in", "")), NatsError::Name { .. }));
    assert_eq!(shown(&refused(options().attempts(0))), "attempts is 0; it takes 1 to 10,000");
    assert_eq!(shown(&refused(options().window(0))), "window is 0; it takes 1 or more");
    let many = refused(options().dead_letters("dead.>"));
    assert_eq!(shown(&many), "dead_letters is \"dead.>\"; it takes one subject, without wildcards");
    for filter in ["", "it.>", "it.*.in"] {
        let own = SourceOptions::new("dead", "work").subject(filter).dead_letters("it.dead.in");
        let fed = shown(&refused(own));
        assert!(fed.contains("a subject that the source does not read"), "{fed}");
    }
    let short = refused(options().ack_wait(SECOND / 2));
    assert_eq!(shown(&short), "ack_wait is 500ms; it takes 1s or more");
    // A consumer of this name that is not ours.
    rig.consumer("out", "push", AckPolicy::None);
    let foreign = refused(SourceOptions::new("out", "push"));
    assert!(matches!(foreign, NatsError::Refused { .. }), "{foreign}");
}
