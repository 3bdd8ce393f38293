//! Values in flight: `PendingTable` beside what is written by hand, a map from ids to values under
//! a lock, and beside a concurrent map that expires nothing.
//!
//! A window of values is in flight. A step takes the value of a random position, and inserts
//! another one in its place. All peers get the same positions, and 30 s as timeout. The maps' ids
//! are counted up.

use super::{count, name, numbers, Options};
use crate::lab::at_once;
use crate::process::resident;
use crate::report::{Report, Spread, Target};
use crate::window::{draw, Order};
use dashmap::DashMap;
use expiry::{PendingTable, Ticket};
use hdrhistogram::Histogram;
use serde_json::{json, Value};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Mutex};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Steps of a round.
const STEPS: usize = 1 << 21;

type Hasher = foldhash::fast::RandomState;

trait Peer: Sync {
    const NAME: &'static str;

    fn new() -> Self;
    fn insert(&self, value: u64) -> u64;
    fn take(&self, id: u64) -> Option<u64>;

    /// Takes the values of these ids. Returns their sum.
    fn take_group(&self, ids: &[u64]) -> u64 {
        ids.iter().map(|&id| self.take(id).expect("in flight")).sum()
    }
}

/// With its reaper. `BATCH`: takes 16 at once.
struct Ours<const BATCH: bool>(PendingTable<u64>);

impl<const BATCH: bool> Peer for Ours<BATCH> {
    const NAME: &'static str = if BATCH { "PendingTable, take_many" } else { "PendingTable" };

    fn new() -> Self {
        Ours(PendingTable::builder().build().expect("the defaults are right"))
    }

    fn insert(&self, value: u64) -> u64 {
        self.0.insert(value, TIMEOUT).expect("there is no bound").into()
    }

    fn take(&self, id: u64) -> Option<u64> {
        self.0.take(Ticket::from(id))
    }

    fn take_group(&self, ids: &[u64]) -> u64 {
        if !BATCH {
            return ids.iter().map(|&id| self.take(id).expect("in flight")).sum();
        }
        let mut tickets = [Ticket::from(0); 16];
        for (ticket, &id) in tickets.iter_mut().zip(ids) {
            *ticket = Ticket::from(id);
        }
        self.0.take_many(&tickets[..ids.len()]).map(|value| value.expect("in flight")).sum()
    }
}

/// Values by id, and ids by deadline, under one lock.
#[derive(Default)]
struct Held {
    values: HashMap<u64, (u64, Instant), Hasher>,
    deadlines: BTreeMap<(Instant, u64), ()>,
    next: u64,
}

struct Locked(Mutex<Held>);

impl Locked {
    fn with<R>(&self, f: impl FnOnce(&mut Held) -> R) -> R {
        f(&mut self.0.lock().expect("no thread panics"))
    }
}

impl Peer for Locked {
    const NAME: &'static str = "Mutex, HashMap, BTreeMap";

    fn new() -> Self {
        Locked(Mutex::default())
    }

    fn insert(&self, value: u64) -> u64 {
        let due = Instant::now() + TIMEOUT;
        self.with(|held| {
            held.next += 1;
            held.values.insert(held.next, (value, due));
            held.deadlines.insert((due, held.next), ());
            held.next
        })
    }

    fn take(&self, id: u64) -> Option<u64> {
        self.with(|held| {
            let (value, due) = held.values.remove(&id)?;
            held.deadlines.remove(&(due, id));
            Some(value)
        })
    }
}

/// Without expiry.
struct Dash(DashMap<u64, u64, Hasher>, AtomicU64);

impl Peer for Dash {
    const NAME: &'static str = "dashmap, no expiry";

    fn new() -> Self {
        Dash(DashMap::default(), AtomicU64::new(0))
    }

    fn insert(&self, value: u64) -> u64 {
        let id = self.1.fetch_add(1, Ordering::Relaxed);
        self.0.insert(id, value);
        id
    }

    fn take(&self, id: u64) -> Option<u64> {
        self.0.remove(&id).map(|(_, value)| value)
    }
}

/// The child's side: bytes of a value.
pub fn serve(peer: &str, entries: usize) -> Option<Value> {
    fn measure<P: Peer>(entries: usize) -> Value {
        let (peer, before) = (P::new(), resident());
        for value in 0..entries as u64 {
            peer.insert(value);
        }
        let bytes = resident().saturating_sub(before) as f64 / entries as f64;
        json!({ "name": P::NAME, "bytes": bytes })
    }
    Some(match peer {
        "ours" => measure::<Ours<false>>(entries),
        "locked" => measure::<Locked>(entries),
        "dashmap" => measure::<Dash>(entries),
        _ => return None,
    })
}

/// Nanoseconds of a step, by one thread.
fn steps<P: Peer>(window: usize) -> f64 {
    let (peer, mut ids) = (P::new(), Vec::with_capacity(window));
    ids.extend((0..window as u64).map(|value| peer.insert(value)));
    let positions = draw(Order::Random, window, STEPS, 7);
    let mut pass = || {
        let began = Instant::now();
        for group in positions.chunks_exact(16) {
            let mut taken = [0; 16];
            for (id, &at) in taken.iter_mut().zip(group) {
                *id = ids[at as usize];
            }
            std::hint::black_box(peer.take_group(&taken));
            for &at in group {
                ids[at as usize] = peer.insert(u64::from(at));
            }
        }
        began.elapsed().as_nanos() as f64 / STEPS as f64
    };
    pass();
    pass()
}

/// Two threads insert, and send the ids to two that take. Latency of a take, in nanoseconds: the
/// median, and what one in a thousand exceeds.
fn latency<P: Peer>() -> (f64, f64) {
    const EACH: u64 = 200_000;
    enum Part {
        Inserts(mpsc::SyncSender<u64>),
        Takes(mpsc::Receiver<u64>),
    }
    let peer = P::new();
    let mut parts = Vec::new();
    for _ in 0..2 {
        let (sender, receiver) = mpsc::sync_channel(1024);
        parts.extend([Part::Inserts(sender), Part::Takes(receiver)]);
    }
    let (_, done) = at_once(&mut parts, |_, part| {
        let mut nanos = Histogram::<u64>::new(3).expect("three digits are allowed");
        match part {
            Part::Inserts(ids) => {
                for value in 0..EACH {
                    ids.send(peer.insert(value)).expect("the other thread takes all");
                }
            }
            Part::Takes(ids) => {
                for _ in 0..EACH {
                    let id = ids.recv().expect("the other thread inserts all");
                    let began = Instant::now();
                    assert!(peer.take(id).is_some());
                    nanos.saturating_record(began.elapsed().as_nanos() as u64);
                }
            }
        }
        nanos
    });
    let mut all = Histogram::<u64>::new(3).expect("three digits are allowed");
    for one in done {
        all.add(one).expect("of one shape");
    }
    (all.value_at_quantile(0.5) as f64, all.value_at_quantile(0.999) as f64)
}

type Row = (&'static str, fn(usize) -> f64, fn() -> (f64, f64));

fn row<P: Peer>() -> Row {
    (P::NAME, steps::<P>, latency::<P>)
}

pub fn run(options: &Options, report: &mut Report) {
    let peers = [row::<Ours<false>>(), row::<Ours<true>>(), row::<Locked>(), row::<Dash>()];
    for window in options.loads(&[10_000, 1_000_000]) {
        let mut table = report.table(
            format!("values in flight, {}", count(window)),
            &format!("one thread; a take and an insertion; {} rounds", options.rounds),
        );
        let times =
            options.in_turn(options.rounds, &peers, |row| row.0.into(), |row| row.1(window));
        for ((name, ..), times) in peers.iter().zip(&times) {
            table.figure(name, "ns", Spread::of(times.iter().copied()));
        }
        for (theirs, limit) in [(2, 8.0), (3, 1.5)] {
            let ratio = Spread::ratio(&times[theirs], &times[0]);
            let name = format!("{}, over PendingTable", peers[theirs].0);
            table.check(&name, "times", ratio, Target::AtLeast(limit));
        }
        for answers in options.ask_in_turn(1, "pending", &["ours", "locked", "dashmap"], window) {
            let label = format!("{}: memory", name(&answers));
            table.figure(&label, "bytes/value", numbers(&answers, "bytes"));
        }
    }
    let mut table = report.table(
        "values in flight, latency of a take".into(),
        &format!("two threads insert, two take; {} rounds", options.rounds),
    );
    let all = options.in_turn(options.rounds, &peers, |row| row.0.into(), |row| row.2());
    for ((name, ..), rounds) in peers.iter().zip(&all) {
        table.figure(&format!("{name}: median"), "ns", Spread::of(rounds.iter().map(|r| r.0)));
        table.figure(&format!("{name}: p99.9"), "ns", Spread::of(rounds.iter().map(|r| r.1)));
    }
    let tails = |at: usize| all[at].iter().map(|round| round.1).collect::<Vec<f64>>();
    let ratio = Spread::ratio(&tails(2), &tails(0));
    table.check("Mutex's p99.9, over PendingTable's", "times", ratio, Target::AtLeast(10.0));
}
