//! Shutdowns: the tracker refuses new roots, the live ones end, and the reaper stops.

use super::trees::Trees;
#[cfg(doc)]
use super::{AckError, Reason};
use super::{AckTracker, Outcome};
use crate::kit::lifecycle::{drain, shut, Reaping, Shut};
#[cfg(doc)]
use crate::WhenFull;
use std::time::Duration;
#[cfg(feature = "async")]
use {crate::core::engine::Frontend, crate::kit::lifecycle::drain_soon, std::future::Future};

/// What becomes of the roots that are still in flight when a tracker is shut down.
///
/// ```
/// use expiry::{edge, AckTracker, ShutdownMode};
/// use std::time::Duration;
///
/// let tracker = AckTracker::builder().build()?;
/// tracker.issue(edge(), 42)?;
/// assert_eq!(tracker.shutdown(ShutdownMode::Return)[0].owner, 42);
/// assert!(tracker.shutdown(ShutdownMode::Drain(Duration::from_secs(5))).is_empty()); // it was down before
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShutdownMode {
    /// New roots are refused. Those in flight get up to this long to be acked, to fail or to time
    /// out; the tracker then cancels those that are left. The limit is real time, whatever the
    /// tracker's clock. The call polls a tracker without a reaper meanwhile.
    Drain(Duration),
    /// Each gets the outcome [`Reason::Cancelled`], through the handler or the channel.
    Cancel,
    /// [`AckTracker::shutdown`] returns them, as [`Reason::Cancelled`]; neither handler nor channel
    /// gets them. Early arrivals are not among them.
    Return,
}

impl<T: Send + 'static> AckTracker<T> {
    /// Stops the tracker: refuses new roots, does with those in flight what `mode` says, stops the
    /// reaper and waits for it. Returns the roots in flight under [`ShutdownMode::Return`], and
    /// nothing otherwise.
    ///
    /// Every root whose `issue` or `init` has returned `Ok` has had its outcome when this returns,
    /// or is in the returned list. Operations of other threads that overlap end as if they had come
    /// just before or just after. Later ones are refused with [`AckError::Closed`] or
    /// [`AckError::NotLive`]. (A root whose `issue` or `init` overlaps may be cancelled at once,
    /// whatever the limit of [`ShutdownMode::Drain`].) A second shutdown finds nothing to do.
    ///
    /// Blocks. A channel under [`WhenFull::Wait`] is treated as under [`WhenFull::Spill`] from here
    /// on. Do not call it from a handler. There it only refuses new roots; if the reaper or a poll
    /// has called the handler, it also asks the reaper to stop and to cancel what is left. It does
    /// the same in a waker that was called there, and, if there is a channel, in the waker of a
    /// task that waits for room.
    pub fn shutdown(&self, mode: ShutdownMode) -> Vec<Outcome<T>> {
        let trees = &*self.trees;
        trees.target.close();
        if let ShutdownMode::Drain(limit) = mode {
            drain(&trees.engine, self.owner.reaper(), trees, limit);
        }
        if mode == ShutdownMode::Return {
            trees.returned.want();
        }
        self.owner.shut();
        match mode {
            ShutdownMode::Return => trees.returned.take(),
            _ => Vec::new(),
        }
    }
}

#[cfg(feature = "async")]
impl<T: Send + 'static> AckTracker<T> {
    /// Shuts down without blocking the thread; otherwise as [`shutdown`](Self::shutdown). New roots
    /// are refused when this returns, and the future ends when all is done. The reaper drains and
    /// cancels: handlers are called on its thread. With [`ShutdownMode::Drain`] the reaper wakes
    /// the future every millisecond, which looks whether anything is left.
    ///
    /// Another call waits for the same end. Of several limits the shortest counts, and another mode
    /// than `Drain` ends the draining. Roots under [`ShutdownMode::Return`] go to the first future
    /// that ends, or to a blocking `shutdown` with that mode. Of two futures that end at once, each
    /// may have some of them.
    ///
    /// If the future is dropped while it drains, roots are refused and drain, and another shutdown
    /// cancels what is left. In another mode the shutdown goes on.
    ///
    /// A tracker without a reaper must still be polled while it drains, by [`poll`](Self::poll).
    /// Each poll wakes the future, which polls, too, and checks the limit. This call, or the last
    /// poll of the future, cancels or returns what is left, and waits for other polls there.
    ///
    /// A handler or a waker may call it, as it may call [`shutdown`](Self::shutdown). But it must
    /// not block until the shutdown is done, which waits for it.
    ///
    /// ```
    /// use expiry::{edge, AckError, AckTracker, ShutdownMode};
    /// use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let tracker = std::sync::Arc::new(AckTracker::builder().build()?);
    /// let (id, edge) = (tracker.issue(7, 42)?, 7);
    /// let worker = tokio::spawn({
    ///     let tracker = tracker.clone();
    ///     async move { tracker.ack(id, edge) }
    /// });
    /// let drained = tracker.shutdown_async(ShutdownMode::Drain(Duration::from_secs(10)));
    /// assert_eq!(tracker.issue(1, 43), Err(AckError::Closed)); // from here on
    /// drained.await; // when the worker has acked
    /// assert!(worker.await?.is_ok() && tracker.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_async(
        &self,
        mode: ShutdownMode,
    ) -> impl Future<Output = Vec<Outcome<T>>> + Send + '_ {
        let (trees, engine) = (&*self.trees, &self.trees.engine);
        engine.admission.refuse();
        trees.target.close();
        if mode == ShutdownMode::Return {
            trees.returned.want();
        }
        let reaper = Reaping::here(self.owner.reaper());
        let end = move || match reaper {
            Some(reaper) => reaper.ask(engine),
            None => trees.close(),
        };
        let drained = match mode {
            ShutdownMode::Drain(limit) => Some(drain_soon(engine, reaper, trees, limit)),
            _ => {
                end();
                None
            }
        };
        async move {
            if let Some(drained) = drained {
                drained.await;
                end();
            }
            if let Some(reaper) = reaper {
                reaper.ended(engine).await;
            }
            trees.returned.take()
        }
    }
}

impl<T: 'static> Shut for Trees<T> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.target.close();
        shut(&self.engine, reaper, self);
    }
}
