//! Polls: how the user's threads drive a tracker without a reaper.

use super::AckTracker;
use crate::kit::polled::Polled;

impl<T: Send + 'static> AckTracker<T> {
    /// Ends what is due, with at most about `budget` steps of work. For trackers built without a
    /// reaper, and harmless on others. Never waits: any number of threads may poll, and each leaves
    /// out the shards that another one drives. A poll in a handler finds nothing.
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

    /// For models: the number of chunks on the first shard's ring, and its chunks that have been
    /// used since their memory went back.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn chunks(&self) -> (u32, Vec<u32>) {
        self.trees.engine.chunks()
    }
}
