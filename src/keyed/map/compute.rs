//! Conditional updates: a closure sees what a key has, and says what the key is to have.

use super::put::Settled;
use super::{Current, ExpiringMap, Ref};
use crate::core::engine::Pin;
use crate::keyed::living::Notice;
use crate::keyed::removed::Removed;
use crate::keyed::store::{
    Entered, Found, Hindered, Lent, Offer, Place, RemovalCause, Sought, Store,
};
use crate::keyed::{InsertError, Lifetimes, StoreError};
use crate::time::Lifetime;
use std::hash::{BuildHasher, Hash};

/// What a closure of [`ExpiringMap::compute`] wants done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compute<V> {
    /// Nothing: the entry stays as it is, or there is still none.
    Keep,
    /// The key gets this value, with the map's lifetime, which begins now.
    Put(V),
    /// The key gets this value, with a lifetime of its own.
    PutFor(V, Lifetimes),
    /// The entry keeps its value and lives for this long from now. The listener hears nothing. As
    /// [`Keep`](Self::Keep) where the key has no entry.
    Touch(Lifetime),
    /// The entry ends.
    Remove,
}

impl<V> Compute<V> {
    /// Whether a load of the key that is under way would be out of date.
    fn changes_value(&self) -> bool {
        matches!(self, Compute::Put(_) | Compute::PutFor(..) | Compute::Remove)
    }
}

/// What [`ExpiringMap::compute`] has found and done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Computed<'a, K: 'static, V: 'static> {
    /// The key had no entry, and this call has put none in.
    Absent,
    /// The key has the entry that it had. After a [`Touch`](Compute::Touch) the [`Ref`] still has
    /// the deadline from before. So Redis' `PERSIST` learns whether there was one.
    Kept(Ref<'a, K, V>),
    /// The key has a new value.
    Put {
        /// The new entry; `None` if it has ended again. Another thread may have ended it, or the
        /// listener that this call has called for the old one, or the waker of a task that waits
        /// for [room](ExpiringMap::room); or the map was shut down in the midst of this call.
        is: Option<Ref<'a, K, V>>,
        /// The value that it has replaced.
        was: Option<Removed<'a, K, V>>,
    },
    /// This call has ended the key's entry.
    Removed(Removed<'a, K, V>),
}

impl<K, V> Computed<'_, K, V> {
    /// The value that the closure has seen last.
    #[must_use]
    pub fn was(&self) -> Option<&V> {
        match self {
            Computed::Absent => None,
            Computed::Kept(entry) => Some(entry.value()),
            Computed::Put { was, .. } => was.as_ref().map(Removed::value),
            Computed::Removed(ended) => Some(ended.value()),
        }
    }

    /// The value that the key has after the call.
    #[must_use]
    pub fn is(&self) -> Option<&V> {
        match self {
            Computed::Absent | Computed::Removed(_) => None,
            Computed::Kept(entry) => Some(entry.value()),
            Computed::Put { is, .. } => is.as_ref().map(Ref::value),
        }
    }
}

/// What one attempt has done.
enum Done<'g, 's, K: 'static, V: 'static> {
    Kept,
    Put(Entered<'g, 's, K, V>),
    Removed(Notice<'s, K, V>),
}

impl<'a, K: 'static, V: 'static> Settled<'a, K, V> {
    /// Calls the listener, unpinned.
    fn into_computed(self) -> Computed<'a, K, V> {
        let Settled { store, pin, lent, place, old, closed, .. } = self;
        let admission = &store.engine.admission;
        let is_heard = old.is_some() && !store.removals.is_unheard();
        let tells = closed.is_some() || is_heard || admission.owes();
        // Dropped here if the listener is called, or a waker.
        let pin = (!tells).then_some(pin);
        if tells {
            admission.wake_owed();
        }
        let was = old.map(|ended| store.told(ended, RemovalCause::Replaced));
        if let Some(closed) = closed {
            store.tell(closed, RemovalCause::Closed);
        }
        let is = match pin {
            Some(pin) => Some((lent, pin)),
            None => store.still(place),
        };
        // SAFETY: put in, or found, under the pin.
        let is = is.map(|(lent, pin)| unsafe { Ref::new(store, lent, pin) });
        Computed::Put { is, was }
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// An entry that this thread has put in, if it has not ended since. The caller is unpinned: the
    /// slot may have another occupant by now.
    fn still(&self, place: Place) -> Option<(Lent<K, V>, Pin)> {
        let pin = self.engine.pin();
        let lent = self.at(&pin, place)?.lend();
        let named = self.named(pin, place.id)?;
        Some((lent, named.pin))
    }

    /// Renews this very value; without one, only says whether the time is in range.
    fn touch_this<'g>(
        &self,
        found: Option<Found<'_, K, V>>,
        time: Lifetime,
    ) -> Result<Done<'g, '_, K, V>, Hindered> {
        let Some(found) = found else {
            self.deadline(time)?;
            return Ok(Done::Kept);
        };
        let mut lost = None;
        while let Some(now) = self.still_living(&found) {
            match self.touch_found(&now, &mut lost, time)? {
                Some(true) => return Ok(Done::Kept),
                Some(false) => break,
                None => {}
            }
        }
        Err(Hindered::Overtaken)
    }

    /// Puts the offered value in the place of this very one, which may have been used meanwhile; or
    /// in, if there is none. The lifetime begins now, however long the caller's closure has taken.
    #[inline(always)]
    fn put_over<'g, 's: 'g>(
        &'s self,
        pin: &'g Pin,
        offer: &mut Offer<'s, K, V>,
        found: Sought<'g, K, V>,
        lifetime: Lifetimes,
    ) -> Result<Done<'g, 's, K, V>, Hindered>
    where
        K: Eq,
    {
        offer.weigh().map_err(Hindered::Refused)?;
        let lifetime = self.lifetime(offer, found.as_ref().ok(), lifetime);
        let mine = self.engine.mine(pin);
        let (term, now) = self.term(mine, lifetime)?;
        let entered = match found.map(|found| found.reloaded()) {
            Err(open) => offer.enter((pin, mine), open, term, false)?,
            Ok(same) if self.is_living_at(&same, now) => offer.replace((pin, mine), &same, term)?,
            Ok(_) => return Err(Hindered::Overtaken),
        };
        Ok(Done::Put(entered))
    }
}

impl<K: Hash + Eq, V, S: BuildHasher + 'static> ExpiringMap<K, V, S> {
    /// Does with a key what `decide` says, given the value that the key has and the time that it
    /// has left; as one step, in one look-up. Returns what was, and what is. This is a use of the
    /// entry, if there is one.
    ///
    /// Lock-free. If another thread changes the entry meanwhile, `decide` is called again, and its
    /// last answer counts. So `decide` has no other effect than to assign its result. It runs while
    /// this thread pins the map: keep it short. The listener is called before this returns, while
    /// this thread is unpinned.
    ///
    /// # Errors
    ///
    /// As [`insert_for`](Self::insert_for), where `decide` puts a value;
    /// [`StoreError::Lifetime`](crate::StoreError::Lifetime), where it touches, also where there is
    /// no entry. The [`InsertError`] gives the key back, and the value that was to be put. Nothing
    /// has changed.
    ///
    /// # Examples
    ///
    /// The conditional commands of Redis, one call each:
    ///
    /// ```
    /// use expiry::expiring_map::{Compute, Computed};
    /// use expiry::{ExpiringMap, Lifetime, Lifetimes};
    /// use std::time::Duration;
    ///
    /// const MINUTE: Duration = Duration::from_secs(60);
    /// let map = ExpiringMap::<&str, String>::builder().build()?;
    ///
    /// // SET key value NX EX 60: a lock that one caller gets.
    /// let lock = |owner: &str| {
    ///     map.compute("lock", |held| match held {
    ///         None => Compute::PutFor(owner.to_string(), MINUTE.into()),
    ///         Some(_) => Compute::Keep,
    ///     })
    /// };
    /// assert!(matches!(lock("ada")?, Computed::Put { was: None, .. }));
    /// assert_eq!(lock("bob")?.is().map(String::as_str), Some("ada"));
    ///
    /// // Prolong the lock if it is still ours, and PERSIST.
    /// let touch = |owner, time| {
    ///     map.compute("lock", |held| match held {
    ///         Some(held) if *held == owner => Compute::Touch(time),
    ///         _ => Compute::Keep,
    ///     })
    /// };
    /// touch("ada", MINUTE.into())?;
    /// assert!(map.remaining("lock") <= Some(2 * MINUTE));
    /// touch("ada", Lifetime::Never)?;
    /// assert_eq!(map.remaining("lock"), Some(Duration::MAX));
    ///
    /// // EXPIRE key seconds GT: only to prolong.
    /// map.insert_for("token", "t1".to_string(), MINUTE)?;
    /// let prolong = |time: Duration| {
    ///     map.compute("token", |token| match token {
    ///         Some(token) if token.remaining() < time => Compute::Touch(time.into()),
    ///         _ => Compute::Keep,
    ///     })
    /// };
    /// prolong(MINUTE / 2)?;
    /// assert!(map.remaining("token") > Some(MINUTE / 2));
    /// prolong(5 * MINUTE)?;
    /// assert!(map.remaining("token") > Some(4 * MINUTE));
    ///
    /// // SET key value XX: only where there is a value.
    /// let set = map.compute("page", |page| match page {
    ///     Some(_) => Compute::Put("new".to_string()),
    ///     None => Compute::Keep,
    /// })?;
    /// assert!(matches!(set, Computed::Absent));
    ///
    /// // INCR, which keeps the key's deadline, and refuses what is not a number.
    /// let incr = |key| {
    ///     let mut answer = Ok(0);
    ///     map.compute(key, |text| {
    ///         answer = text.map_or(Ok(0), |text| text.parse::<u64>()).map(|count| count + 1);
    ///         match &answer {
    ///             Ok(n) => Compute::PutFor(n.to_string(), Lifetimes::new().keep()),
    ///             Err(_) => Compute::Keep,
    ///         }
    ///     })?;
    ///     Ok::<_, Box<dyn std::error::Error>>(answer)
    /// };
    /// assert_eq!((incr("visits")?, incr("visits")?), (Ok(1), Ok(2)));
    /// assert!(incr("lock")?.is_err());
    ///
    /// // Give the lock back, if it is still ours.
    /// let free = map.compute("lock", |held| match held {
    ///     Some(held) if *held == "ada" => Compute::Remove,
    ///     _ => Compute::Keep,
    /// })?;
    /// assert_eq!((free.was().map(String::as_str), free.is()), (Some("ada"), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("and_compute_with", "computeIfPresent", "setnx", "incr"))]
    pub fn compute(
        &self,
        key: K,
        mut decide: impl FnMut(Option<Current<'_, K, V>>) -> Compute<V>,
    ) -> Result<Computed<'_, K, V>, InsertError<K, Option<V>>> {
        let mut offer = self.store.offer(self.hash(&key), key, None);
        let mut decided = |old: Option<Current<'_, K, V>>| (decide(old), ());
        let altered = self.alter(&mut offer, &mut decided, Settled::into_computed);
        // What the closure holds, and the key, may panic when they are dropped: here, after the
        // listener was called, and before the result is on its way out.
        match altered {
            Ok((computed, ())) => {
                drop((decide, offer));
                Ok(computed)
            }
            Err(error) => {
                drop(decide);
                Err(InsertError::of(offer.into_parts(), error))
            }
        }
    }

    /// Looks up the offered key, and does with its entry what `decide` says; again, if the entry
    /// has changed by then. Calls the listener, unpinned; of a value that was put, `settle` does.
    /// Returns what the last call of `decide` has returned beside its decision. An entry whose time
    /// is up makes way, and the listener hears of it, unpinned.
    #[inline(always)]
    pub(super) fn alter<'a, R>(
        &'a self,
        offer: &mut Offer<'a, K, V>,
        decide: &mut impl FnMut(Option<Current<'_, K, V>>) -> (Compute<V>, R),
        settle: impl FnOnce(Settled<'a, K, V>) -> Computed<'a, K, V>,
    ) -> Result<(Computed<'a, K, V>, R), StoreError> {
        let store = &*self.store;
        let mut has_invalidated = false;
        loop {
            // Before the look-up.
            let may_load = !has_invalidated && self.flights.are_there();
            let (likely, pin) = (offer.likely(), store.engine.pin());
            let sought = store.find_or_open(&pin, offer.wanted(likely));
            let found = sought.ok();
            match found {
                Some(found) if !store.is_living(&found) => {
                    let notice = store.make_way(&pin, &found);
                    drop(pin);
                    if let Some(notice) = notice {
                        notice.tell();
                    }
                    continue;
                }
                Some(found) if !self.use_found(&found) => continue,
                _ => {}
            }
            let (deed, result) = decide(found.map(|found| Current::new(store, &found)));
            if may_load && deed.changes_value() {
                drop(pin);
                self.invalidate_load(offer.key());
                has_invalidated = true;
                continue;
            }
            let mut put = |value, lifetime| {
                offer.replace_value(Some(value));
                store.put_over(&pin, offer, sought, lifetime)
            };
            let done = match deed {
                Compute::Keep => match found {
                    Some(found) if !store.note_read(&found) => Err(Hindered::Overtaken),
                    _ => Ok(Done::Kept),
                },
                Compute::Put(value) => put(value, Lifetimes::new()),
                Compute::PutFor(value, lifetime) => put(value, lifetime),
                Compute::Touch(time) => store.touch_this(found, time),
                Compute::Remove => match found.map(|found| store.remove_this(&pin, &found)) {
                    None => Ok(Done::Kept),
                    Some(Some(notice)) => Ok(Done::Removed(notice)),
                    Some(None) => Err(Hindered::Overtaken),
                },
            };
            let computed = match done {
                Ok(Done::Kept) if offer.has_room() => {
                    drop(pin);
                    offer.give_up_room();
                    continue;
                }
                Ok(Done::Kept) => match found.map(|found| found.lend()) {
                    None => Computed::Absent,
                    // SAFETY: found under the pin.
                    Some(lent) => Computed::Kept(unsafe { Ref::new(store, lent, pin) }),
                },
                Ok(Done::Put(Entered { new, old, closed })) => {
                    let (lent, place) = (new.lend(), new.place());
                    settle(Settled { store, pin, lent, place, old, closed, refused: None })
                }
                Ok(Done::Removed(notice)) => {
                    drop(pin);
                    Computed::Removed(notice.told())
                }
                Err(hindered) => {
                    drop(pin);
                    offer.resolve(hindered, store)?;
                    // Here, unpinned: its `Drop` is the user's code.
                    drop(offer.replace_value(None));
                    continue;
                }
            };
            return Ok((computed, result));
        }
    }
}
