//! How long a single insert takes while a structure grows from empty: nobody must wait for a growth.

use super::child::{Task, PEERS};
use super::{count, name, numbers, Options};
use crate::peers::{Nothing, Peer};
use crate::process::waited;
use crate::report::Report;
use crate::window::mix;
use hdrhistogram::Histogram;
use serde_json::{json, Value};

/// Times every insert.
pub struct Growth;

/// Inserts from here on are slow enough to ask the kernel why, outside of what is timed.
const SLOW: u32 = 100_000;

/// What a run measured.
struct Latencies {
    /// Each insert's time, from one clock reading to the next: one reading (about 10 ns) is in it, nothing subtracted.
    nanos: Vec<u32>,
    /// The slowest that did not spend half of its time or more waiting for a processor, by the kernel's account. Its own
    /// work, page faults and locks are in it; what a hypervisor takes away is too.
    max_running: u32,
}

fn latencies<P: Peer>(entries: usize) -> Latencies {
    let clock = quanta::Clock::new();
    // Written to before, so that its own pages are there.
    let mut nanos: Vec<u32> = (0..entries).map(|_| u32::MAX).collect();
    let mut max_running = 0;
    let peer = P::new(entries);
    let mut before = waited();
    let mut last = clock.raw();
    for (at, nanos) in nanos.iter_mut().enumerate() {
        let key = mix(at as u64 + 1);
        peer.begin(at, (key, key | 1, key));
        let now = clock.raw();
        *nanos = u32::try_from(clock.delta_as_nanos(last, now)).unwrap_or(u32::MAX);
        last = now;
        if *nanos >= SLOW {
            let by_now = waited();
            if by_now - before < u64::from(*nanos) / 2 {
                max_running = max_running.max(*nanos);
            }
            before = by_now;
            last = clock.raw();
        }
    }
    if max_running == 0 {
        // None was slow: then the slowest is what it is.
        max_running = nanos.iter().copied().filter(|&n| n < SLOW).max().unwrap_or(0);
    }
    Latencies { nanos, max_running }
}

fn summary(Latencies { nanos, max_running }: &Latencies) -> Value {
    let mut histogram = Histogram::<u32>::new(3).expect("three digits are allowed");
    for &nanos in nanos {
        // It resizes itself, so nothing is out of range.
        let _ = histogram.record(u64::from(nanos));
    }
    let over = |limit: u32| nanos.iter().filter(|&&nanos| nanos > limit).count();
    json!({
        "p50": histogram.value_at_quantile(0.5),
        "p99.99": histogram.value_at_quantile(0.9999),
        "max": nanos.iter().max(),
        "max, not preempted": max_running,
        "over_100us": over(100_000),
        "over_1ms": over(1_000_000),
    })
}

impl Task for Growth {
    fn run<P: Peer>(entries: usize) -> Value {
        let mut answer = summary(&latencies::<P>(entries));
        answer["name"] = json!(P::NAME);
        // The machine's own hiccups, just now: the same loop around nothing, over about as long a time.
        let mut machine = latencies::<Nothing>(entries);
        for _ in 0..3 {
            let more = latencies::<Nothing>(entries);
            machine.nanos.extend(more.nanos);
            machine.max_running = machine.max_running.max(more.max_running);
        }
        answer["machine"] = summary(&machine);
        answer
    }
}

/// Runs the figure: from empty to 10 M; a round is a process.
pub fn run(options: &Options, report: &mut Report) {
    // Maxima are noisy: as many rounds as asked for, however large.
    let rounds = options.rounds;
    for entries in options.loads(&[10_000_000]) {
        let mut table = report.table(
            format!("growth, empty to {}", count(entries)),
            &format!(
                "latency of each insert, {rounds} rounds, a process each; the max of a round, and its median, least and greatest over rounds"
            ),
        );
        for answers in options.ask_in_turn(rounds, "growth", &PEERS, entries) {
            let last = &answers[answers.len() - 1];
            for what in ["p50", "p99.99", "max", "max, not preempted"] {
                let load = if what == "max" {
                    json!({
                        "over_100us": last["over_100us"], "over_1ms": last["over_1ms"],
                        "machine_max": last["machine"]["max"],
                        "machine_max_not_preempted": last["machine"]["max, not preempted"],
                        "machine_over_1ms": last["machine"]["over_1ms"],
                    })
                } else {
                    json!({})
                };
                let label = format!("{}: {what}", name(&answers));
                table.loaded(&label, "ns", numbers(&answers, what), &load);
            }
        }
    }
}
