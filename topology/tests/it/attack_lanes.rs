//! What a hostile component could break in the lanes: order, roots, batches, and values of users.

use crate::common::*;
use expiry_topology::{
    sink, Bolt, BoltCollector, Collect, Context, DeadLetter, Next, Spout, SpoutCollector,
    TopologyBuilder, Tuple, VecSpout, Waker,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::time::Instant;

/// What came by which grouping, to which task: a number, and whether it is tracked.
type Came = Log<(usize, usize, (u64, bool))>;

/// Emits tracked and untracked numbers in any order, up to 200 in one call.
struct Mixes(u64, SmallRng, Log<(u64, bool)>);

impl Spout<(u64, bool)> for Mixes {
    fn next(&mut self, out: &mut SpoutCollector<'_, (u64, bool)>) -> Next {
        for _ in 0..self.1.random_range(0..200) {
            let message = (self.0, self.1.random_bool(0.5));
            if !message.1 {
                out.emit_untracked(message);
            } else if out.emit(message, self.0).is_err() {
                break;
            }
            self.2.note(message);
            self.0 += 1;
        }
        [Next::Ready, Next::Done][usize::from(self.0 >= 1_000)]
    }
}

/// Notes what comes; acks it, rejects it, or holds it until a tick.
struct Takes(usize, usize, SmallRng, Vec<Tuple<(u64, bool)>>, Came);

impl Bolt<(u64, bool)> for Takes {
    fn execute(&mut self, tuple: Tuple<(u64, bool)>, out: &mut BoltCollector<'_>) {
        assert_eq!(tuple.roots().count(), usize::from(tuple.1), "{tuple:?}");
        self.4.note((self.0, self.1, *tuple));
        match self.2.random_range(0..20) {
            0 => out.reject(tuple, "no"),
            1..=5 => self.3.push(tuple),
            _ => out.ack(tuple),
        }
    }
    fn is_ready(&self) -> bool {
        self.3.len() < 5
    }
    fn tick(&mut self, out: &mut BoltCollector<'_>) {
        self.3.drain(..).for_each(|tuple| out.ack(tuple));
    }
}

/// Whatever fits into the tracker and into a batch: each copy comes once, in order, with its root.
#[test]
fn messages_that_wait_for_roots_keep_their_order() {
    let mut refusals = 0;
    for seed in 0..70_u64 {
        let mut random = SmallRng::seed_from_u64(seed);
        let (sent, came): (_, Came) = (Log::new(), Log::new());
        let (clock, _, builder) = rig();
        builder.batch([1, 2, 3, 64][seed as usize % 4]).queue(random.random_range(1..4));
        if seed % 3 != 0 {
            builder.capacity([1, 7, 100][seed as usize % 7 % 3]).shards(1);
        }
        let spout = builder
            .spout("mixes", {
                let sent = sent.clone();
                move |_| Mixes(0, SmallRng::seed_from_u64(seed), sent.clone())
            })
            .max_pending(random.random_range(1..500));
        let takes = |grouping| {
            let came = came.clone();
            let make = move |context: &Context| {
                let random = SmallRng::seed_from_u64(seed + grouping as u64);
                Takes(grouping, context.task(), random, Vec::new(), came.clone())
            };
            builder.bolt(&grouping.to_string(), make).parallelism(3).tick_every(SECOND / 100)
        };
        takes(0).shuffle(&spout);
        takes(1).all(&spout);
        takes(2).key_by(spout.stream().filter(|message| message.0 % 5 == 0), |message| message.0);
        takes(3).direct(spout.stream().map(|message| message), |message| {
            usize::MAX - message.0 as usize
        });
        let letters =
            |_: &Context| sink(|letter: &DeadLetter<(u64, bool)>, _| assert!(letter.message.1));
        builder.bolt("letters", letters).shuffle(spout.dead_letters());
        let mut topology = builder.simulate(&clock).unwrap();
        for _ in 0..20 {
            let name = random.random_range(0..4).to_string();
            topology.hold(&name, true);
            topology.settle(random.random_range(1..30));
            topology.hold(&name, false);
        }
        assert!(topology.run(1_000_000), "seed {seed}: {:?}", topology.metrics());
        let metrics = topology.metrics();
        let fifths = sent.all().into_iter().filter(|message| message.0 % 5 == 0).collect();
        let groupings = [(1, sent.all()), (3, sent.all()), (1, fifths), (1, sent.all())];
        for (grouping, (copies, expected)) in groupings.into_iter().enumerate() {
            let mut all = Vec::new();
            for task in 0..3 {
                let here = came.all().into_iter().filter(|it| (it.0, it.1) == (grouping, task));
                let here: Vec<_> = here.map(|it| it.2).collect();
                assert!(here.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}: {grouping} {here:?}");
                all.extend(here);
            }
            all.sort_unstable();
            let expected = expected.into_iter().flat_map(|it| vec![it; copies]);
            assert!(all.into_iter().eq(expected), "seed {seed}: {grouping}");
        }
        assert_eq!(metrics[0].timed_out, 0, "seed {seed}");
        let executed: u64 = metrics.iter().map(|metrics| metrics.executed).sum();
        assert_eq!(metrics[0].transferred, executed, "seed {seed}");
        assert_eq!(metrics[0].pending, 0, "seed {seed}");
        refusals += metrics[0].errors;
    }
    assert!(refusals > 1_000, "{refusals}");
}

/// Takes two tuples at a time. A tick asks for their answers, which the next tick sends on.
struct Late(Waker, Vec<Tuple<u64>>, Vec<Tuple<u64>>);

impl Bolt<u64, u64> for Late {
    fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
        self.1.push(tuple);
    }
    fn is_ready(&self) -> bool {
        self.1.len() + self.2.len() < 2
    }
    fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
        for tuple in self.2.drain(..) {
            out.emit(&tuple, *tuple);
            out.ack(tuple);
        }
        self.0.wake();
    }
    fn woken(&mut self, _: &mut BoltCollector<'_, u64>) {
        self.2.append(&mut self.1);
    }
}

/// While a topology is drained, ticks come early, to one bolt after another. A bolt that is not
/// ready, or was woken, ticks too.
#[test]
fn a_drain_ticks_whatever_a_bolt_waits_for() {
    let builder = TopologyBuilder::new();
    builder.timeout(SECOND * 100_000).batch(2);
    let numbers = builder.spout("numbers", |_| VecSpout::new(0..20));
    let late = |context: &Context| Late(context.waker(), Vec::new(), Vec::new());
    let first = builder.bolt("late", late).shuffle(&numbers).tick_every(SECOND * 10_000);
    builder.bolt("later", late).shuffle(&first).tick_every(SECOND * 10_000);
    let topology = builder.start().unwrap();
    wait_for("20 emissions", || topology.metrics()[0].emitted == 20);
    assert_eq!(topology.drain(SECOND * 20).unwrap()[0].acked, 20);
}

/// Untracked messages behind one that waits for its root go with it, however many one call emits.
#[test]
fn many_untracked_messages_behind_a_tracked_one_are_quick() {
    const MANY: u64 = 400_000;
    struct Floods;
    impl Spout<u64> for Floods {
        fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
            out.emit(0, 0).unwrap();
            (0..MANY).for_each(|n| out.emit_untracked(n));
            Next::Done
        }
    }
    let (clock, _, builder) = rig();
    let floods = builder.spout("floods", |_| Floods);
    let all = Collect::new();
    builder.bolt("all", all.instances()).shuffle(&floods);
    let mut topology = builder.simulate(&clock).unwrap();
    let began = Instant::now();
    topology.settle(1);
    // Cut into batches one by one they take a minute.
    assert!(began.elapsed() < SECOND * 20, "{:?}", began.elapsed());
    assert!(topology.run(1_000_000) && topology.metrics()[0].acked == 1);
    assert_eq!(all.take().len() as u64, MANY + 1);
}

/// A bolt that panics when it is asked whether it is ready has acked its tuple: the ack counts.
#[test]
fn a_panic_of_is_ready_fails_no_tuple() {
    struct Asked(u64);
    impl Bolt<u64> for Asked {
        fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_>) {
            self.0 = *tuple;
            out.ack(tuple);
        }
        fn is_ready(&self) -> bool {
            self.0 != 5 || std::panic::resume_unwind(Box::new("it was to panic"))
        }
    }
    let (clock, _, builder) = rig();
    let numbers = builder.spout("numbers", |_| VecSpout::new(0..10));
    builder.bolt("asked", |_| Asked(0)).shuffle(&numbers);
    let metrics = settled(builder, &clock).metrics();
    assert_eq!((metrics[0].acked, metrics[0].failed, metrics[1].panics), (10, 0, 1));
    assert_eq!((metrics[1].executed, metrics[1].acked, metrics[1].failed), (10, 10, 0));
}
