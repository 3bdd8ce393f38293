//! The engine: claiming slots, ending them, and driving their expiry.
//!
//! # Who does what
//!
//! * Any thread claims, publishes, touches and ends slots. None of it waits for anybody.
//! * One *driver* at a time (`poll`; the reaper thread calls it too) empties the inboxes, advances the wheels,
//!   scans buckets that are due, carries index words, and gives memory back. A second caller of `poll`
//!   is told that somebody is at it and goes away.
//!
//! # How a deadline reaches the wheel
//!
//! ```text
//!   inserter                                   driver
//!   lease := LIVE, deadline d  (store or swap)      n := next.take()         (read-modify-write)
//!   next.lower(d)              (read-modify-write)  scan the bucket's leases
//!   if lowered: inbox.push, then                    next.lower(minimum found)
//!     lower the announced wake-up to the            schedule the bucket at next.get()
//!     bucket's *current* next expiration,
//!     and wake the reaper if that lowered it
//! ```
//!
//! Both sides change `next` by read-modify-writes only, so one comes first: the inserter's, and then the
//! driver's scan sees the lease; or the driver's, and then the inserter finds "never" (or a later tick),
//! lowers it, and pushes the bucket (W5). A touch to an earlier deadline does the same two steps (W11).
//!
//! Before it sleeps the reaper announces until when (`wake_at`, swap), then takes the inboxes once more
//! (swap). A pusher pushes first (swap), then lowers the announcement (read-modify-write): either it lowers an
//! announcement that was too late, and wakes the reaper, or the reaper's second look finds the push (W4). The
//! pusher compares the bucket's current next expiration, not its own deadline, because it may be
//! pushing on behalf of another thread that found the bucket flagged already (W10).
//!
//! # Shutdown (W8)
//!
//! `close` closes every bucket's next expiration by a swap. An inserter whose `lower` comes before it has its
//! slot seen by the scan that follows; one whose `lower` comes after finds the bucket closed and ends its own
//! slot. Buckets that did not exist are excluded the same way on the shard's chunk count.
//!
//! # Which slot next
//!
//! A thread walks through a chunk of slots in order and takes the free ones; then it goes to the next chunk of a ring
//! that has room, another shard's each time, and adds a chunk where a few looks find none. In-flight windows
//! thus become sequential memory, and a slot rests for as long as possible between two tenants. The driver takes chunks
//! off the ring when most of the slots are free, and gives their memory back when they have drained.

use super::inbox::{Inbox, Taken};
use super::index::Index;
use super::lease::{Lease, State};
use super::params::{BUCKET, CHUNK, CHUNK_BUCKETS, LONG_WALK, LOOKS, SAMPLES};
use super::slots::{Lowered, OutOfMemory, Slot, Slots};
use super::threads::{with_index, Counter, Stripes};
use crate::sync::exclusive::Exclusive;
use crate::sync::park::Waker;
use crate::sync::{thread, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::time::{Clock, CoarseClock, Ticks, NEVER};
use crate::wheel::{Geometry, Pop, Wheel};
use crossbeam_utils::CachePadded;
use std::sync::Arc;

#[allow(clippy::cast_possible_truncation)]
const BUCKET_U32: u32 = BUCKET as u32;

/// How many slots ahead of the hand memory is fetched.
const AHEAD: u32 = 12;

/// The clock, without a virtual call where it is the default one.
#[derive(Clone)]
pub(crate) enum Source {
    Default(CoarseClock),
    Custom(Arc<dyn Clock>),
}

impl Source {
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        match self {
            Source::Default(clock) => clock.now(),
            Source::Custom(clock) => clock.now(),
        }
    }

    #[inline]
    fn coarse(&self) -> u64 {
        match self {
            Source::Default(clock) => clock.coarse(),
            Source::Custom(clock) => clock.coarse(),
        }
    }

    fn lag(&self) -> u64 {
        match self {
            Source::Default(clock) => clock.lag(),
            Source::Custom(clock) => clock.lag(),
        }
    }
}

/// What an engine is made with; checked by the builders of the faces.
pub(crate) struct Config {
    pub(crate) shards: usize,
    pub(crate) interval: u64,
    pub(crate) capacity: Option<usize>,
    pub(crate) clock: Source,
    pub(crate) seed: u64,
}

/// Why no slot could be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    OutOfMemory,
    Closed,
}

/// A slot that the caller owns alone.
pub(crate) struct Claim<'a> {
    pub(crate) id: u32,
    pub(crate) incarnation: u32,
    pub(crate) slot: &'a Slot,
}

struct Shard {
    inbox: Inbox,
    /// Chunks in the ring.
    active: AtomicU32,
    /// The most chunks there ever were, with [`SHUT`] on top once the engine has shut down.
    peak: AtomicU32,
    /// Where the next thread that needs a chunk begins to look.
    ring: AtomicU32,
}

const SHUT: u32 = 1 << 31;

/// What a thread keeps to itself. Written by one thread at a time; see [`super::threads`].
pub(crate) struct Stripe<C> {
    /// The slot to look at next, and the end of the chunk; equal when a chunk is to be found.
    hand: Counter,
    end: Counter,
    seen: Counter,
    found: Counter,
    /// Which shard's chunk comes next.
    turn: Counter,
    /// Slots this thread has freed, of all shards; every so often it asks whether memory can go back.
    ended: Counter,
    /// Deadline of the default timeout, and the last clock reading it holds for.
    pub(crate) deadline: Counter,
    pub(crate) deadline_until: Counter,
    /// The face's share.
    pub(crate) face: C,
}

impl<C> Stripe<C> {
    fn new(face: C) -> Self {
        Stripe {
            hand: Counter::default(),
            end: Counter::default(),
            seen: Counter::default(),
            found: Counter::default(),
            turn: Counter::default(),
            ended: Counter::default(),
            deadline: Counter::default(),
            deadline_until: Counter::default(),
            face,
        }
    }
}

struct DriverShard {
    wheel: Wheel,
    taken: Taken,
    /// Chunks from here up have been let go or never used.
    resident: u32,
}

/// The time of a round: the tick that has begun, and the clock's reading.
#[derive(Clone, Copy)]
struct Instant {
    tick: u64,
    now: u64,
}

/// What only the driver touches.
struct Driver {
    shards: Vec<DriverShard>,
    /// The latest tick seen: a clock that goes backwards stands still here.
    tick: u64,
    /// The shard to begin with, so that a small budget reaches all of them.
    first: usize,
    /// The last tick at which memory was looked after.
    tended: u64,
}

/// What a round of the driver left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// The budget ran out: call again at once.
    pub(crate) more: bool,
    /// The tick to come back at, if nothing else happens.
    pub(crate) next: Option<u64>,
}

/// Told of what the driver finds; implemented by the faces.
pub(crate) trait Face {
    /// Whether the driver may end this slot. False for one that has been filled but not yet published: its
    /// claimer owns it still. Its claimer calls [`Engine::enforce`] once it has published it.
    fn may_end(&self, claim: &Claim<'_>, lease: Lease) -> bool;

    /// `slot` has been ended by the driver (its lease is `DEAD`, was `lease`, deadline `deadline`) at clock
    /// reading `now`: report it and free it. Must not panic.
    fn expired(&self, claim: Claim<'_>, lease: Lease, deadline: u64, now: u64);

    /// How many of a shard's slots are in use, and how many keys its index holds; about.
    fn live(&self, shard: usize) -> (u64, u64);
}

/// A sharded store of slots that expire.
pub(crate) struct Engine<C> {
    slots: Slots,
    shards: Box<[CachePadded<Shard>]>,
    indexes: Box<[Index]>,
    stripes: Stripes<CachePadded<Stripe<C>>>,
    pub(crate) ticks: Ticks,
    pub(crate) clock: Source,
    /// The clock's lag if the coarse reading is used for deadlines; `None` if the exact one is.
    lag: Option<u64>,
    /// Free slots left, where the capacity is bounded.
    credits: Option<CachePadded<AtomicU64>>,
    /// Tick that the reaper sleeps until; 0 while it is awake (or there is none).
    wake_at: CachePadded<AtomicU64>,
    pub(crate) waker: Waker,
    driver: Exclusive<Driver>,
    /// Somebody has seen that memory can go back; see [`Engine::tend_soon`].
    untended: AtomicBool,
    /// New entries are refused.
    refusing: AtomicBool,
    seed: u64,
    hasher: foldhash::SharedSeed,
}

impl<C> Engine<C> {
    /// `stripe` makes the face's share of a thread's stripe.
    pub(crate) fn new(
        config: Config,
        stripe: impl Fn() -> C + Send + Sync + 'static,
    ) -> Result<Self, OutOfMemory> {
        let now = config.clock.now();
        let ticks = Ticks::new(now, config.interval);
        let lag = config.clock.lag();
        let shards = config.shards;
        Ok(Engine {
            slots: Slots::new(shards),
            shards: (0..shards)
                .map(|_| {
                    CachePadded::new(Shard {
                        inbox: Inbox::new(),
                        active: AtomicU32::new(0),
                        peak: AtomicU32::new(0),
                        ring: AtomicU32::new(0),
                    })
                })
                .collect(),
            indexes: (0..shards)
                .map(|_| Index::new())
                .collect::<Result<_, _>>()?,
            stripes: Stripes::new(move || CachePadded::new(Stripe::new(stripe()))),
            ticks,
            // A lag that is small beside the interval is made up for by adding it to every deadline.
            lag: (lag <= config.interval / 4).then_some(lag),
            clock: config.clock,
            credits: config
                .capacity
                .map(|slots| CachePadded::new(AtomicU64::new(slots as u64))),
            wake_at: CachePadded::new(AtomicU64::new(0)),
            waker: Waker::new(),
            driver: Exclusive::new(Driver {
                shards: (0..shards)
                    .map(|_| DriverShard {
                        wheel: Wheel::new(Geometry::TICKS, 0),
                        taken: Taken::default(),
                        resident: 0,
                    })
                    .collect(),
                tick: 0,
                first: 0,
                tended: NEVER,
            }),
            untended: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
            seed: config.seed,
            hasher: foldhash::SharedSeed::from_u64(config.seed),
        })
    }
}

impl<C> Engine<C> {
    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    #[inline]
    pub(crate) fn slot(&self, id: u32) -> Option<&Slot> {
        self.slots.slot(id)
    }

    /// Names the thread that early deadlines wake.
    pub(crate) fn set_reaper(&self, thread: &thread::JoinHandle<()>) {
        self.waker.set(thread.thread().clone());
        // It may have gone to sleep before it could be woken.
        self.waker.wake();
    }

    /// The shard whose wheel looks after slot `id`.
    #[inline]
    pub(crate) fn shard_of(&self, id: u32) -> usize {
        id as usize / CHUNK & (self.shards.len() - 1)
    }

    #[inline]
    pub(crate) fn set_birth(&self, id: u32, stamp: u32) {
        if let Some(birth) = self.slots.birth(id) {
            // Published by the lease, which is set after it.
            birth.store(stamp, Ordering::Relaxed);
        }
    }

    #[inline]
    pub(crate) fn birth(&self, id: u32) -> u32 {
        self.slots
            .birth(id)
            .map_or(0, |birth| birth.load(Ordering::Relaxed))
    }

    /// The seeded hash of a chosen key: the low half addresses the index, the high half picks the shard.
    #[inline]
    pub(crate) fn hash(&self, key: u64) -> (usize, u32) {
        use std::hash::Hasher;
        let mut hasher = foldhash::quality::FoldHasher::with_seed(self.seed, &self.hasher);
        hasher.write_u64(key);
        let hash = hasher.finish();
        #[allow(clippy::cast_possible_truncation)]
        let low = hash as u32;
        ((hash >> 32) as usize & (self.shards.len() - 1), low)
    }

    #[inline]
    pub(crate) fn index(&self, shard: usize) -> &Index {
        &self.indexes[shard]
    }
}

impl<C> Engine<C> {
    /// Calls `f` with this thread's stripe and index.
    #[inline]
    pub(crate) fn with_stripe<R>(&self, f: impl FnOnce(&Stripe<C>, usize) -> R) -> R {
        with_index(|index| f(self.stripes.get(index), index))
    }

    /// All stripes that exist.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = &C> {
        self.stripes.iter().map(|stripe| &stripe.face)
    }

    /// A clock reading for a deadline, and what to add to the timeout for its lag.
    #[inline]
    pub(crate) fn now_for_deadline(&self) -> (u64, u64) {
        match self.lag {
            Some(lag) => (self.clock.coarse(), lag),
            None => (self.clock.now(), 0),
        }
    }

    /// Claims a free slot. Lock-free; amortised over a chunk, one compare-and-swap.
    #[inline(always)] // a `Claim` that is returned through memory costs more than claiming it
    pub(crate) fn claim(&self, stripe: &Stripe<C>, index: usize) -> Result<Claim<'_>, Refused> {
        if self.refusing.load(Ordering::Relaxed) {
            return Err(Refused::Closed);
        }
        if self.credits.is_some() {
            self.take_credit()?;
        }
        loop {
            if let Some(claim) = self.claim_here(stripe) {
                return Ok(claim);
            }
            if let Err(refused) = self.next_chunk(stripe, index) {
                self.return_credit();
                return Err(refused);
            }
        }
    }

    /// Takes one of the free slots that a bounded capacity leaves.
    fn take_credit(&self) -> Result<(), Refused> {
        let Some(credits) = &self.credits else {
            return Ok(());
        };
        // Not `fetch_sub`: it would dip below zero and make others see a full engine that is not.
        let mut left = credits.load(Ordering::Relaxed);
        loop {
            if left == 0 {
                return Err(Refused::Full);
            }
            match credits.compare_exchange_weak(
                left,
                left - 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(()),
                Err(now) => left = now,
            }
        }
    }

    #[inline]
    fn return_credit(&self) {
        if let Some(credits) = &self.credits {
            credits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Claims the next free slot of the chunk that this thread is walking through.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // the hand is a slot id or one past it
    fn claim_here(&self, stripe: &Stripe<C>) -> Option<Claim<'_>> {
        let (first, end) = (stripe.hand.get(), stripe.end.get());
        // No further than this in one go: `next_chunk` decides whether the chunk is worth it.
        let until = end.min(first + LONG_WALK + 1);
        let mut id = first;
        while id < until {
            let slot = self.slots.slot(id as u32)?;
            let claimed = self.slots.claim(id as u32, slot);
            id += 1;
            if let Some(incarnation) = claimed {
                // What this thread claims a few claims later; by then it is here, and writable.
                if let Some(ahead) = self.slots.slot(id as u32 + AHEAD) {
                    super::prefetch(ahead);
                }
                stripe.hand.set(id);
                stripe.found.add(1);
                stripe.seen.add(id - first);
                return Some(Claim {
                    id: (id - 1) as u32,
                    incarnation,
                    slot,
                });
            }
        }
        stripe.hand.set(id);
        stripe.seen.add(id - first);
        None
    }

    /// Points the hand at a chunk to walk through: the rest of this one, another one with room, or a new one.
    #[cold]
    fn next_chunk(&self, stripe: &Stripe<C>, index: usize) -> Result<(), Refused> {
        let (seen, found) = (stripe.seen.get(), stripe.found.get());
        let crowded = seen >= LONG_WALK && found * 5 < seen;
        if !crowded && stripe.hand.get() < stripe.end.get() {
            return Ok(());
        }
        let turn = stripe.turn.get();
        stripe.turn.add(1);
        #[allow(clippy::cast_possible_truncation)]
        let at = (index as u64).wrapping_add(turn) as usize & (self.shards.len() - 1);
        let local = match self.roomy_chunk(at, turn) {
            Some(local) => local,
            None => self.add_chunk(at)?,
        };
        let first = (local as usize * self.shards.len() + at) * CHUNK;
        stripe.hand.set(first as u64);
        stripe.end.set((first + CHUNK) as u64);
        stripe.seen.set(0);
        stripe.found.set(0);
        Ok(())
    }

    /// A chunk of the shard's ring with room in it, if a few looks find one.
    ///
    /// First from the ring's position on, which is where a first-in-first-out window has freed chunks, then here
    /// and there, so that a run of long-lived entries does not hide free chunks behind it. The position moves past
    /// chunks without room only when one with room lies behind them: if the window's tail has not left
    /// the chunk at the position yet, that chunk is what comes next.
    #[allow(clippy::cast_possible_truncation)]
    fn roomy_chunk(&self, at: usize, turn: u64) -> Option<u32> {
        let shard = &self.shards[at];
        let roomy = |local: u32| {
            let step = (CHUNK / SAMPLES).max(1);
            let slots = self
                .slots
                .chunk(local as usize * self.shards.len() + at)
                .unwrap_or_default();
            let sampled = slots.iter().step_by(step);
            let (mut seen, mut free) = (0, 0);
            for slot in sampled {
                seen += 1;
                free += usize::from(slot.lease().state() == State::Free);
            }
            free * 4 >= seen && free > 0
        };
        for look in 0..2 * LOOKS {
            let position = shard.ring.load(Ordering::Relaxed);
            let active = shard.active.load(Ordering::Acquire);
            if active == 0 {
                return None;
            }
            let local = if look < LOOKS {
                position.wrapping_add(look) % active
            } else {
                // Any of them; which does not matter, so a multiplicative hash will do.
                (turn
                    .wrapping_add(u64::from(look))
                    .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                    >> 33) as u32
                    % active
            };
            if look >= active && look < LOOKS {
                continue;
            }
            if roomy(local) {
                // Whoever fails takes it all the same: two threads can share a chunk.
                let _ = shard.ring.compare_exchange(
                    position,
                    (local + 1) % active,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                return Some(local);
            }
        }
        None
    }

    /// Adds a chunk to a shard's ring and returns it.
    fn add_chunk(&self, at: usize) -> Result<u32, Refused> {
        let shard = &self.shards[at];
        loop {
            let active = shard.active.load(Ordering::Acquire);
            self.slots
                .ensure(active as usize * self.shards.len() + at)
                .map_err(|OutOfMemory| Refused::OutOfMemory)?;
            // Before anybody can be in it: who shuts down either sees it, or we see that it was shut (W8).
            if shard.peak.fetch_max(active + 1, Ordering::AcqRel) & SHUT != 0 {
                return Err(Refused::Closed);
            }
            if shard
                .active
                .compare_exchange(active, active + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return Ok(active);
            }
        }
    }

    /// Makes sure that the reaper looks at slot `id` by `tick`. Call after its lease was set to expire then.
    ///
    /// `Err` if the engine was shut down before: the caller must end the slot itself, or find it ended.
    #[inline]
    pub(crate) fn enforce(&self, id: u32, tick: u64) -> Result<(), Refused> {
        let Some(header) = self.slots.header(id) else {
            return Ok(());
        };
        match header.next.lower(tick) {
            Lowered::No => Ok(()),
            Lowered::Closed => Err(Refused::Closed),
            Lowered::Yes => {
                self.tell(id);
                Ok(())
            }
        }
    }

    #[cold]
    fn tell(&self, id: u32) {
        let Some(header) = self.slots.header(id) else {
            return;
        };
        self.shards[self.shard_of(id)]
            .inbox
            .push(id / BUCKET_U32, header);
        // The bucket's, not our own: the push may have been for somebody else too (W10).
        if let Some(tick) = header.next.get() {
            self.wake_by(tick);
        }
    }

    /// Lowers the announced wake-up to `tick` and wakes the reaper if that lowered it.
    pub(crate) fn wake_by(&self, tick: u64) {
        if self.wake_at.fetch_min(tick, Ordering::AcqRel) > tick {
            self.waker.wake();
        }
    }

    /// Ends a slot: the one caller for whom this succeeds owns it alone from here on.
    #[inline]
    pub(crate) fn end(&self, slot: &Slot, lease: Lease) -> Result<(), Lease> {
        slot.swap_lease(lease, lease.with_state(State::Dead))
    }

    /// Frees a slot that the caller owns alone: it ended it, or claimed it and never published it.
    #[inline]
    pub(crate) fn free(&self, stripe: &Stripe<C>, claim: &Claim<'_>) -> bool {
        claim.slot.set_lease(Lease::free(claim.incarnation));
        self.return_credit();
        stripe.ended.add(1);
        stripe.ended.get() % CHUNK as u64 == 0
    }

    /// Puts a slot that the caller ended where the carrier will free it; see [`super::index`].
    pub(crate) fn to_limbo(&self, shard: usize, claim: &Claim<'_>) {
        let limbo = &self.indexes[shard].limbo;
        let mut head = limbo.load(Ordering::Relaxed);
        loop {
            claim.slot.owner.store(head, Ordering::Relaxed);
            match limbo.compare_exchange_weak(
                head,
                u64::from(claim.id) + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        self.wake_by(1);
    }

    /// One round of the driver with the time `now`: empties the inboxes, ends what is due, looks after memory.
    ///
    /// `None` if another thread is at it. `budget` counts buckets, cascades, index words and expired
    /// entries; what it does not cover is carried forward.
    pub(crate) fn poll(&self, now: u64, mut budget: usize, face: &impl Face) -> Option<Round> {
        self.driver
            .enter(|driver| self.round(driver, now, &mut budget, face))
    }

    fn round(&self, driver: &mut Driver, now: u64, budget: &mut usize, face: &impl Face) -> Round {
        let tick = self.ticks.at(now).max(driver.tick);
        driver.tick = tick;
        let shards = self.shards.len();
        let first = driver.first;
        let mut more = false;
        let mut later = false;
        let mut next: Option<u64> = None;
        for at in (0..shards).map(|at| (first + at) & (shards - 1)) {
            if *budget == 0 {
                more = true;
                driver.first = at;
                break;
            }
            more |= self.advance(
                &mut driver.shards[at],
                at,
                Instant { tick, now },
                budget,
                face,
            );
            let due = driver.shards[at].wheel.next_expiration();
            next = match (next, due) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        more |= self.carry(budget);
        // Before the wheels are asked for the live ones: what ends from here on asks again.
        if self.untended.swap(false, Ordering::AcqRel) || driver.tended != tick {
            driver.tended = tick;
            for at in 0..shards {
                match self.tend(&mut driver.shards[at], at, face) {
                    Tended::All => {}
                    Tended::More => more = true,
                    // Something long-lived sits in the way: look again in a while.
                    Tended::Later => later = true,
                }
            }
        }
        if later {
            let then = self.ticks.at(now.saturating_add(TEND_AGAIN)) + 1;
            next = Some(next.map_or(then, |next| next.min(then)));
        }
        // A grace period that has not ended is looked at again at the next tick.
        if self.indexes.iter().any(Index::turn) {
            next = Some(next.map_or(tick + 1, |next| next.min(tick + 1)));
        }
        Round { more, next }
    }

    /// Advances one shard. True if the budget ran out.
    fn advance(
        &self,
        driver: &mut DriverShard,
        at: usize,
        instant: Instant,
        budget: &mut usize,
        face: &impl Face,
    ) -> bool {
        loop {
            if driver.taken.is_empty() {
                driver.taken = self.shards[at].inbox.take();
            }
            while let Some((bucket, next)) = driver.taken.pop(&self.slots) {
                *budget = budget.saturating_sub(1);
                if let Some(next) = next {
                    let id = self.local(bucket);
                    if driver.wheel.due(id).map_or(true, |due| next < due) {
                        driver.wheel.schedule(id, next);
                    }
                }
                if *budget == 0 {
                    return true;
                }
            }
            match driver.wheel.pop(instant.tick, budget) {
                Pop::Due { id, .. } => {
                    let bucket = self.global(at, id);
                    if let Some(next) = self.scan(bucket, instant, budget, face) {
                        driver.wheel.schedule(id, next);
                    }
                }
                Pop::Idle => return false,
                Pop::Budget => return true,
            }
        }
    }

    /// A bucket's number in its shard's wheel, dense from 0.
    #[allow(clippy::cast_possible_truncation)]
    fn local(&self, bucket: u32) -> u32 {
        let (chunk, at) = (
            bucket as usize / CHUNK_BUCKETS,
            bucket as usize % CHUNK_BUCKETS,
        );
        (chunk / self.shards.len() * CHUNK_BUCKETS + at) as u32
    }

    /// The inverse of [`local`](Self::local).
    #[allow(clippy::cast_possible_truncation)]
    fn global(&self, shard: usize, local: u32) -> u32 {
        let (chunk, at) = (
            local as usize / CHUNK_BUCKETS,
            local as usize % CHUNK_BUCKETS,
        );
        ((chunk * self.shards.len() + shard) * CHUNK_BUCKETS + at) as u32
    }

    /// Ends what is due in a bucket. Returns the tick that it is to be looked at again.
    #[allow(clippy::cast_possible_truncation)]
    fn scan(
        &self,
        bucket: u32,
        instant: Instant,
        budget: &mut usize,
        face: &impl Face,
    ) -> Option<u64> {
        let first = bucket * BUCKET_U32;
        let header = self.slots.header(first)?;
        // From here on the bucket reads "never": inserters tell us of what comes.
        let base = header.next.take()?;
        let mut earliest = NEVER;
        for (at, slot) in self.slots.bucket(first)?.iter().enumerate() {
            let mut lease = slot.lease();
            while lease.state().expires() {
                // Everything in the bucket is due at `base` or later, or its inserter has yet to lower it.
                let deadline = lease.deadline_from(base);
                if deadline > instant.tick {
                    earliest = earliest.min(deadline);
                    break;
                }
                let claim = Claim {
                    id: first + at as u32,
                    incarnation: lease.incarnation(),
                    slot,
                };
                if !face.may_end(&claim, lease) {
                    earliest = earliest.min(instant.tick + 1);
                    break;
                }
                match self.end(slot, lease) {
                    Ok(()) => {
                        *budget = budget.saturating_sub(1);
                        face.expired(claim, lease, deadline, instant.now);
                        break;
                    }
                    // Touched or ended meanwhile: look again (Q6).
                    Err(now) => lease = now,
                }
            }
        }
        if earliest != NEVER {
            // A minimum, never a store: inserters and touches may have lowered it since (W5, W11).
            let _ = header.next.lower(earliest);
        }
        header.next.get()
    }

    /// The carrier's work in all indexes. True if there is more.
    fn carry(&self, budget: &mut usize) -> bool {
        let mut more = false;
        for index in &self.indexes {
            if !index.wants_carrying() {
                continue;
            }
            // Emptied before the next copy begins, so none of these has a copy on its way.
            let mut head = index.limbo.swap(0, Ordering::AcqRel);
            while let Some(slot) = head
                .checked_sub(1)
                .and_then(|id| u32::try_from(id).ok())
                .and_then(|id| self.slot(id))
            {
                head = slot.owner.load(Ordering::Relaxed);
                slot.set_lease(Lease::free(slot.lease().incarnation()));
                self.return_credit();
            }
            more |= index.carry(budget);
        }
        more
    }

    /// Takes chunks off a ring that is mostly free, and gives back what has drained.
    fn tend(&self, driver: &mut DriverShard, at: usize, face: &impl Face) -> Tended {
        let shard = &self.shards[at];
        let (live, keys) = face.live(at);
        self.indexes[at].shrink_if_empty(keys);
        let active = shard.active.load(Ordering::Acquire);
        driver.resident = driver.resident.max(active);
        // Keep twice what is live, and one chunk.
        #[allow(clippy::cast_possible_truncation)]
        let wanted = (live * 2 / CHUNK as u64) as u32 + 1;
        if active > 1 && wanted < active / 2 {
            // Fails if a thread adds a chunk just now: then it is not mostly free after all.
            let _ =
                shard
                    .active
                    .compare_exchange(active, wanted, Ordering::AcqRel, Ordering::Relaxed);
        }
        let active = shard.active.load(Ordering::Acquire);
        let mut released = 0;
        while driver.resident > active && released < RELEASE_AT_ONCE {
            let local = driver.resident - 1;
            let chunk = local as usize * self.shards.len() + at;
            let wheel = &mut driver.wheel;
            let done = self.slots.release(chunk, || {
                for (bucket, header) in self.slots.headers(chunk).into_iter().flatten().enumerate()
                {
                    header.next.take();
                    #[allow(clippy::cast_possible_truncation)]
                    wheel.deschedule(local * CHUNK_BUCKETS as u32 + bucket as u32);
                }
            });
            if !done {
                break;
            }
            driver.resident = local;
            released += 1;
        }
        if released > 0 && driver.resident == active {
            driver.wheel.shrink_to(active as usize * CHUNK_BUCKETS);
        }
        if released == RELEASE_AT_ONCE {
            Tended::More
        } else if driver.resident > active {
            Tended::Later
        } else {
            Tended::All
        }
    }

    /// Whether memory is waiting to be given back and the driver should be told.
    pub(crate) fn wants_tending(&self, face: &impl Face) -> bool {
        (0..self.shards.len()).any(|at| {
            let active = u64::from(self.shards[at].active.load(Ordering::Relaxed));
            active > 1 && face.live(at).0 * 2 / (CHUNK as u64) + 1 < active / 2
        })
    }

    /// Asks the driver to look after memory.
    pub(crate) fn tend_soon(&self) {
        self.untended.swap(true, Ordering::AcqRel);
        self.wake_by(1);
    }

    /// Announces that the reaper will sleep until `tick`, and says whether it may: nothing came meanwhile.
    pub(crate) fn announce(&self, tick: u64) -> bool {
        self.wake_at.swap(tick, Ordering::AcqRel);
        self.driver
            .enter(|driver| {
                let mut quiet = true;
                for (shard, driver) in self.shards.iter().zip(&mut driver.shards) {
                    if driver.taken.is_empty() {
                        driver.taken = shard.inbox.take();
                    }
                    quiet &= driver.taken.is_empty();
                }
                // Whoever asks for these does so before it lowers the announcement, as with the inbox.
                quiet
                    && !self.untended.load(Ordering::Acquire)
                    && !self.indexes.iter().any(Index::wants_carrying)
            })
            .unwrap_or(false)
    }

    /// For models: the clock has come to `tick`, which ends the reaper's sleep if it was announced to end by then.
    #[cfg(expiry_loom)]
    pub(crate) fn timer_fires(&self, tick: u64) {
        let announced = self.wake_at.fetch_add(0, Ordering::AcqRel);
        if announced != 0 && announced <= tick {
            self.waker.wake();
        }
    }

    /// The reaper is awake: nobody needs to wake it.
    pub(crate) fn awake(&self) {
        self.wake_at.swap(0, Ordering::AcqRel);
    }

    /// New entries are refused from about now on; those under way may still come.
    pub(crate) fn refuse(&self) {
        self.refusing.store(true, Ordering::Release);
    }

    /// Shuts the engine: ends every slot, calling `f` for each that this ended. Waits for a round of the
    /// driver that is under way. After it returns nothing is live, and nothing can come.
    pub(crate) fn close(&self, face: &impl Face, mut f: impl FnMut(Claim<'_>, Lease)) {
        self.refuse();
        while self
            .driver
            .enter(|_| {
                for (at, shard) in self.shards.iter().enumerate() {
                    let peak = shard.peak.fetch_or(SHUT, Ordering::AcqRel) & !SHUT;
                    for local in 0..peak {
                        let chunk = local as usize * self.shards.len() + at;
                        for header in self.slots.headers(chunk).into_iter().flatten() {
                            header.next.close();
                        }
                        self.each(chunk, |claim, mut lease| {
                            // One that is not published yet is its claimer's, who will find the bucket closed.
                            while lease.state().expires() && face.may_end(&claim, lease) {
                                match self.end(claim.slot, lease) {
                                    Ok(()) => return f(claim, lease),
                                    Err(now) => lease = now,
                                }
                            }
                        });
                    }
                }
            })
            .is_none()
        {
            thread::yield_now();
        }
    }

    fn each(&self, chunk: usize, mut f: impl FnMut(Claim<'_>, Lease)) {
        for (at, slot) in self.slots.chunk(chunk).into_iter().flatten().enumerate() {
            let lease = slot.lease();
            #[allow(clippy::cast_possible_truncation)]
            f(
                Claim {
                    id: (chunk * CHUNK + at) as u32,
                    incarnation: lease.incarnation(),
                    slot,
                },
                lease,
            );
        }
    }

    /// Calls `f` with every slot that may be in use, as it is just then. For operators; O(capacity).
    pub(crate) fn for_each(&self, mut f: impl FnMut(Claim<'_>, Lease)) {
        for (at, shard) in self.shards.iter().enumerate() {
            let peak = shard.peak.load(Ordering::Acquire) & !SHUT;
            for local in 0..peak {
                self.each(local as usize * self.shards.len() + at, &mut f);
            }
        }
    }
}

/// How many chunks a shard gives back in one round: at most some 4 MiB.
const RELEASE_AT_ONCE: u32 = 32;

/// How long until the driver looks again at a chunk that it could not give back, in nanoseconds.
const TEND_AGAIN: u64 = 1_000_000_000;

/// What became of looking after a shard's memory.
enum Tended {
    All,
    More,
    Later,
}
