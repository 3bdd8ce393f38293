//! Parts of which the tests' topologies are made. All in simulated time, unless they say otherwise.
#![allow(dead_code)] // each test uses its own share

use expiry::ManualClock;
use expiry_topology::{
    Bolt, BoltCollector, BoltStage, Context, DeadLetter, Failure, Next, Simulation, Source, Spout,
    SpoutCollector, SpoutStage, TopologyBuilder, Tuple,
};
use std::iter::Peekable;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const SECOND: Duration = Duration::from_secs(1);

/// A log that components write and the test reads.
#[derive(Debug, Default)]
pub struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Log(self.0.clone())
    }
}

impl<T: Clone> Log<T> {
    pub fn new() -> Self {
        Log(Arc::default())
    }

    pub fn note(&self, item: T) {
        self.0.lock().unwrap().push(item);
    }

    pub fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Panics without a message on the terminal.
pub fn panic() -> ! {
    std::panic::resume_unwind(Box::new("it was to panic"))
}

/// Panics when it is dropped.
#[derive(Debug, Clone)]
pub struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic();
    }
}

/// What became of a message that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Failed,
    Rejected,
    TimedOut,
}

impl From<&Failure> for Why {
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Failed { .. } => Why::Failed,
            Failure::Rejected { .. } => Why::Rejected,
            Failure::TimedOut { .. } => Why::TimedOut,
            other => panic!("{other:?}"),
        }
    }
}

/// A call that a spout received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Open,
    Activate,
    Deactivate,
    Emitted(u64),
    Ack(u64),
    Fail(u64, Why),
    Close,
}

/// The ids that were acked, in that order.
pub fn acks(told: &Log<Told>) -> Vec<u64> {
    let id = |told| match told {
        Told::Ack(id) => Some(id),
        _ => None,
    };
    told.all().into_iter().filter_map(id).collect()
}

/// The outcomes of messages, in that order.
pub fn ends(told: &Log<Told>) -> Vec<Told> {
    let mut told = told.all();
    told.retain(|told| matches!(told, Told::Ack(_) | Told::Fail(..)));
    told
}

/// Emits numbers, each as its own id, a given many each time it is asked; then it is done.
pub struct Numbers {
    left: Peekable<Box<dyn Iterator<Item = u64> + Send>>,
    at_once: usize,
    told: Log<Told>,
    then: Box<dyn FnMut(Told) + Send>,
}

impl Numbers {
    pub fn new<I>(numbers: I, told: &Log<Told>) -> Self
    where
        I: IntoIterator<Item = u64>,
        I::IntoIter: Send + 'static,
    {
        let numbers: Box<dyn Iterator<Item = u64> + Send> = Box::new(numbers.into_iter());
        Numbers { left: numbers.peekable(), at_once: 1, told: told.clone(), then: Box::new(drop) }
    }

    /// Emits so many each time that it is asked.
    pub fn at_once(mut self, at_once: usize) -> Self {
        self.at_once = at_once;
        self
    }

    /// Does this in each call that is noted, at its end.
    pub fn then(mut self, then: impl FnMut(Told) + Send + 'static) -> Self {
        self.then = Box::new(then);
        self
    }

    fn note(&mut self, told: Told) {
        self.told.note(told);
        (self.then)(told);
    }
}

impl Spout<u64> for Numbers {
    fn replay_by_default() -> expiry_topology::Replay {
        expiry_topology::Replay::once()
    }

    fn open(&mut self, _context: &Context) {
        self.note(Told::Open);
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
        for _ in 0..self.at_once {
            let Some(&number) = self.left.peek() else {
                return Next::Done;
            };
            match out.emit(number, number) {
                Ok(()) => {
                    self.left.next();
                    self.note(Told::Emitted(number));
                }
                Err(_) => {
                    assert_eq!(out.room(), 0);
                    break;
                }
            }
        }
        Next::Ready
    }

    fn ack(&mut self, id: u64) {
        self.note(Told::Ack(id));
    }

    fn fail(&mut self, id: u64, failure: &Failure) {
        self.note(Told::Fail(id, failure.into()));
    }

    fn activate(&mut self) {
        self.note(Told::Activate);
    }

    fn deactivate(&mut self) {
        self.note(Told::Deactivate);
    }

    fn close(&mut self) {
        self.note(Told::Close);
    }
}

/// A bolt that is a function of tuples and collector.
pub struct Each(Calls<Tuple<u64>>);

type Calls<T> = Box<dyn FnMut(T, &mut BoltCollector<'_, u64>) + Send>;

impl Bolt<u64, u64> for Each {
    fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
        (self.0)(tuple, out);
    }
}

/// Types the closure, and boxes it: the compiler makes one kind of bolt.
pub fn each(f: impl FnMut(Tuple<u64>, &mut BoltCollector<'_, u64>) + Send + 'static) -> Each {
    Each(Box::new(f))
}

type Make<B> = Box<dyn Fn(&Context) -> B + Send + Sync>;

/// A bolt that holds what comes, and does something with it at each tick.
pub struct Holds(Vec<Tuple<u64>>, Held);

type Held = Box<dyn FnMut(&mut Vec<Tuple<u64>>, &mut BoltCollector<'_, u64>) + Send>;

impl Bolt<u64, u64> for Holds {
    fn execute(&mut self, tuple: Tuple<u64>, _: &mut BoltCollector<'_, u64>) {
        self.0.push(tuple);
    }
    fn tick(&mut self, out: &mut BoltCollector<'_, u64>) {
        (self.1)(&mut self.0, out);
    }
}

/// Adds a bolt behind `source` each of whose instances calls a clone of this function at its ticks,
/// with what it holds.
pub fn holds<'t, F>(
    builder: &'t TopologyBuilder,
    name: &str,
    source: impl Source<'t, Message = u64>,
    f: F,
) -> BoltStage<'t, u64, u64>
where
    F: FnMut(&mut Vec<Tuple<u64>>, &mut BoltCollector<'_, u64>) + Clone + Send + Sync + 'static,
{
    let make = move |_: &_| Holds(Vec::new(), Box::new(f.clone()));
    builder.bolt(name, Box::new(make) as Make<Holds>).shuffle(source)
}

/// Adds a bolt behind `source` that acks what comes.
pub fn acks_all<'t>(
    builder: &'t TopologyBuilder,
    name: &str,
    source: impl Source<'t, Message = u64>,
) -> BoltStage<'t, u64, u64> {
    bolt(builder, name, source, |tuple, out| out.ack(tuple))
}

/// A builder on a manual clock, with timeouts of ten seconds in steps of one.
pub fn builder(clock: &ManualClock) -> TopologyBuilder {
    let builder = TopologyBuilder::new();
    builder.clock(clock.clone()).timeout(SECOND * 10).interval(SECOND).seed(7);
    builder
}

/// Lets it run at this time until there is nothing to do.
pub fn settle(topology: &mut Simulation) {
    assert!(topology.settle(1_000_000), "it never comes to rest: {:?}", topology.metrics());
}

/// Moves the clock from one due time to the next, until all is done or `limit` has passed. Returns
/// how long that took.
pub fn run(topology: &mut Simulation, clock: &ManualClock, limit: Duration) -> Duration {
    let mut passed = Duration::ZERO;
    loop {
        settle(topology);
        if topology.is_finished() {
            return passed;
        }
        let Some(due) = topology.next_due().filter(|due| passed + *due <= limit) else {
            return passed;
        };
        let due = due.max(Duration::from_millis(1));
        clock.advance(due);
        passed += due;
    }
}

/// Waits for something that another thread does, with a deadline.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + SECOND * 60;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A clock, a log of the calls that spouts receive, and a [`builder`] on that clock.
pub fn rig() -> (ManualClock, Log<Told>, TopologyBuilder) {
    let clock = ManualClock::new();
    let builder = builder(&clock);
    (clock, Log::new(), builder)
}

/// Starts a topology without threads, and lets it run until there is nothing to do.
pub fn settled(builder: TopologyBuilder, clock: &ManualClock) -> Simulation {
    let mut topology = builder.simulate(clock).unwrap();
    settle(&mut topology);
    topology
}

/// As [`settled`], and [runs](run) it for so long.
pub fn ran(builder: TopologyBuilder, clock: &ManualClock, limit: Duration) -> Simulation {
    let mut topology = builder.simulate(clock).unwrap();
    run(&mut topology, clock, limit);
    topology
}

/// Makes spouts that emit these numbers.
pub fn numbers<I>(numbers: I, told: &Log<Told>) -> Make<Numbers>
where
    I: IntoIterator<Item = u64> + Clone + Send + Sync + 'static,
    I::IntoIter: Send + 'static,
{
    numbers_by(1, numbers, told)
}

/// As [`numbers`], of spouts that emit so many each time that they are asked.
pub fn numbers_by<I>(at_once: usize, numbers: I, told: &Log<Told>) -> Make<Numbers>
where
    I: IntoIterator<Item = u64> + Clone + Send + Sync + 'static,
    I::IntoIter: Send + 'static,
{
    let told = told.clone();
    Box::new(move |_| Numbers::new(numbers.clone(), &told).at_once(at_once))
}

/// Adds a bolt behind `source` each of whose instances is a clone of this function.
pub fn bolt<'t, F>(
    builder: &'t TopologyBuilder,
    name: &str,
    source: impl Source<'t, Message = u64>,
    f: F,
) -> BoltStage<'t, u64, u64>
where
    F: FnMut(Tuple<u64>, &mut BoltCollector<'_, u64>) + Clone + Send + Sync + 'static,
{
    builder.bolt(name, Box::new(move |_: &_| each(f.clone())) as Make<Each>).shuffle(source)
}

/// As [`bolt`], of a function that is called with a clone of `state`.
pub fn bolt_with<'t, S, F>(
    builder: &'t TopologyBuilder,
    name: &str,
    source: impl Source<'t, Message = u64>,
    state: S,
    f: F,
) -> BoltStage<'t, u64, u64>
where
    S: Clone + Send + Sync + 'static,
    F: Fn(&S, Tuple<u64>, &mut BoltCollector<'_, u64>) + Clone + Send + Sync + 'static,
{
    bolt(builder, name, source, move |tuple, out| f(&state, tuple, out))
}

/// Adds a bolt that calls `note` with the dead letters of a spout.
pub fn letters(
    builder: &TopologyBuilder,
    spout: &SpoutStage<'_, u64>,
    note: impl Fn(&DeadLetter<u64>) + Clone + Send + Sync + 'static,
) {
    let make = move |_: &Context| {
        let note = note.clone();
        expiry_topology::sink(move |letter: &DeadLetter<u64>, _| note(letter))
    };
    builder.bolt("letters", make).shuffle(spout.dead_letters());
}

/// A bolt that sends each message on, derived from what came.
pub struct Passes;

impl Bolt<u64, u64> for Passes {
    fn execute(&mut self, tuple: Tuple<u64>, out: &mut BoltCollector<'_, u64>) {
        out.emit(&tuple, *tuple);
        out.ack(tuple);
    }
}

/// Makes bolts that send each message on.
pub fn passes(_: &Context) -> Passes {
    Passes
}
