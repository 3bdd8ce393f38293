//! What acking costs a topology: the same pipeline with it and without, in turn.

use super::Options;
use crate::report::{Report, Spread, Target};
use expiry_topology::{basic, Latency, Next, Spout, SpoutCollector, TopologyBuilder};
use serde_json::json;
use std::time::{Duration, Instant};

const AT_ONCE: u64 = 64;

struct Source {
    left: u64,
}

impl Spout<u64> for Source {
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

pub fn run(options: &Options, report: &mut Report) {
    let microsecond = turns_of_a_microsecond();
    for (what, turns, messages, asked) in
        [("empty tuples", 0, 4_000_000, 0.4), ("1 us of work", microsecond, 1_000_000, 0.15)]
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
