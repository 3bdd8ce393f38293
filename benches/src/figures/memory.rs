//! Bytes per tree in flight, and what becomes of a burst's memory: resident sizes, with a process
//! for each structure.

use super::child::{number, PEERS};
use super::{count, name, Options};
use crate::peers::{Id, Peer};
use crate::process::{peak, resident};
use crate::report::{Report, Spread, Target};
use crate::window::mix;
use serde_json::{json, Value};
use std::time::{Duration, Instant};

/// How long memory gets to go back. This is longer than the timeout, after which the driver visits
/// slot blocks again.
const PATIENCE: Duration = Duration::from_secs(40);

/// How long that of the maps gets, in which nothing goes on any more.
const MAPS_PATIENCE: Duration = Duration::from_secs(2);

/// A tree of one edge. Keys are random, edges are derived from them.
fn edge(key: u64) -> u64 {
    key.rotate_left(32) | 1
}

/// Waits until the resident size is back near `floor` and has not changed for 300 ms, or gives up.
/// Returns the size, and when it last changed.
fn settled(floor: u64, filled: u64, patience: Duration) -> (u64, Duration) {
    let began = Instant::now();
    let mut last = resident();
    let mut at = Duration::ZERO;
    while began.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(20));
        let (now, passed) = (resident(), began.elapsed());
        if now != last {
            (last, at) = (now, passed);
        }
        let back = now < floor + filled.saturating_sub(floor) / 20;
        if back && passed - at > Duration::from_millis(300) {
            break;
        }
    }
    (last, at)
}

/// Fills, measures, drains, and waits for the memory to go back.
pub fn measure<P: Peer>(entries: usize) -> Value {
    // The ids' pages are written to before the first measurement.
    let mut ids: Vec<P::Id> = (0..entries).map(|_| P::Id::blank()).collect();
    let before = resident();
    let peer = P::new(entries);
    let began = Instant::now();
    for (at, id) in ids.iter_mut().enumerate() {
        let key = mix(at as u64 + 1);
        *id = peer.begin(at, (key, edge(key), key));
    }
    let fill = began.elapsed();
    peer.settle();
    let (filled, peak, slots) = (resident(), peak(), peer.slots());
    let began = Instant::now();
    let mut completed = 0;
    for (at, &id) in ids.iter().enumerate() {
        completed += usize::from(peer.ack(id, edge(mix(at as u64 + 1))));
    }
    let drain = began.elapsed();
    assert_eq!(completed, entries);
    let patience = if P::EXPIRES { PATIENCE } else { MAPS_PATIENCE };
    let (after, settled_in) = settled(before, filled, patience);
    json!({
        "name": P::NAME,
        "before": before,
        "filled": filled,
        "peak": peak,
        "after": after,
        "settled_in_s": settled_in.as_secs_f64(),
        "slots": slots,
        "fill_ns": fill.as_nanos() as f64 / entries as f64,
        "drain_ns": drain.as_nanos() as f64 / entries as f64,
    })
}
const MIB: f64 = (1 << 20) as f64;

/// Runs the figure at 10 M; a round is a process.
pub fn run(options: &Options, report: &mut Report) {
    for entries in options.loads(&[10_000_000]) {
        let rounds = options.rounds_at(entries);
        let mut table = report.table(
            format!("memory, {} in flight", count(entries)),
            &format!("resident size, grown from the default size, {rounds} round(s), a process each; then all acked"),
        );
        let answers = options.ask_in_turn(rounds, "memory", &PEERS, entries);
        for (peer, answers) in PEERS.iter().zip(&answers) {
            let name = name(answers);
            let of = |f: &dyn Fn(&Value) -> f64| Spread::of(answers.iter().map(f));
            let grown = |a: &Value| number(a, "filled") - number(a, "before");
            let ours = matches!(*peer, "issued" | "chosen");
            let most = (ours && entries >= 10_000_000).then_some(Target::AtMost(64.0));
            let bytes = of(&|a| grown(a) / entries as f64);
            table.judge(&format!("{name}: bytes per entry"), "bytes", bytes, most);
            let last = &answers[answers.len() - 1];
            let mib = |field: &str| (number(last, field) / MIB).round();
            let load = json!({
                "before_MiB": mib("before"), "filled_MiB": mib("filled"), "peak_MiB": mib("peak"),
                "after_MiB": mib("after"), "settled_in_s": number(last, "settled_in_s"),
                "fill_ns": number(last, "fill_ns").round(), "drain_ns": number(last, "drain_ns").round(),
                "slots": last["slots"],
            });
            let back = of(&|a| 100.0 * (number(a, "filled") - number(a, "after")) / grown(a));
            table.loaded(&format!("{name}: given back after the burst"), "%", back, &load);
            if ours {
                table.check(&format!("{name}: given back"), "%", back, Target::AtLeast(95.0));
            }
        }
    }
}
