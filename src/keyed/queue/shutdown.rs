//! Shutdown: all keys end, and the caller gets them.

use super::shared::Target;
use super::{Expired, ExpiryQueue};
use crate::setup::Reaper;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::Hash;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Ends all keys, stops the reaper, and waits for it. Returns the keys that there were, as they
    /// would have expired: each key whose update has returned that it was inserted, and that was
    /// neither removed nor delivered as expired, once. From then on updates of new keys are refused
    /// with [`StoreError::Closed`](crate::StoreError::Closed). A channel under
    /// [`WhenFull::Wait`](crate::WhenFull::Wait) is treated as under
    /// [`WhenFull::Spill`](crate::WhenFull::Spill) from here on.
    ///
    /// In the handler it only stops the reaper, which then ends all keys without reporting them:
    /// look at [`dump`](Self::dump) first. In a waker that a poll has called, without a reaper, it
    /// only refuses new keys: the next shutdown returns the others.
    ///
    /// ```
    /// use expiry::ExpiryQueue;
    /// use std::time::Duration;
    ///
    /// let leases = ExpiryQueue::builder().build()?;
    /// leases.update(7, Duration::from_secs(10))?;
    /// for lease in leases.shutdown() {
    ///     println!("{}: until {:?} after the queue was built", lease.key(), lease.expiry());
    /// }
    /// assert!(leases.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "what is not looked at is lost"]
    pub fn shutdown(&self) -> Vec<Expired<K>> {
        let mut left = Vec::new();
        self.close_channel();
        let shared = &*self.shared;
        let closes = !shared.store.engine.is_driving();
        if closes {
            let store = &shared.store;
            store.close_with(|ended, lease| left.push(shared.left(ended, lease)));
        }
        shared.store.shut(self.reaper.as_ref());
        #[cfg(feature = "async")]
        if closes {
            // Of a future that was dropped, or has yet to end.
            left.append(&mut shared.kept.take());
        }
        self.finish_unless_driven();
        if let Target::Poll(lapsed) = &self.shared.target {
            left.extend(lapsed.take());
        }
        left.sort_unstable_by_key(Expired::expiry);
        left
    }

    /// As [`shutdown`](Self::shutdown), without blocking the thread: new keys are refused when this
    /// returns, the reaper does the rest, and the future is ready when the reaper has ended. A
    /// queue without a reaper has been shut down when this returns, and the future is ready.
    ///
    /// The shutdown goes on if the future is dropped; then the next call of this, or of
    /// [`shutdown`](Self::shutdown), returns the keys. Of two calls at once each may return some.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, StoreError, WhenFull};
    /// use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let builder = ExpiryQueue::<String>::builder();
    /// let (leases, expired) = builder.build_with_channel(1000, WhenFull::Spill)?;
    /// let mut expired = expired.into_stream();
    /// let ten = Duration::from_secs(10);
    /// leases.update("worker 1".to_string(), ten)?;
    /// let left = leases.shutdown_async();
    /// let refused = leases.update("worker 2".to_string(), ten); // from here on
    /// assert_eq!(refused, Err(StoreError::Closed));
    /// assert_eq!(*left.await[0], "worker 1");  // it had not expired
    /// assert!(expired.recv().await.is_none()); // and the stream has come to its end
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(&self) -> impl Future<Output = Vec<Expired<K>>> + Send + '_ {
        self.close_channel();
        self.shared.kept.want();
        let last = || self.shared.last();
        let ended = crate::setup::shut_soon(&self.store().engine, self.reaper.as_ref(), last);
        self.finish_unless_driven();
        async move {
            ended.await;
            let mut left = self.shared.kept.take();
            if let Target::Poll(lapsed) = &self.shared.target {
                left.extend(lapsed.take());
            }
            left.sort_unstable_by_key(Expired::expiry);
            left
        }
    }
}

impl<K: 'static> ExpiryQueue<K> {
    /// Ends the channel, as the store has been closed. If the reaper closes the store, or this
    /// thread is in a round and has only asked for the shutdown, it does nothing.
    fn finish_unless_driven(&self) {
        let reaper = Reaper::here(self.reaper.as_ref());
        if reaper.is_none() && !self.shared.store.engine.is_driving() {
            self.shared.finish_channel();
        }
    }

    /// Lets the threads that wait for room in the channel go on.
    fn close_channel(&self) {
        if let Target::Channel(sender) = &self.shared.target {
            sender.close();
        }
    }
}

impl<K: 'static> Drop for ExpiryQueue<K> {
    fn drop(&mut self) {
        self.close_channel();
        self.shared.store.shut(self.reaper.as_ref());
    }
}
