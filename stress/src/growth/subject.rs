//! What grows: a tracker, of issued or chosen roots, or a map, each as a set of numbered entries.

use crate::error::Error;
use crate::mix::mix;
use crate::options::Grown;
use expiry::{Ack, AckError, AckTracker, ExpiringMap, Outcome, StoreError};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

/// Nothing expires here.
const LIFE: Duration = Duration::from_secs(100 * 3600);
const INTERVAL: Duration = Duration::from_millis(100);
/// The one edge of each root.
const EDGE: u64 = 0x5EED;

/// Why an entry did not get in.
#[derive(Debug)]
pub enum Refusal {
    /// There is no room.
    Full,
    /// Anything else.
    Other(String),
}

/// Counters of the engine.
#[derive(Debug, Clone, Copy)]
pub struct Counts {
    /// Those that came in.
    pub inserted: u64,
    /// Those that were acked or removed.
    pub ended: u64,
    /// Slots whose memory is held.
    pub slots: u64,
}

/// A set of entries `0..n`. One thread inserts an entry, and one ends it; any may look for it in between.
pub trait Subject: Sync {
    /// Inserts an entry that is not there.
    fn insert(&self, entry: u64) -> Result<(), Refusal>;
    /// Whether it is there, as it was inserted.
    fn is_there(&self, entry: u64) -> bool;
    /// Ends it. True if it was there, as it was inserted.
    fn end(&self, entry: u64) -> bool;
    /// Whether it can be ended once more. Not asked where asking would leave something behind.
    fn ends_again(&self, entry: u64) -> bool {
        self.end(entry)
    }
    /// The engine's counters.
    fn counts(&self) -> Counts;
    /// How many there are.
    fn len(&self) -> u64;
}

/// As many entries as there may be, and whether the engine is bounded by that.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Numbers of entries are below this.
    pub entries: u64,
    /// The capacity, if there is one.
    pub capacity: Option<usize>,
    /// What keys are made from.
    pub seed: u64,
}

/// Roots that were issued, by entry. Resident from the beginning.
pub struct Roots(Vec<AtomicU64>);

impl Roots {
    /// Room for those of `kind`.
    pub fn new(kind: Grown, entries: u64) -> Self {
        let entries = if kind == Grown::Issued { entries } else { 0 };
        // Not zero: of zeroes the system makes pages only when they are written.
        Roots((0..entries).map(|_| AtomicU64::new(u64::MAX)).collect())
    }
}

/// A subject of `kind`, with a reaper.
///
/// # Errors
///
/// If it cannot be built.
pub fn subject<'a>(
    kind: Grown,
    size: Size,
    roots: &'a Roots,
) -> Result<Box<dyn Subject + 'a>, Error> {
    if kind == Grown::Map {
        let mut builder = ExpiringMap::builder().time_to_live(LIFE).interval(INTERVAL);
        if let Some(capacity) = size.capacity {
            builder = builder.capacity(capacity);
        }
        let map = builder.build()?;
        return Ok(Box::new(Map(map, size.seed)));
    }
    let mut builder =
        AckTracker::builder().timeout(LIFE).interval(INTERVAL).on_outcome(|_: &Outcome| ());
    if let Some(capacity) = size.capacity {
        builder = builder.capacity(capacity);
    }
    let tracker = builder.build()?;
    Ok(if kind == Grown::Issued {
        Box::new(Issued(tracker, roots))
    } else {
        Box::new(Chosen(tracker, size.seed))
    })
}

/// A key that looks random, another one for every entry.
fn key(entry: u64, seed: u64) -> u64 {
    mix(entry ^ seed.rotate_left(40))
}

impl From<AckError> for Refusal {
    fn from(error: AckError) -> Self {
        match error {
            AckError::Full => Refusal::Full,
            other => Refusal::Other(other.to_string()),
        }
    }
}

fn counts(tracker: &AckTracker) -> Counts {
    let total = tracker.metrics().total;
    Counts { inserted: total.inserted, ended: total.acked, slots: total.slots }
}

struct Issued<'a>(AckTracker, &'a Roots);

impl Issued<'_> {
    fn root(&self, entry: u64) -> expiry::Root {
        // Acquire: its root is there. (The index fits: there are that many.)
        expiry::Root::from_bits(self.1 .0[entry as usize].load(Acquire))
    }
}

impl Subject for Issued<'_> {
    fn insert(&self, entry: u64) -> Result<(), Refusal> {
        let root = self.0.issue(EDGE, entry)?;
        self.1 .0[entry as usize].store(root.to_bits(), Release);
        Ok(())
    }

    fn is_there(&self, entry: u64) -> bool {
        self.0.reset_timeout(self.root(entry)).is_ok()
    }

    fn end(&self, entry: u64) -> bool {
        self.0.ack(self.root(entry), EDGE) == Ok(Ack::Completed)
    }

    fn counts(&self) -> Counts {
        counts(&self.0)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

struct Chosen(AckTracker, u64);

impl Subject for Chosen {
    fn insert(&self, entry: u64) -> Result<(), Refusal> {
        Ok(self.0.init(key(entry, self.1), EDGE, entry)?)
    }

    fn is_there(&self, entry: u64) -> bool {
        // A root that nobody knows would be held as one whose init is to come.
        self.0.reset_timeout(key(entry, self.1)) == Ok(expiry::Done::Now)
    }

    fn end(&self, entry: u64) -> bool {
        self.0.ack(key(entry, self.1), EDGE) == Ok(Ack::Completed)
    }

    fn ends_again(&self, _entry: u64) -> bool {
        // It would be held as one whose init is to come.
        false
    }

    fn counts(&self) -> Counts {
        counts(&self.0)
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

struct Map(ExpiringMap<u64, u64>, u64);

impl Subject for Map {
    fn insert(&self, entry: u64) -> Result<(), Refusal> {
        let key = key(entry, self.1);
        match self.0.insert(key, !entry) {
            Ok(None) => Ok(()),
            Ok(Some(old)) => {
                Err(Refusal::Other(format!("key {key:#x} was there, with {:#x}", old.value())))
            }
            Err(refused) if refused.error == StoreError::Full => Err(Refusal::Full),
            Err(refused) => Err(Refusal::Other(refused.to_string())),
        }
    }

    fn is_there(&self, entry: u64) -> bool {
        self.0.get_cloned(&key(entry, self.1)) == Some(!entry)
    }

    fn end(&self, entry: u64) -> bool {
        let ended = self.0.remove(&key(entry, self.1));
        ended.is_some_and(|ended| *ended.value() == !entry)
    }

    fn counts(&self) -> Counts {
        let metrics = self.0.metrics().total;
        Counts { inserted: metrics.inserted, ended: metrics.removed, slots: metrics.slots }
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_and_go_one_by_one() {
        for kind in [Grown::Issued, Grown::Chosen, Grown::Map] {
            let size = Size { entries: 100, capacity: Some(50), seed: 3 };
            let roots = Roots::new(kind, size.entries);
            let subject = subject(kind, size, &roots).unwrap();
            for entry in 0..50 {
                assert!(subject.insert(entry).is_ok(), "{kind:?}");
                assert!(subject.is_there(entry), "{kind:?}");
            }
            assert!(matches!(subject.insert(50), Err(Refusal::Full)), "{kind:?}");
            assert_eq!(subject.len(), 50, "{kind:?}");
            assert!((0..50).all(|entry| subject.end(entry)), "{kind:?}");
            assert!(!subject.is_there(7), "{kind:?}");
            assert_eq!(subject.counts().ended, 50, "{kind:?}");
        }
    }
}
