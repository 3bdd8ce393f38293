//! Whoever reads the channel stops, or goes away: what each policy for a full channel promises.

use super::book::End;
use super::ground::Ground;
use super::ground::INTERVAL;
use crate::latency::nanos;
use crate::subject::{edge, end_of, Kind, Refusal, LONG};
use expiry::{
    AckTracker, Clock, Expired, ExpiryQueue, Lifetime, MonotonicClock, Outcomes, Receiver,
    ShutdownMode, WhenFull,
};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Outcomes that the channel holds.
const LENGTH: usize = 64;

/// A sending end, and its counts.
enum Sender {
    Tracker(AckTracker),
    Queue(ExpiryQueue<u64>),
}

enum Reader {
    Outcomes(Outcomes),
    Expired(Receiver<Expired<u64>>),
}

impl Sender {
    fn build(kind: Kind, when_full: WhenFull, clock: Arc<dyn Clock>) -> (Self, Reader) {
        // Settings that a builder accepts.
        const BUILT: &str = "a channel is built";
        if kind == Kind::Queue {
            let builder = ExpiryQueue::builder().interval(INTERVAL).shards(4).clock(clock);
            let (queue, expired) = builder.build_with_channel(LENGTH, when_full).expect(BUILT);
            (Sender::Queue(queue), Reader::Expired(expired))
        } else {
            let builder =
                AckTracker::builder().interval(INTERVAL).timeout(LONG).shards(4).clock(clock);
            let (tracker, outcomes) = builder.build_with_channel(LENGTH, when_full).expect(BUILT);
            (Sender::Tracker(tracker), Reader::Outcomes(outcomes))
        }
    }

    fn put(&self, kind: Kind, number: u64, timeout: Duration) -> Result<(), Refusal> {
        let after = Lifetime::After(timeout);
        match self {
            Sender::Tracker(tracker) if kind == Kind::Chosen => {
                tracker.init_with(number, edge(number), number, after)?;
            }
            Sender::Tracker(tracker) => {
                tracker.issue_with(edge(number), number, after)?;
            }
            Sender::Queue(queue) => {
                queue.update(number, timeout)?;
            }
        }
        Ok(())
    }

    fn len(&self) -> usize {
        match self {
            Sender::Tracker(tracker) => tracker.len(),
            Sender::Queue(queue) => queue.len(),
        }
    }

    /// How many have spilled, and how many nobody got.
    fn astray(&self) -> (usize, usize) {
        let (spilled, undelivered) = match self {
            Sender::Tracker(tracker) => {
                let metrics = tracker.metrics();
                (metrics.spilled, metrics.undelivered)
            }
            Sender::Queue(queue) => {
                let metrics = queue.metrics();
                (metrics.spilled, metrics.undelivered)
            }
        };
        (spilled as usize, undelivered as usize)
    }

    /// Shuts down; enters what that returns in the book.
    fn shutdown(&self, ground: &Ground) {
        match self {
            Sender::Tracker(tracker) => {
                tracker.shutdown(ShutdownMode::Cancel);
            }
            Sender::Queue(queue) => {
                for key in queue.shutdown() {
                    ground.book.ended(*key.key(), End::Closed);
                }
            }
        }
    }
}

impl Reader {
    fn len(&self) -> usize {
        match self {
            Reader::Outcomes(outcomes) => outcomes.len(),
            Reader::Expired(expired) => expired.len(),
        }
    }

    /// Reads what is there into the book; how many.
    fn read(&self, ground: &Ground, clock: &dyn Clock) -> usize {
        let before = ground.book.sums().told;
        match self {
            Reader::Outcomes(outcomes) => {
                while let Some(outcome) = outcomes.try_next() {
                    ground.book.ended(outcome.owner, end_of(&outcome, clock.now()));
                }
            }
            Reader::Expired(expired) => {
                while let Some(key) = expired.try_next() {
                    ground.book.ended(*key.key(), End::Expired(clock.now()));
                }
            }
        }
        ground.book.sums().told - before
    }
}

/// Readers stop, under each policy; go on again; and go away.
pub fn consumers_stop(ground: &Ground) {
    waits(&ground.again());
    for when_full in [WhenFull::Spill, WhenFull::Drop] {
        goes_on(&ground.again(), when_full);
    }
    for when_full in [WhenFull::Wait, WhenFull::Spill, WhenFull::Drop] {
        goes_away(&ground.again(), when_full);
    }
}

fn begin(ground: &Ground, sender: &Sender, clock: &dyn Clock, many: usize) {
    for at in 0..many {
        let timeout = (5 + at as u32 % 20) * MS;
        let Some(number) = ground.book.begin(clock.now() + nanos(timeout)) else {
            return;
        };
        ground.operations.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        match sender.put(ground.kind, number, timeout) {
            Ok(()) => ground.book.accepted(number),
            Err(why) => ground.expect(false, || format!("refused: {why:?}")),
        }
    }
}

/// The reaper waits for room, nothing more expires, nobody else waits, and nothing is lost: neither when reading goes on, nor
/// in a shutdown, after which all that had no room has spilled.
fn waits(ground: &Ground) {
    let clock = Arc::new(MonotonicClock::new());
    let (sender, reader) = Sender::build(ground.kind, WhenFull::Wait, clock.clone());
    let many = ground.options.size as usize / 10;
    begin(ground, &sender, &*clock, many);
    ground.wait("a full channel", || reader.len() == LENGTH);
    // Beside the reaper, which waits for room, entries still come in.
    begin(ground, &sender, &*clock, many);
    let (waiting, astray) = (reader.len(), sender.astray());
    ground.expect(waiting == LENGTH && astray == (0, 0), || {
        format!("{waiting} outcomes wait, {astray:?} have spilled or gone")
    });
    // Of each thread that has ended an entry one more is on its way: the reaper's.
    let left = sender.len();
    ground.expect(left >= 2 * many - LENGTH - 1, || {
        format!("{left} entries are left, though nothing can expire beyond what the channel holds")
    });
    ground.wait("all outcomes, once they are read", || {
        reader.read(ground, &*clock);
        let sums = ground.book.sums();
        sums.told >= sums.accepted
    });
    begin(ground, &sender, &*clock, many);
    ground.wait("a full channel", || reader.len() == LENGTH);
    sender.shutdown(ground);
    reader.read(ground, &*clock);
    empty(ground, &sender);
    ground.balanced();
}

/// Nobody waits: what has no room spills and is read later, or is dropped and counted.
fn goes_on(ground: &Ground, when_full: WhenFull) {
    let clock = Arc::new(MonotonicClock::new());
    let (sender, reader) = Sender::build(ground.kind, when_full, clock.clone());
    let many = ground.options.size as usize / 10;
    begin(ground, &sender, &*clock, many);
    ground.wait("the end of everything, unread", || sender.len() == 0);
    let beyond = many - LENGTH;
    let should = match when_full {
        WhenFull::Spill => (beyond, 0),
        _ => (0, beyond),
    };
    // The last one is counted after it has ended.
    let mut astray = (0, 0);
    ground.wait("the count of what had no room", || {
        astray = sender.astray();
        astray == should
    });
    let read = reader.read(ground, &*clock);
    ground.expect(read + astray.1 == many, || {
        format!("{read} of {many} were read, {astray:?} have spilled or gone")
    });
    empty(ground, &sender);
    sender.shutdown(ground);
    if when_full == WhenFull::Spill {
        ground.balanced();
    } else {
        let again = ground.book.told_again();
        ground.expect(again == 0, || format!("{again} were told again"));
    }
}

/// The reader has gone: everything ends all the same, and is counted as got by nobody.
fn goes_away(ground: &Ground, when_full: WhenFull) {
    let clock = Arc::new(MonotonicClock::new());
    let (sender, reader) = Sender::build(ground.kind, when_full, clock.clone());
    drop(reader);
    let many = ground.options.size as usize / 10;
    begin(ground, &sender, &*clock, many);
    ground.wait("the end of everything, with no reader", || sender.len() == 0);
    ground.wait("the count of what nobody got", || sender.astray() == (0, many));
    empty(ground, &sender);
    sender.shutdown(ground);
}

fn empty(ground: &Ground, sender: &Sender) {
    let left = sender.len();
    ground.expect(left == 0, || format!("{left} entries are left"));
}

/// Whether a fault of channels applies.
pub fn has_channel(kind: Kind) -> bool {
    kind != Kind::Map
}
