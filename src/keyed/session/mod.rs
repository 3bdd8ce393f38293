//! Sessions: leases with an id, an owner and a leave-taking.
//!
//! A session is an entry. Its lease decides whether it lives; its [`Seat`] has the owner and the
//! flags, in atomics, and the token. Only the thread that ends the session touches the token. Where
//! a tracker lends tokens, that thread clones it, and the token stays until the driver frees the
//! slot. By then no thread that may have found the session is pinned any more.
//!
//! | operation | takes effect at |
//! |---|---|
//! | create, track | the publication of the id in the index |
//! | touch | the swap of the lease's deadline |
//! | closing | the swap `LIVE -> CLOSING` of the same word: no touch or expiry comes later (Q7) |
//! | remove, expiry, shutdown | the swap to `DEAD`: one winner, which gets the session and takes its token |
//! | `set_owner`, and a `check` that takes a session without an owner | the swap of the owner |
//! | any other `check` | the load of the owner |
//! | `upgrade` | the read-modify-write of the flags |
//! | `take_touched`, for one session | the read-modify-write that clears its flag |

mod builder;
mod create;
mod ends;
mod error;
mod id;
mod look;
mod owner;
mod seat;
mod touch;

pub use builder::SessionTrackerBuilder;
pub use create::NewSession;
pub use error::SessionError;
pub use id::SessionId;
pub use seat::SessionInfo;

use self::id::Issuer;
use self::seat::{Lend, Seat};
use super::given;
use super::store::{self, Place, RemovalCause, Store, Wanted};
use crate::kit::handle::handle;
use crate::kit::lifecycle::Owner;
use crate::time::Lifetime;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

type Inner<T> = Store<SessionId, Seat<T>>;
type Found<'a, T> = store::Found<'a, SessionId, Seat<T>>;
type Gone<'a, T> = given::Gone<'a, SessionId, Seat<T>>;
type Shared<T> = given::Shared<SessionId, Seat<T>, SessionInfo<T>>;
/// Called with each session that has expired.
type Listener<T> = dyn Fn(SessionInfo<T>) + Send + Sync;

/// What all handles to a tracker share beside its store.
pub(super) struct Extra<T> {
    issuer: Issuer,
    /// The shortest and the longest timeout that is granted.
    bounds: (Duration, Duration),
    /// Whether touches are collected for `take_touched`.
    collects: bool,
    /// How tokens are lent, if they are.
    lend: Option<Lend<T>>,
}

impl<T: 'static> given::Item<SessionId, Seat<T>> for SessionInfo<T> {
    type Listener = Listener<T>;
    type Rest = T;
    type Extra = Extra<T>;

    const HAS_VALUE: bool = true;

    fn of(shared: &Shared<T>, gone: Gone<'_, T>, cause: RemovalCause, _: u64) -> Self {
        let store = &shared.store;
        let remaining = match cause {
            RemovalCause::Expired => Some(Duration::ZERO),
            _ => store.remaining(gone.lease(), store.engine.deadlines.now()),
        };
        // SAFETY: each of this module's ends comes here once, on the thread that made it.
        unsafe { gone.value().end(*gone.key(), remaining, shared.extra.lend) }
    }

    fn tell(shared: &Shared<T>, gone: Gone<'_, T>, listener: Option<&Self::Listener>) {
        let session = Self::of(shared, gone, RemovalCause::Expired, 0);
        if let Some(listener) = listener {
            listener(session);
        }
    }

    fn rest(shared: &Shared<T>, gone: Gone<'_, T>) -> T {
        // SAFETY: this thread has ended the session, and takes its token here only.
        unsafe { gone.value().take_token(shared.extra.lend) }
    }
}

/// A session that is tracked: its id, the timeout that was granted, and where it is, for touching
/// it without a look-up.
///
/// It stands for one stay of the id in one tracker. After that stay, and in another tracker, calls
/// by it return [`SessionError::Unknown`].
///
/// ```
/// use expiry::{SessionError, SessionTracker};
/// use std::time::Duration;
///
/// let sessions = SessionTracker::builder().build_manual()?;
/// let session = sessions.create(Duration::from_secs(10), 7)?;
/// assert_eq!(session.timeout(), Duration::from_secs(10));
/// sessions.touch_by(&session)?;
/// sessions.remove(session.id());
/// assert_eq!(sessions.touch_by(&session), Err(SessionError::Unknown));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Session {
    id: SessionId,
    place: Place,
    timeout: Duration,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).field("timeout", &self.timeout).finish()
    }
}

impl Session {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The timeout that was granted.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// What [`SessionTracker::track`] did. Where it has added no session, it gives the token back.
///
/// ```
/// use expiry::{SessionId, SessionTracker, Tracked};
/// use std::time::Duration;
///
/// let sessions = SessionTracker::builder().build_manual()?;
/// let (id, ten) = (SessionId(0x0100_0000_0000_0007), Duration::from_secs(10)); // from a log
/// assert!(matches!(sessions.track(id, ten, 7)?, Tracked::Added(_)));
/// assert!(matches!(sessions.track(id, ten, 8)?, Tracked::Renewed(..)));
/// sessions.set_closing(id)?;
/// assert!(matches!(sessions.track(id, ten, 9)?, Tracked::Closing(_)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tracked<T = ()> {
    /// The session was not there: it is now.
    Added(Session),
    /// It was there, and was renewed. It keeps its own timeout, owner and token.
    Renewed(Session, T),
    /// It was there, and is being closed: it was left alone.
    Closing(T),
}

/// Sessions that must be touched to live, after ZooKeeper's `SessionTrackerImpl`: ids, timeouts,
/// owners, leave-taking.
///
/// ```
/// use expiry::{ManualClock, SessionError, SessionTracker};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let sessions = SessionTracker::builder()
///     .interval(Duration::from_secs(2))
///     .minimum_timeout(Duration::from_secs(4))
///     .server_id(1)
///     .clock(clock.clone())
///     .build_manual()?;
/// let [mine, yours] = [7, 8].map(|owner| sessions.create(Duration::from_secs(1), owner).unwrap());
/// assert_eq!(mine.timeout(), Duration::from_secs(4)); // what was granted
///
/// sessions.check(mine.id(), 7)?;
/// assert_eq!(sessions.check(mine.id(), 8), Err(SessionError::Moved { owner: 7 }));
///
/// clock.advance(Duration::from_secs(3));
/// sessions.touch(yours.id())?;
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(sessions.poll()[0].id, mine.id());
/// assert_eq!(sessions.touch(mine.id()), Err(SessionError::Unknown));
///
/// sessions.set_closing(yours.id())?;
/// assert_eq!(sessions.touch(yours.id()), Err(SessionError::Closing));
/// assert_eq!(sessions.remove(yours.id()).unwrap().owner, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`touch`](Self::touch), [`touch_by`](Self::touch_by) | one compare-and-swap; moves nothing |
/// | [`create`](Self::create), [`remove`](Self::remove), [`check`](Self::check), [`poll`](Self::poll) | lock-free; an allocation for a token above 32 bytes |
/// | [`shutdown`](Self::shutdown) | **waits** for the reaper |
/// | memory of a session | a slot of 40 bytes and the token; 5 bytes beside it; 16 to 29 in the index |
///
/// After a jump of the clock by 2^38 intervals a touch or a creation waits until what was due has
/// been ended.
///
/// # Time
///
/// A session expires when it has not been touched for its timeout, rounded up to the interval: late
/// by at most one interval and the reaper's delay, never early. Of a touch and an expiry that meet
/// exactly one happens: a touch that says `Ok` has renewed the session, and one that says
/// [`SessionError::Unknown`] came after the end. The end is when the reaper, or a poll, comes to
/// it: a session whose time is up may be renewed until then.
///
/// # Three ends
///
/// * **It expires.** It is delivered once, to the handler or by [`poll`](Self::poll), and nothing
///   of it remains (Q9): the delivery has all that there was, and an id that is touched too late is
///   unknown.
/// * **It is removed**, at once, by [`remove`](Self::remove), which returns it.
/// * **It is closed**: [`set_closing`](Self::set_closing), and later `remove`. In between no touch
///   succeeds and it does not expire, so that neither overtakes the closing caller, which may
///   notify others first. One that no caller removes stays: [`closing`](Self::closing) lists them,
///   and they count in [`len`](Self::len) and in the capacity.
///
/// [`shutdown`](Self::shutdown) returns the sessions that are there at the tracker's end. Dropping
/// the tracker ends them without a report.
///
/// # Local and global
///
/// A session is local, known to this server only, or global. It is created as one or the other;
/// [`upgrade`](Self::upgrade) makes a local one global, once. What it means is the caller's; the
/// tracker leaves local sessions out of [`take_touched`](Self::take_touched).
///
/// # Tokens
///
/// A tracker built [`with_tokens`](SessionTrackerBuilder::with_tokens) takes a *token* with each
/// session, of any type `T` that is `Send`: what the receiver of the session's end needs, such as
/// the client's connection. The token lies in the session's entry. It comes back by value once, in
/// [`SessionInfo::token`]: with the expiry, by `remove`, or by `shutdown`.
/// [`TokenError`](crate::TokenError) returns it if the session is refused. Without tokens `T` is
/// `()`, which takes no memory. Tokens that are `Arc`s can be [lent](Self::token) meanwhile.
pub struct SessionTracker<T: 'static = ()> {
    /// As in `shared`: a touch comes to it by one pointer.
    store: Arc<Inner<T>>,
    shared: Arc<Shared<T>>,
    owner: Arc<Owner<Shared<T>>>,
}

handle!(SessionTracker<T> { store, shared, owner } by store, room);

impl SessionTracker {
    /// Settings with defaults.
    pub fn builder() -> SessionTrackerBuilder {
        SessionTrackerBuilder::default()
    }
}

impl<T: Send + 'static> SessionTracker<T> {
    /// The timeout that is granted for this one: the nearest that the settings allow.
    #[must_use]
    pub fn grant(&self, timeout: Duration) -> Duration {
        let (minimum, maximum) = self.shared.extra.bounds;
        timeout.clamp(minimum, maximum)
    }

    fn granted(&self, timeout: Duration) -> Lifetime {
        Lifetime::After(self.grant(timeout))
    }

    /// What a session has beside its lease, for as long as the pin lives that it was found under.
    fn seat<'g>(found: &Found<'g, T>) -> &'g Seat<T> {
        &found.pair().1
    }

    fn hash(&self, id: SessionId) -> u32 {
        self.store.engine.keys.hash(id.0)
    }

    fn wanted<'m, 'q>(&'m self, id: &'q SessionId) -> Wanted<'m, 'q, SessionId> {
        Wanted::new(&self.store.engine.keys, self.hash(*id), id)
    }

    fn with<R>(
        &self,
        id: SessionId,
        f: impl FnOnce(&Found<'_, T>) -> R,
    ) -> Result<R, SessionError> {
        let (pin, wanted) = (self.store.engine.pin(), self.wanted(&id));
        self.store.find(&pin, wanted).map(|found| f(&found)).ok_or(SessionError::Unknown)
    }
}
