//! How long a single insert takes while a structure grows from empty: no insert must wait for the
//! growth.

use super::child::PEERS;
use super::{count, name, numbers, Options};
use crate::peers::{Nothing, Peer};
use crate::report::Report;
use crate::window::mix;
use hdrhistogram::Histogram;
use serde_json::{json, Value};

/// Each insert's nanoseconds, from one clock reading to the next. They contain one reading (about
/// 10 ns); nothing is subtracted.
fn latencies<P: Peer>(entries: usize) -> Vec<u32> {
    let clock = quanta::Clock::new();
    // Written to before, so that its own pages are there.
    let mut nanos: Vec<u32> = (0..entries).map(|_| u32::MAX).collect();
    let peer = P::new(entries);
    let mut last = clock.raw();
    for (at, nanos) in nanos.iter_mut().enumerate() {
        let key = mix(at as u64 + 1);
        peer.begin(at, (key, key | 1, key));
        let now = clock.raw();
        *nanos = u32::try_from(clock.delta_as_nanos(last, now)).unwrap_or(u32::MAX);
        last = now;
    }
    nanos
}

fn summary(nanos: &[u32]) -> Value {
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
        "over_100us": over(100_000),
        "over_1ms": over(1_000_000),
    })
}

pub fn measure<P: Peer>(entries: usize) -> Value {
    let mut answer = summary(&latencies::<P>(entries));
    answer["name"] = json!(P::NAME);
    // The machine's own hiccups, just now: the same loop around nothing, over about as long a time.
    let machine: Vec<u32> = (0..4).flat_map(|_| latencies::<Nothing>(entries)).collect();
    answer["machine"] = summary(&machine);
    answer
}

/// Each structure grows from empty to 10 M; a round is a process.
pub fn run(options: &Options, report: &mut Report) {
    // Maxima are noisy: as many rounds as asked for, however large.
    let rounds = options.rounds;
    for entries in options.loads(&[10_000_000]) {
        let table = report.table(
            format!("growth, empty to {}", count(entries)),
            &format!(
                "latency of each insert, {rounds} rounds, a process each; the max of a round, and its \
                 median, least and greatest over rounds"
            ),
        );
        for answers in options.ask_in_turn(rounds, "growth", &PEERS, entries) {
            let last = &answers[answers.len() - 1];
            for what in ["p50", "p99.99", "max"] {
                let load = match what {
                    "max" => json!({
                        "over_100us": last["over_100us"], "over_1ms": last["over_1ms"],
                        "machine_max": last["machine"]["max"],
                        "machine_over_1ms": last["machine"]["over_1ms"],
                    }),
                    _ => json!({}),
                };
                let label = format!("{}: {what}", name(&answers));
                table.loaded(&label, "ns", numbers(&answers, what), &load);
            }
        }
    }
}
