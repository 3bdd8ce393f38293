//! How sessions begin.

use super::{Found, Seat, Session, SessionId, SessionTracker, Tracked};
use crate::core::engine::BadTimeout;
use crate::error::TokenError;
use crate::keyed::idle::Term;
use crate::keyed::store::{Entered, Hindered, Place};
use crate::keyed::StoreError;
use std::time::Duration;

/// A session that was put in, or what was made of the one that was there, and the new seat.
type Added<T, R> = Result<Session, (R, Seat<T>)>;

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
        Ok(self.create_with_token(timeout, owner, ())?)
    }

    /// As [`create`](Self::create), a local one.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn create_local(&self, timeout: Duration, owner: u64) -> Result<Session, StoreError> {
        Ok(self.create_local_with_token(timeout, owner, ())?)
    }

    /// Adopts a global session whose id is known, from a log or another server. If it is there
    /// already it is renewed, as by [`touch_for`](Self::touch_for), and otherwise stays as it is.
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
        Ok(self.track_with_token(id, timeout, owner, ())?.0)
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
        Ok(self.track_local_with_token(id, timeout, owner, ())?.0)
    }
}

impl<T: Send + 'static> SessionTracker<T> {
    /// As [`create`](SessionTracker::create), of a session with a token, which comes back with the
    /// session's end.
    ///
    /// # Errors
    ///
    /// [`TokenError`] gives the token back, with the errors of [`create`](SessionTracker::create).
    pub fn create_with_token(
        &self,
        timeout: Duration,
        owner: u64,
        token: T,
    ) -> Result<Session, TokenError<T, StoreError>> {
        self.create_as(Seat::new(self.grant(timeout), owner, true, token))
    }

    /// As [`create_with_token`](Self::create_with_token), a local one.
    ///
    /// # Errors
    ///
    /// As [`create_with_token`](Self::create_with_token).
    pub fn create_local_with_token(
        &self,
        timeout: Duration,
        owner: u64,
        token: T,
    ) -> Result<Session, TokenError<T, StoreError>> {
        self.create_as(Seat::new(self.grant(timeout), owner, false, token))
    }

    fn create_as(&self, mut seat: Seat<T>) -> Result<Session, TokenError<T, StoreError>> {
        loop {
            match self.add(self.store.issuer.issue(), seat, |_, _| Ok(Some(())))? {
                Ok(session) => return Ok(session),
                Err(((), back)) => seat = back,
            }
        }
    }

    /// As [`track`](SessionTracker::track), of a session with a token. Where the session is there
    /// already, it keeps the token that it has, and this returns the new one.
    ///
    /// ```
    /// use expiry::{SessionId, SessionTracker, Tracked};
    /// use std::time::Duration;
    ///
    /// let sessions = SessionTracker::with_tokens().build_manual()?;
    /// let (id, ten) = (SessionId(7), Duration::from_secs(10));
    /// let (tracked, back) = sessions.track_with_token(id, ten, 7, "first".to_string())?;
    /// assert!(matches!(tracked, Tracked::Added(_)) && back.is_none());
    /// let (tracked, back) = sessions.track_with_token(id, ten, 7, "second".to_string())?;
    /// assert!(matches!(tracked, Tracked::Renewed(_)));
    /// assert_eq!(back.as_deref(), Some("second"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`create_with_token`](Self::create_with_token).
    pub fn track_with_token(
        &self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
        token: T,
    ) -> Result<(Tracked, Option<T>), TokenError<T, StoreError>> {
        self.track_as(id, Seat::new(self.grant(timeout), owner, true, token))
    }

    /// As [`track_with_token`](Self::track_with_token), a local one.
    ///
    /// # Errors
    ///
    /// As [`create_with_token`](Self::create_with_token).
    pub fn track_local_with_token(
        &self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
        token: T,
    ) -> Result<(Tracked, Option<T>), TokenError<T, StoreError>> {
        self.track_as(id, Seat::new(self.grant(timeout), owner, false, token))
    }

    fn track_as(
        &self,
        id: SessionId,
        seat: Seat<T>,
    ) -> Result<(Tracked, Option<T>), TokenError<T, StoreError>> {
        let timeout = seat.timeout();
        let there = |found: &Found<'_, T>, lost: &mut Option<Place>| {
            let renewed = self.renew(found, lost, timeout)?;
            Ok(renewed.map(|renewed| match renewed {
                Err(_) => Tracked::Closing,
                Ok(()) => {
                    let timeout = Self::seat(found).timeout();
                    Tracked::Renewed(Session { id, place: found.place(), timeout })
                }
            }))
        };
        Ok(match self.add(id, seat, there)? {
            Ok(session) => (Tracked::Added(session), None),
            Err((tracked, back)) => (tracked, Some(back.into_token())),
        })
    }

    /// Puts a session in, unless the id has one: then, the seat, and what `there` makes of that
    /// session, again and again until it makes something.
    fn add<R>(
        &self,
        id: SessionId,
        seat: Seat<T>,
        there: impl Fn(&Found<'_, T>, &mut Option<Place>) -> Result<Option<R>, BadTimeout>,
    ) -> Result<Added<T, R>, TokenError<T, StoreError>> {
        let store = &*self.store;
        let (timeout, hash) = (seat.timeout(), self.hash(id));
        let (mut offer, mut lost) = (store.offer(hash, id, Some(seat)), None);
        loop {
            let pin = store.engine.pin();
            let attempt = match store.find(&pin, offer.wanted()) {
                Some(found) => match there(&found, &mut lost) {
                    Ok(Some(made)) => {
                        drop(pin);
                        return Ok(Err((made, offer.into_pair().1)));
                    }
                    Ok(None) => Err(Hindered::Overtaken),
                    Err(bad) => Err(bad.into()),
                },
                // The clock is read for each attempt: what went before may have taken its time.
                None => match store.deadline(self.granted(timeout)) {
                    Ok(deadline) => offer.enter(&pin, Term::until(deadline)),
                    Err(bad) => Err(bad.into()),
                },
            };
            let attempt = attempt.map(|Entered { new, closed, .. }| (new.place(), closed));
            drop(pin);
            match attempt {
                Ok((_, Some(closed))) => {
                    // SAFETY: this call has ended the session, and takes its token here only.
                    let token = unsafe { closed.value().take_token(store.lend) };
                    return Err(TokenError { error: StoreError::Closed, token });
                }
                Ok((place, None)) => return Ok(Ok(Session { id, place, timeout })),
                Err(hindered) => {
                    if let Err(error) = offer.again(hindered, store) {
                        return Err(TokenError { error, token: offer.into_pair().1.into_token() });
                    }
                }
            }
        }
    }
}
