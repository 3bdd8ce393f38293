//! Any call of users' code may panic.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    basic, concurrent, sink, Bolt, BoltCollector, Collect, Context, Failure, Hook, Next, Replay,
    Source, Spout, SpoutCollector, TopologyBuilder, Tuple, VecSpout,
};
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Whether it is to panic now: every so many calls, in an order that a seed makes.
#[derive(Clone)]
struct Dice(Arc<Mutex<u64>>, u64);

impl Dice {
    fn roll(&self) {
        let state = {
            let mut state = self.0.lock().unwrap();
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *state
        };
        if (state >> 33) % self.1 == 0 {
            panic();
        }
    }
}

/// Any call of users' code may panic, and does so now and then. Each message has one outcome, and
/// everything comes to rest.
#[test]
fn everything_may_panic() {
    const MANY: u64 = 60;
    struct Message(u64, Dice);
    impl Clone for Message {
        fn clone(&self) -> Self {
            self.1.roll();
            Message(self.0, self.1.clone())
        }
    }
    impl Hash for Message {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.1.roll();
            self.0.hash(state);
        }
    }
    struct Source(Arc<AtomicUsize>, Log<Told>, Dice);
    impl Spout<Message> for Source {
        fn replay_by_default() -> expiry_topology::Replay {
            expiry_topology::Replay::once()
        }

        fn open(&mut self, _: &Context) {
            self.2.roll();
        }
        fn next(&mut self, out: &mut SpoutCollector<'_, Message>) -> Next {
            self.2.roll();
            for _ in 0..3 {
                let id = self.0.fetch_add(1, Relaxed) as u64;
                if id >= MANY {
                    return Next::Done;
                }
                let message = Message(id, self.2.clone());
                if out.emit(message, id).is_ok() {
                    self.1.note(Told::Emitted(id));
                }
            }
            self.2.roll();
            Next::Ready
        }
        fn ack(&mut self, id: u64) {
            self.1.note(Told::Ack(id));
            self.2.roll();
        }
        fn fail(&mut self, id: u64, failure: &Failure) {
            self.1.note(Told::Fail(id, failure.into()));
            self.2.roll();
        }
        fn replay(&mut self, _: &u64, _: &Failure, message: &mut Message) {
            self.2.roll();
            message.0 += 1;
            self.2.roll();
        }
        fn tick(&mut self) {
            self.2.roll();
        }
        fn activate(&mut self) {
            self.2.roll();
        }
        fn deactivate(&mut self) {
            self.2.roll();
        }
        fn close(&mut self) {
            self.2.roll();
        }
    }
    struct Work(Vec<Tuple<Message>>, Dice);
    impl Bolt<Message, Message> for Work {
        fn prepare(&mut self, _: &Context) {
            self.1.roll();
        }
        fn execute(&mut self, tuple: Tuple<Message>, out: &mut BoltCollector<'_, Message>) {
            self.1.roll();
            out.emit(&tuple, Message(tuple.0, self.1.clone()));
            match tuple.0 % 4 {
                0 => self.0.push(tuple),
                1 if tuple.0 % 5 == 0 => out.fail(tuple),
                _ => out.ack(tuple),
            }
            self.1.roll();
        }
        fn is_ready(&self) -> bool {
            self.1.roll();
            self.0.len() < 4
        }
        fn tick(&mut self, out: &mut BoltCollector<'_, Message>) {
            self.1.roll();
            self.0.drain(..).for_each(|tuple| out.ack(tuple));
            self.1.roll();
        }
        fn cleanup(&mut self) {
            self.1.roll();
        }
    }
    struct Hooked(Dice);
    impl Hook for Hooked {
        fn emit(&self, _: &Context, _: &dyn std::any::Any) {
            self.0.roll();
        }
        fn execute(&self, _: &Context, _: &expiry_topology::Seen<'_>) {
            self.0.roll();
        }
        fn spout_ack(&self, _: &Context, _: &dyn fmt::Debug, _: Duration) {
            self.0.roll();
        }
        fn spout_fail(&self, _: &Context, _: &dyn fmt::Debug, _: &Failure, _: bool) {
            self.0.roll();
        }
        fn error(&self, _: &Context, _: &str) {
            self.0.roll();
        }
    }
    let mut panics = 0;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in 0..100 {
        let (clock, told) = (ManualClock::new(), Log::new());
        let dice = Dice(Arc::new(Mutex::new(seed)), 4 + seed % 30);
        let builder = TopologyBuilder::new();
        builder
            .timeout(SECOND * 10)
            .interval(SECOND)
            .seed(seed)
            .batch(3)
            .queue(2)
            .hook(Hooked(dice.clone()));
        let source = builder
            .spout("source", {
                let (next, told, dice) = (Arc::default(), told.clone(), dice.clone());
                move |_| {
                    dice.roll();
                    Source(Arc::clone(&next), told.clone(), dice.clone())
                }
            })
            .replay(Replay::default().attempts(3).for_at_least(Duration::ZERO))
            .max_pending(20)
            .tick_every(SECOND / 2);
        let (rolls, spawns, asks) = (dice.clone(), dice.clone(), dice.clone());
        let letters = source.dead_letters().map(move |letter| {
            rolls.roll();
            letter.message
        });
        let work = move |_: &Context| {
            dice.roll();
            Work(Vec::new(), dice.clone())
        };
        let first = builder
            .bolt("first", work.clone())
            .parallelism(2)
            .tick_every(SECOND)
            .fields(&source, |message| message)
            .all(&source);
        builder
            .bolt("letters", |_| expiry_topology::sink(|_: &Message, _| ()))
            .fields(letters, |message| message);
        let (handle, maps) = (runtime.handle().clone(), asks.clone());
        let asked = builder
            .bolt("asks", move |context| {
                let (handle, asks, spawns) = (handle.clone(), asks.clone(), spawns.clone());
                let spawn = move |future| {
                    spawns.roll();
                    handle.block_on(future);
                    spawns.roll();
                };
                concurrent(context, 2, spawn, move |message: Message| {
                    asks.roll();
                    let asks = asks.clone();
                    async move {
                        asks.roll();
                        Ok([message.clone(), message])
                    }
                })
            })
            .shuffle(first.stream().filter_map(move |message: &Message| {
                maps.roll();
                (message.0 % 3 > 0).then(|| message.clone())
            }));
        builder.bolt("last", work).tick_every(SECOND).shuffle(&first).all(&asked);
        let mut topology = builder.simulate(&clock).unwrap();
        for round in 0..100_000 {
            topology.settle(10_000);
            if topology.is_finished() {
                break;
            }
            assert!(round < 99_999, "seed {seed}: {:?}", topology.metrics());
            if round % 7 == 3 {
                topology.deactivate();
                topology.settle(10);
                topology.activate();
            }
            clock.advance(topology.next_due().unwrap().max(Duration::from_millis(1)));
        }
        let metrics = topology.metrics();
        panics += metrics.iter().map(|metrics| metrics.panics).sum::<u64>();
        drop(topology);
        let (mut emitted, mut ended) = (Vec::new(), Vec::new());
        for told in told.all() {
            match told {
                Told::Emitted(id) => emitted.push(id),
                Told::Ack(id) | Told::Fail(id, _) => ended.push(id),
                _ => {}
            }
        }
        emitted.sort_unstable();
        ended.sort_unstable();
        assert_eq!(ended, emitted, "seed {seed}");
        assert_eq!(metrics[0].acked + metrics[0].dead_letters, ended.len() as u64);
    }
    assert!(panics > 10_000, "{panics}");
}

/// Panics over each tenth number, and over the one in the middle the first time.
#[derive(Clone, Default)]
struct Touchy(Arc<Mutex<HashSet<u64>>>);

impl Touchy {
    fn touch(&self, n: u64) {
        let is_first = self.0.lock().unwrap().insert(n);
        if n % 10 == 0 || (n % 10 == 5 && is_first) {
            panic();
        }
    }
}

/// A message whose copies may panic.
struct Message(u64, Option<Touchy>);

impl Clone for Message {
    fn clone(&self) -> Self {
        self.1.iter().for_each(|touchy| touchy.touch(self.0));
        Message(self.0, self.1.clone())
    }
}

/// The users' code that runs while a message is offered.
const OFFERS: [&str; 5] = ["fields", "map", "filter", "filter_map", "clone"];

/// Adds a bolt whose grouping calls the code of this name.
fn touched<'t, S: Source<'t, Message = Message>>(
    builder: &'t TopologyBuilder,
    source: S,
    offer: &str,
    touchy: &Touchy,
) {
    let (sink, touchy) = (builder.bolt("sink", |_| sink(|_: &Message, _| ())), touchy.clone());
    match offer {
        "fields" => sink.fields(source, move |message| {
            touchy.touch(message.0);
            &message.0
        }),
        "map" => sink.shuffle(source.into_stream().map(move |message: Message| {
            touchy.touch(message.0);
            message
        })),
        "filter" => sink.shuffle(source.into_stream().filter(move |message: &Message| {
            touchy.touch(message.0);
            true
        })),
        "filter_map" => sink.shuffle(source.into_stream().filter_map(move |message: &Message| {
            touchy.touch(message.0);
            Some(Message(message.0, None))
        })),
        _ => sink.parallelism(2).all(source),
    };
}

fn tenths() -> Vec<u64> {
    (0..100).step_by(10).collect()
}

fn ids(failed: &[(u64, Failure)]) -> Vec<u64> {
    let mut ids: Vec<u64> = failed.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids
}

/// A panic of users' code while a spout's message is offered is a failed attempt of that message.
/// The message is replayed, then a dead letter. The spout's instance goes on.
#[test]
fn a_panic_while_a_message_is_offered_fails_the_attempt() {
    for offer in OFFERS {
        let builder = TopologyBuilder::new();
        let (touchy, made) = (Touchy::default(), Arc::new(AtomicUsize::new(0)));
        let of = (offer == "clone").then(|| touchy.clone());
        let given = VecSpout::new((0..100).map(move |n| Message(n, of.clone())));
        let (spout, count) = (given.clone(), made.clone());
        let numbers = builder
            .spout("numbers", move |_| {
                count.fetch_add(1, Relaxed);
                spout.clone()
            })
            .replay(Replay::default().attempts(3).for_at_least(Duration::ZERO));
        touched(&builder, &numbers, offer, &touchy);
        let letters = Collect::new();
        let letter = numbers.dead_letters().map(|letter| (letter.message.0, letter.attempts));
        builder.bolt("letters", letters.instances()).shuffle(letter);
        let mut topology = builder.simulate(&ManualClock::new()).unwrap();
        assert!(topology.run(100_000), "{offer}");
        let spout = &topology.metrics()[0];
        assert_eq!(ids(&given.failed()), tenths(), "{offer}");
        let (by, why) = (None, Some("panicked: it was to panic".into()));
        assert_eq!(given.failed()[0].1, Failure::Failed { by, why });
        let counts = (spout.acked, spout.dead_letters, spout.pending, made.load(Relaxed));
        assert_eq!(counts, (90, 10, 0, 1), "{offer}");
        if offer != "clone" {
            let of = tenths().into_iter().map(|n| (n, 3)).collect::<Vec<_>>();
            let mut came = letters.all();
            came.sort_unstable();
            assert_eq!(came, of, "{offer}");
            assert_eq!((spout.failed, spout.replayed, spout.panics), (40, 10, 40), "{offer}");
        }
    }
}

/// As before, where no message is emitted again: the spout's `fail` is called at once, with acking
/// and without. An untracked message is dropped.
#[test]
fn a_panic_while_a_message_is_offered_once_ends_it() {
    for (offer, acking) in OFFERS.iter().flat_map(|offer| [(*offer, true), (*offer, false)]) {
        let (builder, touchy) = (TopologyBuilder::new(), Touchy::default());
        builder.acking(acking);
        let of = (offer == "clone").then(|| touchy.clone());
        let given = VecSpout::new((0..100).map(move |n| Message(n, of.clone())));
        let numbers = builder.spout("numbers", given.instances());
        touched(&builder, &numbers, offer, &touchy);
        let mut topology = builder.simulate(&ManualClock::new()).unwrap();
        assert!(topology.run(100_000), "{offer}");
        let fifths: Vec<u64> = (0..100).step_by(5).collect();
        assert_eq!((given.acked().len(), ids(&given.failed())), (80, fifths), "{offer}");
    }
    struct Untracked;
    impl Spout<u64> for Untracked {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            (0..11).for_each(|n| out.emit_untracked(n));
            Next::Done
        }
    }
    let (builder, touchy) = (TopologyBuilder::new(), Touchy::default());
    let numbers = builder.spout("numbers", |_| Untracked);
    let came = Collect::new();
    let touched = numbers.stream().filter(move |n| {
        touchy.touch(*n);
        true
    });
    builder.bolt("came", came.instances()).shuffle(touched);
    let mut topology = builder.simulate(&ManualClock::new()).unwrap();
    assert!(topology.run(1_000));
    assert_eq!(came.all(), [1, 2, 3, 4, 6, 7, 8, 9]);
    assert_eq!((topology.metrics()[0].panics, topology.metrics()[0].errors), (3, 3));
}

/// A panic of users' code while a bolt's message is offered fails the trees that the message is
/// derived from. The bolt's instance goes on.
#[test]
fn a_panic_while_a_bolts_message_is_offered_fails_its_parents() {
    for offer in OFFERS {
        let builder = TopologyBuilder::new();
        let (touchy, made) = (Touchy::default(), Arc::new(AtomicUsize::new(0)));
        let (given, count) = (VecSpout::new(0..100), made.clone());
        let of = (offer == "clone").then(|| touchy.clone());
        let numbers = builder
            .spout("numbers", given.instances())
            .replay(Replay::default().attempts(3).for_at_least(Duration::ZERO));
        let pass = builder.bolt("pass", move |_| {
            count.fetch_add(1, Relaxed);
            let of = of.clone();
            basic(move |n: &u64, out| out.emit(Message(*n, of.clone())))
        });
        touched(&builder, &pass.shuffle(&numbers), offer, &touchy);
        let mut topology = builder.simulate(&ManualClock::new()).unwrap();
        assert!(topology.run(100_000), "{offer}");
        assert_eq!(ids(&given.failed()), tenths(), "{offer}");
        let why = Some("panicked: it was to panic".into());
        let by = Some("pass".into());
        assert_eq!(given.failed()[0].1, Failure::Failed { by, why });
        let (spout, pass) = (&topology.metrics()[0], &topology.metrics()[1]);
        assert_eq!((spout.acked, spout.failed, spout.timed_out, spout.pending), (90, 40, 0, 0));
        assert_eq!((pass.trees_failed, pass.panics, made.load(Relaxed)), (40, 40, 1), "{offer}");
    }
}
