//! Building a tracker: every setting, its default, and what is refused.

use super::id::Issuer;
use super::pile::Pile;
use super::seat::Seat;
use super::touch::Touches;
use super::{Bounds, Inner, SessionId, SessionInfo, SessionTracker};
use crate::error::BuildError;
use crate::keyed::store::{Cause, Listener, Store};
use crate::lifecycle::Reaper;
use crate::setup::{setters, Setup};
use crate::sync::stack::Stack;
use crate::time::{nanos, Ticks};
use crossbeam_utils::CachePadded;
use std::fmt;
use std::sync::atomic::AtomicU64 as Statistic;
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
            setup: Setup {
                interval: Some(INTERVAL),
                ..Setup::default()
            },
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
        ///
        /// # Examples
        ///
        /// ```
        /// # use expiry::{ManualClock, SessionTracker};
        /// # use std::time::Duration;
        /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
        /// let sessions = SessionTracker::builder().interval(10 * second).clock(clock.clone()).build()?;
        /// sessions.create(12 * second, 7)?; // until 20
        /// clock.advance(19 * second);
        /// assert!(sessions.poll().is_empty());
        /// clock.advance(second);
        /// assert_eq!(sessions.poll().len(), 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        interval,
        /// # Examples
        ///
        /// ```
        /// # use expiry::{BuildError, SessionTracker};
        /// let sessions = SessionTracker::builder().shards(2).build()?;
        /// assert_eq!(sessions.metrics().shards.len(), 2);
        /// let refused = SessionTracker::builder().shards(3).build();
        /// assert_eq!(refused.err(), Some(BuildError::BadShards { shards: 3 }));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        shards,
        /// The most sessions there may be at once, those included that are being closed; beyond it new ones are refused with
        /// [`StoreError::Full`](crate::StoreError::Full), unless something is due, which is then expired first. Exact.
        ///
        /// # Examples
        ///
        /// ```
        /// # use expiry::{ManualClock, SessionTracker, StoreError};
        /// # use std::time::Duration;
        /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
        /// let sessions = SessionTracker::builder().capacity(1).clock(clock.clone()).build()?;
        /// let first = sessions.create(10 * second, 7)?;
        /// assert_eq!(sessions.create(10 * second, 8), Err(StoreError::Full)); // one too many
        /// clock.advance(11 * second);
        /// sessions.create(10 * second, 8)?; // the first one is due, and makes room
        /// assert_eq!(sessions.poll()[0].id, first.id()); // and is told all the same
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        capacity,
        /// # Examples
        ///
        /// ```
        /// # use expiry::{ManualClock, SessionTracker};
        /// # use std::time::Duration;
        /// let clock = ManualClock::new();
        /// let sessions = SessionTracker::builder().clock(clock.clone()).build()?;
        /// sessions.create(Duration::from_secs(60), 7)?;
        /// assert!(sessions.poll().is_empty());
        /// clock.advance(Duration::from_secs(61)); // in no time
        /// assert_eq!(sessions.poll().len(), 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        clock,
        /// # Examples
        ///
        /// ```
        /// # use expiry::{BuildError, SessionInfo, SessionTracker};
        /// # use std::time::Duration;
        /// let sessions = SessionTracker::builder()
        ///     .reaper_budget(100) // the handler is slow
        ///     .build_with_handler(|gone: &SessionInfo| println!("{} has expired", gone.id))?;
        /// sessions.create(Duration::from_secs(10), 7)?;
        /// let refused = SessionTracker::builder().reaper_budget(0).build_with_handler(|_: &SessionInfo| ());
        /// assert_eq!(refused.err(), Some(BuildError::ZeroBudget));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        reaper_budget,
        /// # Examples
        ///
        /// ```
        /// # use expiry::SessionTracker;
        /// # use std::time::Duration;
        /// let grown = |seed| -> Result<Vec<u64>, Box<dyn std::error::Error>> {
        ///     let sessions = SessionTracker::builder().seed(seed).first_id(1).shards(16).build()?;
        ///     for owner in 0..8000 {
        ///         sessions.create(Duration::from_secs(10), owner)?;
        ///     }
        ///     Ok(sessions.metrics().shards.iter().map(|shard| shard.tables).collect())
        /// };
        /// assert_eq!(grown(7)?, grown(7)?); // where the ids are, and so where the index has grown
        /// assert_ne!(grown(7)?, grown(8)?);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        seed,
    }

    /// The shortest timeout that is granted, at least the interval; who asks for less gets this.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{BuildError, SessionTracker};
    /// # use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let sessions = SessionTracker::builder().interval(second).minimum_timeout(4 * second).build()?;
    /// assert_eq!(sessions.create(second, 7)?.timeout(), 4 * second); // not as short as asked for
    /// let refused = SessionTracker::builder().interval(5 * second).minimum_timeout(4 * second).build();
    /// assert_eq!(refused.err(), Some(BuildError::IntervalAboveTimeout { interval: 5 * second, timeout: 4 * second }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn minimum_timeout(mut self, timeout: Duration) -> Self {
        self.minimum = Some(timeout);
        self
    }

    /// The longest timeout that is granted; who asks for more gets this.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::SessionTracker;
    /// # use std::time::Duration;
    /// let second = Duration::from_secs(1);
    /// let sessions = SessionTracker::builder().maximum_timeout(40 * second).build()?;
    /// assert_eq!(sessions.create(3600 * second, 7)?.timeout(), 40 * second); // not as long as asked for
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn maximum_timeout(mut self, timeout: Duration) -> Self {
        self.maximum = Some(timeout);
        self
    }

    /// What is in the top byte of all ids: a different one on each server whose ids may meet.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::SessionTracker;
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// let [one, two] = [1, 2].map(|server| SessionTracker::builder().server_id(server).first_id(7).build());
    /// let (first, second) = (one?.create(ten, 42)?.id(), two?.create(ten, 42)?.id());
    /// assert_eq!((first.0, second.0), (0x0100_0000_0000_0007, 0x0200_0000_0000_0007)); // do not meet
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn server_id(mut self, server: u8) -> Self {
        self.server = server;
        self
    }

    /// The lower 56 bits of the first id to be issued, instead of the time (see [`SessionId`]); what is above is left out. 0 is
    /// no id: the next one is taken. For ids that are to be reproducible, or go on after the last one of a log.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{SessionId, SessionTracker};
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// let last = 0x0100_0000_0000_0007; // of the log
    /// let sessions = SessionTracker::builder().server_id(1).first_id(last + 1).build()?;
    /// assert_eq!(sessions.create(ten, 42)?.id(), SessionId(last + 1));
    /// assert_eq!(sessions.create(ten, 42)?.id(), SessionId(last + 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn first_id(mut self, first: u64) -> Self {
        self.first = Some(first);
        self
    }

    /// Keeps note of which global sessions are touched, for [`SessionTracker::take_touched`]. Costs a read-modify-write of the
    /// session's own memory for each touch, and for the first one after each taking an allocation of 32 bytes, which whoever
    /// takes frees: take them now and then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::SessionTracker;
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// let sessions = SessionTracker::builder().collect_touches().build()?;
    /// let (global, local) = (sessions.create(ten, 7)?.id(), sessions.create_local(ten, 7)?.id());
    /// for id in [global, local, global] {
    ///     sessions.touch(id)?;
    /// }
    /// let touched = sessions.take_touched();
    /// assert_eq!((touched.len(), touched[0].0), (1, global)); // once, and only the global one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn collect_touches(mut self) -> Self {
        self.collects = true;
        self
    }

    /// After a stall of the process of more than `threshold`, sessions that could not have been renewed get its length added
    /// instead of expiring. As [`ExpiryQueueBuilder::pause_grace`](crate::ExpiryQueueBuilder::pause_grace).
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{ManualClock, SessionTracker};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let sessions = SessionTracker::builder()
    ///     .interval(second)
    ///     .pause_grace(5 * second)
    ///     .clock(clock.clone())
    ///     .build()?;
    /// let session = sessions.create(12 * second, 7)?;
    /// clock.advance(10 * second);
    /// assert!(sessions.poll().is_empty());
    /// clock.advance(20 * second); // the process was stopped
    /// assert!(sessions.poll().is_empty());
    /// sessions.touch_by(&session)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause_grace(mut self, threshold: Duration) -> Self {
        self.setup.pause_grace = Some(threshold);
        self
    }

    /// Builds a tracker that is polled, by whoever likes.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{BuildError, ManualClock, SessionTracker};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let sessions = SessionTracker::builder().clock(clock.clone()).build()?;
    /// sessions.create(10 * second, 7)?;
    /// clock.advance(11 * second);
    /// assert_eq!(sessions.len(), 1); // nobody has come by
    /// assert_eq!(sessions.poll()[0].owner, 7);
    ///
    /// let refused = SessionTracker::builder().minimum_timeout(40 * second).maximum_timeout(4 * second).build();
    /// assert_eq!(refused.err(), Some(BuildError::MinimumAboveMaximum { minimum: 40 * second, maximum: 4 * second }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
    /// # Examples
    ///
    /// ```
    /// # use expiry::{ManualClock, SessionInfo, SessionTracker};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let (sender, told) = std::sync::mpsc::channel();
    /// let sessions = SessionTracker::builder()
    ///     .clock(clock.clone())
    ///     .build_with_handler(move |gone: &SessionInfo| sender.send(gone.owner).unwrap())?;
    /// sessions.create(10 * second, 7)?;
    /// clock.advance(11 * second);
    /// assert!(sessions.poll().is_empty()); // the handler is told instead
    /// assert_eq!(told.recv()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
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
        let ended = Arc::new(Statistic::new(0));
        let counts = ended.clone();
        let listener: Listener<SessionId, Seat> =
            Box::new(move |&id: &SessionId, seat: &Seat, cause| {
                if cause == Cause::Expired {
                    let (info, is_piled) = seat.end(id, Some(Duration::ZERO));
                    if is_piled {
                        counts.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    expired(&info);
                }
            });
        let store = Inner {
            store: Store::build(&self.setup, None, None, Some(listener))?,
            ended_on_pile: ended,
            kept: crate::lifecycle::Leftovers::new(),
        };
        let touched = self.collects.then(|| {
            let shards = 0..store.engine.shards();
            Touches {
                piles: shards.map(|_| CachePadded::new(Pile::new())).collect(),
            }
        });
        Ok(SessionTracker {
            store: Arc::new(store),
            reaper: None,
            issuer: Issuer::new(self.server, self.first),
            bounds,
            expired: None,
            touched,
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
