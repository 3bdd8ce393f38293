//! [`Sleep`]: one deadline, waited for.

use super::error::TimerError;
use super::waiters::{Waiter, Waiters};
use super::Timeouts;
use crate::core::lease::Lease;
use crate::time::nanos;
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How far a sleep has come.
#[derive(Debug, Clone, Copy)]
enum State {
    /// It takes this many nanoseconds, from the first poll on.
    Fresh { after: u64 },
    /// It expires at this tick, and is not registered: no task will be woken.
    Set { due: u64 },
    /// It expires at this tick, and is registered until then, or until the furthest tick that a
    /// lease can express. `lease` and `id` are a [`Waiter`], side by side for size.
    Waiting { due: u64, lease: Lease, id: u32 },
    /// It is registered, and ready at the next poll: its time was reset to zero, which wakes the
    /// task.
    Past { lease: Lease, id: u32 },
    /// It has expired.
    Over,
}

/// A future that is ready when its time is up. [`Timeouts::sleep`] makes one that borrows the
/// timeouts, [`new`](Self::new) one that owns its `T`, an `Arc<Timeouts>` say.
///
/// It is `Unpin`, and 32 bytes with a reference or an `Arc`. Dropping it cancels it at once. Polled
/// again after it was ready, it is ready.
///
/// ```
/// use expiry::{ManualClock, Timeouts};
/// use std::time::Duration;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
/// let timeouts = Timeouts::builder().clock(clock.clone()).build_manual()?;
/// let mut nap = timeouts.sleep(second);
/// let pass = async {
///     clock.advance(second);
///     timeouts.poll(1000);
/// };
/// tokio::join!(&mut nap, pass).0?;
/// nap.await?; // it is ready, and stays so
/// tokio::select! {
///     biased;
///     _ = timeouts.sleep(second) => unreachable!(), // is dropped, as the other is ready
///     () = async {} => {}
/// }
/// assert!(timeouts.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`TimerError`]: it was refused, or shut down. After that it may be polled again, which tries
/// again.
#[must_use = "futures do nothing unless they are polled"]
pub struct Sleep<T: Deref<Target = Timeouts>> {
    timeouts: T,
    state: State,
}

impl<T: Deref<Target = Timeouts>> Sleep<T> {
    /// Is ready so long after this call, by these timeouts: as [`Timeouts::sleep`], for a caller
    /// that hands over an `Arc` of them. The last sleep that owns one keeps them alive. `T` derefs
    /// to the same timeouts each time; otherwise a call may panic, or end others' sleeps.
    pub fn new(timeouts: T, after: Duration) -> Self {
        let state = match nanos(after) {
            0 => State::Fresh { after: 0 },
            after => State::Set { due: timeouts.waiters.due(after) },
        };
        Sleep { timeouts, state }
    }

    /// Is ready at an instant: as [`Timeouts::sleep_until`]. Otherwise as [`new`](Self::new).
    pub fn until(timeouts: T, at: Instant) -> Self {
        Self::new(timeouts, at.saturating_duration_since(Instant::now()))
    }

    /// Makes a sleep that counts from its first poll on.
    #[inline(always)]
    pub(super) fn fresh(timeouts: T, after: Duration) -> Self {
        Sleep { timeouts, state: State::Fresh { after: nanos(after) } }
    }

    /// The timeouts.
    pub const fn timeouts(&self) -> &T {
        &self.timeouts
    }

    #[inline(always)]
    pub(super) fn waiters(&self) -> &Waiters {
        &self.timeouts.waiters
    }

    /// Sets it to this tick, unregistered.
    pub(super) fn set(&mut self, due: u64) {
        let before = std::mem::replace(&mut self.state, State::Set { due });
        self.end(before);
    }

    /// Starts over, be it ready or not: it is ready `after` from now. One compare-and-swap where it
    /// is registered; only a nearer deadline notifies the driver. A task that waits for it goes on
    /// waiting; if it was ready, it has to be polled again.
    pub fn reset(&mut self, after: Duration) {
        let after = nanos(after);
        let due = self.waiters().due(after);
        if let State::Waiting { lease, id, .. } | State::Past { lease, id, .. } = self.state {
            if let Some(Waiter { id, lease }) = self.waiters().reset(Waiter { id, lease }, due) {
                self.state = match after {
                    0 => State::Past { lease, id },
                    _ => State::Waiting { due, lease, id },
                };
                return;
            }
        }
        self.state = match after {
            0 => State::Fresh { after: 0 },
            _ => State::Set { due },
        };
    }

    /// Whether it has been ready.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Ends the waiting at once, if it waits.
    #[inline(always)]
    pub(super) fn cancel(&mut self) {
        if let State::Waiting { .. } | State::Past { .. } = self.state {
            let before = std::mem::replace(&mut self.state, State::Over);
            self.end(before);
        }
    }

    /// Ends the entry of a state that this has left: the drop of its waker may panic.
    #[inline(always)]
    fn end(&self, before: State) {
        if let State::Waiting { lease, id, .. } | State::Past { lease, id, .. } = before {
            self.waiters().cancel(Waiter { id, lease });
        }
    }

    /// [`Future::poll`] by a waker.
    #[inline(always)]
    pub(super) fn poll_over(&mut self, waker: &Waker) -> Poll<Result<(), TimerError>> {
        match self.state {
            // The common case of a timeout: registered, and never looked at again.
            State::Fresh { after } if after != 0 => {
                match self.waiters().register(after, waker) {
                    Ok((due, Waiter { id, lease })) => {
                        self.state = State::Waiting { due, lease, id };
                        Poll::Pending
                    }
                    Err(why) => {
                        // Its time has begun all the same.
                        let due = self.waiters().due(after);
                        self.state = State::Set { due };
                        Poll::Ready(Err(why))
                    }
                }
            }
            _ => self.poll_on(waker),
        }
    }

    #[inline(never)]
    fn poll_on(&mut self, waker: &Waker) -> Poll<Result<(), TimerError>> {
        loop {
            match self.state {
                State::Fresh { after: 0 } => self.state = State::Over,
                State::Fresh { after } => {
                    let due = self.waiters().due(after);
                    self.state = State::Set { due };
                }
                State::Set { due } => match self.waiters().register_until(due, waker) {
                    None => self.state = State::Over,
                    Some(registered) => {
                        let Waiter { id, lease } = registered?;
                        self.state = State::Waiting { due, lease, id };
                        return Poll::Pending;
                    }
                },
                State::Waiting { due, lease, id } => {
                    match self.waiters().waits(Waiter { id, lease }, due, waker) {
                        Ok(Some((Waiter { id, lease }, _old))) => {
                            self.state = State::Waiting { due, lease, id };
                            return Poll::Pending;
                        }
                        Ok(None) if self.waiters().is_over(due) => self.state = State::Over,
                        // Not over yet, because it is further off than a lease can express; or shut
                        // down, which the registration will say.
                        Ok(None) => self.state = State::Set { due },
                        Err(why) => {
                            self.state = State::Set { due };
                            return Poll::Ready(Err(why));
                        }
                    }
                }
                State::Past { .. } => self.cancel(),
                State::Over => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// `T` is never pinned.
impl<T: Deref<Target = Timeouts>> Unpin for Sleep<T> {}

impl<T: Deref<Target = Timeouts>> Future for Sleep<T> {
    type Output = Result<(), TimerError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_on(context.waker())
    }
}

impl<T: Deref<Target = Timeouts>> Drop for Sleep<T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<T: Deref<Target = Timeouts>> fmt::Debug for Sleep<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("state", &self.state).finish_non_exhaustive()
    }
}

#[cfg(all(target_pointer_width = "64", not(expiry_loom)))]
const _: () = assert!(std::mem::size_of::<Sleep<&Timeouts>>() == 32);
