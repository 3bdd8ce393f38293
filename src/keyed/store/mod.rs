//! The store under maps, queues and sessions.
//!
//! An entry is one slot: a lease, and key and value beside it. Each sequence of its protocol
//! (`docs/design.md`, "Life of an entry") stands once:
//!
//! | module | sequence |
//! |---|---|
//! | [`lookup`] | [`find`](Store::find): from a key to its slot |
//! | [`enter`] | [`enter`](Offer::enter): an entry of a key that has none |
//! | | [`replace`](Offer::replace): a new value for a key that has one |
//! | [`renew`] | [`renew`](Store::renew): a later deadline |
//! | [`ends`] | [`end`](Store::end): the end of an entry, and the listener |
//! | [`evict`] | [`evict`](Store::evict): the end of an entry for which there is no room |
//! | [`free`] | what becomes of the slot afterwards |
//! | [`close`] | the shutdown |
//! | [`driver`] | what the driver asks of the store |
//! | [`walk`] | [`each`](Store::each): all entries, each key once |
//!
//! Under a pin these run no code of the user's but a key's `Eq`, the clock, a weigher, and what
//! [`each`](Store::each) is given. A caller unpins before it calls the listener.

mod close;
mod driver;
mod ends;
mod enter;
mod evict;
mod free;
mod lookup;
mod renew;
mod walk;
mod weigh;

pub(super) use driver::Keyed;
pub(crate) use driver::Named;
pub(super) use ends::Listener;
pub use ends::RemovalCause;
pub(super) use enter::{Entered, Hindered, Offer};
pub(super) use evict::Eviction;
pub use evict::EvictionPolicy;
pub(super) use lookup::{Sought, Spotted, Wanted};
pub(super) use renew::Life;
pub(crate) use renew::Touched;
pub(super) use walk::Walk;
pub(super) use weigh::Weigher;

use super::idle::Policy;
use super::removals::Removals;
use super::Expiry;
use crate::core::engine::{Engine, Pin, Stripe};
use crate::core::index::Sighting;
use crate::core::lease::{set, Lease, State};
use crate::core::occupancy::Occupant;
use crate::core::shards::Shards;
use crate::core::threads::Counter;
use crate::core::value::Owned;
use crate::error::BuildError;
use crate::kit::panics::Panics;
use crate::kit::setup::Setup;
use crate::kit::target::Target;
use crate::sync::Ordering;
use crate::time::nanos;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The states of an entry that has not ended.
pub(super) const HELD: u16 =
    LIVING | set(&[State::Closing, State::Lapsed, State::Withheld, State::WithheldIdle]);

/// The states of an entry that a look-up finds, if its time is not up.
pub(in crate::keyed) const LIVING: u16 = set(&[State::Live, State::LiveIdle]);

/// The payload of a keyed slot: key and value. The word beside it is the key's hash. Its term is
/// the policy of a time to idle.
pub(crate) type Pair<K, V> = Owned<(K, V), Policy>;

/// One shard's part of a thread's counters.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counts {
    pub(crate) inserted: Counter,
    /// Replacements of entries whose old slot, and whose new slot, is in this shard.
    pub(crate) replaced: Counter,
    pub(crate) replacing: Counter,
    pub(crate) removed: Counter,
    pub(crate) evicted: Counter,
    pub(crate) expired: Counter,
    pub(crate) closed: Counter,
    /// Keys put into, and taken out of, the index of this shard, as a difference.
    pub(crate) keys: Counter,
}

/// A thread's part of the store's counters.
pub(crate) struct Share {
    pub(crate) counts: Shards<Counts>,
    pub(crate) lookups: Lookups,
}

/// A thread's look-ups and loads.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) loads: Counter,
    pub(crate) failed_loads: Counter,
}

pub(super) type Mine = Stripe<Share>;

/// Names one entry: a slot, its generation, and the key's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) id: u32,
    pub(crate) generation: u32,
    pub(crate) hash: u32,
}

/// An entry that a look-up has found, with the lease that it had then. It borrows the look-up's
/// pin: until that is dropped the slot has no other occupant, whatever becomes of the entry (I4).
pub(super) struct Found<'g, K: 'static, V: 'static> {
    pub(super) seen: Occupant<'g, Pair<K, V>>,
    pub(super) hash: u32,
    /// The index's word for it, if this thread has seen that.
    pub(super) word: Option<Sighting<'g>>,
}

/// What a [`Found`] lends to a reference that has the pin itself.
pub(super) struct Lent<K, V> {
    pub(super) pair: NonNull<(K, V)>,
    pub(super) lease: Lease,
}

impl<K, V> Clone for Found<'_, K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for Found<'_, K, V> {}

impl<'g, K: 'static, V: 'static> std::ops::Deref for Found<'g, K, V> {
    type Target = Occupant<'g, Pair<K, V>>;

    #[inline(always)]
    fn deref(&self) -> &Occupant<'g, Pair<K, V>> {
        &self.seen
    }
}

impl<'g, K: 'static, V: 'static> Found<'g, K, V> {
    /// The index named the slot under this pin, or the pinned thread has put the entry in.
    #[inline(always)]
    fn under(
        _pin: &'g Pin,
        seen: Occupant<'g, Pair<K, V>>,
        hash: u32,
        word: Option<Sighting<'g>>,
    ) -> Self {
        Found { seen, hash, word }
    }

    pub(super) fn place(&self) -> Place {
        Place { id: self.id, generation: self.lease.generation(), hash: self.hash }
    }

    /// Whether it had ended when its lease was loaded.
    pub(super) fn has_ended(&self) -> bool {
        !self.lease.is_in(HELD)
    }

    /// The entry as it is now.
    pub(super) fn reloaded(&self) -> Self {
        let lease = self.slot.lease();
        Found { seen: Occupant { lease, ..self.seen }, ..*self }
    }

    /// Key, value and lease, for a [`Ref`](crate::Ref), which has the pin itself.
    #[inline(always)]
    pub(super) fn lend(&self) -> Lent<K, V> {
        Lent { pair: NonNull::from(self.pair()), lease: self.lease }
    }

    #[inline(always)]
    pub(super) fn pair(&self) -> &'g (K, V) {
        // SAFETY: it was published under the pin, for which it stays in its slot.
        unsafe { self.slot.value() }
    }
}

pub(crate) struct Store<K: 'static, V: 'static> {
    pub(crate) engine: Engine<Pair<K, V>, Share>,
    /// The default timeout in nanoseconds; `None`: for ever.
    pub(super) timeout: Option<u64>,
    /// The default time to idle in nanoseconds, if there is one.
    pub(super) idle: Option<u64>,
    /// Set by the builder of a map. The other store types report themselves.
    pub(super) removals: Removals<K, V>,
    /// Set by the builder of a map that evicts when it is full.
    pub(in crate::keyed) eviction: Option<Eviction>,
    /// Set by the builder of a map whose bound is a weight.
    pub(in crate::keyed) weigher: Option<Weigher<K, V>>,
    /// The nanoseconds of its time to live that an entry has left when it is due for a reload. Set
    /// by the builder of a map that reloads.
    pub(super) reloads_with: Option<u64>,
    /// Set by the builder of a map that counts its look-ups.
    pub(super) counts_lookups: bool,
    /// Set by the builder of a map that decides for each entry.
    pub(super) expiry: Option<Arc<dyn Expiry<K, V>>>,
    /// Whether it counts look-ups, or has a policy to ask.
    pub(super) handles_hits: bool,
    /// Whether the `Drop` of an ended entry does something, if it has one. Unset by the builder of
    /// a session tracker that lends no tokens.
    pub(in crate::keyed) drops: bool,
    /// Panics of the listener that were caught.
    pub(crate) panics: Panics,
    /// Panics of keys' and values' `Drop` that were caught.
    pub(crate) drop_panics: Panics,
    /// The store may be shared between threads as far as keys and values may.
    _pairs: std::marker::PhantomData<(K, V)>,
}

impl<K: 'static, V: 'static> Store<K, V> {
    pub(super) fn build(
        setup: &Setup,
        timeout: Option<Duration>,
        idle: Option<Duration>,
    ) -> Result<Self, BuildError>
    where
        K: Send + Sync,
        V: Send + Sync,
    {
        // The shorter one first: the default interval is made for it.
        let mut timeouts: Vec<_> = timeout.into_iter().chain(idle).collect();
        timeouts.sort_unstable();
        let (config, _) = setup.config(&timeouts)?;
        let share =
            |shards| Share { counts: Shards::defaults(shards), lookups: Lookups::default() };
        Ok(Store {
            engine: Engine::new(config, share).map_err(|_| BuildError::OutOfMemory)?,
            timeout: timeout.map(nanos),
            idle: idle.map(nanos),
            removals: Removals { target: Target::Unheard, store: Weak::new() },
            eviction: None,
            weigher: None,
            reloads_with: None,
            counts_lookups: false,
            expiry: None,
            handles_hits: false,
            drops: true,
            panics: Panics::default(),
            drop_panics: Panics::default(),
            _pairs: std::marker::PhantomData,
        })
    }

    #[inline(always)]
    pub(super) fn count<'m>(&self, mine: &'m Mine, id: u32) -> &'m Counts {
        &mine.frontend.counts[self.engine.shard_of(id)]
    }

    /// The count of keys of the shard whose index has this hash.
    #[inline(always)]
    fn keys<'m>(&self, mine: &'m Mine, hash: u32) -> &'m Counter {
        &mine.frontend.counts[self.engine.keys.shard_of_hash(hash)].keys
    }

    /// Counts a look-up or a load, if the map counts them.
    #[inline(always)]
    pub(super) fn note_lookup(&self, pin: &Pin, of: impl FnOnce(&Lookups) -> &Counter) {
        if self.counts_lookups {
            of(&self.engine.mine(pin).frontend.lookups).add(1);
        }
    }

    /// Counts a look-up that found this entry, and asks the policy, in a map that does. Returns
    /// `false` if the entry has ended meanwhile.
    #[inline(always)]
    pub(super) fn note_hit(&self, pin: &Pin, found: &Found<'_, K, V>) -> bool {
        if !self.handles_hits {
            return true;
        }
        let is_hit = self.note_read(found);
        if is_hit {
            self.note_lookup(pin, |lookups| &lookups.hits);
        }
        is_hit
    }

    pub(super) fn lookups(&self, of: impl Fn(&Lookups) -> &Counter) -> u64 {
        self.engine.stripes().map(|share| of(&share.lookups).get()).sum()
    }

    /// The hash of the key in a slot that is in use.
    #[inline]
    fn hash_of(&self, id: u32) -> u32 {
        self.engine.slots.note(id).map_or(0, |note| note.load(Ordering::Relaxed))
    }

    /// Number of entries now; an approximation while others come and go.
    pub(crate) fn len(&self) -> usize {
        self.engine.len(self)
    }
}
