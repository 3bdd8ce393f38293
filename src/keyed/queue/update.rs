//! Writing: keys come, are renewed, and are removed.

use super::{since_start, ExpiryQueue, Handle, Updated};
use crate::keyed::store::Touched;
use crate::keyed::StoreError;
use crate::time::{Lifetime, LifetimeError};
use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Inserts the key, or renews it: it expires `timeout` from now, rounded up to the interval.
    ///
    /// # Errors
    ///
    /// [`StoreError::Lifetime`], and for a new key [`StoreError::Full`],
    /// [`StoreError::OutOfMemory`], [`StoreError::Closed`].
    #[doc(alias("insert", "schedule"))]
    pub fn update(&self, key: K, timeout: Duration) -> Result<Updated, StoreError> {
        let (store, timeout) = (self.store(), Lifetime::After(timeout));
        let mut offer = store.offer(self.hash(&key), key, Some(()));
        self.shared.add(
            &mut offer,
            timeout,
            |found, lost| {
                let renewed = store.renew(found, lost, timeout, false)?;
                Ok(renewed.map(|renewed| match renewed {
                    Touched::Renewed(tick) => {
                        Ok(Updated::Renewed { expiry: since_start(store, tick) })
                    }
                    _ => Ok(Updated::Unchanged),
                }))
            },
            |place, deadline, closed| match closed {
                Some(_) => Err(StoreError::Closed),
                None => {
                    let expiry = since_start(store, deadline);
                    Ok(Updated::Inserted { expiry, handle: Handle(place) })
                }
            },
        )?
    }

    /// Renews the key if it is there, even if its time is up: until a poll, or the reaper, has
    /// expired a key, its holder may still save it. (A map's entry is gone as soon as its time is
    /// up.) Returns whether it was there; then it does not expire by its old time any more.
    ///
    /// # Errors
    ///
    /// [`LifetimeError`]; also where the key is not there.
    #[inline]
    #[doc(alias("heartbeat", "keep_alive", "renew"))]
    pub fn touch<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        timeout: Duration,
    ) -> Result<bool, LifetimeError>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let wanted = self.wanted(key);
        store.engine.catching_up(&*self.shared, || {
            let pin = store.engine.pin();
            store.touch(&pin, store.find(&pin, wanted), wanted, Lifetime::After(timeout), false)
        })
    }

    /// Renews a lease by its handle, without the look-up; otherwise as [`touch`](Self::touch).
    #[inline]
    #[doc(alias("heartbeat", "keep_alive", "renew"))]
    pub fn touch_by(&self, handle: Handle, timeout: Duration) -> Result<bool, LifetimeError> {
        let store = self.store();
        let touched = store
            .engine
            .catching_up(&*self.shared, || store.touch_at(handle.0, Lifetime::After(timeout)));
        Ok(touched?.is_alive())
    }

    /// Takes the key out. Returns when it would have expired, or `None` if it was not there.
    #[doc(alias = "cancel")]
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let wanted = self.wanted(key);
        let pin = store.engine.pin();
        let ended = store.remove(&pin, wanted)?;
        drop(pin);
        store.engine.admission.wake_owed();
        Some(self.expiry(ended.lease()))
    }
}
