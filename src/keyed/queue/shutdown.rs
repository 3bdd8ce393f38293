//! Shutdown: all keys end, and the caller gets them.

use super::shared::Shared;
use super::{Expired, ExpiryQueue};
#[cfg(feature = "async")]
use crate::lifecycle::shut_soon;
use crate::lifecycle::{drain, shut, Reaper, Shut};
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::Hash;
use std::time::Duration;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Refuses new keys, and waits until none is left, for at most `limit` of real time: they
    /// expire, or are removed. Returns whether none is left. Blocks; in a listener or a handler it
    /// does not wait. Polls meanwhile where there is no reaper. A [`shutdown`](Self::shutdown) ends
    /// what is left.
    pub fn drain(&self, limit: Duration) -> bool {
        drain(&self.store().engine, self.owner.reaper(), &*self.shared, limit)
    }

    /// Ends all keys, stops the reaper, and waits for it. Returns the keys that there were, as they
    /// would have expired: each key whose update has returned that it was inserted, and that was
    /// neither removed nor delivered as expired, once. From then on updates of new keys are refused
    /// with [`StoreError::Closed`](crate::StoreError::Closed). A channel under
    /// [`WhenFull::Wait`](crate::WhenFull::Wait) is treated as under
    /// [`WhenFull::Spill`](crate::WhenFull::Spill) from here on.
    ///
    /// In a handler or a waker that any store calls, this waits for no thread. New keys are refused
    /// when it returns. The reaper, or the threads that drive the queue at that moment, end the
    /// keys soon after, and the next shutdown returns them.
    #[must_use = "what is not looked at is lost"]
    pub fn shutdown(&self) -> Vec<Expired<K>> {
        self.shared.kept.want();
        self.owner.shut();
        self.left()
    }

    /// As [`shutdown`](Self::shutdown), without blocking the thread: new keys are refused when this
    /// returns, the reaper does the rest, and the future is ready when the reaper has ended. A
    /// queue without a reaper has been shut down when this returns, and the future is ready.
    ///
    /// The shutdown goes on if the future is dropped; then the next call of this, or of
    /// [`shutdown`](Self::shutdown), returns the keys. Of two calls at once each may return some.
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(&self) -> impl Future<Output = Vec<Expired<K>>> + Send + '_ {
        self.shared.target.close();
        self.shared.kept.want();
        let ended = shut_soon(&self.store().engine, self.owner.reaper(), &*self.shared);
        async move {
            ended.await;
            self.left()
        }
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
    fn shut(&self, reaper: Option<&Reaper>) {
        self.target.close();
        shut(&self.store.engine, reaper, self);
    }
}
