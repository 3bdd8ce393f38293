//! Which tuple meets which fault. That is a function of the seed, the line, the attempt and the
//! word. So a run with the same seed hits the same tuples, whatever the threads do.

use crate::error::Error;
use crate::options::Wordcount;
use model::mix::mix;

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
}

/// All of them, in the order of their numbers.
pub const FAULTS: [Fault; 4] = [Fault::Drop, Fault::Fail, Fault::Duplicate, Fault::Late];

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
        let rates = [options.drop, options.fail, options.duplicate, options.late];
        let mut sum = 0.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // saturates, is not negative
        let bounds = rates.map(|rate| {
            sum += rate;
            (sum * 2f64.powi(64)) as u64
        });
        if sum > 1.0 + 1e-9 {
            let names = "--drop, --fail, --duplicate and --late";
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
