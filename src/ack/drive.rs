//! Polls: how threads of the user's drive a tracker that has no reaper.

use super::AckTracker;
use crate::kit::polled::Polled;

impl<T: Send + 'static> AckTracker<T> {
    /// Ends what is due, with at most about `budget` steps of work. It is for trackers built
    /// without a reaper, and harmless on others. Never waits: any number of threads may poll, and
    /// each leaves out the shards that another one is driving. A poll in a handler finds nothing.
    pub fn poll(&self, budget: usize) -> Polled {
        self.trees.engine.poll_once(budget, &*self.trees)
    }

    /// For models: the clock has come to `tick`.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn timer_fires(&self, tick: u64) {
        self.trees.engine.wakeup.timer_fires(tick);
    }

    /// For models: the hash of a chosen root's key, as the index has it.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn hash_of(&self, key: u64) -> u32 {
        self.trees.engine.keys.hash(key) | 1 << 31
    }

    /// For models: how many chunks are on the first shard's ring, and which of them have their
    /// memory.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn chunks(&self) -> (u32, Vec<u32>) {
        self.trees.engine.chunks()
    }
}
