//! Arbitrary declarations of a topology. Each is refused with a typed error, or runs to rest in
//! simulated time. Each message of a spout is acked or given up once, and never are more pending
//! than may be.

use crate::perhaps;
use arbitrary::{Result, Unstructured};
use expiry::ManualClock;
use expiry_topology::{
    Bolt, BoltCollector, BoltSpec, BuildError, Context, Failure, ManualTopology, Next, Replay,
    Spout, SpoutCollector, TopologyBuilder, Tuple,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Some of which are declared twice, or not at all.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "", "e\0"];
const STREAMS: [&str; 4] = ["default", "s", "t", ""];
const FIELDS: [&str; 3] = ["low", "all", ""];
const SECOND: Duration = Duration::from_secs(1);

/// A message: what is left of its way, so that cycles come to an end.
type Message = u8;

#[derive(Debug, Clone, Copy)]
enum Grouping {
    Shuffle,
    Local,
    Fields(Option<u8>),
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
    /// Emits to this stream, then acks; untracked if the flag is set.
    Derive(u8, bool),
    Direct(u8, u8),
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
        stream: u8,
        panics: bool,
    },
    Bolt {
        inputs: Vec<(u8, u8, Grouping)>,
        tick: Option<u32>,
        deeds: Vec<Deed>,
    },
}

#[derive(Debug)]
struct Part {
    name: u8,
    tasks: usize,
    threads: Option<usize>,
    streams: Vec<u8>,
    fields: Vec<u8>,
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

fn input(bytes: &mut Unstructured<'_>) -> Result<(u8, u8, Grouping)> {
    let grouping = match bytes.int_in_range(0..=7u8)? {
        0..=2 => Grouping::Shuffle,
        3 => Grouping::Local,
        4 => Grouping::Fields(perhaps(bytes, small)?),
        5 => Grouping::All,
        6 => Grouping::Global,
        _ => Grouping::Direct,
    };
    // Mostly the default stream.
    let stream = bytes.int_in_range(0..=9u8)?;
    Ok((small(bytes)?, if stream < 4 { stream } else { 0 }, grouping))
}

fn deed(bytes: &mut Unstructured<'_>) -> Result<Deed> {
    Ok(match bytes.int_in_range(0..=15u8)? {
        0..=3 => Deed::Ack,
        4 => Deed::AckNow,
        5 => Deed::Fail,
        6 => Deed::Drop,
        7 => Deed::Hold,
        8 => Deed::Panic,
        9 => Deed::Direct(small(bytes)?, small(bytes)?),
        10 => Deed::Reset,
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
        streams: few(bytes, 2, small)?,
        fields: few(bytes, 2, small)?,
        kind: if is_spout {
            Kind::Spout {
                messages: bytes.int_in_range(0..=20)?,
                at_once: bytes.int_in_range(1..=8)?,
                max_pending: *bytes.choose(&[1, 2, 5, 64, 0, (1 << 24) + 1])?,
                timeout: perhaps(bytes, |bytes| bytes.int_in_range(0..=40))?,
                attempts: perhaps(bytes, |bytes| bytes.int_in_range(0..=4))?,
                stream: *bytes.choose(&[0, 0, 0, 1, 2])?,
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
            let (mut first, sources) = (true, self.sources());
            if let Kind::Bolt { inputs, .. } = &mut self.parts[at].kind {
                if inputs.is_empty() {
                    inputs.push((0, 0, Grouping::Shuffle));
                }
                for input in inputs {
                    let parts = if first { at } else { sources.len() };
                    mend_input(input, &sources[..parts]);
                    first = false;
                }
            }
        }
    }

    /// The name, streams and fields of each part.
    fn sources(&self) -> Vec<(u8, Vec<u8>, Vec<u8>)> {
        let of = |part: &Part| (part.name, part.streams.clone(), part.fields.clone());
        self.parts.iter().map(of).collect()
    }
}

/// Has a bolt listen to one of these parts, by a stream that it has and a field of that.
fn mend_input(input: &mut (u8, u8, Grouping), parts: &[(u8, Vec<u8>, Vec<u8>)]) {
    let (from, stream, grouping) = input;
    let (name, streams, fields) = &parts[usize::from(*from) % parts.len()];
    *from = *name;
    if !streams.contains(stream) {
        *stream = 0;
    }
    let has = |field: &u8| *stream == 0 && fields.contains(field);
    if matches!(grouping, Grouping::Fields(field) if !field.as_ref().is_some_and(has)) {
        *grouping = Grouping::Shuffle;
    }
}

impl Part {
    fn spout() -> Self {
        Part {
            name: 0,
            tasks: 1,
            threads: None,
            streams: Vec::new(),
            fields: Vec::new(),
            kind: Kind::Spout {
                messages: 5,
                at_once: 1,
                max_pending: 2,
                timeout: None,
                attempts: None,
                stream: 0,
                panics: false,
            },
        }
    }

    fn mend(&mut self) {
        self.tasks = self.tasks.clamp(1, 3);
        self.threads = self.threads.map(|threads| threads.clamp(1, self.tasks));
        for (names, known) in [(&mut self.streams, 1..3), (&mut self.fields, 0..2)] {
            names.retain(|name| known.contains(name));
            names.sort_unstable();
            names.dedup();
        }
        match &mut self.kind {
            Kind::Spout { max_pending, timeout, attempts, stream, .. } => {
                *max_pending = (*max_pending).clamp(1, 64);
                *timeout = timeout.map(|timeout| timeout.max(1));
                *attempts = attempts.map(|attempts| attempts.max(1));
                if !self.streams.contains(stream) {
                    *stream = 0;
                }
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
    stream: &'static str,
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
    fn next(&mut self, out: &mut SpoutCollector<'_, Message>) -> Next {
        for _ in 0..self.at_once {
            if self.left == 0 {
                return Next::Done;
            }
            let id = self.books.lock().unwrap()[&self.book].emitted;
            if out.emit_on(self.stream, 3, id).is_err() {
                // There is no room, or no such stream.
                self.left -= u8::from(out.room() > 0);
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

impl Bolt<Message> for Worker {
    fn execute(&mut self, tuple: Tuple<Message>, out: &mut BoltCollector<'_, Message>) {
        let deed = self.deeds.get(self.at % self.deeds.len().max(1));
        self.at += 1;
        let next = tuple.message().checked_sub(1);
        match deed.copied().unwrap_or(Deed::Ack) {
            Deed::Ack => out.ack(tuple),
            Deed::AckNow => drop(out.ack_now(tuple)),
            Deed::Fail => out.fail_with(tuple, "it was told to"),
            Deed::Drop => drop(tuple),
            Deed::Hold => self.held.push(tuple),
            Deed::Panic => std::panic::resume_unwind(Box::new("planned")),
            Deed::Derive(stream, untracked) => {
                if let Some(next) = next {
                    let stream = name(&STREAMS, stream);
                    // A stream that is not declared is refused, and the message comes back.
                    let _ = match untracked {
                        true => out.emit_on(stream, (), next),
                        false => out.emit_on(stream, &tuple, next),
                    };
                }
                out.ack(tuple);
            }
            Deed::Direct(stream, task) => {
                if let Some(next) = next {
                    let stream = name(&STREAMS, stream);
                    let _ = out.emit_direct(stream, task.into(), &tuple, next);
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

fn listen(bolt: &mut BoltSpec<'_, Message>, (from, stream, grouping): (u8, u8, Grouping)) {
    let source = (name(&NAMES, from), name(&STREAMS, stream));
    match grouping {
        Grouping::Shuffle => bolt.shuffle(source),
        Grouping::Local => bolt.local_or_shuffle(source),
        Grouping::Fields(field) => bolt.fields(source, field.map(|field| name(&FIELDS, field))),
        Grouping::All => bolt.all(source),
        Grouping::Global => bolt.global(source),
        Grouping::Direct => bolt.direct(source),
    };
}

/// What spouts and bolts have in common.
macro_rules! set {
    ($spec:expr, $part:expr) => {{
        $spec.parallelism($part.tasks);
        if let Some(threads) = $part.threads {
            $spec.threads(threads);
        }
        for &field in &$part.fields {
            match field {
                0 => $spec.field(name(&FIELDS, field), |message: &Message| message),
                _ => $spec.computed_field(name(&FIELDS, field), |message: &Message| message % 2),
            };
        }
        for &stream in &$part.streams {
            $spec.stream(name(&STREAMS, stream));
        }
    }};
}

fn build(
    plan: &Plan,
    books: &Books,
    clock: &ManualClock,
) -> std::result::Result<ManualTopology<Message>, BuildError> {
    let mut builder = TopologyBuilder::new();
    builder.clock(clock.clone()).seed(plan.seed);
    builder.acking(plan.acking).queue(plan.queue).batch(plan.batch);
    if let Some(timeout) = plan.timeout {
        builder.timeout(SECOND * timeout);
    }
    if let Some(interval) = plan.interval {
        builder.interval(SECOND * interval);
    }
    if plan.inactive {
        builder.start_inactive();
    }
    for (at, part) in plan.parts.iter().enumerate() {
        let (name, at) = (name(&NAMES, part.name), at as u8);
        match &part.kind {
            &Kind::Spout { messages, at_once, max_pending, timeout, attempts, stream, panics } => {
                let books = books.clone();
                let mut spec = builder.spout(name, move |context: &Context| {
                    let book = (at, context.task());
                    let emitted = books.lock().unwrap().entry(book).or_default().emitted;
                    Source {
                        book,
                        books: books.clone(),
                        left: messages.saturating_sub(emitted as u8),
                        at_once,
                        stream: self::name(&STREAMS, stream),
                        panics: panics && emitted == 0,
                        most: max_pending,
                    }
                });
                set!(spec, part);
                spec.max_pending(max_pending);
                if let Some(timeout) = timeout {
                    spec.timeout(SECOND * timeout);
                }
                if let Some(attempts) = attempts {
                    spec.replay(Replay::default().attempts(attempts));
                }
            }
            Kind::Bolt { inputs, tick, deeds } => {
                let deeds = deeds.clone();
                let mut spec = builder.bolt(name, move |_: &Context| Worker {
                    deeds: deeds.clone(),
                    at: 0,
                    held: Vec::new(),
                });
                set!(spec, part);
                inputs.iter().for_each(|&input| listen(&mut spec, input));
                if let Some(tick) = *tick {
                    spec.tick_every(SECOND * tick);
                }
            }
        }
    }
    builder.start_manual()
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
    let rests = topology.run(1_000_000, |due| clock.advance(due));
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
