//! Thin shells around single parts of the core, for the loom models in `loom-tests`: what runs is
//! the real code. Only with `--cfg expiry_loom`.

use crate::core::header::Lowered;
use crate::core::inbox::{Inbox, Taken};
use crate::core::index::{Glance, Index as Inner, Insert, Removed, Sighting};
use crate::core::lease::{Lease, State};
use crate::core::params;
use crate::core::pins::{Pin, Pins, Wait};
use crate::core::slot::fields;
use crate::core::slots::{Released, Slots};
#[cfg(feature = "async")]
use crate::kit::channel::{channel, Receiver, Sender, WhenFull};
#[cfg(feature = "async")]
use crate::kit::panics::Panics;
use crate::sync::exclusive::Exclusive as Flagged;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// From here on, and until this is called again, a thread steps back for another one at each named
/// step of the code (`sync::step`) for which `stops` returns true.
pub fn stop_at(stops: impl Fn(&'static str) -> bool + 'static) {
    crate::sync::steps::stop_at(stops);
}

/// Slots in a block.
pub const BLOCK: u32 = params::BLOCK as u32;
/// Slots in a chunk.
pub const CHUNK: u32 = params::CHUNK as u32;

/// What became of [`Index::insert`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inserted {
    /// It is published.
    Done,
    /// `accept` took a slot that was there.
    Found,
    /// No larger table is to be had.
    Full,
    /// Too many keys share the hash.
    Alike,
}

/// An index by itself.
pub struct Index(Inner, Pins);

impl Index {
    /// An index with one table of the smallest class.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Index(Inner::new().expect("memory for a small table"), Pins::new())
    }

    /// Publishes `slot` under `hash` unless `accept` takes one that is there.
    pub fn insert(&self, hash: u32, slot: u32, mut accept: impl FnMut(u32) -> bool) -> Inserted {
        let mut crowded = false;
        match self.0.insert(&self.1.pin(), hash, slot, &mut crowded, &mut accept) {
            Insert::Done => Inserted::Done,
            Insert::Found => Inserted::Found,
            Insert::Full => Inserted::Full,
            Insert::Alike => Inserted::Alike,
        }
    }

    /// [`insert`](Self::insert) as an init does it: in the home, if that is simple.
    pub fn init(&self, hash: u32, slot: u32, accept: impl FnMut(u32) -> bool) -> Inserted {
        if self.0.insert_simply(&self.1.pin(), hash, slot) {
            return Inserted::Done;
        }
        self.insert(hash, slot, accept)
    }

    /// What `look` sees in the slot of the candidate under `hash`, if one is believed afterwards.
    pub fn candidate<R>(&self, hash: u32, look: impl FnOnce(u32) -> R) -> Option<R> {
        let candidate = self.0.candidate(hash)?;
        let seen = look(candidate.slot());
        candidate.is_believed().then_some(seen)
    }

    /// Whether a glance shows that nothing is under `hash`.
    pub fn is_absent(&self, hash: u32) -> bool {
        matches!(self.0.glance(hash), Glance::Absent(()))
    }

    /// What a pinned thread's glance shows under `hash`: a slot, nothing, or neither (`None`).
    pub fn glance_pinned(&self, hash: u32) -> Option<Option<u32>> {
        let likely = self.0.likely(hash);
        let pin = self.1.pin();
        let glance = match likely.glance(&pin) {
            Glance::Unclear => self.0.glance_pinned(&pin, hash),
            glance => glance,
        };
        match glance {
            Glance::There(seen) => Some(Some(seen.slot())),
            Glance::Absent(_) => Some(None),
            Glance::Unclear => None,
        }
    }

    /// The first slot under `hash` that `accept` takes.
    pub fn find(&self, hash: u32, mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        self.0.find(hash, &mut accept)
    }

    /// The slots that a walk meets.
    #[must_use]
    pub fn walk(&self) -> Vec<u32> {
        let (mut place, mut met) = (0, Vec::new());
        loop {
            let mut slots = Vec::new();
            let pin = self.1.pin();
            if !self.0.next(&pin, &mut place, &mut slots, drop) {
                return met;
            }
            met.append(&mut slots);
        }
    }

    /// Takes the word of a slot away. True if a copy may be on its way, so that the slot must rest.
    pub fn remove(&self, hash: u32, slot: u32) -> bool {
        self.0.remove_at(&self.1.pin(), hash, slot, None) == Removed::Copied
    }

    /// [`remove`](Self::remove) by a thread that has found the slot by its candidate.
    pub fn remove_found(&self, hash: u32, slot: u32) -> bool {
        let candidate = self.0.candidate(hash);
        let found = candidate.filter(|candidate| candidate.slot() == slot);
        let position = found.map(|candidate| candidate.position());
        self.0.remove_at(&self.1.pin(), hash, slot, position) == Removed::Copied
    }

    /// Installs a successor of twice the size.
    pub fn grow(&self) -> bool {
        self.0.grow_if_full(u64::from(u32::MAX))
    }

    /// Installs the smallest successor.
    pub fn shrink(&self) -> bool {
        self.0.shrink_if_empty(|| 0)
    }

    /// One round of the migrating thread. True if more is to do.
    pub fn migrate(&self, budget: usize) -> bool {
        self.migrate_forwarded(budget, |slot| slot)
    }

    /// [`migrate`](Self::migrate), where slots are forwarded as `tail` says.
    pub fn migrate_forwarded(&self, mut budget: usize, tail: impl Fn(u32) -> u32) -> bool {
        let copier = self.1.copier();
        copier.is_some_and(|copier| self.0.migrate(&copier, &mut budget, tail))
    }

    /// Makes the word that leads to `target` name it, unless `target` is no longer live. `seen` is
    /// what the forwarded slot's word looked like to a caller that has been pinned since.
    pub fn swing(
        &self,
        hash: u32,
        seen: Option<Seen<'_>>,
        target: u32,
        tail: impl Fn(u32) -> u32,
        is_live: impl Fn() -> bool,
    ) {
        self.0.swing(&self.1.pin(), hash, seen.map(|seen| seen.0), target, tail, is_live);
    }

    /// The word of this slot, if it is the likeliest one under `hash`.
    pub fn seen(&self, pin: &Pinned, hash: u32, slot: u32) -> Option<Seen<'_>> {
        self.0.sight(&pin.0, hash, slot).map(Seen)
    }

    /// Takes the word away that leads to a slot. `seen` is the slot's own, if the caller saw it.
    pub fn remove_forwarded(
        &self,
        hash: u32,
        slot: u32,
        seen: Option<Seen<'_>>,
        tail: impl Fn(u32) -> u32,
    ) {
        let leads = |id| tail(id) == slot;
        self.0.remove(&self.1.pin(), hash, slot, seen.map(|seen| seen.0), leads);
    }

    /// Lets grace periods end. True if one is still running.
    pub fn turn(&self) -> bool {
        self.0.turn(|| self.1.turn())
    }

    /// Pins this thread: no slot that it finds is freed while the result lives.
    pub fn pin(&self) -> Pinned {
        Pinned(self.1.pin())
    }

    /// Gathers a slot whose word is out of the index, and begins its wait. `None` while a thread
    /// copies words.
    #[must_use]
    pub fn retire(&self) -> Option<Retired> {
        self.1.gather(|| ()).map(|()| Retired(Wait::begin(&self.1.pin())))
    }

    /// Lets grace periods end, for all deferred calls that wait.
    pub fn advance(&self) {
        self.1.turn();
    }

    /// Lets a grace period end. Returns whether no thread can be looking at the slot any more.
    pub fn is_over(&self, retired: &Retired) -> bool {
        self.advance();
        retired.is_over()
    }

    /// How many tables are listed.
    #[must_use]
    pub fn tables(&self) -> usize {
        self.0.shape().0
    }

    /// How many are in use, listed or not.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.0.in_use()
    }
}

/// What a pinned thread holds.
pub struct Pinned(Pin);

/// A published word, as a thread has seen it under a pin that it has yet.
#[derive(Clone, Copy)]
pub struct Seen<'i>(Sighting<'i>);

/// A slot that waits as a batch of a store does, until no thread can be looking at it.
pub struct Retired(Wait);

impl Retired {
    /// Whether no thread can be looking at the slot any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

/// A slot store by itself.
pub struct Store(Slots<Pair>);

/// What an occupant of a model's slot has.
struct Pair {
    key: AtomicU64,
    word: AtomicU64,
}

fields!(Pair, AtomicU32 { key: AtomicU64::new(0), word: AtomicU64::new(0) });

impl Store {
    /// A store of one shard, with memory for its first chunk.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let slots = Slots::new(1);
        slots.ensure(0).expect("memory for a chunk");
        Store(slots)
    }

    /// Owns the block that begins with slot `first`: which of its slots are free, and its base.
    pub fn own(&self, first: u32) -> Option<(u32, u32)> {
        let free = self.0.own(first)?;
        Some((free.slots, free.base))
    }

    /// Gives a block back.
    pub fn leave(&self, first: u32) {
        self.0.leave(first);
    }

    /// The generation of the next occupant of a free slot in a block that the caller owns.
    pub fn claim(&self, id: u32, base: u32) -> u32 {
        Slots::<Pair>::occupancy(self.0.slot(id).expect("a slot"), base)
    }

    /// Makes a claimed slot live with `key`, as an issue does.
    pub fn publish(&self, id: u32, generation: u32, key: u64) {
        let slot = self.0.slot(id).expect("a claimed slot");
        slot.fields().key.store(key, Ordering::Release);
        slot.fields().word.swap(key, Ordering::Release);
        slot.set_lease(Lease::new(State::LiveIssued, generation, 0));
    }

    /// Key and word of a slot.
    #[must_use]
    pub fn occupant(&self, id: u32) -> (u64, u64) {
        let slot = self.0.slot(id).expect("a slot");
        (slot.fields().key.load(Ordering::Acquire), slot.fields().word.load(Ordering::Acquire))
    }

    /// Frees a slot that the caller owns.
    pub fn free(&self, id: u32, generation: u32) {
        let slot = self.0.slot(id).expect("a claimed slot");
        slot.set_lease(Lease::free(generation));
    }

    /// Gives a chunk's memory back if every slot in it is free and no thread owns any.
    pub fn release(&self, chunk: usize) -> bool {
        self.0.release(chunk, || ()) == Released::Yes
    }
}

/// One shard's inbox, over the blocks of a store.
pub struct Mail {
    slots: Slots<Pair>,
    inbox: Inbox,
}

impl Mail {
    /// An inbox over `chunks` chunks.
    #[must_use]
    pub fn new(chunks: usize) -> Self {
        let slots = Slots::new(1);
        for chunk in 0..chunks {
            slots.ensure(chunk).expect("memory for a chunk");
        }
        Mail { slots, inbox: Inbox::new() }
    }

    /// Lowers a block's next expiration, and pushes the block if it did. False if it was closed.
    pub fn lower(&self, block: u32, tick: u64) -> bool {
        let header = self.slots.header(block * BLOCK).expect("a block");
        match header.next.lower(tick) {
            Lowered::No => true,
            Lowered::Closed => false,
            Lowered::Yes => {
                self.inbox.push(block, header);
                true
            }
        }
    }

    /// Takes everything out, with the next expirations at that time.
    pub fn take(&self) -> Vec<(u32, Option<u64>)> {
        let mut taken: Taken = self.inbox.take();
        let mut all = Vec::new();
        while let Some(one) = taken.pop(&self.slots) {
            all.push(one);
        }
        all
    }
}

/// A value that one thread at a time may enter, and for which no thread waits.
pub struct Exclusive<T>(Flagged<T>);

impl<T: Send> Exclusive<T> {
    /// Guards `value`.
    pub fn new(value: T) -> Self {
        Exclusive(Flagged::new(value))
    }

    /// Runs `f` on the value unless another thread is inside.
    pub fn enter<R>(&self, f: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.enter(f)
    }
}

/// The sending end of a channel of what has ended, by itself. Dropped, it is finished.
#[cfg(feature = "async")]
pub struct Told<T>(Sender<T>);

#[cfg(feature = "async")]
impl<T> Told<T> {
    /// A channel of one, whose second item spills.
    #[must_use]
    pub fn new() -> (Self, Receiver<T>) {
        let (sender, receiver) = channel(1, WhenFull::Spill).expect("a short one");
        (Told(sender), receiver)
    }

    /// Tells an item.
    pub fn tell(&self, item: T) {
        self.0.send(&Panics::default(), item);
    }

    /// All items have been sent.
    pub fn finish(&self) {
        self.0.finish();
    }
}
