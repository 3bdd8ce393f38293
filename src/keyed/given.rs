//! Where entries go that a queue, a session tracker, or a map of pending values has ended: to a
//! listener, a channel, a poll, or the caller of a shutdown.

use super::idle::Term;
use super::removed::EndedSlot;
use super::store::{
    Entered, Found, Hindered, Keyed, Life, Named, Offer, Pair, Place, RemovalCause, Store,
};
use super::{StoreError, StoreMetrics};
use crate::core::engine::{BadTimeout, DueBlock, Pin};
use crate::core::occupancy::Ended;
use crate::kit::lifecycle::{shut, Leftovers, Reaping, Shut};
use crate::kit::polled::Polled;
use crate::kit::target::Target;
use crate::time::Lifetime;
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// An entry that the caller has ended.
pub(super) type Gone<'a, K, V> = EndedSlot<&'a Store<K, V>, K, V>;

/// What a poll, a channel and a shutdown give of an entry that has ended.
pub(super) trait Item<K: 'static, V: 'static>: Sized {
    /// Is called with each entry that expires.
    type Listener: ?Sized;
    /// What a shutdown drops of an entry that no caller wants, at no shard.
    type Rest;
    /// What the store type's handles share beside this.
    type Extra;

    /// Whether an entry that no thread hears of has a value, which the ending thread drops.
    const HAS_VALUE: bool;

    /// Makes it of an ended entry, which was due at the tick `deadline`.
    fn of(
        shared: &Shared<K, V, Self>,
        gone: Gone<'_, K, V>,
        cause: RemovalCause,
        deadline: u64,
    ) -> Self;

    /// Calls the listener, or without one drops the value. The caller catches a panic.
    fn tell(shared: &Shared<K, V, Self>, gone: Gone<'_, K, V>, listener: Option<&Self::Listener>);

    fn rest(shared: &Shared<K, V, Self>, gone: Gone<'_, K, V>) -> Self::Rest;
}

/// What the handles share with the reaper.
pub(super) struct Shared<K: 'static, V: 'static, E: Item<K, V>> {
    /// Items that are still there keep the store, but not the target that they may lie in.
    pub(super) store: Arc<Store<K, V>>,
    /// Where expired entries go, unless a poll has found them.
    pub(super) target: Target<E, E::Listener>,
    /// What a shutdown has ended and has yet to return.
    pub(super) kept: Leftovers<E>,
    pub(super) extra: E::Extra,
}

impl<K: 'static, V: 'static, E: Item<K, V>> Shared<K, V, E> {
    pub(super) fn new(
        store: Store<K, V>,
        target: Target<E, E::Listener>,
        extra: E::Extra,
    ) -> Arc<Self> {
        Arc::new(Shared { store: Arc::new(store), target, kept: Leftovers::new(), extra })
    }

    /// Puts the offered entry in, unless its key has one: then returns what `there` makes of that
    /// entry, and asks `there` again until it makes something. Otherwise returns what `new` makes
    /// of the new entry's place and deadline; and of the entry, if the call has ended it again,
    /// because the store is shut down.
    #[inline(always)]
    pub(super) fn add<'s, R>(
        &'s self,
        offer: &mut Offer<'s, K, V>,
        timeout: Lifetime,
        there: impl Fn(&Found<'_, K, V>, &mut Option<Life>) -> Result<Option<R>, BadTimeout>,
        new: impl FnOnce(Place, u64, Option<Gone<'s, K, V>>) -> R,
    ) -> Result<R, StoreError>
    where
        K: Eq,
    {
        let (store, mut lost) = (&*self.store, None);
        loop {
            let (likely, pin) = (offer.likely(), store.engine.pin());
            let hindered = match store.find_or_open(&pin, offer.wanted(likely)) {
                Ok(found) => match there(&found, &mut lost) {
                    Ok(Some(made)) => return Ok(made),
                    Ok(None) => Hindered::Overtaken,
                    Err(bad) => bad.into(),
                },
                Err(open) => {
                    let (mine, deadlines) = (store.engine.mine(&pin), &store.engine.deadlines);
                    // The clock is read for each attempt: what went before may take its time.
                    let times = deadlines.deadline(&mine.deadlines, timeout, store.timeout);
                    let entered = times.map_err(Hindered::from).and_then(|(deadline, _)| {
                        let term = Term::until(deadline);
                        Ok((offer.enter((&pin, mine), open, term, false)?, deadline))
                    });
                    match entered {
                        Err(hindered) => hindered,
                        Ok((Entered { new: entry, closed, .. }, deadline)) => {
                            let place = entry.place();
                            drop(pin);
                            return Ok(new(place, deadline, closed));
                        }
                    }
                }
            };
            drop(pin);
            offer.resolve(hindered, self)?;
        }
    }

    /// The entry that has expired in this slot, which the caller has ended.
    fn expired(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>, deadline: u64) -> E {
        let cause = RemovalCause::Expired;
        E::of(self, self.store.ended_by_driver(dead, named, cause), cause, deadline)
    }

    /// Ends what is due, and appends it to `into` unless there is a listener or a channel.
    pub(super) fn poll_into(&self, into: &mut Vec<E>, budget: usize) -> Polled {
        let (before, engine) = (into.len(), &self.store.engine);
        let Some(lapsed) = self.target.lapsed() else {
            return engine.poll_shared(budget, self, || false);
        };
        into.extend(lapsed);
        let poll = Poll { shared: self, into: RefCell::new(into) };
        engine.poll_shared(budget, &poll, || poll.into.borrow().len() > before)
    }

    /// How long until there is something to poll: what is due, or what another call than a poll has
    /// ended.
    pub(super) fn wait_time(&self) -> Option<Duration> {
        if self.target.has_lapsed() {
            return Some(Duration::ZERO);
        }
        self.store.engine.wait_time()
    }

    pub(super) fn metrics(&self) -> StoreMetrics {
        let (spilled, undelivered) = self.target.astray();
        StoreMetrics { spilled, undelivered, ..self.store.metrics() }
    }
}

impl<K: 'static, V: 'static, E: Item<K, V>> Keyed<K, V> for Shared<K, V, E> {
    fn store(&self) -> &Store<K, V> {
        &self.store
    }

    fn reports_to_user(&self) -> bool {
        E::HAS_VALUE || !matches!(self.target, Target::Unheard)
    }

    fn report(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>, deadline: u64) {
        let listener = match &self.target {
            Target::Poll(stack) => return stack.push(self.expired(dead, named, deadline)),
            Target::Channel(sender) => {
                return sender.send(&self.store.panics, self.expired(dead, named, deadline));
            }
            Target::Unheard if !E::HAS_VALUE => return self.store.expired_unheard(dead, named),
            Target::Unheard => None,
            Target::Listener(listener) => Some(&**listener),
        };
        let gone = self.store.ended_by_driver(dead, named, RemovalCause::Expired);
        self.store.guard(|| E::tell(self, gone, listener));
    }

    fn close_all(&self) {
        let wanted = self.kept.is_wanted();
        let mut unwanted = Vec::new();
        let closed = self.store.close_with(|gone| {
            if wanted {
                let deadline = self.store.engine.deadlines.of(gone.lease());
                self.kept.push(E::of(self, gone, RemovalCause::Closed, deadline));
            } else {
                unwanted.push(E::rest(self, gone));
            }
        });
        unwanted.into_iter().for_each(|value| self.store.discard(value));
        // The channel last: an entry may expire until its shard is closed.
        if closed {
            self.target.finish();
        }
    }
}

impl<K: 'static, V: 'static, E: Item<K, V>> Shut for Shared<K, V, E> {
    fn shut(&self, reaper: Option<&Reaping>) {
        self.target.close();
        shut(&self.store.engine, reaper, self);
    }
}

/// A driver's round that gives the items it finds to `into`, under a pin.
struct Poll<'a, K: 'static, V: 'static, E: Item<K, V>> {
    shared: &'a Shared<K, V, E>,
    into: RefCell<&'a mut Vec<E>>,
}

impl<K: 'static, V: 'static, E: Item<K, V>> Keyed<K, V> for Poll<'_, K, V, E> {
    fn store(&self) -> &Store<K, V> {
        &self.shared.store
    }

    fn reports_to_user(&self) -> bool {
        false
    }

    fn end_together(&self, pin: &Pin, due: &mut DueBlock<'_, Pair<K, V>>) {
        let mut into = self.into.borrow_mut();
        self.shared.store.end_due(pin, due, |gone, deadline| {
            into.push(E::of(self.shared, gone, RemovalCause::Expired, deadline));
        });
    }

    fn report(&self, dead: Ended<'_, Pair<K, V>>, named: Named<'_>, deadline: u64) {
        let item = self.shared.expired(dead, named, deadline);
        self.into.borrow_mut().push(item);
    }

    fn close_all(&self) {
        self.shared.close_all();
    }
}
