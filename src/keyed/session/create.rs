//! How sessions begin.

use super::{Found, Seat, Session, SessionId, SessionTracker, Tracked};
use crate::core::engine::BadTimeout;
use crate::error::TokenError;
use crate::keyed::store::Life;
use crate::keyed::StoreError;
use std::time::Duration;

/// A session that was put in, or what was made of the one that was there, and the new seat.
type Begun<T, R> = Result<Session, (R, Seat<T>)>;

/// What a session begins with, beside its timeout: an owner (0: none), and perhaps a token. It is
/// global unless it is said to be local. An owner alone is a global session of that owner.
///
/// ```
/// use expiry::{NewSession, SessionTracker};
/// use std::time::Duration;
///
/// let (ten, sessions) = (Duration::from_secs(10), SessionTracker::builder().build_manual()?);
/// let global = sessions.create(ten, 7)?;
/// let local = sessions.create(ten, NewSession::from(7).local())?;
/// assert_eq!(sessions.is_global(global.id()), Ok(true));
/// assert_eq!(sessions.is_global(local.id()), Ok(false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NewSession<T = ()> {
    owner: u64,
    global: bool,
    token: T,
}

impl From<u64> for NewSession {
    fn from(owner: u64) -> Self {
        NewSession { owner, global: true, token: () }
    }
}

impl NewSession {
    /// Gives it a token, which comes back with its end.
    #[must_use]
    pub fn token<T>(self, token: T) -> NewSession<T> {
        NewSession { owner: self.owner, global: self.global, token }
    }
}

impl<T> NewSession<T> {
    /// Makes it local: known to this server only.
    #[must_use]
    pub fn local(mut self) -> Self {
        self.global = false;
        self
    }

    fn seat(self, granted: Duration) -> Seat<T> {
        Seat::new(granted, self.owner, self.global, self.token)
    }
}

impl<T: Send + 'static> SessionTracker<T> {
    /// A new session, with an id of its own, and as long a timeout as can be
    /// [granted](Self::grant). The rest is its owner, or a [`NewSession`].
    ///
    /// An id that another caller has had [tracked](Self::track) already is passed over.
    ///
    /// # Errors
    ///
    /// [`TokenError`] gives the token back: [`StoreError::Full`], [`StoreError::OutOfMemory`],
    /// [`StoreError::Closed`].
    pub fn create(
        &self,
        timeout: Duration,
        session: impl Into<NewSession<T>>,
    ) -> Result<Session, TokenError<T, StoreError>> {
        let mut seat = session.into().seat(self.grant(timeout));
        loop {
            match self.add(self.shared.extra.issuer.issue(), seat, |_, _| Ok(Some(())))? {
                Ok(session) => return Ok(session),
                Err(((), back)) => seat = back,
            }
        }
    }

    /// Adopts a session whose id is known, from a log or another server. If it is there already it
    /// is renewed, as by [`touch_for`](Self::touch_for), and otherwise stays as it is: local or
    /// global, with its own owner and token.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn track(
        &self,
        id: SessionId,
        timeout: Duration,
        session: impl Into<NewSession<T>>,
    ) -> Result<Tracked<T>, TokenError<T, StoreError>> {
        let timeout = self.grant(timeout);
        let there = |found: &Found<'_, T>, lost: &mut Option<Life>| {
            let renewed = self.renew(found, lost, timeout)?;
            let there = Session { id, place: found.place(), timeout: Self::seat(found).timeout() };
            Ok(renewed.map(|renewed| renewed.ok().map(|()| there)))
        };
        Ok(match self.add(id, session.into().seat(timeout), there)? {
            Ok(session) => Tracked::Added(session),
            Err((Some(session), back)) => Tracked::Renewed(session, back.into_token()),
            Err((None, back)) => Tracked::Closing(back.into_token()),
        })
    }

    /// Puts a session in, unless the id has one: then returns the seat, and what `there` makes of
    /// that session.
    fn add<R>(
        &self,
        id: SessionId,
        seat: Seat<T>,
        there: impl Fn(&Found<'_, T>, &mut Option<Life>) -> Result<Option<R>, BadTimeout>,
    ) -> Result<Begun<T, R>, TokenError<T, StoreError>> {
        let timeout = seat.timeout();
        let mut offer = self.store.offer(self.hash(id), id, Some(seat));
        let there = |found: &Found<'_, T>, lost: &mut Option<Life>| {
            Ok(there(found, lost)?.map(|made| Ok(Err(made))))
        };
        let added =
            self.shared.add(&mut offer, self.granted(timeout), there, |place, _, closed| {
                match closed {
                    None => Ok(Ok(Session { id, place, timeout })),
                    Some(closed) => {
                        // SAFETY: this call has ended the session, and takes its token here only.
                        let token = unsafe { closed.value().take_token(self.shared.extra.lend) };
                        Err(TokenError { error: StoreError::Closed, token })
                    }
                }
            });
        match added {
            Ok(begun) => Ok(begun?.map_err(|made| (made, offer.into_pair().1))),
            Err(error) => Err(TokenError { error, token: offer.into_pair().1.into_token() }),
        }
    }
}
