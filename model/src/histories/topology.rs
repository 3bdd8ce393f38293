//! Arbitrary declarations of a topology. Each is refused with a typed error, or runs to rest in
//! simulated time. Each message of a spout is acked or given up once, and never are more pending
//! than may be.

use super::perhaps;
use arbitrary::{Result, Unstructured};
use expiry::ManualClock;
use expiry_topology::{
    Bolt, BoltCollector, BoltStage, BuildError, Context, Failure, Next, Replay, Simulation, Spout,
    SpoutCollector, SpoutStage, Stream, TopologyBuilder, Tuple,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Some of which are declared twice.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "", "e\0"];
const SECOND: Duration = Duration::from_secs(1);

/// A message: what is left of its way, so that cycles come to an end; and a number, by which
/// streams are filtered, messages grouped and tasks chosen.
type Message = (u8, u8);

/// What a bolt listens to: a part, modulo their number; which share of its messages; a grouping.
type Input = (u8, Share, Grouping);

#[derive(Debug, Clone, Copy)]
enum Share {
    All,
    Odd,
    /// The dead letters, if the part is a spout.
    Letters,
}

#[derive(Debug, Clone, Copy)]
enum Grouping {
    Shuffle,
    Fields,
    KeyBy,
    All,
    Global,
    Direct,
}

/// What a bolt does with a tuple.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Ack,
    AckNow,
    Fail,
    Drop,
    Hold,
    Panic,
    /// Emits a message with this number, then acks; untracked if the flag is set.
    Derive(u8, bool),
    Reset,
}

#[derive(Debug)]
enum Kind {
    Spout {
        messages: u8,
        at_once: u8,
        max_pending: usize,
        timeout: Option<u32>,
        attempts: Option<u32>,
        panics: bool,
    },
    Bolt {
        inputs: Vec<Input>,
        tick: Option<u32>,
        deeds: Vec<Deed>,
    },
}

#[derive(Debug)]
struct Part {
    name: u8,
    tasks: usize,
    threads: Option<usize>,
    kind: Kind,
}

#[derive(Debug)]
struct Plan {
    parts: Vec<Part>,
    timeout: Option<u32>,
    interval: Option<u32>,
    acking: bool,
    queue: usize,
    batch: usize,
    inactive: bool,
    seed: u64,
}

fn small(bytes: &mut Unstructured<'_>) -> Result<u8> {
    bytes.int_in_range(0..=5)
}

fn input(bytes: &mut Unstructured<'_>) -> Result<Input> {
    let grouping = match bytes.int_in_range(0..=8u8)? {
        0..=3 => Grouping::Shuffle,
        4 => Grouping::Fields,
        5 => Grouping::KeyBy,
        6 => Grouping::All,
        7 => Grouping::Global,
        _ => Grouping::Direct,
    };
    // Mostly all of its messages.
    let share = match bytes.int_in_range(0..=9u8)? {
        0 | 1 => Share::Odd,
        2 => Share::Letters,
        _ => Share::All,
    };
    Ok((small(bytes)?, share, grouping))
}

fn deed(bytes: &mut Unstructured<'_>) -> Result<Deed> {
    Ok(match bytes.int_in_range(0..=15u8)? {
        0..=3 => Deed::Ack,
        4 => Deed::AckNow,
        5 => Deed::Fail,
        6 => Deed::Drop,
        7 => Deed::Hold,
        8 => Deed::Panic,
        9 | 10 => Deed::Reset,
        _ => Deed::Derive(small(bytes)?, bytes.ratio(1, 8)?),
    })
}

fn few<T>(
    bytes: &mut Unstructured<'_>,
    most: u8,
    one: impl Fn(&mut Unstructured<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let n = bytes.int_in_range(0..=most)?;
    (0..n).map(|_| one(bytes)).collect()
}

fn part(bytes: &mut Unstructured<'_>) -> Result<Part> {
    let is_spout = bytes.ratio(1, 3)?;
    Ok(Part {
        name: small(bytes)?,
        tasks: *bytes.choose(&[1, 1, 1, 2, 2, 3, 0, 1 << 17])?,
        threads: perhaps(bytes, |bytes| bytes.int_in_range(0..=3))?,
        kind: if is_spout {
            Kind::Spout {
                messages: bytes.int_in_range(0..=20)?,
                at_once: bytes.int_in_range(1..=8)?,
                max_pending: *bytes.choose(&[1, 2, 5, 64, 0, (1 << 24) + 1])?,
                timeout: perhaps(bytes, |bytes| bytes.int_in_range(0..=40))?,
                attempts: perhaps(bytes, |bytes| bytes.int_in_range(0..=4))?,
                panics: bytes.ratio(1, 8)?,
            }
        } else {
            Kind::Bolt {
                inputs: few(bytes, 3, input)?,
                tick: perhaps(bytes, |bytes| bytes.int_in_range(0..=30))?,
                deeds: few(bytes, 6, deed)?,
            }
        },
    })
}

fn plan(bytes: &mut Unstructured<'_>) -> Result<Plan> {
    let mut plan = Plan {
        timeout: perhaps(bytes, |bytes| bytes.int_in_range(0..=40))?,
        interval: perhaps(bytes, |bytes| bytes.int_in_range(0..=5))?,
        acking: bytes.ratio(7, 8)?,
        queue: *bytes.choose(&[1, 1, 2, 64, 0, (1 << 20) + 1])?,
        batch: *bytes.choose(&[1, 2, 64, 64, 0, (1 << 20) + 1])?,
        inactive: bytes.ratio(1, 8)?,
        seed: bytes.arbitrary()?,
        parts: few(bytes, 5, part)?,
    };
    // What is left as it is has to be right in every part to be built.
    if bytes.ratio(7, 8)? {
        plan.mend();
    }
    Ok(plan)
}

impl Plan {
    /// Makes it one that can be built: what is out of bounds is brought in, and what leads nowhere
    /// leads to a part before.
    fn mend(&mut self) {
        let within = |size: usize| {
            if size.wrapping_sub(1) < 1 << 20 {
                size
            } else {
                1
            }
        };
        (self.queue, self.batch) = (within(self.queue), within(self.batch));
        self.timeout = self.timeout.map(|timeout| timeout.max(1));
        let longest = self.timeout.unwrap_or(u32::MAX);
        self.interval = self.interval.map(|interval| interval.clamp(1, longest));
        if self.parts.is_empty() {
            self.parts.push(Part::spout());
        } else if matches!(self.parts[0].kind, Kind::Bolt { .. }) {
            self.parts[0].kind = Part::spout().kind;
        }
        for (part, name) in self.parts.iter_mut().zip([0, 1, 2, 3, 5]) {
            part.name = name;
            part.mend();
            let replays = matches!(part.kind, Kind::Spout { attempts, .. } if attempts.is_some());
            self.acking |= replays;
        }
        for at in 1..self.parts.len() {
            if let Kind::Bolt { inputs, .. } = &mut self.parts[at].kind {
                // The first one is a part before, so that a spout leads here.
                match inputs.first_mut() {
                    Some((from, ..)) => *from %= at as u8,
                    None => inputs.push((0, Share::All, Grouping::Shuffle)),
                }
            }
        }
    }
}

impl Part {
    fn spout() -> Self {
        Part {
            name: 0,
            tasks: 1,
            threads: None,
            kind: Kind::Spout {
                messages: 5,
                at_once: 1,
                max_pending: 2,
                timeout: None,
                attempts: None,
                panics: false,
            },
        }
    }

    fn mend(&mut self) {
        self.tasks = self.tasks.clamp(1, 3);
        self.threads = self.threads.map(|threads| threads.clamp(1, self.tasks));
        match &mut self.kind {
            Kind::Spout { max_pending, timeout, attempts, .. } => {
                *max_pending = (*max_pending).clamp(1, 64);
                *timeout = timeout.map(|timeout| timeout.max(1));
                *attempts = attempts.map(|attempts| attempts.max(1));
            }
            Kind::Bolt { tick, .. } => *tick = tick.map(|tick| tick.max(1)),
        }
    }
}

/// What became of a spout task's messages, by their tokens.
#[derive(Debug, Default)]
struct Book {
    pending: HashMap<u64, usize>,
    emitted: u64,
    acked: u64,
    given_up: u64,
    /// What should not have been. Kept, as a panic of a spout is caught.
    wrong: Option<&'static str>,
}

type Books = Arc<Mutex<HashMap<(u8, usize), Book>>>;

struct Source {
    book: (u8, usize),
    books: Books,
    left: u8,
    at_once: u8,
    panics: bool,
    most: usize,
}

impl Source {
    /// A panic that no hook observes.
    fn perhaps_panic(&mut self) {
        if std::mem::take(&mut self.panics) {
            std::panic::resume_unwind(Box::new("planned"));
        }
    }

    fn over(&mut self, id: u64, count: fn(&mut Book) -> &mut u64) {
        let mut books = self.books.lock().unwrap();
        let book = books.get_mut(&self.book).expect("it has emitted");
        *count(book) += 1;
        if book.pending.remove(&id) != Some(1) {
            book.wrong = Some("told of what is not pending");
        }
    }
}

impl Spout<Message> for Source {
    fn replay_by_default() -> expiry_topology::Replay {
        expiry_topology::Replay::once()
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, Message>) -> Next {
        for _ in 0..self.at_once {
            if self.left == 0 {
                return Next::Done;
            }
            let id = self.books.lock().unwrap()[&self.book].emitted;
            if out.emit((3, self.left), id).is_err() {
                assert_eq!(out.room(), 0);
                return Next::Ready;
            }
            self.left -= 1;
            let mut books = self.books.lock().unwrap();
            let book = books.get_mut(&self.book).expect("made with the task");
            *book.pending.entry(id).or_default() += 1;
            book.emitted += 1;
            if book.pending.len() > self.most {
                book.wrong = Some("more pending than there may be");
            }
        }
        self.perhaps_panic();
        Next::Ready
    }

    fn ack(&mut self, id: u64) {
        self.over(id, |book| &mut book.acked);
    }

    fn fail(&mut self, id: u64, _: &Failure) {
        self.over(id, |book| &mut book.given_up);
        self.perhaps_panic();
    }
}

struct Worker {
    deeds: Vec<Deed>,
    at: usize,
    held: Vec<Tuple<Message>>,
}

impl Bolt<Message, Message> for Worker {
    fn execute(&mut self, tuple: Tuple<Message>, out: &mut BoltCollector<'_, Message>) {
        let deed = self.deeds.get(self.at % self.deeds.len().max(1));
        self.at += 1;
        let next = tuple.0.checked_sub(1);
        match deed.copied().unwrap_or(Deed::Ack) {
            Deed::Ack => out.ack(tuple),
            Deed::AckNow => drop(out.ack_now(tuple)),
            Deed::Fail => out.fail_with(tuple, "it was told to"),
            Deed::Drop => drop(tuple),
            Deed::Hold => self.held.push(tuple),
            Deed::Panic => std::panic::resume_unwind(Box::new("planned")),
            Deed::Derive(number, untracked) => {
                if let Some(next) = next {
                    match untracked {
                        true => out.emit((), (next, number)),
                        false => out.emit(&tuple, (next, number)),
                    }
                }
                out.ack(tuple);
            }
            Deed::Reset => {
                out.reset_timeout(&tuple);
                self.held.push(tuple);
            }
        }
    }

    fn tick(&mut self, out: &mut BoltCollector<'_, Message>) {
        self.held.drain(..).for_each(|tuple| out.ack(tuple));
    }
}

fn name(of: &[&'static str], number: u8) -> &'static str {
    of[usize::from(number) % of.len()]
}

/// A component that was declared.
enum Stage<'t> {
    Spout(SpoutStage<'t, Message>),
    Bolt(BoltStage<'t, Message, Message>),
}

impl<'t> Stage<'t> {
    fn stream(&self, share: Share) -> Stream<'t, Message> {
        match (self, share) {
            (Stage::Spout(spout), Share::Letters) => {
                spout.dead_letters().map(|letter| letter.message)
            }
            (Stage::Spout(spout), Share::All) => spout.stream(),
            (Stage::Bolt(bolt), Share::All | Share::Letters) => bolt.stream(),
            (_, Share::Odd) => self.stream(Share::All).filter(|message| message.1 % 2 == 1),
        }
    }
}

fn listen<'t>(
    bolt: BoltStage<'t, Message, Message>,
    source: Stream<'t, Message>,
    grouping: Grouping,
) -> BoltStage<'t, Message, Message> {
    match grouping {
        Grouping::Shuffle => bolt.shuffle(source),
        Grouping::Fields => bolt.fields(source, |message| &message.1),
        Grouping::KeyBy => bolt.key_by(source, |message| message.1 % 2),
        Grouping::All => bolt.all(source),
        Grouping::Global => bolt.global(source),
        Grouping::Direct => bolt.direct(source, |message| message.1.into()),
    }
}

/// What spouts and bolts have in common.
macro_rules! set {
    ($stage:expr, $part:expr) => {{
        let stage = $stage.parallelism($part.tasks);
        match $part.threads {
            Some(threads) => stage.threads(threads),
            None => stage,
        }
    }};
}

fn spout<'t>(
    builder: &'t TopologyBuilder,
    books: &Books,
    at: u8,
    part: &Part,
) -> Option<SpoutStage<'t, Message>> {
    let &Kind::Spout { messages, at_once, max_pending, timeout, attempts, panics } = &part.kind
    else {
        return None;
    };
    let books = books.clone();
    let stage = builder.spout(name(&NAMES, part.name), move |context: &Context| {
        let book = (at, context.task());
        let emitted = books.lock().unwrap().entry(book).or_default().emitted;
        Source {
            book,
            books: books.clone(),
            left: messages.saturating_sub(emitted as u8),
            at_once,
            panics: panics && emitted == 0,
            most: max_pending,
        }
    });
    let mut stage = set!(stage, part).max_pending(max_pending);
    if let Some(timeout) = timeout {
        stage = stage.timeout(SECOND * timeout);
    }
    if let Some(attempts) = attempts {
        stage = stage.replay(Replay::default().attempts(attempts).for_at_least(Duration::ZERO));
    }
    Some(stage)
}

fn build(
    plan: &Plan,
    books: &Books,
    clock: &ManualClock,
) -> std::result::Result<Simulation, BuildError> {
    let builder = TopologyBuilder::new();
    builder.seed(plan.seed).acking(plan.acking).queue(plan.queue).batch(plan.batch);
    if let Some(timeout) = plan.timeout {
        builder.timeout(SECOND * timeout);
    }
    if let Some(interval) = plan.interval {
        builder.interval(SECOND * interval);
    }
    if plan.inactive {
        builder.start_inactive();
    }
    let mut stages = Vec::new();
    for (at, part) in plan.parts.iter().enumerate() {
        stages.push(match &part.kind {
            Kind::Spout { .. } => match spout(&builder, books, at as u8, part) {
                Some(spout) => Stage::Spout(spout),
                None => unreachable!("it is one"),
            },
            Kind::Bolt { tick, deeds, .. } => {
                let deeds = deeds.clone();
                let made = move |_: &Context| Worker { deeds: deeds.clone(), at: 0, held: vec![] };
                let bolt = set!(builder.bolt(name(&NAMES, part.name), made), part);
                Stage::Bolt(match *tick {
                    Some(tick) => bolt.tick_every(SECOND * tick),
                    None => bolt,
                })
            }
        });
    }
    for (part, stage) in plan.parts.iter().zip(&stages) {
        if let (Kind::Bolt { inputs, .. }, Stage::Bolt(bolt)) = (&part.kind, stage) {
            inputs.iter().fold(bolt.clone(), |bolt, &(from, share, grouping)| {
                let source = stages[usize::from(from) % stages.len()].stream(share);
                listen(bolt, source, grouping)
            });
        }
    }
    drop(stages);
    builder.simulate(clock)
}

/// Declares a topology and, if it may be, runs it to rest.
pub(crate) fn topology(bytes: &[u8]) {
    let bytes = &mut Unstructured::new(bytes);
    let Ok(plan) = plan(bytes) else { return };
    let (clock, books) = (ManualClock::new(), Books::default());
    let mut topology = match build(&plan, &books, &clock) {
        Ok(topology) => topology,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    topology.activate();
    // Every message times out in the end, is emitted again a few times, and what is derived has a
    // shorter way to go.
    let rests = topology.run(1_000_000);
    assert!(rests && topology.is_finished(), "never at rest: {plan:?}\n{:?}", topology.metrics());
    let books = books.lock().unwrap();
    for (at, book) in &*books {
        assert!(book.pending.is_empty() && book.wrong.is_none(), "{at:?}: {book:?}\n{plan:?}");
        assert_eq!(book.emitted, book.acked + book.given_up, "{at:?}\n{plan:?}");
    }
    // The metrics say the same.
    for (metrics, at) in topology.metrics().iter().zip(0u8..) {
        let own = books.iter().filter(|((of, _), _)| *of == at);
        let acked: u64 = own.map(|(_, book)| book.acked).sum();
        let is_spout = matches!(plan.parts[usize::from(at)].kind, Kind::Spout { .. });
        assert!(!is_spout || metrics.acked == acked, "{acked}: {metrics:?}\n{plan:?}");
        assert_eq!((metrics.pending, metrics.queued), (0, 0), "{metrics:?}\n{plan:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A corrected plan can be built, and most plans are corrected.
    #[test]
    fn a_mended_plan_can_be_built() {
        let mut random = 1u64;
        let (mut mended, mut built) = (0, 0);
        for _ in 0..1000 {
            let bytes: Vec<u8> = (0..200)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (random >> 56) as u8
                })
                .collect();
            let bytes = &mut Unstructured::new(&bytes);
            let Ok(mut plan) = plan(bytes) else { continue };
            built += u32::from(build(&plan, &Books::default(), &ManualClock::new()).is_ok());
            mended += 1;
            plan.mend();
            let can = build(&plan, &Books::default(), &ManualClock::new());
            assert!(can.is_ok(), "{:?}: {plan:?}", can.err());
        }
        assert!(mended > 900 && built > 700, "{built} of {mended}");
    }
}
