//! The keys and values: an `ExpiringMap`, deadlines by the wall clock, and a bound on memory.

use crate::protocol::MAX_REQUEST;
use expiry::expiring_map::Compute;
use expiry::{BuildError, EvictionPolicy, ExpiringMap, Lifetime, RemovalCause, StoreError};
use expiry_examples::Done;
use smallvec::SmallVec;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::broadcast;

/// What an entry weighs beside its key and data: its slot, its share of the index, and the headers
/// of what it allocates.
const OVERHEAD: usize = 120;
/// An entry that is to live for longer ends after this: 15 years.
const LONGEST: Duration = Duration::from_secs(500_000_000);
/// A deadline that had passed when a client gave it.
pub const PASSED: i64 = 0;
/// How many events wait for the slowest subscriber; one that lags by more is disconnected.
const EVENTS: usize = 1 << 16;
/// The error of a write that finds the memory full.
pub const FULL: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

/// A short key has no memory of its own, and a look-up compares it where it finds it.
pub type Key = SmallVec<[u8; 24]>;
pub type Map = ExpiringMap<Key, Stored>;
/// A key that has expired. `None` is the room that the long key before it takes among the events.
pub type Event = Option<Arc<[u8]>>;

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
    S3Fifo,
    /// Evicts the keys that were used least recently.
    #[value(name = "allkeys-lru")]
    Lru,
    /// Evicts the keys that expire soonest, and last those that never do.
    #[value(name = "volatile-ttl")]
    Ttl,
    /// Refuses it.
    #[value(name = "noeviction")]
    Refuse,
}

pub struct Cache {
    pub map: Map,
    /// The keys that expire, as they do.
    pub expired: broadcast::Sender<Event>,
    /// Under [`Policy::Refuse`]: what all entries may weigh.
    bound: Option<usize>,
    /// One moment, by the monotonic clock and since 1970. A step of the wall clock moves no
    /// deadline.
    start: (Instant, Duration),
}

fn weight(key: &[u8], stored: &Stored) -> usize {
    key.len() + stored.data.len() + OVERHEAD
}

/// The deadline, or [`PASSED`] if it has passed now.
pub fn given(deadline: i64, now: i64) -> i64 {
    if deadline > now {
        deadline
    } else {
        PASSED
    }
}

/// What the client is told where the map has refused a write.
fn error(refused: StoreError) -> Box<dyn Error + Send + Sync> {
    match refused {
        StoreError::Full | StoreError::TooHeavy | StoreError::OutOfMemory => FULL.into(),
        other => other.into(),
    }
}

impl Cache {
    /// A cache whose entries weigh at most so many bytes, if that is bounded. Expired keys that wait
    /// for subscribers have at most `output` bytes.
    pub fn new(bound: Option<usize>, policy: Policy, output: usize) -> Result<Self, BuildError> {
        let expired = broadcast::channel(EVENTS).0;
        let bytes_per_event = (output / EVENTS).max(1);
        let events = expired.clone();
        // Each end of a value comes here once. An expired one comes from the reaper thread.
        let listener = move |key: &Key, _: &Stored, cause: RemovalCause| {
            if cause == RemovalCause::Expired && events.receiver_count() > 0 {
                // The last subscriber may have gone.
                let _ = events.send(Some(key[..].into()));
                for _ in 0..(key.len() / bytes_per_event).min(EVENTS) {
                    let _ = events.send(None);
                }
            }
        };
        let mut builder = ExpiringMap::builder()
            .interval(Duration::from_millis(1))
            .removal_listener(listener)
            .name("cached-reaper");
        if let Some(bound) = bound {
            let (policy, most) = match policy {
                Policy::S3Fifo => (EvictionPolicy::S3Fifo, bound),
                Policy::Lru => (EvictionPolicy::LeastRecentlyUsed, bound),
                Policy::Ttl => (EvictionPolicy::SoonestDeadline, bound),
                // The map only weighs: `Self::step` refuses.
                Policy::Refuse => (EvictionPolicy::SoonestDeadline, usize::MAX >> 1),
            };
            builder = builder.eviction_policy(policy).max_weight(most, |key: &Key, stored| {
                weight(key, stored).try_into().unwrap_or(u32::MAX)
            });
        }
        let bound = bound.filter(|_| policy == Policy::Refuse);
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Cache { map: builder.build()?, expired, bound, start: (Instant::now(), since_1970) })
    }

    /// The time since 1970.
    fn since_1970(&self) -> Duration {
        self.start.1 + self.start.0.elapsed()
    }

    /// The time since 1970, in milliseconds.
    pub fn now(&self) -> i64 {
        self.since_1970().as_millis() as i64
    }

    /// Puts an entry in, or in the place of the key's. [`PASSED`] as a deadline removes that. One
    /// whose deadline passes before this expires like any other.
    pub fn insert(&self, key: &[u8], stored: Stored) -> Done {
        if self.bound.is_some() {
            return self.update(key, |_| Ok((Some(stored.clone()), ())));
        }
        // One look-up, where an update takes two.
        if let Compute::PutFor(stored, lifetime) = self.step(key, None, Some(stored))? {
            let put = self.map.insert_for(key.into(), stored, lifetime);
            put.map_err(|refused| error(refused.error))?;
        } else {
            self.map.remove(key);
        }
        Ok(())
    }

    /// Looks at a key's entry, and puts in what `change` makes of it, if anything, as one step: if
    /// another client changes the entry meanwhile, `change` looks again.
    pub fn update<R>(
        &self,
        key: &[u8],
        mut change: impl FnMut(Option<&Stored>) -> Done<(Option<Stored>, R)>,
    ) -> Done<R> {
        let mut answer = None;
        let done = self.map.compute(key.into(), |old| {
            let old = old.as_deref();
            let changed =
                change(old).and_then(|(new, result)| Ok((self.step(key, old, new)?, result)));
            let (step, result) = match changed {
                Ok((step, result)) => (step, Ok(result)),
                Err(error) => (Compute::Keep, Err(error)),
            };
            answer = Some(result);
            step
        });
        done.map_err(|refused| error(refused.error))?;
        answer.unwrap_or_else(|| Err(error(StoreError::Changed)))
    }

    /// What the map is to do with a key that has the old entry and is to have the new one.
    fn step(&self, key: &[u8], old: Option<&Stored>, new: Option<Stored>) -> Done<Compute<Stored>> {
        let Some(stored) = new else {
            return Ok(Compute::Keep);
        };
        if stored.deadline.is_some_and(|deadline| deadline <= PASSED) {
            return Ok(Compute::Remove);
        }
        let left = stored.deadline.map(|deadline| {
            let left = Duration::from_millis(deadline as u64).saturating_sub(self.since_1970());
            left.clamp(Duration::from_nanos(1), LONGEST)
        });
        let (freed, weight) = (old.map_or(0, |old| weight(key, old)), weight(key, &stored));
        let used = || self.map.weight().unwrap_or(0) as usize;
        // A snapshot has each entry as a request.
        if weight > MAX_REQUEST
            || self.bound.is_some_and(|bound| (used() + weight).saturating_sub(freed) > bound)
        {
            return Err(FULL.into());
        }
        Ok(Compute::PutFor(stored, left.map_or(Lifetime::Never, Lifetime::After).into()))
    }
}
