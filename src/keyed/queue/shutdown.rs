//! Shutdown: all keys end, and the caller gets them.

use super::shared::Shared;
use super::{Expired, ExpiryQueue};
use crate::kit::lifecycle::{shut, Reaping, Shut};
use crate::kit::target::shutdowns;
use std::hash::Hash;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    shutdowns! {
        "keys", return Expired<K>, by shared.store,
        /// They are sorted by their [expiry](Expired::expiry).
    }
}

impl<K: 'static> ExpiryQueue<K> {
    /// What shutdowns have ended, and what has expired and was not polled.
    fn left(&self) -> Vec<Expired<K>> {
        let mut left = self.shared.target.left(&self.shared.kept);
        left.sort_unstable_by_key(Expired::expiry);
        left
    }
}

impl<K: 'static> Shut for Shared<K> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.target.close();
        shut(&self.store.engine, reaper, self);
    }
}
