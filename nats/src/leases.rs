//! Leases with fencing tokens.

mod holder;
mod owner;
#[cfg(test)]
mod sim;
mod wire;

use std::time::Duration;

/// The longest time of a lease.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 3600);

fn is_key(key: &[u8]) -> bool {
    (1..=crate::partitions::LONGEST_KEY).contains(&key.len())
}
