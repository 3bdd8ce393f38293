//! A row's load: requests drawn at random, and what each does with a cache.

use super::mix::{Operation, Row};
use super::real::Shopper;
use crate::counts::counts;
use crate::keys::Key;
use rand::distr::weighted::WeightedIndex;
use rand::distr::Distribution;
use rand::rngs::SmallRng;
use rand_distr::Zipf;

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
            // The table's shares are above 0, and there is at least one. Keys and exponent are in
            // range, too.
            WeightedIndex::new(shares).expect("shares above zero")
        };
        #[allow(clippy::cast_precision_loss)]
        let rank = Zipf::new(keys as f64, row.zipf.unwrap_or(0.0));
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
    fill: bool,
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
        /// Misses that inserted.
        fills,
        /// Requests that inserted, and those that would have if the key had been as they wanted it.
        stored,
        not_stored,
        deleted,
    }
}

impl Client {
    pub fn new(row: &Row, fill: bool) -> Self {
        Client { fill, value_bytes: row.value_bytes, last_gets: None, done: Done::default() }
    }

    pub fn request(&mut self, cache: &mut Shopper<'_, impl Key>, request: Request) {
        let key = request.key;
        let fresh = (self.value_bytes, request.ttl);
        self.done.requests += 1;
        match request.operation {
            Operation::Get => {
                self.get(cache, request);
            }
            Operation::Gets => {
                let seen = self.get(cache, request);
                self.last_gets = seen.map(|seen| (key, seen.number));
            }
            Operation::Set => {
                cache.insert(key, fresh.0, fresh.1);
                self.done.stored += 1;
            }
            Operation::Add => {
                self.update(cache, key, |seen| seen.is_none().then_some(fresh));
            }
            Operation::Replace => self.update(cache, key, |seen| seen.map(|_| fresh)),
            Operation::Cas => {
                let (key, expected) = self.last_gets.take().unwrap_or((key, u64::MAX));
                let same = |seen: Option<Seen>| seen.filter(|seen| seen.number == expected);
                self.update(cache, key, |seen| same(seen).map(|_| fresh));
            }
            Operation::Append | Operation::Prepend => {
                self.change(cache, key, |length| length + length.div_ceil(8));
            }
            Operation::Incr | Operation::Decr => self.change(cache, key, |length| length),
            Operation::Delete => self.done.deleted += u64::from(cache.remove(key)),
        }
    }

    fn get(&mut self, cache: &mut Shopper<'_, impl Key>, request: Request) -> Option<Seen> {
        let seen = cache.get(request.key);
        match seen {
            Some(_) => self.done.hits += 1,
            None => {
                self.done.misses += 1;
                if self.fill {
                    self.done.fills += 1;
                    cache.insert(request.key, self.value_bytes, request.ttl);
                }
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

#[cfg(test)]
mod tests {
    use super::super::mix;
    use super::super::real::tests::with_shopper;
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn requests_have_the_shares_of_the_row() {
        let mut row = mix::read(None, Some("23")).unwrap();
        row.zipf = Some(1.0);
        let load = Load::new(&row, 1000, 2.0);
        let mut rng = SmallRng::seed_from_u64(1);
        let requests: Vec<_> = (0..200_000).map(|_| load.draw(&mut rng)).collect();
        let share = |of: &dyn Fn(&Request) -> bool| {
            requests.iter().filter(|request| of(request)).count() as f64 / 2e5
        };
        for (operation, expected) in &row.operations {
            let is = share(&|request| request.operation == *operation);
            assert!((is - expected).abs() < 0.01, "{operation:?}: {is}");
        }
        for (seconds, expected) in &row.ttls {
            let is = share(&|request| request.ttl == seconds * 500_000_000);
            assert!((is - expected / 1.01).abs() < 0.01, "{seconds}: {is}");
        }
        // Twice as often as the second, and so on: the first of 1000 has 1 / 7.49.
        assert!((share(&|request| request.key == 0) - 0.1336).abs() < 0.01);
        assert!(requests.iter().all(|request| request.key < 1000));
    }

    #[test]
    fn an_unknown_exponent_and_zero_are_uniform() {
        for row in ["43", "31"] {
            let load = Load::new(&mix::read(None, Some(row)).unwrap(), 4, 1.0);
            let mut rng = SmallRng::seed_from_u64(1);
            let mut counts = [0u32; 4];
            (0..40_000).for_each(|_| counts[load.draw(&mut rng).key] += 1);
            assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        }
    }

    /// Does this with a client, and a cache on a clock that stands still.
    fn with_cache<T>(
        fill: bool,
        act: impl FnOnce(&Row, &mut Client, &mut Shopper<'_, u64>) -> T,
    ) -> T {
        let row = mix::read(None, Some("23")).unwrap();
        with_shopper(|cache, _| act(&row, &mut Client::new(&row, fill), cache))
    }

    #[test]
    fn each_operation_does_what_the_help_says() {
        with_cache(false, |row, client, cache| {
            let bytes = row.value_bytes;
            let mut on = |operation, key, ttl| {
                client.request(cache, Request { operation, key, ttl });
                cache.get(key).map(|seen| (seen.number, seen.length, seen.rest))
            };
            use Operation::*;
            for nothing in [Get, Gets, Replace, Cas, Append, Prepend, Incr, Decr, Delete] {
                assert_eq!(on(nothing, 1, 10), None, "{nothing:?}");
            }
            assert_eq!(on(Add, 1, 10), Some((0, bytes, 10)));
            assert_eq!(on(Add, 1, 20), Some((0, bytes, 10)));
            assert_eq!(on(Set, 1, 30), Some((1, bytes, 30)));
            assert_eq!(on(Replace, 1, 40), Some((2, bytes, 40)));
            assert_eq!(on(Cas, 1, 50), Some((2, bytes, 40)), "without a gets");
            assert_eq!(on(Gets, 1, 50), Some((2, bytes, 40)));
            assert_eq!(on(Cas, 1, 50), Some((3, bytes, 50)));
            assert_eq!(on(Gets, 1, 60), Some((3, bytes, 50)));
            assert_eq!(on(Incr, 1, 60), Some((4, bytes, 50)), "for the rest of its time");
            assert_eq!(on(Cas, 1, 70), Some((4, bytes, 50)), "it has changed");
            assert_eq!(on(Prepend, 1, 70), Some((5, bytes + bytes.div_ceil(8), 50)));
            assert_eq!(on(Delete, 1, 0), None);
            assert_eq!((client.done.deleted, client.done.hits, client.done.misses), (1, 2, 2));
        });
    }

    #[test]
    fn a_miss_fills_and_values_do_not_grow_for_ever() {
        with_cache(true, |row, client, cache| {
            let mut on = |operation| {
                client.request(cache, Request { operation, key: 0, ttl: 1 << 40 });
                cache.get(0).map_or(0, |seen| seen.length)
            };
            assert_eq!(on(Operation::Get), row.value_bytes);
            assert!((0..100).all(|_| on(Operation::Append) <= 4 * row.value_bytes));
            assert_eq!(client.done.fills, 1);
        });
    }
}
