//! `cargo xtask instructions`: how many instructions each operation executes, as valgrind counts
//! them. The numbers depend on the compiler and not on the machine.
//!
//! For each row this program runs itself under `valgrind --tool=callgrind`, once with few and once
//! with many operations, and takes the difference. What sets the store up is not counted.

use expiry::{AckTracker, ExpiringMap, ExpiryQueue, ManualClock, PendingTable};
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Entries that a store has.
const ENTRIES: u64 = 10_000;
/// Operations of the shorter run, and of the longer one.
const RUNS: [u64; 2] = [1_000, 9_000];
const MINUTE: Duration = Duration::from_secs(60);

/// What a row does: the store is set up, and the second part has so many operations.
type Row = (&'static str, fn(u64));

const ROWS: [Row; 16] = [
    ("map: get", |n| over(map(), n, |map, key| map.get(&key).is_some())),
    ("map: touch", |n| over(map(), n, |map, key| map.touch(&key))),
    ("map: insert, grown", |n| {
        let map = map();
        (0..ENTRIES).for_each(|key| drop(map.insert(key + ENTRIES, key)));
        (0..ENTRIES).for_each(|key| drop(map.remove(&key)));
        over(rested(map), n, |map, key| map.insert(key, key).is_ok());
    }),
    ("map: replace", |n| over(map(), n, |map, key| map.insert(key, key).is_ok())),
    ("map: remove", |n| over(map(), n, |map, key| map.remove(&key).is_some())),
    ("map that evicts: insert", |n| {
        over(full(), n, |map, key| map.insert(key + ENTRIES, key).is_ok());
    }),
    ("map: expire, at once", |n| map_expires(n, |_| 0)),
    ("map: expire, spread", |n| map_expires(n, spread)),
    ("queue: insert, grown", |n| {
        let queue = queue();
        (0..ENTRIES).for_each(|key| queue.update(key + ENTRIES, MINUTE).map(drop).expect("room"));
        (0..ENTRIES).for_each(|key| assert!(queue.remove(&key).is_some()));
        over(rested_queue(queue), n, |queue, key| queue.update(key, MINUTE));
    }),
    ("queue: touch", |n| over(queue(), n, |queue, key| queue.touch(&key, MINUTE))),
    ("queue: remove", |n| over(queue(), n, |queue, key| queue.remove(&key))),
    ("queue: expire, at once", |n| queue_expires(n, |_| 0)),
    ("queue: expire, spread", |n| queue_expires(n, spread)),
    ("tracker: issue, ack", |n| {
        over(tracker(), n, |tracker, _| tracker.ack(tracker.issue(1, 0).expect("room"), 1));
    }),
    ("tracker: init, ack", |n| {
        over(tracker(), n, |tracker, key| {
            let begun = tracker.init(key + 1, 1, 0);
            (begun, tracker.ack(key + 1, 1))
        });
    }),
    ("pending table: insert, take", |n| {
        let table = PendingTable::<u64>::builder().build_manual().expect("a table");
        over(table, n, |table, key| table.take(table.insert(key, MINUTE).expect("room")));
    }),
];

/// `n` operations, of one key after another. The store is not dropped: what is left in it would
/// count.
fn over<S, R>(store: S, n: u64, operation: impl Fn(&S, u64) -> R) {
    let store = ManuallyDrop::new(store);
    counted(|| {
        (0..n).for_each(|key| {
            black_box(operation(&store, black_box(key)));
        });
    });
}

/// Valgrind counts what this executes, by its name.
#[inline(never)]
fn counted(operations: impl FnOnce()) {
    operations();
}

/// Steps of 100 ms over which entries are spread.
const STEPS: u64 = 100;

/// One of them, as if at random.
fn spread(key: u64) -> u64 {
    (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % STEPS
}

/// When a key is due, of which the first `n` are within [`STEPS`].
fn due(key: u64, n: u64, step: fn(u64) -> u64) -> Duration {
    let last = if key < n { MINUTE } else { 2 * MINUTE };
    last + Duration::from_millis(100 * step(key))
}

/// Puts all entries in, of which some expire in [`STEPS`] steps.
fn expires(clock: &ManualClock, put: impl Fn(u64), poll: impl Fn()) {
    (0..ENTRIES).for_each(put);
    clock.advance(MINUTE);
    counted(|| {
        (0..=STEPS).for_each(|_| {
            poll();
            clock.advance(Duration::from_millis(100));
        });
    });
}

fn map_expires(n: u64, step: fn(u64) -> u64) {
    let (clock, map) = (ManualClock::default(), ExpiringMap::builder());
    let map = map.interval(Duration::from_millis(100)).clock(clock.clone());
    let map = ManuallyDrop::new(map.build_manual().expect("a map"));
    let put = |key| drop(map.insert_for(key, key, due(key, n, step)));
    expires(&clock, put, || while map.poll(usize::MAX).more {});
    assert_eq!(map.len() as u64, ENTRIES - n);
}

fn queue_expires(n: u64, step: fn(u64) -> u64) {
    let (clock, queue) = (ManualClock::default(), ExpiryQueue::builder());
    let queue = queue.interval(Duration::from_millis(100)).clock(clock.clone());
    let queue = ManuallyDrop::new(queue.build_manual().expect("a queue"));
    let put = |key| queue.update(key, due(key, n, step)).map(drop).expect("room");
    expires(&clock, put, || drop(queue.poll()));
    assert_eq!(queue.len() as u64, ENTRIES - n);
}

fn filled(map: ExpiringMap<u64, u64>) -> ExpiringMap<u64, u64> {
    (0..ENTRIES).for_each(|key| drop(map.insert(key, key)));
    rested(map)
}

/// The map when its index has its size, and what has ended is free.
fn rested(map: ExpiringMap<u64, u64>) -> ExpiringMap<u64, u64> {
    at_rest(|| while map.poll(usize::MAX).more {});
    assert!(map.flush(MINUTE));
    map
}

fn rested_queue(queue: ExpiryQueue<u64>) -> ExpiryQueue<u64> {
    at_rest(|| drop(queue.poll()));
    assert!(queue.flush(MINUTE));
    queue
}

/// Polls for as long as memory is being looked after.
fn at_rest(poll: impl Fn()) {
    for _ in 0..8 {
        poll();
        std::thread::sleep(Duration::from_millis(8));
    }
}

fn map() -> ExpiringMap<u64, u64> {
    filled(ExpiringMap::builder().time_to_live(MINUTE).build_manual().expect("a map"))
}

/// A map that evicts, and has no room.
fn full() -> ExpiringMap<u64, u64> {
    let entries = usize::try_from(ENTRIES).expect("few");
    let map = ExpiringMap::builder().time_to_live(MINUTE).max_capacity(entries);
    filled(map.build_manual().expect("a map"))
}

fn queue() -> ExpiryQueue<u64> {
    let queue = ExpiryQueue::builder().build_manual().expect("a queue");
    (0..ENTRIES).for_each(|key| queue.update(key, MINUTE).map(drop).expect("room"));
    rested_queue(queue)
}

fn tracker() -> AckTracker {
    AckTracker::builder().build_manual().expect("a tracker")
}

/// The instructions of one run of a row.
fn count(row: usize, operations: u64) -> Result<u64, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*instructions::counted*")
        .arg(own)
        .args([row.to_string(), operations.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error} (install the package `valgrind`)"))?;
    let text = String::from_utf8_lossy(&out.stderr);
    let refs = text.lines().find(|line| line.contains("Collected :"));
    let digits = |line: &str| line.rsplit(':').next().map(|count| count.replace([',', ' '], ""));
    match refs.and_then(digits).and_then(|count| count.parse().ok()) {
        Some(count) if out.status.success() => Ok(count),
        _ => Err(format!("no count from valgrind:\n{text}")),
    }
}

fn table(wanted: Option<&str>) -> Result<(), String> {
    for (at, (name, _)) in ROWS.iter().enumerate() {
        if wanted.is_some_and(|wanted| !name.contains(wanted)) {
            continue;
        }
        let (less, more) = (count(at, RUNS[0])?, count(at, RUNS[1])?);
        println!("{name:40} {:6}", (more - less) / (RUNS[1] - RUNS[0]));
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if let [row, operations] = numbers[..] {
        let row = usize::try_from(row).ok().and_then(|row| ROWS.get(row));
        if let Some((_, run)) = row {
            run(operations);
        }
        return ExitCode::SUCCESS;
    }
    match table(words.first().map(String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
