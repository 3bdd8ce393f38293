//! Topologies of components that panic, stall, drop, fail and hold tuples back at random, on
//! threads. Every message must be accounted for. `EXPIRY_CHAOS_SEED=7` gives other runs.
//!
//! ```text
//!            +-------- again <---+
//!            v                   | round
//! source -> split ---------------+
//!            | left +-> left --+-> join -> pair -> sink
//!            |      +-> audit  |                    ^
//!            | right -> right -+                    +- noise, untracked, of left and right
//! ```
//!
//! A message goes round a few times, and is split into pairs of leaves. A bolt joins the two of
//! each pair again (in one tree), and then any two of these, mostly in two trees. A component keeps
//! what outlives its instances in the `Book`. It notes errors there, as a panic would be caught.
//!
//! Time is real. On a slow machine a tree may take longer than the timeout, or the first of a pair
//! may not wait long enough for the other. Such a run never comes to rest, and that is right. The
//! test then abandons the run, and begins another one with longer waits.

use expiry::Root;
use expiry_topology::{
    sink, Bolt, BoltCollector, BoltStage, ComponentMetrics, Context, DeadLetter, Failure, Next,
    Parents, Replay, Spout, SpoutCollector, Stream, Topology, TopologyBuilder, Tuple, WaitStrategy,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SPOUTS: usize = 2;
/// Factors by which all waits are longer than on an idle machine: the first one, and those that
/// follow if it was too short.
const PACES: [u32; 3] = [1, 8, 64];
/// How long it takes at most to come to rest, at the first pace.
const LIMIT: Duration = Duration::from_secs(30);

/// How many pairs of leaves a message has.
fn pairs(id: u64) -> u8 {
    1 + (id % 3) as u8
}

/// The bit that an audit of a leaf sets.
fn audited(task: usize, leaf: u8) -> u64 {
    1 << (16 + 8 * task as u8 + leaf)
}

#[derive(Debug, Clone)]
struct Job {
    id: u64,
    hops: u8,
    /// The leaves that it is made of, and in which tree.
    leaves: Vec<(Root, u8)>,
    /// The first of them, and its pair.
    pair: (u64, u8),
    /// Counted by the task that has emitted it; 0 of spouts, whose messages may come again.
    number: u64,
    /// Where a bolt sends it, of several ways.
    way: &'static str,
}

fn way<'t>(stage: &BoltStage<'t, Job, Job>, way: &'static str) -> Stream<'t, Job> {
    stage.stream().filter(move |job| job.way == way)
}

/// What a component should find in its metrics.
#[derive(Debug, Default)]
struct Tally {
    instances: AtomicU64,
    emitted: AtomicU64,
    entered: AtomicU64,
    acked: AtomicU64,
    failed: AtomicU64,
    panics: AtomicU64,
    /// How many of these came while a tuple was executed, and how many while an instance was made.
    panics_executing: AtomicU64,
    panics_made: AtomicU64,
}

/// What a task of a spout knows.
#[derive(Debug, Default)]
struct Ledger {
    emitted: u64,
    acked: u64,
    failed: u64,
    pending: HashSet<u64>,
}

/// What is known of the trees.
#[derive(Debug, Default)]
struct Trees {
    attempts: HashMap<u64, Vec<Root>>,
    /// Which leaves have come to the end, and were acked there.
    ended: HashMap<Root, u64>,
}

#[derive(Debug)]
struct Book {
    plan: Plan,
    wrong: Mutex<Vec<String>>,
    ledgers: [Mutex<Ledger>; SPOUTS],
    trees: Mutex<Trees>,
    /// The number of the last message from one task to another, for each pair of tasks.
    order: Mutex<HashMap<[(String, usize); 2], u64>>,
    tallies: HashMap<&'static str, Tally>,
    /// Message numbers by component and task.
    numbers: Mutex<HashMap<(&'static str, usize), u64>>,
    held: AtomicI64,
    letters: AtomicU64,
}

impl Book {
    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }

    fn check(&self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.wrong(what());
        }
    }

    fn panic(&self, component: &str) -> ! {
        self.tallies[component].panics.fetch_add(1, Relaxed);
        std::panic::resume_unwind(Box::new("chaos"));
    }

    /// For an instance that is about to be made. One in five is not.
    fn instance(&self, component: &str, context: &Context) -> SmallRng {
        let tally = &self.tallies[component];
        let nth = tally.instances.fetch_add(1, Relaxed);
        if nth % 5 == 4 {
            tally.panics_made.fetch_add(1, Relaxed);
            self.panic(component);
        }
        let name: u64 = component.bytes().map(u64::from).sum();
        SmallRng::seed_from_u64(
            self.plan.seed << 40 | name << 24 | (context.task() as u64) << 16 | nth,
        )
    }

    /// All of a message's leaves have come to the end in one of its trees.
    fn is_complete(&self, id: u64) -> bool {
        let mut all = (1 << (2 * pairs(id))) - 1;
        for leaf in (0..2 * pairs(id)).step_by(2) {
            all |= audited(0, leaf) | audited(1, leaf);
        }
        let trees = self.trees.lock().unwrap();
        let attempts = trees.attempts.get(&id);
        attempts.is_some_and(|roots| roots.iter().any(|root| trees.ended.get(root) == Some(&all)))
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    seed: u64,
    messages: u64,
    max_pending: usize,
    has_joins: bool,
    has_cycle: bool,
    attempts: u32,
    pace: u32,
}

struct Source {
    book: Arc<Book>,
    random: SmallRng,
    task: usize,
}

impl Source {
    fn maybe_panic(&mut self, one_in: u32) {
        if self.random.random_ratio(1, one_in) {
            self.book.panic("source");
        }
    }

    /// Notes that a message has ended. Whether it was pending.
    fn end(&self, id: u64, what: &str) -> bool {
        let was = self.book.ledgers[self.task].lock().unwrap().pending.remove(&id);
        self.book.check(was, || format!("{what} of {id}, which is not pending"));
        was
    }
}

impl Spout<Job> for Source {
    fn replay_by_default() -> expiry_topology::Replay {
        expiry_topology::Replay::once()
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, Job>) -> Next {
        let plan = self.book.plan;
        self.maybe_panic(200);
        for _ in 0..self.random.random_range(1..8) {
            let mut ledger = self.book.ledgers[self.task].lock().unwrap();
            let (room, pending) = (out.room(), ledger.pending.len());
            let right = room + pending == plan.max_pending;
            self.book.check(right, || format!("room for {room} and {pending} pending"));
            if ledger.emitted == plan.messages {
                return Next::Done;
            }
            let id = self.task as u64 * plan.messages + ledger.emitted;
            let job = Job {
                id,
                hops: if plan.has_cycle { (id % 4) as u8 } else { 0 },
                leaves: Vec::new(),
                pair: (id, 0),
                number: 0,
                way: "",
            };
            match out.emit(job, id) {
                Ok(()) => {
                    ledger.emitted += 1;
                    ledger.pending.insert(id);
                    self.book.tallies["source"].emitted.fetch_add(1, Relaxed);
                }
                Err(refused) => {
                    self.book.check(room == 0, || format!("{refused} with room for {room}"));
                    break;
                }
            }
        }
        self.maybe_panic(200);
        if self.random.random_ratio(1, 20) {
            Next::Idle
        } else {
            Next::Ready
        }
    }

    fn ack(&mut self, id: u64) {
        if self.end(id, "an ack") {
            self.book.ledgers[self.task].lock().unwrap().acked += 1;
            let complete = self.book.is_complete(id);
            self.book.check(complete, || format!("{id} is acked before its leaves are"));
        }
        self.maybe_panic(300);
    }

    fn fail(&mut self, id: u64, failure: &Failure) {
        if self.end(id, "a failure") {
            self.book.ledgers[self.task].lock().unwrap().failed += 1;
            let right = self.book.plan.attempts < u32::MAX;
            self.book.check(right, || format!("{id} is given up: {failure:?}"));
        }
        self.maybe_panic(100);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Split,
    /// Emits it again as it is; `noise` sometimes adds something that is not tracked.
    Pass {
        noise: bool,
    },
    Join,
    Pair,
    Sink,
    Audit,
}

/// A bolt.
struct Chaos {
    book: Arc<Book>,
    random: SmallRng,
    name: &'static str,
    task: usize,
    work: Work,
    /// Tuples that it does its work with later.
    late: Vec<Tuple<Job>>,
    /// Tuples that wait for another one, and for how many ticks.
    alone: HashMap<(Option<Root>, u8), (Tuple<Job>, u32)>,
    /// How many of its tuples the book knows to be held.
    held: i64,
    is_executing: bool,
}

impl Chaos {
    fn tally(&self) -> &Tally {
        &self.book.tallies[self.name]
    }

    fn panic(&self) -> ! {
        if self.is_executing {
            self.tally().panics_executing.fetch_add(1, Relaxed);
        }
        self.book.panic(self.name);
    }

    fn recount(&mut self) {
        let held = (self.late.len() + self.alone.len()) as i64;
        self.book.held.fetch_add(held - self.held, Relaxed);
        self.held = held;
    }

    fn stall(&mut self) {
        match self.random.random_range(0..8) {
            0 => std::thread::sleep(Duration::from_micros(self.random.random_range(1..2000))),
            1..=3 => (0..100).for_each(|_| std::hint::spin_loop()),
            _ => std::thread::yield_now(),
        }
    }

    /// Emits a job that is numbered first.
    fn emit(
        &self,
        out: &mut BoltCollector<'_, Job>,
        way: &'static str,
        parents: impl Parents,
        mut job: Job,
    ) {
        let mut numbers = self.book.numbers.lock().unwrap();
        let number = numbers.entry((self.name, self.task)).or_default();
        *number += 1;
        (job.number, job.way) = (*number, way);
        drop(numbers);
        self.tally().emitted.fetch_add(1, Relaxed);
        out.emit(parents, job);
    }

    fn ack(&mut self, out: &mut BoltCollector<'_, Job>, tuple: Tuple<Job>) {
        if self.random.random_ratio(1, 500) {
            // All was emitted, and it is not acked.
            self.panic();
        }
        self.tally().acked.fetch_add(1, Relaxed);
        out.ack(tuple);
    }

    /// Emits what two tuples make together.
    fn together(&mut self, one: Tuple<Job>, other: Tuple<Job>, out: &mut BoltCollector<'_, Job>) {
        let mut job = one.message().clone();
        job.leaves.extend(&other.leaves);
        self.emit(out, "default", &[&one, &other], job);
        self.ack(out, one);
        self.ack(out, other);
    }

    fn work(&mut self, tuple: Tuple<Job>, out: &mut BoltCollector<'_, Job>) {
        let job = tuple.message().clone();
        match self.work {
            Work::Split if job.hops > 0 => {
                let hops = job.hops - 1;
                self.emit(out, "round", &tuple, Job { hops, ..job });
            }
            Work::Split => {
                let root = tuple.roots().next().expect("it is tracked");
                self.book.trees.lock().unwrap().attempts.entry(job.id).or_default().push(root);
                for leaf in 0..2 * pairs(job.id) {
                    let (leaves, pair) = (vec![(root, leaf)], (job.id, leaf / 2));
                    let stream = ["left", "right"][usize::from(leaf % 2)];
                    let job = job.clone();
                    self.emit(out, stream, &tuple, Job { leaves, pair, ..job });
                }
            }
            Work::Pass { noise } => {
                if noise && self.random.random_ratio(1, 20) {
                    let leaves = Vec::new();
                    let job = job.clone();
                    self.emit(out, "noise", (), Job { leaves, ..job });
                }
                self.emit(out, "default", &tuple, job);
            }
            Work::Join | Work::Pair => {
                // A join needs the tree that was halved; a pair takes any two.
                let root = job.leaves.first().map(|leaf| leaf.0);
                let key = if self.work == Work::Join { (root, job.pair.1) } else { (None, 0) };
                match self.alone.remove(&key) {
                    Some((other, _)) => self.together(tuple, other, out),
                    None => drop(self.alone.insert(key, (tuple, 0))),
                }
                return;
            }
            Work::Sink | Work::Audit => {
                let mut trees = self.book.trees.lock().unwrap();
                for &(root, leaf) in &job.leaves {
                    let bit =
                        if self.work == Work::Audit { audited(self.task, leaf) } else { 1 << leaf };
                    *trees.ended.entry(root).or_default() |= bit;
                }
            }
        }
        self.ack(out, tuple);
    }

    fn check_order(&self, tuple: &Tuple<Job>, out: &BoltCollector<'_, Job>) {
        let source = out.source(tuple).to_string();
        if tuple.number > 0 {
            // A bolt that listens in several ways has several lanes.
            let source = source + tuple.way;
            let lane = [(source, tuple.source_task()), (self.name.to_string(), self.task)];
            let before = self.book.order.lock().unwrap().insert(lane.clone(), tuple.number);
            let right = before.unwrap_or(0) < tuple.number;
            self.book.check(right, || format!("{lane:?}: {} after {before:?}", tuple.number));
        }
    }
}

impl Bolt<Job, Job> for Chaos {
    fn execute(&mut self, tuple: Tuple<Job>, out: &mut BoltCollector<'_, Job>) {
        self.tally().entered.fetch_add(1, Relaxed);
        self.check_order(&tuple, out);
        self.is_executing = true;
        match self.random.random_range(0..1000) {
            0..=4 => self.panic(),
            5..=11 => {
                self.tally().failed.fetch_add(1, Relaxed);
                out.fail(tuple);
            }
            12..=13 => drop(tuple),
            14..=43 => self.late.push(tuple),
            44..=79 => {
                self.stall();
                self.work(tuple, out);
            }
            80..=82 => {
                self.work(tuple, out);
                self.panic();
            }
            _ => self.work(tuple, out),
        }
        self.is_executing = false;
        self.recount();
    }

    fn tick(&mut self, out: &mut BoltCollector<'_, Job>) {
        if self.random.random_ratio(1, 50) {
            self.panic();
        }
        while let Some(tuple) = self.late.pop() {
            self.work(tuple, out);
        }
        let mut old = Vec::new();
        for (key, (_, age)) in &mut self.alone {
            *age += 1;
            if *age > 2 {
                old.push(*key);
            }
        }
        for key in old {
            let (tuple, _) = self.alone.remove(&key).expect("it was there");
            if self.work == Work::Pair {
                let job = tuple.message().clone();
                self.emit(out, "default", &tuple, job);
                self.ack(out, tuple);
            }
        }
        self.recount();
    }
}

impl Drop for Chaos {
    fn drop(&mut self) {
        self.book.held.fetch_sub(self.held, Relaxed);
    }
}

fn build(book: &Arc<Book>) -> TopologyBuilder {
    let plan = book.plan;
    let mut random = SmallRng::seed_from_u64(plan.seed);
    let builder = TopologyBuilder::new();
    builder
        .timeout(Duration::from_millis(250) * plan.pace)
        .interval(Duration::from_millis(10))
        .queue(random.random_range(1..4))
        .batch(random.random_range(1..5))
        .seed(plan.seed);
    if plan.seed % 2 == 0 {
        builder.wait(WaitStrategy::Park);
    }
    let source = book.clone();
    let source = builder
        .spout("source", move |context| Source {
            random: source.instance("source", context),
            task: context.task(),
            book: source.clone(),
        })
        .parallelism(SPOUTS)
        .max_pending(plan.max_pending)
        .replay(
            Replay::default()
                .attempts(plan.attempts)
                .for_at_least(Duration::ZERO)
                .base(Duration::from_millis(1))
                .cap(Duration::from_millis(20)),
        );
    let letters = book.clone();
    let told = move |letter: &DeadLetter<Job>| {
        letters.letters.fetch_add(1, Relaxed);
        let id = letter.message.id;
        let task = (id / plan.messages) as usize;
        let pending = letters.ledgers[task].lock().unwrap().pending.contains(&id);
        let right = pending && letter.attempts == plan.attempts && letter.id == id.to_string();
        letters.check(right, || format!("{letter:?}"));
    };
    let told = Arc::new(told);
    builder
        .bolt("letters", move |_| {
            let told = told.clone();
            sink(move |letter: &DeadLetter<Job>, _| told(letter))
        })
        .shuffle(source.dead_letters());
    let bolt = |name: &'static str, work| {
        let book = book.clone();
        move |context: &Context| Chaos {
            random: book.instance(name, context),
            book: book.clone(),
            name,
            task: context.task(),
            work,
            late: Vec::new(),
            alone: HashMap::new(),
            held: 0,
            is_executing: false,
        }
    };
    let tick = Duration::from_millis(10) * plan.pace;
    let split = builder
        .bolt("split", bolt("split", Work::Split))
        .parallelism(2)
        .shuffle(&source)
        .tick_every(tick);
    if plan.has_cycle {
        let again = builder
            .bolt("again", bolt("again", Work::Pass { noise: false }))
            .shuffle(way(&split, "round"))
            .tick_every(tick);
        split.clone().shuffle(&again);
    }
    let [left, right] = ["left", "right"].map(|side| {
        builder
            .bolt(side, bolt(side, Work::Pass { noise: true }))
            .parallelism(2)
            .threads(1)
            .tick_every(tick)
            .shuffle(way(&split, side))
    });
    builder
        .bolt("audit", bolt("audit", Work::Audit))
        .parallelism(2)
        .all(way(&split, "left"))
        .tick_every(tick);
    let sink = builder
        .bolt("sink", bolt("sink", Work::Sink))
        .parallelism(2)
        .tick_every(tick)
        .shuffle(way(&left, "noise"))
        .shuffle(way(&right, "noise"));
    let (left, right) = (way(&left, "default"), way(&right, "default"));
    if plan.has_joins {
        let join = builder
            .bolt("join", bolt("join", Work::Join))
            .parallelism(2)
            .fields(left, |job| &job.pair)
            .fields(right, |job| &job.pair)
            .tick_every(tick);
        let pair = builder.bolt("pair", bolt("pair", Work::Pair)).global(&join).tick_every(tick);
        sink.shuffle(&pair);
    } else {
        sink.fields(left, |job| &job.pair).shuffle(right);
    }
    builder
}

/// Waits until all is at rest, and until no bolt holds a tuple of an ended tree that it would still
/// work on. Returns the reason if that takes too long.
fn rest(topology: &Topology, book: &Book) -> Result<(), String> {
    let began = Instant::now();
    loop {
        // A bolt that holds a tuple has noted that before the tuple counts as executed.
        let executed = || -> u64 { topology.metrics().iter().map(|of| of.executed).sum() };
        let before = executed();
        let held = book.held.load(Relaxed);
        let rests = topology.wait(Duration::from_millis(1));
        let pending = topology.metrics()[0].pending;
        assert!(pending <= (SPOUTS * book.plan.max_pending) as u64, "{pending} pending");
        if rests.is_ok() && held == 0 && executed() == before {
            return Ok(());
        }
        let wrong = book.wrong.lock().unwrap().clone();
        assert!(wrong.is_empty(), "{:?}: {wrong:?}", book.plan);
        if began.elapsed() >= LIMIT * book.plan.pace {
            let metrics = topology.metrics();
            return Err(format!("{:?}: {held} held, {rests:?}, {metrics:?}", book.plan));
        }
    }
}

/// What the metrics say is what the components have done.
fn check_metrics(book: &Book, metrics: &[ComponentMetrics]) {
    let count = |count: &AtomicU64| count.load(Relaxed);
    let sum = |of: fn(&ComponentMetrics) -> u64| metrics.iter().map(of).sum::<u64>();
    // A panic loses no tuple: that which it was over has been executed, and failed.
    assert_eq!(sum(|of| of.transferred), sum(|of| of.executed));
    assert_eq!(sum(|of| of.overflow) + sum(|of| of.queued as u64), 0);
    assert!(sum(|of| of.panics) > 0);
    for of in metrics.iter().filter(|of| of.name != "letters") {
        let tally = &book.tallies[of.name.as_str()];
        assert_eq!(of.panics, count(&tally.panics), "{of:?}");
        assert_eq!(of.errors, of.panics, "{of:?}");
        let made = count(&tally.panics_made);
        if of.name == "source" {
            assert_eq!(of.emitted, count(&tally.emitted) + of.replayed + of.dead_letters, "{of:?}");
            assert_eq!(of.failed + of.timed_out, of.replayed + of.dead_letters, "{of:?}");
            assert_eq!(of.pending, 0, "{of:?}");
            // Each task samples its first message and one in 16, but for those that came while a
            // thread read the metrics.
            let sampled = 1..=of.acked / 16 + of.tasks as u64;
            assert!(sampled.contains(&of.latency.count()), "{of:?}");
            assert!(of.failed > 0 && of.timed_out > 0, "{of:?}");
        } else {
            assert_eq!(
                (of.emitted, of.acked),
                (count(&tally.emitted), count(&tally.acked)),
                "{of:?}"
            );
            let entered = count(&tally.entered);
            assert!((entered..=entered + made).contains(&of.executed), "{of:?}");
            let failed = count(&tally.failed) + count(&tally.panics_executing);
            assert!((failed..=failed + made).contains(&of.failed), "{of:?}");
        }
    }
}

fn chaos(plan: Plan) {
    let mut why = String::new();
    for pace in PACES {
        match at_pace(Plan { pace, ..plan }) {
            Ok(()) => return,
            Err(slow) => why = slow,
        }
        println!("not at rest: {why}");
    }
    panic!("never at rest: {why}");
}

fn at_pace(plan: Plan) -> Result<(), String> {
    let names = ["source", "split", "again", "left", "right", "audit", "join", "pair", "sink"];
    let book = Arc::new(Book {
        plan,
        wrong: Mutex::default(),
        ledgers: Default::default(),
        trees: Mutex::default(),
        order: Mutex::default(),
        tallies: names.map(|name| (name, Tally::default())).into(),
        numbers: Mutex::default(),
        held: AtomicI64::new(0),
        letters: AtomicU64::new(0),
    });
    let topology = build(&book).start().unwrap();
    rest(&topology, &book)?;
    assert!(topology.tracker_metrics().unwrap().total.live == 0);
    let metrics = topology.drain(LIMIT * plan.pace).unwrap();
    let wrong = book.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{plan:?}: {wrong:?}");
    let (mut acked, mut failed) = (0, 0);
    for ledger in &book.ledgers {
        let ledger = ledger.lock().unwrap();
        assert_eq!(ledger.emitted, plan.messages);
        assert_eq!(ledger.acked + ledger.failed, ledger.emitted, "{ledger:?}");
        assert!(ledger.pending.is_empty());
        acked += ledger.acked;
        failed += ledger.failed;
    }
    assert_eq!((metrics[0].acked, metrics[0].dead_letters), (acked, failed));
    assert_eq!(book.letters.load(Relaxed), failed);
    assert_eq!(failed > 0, plan.attempts < u32::MAX);
    check_metrics(&book, &metrics);
    Ok(())
}

fn seed() -> u64 {
    std::env::var("EXPIRY_CHAOS_SEED").map_or(0, |seed| seed.parse().expect("a number"))
}

const PLAN: Plan = Plan {
    seed: 0,
    messages: 500,
    max_pending: 32,
    has_joins: true,
    has_cycle: true,
    attempts: u32::MAX,
    pace: 1,
};

#[test]
fn branches_account_for_every_message() {
    for seed in seed()..seed() + 2 {
        chaos(Plan { seed, has_joins: false, has_cycle: false, ..PLAN });
    }
}

#[test]
fn joins_account_for_every_message() {
    for seed in seed()..seed() + 2 {
        chaos(Plan { seed, has_cycle: false, ..PLAN });
    }
}

#[test]
fn cycles_account_for_every_message() {
    for seed in seed()..seed() + 2 {
        chaos(Plan { seed, ..PLAN });
    }
}

#[test]
fn dead_letters_and_acks_are_all_that_was_emitted() {
    chaos(Plan { seed: seed(), attempts: 2, ..PLAN });
}
