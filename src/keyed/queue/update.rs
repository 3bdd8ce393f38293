//! Writing: keys come, are renewed, and are removed.

use super::{ExpiryQueue, Handle, Updated};
use crate::keyed::idle::Term;
use crate::keyed::store::{Entered, Hindered, RemovalCause, Touched, Wanted};
use crate::keyed::StoreError;
use crate::time::Lifetime;
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Inserts the key, or renews it: it expires `timeout` from now, rounded up to the interval.
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`], and for a new key
    /// [`StoreError::Full`], [`StoreError::OutOfMemory`], [`StoreError::Closed`].
    pub fn update(&self, key: K, timeout: Duration) -> Result<Updated, StoreError> {
        let (store, timeout) = (self.store(), Lifetime::After(timeout));
        let hash = self.hash(&key);
        let mut pair = (key, ());
        let (mut room, mut lost) = (store.engine.admission.room(), None);
        loop {
            let pin = store.engine.pin();
            if let Some(found) = store.find(&pin, Wanted::new(hash, &pair.0)) {
                match store.renew(&found, &mut lost, timeout, false, &*self.shared)? {
                    Some(Touched::Renewed(deadline)) => {
                        return Ok(Updated::Renewed { expiry: self.shared.since_start(deadline) })
                    }
                    Some(_) => return Ok(Updated::Unchanged),
                    None => continue,
                }
            }
            // The clock is read for each attempt: what went before may have taken its time.
            let deadline = store.deadline(timeout, &*self.shared)?;
            let term = Term::until(deadline);
            match store.enter(&pin, &mut room, hash, pair, term) {
                Ok(Entered { new, closed, .. }) => {
                    drop(pin);
                    if closed.is_some() {
                        return Err(StoreError::Closed);
                    }
                    return Ok(Updated::Inserted {
                        expiry: self.shared.since_start(deadline),
                        handle: Handle(new.place()),
                    });
                }
                Err((Hindered::Overtaken, back)) => pair = back,
                Err((Hindered::Refused(error), back)) => {
                    drop(pin);
                    pair = back;
                    let wanted = Wanted::new(hash, &pair.0);
                    if !store.makes_room(error, wanted, &mut room, &*self.shared) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Renews the key if it is there, even if its time is up. Returns whether it was; then it does
    /// not expire by its old time any more.
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    #[inline]
    pub fn touch<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        timeout: Duration,
    ) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let wanted = Wanted::new(self.hash(key), key);
        let touched =
            store.touch(&store.engine.pin(), wanted, Lifetime::After(timeout), &*self.shared)?;
        Ok(touched.is_alive())
    }

    /// As [`touch`](Self::touch), without the look-up.
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    #[inline]
    pub fn touch_by(&self, handle: Handle, timeout: Duration) -> Result<bool, StoreError> {
        let touched = self.store().touch_at(handle.0, Lifetime::After(timeout), &*self.shared)?;
        Ok(touched.is_alive())
    }

    /// Takes the key out. Returns when it would have expired, or `None` if it was not there.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let wanted = Wanted::new(self.hash(key), key);
        let pin = store.engine.pin();
        let (ended, lease) = store.remove(&pin, wanted)?;
        drop(pin);
        store.tell(&ended, RemovalCause::Removed);
        Some(self.expiry(lease))
    }
}
