//! Sessions: leases with an id, an owner and a leave-taking.
//!
//! A session is an entry. Its lease decides whether it lives; its [`Seat`] has what else there is,
//! in atomics of its own.
//!
//! | operation | takes effect at |
//! |---|---|
//! | create, track | the publication of the id in the index |
//! | touch | the swap of the lease's deadline |
//! | closing | the swap `LIVE -> CLOSING` of the same word: no touch or expiry comes later (Q7) |
//! | remove, expiry, shutdown | the swap to `DEAD`: one winner, which gets the session |
//! | `set_owner`, and a `check` that takes a session without an owner | the swap of the owner |
//! | any other `check` | the load of the owner |
//! | `upgrade` | the read-modify-write of the flags |
//! | `take_touched`, for one session | the read-modify-write that clears its flag |

mod builder;
mod ends;
mod error;
mod id;
mod look;
mod owner;
mod seat;
mod touch;

pub use builder::SessionTrackerBuilder;
pub use error::SessionError;
pub use id::SessionId;
pub use seat::SessionInfo;

use self::id::Issuer;
use self::seat::Seat;
use super::store::{
    self, Entered, Hindered, Keyed, Named, Pair, Place, RemovalCause, Store, Wanted,
};
use super::target::{ExpiryListener, Target};
use super::StoreError;
use crate::core::engine::{Claim, Pin};
use crate::lifecycle::{Leftovers, Owner};
use crate::time::Lifetime;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

type Found<'a> = store::Found<'a, SessionId, Seat>;

/// What all handles to a tracker share.
struct Inner {
    store: Store<SessionId, Seat>,
    /// Where sessions go that expire.
    target: Target<SessionInfo, ExpiryListener<SessionInfo>>,
    /// What a shutdown has ended and has yet to return.
    kept: Leftovers<SessionInfo>,
    issuer: Issuer,
    bounds: Bounds,
    /// Whether touches are collected for `take_touched`.
    collects: bool,
}

impl std::ops::Deref for Inner {
    type Target = Store<SessionId, Seat>;

    fn deref(&self) -> &Self::Target {
        &self.store
    }
}

impl Keyed<SessionId, Seat> for Inner {
    fn store(&self) -> &Store<SessionId, Seat> {
        &self.store
    }

    fn report(&self, claim: &Claim<'_, Pair<SessionId, Seat>>, named: Named, _: u64) {
        let ended = self.store.ended_by_driver(claim, named, RemovalCause::Expired);
        let session = ended.value().end(*ended.key(), Some(Duration::ZERO));
        drop(ended);
        match &self.target {
            Target::Unheard => {}
            Target::Poll(lapsed) => lapsed.push(session),
            Target::Listener(listener) => self.store.guard(|| listener(&session)),
            Target::Channel(sender) => sender.send(session),
        }
    }

    fn close_all(&self) {
        self.target.close_store(&self.store, &self.kept, |ended, lease| self.info(&ended, lease));
    }
}

/// Which timeouts are granted.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    minimum: Duration,
    maximum: Duration,
}

/// A session that is tracked: its id, the timeout that was granted, and where it is, for touching
/// it without a look-up.
///
/// It stands for one stay of the id in one tracker: after that has ended, and elsewhere, there is
/// no such session.
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

/// What [`SessionTracker::track`] did.
///
/// ```
/// use expiry::{SessionId, SessionTracker, Tracked};
/// use std::time::Duration;
///
/// let sessions = SessionTracker::builder().build_manual()?;
/// let (id, ten) = (SessionId(0x0100_0000_0000_0007), Duration::from_secs(10)); // from a log
/// assert!(matches!(sessions.track(id, ten, 7)?, Tracked::Added(_)));
/// assert!(matches!(sessions.track(id, ten, 8)?, Tracked::Renewed(_)));
/// sessions.set_closing(id)?;
/// assert_eq!(sessions.track(id, ten, 9)?, Tracked::Closing);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tracked {
    /// The session was not there: it is now.
    Added(Session),
    /// It was there, with a timeout and an owner of its own, which it keeps; it was renewed.
    Renewed(Session),
    /// It was there, and is being closed: it was left alone.
    Closing,
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
/// # Time
///
/// A session expires when it has not been touched for its timeout, rounded up to the interval: late
/// by at most one interval and the reaper's delay, never early. A touch is one compare-and-swap and
/// moves nothing. Of a touch and an expiry that meet exactly one happens: a touch that says `Ok`
/// has renewed the session, and one that says [`SessionError::Unknown`] came after the end. The end
/// is when the reaper, or a poll, comes to it: a session whose time is up may be renewed until
/// then.
///
/// # Three ends
///
/// * **It expires.** It is delivered once, to the handler or by [`poll`](Self::poll), and nothing
///   of it remains. (ZooKeeper keeps an expired session in its maps, marked as closing, until its
///   code removes it, and what is forgotten there leaks: Q9. Here the delivery has all that there
///   was, and an id that is touched too late is unknown.)
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
/// # Progress
///
/// All operations are lock-free but `shutdown`, which waits for the reaper; and after a jump of the
/// clock by 2^38 intervals a touch or a creation waits until what was due has been ended.
///
/// # Memory
///
/// A slot of 40 bytes, 5 bytes beside it, and 16 to 29 in the index. Nothing on the heap.
#[derive(Clone)]
pub struct SessionTracker {
    store: Arc<Inner>,
    owner: Arc<Owner<Inner>>,
}

impl fmt::Debug for SessionTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionTracker")
            .field("len", &self.len())
            .field("interval", &self.store.engine.deadlines.ticks().interval())
            .field("reaper", &self.owner.reaper().is_some())
            .finish_non_exhaustive()
    }
}

impl SessionTracker {
    /// Settings with defaults.
    pub fn builder() -> SessionTrackerBuilder {
        SessionTrackerBuilder::default()
    }

    /// The timeout that a caller gets if it asks for this one: it, or the nearest that the settings
    /// allow.
    #[must_use]
    pub fn grant(&self, timeout: Duration) -> Duration {
        timeout.clamp(self.store.bounds.minimum, self.store.bounds.maximum)
    }

    /// The deadline of what is granted `timeout` now.
    fn deadline(&self, timeout: Duration) -> u64 {
        self.store.deadline(self.granted(timeout), &*self.store).expect(touch::GRANTED)
    }

    fn granted(&self, timeout: Duration) -> Lifetime {
        Lifetime::After(self.grant(timeout))
    }

    /// What a session has beside its lease, for as long as the pin lives that it was found under.
    fn seat<'p>(_pin: &'p Pin, found: &Found<'_>) -> &'p Seat {
        // SAFETY: found after the pin.
        unsafe { &found.pair().1 }
    }

    fn hash(&self, id: SessionId) -> u32 {
        self.store.engine.keys.hash(id.0)
    }

    /// Runs `f` with the session of an id, if it is there.
    fn with<R>(&self, id: SessionId, f: impl FnOnce(&Pin, &Found<'_>) -> R) -> Option<R> {
        let pin = self.store.engine.pin();
        let wanted = Wanted::new(self.hash(id), &id);
        self.store.find(&pin, wanted).map(|found| f(&pin, &found))
    }
}

impl SessionTracker {
    /// A new global session, with an id of its own, as long a timeout as can be
    /// [granted](Self::grant), and an owner (0: none).
    ///
    /// An id that another caller has had [tracked](Self::track) already is passed over.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`], [`StoreError::OutOfMemory`], [`StoreError::Closed`].
    pub fn create(&self, timeout: Duration, owner: u64) -> Result<Session, StoreError> {
        self.create_as(timeout, owner, true)
    }

    /// As [`create`](Self::create), a local one.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_local(&self, timeout: Duration, owner: u64) -> Result<Session, StoreError> {
        self.create_as(timeout, owner, false)
    }

    fn create_as(
        &self,
        timeout: Duration,
        owner: u64,
        global: bool,
    ) -> Result<Session, StoreError> {
        loop {
            let added =
                self.add(self.store.issuer.issue(), timeout, owner, global, |_, _, _| Some(()))?;
            if let Ok(session) = added {
                return Ok(session);
            }
        }
    }

    /// Adopts a global session whose id is known, from a log or another server. If it is there
    /// already it is renewed, as by [`touch_for`](Self::touch_for), and otherwise stays as it is.
    ///
    /// ```
    /// # use expiry::SessionTracker;
    /// # use std::time::Duration;
    /// # let ten = Duration::from_secs(10);
    /// # let sessions = SessionTracker::builder().build_manual()?;
    /// use expiry::{SessionId, Tracked};
    ///
    /// let id = SessionId(0x0100_0000_0000_0007); // from a log
    /// assert!(matches!(sessions.track(id, ten, 7)?, Tracked::Added(_)));
    /// sessions.touch(id)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn track(
        &self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
    ) -> Result<Tracked, StoreError> {
        self.track_as(id, timeout, owner, true)
    }

    /// As [`track`](Self::track), a local one. (One that is there already stays what it is.)
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn track_local(
        &self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
    ) -> Result<Tracked, StoreError> {
        self.track_as(id, timeout, owner, false)
    }

    fn track_as(
        &self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
        global: bool,
    ) -> Result<Tracked, StoreError> {
        let there = |pin: &Pin, found: &Found<'_>, lost: &mut Option<Place>| {
            let renewed = self.renew(pin, found, lost, timeout)?;
            Some(renewed.map(|()| Session {
                id,
                place: found.place(),
                timeout: Self::seat(pin, found).timeout(),
            }))
        };
        Ok(match self.add(id, timeout, owner, global, there)? {
            Ok(session) => Tracked::Added(session),
            Err(Ok(session)) => Tracked::Renewed(session),
            Err(Err(_)) => Tracked::Closing,
        })
    }

    /// Puts a session in, unless the id has one: then, what `there` makes of that, again and again
    /// until it makes something.
    fn add<R>(
        &self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
        global: bool,
        there: impl Fn(&Pin, &Found<'_>, &mut Option<Place>) -> Option<R>,
    ) -> Result<Result<Session, R>, StoreError> {
        let store = &*self.store;
        let (timeout, hash) = (self.grant(timeout), self.hash(id));
        let mut pair = (id, Seat::new(timeout, owner, global));
        let (mut attempts, mut lost) = (0, None);
        loop {
            let pin = store.engine.pin();
            // The clock is read for each attempt: what went before may have taken its time.
            let term = super::idle::Term::until(self.deadline(timeout));
            let wanted = Wanted::new(hash, &id);
            if let Some(found) = store.find(&pin, wanted) {
                match there(&pin, &found, &mut lost) {
                    Some(made) => return Ok(Err(made)),
                    None => continue,
                }
            }
            match store.enter(&pin, hash, pair, term) {
                Ok(Entered { new, closed, .. }) => {
                    let place = new.place();
                    drop(pin);
                    if closed.is_some() {
                        return Err(StoreError::Closed);
                    }
                    return Ok(Ok(Session { id, place, timeout }));
                }
                Err((Hindered::Overtaken, back)) => pair = back,
                Err((Hindered::Refused(error), back)) => {
                    drop(pin);
                    pair = back;
                    if !store.makes_room(error, wanted, &mut attempts, store) {
                        return Err(error);
                    }
                }
            }
        }
    }
}
