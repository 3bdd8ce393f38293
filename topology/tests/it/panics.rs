//! Any call of users' code may panic.

use crate::common::*;
use expiry::ManualClock;
use expiry_topology::{
    concurrent, Bolt, BoltCollector, Context, Failure, Hook, Next, Replay, Spout, SpoutCollector,
    TopologyBuilder, Tuple,
};
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
            .replay(Replay::default().attempts(3))
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
