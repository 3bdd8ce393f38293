//! Keys: integers, which the queue keeps in its slots, and strings, which it keeps in nodes.

use std::fmt::Debug;
use std::hash::Hash;

/// A key that stands for a number.
pub trait Key: Debug + Clone + Hash + Eq + Send + Sync + 'static {
    /// The key of a number.
    fn of(number: u64) -> Self;
    /// Its number.
    fn number(&self) -> u64;
}

impl Key for u64 {
    fn of(number: u64) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

impl Key for String {
    fn of(number: u64) -> Self {
        format!("session-{number:012x}")
    }

    fn number(&self) -> u64 {
        // A key that this program has not made gets a number that no thread has: no number has all
        // bits set.
        let digits = self.strip_prefix("session-");
        digits.map_or(u64::MAX, |digits| u64::from_str_radix(digits, 16).unwrap_or(u64::MAX))
    }
}
