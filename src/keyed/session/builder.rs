//! Building a tracker: every setting, its default, and what is refused.

use super::id::Issuer;
use super::seat::Seat;
use super::{Bounds, Inner, SessionId, SessionInfo, SessionTracker};
use crate::error::BuildError;
use crate::keyed::store::{Listener, RemovalCause, Store};
use crate::lifecycle::Reaper;
use crate::setup::{setters, Setup};
use crate::sync::stack::Stack;
use crate::time::{nanos, Ticks};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// As of an [`ExpiryQueue`](crate::ExpiryQueue).
const INTERVAL: Duration = Duration::from_millis(100);

/// Settings of a [`SessionTracker`].
///
/// | setting | default |
/// |---|---|
/// | [`interval`](Self::interval) | 100 ms |
/// | [`minimum_timeout`](Self::minimum_timeout) | the interval |
/// | [`maximum_timeout`](Self::maximum_timeout) | the longest that there is: 2^39 - 2 intervals, or 584 years |
/// | [`server_id`](Self::server_id) | 0 |
/// | [`first_id`](Self::first_id) | of the time |
/// | [`collect_touches`](Self::collect_touches) | off |
/// | [`shards`](Self::shards) | the number of cores, as a power of two, at most 16 |
/// | [`capacity`](Self::capacity) | unbounded |
/// | [`clock`](Self::clock) | [`CoarseClock`](crate::CoarseClock) |
/// | [`reaper_budget`](Self::reaper_budget) | 4096 |
/// | [`pause_grace`](Self::pause_grace) | none |
///
/// ```
/// use expiry::{SessionInfo, SessionTracker};
/// use std::time::Duration;
///
/// let sessions = SessionTracker::builder()
///     .minimum_timeout(Duration::from_secs(4))
///     .maximum_timeout(Duration::from_secs(40))
///     .server_id(1)
///     .build_with_handler(|gone: &SessionInfo| println!("{} of {} has expired", gone.id, gone.owner))?;
/// assert_eq!(sessions.grant(Duration::from_secs(1)), Duration::from_secs(4));
/// assert_eq!(sessions.create(Duration::from_secs(10), 7)?.id().server(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct SessionTrackerBuilder {
    setup: Setup,
    minimum: Option<Duration>,
    maximum: Option<Duration>,
    server: u8,
    first: Option<u64>,
    collects: bool,
}

impl fmt::Debug for SessionTrackerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTrackerBuilder")
            .field("interval", &self.setup.interval)
            .field("minimum_timeout", &self.minimum)
            .field("maximum_timeout", &self.maximum)
            .field("server_id", &self.server)
            .finish_non_exhaustive()
    }
}

impl Default for SessionTrackerBuilder {
    fn default() -> Self {
        SessionTrackerBuilder {
            setup: Setup { interval: Some(INTERVAL), ..Setup::default() },
            minimum: None,
            maximum: None,
            server: 0,
            first: None,
            collects: false,
        }
    }
}

impl SessionTrackerBuilder {
    setters! {
        "sessions", "build",
        /// The granularity of time: expiry times are rounded up to it. At least 10 microseconds.
        interval,
        /// The most sessions there may be at once, those included that are being closed; beyond it
        /// new ones are refused with [`StoreError::Full`](crate::StoreError::Full), unless
        /// something is due, which is then expired first. Exact.
        capacity,
        /// The shortest timeout that is granted, at least the interval; who asks for less gets
        /// this.
        minimum_timeout(timeout: Duration) sets minimum = Some(timeout);
        /// The longest timeout that is granted; who asks for more gets this.
        maximum_timeout(timeout: Duration) sets maximum = Some(timeout);
        /// What is in the top byte of all ids: a different one on each server whose ids may meet.
        server_id(server: u8) sets server = server;
        /// The lower 56 bits of the first id to be issued, instead of the time (see [`SessionId`]);
        /// what is above is left out. 0 is no id: the next one is taken. For ids that are to be
        /// reproducible, or go on after the last one of a log.
        first_id(first: u64) sets first = Some(first);
        /// Keeps note of which global sessions are touched, for [`SessionTracker::take_touched`].
        /// Each touch costs a read-modify-write of the session's own memory more. Each taking
        /// walks all sessions.
        collect_touches() sets collects = true;
        /// After a stall of the process of more than `threshold`, sessions that could not have been
        /// renewed get its length added instead of expiring. As
        /// [`ExpiryQueueBuilder::pause_grace`](crate::ExpiryQueueBuilder::pause_grace).
        pause_grace(threshold: Duration) sets setup.pause_grace = Some(threshold);
    }

    /// Builds a tracker that is polled, by whoever likes.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which setting is out of range, or what the system refused.
    pub fn build(self) -> Result<SessionTracker, BuildError> {
        let expired = Arc::new(Stack::new());
        let into = expired.clone();
        let mut tracker = self.tracker(move |session: &SessionInfo| into.push(*session))?;
        tracker.expired = Some(expired);
        Ok(tracker)
    }

    /// Builds a tracker whose reaper thread tells `handler` of each session that expires, when it has: the handler may use the
    /// tracker, be slow, or panic, which is counted.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_with_handler(
        self,
        handler: impl Fn(&SessionInfo) + Send + Sync + 'static,
    ) -> Result<SessionTracker, BuildError> {
        let budget = self.setup.budget;
        let mut tracker = self.tracker(handler)?;
        let reaper = Reaper::start(&tracker.store, |store| &store.engine, budget)?;
        tracker.reaper = Some(reaper);
        Ok(tracker)
    }

    fn tracker(
        self,
        expired: impl Fn(&SessionInfo) + Send + Sync + 'static,
    ) -> Result<SessionTracker, BuildError> {
        let bounds = self.bounds()?;
        let listener: Listener<SessionId, Seat> =
            Box::new(move |&id: &SessionId, seat: &Seat, cause| {
                if cause == RemovalCause::Expired {
                    expired(&seat.end(id, Some(Duration::ZERO)));
                }
            });
        let store = Inner {
            store: Store::build(&self.setup, None, None, Some(listener))?,
            kept: crate::lifecycle::Leftovers::new(),
        };
        Ok(SessionTracker {
            store: Arc::new(store),
            reaper: None,
            issuer: Issuer::new(self.server, self.first),
            bounds,
            expired: None,
            collects: self.collects,
        })
    }

    /// What is granted, such that the interval can keep it.
    fn bounds(&self) -> Result<Bounds, BuildError> {
        let given: Vec<_> = self.minimum.into_iter().chain(self.maximum).collect();
        self.setup.config(&given)?;
        let interval = self.setup.interval.unwrap_or(INTERVAL);
        let longest = || Ticks::new(0, nanos(interval)).longest();
        let minimum = self.minimum.unwrap_or(interval);
        let maximum = self.maximum.unwrap_or_else(longest);
        if minimum > maximum {
            return Err(BuildError::MinimumAboveMaximum { minimum, maximum });
        }
        Ok(Bounds { minimum, maximum })
    }
}
