//! Eviction: which entry a full map ends to make room.
//!
//! The default policy is S3-FIFO, over the slots where the entries lie:
//!
//! ```text
//!   new key ──> probation, a queue of 10 % ──> used: it stays ──> main: all other entries,
//!      │                  │                                       swept by a hand, slot by slot
//!      │                  └──> not used: evicted, and its fingerprint becomes a ghost
//!      └── a ghost has its fingerprint: straight to main
//! ```
//!
//! A `get` sets the lease's `used` bit, if it is not set. The hand clears it, and evicts the first
//! entry that it meets without it. So a scan passes through probation only, and a key that returns
//! soon after its eviction stays. Where few keys are used on probation it is 1 % for a while
//! ([`Probation`]).
//!
//! `LeastRecentlyUsed` is the hand alone, a clock: an insertion sets the bit, too, and the hand
//! follows the inserting threads, so that it meets the oldest entries first. `SoonestDeadline`
//! looks at the headers of blocks, which say how soon something in the block expires. It looks only
//! into blocks that may have an earlier deadline than it has met. If it finds nothing that it can
//! end, it sweeps.
//!
//! # What decides
//!
//! Queue, ghosts and hand are hints, read and written without ordering: a thread that meets a stale
//! one picks a worse entry. The swap of the lease decides whether an entry ends, as for any other
//! end. So one thread evicts an entry, and none does if another removal comes first. The evicting
//! thread ends a slot only if the index names it, as the driver does (model
//! `eviction_beside_an_insertion`).
//!
//! The bound is the permits of `core::engine::admission`, and so exact: the inserting thread evicts
//! before it claims its slot.

use super::enter::{ATTEMPTS, ROOM};
use super::{Found, Pair, Store};
use crate::core::engine::{Frontend, Room};
use crate::core::lease::{set, Lease, State};
use crate::core::occupancy::Occupant;
use crate::core::params::CHUNK;
use crate::core::slot::Slot;
use crate::keyed::living::Notice;
use crate::keyed::store::RemovalCause;
use crate::time::NEVER;
use crossbeam_queue::ArrayQueue;
use std::sync::atomic::{AtomicU64 as Hint, Ordering::Relaxed};

/// Which entry a full map evicts: [`eviction_policy`](crate::ExpiringMapBuilder::eviction_policy).
/// Whatever the policy, the map ends what is due first, and a call does not evict the entry that it
/// replaces.
///
/// ```
/// use expiry::{EvictionPolicy, ExpiringMap, Lifetime};
/// use std::time::Duration;
///
/// let tokens = ExpiringMap::builder()
///     .max_capacity(2)
///     .eviction_policy(EvictionPolicy::SoonestDeadline)
///     .build()?;
/// tokens.insert_for("for an hour", 1, Duration::from_secs(3600))?;
/// tokens.insert_for("for a minute", 2, Duration::from_secs(60))?;
/// tokens.insert_for("for ever", 3, Lifetime::Never)?;
/// assert!(tokens.contains_key("for an hour") && !tokens.contains_key("for a minute"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum EvictionPolicy {
    /// S3-FIFO, for caches: a new key is on probation, in a queue of 10 % of the entries, or of 1 %
    /// while few keys are used there. The map evicts it at the queue's end unless it was used. An
    /// entry that was used stays until a sweep meets it unused. So a scan evicts nothing that is in
    /// use.
    #[default]
    S3Fifo,
    /// The entry that was not used for the longest time, about: a clock with a bit for each entry.
    /// For keys that are used again late: tokens, sessions. A scan evicts everything. What it
    /// evicts is mostly among the quarter that was used least recently, where all entries have one
    /// lifetime. The first sweep of a full map evicts in the order of insertion, used or not.
    /// With many different lifetimes entries do not lie in the order in which they came, and
    /// the choice is looser.
    LeastRecentlyUsed,
    /// The entry that expires soonest, of those that the map looks at. They lie in up to about 512
    /// blocks of 16 slots, spread evenly over all. Of those that share a deadline any one goes:
    /// with one lifetime for all, that may be a new one. For entries that are worth the less the
    /// less time they have left. Entries that never expire go last. An eviction takes microseconds.
    SoonestDeadline,
}

const EVICTABLE: u16 = set(&[State::Live, State::LiveIdle, State::Lapsed]);

/// The share of the entries that are on probation: one in so many.
const PROBATION: usize = 10;

/// Probation is so many times shorter after a window in which few entries were used there: one in
/// [`FEW`]. So it goes in a loop over more keys than the map has room for.
const SHORTER: u64 = 10;
const FEW: u64 = 8;

/// A window is so many entries that leave probation, or as many as may be there, if these are more.
const WINDOW: u64 = 256;

/// After so many windows of a short probation, a long one shows whether keys are used there now.
const PATIENCE: u64 = 32;

/// There is one word of ghosts, which holds four, for so many entries. More ghosts follow a working
/// set that shifts faster, and hit less often where popularity stays as it is.
const ENTRIES_A_WORD: usize = 5;

/// What an entry of a map that weighs is assumed to weigh at least, and the most entries for which
/// such a map has ghosts.
const LIGHT: usize = 64;
const MOST_KNOWN: usize = 1 << 20;

/// After so many evictions such a map counts its entries.
const RECOUNT: u64 = 256;

/// After so many entries that have been used the hand takes the next one, used or not.
const MOST_MET: u32 = 256;

/// At the headers of about so many blocks `SoonestDeadline` looks.
const LOOKED_AT: usize = 256;

/// How many times the hand goes round before the caller tries to insert again.
const TURNS: u32 = 3;

/// How often a caller that finds nothing to evict tries again: all places are then held by
/// insertions, and removals, that other threads are in the middle of.
const FRUITLESS: u32 = if cfg!(expiry_loom) { 1 } else { 64 };

/// Hints only: see "What decides" in the module's head.
pub(in crate::keyed) struct Eviction {
    policy: EvictionPolicy,
    probation: Probation,
    ghosts: Ghosts,
    /// Whether the share follows the number of entries.
    recounts: bool,
    /// Number of evictions so far, where that is of use.
    evictions: Hint,
    /// Where the next sweep begins: between this slot and the one before.
    hand: Hint,
    /// The tick up to which nothing is due: the store's shards are not asked twice a tick.
    clear: Hint,
}

impl Eviction {
    /// The eviction of a map of at most `capacity` entries.
    pub(in crate::keyed) fn new(policy: EvictionPolicy, capacity: usize) -> Self {
        let known = if policy == EvictionPolicy::S3Fifo { capacity } else { 0 };
        Eviction {
            policy,
            probation: Probation::new((known / PROBATION).max(1)),
            ghosts: Ghosts::new(known / ENTRIES_A_WORD + 1),
            recounts: false,
            evictions: Hint::new(0),
            hand: Hint::new(0),
            clear: Hint::new(0),
        }
    }

    /// The eviction of a map whose entries weigh at most `weight`, and whose number is not known.
    pub(in crate::keyed) fn of_weight(policy: EvictionPolicy, weight: usize) -> Self {
        let most = (weight / LIGHT).clamp(1, MOST_KNOWN);
        let eviction = Eviction { recounts: true, ..Self::new(policy, most) };
        eviction.probation.resize(1);
        eviction
    }

    /// Whether an insertion is a use.
    #[inline(always)]
    pub(super) fn begins_used(&self) -> bool {
        self.policy != EvictionPolicy::S3Fifo
    }

    pub(super) fn note(&self, id: u32, generation: u32, hash: u32) {
        if self.policy == EvictionPolicy::S3Fifo && !self.ghosts.take(hash) {
            // The oldest one, if the queue is full, belongs to main from here on.
            self.probation.queue.force_push((id, generation));
        }
    }
}

/// The entries on probation, and how many there are to be.
struct Probation {
    /// Slots and their generations, oldest first.
    queue: ArrayQueue<(u32, u32)>,
    /// How many there are at most.
    most: Hint,
    /// Number of windows for which probation stays short; 0: it is long.
    short_for: Hint,
    /// How many entries have left in this window, and how many of them had been used.
    left: Hint,
    used: Hint,
}

impl Probation {
    fn new(most: usize) -> Self {
        Probation {
            queue: ArrayQueue::new(most),
            most: Hint::new(most as u64),
            short_for: Hint::new(0),
            left: Hint::new(0),
            used: Hint::new(0),
        }
    }

    /// From here on there are so many entries at most, if there is place for them.
    fn resize(&self, most: u64) {
        self.most.store(most.clamp(1, self.queue.capacity() as u64), Relaxed);
    }

    /// The oldest entry, if there are as many as there are to be.
    fn pop(&self) -> Option<(u32, u32)> {
        let (len, most) = (self.queue.len() as u64, self.most.load(Relaxed));
        let share = if self.short_for.load(Relaxed) == 0 { most } else { (most / SHORTER).max(1) };
        if len < share {
            return None;
        }
        if len > share + 1 {
            // Probation has become shorter: one more goes, to main.
            self.queue.pop();
        }
        self.queue.pop()
    }

    /// An entry leaves probation. At the end of a window this decides how long probation is.
    fn note_end(&self, used: bool) {
        let used = self.used.fetch_add(u64::from(used), Relaxed) + u64::from(used);
        if self.left.fetch_add(1, Relaxed) + 1 < self.most.load(Relaxed).max(WINDOW) {
            return;
        }
        self.left.store(0, Relaxed);
        self.used.store(0, Relaxed);
        let short_for = match self.short_for.load(Relaxed) {
            _ if used * FEW > self.most.load(Relaxed).max(WINDOW) => 0,
            0 => PATIENCE,
            n => n - 1,
        };
        self.short_for.store(short_for, Relaxed);
    }
}

/// Fingerprints of keys that were evicted from probation. A word is a queue of four, of 16 bits
/// each, the newest in the lowest bits; 0 is none.
struct Ghosts(Box<[Hint]>);

impl Ghosts {
    fn new(words: usize) -> Self {
        Ghosts((0..words).map(|_| Hint::new(0)).collect())
    }

    fn place(&self, hash: u32) -> (&Hint, u64) {
        // The index has used the lowest bits to choose the shard.
        let mixed = u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        #[allow(clippy::cast_possible_truncation)] // less than the number of words
        let word = (((mixed >> 32) * self.0.len() as u64) >> 32) as usize;
        (&self.0[word], (mixed & 0xFFFF).max(1))
    }

    fn add(&self, hash: u32) {
        let (word, ghost) = self.place(hash);
        word.store(word.load(Relaxed) << 16 | ghost, Relaxed);
    }

    /// Takes a hash's ghost away. Returns whether there was one.
    fn take(&self, hash: u32) -> bool {
        let (word, ghost) = self.place(hash);
        let ghosts = word.load(Relaxed);
        let lane = (0..64).step_by(16).find(|&lane| ghosts >> lane & 0xFFFF == ghost);
        if let Some(lane) = lane {
            word.store(ghosts & !(0xFFFF << lane), Relaxed);
        }
        lane.is_some()
    }
}

impl<K: 'static, V: 'static> Store<K, V> {
    /// Notes that an entry is used, where the map evicts, unless its lease has changed meanwhile.
    #[inline(always)]
    pub(in crate::keyed) fn note_use(&self, found: &Found<'_, K, V>) {
        if !found.lease.is_used() && self.eviction.is_some() {
            Self::note_first_use(found.slot, found.lease);
        }
    }

    /// Out of line, with slot and lease in registers: so a look-up's result need not be in memory.
    #[inline(never)]
    fn note_first_use(slot: Slot<'_, Pair<K, V>>, lease: Lease) {
        let _ = slot.swap_lease(lease, lease.used());
    }

    /// Ends what is due, in a round of bounded steps, unless the call has gone as many rounds as it
    /// may. Returns whether it has gone one: then the caller looks for room again.
    pub(super) fn ends_due(
        &self,
        eviction: &Eviction,
        room: &mut Room<'_>,
        frontend: &impl Frontend<Pair<K, V>>,
    ) -> bool {
        let now = self.engine.deadlines.now();
        let goes = self.may_be_due(eviction, now) && room.attempts + 1 < ATTEMPTS;
        if goes {
            room.attempts += 1;
            self.engine.poll_beside(now, ROOM, frontend);
        }
        goes
    }

    /// Whether something is due that this thread could end. Asks once a tick where nothing is due
    /// in any shard, whichever thread drives it.
    fn may_be_due(&self, eviction: &Eviction, now: u64) -> bool {
        let tick = self.engine.deadlines.ticks().at(now);
        if eviction.clear.load(Relaxed) >= tick {
            return false;
        }
        if self.engine.next_expiration().map_or(true, |next| next > tick) {
            eviction.clear.store(tick, Relaxed);
            return false;
        }
        self.engine.is_due(now)
    }

    /// Evicts an entry other than `spared`, and reports it. Its permits go to `room`. Returns
    /// whether the caller tries again. The caller is unpinned.
    #[cold]
    pub(super) fn evict_one(
        &self,
        eviction: &Eviction,
        spared: Option<u32>,
        room: &mut Room<'_>,
    ) -> bool {
        match self.evict(eviction, spared, room) {
            Some(notice) => notice.tell(),
            None => {
                // Two calls that keep a part of the permits each would wait for each other.
                room.give_back_beyond(0);
                room.attempts += 1;
                // Threads that hold the places may wait for this one's processor.
                #[cfg(not(expiry_loom))]
                std::thread::yield_now();
            }
        }
        room.attempts < FRUITLESS
    }

    /// Changes the bound of a map that evicts. Ends what is beyond it one by one, what is due
    /// first. The caller is unpinned. This thread cannot evict what other threads are in the middle
    /// of inserting: later insertions pay that part of the debt.
    pub(in crate::keyed) fn set_limit(
        &self,
        eviction: &Eviction,
        limit: u64,
        frontend: &impl Frontend<Pair<K, V>>,
    ) {
        let admission = &self.engine.admission;
        admission.set_limit(limit);
        admission.wake_owed();
        if !eviction.recounts {
            eviction.probation.resize(limit / PROBATION as u64);
        }
        let mut room = admission.room();
        while admission.is_in_debt()
            && (self.ends_due(eviction, &mut room, frontend)
                || self.evict_one(eviction, None, &mut room))
        {
            room.give_back_beyond(0);
        }
    }

    /// Ends an entry that the policy chooses, other than `spared`. The caller reports it, unpinned.
    fn evict(
        &self,
        eviction: &Eviction,
        spared: Option<u32>,
        room: &mut Room<'_>,
    ) -> Option<Notice<'_, K, V>> {
        let now = self.engine.deadlines.now_for_look();
        let notice = match eviction.policy {
            EvictionPolicy::S3Fifo => self.end_probation(eviction, spared, now, room),
            EvictionPolicy::LeastRecentlyUsed => {
                return self.sweep::<true>(eviction, spared, now, room);
            }
            EvictionPolicy::SoonestDeadline => self.end_soonest(eviction, spared, now, room),
        };
        notice.or_else(|| self.sweep::<false>(eviction, spared, now, room))
    }

    /// Ends the entry that has been on probation for longest, other than `spared`, if there are as
    /// many as there may be, and it was not used.
    fn end_probation(
        &self,
        eviction: &Eviction,
        spared: Option<u32>,
        now: u64,
        room: &mut Room<'_>,
    ) -> Option<Notice<'_, K, V>> {
        if eviction.recounts && eviction.evictions.fetch_add(1, Relaxed) % RECOUNT == 0 {
            eviction.probation.resize((self.len() / PROBATION) as u64);
        }
        while let Some((id, generation)) = eviction.probation.pop() {
            let Some(lease) = self.engine.slots.slot(id).map(|slot| slot.lease()) else {
                continue;
            };
            if lease.generation() != generation || !lease.is_in(EVICTABLE) {
                continue; // It has ended, or has another value by now.
            }
            // The caller replaces the spared entry: that is a use of it.
            let used = lease.is_used() || spared == Some(id);
            eviction.probation.note_end(used);
            if used {
                break;
            }
            let hash = self.hash_of(id);
            if let Some(notice) = self.evict_this(id, lease, now, room) {
                eviction.ghosts.add(hash);
                return Some(notice);
            }
        }
        None
    }

    /// Ends the entry whose deadline comes first, other than `spared`, in blocks that are spread
    /// evenly over all. Where several are the first, the turn decides.
    #[inline(never)]
    fn end_soonest(
        &self,
        eviction: &Eviction,
        spared: Option<u32>,
        now: u64,
        room: &mut Room<'_>,
    ) -> Option<Notice<'_, K, V>> {
        let (engine, shards) = (&self.engine, 0..self.engine.shards());
        let all: u32 = shards.clone().map(|shard| engine.blocks(shard)).sum();
        let turn = eviction.evictions.fetch_add(1, Relaxed) as u32;
        let mut soonest: Option<(u64, u32, Lease)> = None;
        let is_sooner = |soonest: Option<(u64, u32, Lease)>, deadline| {
            soonest.map_or(true, |(soonest, ..)| deadline < soonest)
        };
        for shard in shards {
            let blocks = engine.blocks(shard);
            for n in (0..blocks).step_by((all as usize / LOOKED_AT).max(1)) {
                let Some((first, slots)) = engine.block_at(shard, (turn % blocks + n) % blocks)
                else {
                    continue;
                };
                if !is_sooner(soonest, engine.slots.header(first)?.next.get().unwrap_or(NEVER)) {
                    continue;
                }
                for (id, slot) in (first..).zip(slots.iter()) {
                    let lease = slot.lease();
                    let deadline = engine.deadlines.of(lease);
                    let may_go = lease.is_in(EVICTABLE) && spared != Some(id);
                    if may_go && is_sooner(soonest, deadline) {
                        soonest = Some((deadline, id, lease));
                    }
                }
            }
        }
        let (_, id, lease) = soonest?;
        self.evict_this(id, lease, now, room)
    }

    /// Ends the next entry of main, other than `spared`, that has not been used since the hand last
    /// came by. The hand goes through the chunks in the order in which a thread fills them: `UP`
    /// behind the inserting threads, or down, against them.
    #[allow(clippy::cast_possible_truncation)] // slots
    fn sweep<const UP: bool>(
        &self,
        eviction: &Eviction,
        spared: Option<u32>,
        now: u64,
        room: &mut Room<'_>,
    ) -> Option<Notice<'_, K, V>> {
        let mut hand = eviction.hand.load(Relaxed) as usize;
        let (mut met, mut turns) = (0, 0);
        while turns < TURNS {
            if hand % CHUNK == 0 {
                let Some(chunk) = self.engine.chunk_from(hand / CHUNK, UP) else {
                    hand = if UP { 0 } else { self.engine.chunks_ever() * CHUNK };
                    turns += 1;
                    continue;
                };
                hand = if UP { chunk } else { chunk + 1 } * CHUNK;
            }
            let id = if UP { hand } else { hand - 1 } as u32;
            hand = if UP { hand + 1 } else { hand - 1 };
            let Some(slot) = self.engine.slots.slot(id) else {
                continue;
            };
            let lease = slot.lease();
            if !lease.is_in(EVICTABLE) || spared == Some(id) {
                continue;
            }
            met += 1;
            if lease.is_used() && met < MOST_MET {
                let _ = slot.swap_lease(lease, lease.unused());
                continue;
            }
            if let Some(notice) = self.evict_this(id, lease, now, room) {
                eviction.hand.store(hand as u64, Relaxed);
                return Some(notice);
            }
        }
        None
    }

    /// Ends the entry of this slot and lease. `None` if it has changed, or is not published yet.
    fn evict_this(
        &self,
        id: u32,
        lease: Lease,
        now: u64,
        room: &mut Room<'_>,
    ) -> Option<Notice<'_, K, V>> {
        let named = self.named(self.engine.pin(), id)?;
        let slot = self.engine.slots.slot(id)?;
        let is_over = lease.is(State::Lapsed) || self.is_over(lease, now);
        let cause = if is_over { RemovalCause::Expired } else { RemovalCause::Size };
        let dead = Occupant { id, slot, lease }.end().ok()?;
        let (pin, at) = (&named.pin, (named.hash, named.word));
        let ended = self.finish(pin, self.engine.mine(pin), Some(room), dead, at, cause);
        Some(Notice { ended, cause })
    }
}
