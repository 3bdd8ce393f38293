//! Which tuple meets which fault. That is a function of the seed, the line, the attempt and the
//! word. So a run with the same seed hits the same tuples, whatever the threads do.

use crate::error::Error;
use crate::mix::mix;
use crate::options::Wordcount;

/// What happens to a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is lost before it is processed.
    Drop,
    /// It fails instead of being processed.
    Fail,
    /// It is processed twice and acked once. (A bolt cannot ack an edge twice;
    /// `stress ack --duplicate-rate` does.)
    Duplicate,
    /// It is processed, but its ack comes after the line's timeout has passed.
    Late,
    /// Its worker stalls, then goes on.
    Stall,
}

/// All of them, in the order of their numbers.
pub const FAULTS: [Fault; 5] =
    [Fault::Drop, Fault::Fail, Fault::Duplicate, Fault::Late, Fault::Stall];

/// The tuple of the line itself, in place of a word's number.
pub const LINE: u32 = u32::MAX;

/// The faults of a run.
#[derive(Debug, Clone)]
pub struct Faults {
    seed: u64,
    /// How many of 2^64 draws are below each fault's bound in the first attempt.
    bounds: [u64; FAULTS.len()],
}

impl Faults {
    /// The faults that the options ask for.
    pub fn new(options: &Wordcount) -> Result<Self, Error> {
        let rates = [options.drop, options.fail, options.duplicate, options.late, options.stall];
        let mut sum = 0.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // saturates, is not negative
        let bounds = rates.map(|rate| {
            sum += rate;
            (sum * 2f64.powi(64)) as u64
        });
        // Five rates of 0.2 may add up to a little more than 1.
        if sum > 1.0 + 1e-9 {
            let names = "--drop, --fail, --duplicate, --late and --stall";
            return Err(Error::Shares { names, sum });
        }
        Ok(Faults { seed: options.seed, bounds })
    }

    /// Whether there are none.
    pub fn off(&self) -> bool {
        self.bounds == [0; FAULTS.len()]
    }

    /// What happens to this tuple. The rates halve with each attempt.
    #[inline]
    pub fn draw(&self, line: u64, attempt: u32, word: u32) -> Option<Fault> {
        if self.off() || attempt >= 64 {
            return None;
        }
        let draw = mix(mix(self.seed ^ mix(line)) ^ (u64::from(attempt) << 32 | u64::from(word)));
        let at = self.bounds.iter().position(|bound| draw < bound >> attempt)?;
        Some(FAULTS[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wordcount::tests::options;

    fn faults(args: &str) -> Result<Faults, Error> {
        Faults::new(&options(args))
    }

    #[test]
    fn each_fault_has_its_rate_and_halves_with_each_attempt() {
        let rates = [0.1, 0.2, 0.05, 0.05, 0.1];
        let all = "--drop 0.1 --fail 0.2 --duplicate 0.05 --late 0.05 --stall 0.1";
        let all = faults(all).unwrap();
        let draws = 100_000;
        let hits = |attempt, fault| {
            (0..draws).filter(|&line| all.draw(line, attempt, 3) == Some(fault)).count()
        };
        for attempt in 0..3 {
            for (fault, rate) in FAULTS.into_iter().zip(rates) {
                let hits = hits(attempt, fault) as f64;
                let expected = rate * draws as f64 / f64::from(1 << attempt);
                assert!((hits - expected).abs() < 0.1 * expected, "{fault:?} {attempt} {hits}");
            }
        }
        assert!((0..draws).all(|line| all.draw(line, 64, 3).is_none()));
        let none = faults("").unwrap();
        assert!(none.off() && (0..1000).all(|line| none.draw(line, 0, 0).is_none()));
    }

    #[test]
    fn draws_depend_on_the_seed_and_nothing_else() {
        let draw = |seed: u64| {
            let faults = faults(&format!("--drop 0.5 --seed {seed}")).unwrap();
            (0..64).map(|line| faults.draw(line, 0, LINE)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn rates_above_one_are_refused() {
        assert!(faults("--drop 0.6 --fail 0.6").is_err());
        let all = "--drop 0.2 --fail 0.2 --duplicate 0.2 --late 0.2 --stall 0.2";
        assert!(faults(all).is_ok());
    }
}
