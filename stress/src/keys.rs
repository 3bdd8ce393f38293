//! Keys: integers, which a store keeps in its slots, and strings, which it keeps in nodes.

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
        format!("{number:020}")
    }

    fn number(&self) -> u64 {
        // A key that this program has not made gets a number that no thread has: no number has all
        // bits set.
        self.parse().unwrap_or(u64::MAX)
    }
}
