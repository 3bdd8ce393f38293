//! A thread of a round: updates, touches and removes keys, and notes what came of it.

use super::history::{Did, Event};
use super::keys::Key;
use crate::checks::Checks;
use crate::latency::nanos;
use crate::timeline::Timeline;
use expiry::{ExpiryQueue, Handle, Updated};
use rand::rngs::SmallRng;
use rand::Rng;
use std::time::Duration;

/// Keys of the window in which threads meet: half of the operations are on it, and it moves through all keys in a round.
const WINDOW: usize = 16;
/// After how many operations a thread lets simulated time pass.
const STEP: usize = 16;
/// How many operations of all threads a key has in a round, on average.
pub const EACH: usize = 8;
/// The most operations of all threads on a key. Each may be an insert that expires: half of what a history may have.
const MOST: usize = super::history::MOST / 2 - 1;

/// What all threads of a round share.
pub struct Shared<'a, K: Key> {
    /// The queue.
    pub queue: &'a ExpiryQueue<K>,
    /// Its time.
    pub time: &'a Timeline,
    /// Who is told of refusals.
    pub checks: &'a Checks,
    /// Keys of a round.
    pub keys: usize,
    /// Threads of a round.
    pub threads: usize,
    /// The interval.
    pub interval: Duration,
    /// The longest timeout, in intervals.
    pub longest: u32,
    /// Share of operations that remove.
    pub removes: f64,
}

/// A thread's memory: its luck, and the handles that it was given in all rounds.
pub struct Worker {
    rng: SmallRng,
    log: Vec<(u32, Event)>,
    handles: Vec<Option<Handle>>,
    times: Vec<u8>,
}

impl Worker {
    /// A thread for rounds of so many keys.
    pub fn new(rng: SmallRng, keys: usize) -> Self {
        Worker { rng, log: Vec::new(), handles: vec![None; keys], times: Vec::new() }
    }

    /// Its part of a round: events, each with its key.
    pub fn round<K: Key>(&mut self, shared: &Shared<'_, K>) -> Vec<(u32, Event)> {
        self.times.clear();
        self.times.resize(shared.keys, 0);
        let most = (MOST / shared.threads).min(usize::from(u8::MAX)) as u8;
        let operations = shared.keys * EACH / shared.threads;
        // In a round, simulated time passes for some four of the longest timeouts.
        let step = shared.interval * shared.longest * 4 * STEP as u32;
        let step = step / u32::try_from(shared.keys * EACH).unwrap_or(u32::MAX);
        for number in 0..operations.max(1) {
            let key = if self.rng.random() {
                let first = number * shared.keys / operations.max(1);
                (first + self.rng.random_range(0..WINDOW)) % shared.keys
            } else {
                self.rng.random_range(0..shared.keys)
            };
            if self.times[key] < most {
                self.times[key] += 1;
                self.operation(shared, key);
            }
            if number % STEP == STEP - 1 {
                shared.time.advance(step);
            }
        }
        std::mem::take(&mut self.log)
    }

    fn operation<K: Key>(&mut self, shared: &Shared<'_, K>, at: usize) {
        let key = K::of(at as u64);
        let longest = shared.interval.as_nanos() as u64 * u64::from(shared.longest);
        let timeout = self.rng.random_range(1..=longest);
        let after = Duration::from_nanos(timeout);
        let kind: f64 = self.rng.random();
        let kind = (kind - shared.removes) / (1.0 - shared.removes);
        let handle = self.handles[at];
        let before = shared.time.before();
        let did = match handle {
            _ if kind < 0.0 => Ok(match shared.queue.remove(&key) {
                Some(expiry) => Did::Removed { expiry: nanos(expiry) },
                None => Did::Gone { by: None },
            }),
            Some(handle) if kind < 0.3 => {
                touched(shared.queue.touch_by(handle, after), Some(handle))
            }
            _ if kind < 0.6 => touched(shared.queue.touch(&key, after), None),
            _ => shared.queue.update(key, after).map(updated),
        };
        let after = shared.time.after();
        match did {
            Ok(did) => {
                if let Did::Inserted { handle, .. } = did {
                    self.handles[at] = Some(handle);
                }
                let event = Event::between(did, before, after, timeout);
                self.log.push((at as u32, event));
            }
            Err(error) => shared
                .checks
                .violated("no_surprises", || format!("an operation was refused: {error}")),
        }
    }
}

fn updated(updated: Updated) -> Did {
    match updated {
        Updated::Inserted { expiry, handle } => Did::Inserted { expiry: nanos(expiry), handle },
        Updated::Renewed { expiry } => Did::Renewed { expiry: Some(nanos(expiry)) },
        Updated::Unchanged => Did::Renewed { expiry: None },
    }
}

fn touched(
    done: Result<bool, expiry::StoreError>,
    by: Option<Handle>,
) -> Result<Did, expiry::StoreError> {
    done.map(|renewed| if renewed { Did::Touched { by } } else { Did::Gone { by } })
}
