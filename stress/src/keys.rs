//! Keys: integers, which a store keeps in its slots, and strings, which it keeps in nodes.

use std::fmt::Debug;
use std::hash::Hash;

/// Bytes of a string where the load does not say.
const BYTES: usize = 20;

/// A key that stands for a number.
pub trait Key: Debug + Clone + Hash + Eq + Send + Sync + 'static {
    /// The key of a number, of so many bytes if it can be.
    fn of_length(number: u64, bytes: usize) -> Self;

    /// The key of a number.
    fn of(number: u64) -> Self {
        Self::of_length(number, BYTES)
    }

    /// Its number.
    fn number(&self) -> u64;
}

impl Key for u64 {
    fn of_length(number: u64, _: usize) -> Self {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

impl Key for String {
    fn of_length(number: u64, bytes: usize) -> Self {
        format!("{number:0bytes$}")
    }

    fn number(&self) -> u64 {
        // A key that this program has not made gets a number that no thread has: no number has all
        // bits set.
        self.parse().unwrap_or(u64::MAX)
    }
}
