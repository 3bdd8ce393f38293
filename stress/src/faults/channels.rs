//! The reader of the channel stops, or goes away: this checks what each policy for a full channel
//! promises.

use super::ground::{Ground, Put};
use crate::subject::{Kind, Reader, Subject};
use expiry::{Clock, MonotonicClock, WhenFull};
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
/// Outcomes that the channel holds.
const LENGTH: usize = 64;

/// Whether a fault of channels applies.
pub fn has_channel(kind: Kind) -> bool {
    kind != Kind::Map
}

/// Readers stop, under each policy; go on again; and go away.
pub fn consumers_stop(ground: &Ground) {
    let many = ground.options.size as usize / 10;
    waits(&Line::new(ground, WhenFull::Wait), many);
    for when_full in [WhenFull::Spill, WhenFull::Drop] {
        goes_on(&Line::new(ground, when_full), many, when_full);
    }
    for when_full in [WhenFull::Wait, WhenFull::Spill, WhenFull::Drop] {
        goes_away(Line::new(ground, when_full), many);
    }
}

/// A subject, and the channel through which it delivers ends.
struct Line {
    ground: Ground,
    clock: Arc<MonotonicClock>,
    subject: Arc<dyn Subject>,
    reader: Reader,
}

impl Line {
    /// A line with a book of its own.
    fn new(ground: &Ground, when_full: WhenFull) -> Self {
        let (ground, clock) = (ground.again(), Arc::new(MonotonicClock::new()));
        let (subject, reader) = ground.with_channel(clock.clone(), LENGTH, when_full);
        Line { ground, clock, subject, reader }
    }

    fn begin(&self, many: usize) {
        for at in 0..many {
            let timeout = (5 + at as u32 % 20) * MS;
            match self.ground.put(&*self.subject, &*self.clock, timeout) {
                Some(Put::In(_)) => {}
                Some(Put::Refused(why)) => {
                    self.ground.expect(false, || format!("refused: {why:?}"));
                }
                None => return,
            }
        }
    }

    /// Reads the waiting ends into the book. Returns how many.
    fn read(&self) -> usize {
        let ends = std::iter::from_fn(|| self.reader.next());
        ends.map(|(number, cause)| self.ground.book.ended(number, cause, self.clock.now())).count()
    }

    /// How many ends have spilled, and how many no reader got.
    fn astray(&self) -> (usize, usize) {
        let counts = self.subject.counts();
        (counts.spilled as usize, counts.undelivered as usize)
    }

    fn is_empty(&self) {
        let left = self.subject.len();
        self.ground.expect(left == 0, || format!("{left} entries are left"));
    }
}

/// The reaper waits for room, nothing more expires, and no other thread waits. Nothing is lost:
/// neither once reading goes on, nor in a shutdown, after which all that had no room has spilled.
fn waits(line: &Line, many: usize) {
    let Line { ground, reader, .. } = line;
    line.begin(many);
    ground.wait("a full channel", || reader.len() == LENGTH);
    // Entries still come in beside the reaper, which waits for room.
    line.begin(many);
    let (waiting, astray) = (reader.len(), line.astray());
    ground.expect(waiting == LENGTH && astray == (0, 0), || {
        format!("{waiting} outcomes wait, {astray:?} have spilled or gone")
    });
    // Each thread that ends entries has one more on its way: here that is the reaper's.
    let left = line.subject.len();
    ground.expect(left >= 2 * many - LENGTH - 1, || {
        format!("{left} entries are left, though nothing can expire beyond what the channel holds")
    });
    ground.wait("all outcomes, once they are read", || {
        line.read();
        let sums = ground.book.sums();
        sums.told >= sums.accepted
    });
    line.begin(many);
    ground.wait("a full channel", || reader.len() == LENGTH);
    line.subject.shutdown();
    line.read();
    line.is_empty();
    ground.balanced();
}

/// No thread waits: an end that has no room spills and is read later, or is dropped and counted.
fn goes_on(line: &Line, many: usize, when_full: WhenFull) {
    let ground = &line.ground;
    line.begin(many);
    ground.wait("the end of everything, unread", || line.subject.len() == 0);
    let beyond = many - LENGTH;
    let should = match when_full {
        WhenFull::Spill => (beyond, 0),
        _ => (0, beyond),
    };
    // The last one is counted after it has ended.
    let mut astray = (0, 0);
    ground.wait("the count of what had no room", || {
        astray = line.astray();
        astray == should
    });
    let read = line.read();
    ground.expect(read + astray.1 == many, || {
        format!("{read} of {many} were read, {astray:?} have spilled or gone")
    });
    line.is_empty();
    line.subject.shutdown();
    if when_full == WhenFull::Spill {
        ground.balanced();
    }
}

/// The reader has gone: everything ends all the same, and is counted as undelivered.
fn goes_away(mut line: Line, many: usize) {
    line.reader = Reader::Gone;
    line.begin(many);
    line.ground.wait("the end of everything, with no reader", || line.subject.len() == 0);
    line.ground.wait("the count of what nobody got", || line.astray() == (0, many));
    line.is_empty();
    line.subject.shutdown();
}
