//! The keys and values: an `ExpiringMap`, deadlines by the wall clock, and a bound on memory.

use expiry::expiring_map::Entry;
use expiry::{BuildError, ExpiringMap, Lifetime, RemovalCause, StoreError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;

/// What an entry weighs beside its key and data: its slot, index, and the headers of two boxes.
const OVERHEAD: usize = 120;
/// An entry that is to live for longer ends after this: 15 years.
const LONGEST: Duration = Duration::from_secs(500_000_000);
/// How many expired keys wait for the slowest subscriber; one that lags by more is disconnected.
const EVENTS: usize = 1 << 16;

pub type Key = Box<[u8]>;

/// A value, and when it expires: in milliseconds since 1970.
#[derive(Debug, Clone)]
pub struct Stored {
    pub data: Arc<[u8]>,
    pub deadline: Option<i64>,
}

impl Stored {
    pub fn new(data: &[u8], deadline: Option<i64>) -> Self {
        Stored { data: data.into(), deadline }
    }
}

/// What to do with a write that finds the memory full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Evicts other keys, by S3-FIFO.
    #[value(name = "allkeys-s3fifo")]
    Evict,
    /// Refuses it.
    #[value(name = "noeviction")]
    Refuse,
}

/// Why a write was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    Memory,
    #[error("ERR {0}")]
    Store(StoreError),
}

pub struct Cache {
    pub map: ExpiringMap<Key, Stored>,
    /// The keys that expire, as they do.
    pub expired: broadcast::Sender<Arc<[u8]>>,
    /// Under [`Policy::Refuse`]: the bound, and what all entries weigh.
    full: Option<(usize, Arc<AtomicUsize>)>,
    /// One moment, by the monotonic clock and since 1970. A step of the wall clock moves no
    /// deadline.
    start: (Instant, Duration),
}

fn weight(key: &[u8], stored: &Stored) -> usize {
    key.len() + stored.data.len() + OVERHEAD
}

impl Cache {
    /// A cache whose entries weigh at most so many bytes, if that is bounded.
    pub fn new(bound: Option<usize>, policy: Policy) -> Result<Self, BuildError> {
        let (expired, used) = (broadcast::channel(EVENTS).0, Arc::new(AtomicUsize::new(0)));
        let full = bound.filter(|_| policy == Policy::Refuse).map(|bound| (bound, used.clone()));
        let (events, counts) = (expired.clone(), full.is_some());
        // Each end of a value comes here once. An expired one comes from the reaper thread.
        let listener = move |key: &Key, stored: &Stored, cause: RemovalCause| {
            if counts {
                used.fetch_sub(weight(key, stored), Ordering::Relaxed);
            }
            if cause == RemovalCause::Expired && events.receiver_count() > 0 {
                // The last subscriber may have gone.
                let _ = events.send(key[..].into());
            }
        };
        let builder = ExpiringMap::builder()
            .interval(Duration::from_millis(1))
            .removal_listener(listener)
            .name("cached-reaper");
        let map = match bound.filter(|_| policy == Policy::Evict) {
            Some(bound) => builder.max_weight(bound, |key: &Key, stored: &Stored| {
                weight(key, stored).try_into().unwrap_or(u32::MAX)
            }),
            None => builder,
        };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Cache { map: map.build()?, expired, full, start: (Instant::now(), since_1970) })
    }

    /// The time since 1970.
    pub fn now(&self) -> Duration {
        self.start.1 + self.start.0.elapsed()
    }

    /// How long until a deadline; zero if it has passed.
    fn left(&self, deadline: i64) -> Duration {
        Duration::from_millis(deadline.max(0) as u64).saturating_sub(self.now())
    }

    /// Puts an entry in, or in the place of the key's. One whose deadline has passed removes it.
    pub fn insert(&self, key: &[u8], stored: Stored) -> Result<(), WriteError> {
        let Some(lifetime) = self.lifetime(&stored) else {
            self.map.remove(key);
            return Ok(());
        };
        let weight = self.admit(key, &stored)?;
        let inserted = self.map.insert_for(key.into(), stored, lifetime);
        inserted.map(drop).map_err(|refused| self.refused(refused.error, weight))
    }

    /// Looks at a key's entry, and puts in what `change` makes of it, if anything, as one step: if
    /// another client changes the entry meanwhile, `change` looks again.
    pub fn update<R>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&Stored>) -> (Option<Stored>, R),
    ) -> Result<R, WriteError> {
        loop {
            let entry = self.map.entry(key.into());
            let (stored, result) = match &entry {
                Entry::Occupied(entry) => change(Some(entry.get())),
                Entry::Vacant(_) => change(None),
            };
            let Some(stored) = stored else {
                return Ok(result);
            };
            let Some(lifetime) = self.lifetime(&stored) else {
                match entry {
                    Entry::Vacant(_) => return Ok(result),
                    Entry::Occupied(entry) => match entry.remove() {
                        Some(_) => return Ok(result),
                        None => continue,
                    },
                }
            };
            let weight = self.admit(key, &stored)?;
            let put = match entry {
                Entry::Occupied(entry) => entry.insert_for(stored, lifetime).map(drop),
                Entry::Vacant(entry) => entry.insert_for(stored, lifetime).map(drop),
            };
            match put.map_err(|refused| self.refused(refused.error, weight)) {
                Ok(()) => return Ok(result),
                Err(WriteError::Store(StoreError::Changed)) => {}
                Err(refused) => return Err(refused),
            }
        }
    }

    /// How long an entry is to live; `None` if its deadline has passed.
    fn lifetime(&self, stored: &Stored) -> Option<Lifetime> {
        let Some(deadline) = stored.deadline else {
            return Some(Lifetime::Never);
        };
        let left = self.left(deadline).min(LONGEST);
        (!left.is_zero()).then_some(Lifetime::After(left))
    }

    /// Counts the weight of an entry that is to be put in, where the policy is to refuse.
    fn admit(&self, key: &[u8], stored: &Stored) -> Result<usize, WriteError> {
        let Some((bound, used)) = &self.full else {
            return Ok(0);
        };
        let weight = weight(key, stored);
        if used.fetch_add(weight, Ordering::Relaxed) + weight > *bound {
            used.fetch_sub(weight, Ordering::Relaxed);
            return Err(WriteError::Memory);
        }
        Ok(weight)
    }

    /// Takes the weight back of an entry that the map has refused.
    fn refused(&self, error: StoreError, weight: usize) -> WriteError {
        if let Some((_, used)) = &self.full {
            used.fetch_sub(weight, Ordering::Relaxed);
        }
        match error {
            StoreError::Full | StoreError::TooHeavy | StoreError::OutOfMemory => WriteError::Memory,
            error => WriteError::Store(error),
        }
    }
}
