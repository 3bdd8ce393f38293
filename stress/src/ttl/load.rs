//! A row's load: requests drawn at random, and what each does with a cache.

use super::real::Shopper;
use crate::counts::counts;
use crate::error::Error;
use crate::keys::Key;
use rand::distr::weighted::WeightedIndex;
use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand_distr::Zipf;

#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Get,
    Gets,
    Set,
    Add,
    Cas,
    Prepend,
    Incr,
    Delete,
}

use Operation::*;

/// What a load is made of.
#[derive(Debug, Clone)]
pub struct Row {
    pub cluster: u32,
    pub key_bytes: usize,
    pub value_bytes: usize,
    /// Requests per key.
    pub frequency: f64,
    /// Times to live in seconds, and their shares.
    pub ttls: &'static [(u64, f64)],
    /// Operations, and their shares.
    pub operations: &'static [(Operation, f64)],
    /// The exponent of the keys' Zipf distribution.
    pub zipf: f64,
}

/// Statistics of four of Twitter's caches in March 2020: a selection of those published with the
/// traces at <https://github.com/twitter/cache-trace>, licensed under CC BY 4.0. Juncheng Yang, Yao
/// Yue, K. V. Rashmi, "A large scale analysis of hundreds of in-memory cache clusters at Twitter",
/// OSDI 2020.
const ROWS: [Row; 4] = [
    Row {
        cluster: 23,
        key_bytes: 35,
        value_bytes: 224,
        frequency: 3.9,
        ttls: &[(120, 0.93), (2_700, 0.05), (5, 0.03)],
        operations: &[(Set, 0.31), (Get, 0.36), (Incr, 0.30), (Delete, 0.02)],
        zipf: 0.274,
    },
    Row {
        cluster: 9,
        key_bytes: 32,
        value_bytes: 39,
        frequency: 463.9,
        ttls: &[(7_200, 0.79), (5_040, 0.06), (3_960, 0.06), (6_840, 0.06)],
        operations: &[(Get, 0.99)],
        zipf: 1.6796,
    },
    Row {
        cluster: 11,
        key_bytes: 24,
        value_bytes: 170,
        frequency: 45.7,
        ttls: &[(432_000, 0.97), (20, 0.03)],
        operations: &[(Get, 0.96), (Add, 0.02), (Gets, 0.01), (Cas, 0.01)],
        zipf: 1.4891,
    },
    Row {
        cluster: 53,
        key_bytes: 36,
        value_bytes: 9_213,
        frequency: 27.6,
        ttls: &[(2_592_000, 0.66), (1_814_400, 0.34)],
        operations: &[(Get, 0.89), (Set, 0.03), (Prepend, 0.09)],
        zipf: 1.2061,
    },
];

/// The row of this cluster.
pub fn row(cluster: u32) -> Result<&'static Row, Error> {
    let found = ROWS.iter().find(|row| row.cluster == cluster);
    found.ok_or_else(|| Error::Option {
        option: "--row",
        why: format!("is none of {:?}", ROWS.each_ref().map(|row| row.cluster)),
    })
}

#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub operation: Operation,
    /// The key, by its rank: 0 is the most frequent.
    pub key: usize,
    /// If it inserts: for how long, in nanoseconds.
    pub ttl: u64,
}

#[derive(Debug, Clone)]
pub struct Load {
    operations: Vec<Operation>,
    operation: WeightedIndex<f64>,
    ttls: Vec<u64>,
    ttl: WeightedIndex<f64>,
    rank: Zipf<f64>,
}

impl Load {
    /// A row's requests to so many keys, with times to live divided by `squeeze`.
    pub fn new(row: &Row, keys: usize, squeeze: f64) -> Self {
        let weights = |shares: Vec<f64>| {
            // The shares are above 0. Keys and exponent are in range, too.
            WeightedIndex::new(shares).expect("shares above zero")
        };
        #[allow(clippy::cast_precision_loss)]
        let rank = Zipf::new(keys as f64, row.zipf);
        Load {
            operations: row.operations.iter().map(|(operation, _)| *operation).collect(),
            operation: weights(row.operations.iter().map(|(_, share)| *share).collect()),
            ttls: row.ttls.iter().map(|(seconds, _)| squeezed(*seconds, squeeze)).collect(),
            ttl: weights(row.ttls.iter().map(|(_, share)| *share).collect()),
            rank: rank.expect("keys, and an exponent from 0"),
        }
    }

    // Ranks are whole numbers from 1.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn draw(&self, rng: &mut SmallRng) -> Request {
        Request {
            operation: self.operations[self.operation.sample(rng)],
            key: self.rank.sample(rng) as usize - 1,
            ttl: self.ttls[self.ttl.sample(rng)],
        }
    }
}

/// Seconds of a row, as nanoseconds of the run.
// The conversion saturates.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn squeezed(seconds: u64, squeeze: f64) -> u64 {
    ((seconds as f64 * 1e9 / squeeze) as u64).max(1)
}

/// A value that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub number: u64,
    pub length: usize,
    /// What is left of its time to live, in nanoseconds; 0 if nothing is.
    pub rest: u64,
}

/// A client that sends requests: its counts, and the last value that it may `cas`.
#[derive(Debug)]
pub struct Client {
    value_bytes: usize,
    last_gets: Option<(usize, u64)>,
    pub done: Done,
}

counts! {
    /// Counts of what requests did.
    Done {
        requests,
        hits,
        misses,
        /// Requests that inserted, and those that would have if the key had been as they wanted it.
        stored,
        not_stored,
        deleted,
        /// Entries that had changed since they were looked at.
        changed,
    }
}

impl Client {
    pub fn new(row: &Row) -> Self {
        Client { value_bytes: row.value_bytes, last_gets: None, done: Done::default() }
    }

    pub fn request(&mut self, cache: &mut Shopper<'_, impl Key>, request: Request) {
        let key = request.key;
        let fresh = (self.value_bytes, request.ttl);
        self.done.requests += 1;
        match request.operation {
            Get => {
                self.get(cache, request);
            }
            Gets => {
                let seen = self.get(cache, request);
                self.last_gets = seen.map(|seen| (key, seen.number));
            }
            Set => {
                cache.insert(key, fresh.0, fresh.1);
                self.done.stored += 1;
            }
            Add => {
                self.update(cache, key, |seen| seen.is_none().then_some(fresh));
            }
            Cas => {
                let (key, expected) = self.last_gets.take().unwrap_or((key, u64::MAX));
                let same = |seen: Option<Seen>| seen.filter(|seen| seen.number == expected);
                self.update(cache, key, |seen| same(seen).map(|_| fresh));
            }
            Prepend => {
                self.change(cache, key, |length| length + length.div_ceil(8));
            }
            Incr => self.change(cache, key, |length| length),
            Delete => self.done.deleted += u64::from(cache.remove(key)),
        }
    }

    fn get(&mut self, cache: &mut Shopper<'_, impl Key>, request: Request) -> Option<Seen> {
        let seen = cache.get(request.key);
        match seen {
            Some(_) => self.done.hits += 1,
            None => {
                self.done.misses += 1;
                cache.insert(request.key, self.value_bytes, request.ttl);
            }
        }
        seen
    }

    fn update(
        &mut self,
        cache: &mut Shopper<'_, impl Key>,
        key: usize,
        wanted: impl FnMut(Option<Seen>) -> Option<(usize, u64)>,
    ) {
        if cache.update(key, wanted) {
            self.done.stored += 1;
        } else {
            self.done.not_stored += 1;
        }
    }

    /// A new value in place of what is found, for the rest of its time.
    fn change(
        &mut self,
        cache: &mut Shopper<'_, impl Key>,
        key: usize,
        length: impl Fn(usize) -> usize,
    ) {
        let usual = self.value_bytes;
        // Values that only ever grow are cut back to what the row says.
        let cut = |length| if length > 4 * usual { usual } else { length };
        self.update(cache, key, |seen| {
            let seen = seen.filter(|seen| seen.rest > 0)?;
            Some((cut(length(seen.length)), seen.rest))
        });
    }
}
