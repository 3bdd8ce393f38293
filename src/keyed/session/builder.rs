//! Building a tracker: every setting, its default, and what is refused.

use super::id::Issuer;
use super::seat::Lend;
use super::{Extra, Listener, SessionInfo, SessionTracker, Shared};
use crate::error::BuildError;
use crate::keyed::store::Store;
use crate::kit::channel::{Receiver, WhenFull};
use crate::kit::handle::builder;
use crate::kit::lifecycle::Owner;
use crate::kit::setup::{setters, Setup};
use crate::kit::target::{builds, Target};
use crate::time::{nanos, Ticks};
use std::sync::Arc;
use std::time::Duration;

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
/// | [`lend_tokens`](Self::lend_tokens) | off |
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
///     .expiry_listener(|gone: SessionInfo| println!("{} of {} has expired", gone.id, gone.owner))
///     .build_manual()?;
/// assert_eq!(sessions.grant(Duration::from_secs(1)), Duration::from_secs(4));
/// assert_eq!(sessions.create(Duration::from_secs(10), 7)?.id().server(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct SessionTrackerBuilder<T = ()> {
    setup: Setup,
    minimum: Option<Duration>,
    maximum: Option<Duration>,
    server: u8,
    first: Option<u64>,
    collects: bool,
    lend: Option<Lend<T>>,
    listener: Option<Arc<Listener<T>>>,
}

builder!(SessionTrackerBuilder<T> with listener, shows minimum, shows maximum, shows server);

impl<T> Default for SessionTrackerBuilder<T> {
    fn default() -> Self {
        SessionTrackerBuilder {
            setup: Setup::by_milliseconds(100),
            minimum: None,
            maximum: None,
            server: 0,
            first: None,
            collects: false,
            lend: None,
            listener: None,
        }
    }
}

impl SessionTrackerBuilder {
    /// Each session is to carry a token. A listener that was set before gets sessions without them.
    /// [`SessionTracker::token`] has an example.
    pub fn with_tokens<T: Send + 'static>(self) -> SessionTrackerBuilder<T> {
        let without = |listener: Arc<Listener<()>>| -> Arc<Listener<T>> {
            Arc::new(move |gone: SessionInfo<T>| {
                let SessionInfo { id, owner, timeout, is_global, remaining, .. } = gone;
                listener(SessionInfo { id, owner, timeout, is_global, remaining, token: () });
            })
        };
        SessionTrackerBuilder {
            setup: self.setup,
            minimum: self.minimum,
            maximum: self.maximum,
            server: self.server,
            first: self.first,
            collects: self.collects,
            lend: None,
            listener: self.listener.map(without),
        }
    }
}

impl<T: Send + Sync + 'static> SessionTrackerBuilder<Arc<T>> {
    /// Lends the tokens of sessions: [`SessionTracker::token`]. Then a session's end hands out a
    /// clone of the `Arc`. The tracker's own goes when the driver frees the session's memory, soon
    /// after. So close a connection by a call, not by the last drop of its token.
    pub fn lend_tokens(mut self) -> Self {
        self.lend = Some(Arc::clone);
        self
    }
}

impl<T: Send + 'static> SessionTrackerBuilder<T> {
    setters! {
        "sessions",
        interval,
        /// Sessions that are being closed count.
        expiring capacity,
        /// The shortest timeout that is granted, at least the interval: shorter requests get it.
        minimum_timeout(timeout: Duration) sets minimum = Some(timeout);
        /// The longest timeout that is granted; a caller that asks for more gets this.
        maximum_timeout(timeout: Duration) sets maximum = Some(timeout);
        /// What is in the top byte of all ids: a different one on each server whose ids may meet.
        server_id(server: u8) sets server = server;
        /// The lower 56 bits of the first id to be issued, instead of the time (see
        /// [`SessionId`](crate::SessionId)); what is above is left out. 0 is no id: the next one is
        /// taken. It is for ids that are to be reproducible, or go on after the last one of a log.
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

    builds! {
        SessionTracker<T>, poll "SessionTracker::poll", item SessionInfo<T>,
        expiry_listener(SessionInfo<T>)
    }

    fn built(
        self,
        target: Target<SessionInfo<T>, Listener<T>>,
        reaper: bool,
    ) -> Result<SessionTracker<T>, BuildError> {
        let bounds = self.bounds()?;
        let mut store = Store::build(&self.setup, None, None)?;
        store.drops = self.lend.is_some();
        let issuer = Issuer::new(self.server, self.first);
        let extra = Extra { issuer, bounds, collects: self.collects, lend: self.lend };
        let shared = Shared::new(store, target, extra);
        let owner = Owner::new(&shared, |shared| &shared.store.engine, &self.setup, reaper)?;
        Ok(SessionTracker { store: shared.store.clone(), shared, owner })
    }

    /// The least and the longest timeout, which the interval can keep.
    fn bounds(&self) -> Result<(Duration, Duration), BuildError> {
        let given: Vec<_> = self.minimum.into_iter().chain(self.maximum).collect();
        self.setup.config(&given)?;
        let interval = self.setup.interval.expect("this builder has a default");
        let longest = || Ticks::new(0, nanos(interval)).longest();
        let minimum = self.minimum.unwrap_or(interval);
        let maximum = self.maximum.unwrap_or_else(longest);
        if minimum > maximum {
            return Err(BuildError::MinimumAboveMaximum { minimum, maximum });
        }
        Ok((minimum, maximum))
    }
}
