//! Settings of a tracker.

use super::trees::{Handler, Settings, Trees};
use super::{AckTracker, OnDrop, Outcome};
use crate::error::BuildError;
use crate::kit::channel::{Receiver, WhenFull};
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use crate::kit::target::{builds, Target};
use crate::time::{nanos, Lifetime};
use rand::RngCore;
use std::sync::Arc;
use std::time::Duration;

/// Settings of an [`AckTracker`], with defaults that suit a server.
///
/// | setting | default |
/// |---|---|
/// | [`timeout`](Self::timeout) | 30 s |
/// | [`interval`](Self::interval) | none: 1 ms, or a 256th of the timeout up to 1 s |
/// | [`early_capacity`](Self::early_capacity) | 65,536 |
/// | [`early_timeout`](Self::early_timeout) | the timeout |
/// | [`latency_sampling`](Self::latency_sampling) | 0.05 |
/// | [`on_drop`](Self::on_drop) | [`OnDrop::LetTimeOut`] |
///
/// ```
/// use expiry::{AckTracker, Outcome};
/// use std::time::Duration;
///
/// let tracker = AckTracker::builder()
///     .timeout(Duration::from_secs(60))
///     .interval(Duration::from_millis(100))
///     .capacity(1_000_000)
///     .on_outcome(|outcome: Outcome| println!("{outcome:?}"))
///     .build()?;
/// assert_eq!(tracker.interval(), Duration::from_millis(100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct AckTrackerBuilder<T = ()> {
    setup: Setup,
    timeout: Option<Duration>,
    early_capacity: u64,
    early_timeout: Option<Duration>,
    idle_timeout: Option<Duration>,
    sampling: f64,
    on_drop: OnDrop,
    listener: Option<Arc<Handler<T>>>,
}

builder!(AckTrackerBuilder<T> with listener, shows timeout);

impl<T> Default for AckTrackerBuilder<T> {
    fn default() -> Self {
        AckTrackerBuilder {
            setup: Setup { asymmetric: true, ..Setup::default() },
            timeout: Some(Duration::from_secs(30)),
            early_capacity: 65_536,
            early_timeout: None,
            idle_timeout: None,
            sampling: 0.05,
            on_drop: OnDrop::LetTimeOut,
            listener: None,
        }
    }
}

impl AckTrackerBuilder {
    /// Gives each root a token. A handler that was set before gets outcomes without them.
    ///
    /// ```
    /// use expiry::{edge, AckTracker, Lifetime, Outcome};
    /// use std::sync::mpsc;
    ///
    /// let tracker = AckTracker::builder()
    ///     .with_tokens()
    ///     .on_outcome(|outcome: Outcome<mpsc::Sender<bool>>| {
    ///         let _ = outcome.token.send(outcome.is_acked());
    ///     })
    ///     .build()?;
    /// let (reply, replies) = mpsc::channel();
    /// let work = edge();
    /// let root = tracker.issue_with_token(work, 42, reply, Lifetime::Default)?;
    /// tracker.ack(root, work)?;
    /// assert!(replies.recv()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_tokens<T: Send + 'static>(self) -> AckTrackerBuilder<T> {
        let without = |handler: Arc<Handler<()>>| -> Arc<Handler<T>> {
            Arc::new(move |Outcome { root, owner, reason, latency, .. }: Outcome<T>| {
                handler(Outcome { root, owner, token: (), reason, latency });
            })
        };
        AckTrackerBuilder {
            setup: self.setup,
            timeout: self.timeout,
            early_capacity: self.early_capacity,
            early_timeout: self.early_timeout,
            idle_timeout: self.idle_timeout,
            sampling: self.sampling,
            on_drop: self.on_drop,
            listener: self.listener.map(without),
        }
    }
}

impl<T: Send + 'static> AckTrackerBuilder<T> {
    setters! {
        "roots",
        /// A root times out at its deadline or up to one interval (and the reaper's delay) later,
        /// never earlier. Without one, a timeout is rounded up by at most a 256th of it, and by a
        /// millisecond to a second.
        ///
        /// A timeout can be up to 2^39 - 2 intervals long. Without one: 17 years, or as much less
        /// as the default timeout is below a millisecond.
        interval,
        /// The most entries (roots and early arrivals) there may be at once; beyond it new ones are
        /// refused with [`AckError::Full`](crate::AckError::Full). Exact; unbounded unless set.
        /// Costs one more atomic operation on a shared counter at the beginning and the end of each
        /// entry.
        capacity,
        /// How long a root may take from its init, unless it says otherwise itself.
        timeout(timeout: Duration) sets timeout = Some(timeout);
        /// How long a root may go without an ack: it times out then, also before its timeout.
        /// Inits, issues, acks and resets begin this time anew; an early ack does not. An ack costs
        /// one more atomic operation and a clock reading, a root 8 bytes. Unlimited unless set.
        idle_timeout(timeout: Duration) sets idle_timeout = Some(timeout);
        /// Roots never time out, unless they say otherwise themselves. Early arrivals still do, and
        /// idle roots.
        timeouts_off() sets timeout = None;
        /// The most roots of which acks, fails and resets may wait for the init at once; 0 refuses
        /// them all. Only roots chosen by callers can have any. Exact: of two early acks of one
        /// root that take the last place at the same moment, one may be refused.
        early_capacity(early: usize) sets early_capacity = early as u64;
        /// How long they may wait, from the first arrival on. A reset renews it, further acks do
        /// not.
        early_timeout(timeout: Duration) sets early_timeout = Some(timeout);
        /// The share of roots whose latency is taken, 0.0 to 1.0. A sampled root costs two exact
        /// clock readings more, about 40 ns.
        latency_sampling(rate: f64) sets sampling = rate;
        /// What becomes of a [`Tuple`](crate::Tuple) that is dropped without ack or fail.
        on_drop(on_drop: OnDrop) sets on_drop = on_drop;
        /// Sets the handler of outcomes, which gets each by value, and with it the root's token. It
        /// is called once for each tracked root, by the thread that ended it: the one whose ack was
        /// the last, the one that failed it, or the one that drives expiry. A panic is caught and
        /// counted.
        on_outcome(handler: impl Fn(Outcome<T>) + Send + Sync + 'static)
            sets listener = Some(Arc::new(handler));
        /// As on a system without a fence of two sides.
        #[cfg(expiry_loom)]
        #[doc(hidden)]
        without_fence() sets setup.asymmetric = false;
    }

    builds! {
        AckTracker<T>, poll "AckTracker::poll", item Outcome<T>, "each outcome", polls return false,
        build,
        /// Nothing expires but in a poll.
        build_manual
    }

    fn built(
        self,
        target: Target<Outcome<T>, Handler<T>>,
        reaper: bool,
    ) -> Result<AckTracker<T>, BuildError> {
        // With timeouts off, early arrivals still have one.
        let fallback = Duration::from_secs(30).max(self.setup.interval.unwrap_or_default());
        let timeout = self.timeout.unwrap_or(fallback);
        let early_timeout = self.early_timeout.unwrap_or(timeout);
        let idle_timeout = self.idle_timeout.unwrap_or(timeout);
        let (config, mut random) = self.setup.config(&[timeout, early_timeout, idle_timeout])?;
        if !(0.0..=1.0).contains(&self.sampling) {
            return Err(BuildError::BadSamplingRate);
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )] // 0.0 to 1.0, checked above
        let sampled = (self.sampling * (1u64 << 32) as f64) as u64;
        let settings = Settings {
            timeout: self.timeout.map(nanos),
            idle_timeout: self.idle_timeout.map(nanos),
            early_timeout: Lifetime::After(early_timeout),
            early_capacity: self.early_capacity,
            sampled,
            secrets: std::array::from_fn(|_| random.next_u64()),
        };
        let trees = Arc::new(Trees::new(config, settings, target)?);
        let owner = Owner::new(&trees, |trees| &trees.engine, &self.setup, reaper)?;
        Ok(AckTracker { trees, owner, on_drop: self.on_drop })
    }
}
