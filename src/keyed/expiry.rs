//! A policy that decides how long each entry lives.
//!
//! A call asks the policy while it is pinned, between its look at an entry and the swap that acts
//! on the entry. If another thread changes the lease in between, the swap fails, and the call asks
//! again. So `updated` gets the time left of the lease that this replacement ends.

use super::idle::Term;
use super::living::Replaces;
use super::store::{Found, Mine, Offer, Store};
use super::Lifetimes;
use crate::core::engine::BadTimeout;
use crate::core::lease::Lease;
use crate::time::{Lifetime, NEVER};
use std::time::Duration;

/// Decides how long each entry of an [`ExpiringMap`](crate::ExpiringMap) lives: see
/// [`expiry`](crate::ExpiringMapBuilder::expiry) of its builder.
///
/// A call without a lifetime of its own asks it. `left` is how long the entry would live from now,
/// rounded up as by [`remaining`](crate::ExpiringMap::remaining); [`Duration::MAX`] is for ever.
///
/// | asked | by |
/// |---|---|
/// | [`created`](Self::created) | a call that puts in an entry of a key that has none, or whose entry has expired |
/// | [`updated`](Self::updated) | a call that puts a value in another one's place; [`touch`](crate::ExpiringMap::touch), `touch_many` and [`Compute::Touch`](crate::expiring_map::Compute::Touch) by the default lifetime |
/// | [`read`](Self::read) | `get` and what is made of it, also of a [`Guard`](crate::expiring_map::Guard); [`entry`](crate::ExpiringMap::entry), `or_insert`, loads and [`load`](crate::ExpiringMap::load) that find a value; [`Compute::Keep`](crate::expiring_map::Compute::Keep) |
///
/// None is asked by the `_for` calls, by what `load` puts in, or by looks that are no use of an
/// entry: `peek`, `contains_key`, `iter`. [`Lifetimes::keep`] given to a call keeps what is there.
/// `_for` calls with [`Lifetime::Default`] ask.
///
/// The methods run while the thread pins the map: keep them short, and let them take no lock that
/// a thread holds while it calls the map. A call asks again if another thread changes the entry
/// meanwhile, or if the map has to make room; the last answer counts. A panic goes on to the
/// caller, and the map is as it was.
///
/// ```
/// use expiry::{ExpiringMap, Expiry, Lifetime, Lifetimes, ManualClock};
/// use std::time::Duration;
///
/// /// A session may go unused for as long as it says. An update does not prolong it.
/// struct AsItSays;
///
/// impl Expiry<&str, Duration> for AsItSays {
///     fn created(&self, _: &&str, unused: &Duration) -> Lifetimes {
///         Lifetimes::from(*unused)
///     }
///     fn updated(&self, _: &&str, _: &Duration, _left: Duration) -> Lifetimes {
///         Lifetimes::new().keep()
///     }
///     fn read(&self, _: &&str, unused: &Duration, left: Duration) -> Option<Lifetime> {
///         (left < *unused).then_some(Lifetime::After(*unused))
///     }
/// }
///
/// let clock = ManualClock::new();
/// let sessions = ExpiringMap::builder().expiry(AsItSays).clock(clock.clone()).build_manual()?;
/// let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
/// sessions.insert("guest", minute)?;
/// sessions.insert("ada", hour)?;
/// clock.advance(minute / 2);
/// assert!(sessions.get("guest").is_some()); // a minute from now
/// clock.advance(minute * 3 / 4);
/// assert!(sessions.get("guest").is_some());
/// clock.advance(minute * 2);
/// assert!(sessions.get("guest").is_none() && sessions.get("ada").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[allow(unused_variables)] // of the defaults
pub trait Expiry<K, V>: Send + Sync {
    /// How long a new entry lives. By default as the builder says, which is also what
    /// [`Lifetime::Default`] stands for in an answer.
    ///
    /// A lifetime that is zero or too long refuses the insertion, with the error that
    /// [`insert_for`](crate::ExpiringMap::insert_for) has for it.
    fn created(&self, key: &K, value: &V) -> Lifetimes {
        Lifetimes::new()
    }

    /// How long an entry lives that gets this new value, or is touched. By default as a
    /// [created](Self::created) one. `Lifetimes::new().keep()` leaves its deadline as it is.
    ///
    /// An answer out of range refuses a replacement, as above, and a
    /// [`touch_for`](crate::ExpiringMap::touch_for). A [`touch`](crate::ExpiringMap::touch) returns
    /// `false` then. A touch leaves the time to idle as it is, and begins it anew.
    fn updated(&self, key: &K, value: &V, left: Duration) -> Lifetimes {
        self.created(key, value)
    }

    /// How long an entry lives that is read. By default, and for `None`, as long as without the
    /// read. Where the answer changes the deadline, which it does once in an interval at most, the
    /// read costs a touch. An answer that is zero or too long changes nothing.
    ///
    /// A time to idle begins anew in any case, and before this is asked.
    fn read(&self, key: &K, value: &V, left: Duration) -> Option<Lifetime> {
        None
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// How long an entry with this lease lives from now, unless it is used.
    pub(super) fn left(&self, lease: Lease) -> Duration {
        let deadlines = &self.engine.deadlines;
        deadlines.left(lease, deadlines.now_for_look())
    }

    /// How long an offered entry lives, by the given lifetime, or by what the policy says. It is to
    /// take the place of `old`, if there is one.
    #[inline(always)]
    pub(super) fn lifetime(
        &self,
        offer: &Offer<'_, K, V>,
        old: Option<&Found<'_, K, V>>,
        given: Lifetimes,
    ) -> Lifetimes {
        match &self.expiry {
            Some(expiry) => self.ask(&**expiry, offer.pair(), old, given),
            None => given,
        }
    }

    #[cold]
    #[inline(never)]
    fn ask(
        &self,
        expiry: &dyn Expiry<K, V>,
        (key, value): (&K, &V),
        old: Option<&Found<'_, K, V>>,
        given: Lifetimes,
    ) -> Lifetimes {
        let says_nothing = (given.live, given.idle) == (Lifetime::Default, Lifetime::Default);
        match old {
            _ if !says_nothing => given,
            None => expiry.created(key, value),
            Some(_) if given.keeps => given,
            Some(old) => expiry.updated(key, value, self.left(old.lease)),
        }
    }

    /// The [`term`](Self::term) of an insertion that has `found` this entry. It asks the policy,
    /// unless the insertion puts nothing in.
    pub(super) fn term_asking(
        &self,
        mine: &Mine,
        offer: &Offer<'_, K, V>,
        found: Option<&Found<'_, K, V>>,
        (given, replaces): (Lifetimes, Replaces),
    ) -> Result<(Term, u64), BadTimeout> {
        let now = self.engine.deadlines.now_for_look();
        let lifetime = match found {
            // By this reading the found entry's time is up: it makes way.
            Some(found) if !self.is_living_at(found, now) => return Ok((Term::until(NEVER), now)),
            Some(found) if !replaces.takes(found) => given,
            _ => self.lifetime(offer, found, given),
        };
        self.term(mine, lifetime)
    }

    /// An entry is read: the policy, if any, says how long it lives then. False if it has ended.
    #[inline(always)]
    pub(super) fn note_read(&self, found: &Found<'_, K, V>) -> bool {
        match &self.expiry {
            Some(expiry) => self.ask_of_read(&**expiry, *found),
            None => true,
        }
    }

    #[cold]
    #[inline(never)]
    fn ask_of_read(&self, expiry: &dyn Expiry<K, V>, found: Found<'_, K, V>) -> bool {
        // `note_use` may have changed the lease.
        let Some(mut found) = self.still_living(&found) else {
            return false;
        };
        let (key, value) = found.pair();
        let Some(time) = expiry.read(key, value, self.left(found.lease)) else {
            return true;
        };
        let mut lost = None;
        loop {
            match self.touch_by(&found, &mut lost, Some(time)) {
                Ok(Some(alive)) => return alive,
                Err(_) => return true,
                Ok(None) => match self.still_living(&found) {
                    Some(now) => found = now,
                    None => return false,
                },
            }
        }
    }

    /// How long an entry lives that is touched now; `None`: its deadline stays.
    pub(super) fn touched_for(&self, found: &Found<'_, K, V>, given: Lifetime) -> Option<Lifetime> {
        match &self.expiry {
            Some(expiry) if given == Lifetime::Default => {
                let (key, value) = found.pair();
                let says = expiry.updated(key, value, self.left(found.lease));
                (!says.keeps).then_some(says.live)
            }
            _ => Some(given),
        }
    }
}
