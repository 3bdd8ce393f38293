//! What acking costs a topology: the same pipeline with it and without, in turn. And words counted,
//! beside threads with channels between them, which account for nothing.

use super::Options;
use crate::report::{Report, Spread, Target};
use expiry_topology::{
    basic, Bolt, BoltCollector, Latency, Next, Spout, SpoutCollector, TopologyBuilder, Tuple,
};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

const AT_ONCE: u64 = 64;

struct Source {
    left: u64,
}

impl Spout<u64> for Source {
    fn replay_by_default() -> expiry_topology::Replay {
        expiry_topology::Replay::once()
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, u64>) -> Next {
        let now = AT_ONCE.min(out.room() as u64).min(self.left);
        for _ in 0..now {
            if out.emit(self.left, self.left).is_ok() {
                self.left -= 1;
            }
        }
        if self.left == 0 {
            Next::Done
        } else {
            Next::Ready
        }
    }
}

/// Does nothing useful so many times. Not inlined: it takes the same time wherever it is called.
#[inline(never)]
fn work(turns: u64) {
    for turn in 0..turns {
        std::hint::black_box(turn);
    }
}

fn turns_of_a_microsecond() -> u64 {
    let turns = 10_000_000;
    let fastest = (0..5).map(|_| {
        let began = Instant::now();
        work(turns);
        began.elapsed()
    });
    let fastest = fastest.min().unwrap_or_default().as_secs_f64();
    let turns = (turns as f64 / (fastest * 1e6)) as u64;
    turns.max(1)
}

#[derive(Clone, Copy)]
struct Pipeline {
    bolts: usize,
    /// Tasks of each component, a thread each.
    tasks: usize,
    /// Turns of work for each tuple at each bolt.
    turns: u64,
    messages: u64,
}

/// Runs a pipeline to its end. Messages per second, and how long they took.
fn run_once(pipeline: Pipeline, acking: bool) -> (f64, Latency) {
    let Pipeline { bolts, tasks, turns, messages } = pipeline;
    let builder = TopologyBuilder::new();
    builder.acking(acking);
    let each = messages / tasks as u64;
    let source = builder.spout("source", move |_| Source { left: each });
    let mut before = source.parallelism(tasks).max_pending(4096).stream();
    for nth in 0..bolts {
        let is_last = nth + 1 == bolts;
        let made = move |_: &expiry_topology::Context| {
            basic(move |message: &u64, out| {
                work(turns);
                if !is_last {
                    out.emit(*message);
                }
            })
        };
        let bolt = builder.bolt(&format!("bolt {nth}"), made).parallelism(tasks);
        before = bolt.shuffle(before).stream();
    }
    drop(before);
    let began = Instant::now();
    let topology = builder.start().expect("a pipeline");
    topology.wait(Duration::from_secs(600)).expect("it comes to its end");
    let took = began.elapsed().as_secs_f64();
    let metrics = topology.kill();
    assert_eq!(metrics[0].acked, each * tasks as u64);
    (messages as f64 / took, metrics[0].latency.clone())
}

/// Number of threads that count words.
const COUNTERS: usize = 2;
const WORDS_A_LINE: usize = 10;

/// Lines of words, of which few are common.
fn lines(many: usize) -> Arc<Vec<String>> {
    let mut random = SmallRng::seed_from_u64(1);
    let mut line = || {
        let word = |_| format!("word{}", (1e4_f64).powf(random.random::<f64>()) as u64);
        (0..WORDS_A_LINE).map(word).collect::<Vec<_>>().join(" ")
    };
    Arc::new((0..many).map(|_| line()).collect())
}

type Counts = HashMap<String, u64, foldhash::fast::FixedState>;

fn count(counts: &mut Counts, word: &str) {
    match counts.get_mut(word) {
        Some(count) => *count += 1,
        None => drop(counts.insert(word.to_string(), 1)),
    }
}

struct Lines {
    lines: Arc<Vec<String>>,
    next: usize,
}

impl Spout<String> for Lines {
    fn replay_by_default() -> expiry_topology::Replay {
        expiry_topology::Replay::once()
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, String>) -> Next {
        for _ in 0..AT_ONCE.min(out.room() as u64) {
            let Some(line) = self.lines.get(self.next) else { return Next::Done };
            if out.emit(line.clone(), self.next as u64).is_ok() {
                self.next += 1;
            }
        }
        Next::Ready
    }
}

/// Counts words, and adds their number to the sum in the end.
struct Count(Counts, Arc<AtomicU64>);

impl Bolt<String> for Count {
    fn execute(&mut self, word: Tuple<String>, out: &mut BoltCollector<'_>) {
        count(&mut self.0, &word);
        out.ack(word);
    }

    fn cleanup(&mut self) {
        self.1.fetch_add(self.0.values().sum(), Relaxed);
    }
}

/// Lines per second of a topology.
fn words_of_a_topology(lines: &Arc<Vec<String>>, acking: bool) -> f64 {
    let (builder, sum) = (TopologyBuilder::new(), Arc::new(AtomicU64::new(0)));
    let (given, summed) = (lines.clone(), sum.clone());
    let source =
        builder.acking(acking).spout("lines", move |_| Lines { lines: given.clone(), next: 0 });
    let words = |line: &String, out: &mut expiry_topology::Derive<'_, '_, String>| {
        line.split(' ').for_each(|word| out.emit(word.to_string()));
    };
    let split = builder.bolt("split", move |_| basic(words)).shuffle(&source);
    builder
        .bolt("count", move |_| Count(Counts::default(), summed.clone()))
        .parallelism(COUNTERS)
        .fields(&split, |word| word);
    let began = Instant::now();
    let topology = builder.start().expect("a pipeline");
    topology.wait(Duration::from_secs(600)).expect("it comes to its end");
    let took = began.elapsed().as_secs_f64();
    topology.kill();
    assert_eq!(sum.load(Relaxed), (lines.len() * WORDS_A_LINE) as u64);
    lines.len() as f64 / took
}

/// Lines per second of threads with channels that hold as much as a topology's queues.
fn words_of_channels(lines: &Arc<Vec<String>>) -> f64 {
    let began = Instant::now();
    let (send, receive) = crossbeam_channel::bounded::<String>(4096);
    let (to, from): (Vec<_>, Vec<_>) =
        (0..COUNTERS).map(|_| crossbeam_channel::bounded::<String>(4096)).unzip();
    let sum: u64 = std::thread::scope(|scope| {
        scope.spawn(move || lines.iter().for_each(|line| drop(send.send(line.clone()))));
        scope.spawn(move || {
            let hasher = foldhash::fast::FixedState::default();
            for line in receive {
                for word in line.split(' ') {
                    let at = hasher.hash_one(word) as usize % COUNTERS;
                    to[at].send(word.to_string()).expect("it is read");
                }
            }
        });
        let counters = from.into_iter().map(|words| {
            scope.spawn(move || {
                let mut counts = Counts::default();
                words.iter().for_each(|word| count(&mut counts, &word));
                counts.values().sum::<u64>()
            })
        });
        let counters: Vec<_> = counters.collect();
        counters.into_iter().map(|counter| counter.join().expect("it counts")).sum()
    });
    let took = began.elapsed().as_secs_f64();
    assert_eq!(sum, (lines.len() * WORDS_A_LINE) as u64);
    lines.len() as f64 / took
}

/// Words counted in a topology, with and without acking, and by channels.
fn words(options: &Options, report: &mut Report) {
    let (lines, rounds) = (lines(200_000), options.rounds);
    let table = report.table(
        format!("words counted: spout, split, {COUNTERS} counters"),
        &format!("{} lines of {WORDS_A_LINE} words, {rounds} rounds", lines.len()),
    );
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..3 {
            let of = (turn + round) % 3;
            rates[of].push(match of {
                0 => words_of_a_topology(&lines, true),
                1 => words_of_a_topology(&lines, false),
                _ => words_of_channels(&lines),
            });
        }
    }
    let [acking, plain, channels] = &rates;
    let load = json!({ "lines": lines.len(), "counters": COUNTERS });
    for (name, rates) in [("acking", acking), ("without acking", plain), ("channels", channels)] {
        table.loaded(name, "lines/s", Spread::of(rates.iter().copied()), &load);
    }
    table.loaded("acking, of channels", "of 1", Spread::ratio(acking, channels), &load);
}

pub fn run(options: &Options, report: &mut Report) {
    words(options, report);
    let microsecond = turns_of_a_microsecond();
    for (what, turns, messages, asked) in
        [("empty tuples", 0, 4_000_000, 0.3), ("1 us of work", microsecond, 1_000_000, 0.1)]
    {
        for bolts in [1, 2] {
            for &tasks in &options.threads {
                let pipeline = Pipeline { bolts, tasks, turns, messages };
                let shape = ["spout -> bolt", "spout -> bolt -> bolt"][bolts - 1];
                let rounds = options.rounds;
                let mut table = report.table(
                    format!("topology, {shape}, {tasks} thread(s) each, {what}"),
                    &format!("{messages} messages, {rounds} rounds"),
                );
                let (mut with, mut without) = (Vec::new(), Vec::new());
                let mut latency = [50.0, 99.0, 99.9].map(|percent| (percent, Vec::new()));
                for round in 0..rounds {
                    // The one that comes first is not always the same.
                    for turn in 0..2 {
                        let acking = (turn + round) % 2 == 0;
                        let (rate, took) = run_once(pipeline, acking);
                        if !acking {
                            without.push(rate / 1e6);
                            continue;
                        }
                        with.push(rate / 1e6);
                        for (percent, all) in &mut latency {
                            all.push(took.percentile(*percent).as_secs_f64() * 1e6);
                        }
                    }
                }
                let cost = Spread::ratio(&with, &without).map(|share| 1.0 - share);
                let load =
                    json!({ "messages": messages, "bolts": bolts, "tasks": tasks, "turns": turns });
                table.loaded("without acking", "M messages/s", Spread::of(without), &load);
                table.loaded("with acking", "M messages/s", Spread::of(with), &load);
                for (percent, all) in latency {
                    let name = format!("from emission to ack, p{percent}");
                    table.loaded(&name, "us", Spread::of(all), &load);
                }
                table.check("what acking costs", "of 1", cost, Target::AtMost(asked));
            }
        }
    }
}
