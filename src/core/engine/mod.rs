//! The engine: claiming slots, ending them, and driving their expiry.
//!
//! # Who does what
//!
//! * Any thread claims, publishes, touches and ends slots. None of it waits for anybody.
//! * Any number of threads *drive* (`poll`; the reaper thread calls it too), each shard by one at a
//!   time. A shard's driver empties its inbox, advances its wheel, scans buckets that are due,
//!   migrates its index's words, and gives its memory back. A poll goes over the shards, different
//!   threads beginning with different ones, leaves out those that another thread drives, and says
//!   so. What its budget does not cover stays in the shard, for the next driver.
//! * After a round the driver has left every shard and is unpinned. Then it frees slots of entries
//!   that have ended and that no thread can be looking at, and drops their payloads ([`reclaim`]).
//!   One thread at a time takes the lists and looks after grace periods. Payloads are dropped outside
//!   of that, so several drivers may drop different batches concurrently.
//! * The driver calls handlers and listeners unpinned, but while it is at the shard. A poll in a
//!   handler finds every shard taken; a shutdown in one only asks. [`Engine::close`] goes from
//!   shard to shard and waits at each until its driver has left it.
//!
//! # How a deadline reaches the wheel
//!
//! ```text
//!   inserter                                   who is at the shard
//!   lease := LIVE, deadline d  (store or swap)      take the inbox, schedule the buckets in it
//!   next.lower(d)              (read-modify-write)  n := next.take()         (read-modify-write)
//!   if lowered: inbox.push, then with the           scan the bucket's leases (all, or if there is no
//!     bucket's *current* next expiration              news those that the last scan found due now)
//!     name the shard's, which is news of it,        next.put_back(minimum found)
//!     lower the announced wake-up,                  schedule the bucket at next.get()
//!     and wake the reaper if that lowered it        shard's next: raise to the wheel's; or if there has
//!                                                     been news, begin again (read-modify-write)
//! ```
//!
//! Both sides change `next` by read-modify-writes only, so one comes first: the inserter's, and then the
//! driver's scan sees the lease; or the driver's, and then the inserter finds "never" (or a later tick),
//! lowers it, and pushes the bucket (W5). A touch to an earlier deadline does the same two steps (W11).
//!
//! The shard's next expiration is thus a lower bound of what is in its buckets, filed or on the way, at any time, also while
//! somebody is at the shard: it is raised only at the end, if nobody has named an expiration since before the inbox was
//! taken. A tick that somebody has named and that is yet to come stays, although the inbox was empty: its bucket may be on the
//! way in another thread's hands (W10). What is held up on that way longer than its deadline, a poll does not find before it
//! arrives.
//!
//! Of all that is named a shard keeps the nearest only, and who finds its bucket lowered by another names nothing while
//! something nearer is known of the shard. So where somebody asks how long to wait (the keyed stores), who is about to make a lease
//! of which the driver is to hear says so in its stripe, until it has told ([`Stripe::telling`]); and who raises the shard's next
//! expiration looks at the stripes first, and goes no further than that (Q12).
//!
//! # Who sleeps, and who leaves
//!
//! Before it sleeps the reaper announces until when (`wake_at`, swap), then looks at each shard that nobody is at, whether
//! something is wanted there earlier. Who wants something (lowers the next expiration, has a slot to be freed, asks for tending)
//! says so first, then lowers the announcement (read-modify-write): either it lowers one that was too late, and wakes the
//! reaper, or the reaper's second look finds what is wanted (W4). The pusher compares the bucket's current next expiration,
//! not its own deadline, because it may be pushing on behalf of another thread that found the bucket flagged already (W10).
//!
//! A shard that somebody is at, the reaper leaves to them. Who polls beside the reaper therefore, having left a shard,
//! looks at the announcement (read-modify-write), then whether something is wanted at the shard: either that comes before the
//! reaper's swap, and the reaper finds the shard left; or after it, and it finds the announcement, and all that was wanted
//! before that.
//!
//! # Shutdown (W8)
//!
//! `close` closes every bucket's next expiration by a swap. An inserter whose `lower` comes before it has its
//! slot seen by the scan that follows; one whose `lower` comes after finds the bucket closed and ends its own
//! slot. Buckets that did not exist are excluded the same way on the shard's chunk count.
//!

mod claim;
mod close;
mod deadline;
mod owner;
mod pause;
mod plan;
mod poll;
mod reclaim;
mod round;
mod walk;

pub(crate) use deadline::{BadTimeout, Look};
pub(crate) use walk::Walk;

use super::header::{Header, Lowered, NextExpiration};
use super::inbox::{Inbox, Taken};
use super::index::{Index, Insert, Probe, Removed};
use super::lateness::{self, Lateness};
use super::lease::{Lease, State};
use super::memory::OutOfMemory;
use super::params::{BUCKET, CHUNK};
pub(crate) use super::pins::Pin;
use super::pins::Pins;
use super::slot::{Payload, Slot};
use super::slots::{Slots, Spot};
use super::threads::{self, index, Counter, Stripes};
use crate::sync::asymmetric::Barrier;
use crate::sync::exclusive::Exclusive;
use crate::sync::park::{Patience, Waker};
use crate::sync::{process, thread, AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::time::{Clock, CoarseClock, Ticks, NEVER};
use crate::wheel::{Geometry, Wheel};
use crossbeam_utils::CachePadded;
use pause::Pause;
use std::sync::Arc;

#[allow(clippy::cast_possible_truncation)]
const BUCKET_U32: u32 = BUCKET as u32;

/// How many homes and words of the index an inserting thread migrates at a time where the driver has fallen behind.
const HELP: usize = 64;

/// How far, in ticks, the driver may be behind before leases must be kept out of buckets that have waited that long.
const MAX_LAPSE: u64 = 1 << 38;

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

    #[inline]
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
    /// The exact clock is read for deadlines, whatever the coarse one's lag.
    pub(crate) exact: bool,
    pub(crate) seed: u64,
    /// By how many nanoseconds late the driver takes it that the process has been stalled; see [`pause`].
    pub(crate) pause_grace: Option<u64>,
    /// Each entry has one owner, who alone ends it but for the driver; see [`owner`].
    pub(crate) owners: bool,
}

/// Why no slot could be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    OutOfMemory,
    Closed,
}

/// A slot that the caller owns alone.
pub(crate) struct Claim<'a, P: Payload> {
    pub(crate) id: u32,
    pub(crate) incarnation: u32,
    pub(crate) slot: Slot<'a, P>,
}

impl<P: Payload> Clone for Claim<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Payload> Copy for Claim<'_, P> {}

impl<'a, P: Payload> Claim<'a, P> {
    /// Of the occupancy that `lease` is of.
    #[inline(always)]
    pub(crate) fn of(id: u32, slot: Slot<'a, P>, lease: Lease) -> Self {
        Claim {
            id,
            incarnation: lease.incarnation(),
            slot,
        }
    }
}

struct Shard {
    inbox: Inbox,
    /// When something in the shard next expires, or earlier. Lowered by who tells of a bucket, raised by who is at the shard.
    next: NextExpiration,
    /// The tick at which somebody should come for other reasons. Written by who is at the shard.
    chores: AtomicU64,
    /// Somebody has seen that memory can go back; see [`Engine::tend_soon`].
    untended: AtomicBool,
    /// Chunks in the ring.
    active: AtomicU32,
    /// The last chunk off the ring, plus one, that a thread has left since memory was looked after; [`SEVERAL`] if there are others.
    left: AtomicU32,
    /// The most chunks there ever were, with [`SHUT`] on top once the engine has shut down.
    peak: AtomicU32,
    /// Where the next thread that needs a chunk begins to look.
    ring: AtomicU32,
    /// Chunks off the ring whose memory is held still. The driver's; a statistic.
    lingering: std::sync::atomic::AtomicU32,
    /// The latest clock reading up to which everything that was due here has been ended. Written by who is at the shard.
    caught_up: std::sync::atomic::AtomicU64,
    /// Of its expirations. Written by who is at the shard.
    lateness: lateness::Counts,
    driver: CachePadded<Exclusive<DriverShard>>,
}

const SHUT: u32 = 1 << 31;
const SEVERAL: u32 = u32::MAX;

/// The deadline that a timeout (in nanoseconds) had last, and until which clock reading it holds.
#[derive(Default)]
struct LastDeadline {
    after: Counter,
    deadline: Counter,
    until: Counter,
}

/// What a thread keeps to itself. Written by one thread at a time; see [`super::threads`].
pub(crate) struct Stripe<C> {
    /// The bucket that this thread owns, if it does, or looks at next: its first slot; and the end of the chunk.
    hand: Counter,
    end: Counter,
    /// Whether it owns that bucket; which slots of it are left to claim; what the incarnations of zeroed ones come after.
    owned: Counter,
    free: Counter,
    base: Counter,
    /// Slots of this chunk that it has walked past, and how many of them were free.
    seen: Counter,
    found: Counter,
    /// Which shard's chunk comes next.
    turn: Counter,
    /// Slots this thread has freed, of all shards; every so often it asks whether memory can go back.
    ended: Counter,
    /// Of the default timeout, and of the one that was said last.
    default: LastDeadline,
    own: LastDeadline,
    /// The tick at which the driver was found to be years behind; 0 if it was not. See [`Engine::lapse`].
    pub(crate) lapsed: Counter,
    /// Non-zero while this thread is in a round of the driver, handlers included.
    pub(crate) driving: Counter,
    /// Entries of this thread's that were refused for want of room.
    refused: Counter,
    /// How many shards further than its index says this thread's next round begins.
    further: Counter,
    /// The slots that it has ended and that are not free yet.
    reclaim: reclaim::Mine,
    /// How near the nearest tick is of which it has yet to tell, as [`NEVER`] less that; 0 if it has told of all. A standard atomic
    /// also under loom: each poll would look at eight more.
    untold: std::sync::atomic::AtomicU64,
    ending: owner::Ending,
    /// The face's share.
    pub(crate) face: C,
}

impl<C> Stripe<C> {
    fn new(face: C) -> Self {
        Stripe {
            hand: Counter::default(),
            end: Counter::default(),
            owned: Counter::default(),
            free: Counter::default(),
            base: Counter::default(),
            seen: Counter::default(),
            found: Counter::default(),
            turn: Counter::default(),
            ended: Counter::default(),
            default: LastDeadline::default(),
            own: LastDeadline::default(),
            lapsed: Counter::default(),
            driving: Counter::default(),
            refused: Counter::default(),
            further: Counter::default(),
            reclaim: reclaim::Mine::new(),
            untold: std::sync::atomic::AtomicU64::new(0),
            ending: owner::Ending::none(),
            face,
        }
    }

    /// Says that this thread is about to make a lease that expires at `tick`, of which the driver is to hear; until what is returned is
    /// dropped. Before anybody can find the lease.
    ///
    /// No fence: whose answer leans on that lease has found it, or its bucket lowered, and with it what is said here.
    #[inline]
    pub(crate) fn telling(&self, tick: u64) -> Telling<'_> {
        let before = self.untold.load(std::sync::atomic::Ordering::Relaxed);
        let untold = before.max(NEVER - tick);
        self.untold
            .store(untold, std::sync::atomic::Ordering::Relaxed);
        Telling {
            untold: &self.untold,
            before,
        }
    }
}

/// See [`Stripe::telling`]. These nest.
pub(crate) struct Telling<'a> {
    untold: &'a std::sync::atomic::AtomicU64,
    before: u64,
}

impl Drop for Telling<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: who finds it gone finds the shard's next expiration named.
        self.untold
            .store(self.before, std::sync::atomic::Ordering::Release);
    }
}

/// What only who is at the shard touches.
struct DriverShard {
    wheel: Wheel,
    taken: Taken,
    /// The shard's next expiration as it was left, or heard of, last. See [`NextExpiration::raise`].
    heard: u64,
    /// Chunks from here up have been let go or never used, but for those set aside.
    resident: u32,
    /// Chunks off the ring that could not be let go because a thread owns a bucket in them.
    aside: Vec<u32>,
    plans: plan::Plans,
    /// The latest tick of a round that was here.
    tick: u64,
    /// The last tick at which memory was looked after.
    tended: u64,
    /// Something was in the way then, or has ended here since: memory is to be looked after again in a while.
    lingers: bool,
    /// For how many ticks the last look at a grace period that does not end was put off.
    patience: u64,
    /// The words of the index when it was looked at last; 0 before.
    #[cfg(feature = "tracing")]
    words: u64,
}

impl DriverShard {
    fn new() -> Self {
        DriverShard {
            wheel: Wheel::new(Geometry::TICKS, 0),
            taken: Taken::default(),
            heard: 0,
            resident: 0,
            aside: Vec::new(),
            plans: plan::Plans::default(),
            tick: 0,
            tended: NEVER,
            lingers: false,
            patience: 0,
            #[cfg(feature = "tracing")]
            words: 0,
        }
    }
}

/// The time of a round: the tick that has begun, the clock's reading, and which stalls its entries are not to suffer for.
#[derive(Clone, Copy)]
struct Instant<'p> {
    tick: u64,
    now: u64,
    pauses: &'p [Pause],
}

/// What a round may still do, and what it has done.
struct Work {
    budget: usize,
    /// Entries that it has ended.
    ended: usize,
}

/// See [`Engine::driving`].
struct Driving<'a, P: Payload, C> {
    engine: &'a Engine<P, C>,
    /// Of the stripe that is marked: an ending thread's is borrowed, and must not be another's meanwhile.
    index: threads::Index,
    _in_round: threads::InRound,
}

impl<P: Payload, C> Drop for Driving<'_, P, C> {
    fn drop(&mut self) {
        let driving = &self.engine.stripes.get(self.index.get()).driving;
        driving.set(driving.get() - 1);
    }
}

/// What a round of the driver left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    /// The budget ran out: call again at once.
    pub(crate) more: bool,
    /// Somebody was at some of the shards, or this thread is in a round already: those were left out.
    pub(crate) busy: bool,
    /// The tick to come back at, if nothing else happens, to the shards that were not left out.
    pub(crate) next: Option<u64>,
}

/// Told of what the driver finds; implemented by the store types.
pub(crate) trait Face<P: Payload> {
    /// Whether the driver may end this slot. False for one that has been filled but not yet published: its
    /// claimer owns it still. Its claimer calls [`Engine::enforce`] once it has published it.
    fn may_end(&self, claim: &Claim<'_, P>, lease: Lease) -> bool;

    /// The driver is about to end this slot: a chance to start fetching what that will touch.
    fn prepare(&self, id: u32, slot: Slot<'_, P>, lease: Lease);

    /// `slot` has been ended by the driver (its lease is `DEAD`, was `lease`, deadline `deadline`) at clock
    /// reading `now`: report it and free it. Must not panic.
    fn expired(&self, claim: Claim<'_, P>, lease: Lease, deadline: u64, now: u64);

    /// How many of a shard's slots are in use, and how many keys its index holds; about.
    fn live(&self, shard: usize) -> (u64, u64);

    /// The slot that this one leads to, where slots are forwarded.
    fn tail(&self, id: u32) -> u32 {
        id
    }

    /// No thread looks at an ended slot any more: takes its payload, calls `free`, and drops the payload. Must not panic.
    fn discard(&self, _slot: Slot<'_, P>, free: impl FnOnce())
    where
        Self: Sized,
    {
        free();
    }
}

/// A sharded store of slots that expire.
pub(crate) struct Engine<P: Payload, C> {
    slots: Slots<P>,
    shards: Box<[CachePadded<Shard>]>,
    indexes: Box<[Index]>,
    stripes: Stripes<CachePadded<Stripe<C>>>,
    pub(crate) ticks: Ticks,
    pub(crate) clock: Source,
    /// The clock's lag if the coarse reading is used for deadlines; `None` if the exact one is.
    lag: Option<u64>,
    /// The most slots in use, where that is bounded, and how many are left.
    pub(crate) capacity: Option<u64>,
    credits: Option<CachePadded<AtomicU64>>,
    /// Who waits for one.
    #[cfg(feature = "async")]
    line: crate::sync::tasks::Line,
    /// Who waits for the end of it all.
    #[cfg(feature = "async")]
    pub(crate) parting: crate::sync::tasks::Crowd,
    /// Tick that the reaper sleeps until; 0 while it is awake (or there is none).
    wake_at: CachePadded<AtomicU64>,
    /// For models: until when the reaper sleeps, or is about to; 0 if it does not.
    #[cfg(expiry_loom)]
    sleeps_until: std::sync::atomic::AtomicU64,
    pub(crate) waker: Waker,
    /// The latest clock reading of a round: time does not go back for the driver. A hint elsewhere: it only ever makes a
    /// deadline later.
    driven: CachePadded<std::sync::atomic::AtomicU64>,
    /// The latest tick up to which everything that was due has been ended. See [`Engine::lapse`].
    caught_up: std::sync::atomic::AtomicU64,
    reclaim: reclaim::Reclaim,
    pins: Pins,
    /// Where stalls of the process are looked out for.
    watch: Option<pause::Watch>,
    /// Between owners and who ends what is due; off where entries have no owners.
    barrier: Barrier,
    /// New entries are refused.
    refusing: AtomicBool,
    /// They are, or the capacity is bounded: a claim has more to ask than whether a slot is free.
    asks: AtomicBool,
    /// The process that it was made in.
    process: u32,
    seed: u64,
    hasher: foldhash::SharedSeed,
    /// Nanoseconds that rounds of the reaper have taken, and how many there were. Written by it only.
    pub(crate) busy: Counter,
    pub(crate) rounds: Counter,
    /// That there is no memory has been said, and none has come since.
    #[cfg(feature = "tracing")]
    starves: std::sync::atomic::AtomicBool,
}

impl<P: Payload, C> Engine<P, C> {
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
                        next: NextExpiration::never(),
                        chores: AtomicU64::new(NEVER),
                        untended: AtomicBool::new(false),
                        active: AtomicU32::new(0),
                        left: AtomicU32::new(0),
                        peak: AtomicU32::new(0),
                        ring: AtomicU32::new(0),
                        lingering: std::sync::atomic::AtomicU32::new(0),
                        caught_up: std::sync::atomic::AtomicU64::new(now),
                        lateness: lateness::Counts::new(),
                        driver: CachePadded::new(Exclusive::new(DriverShard::new())),
                    })
                })
                .collect(),
            indexes: (0..shards)
                .map(|_| Index::new())
                .collect::<Result<_, _>>()?,
            stripes: Stripes::new(move || CachePadded::new(Stripe::new(stripe()))),
            ticks,
            // A lag that is small beside the interval is made up for by adding it to every deadline.
            lag: (!config.exact && lag <= config.interval / 4).then_some(lag),
            clock: config.clock,
            capacity: config.capacity.map(|slots| slots as u64),
            credits: config
                .capacity
                .map(|slots| CachePadded::new(AtomicU64::new(slots as u64))),
            #[cfg(feature = "async")]
            line: crate::sync::tasks::Line::new(),
            #[cfg(feature = "async")]
            parting: crate::sync::tasks::Crowd::new(),
            wake_at: CachePadded::new(AtomicU64::new(0)),
            #[cfg(expiry_loom)]
            sleeps_until: std::sync::atomic::AtomicU64::new(0),
            waker: Waker::new(),
            driven: CachePadded::new(std::sync::atomic::AtomicU64::new(now)),
            caught_up: std::sync::atomic::AtomicU64::new(0),
            reclaim: reclaim::Reclaim::new(),
            pins: Pins::new(),
            watch: config.pause_grace.map(pause::Watch::new),
            barrier: Barrier::new(config.owners),
            refusing: AtomicBool::new(false),
            asks: AtomicBool::new(config.capacity.is_some()),
            process: process::current(),
            seed: config.seed,
            hasher: foldhash::SharedSeed::from_u64(config.seed),
            busy: Counter::default(),
            rounds: Counter::default(),
            #[cfg(feature = "tracing")]
            starves: std::sync::atomic::AtomicBool::new(false),
        })
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Whether what has been waited for so long is said by a thread that stayed behind when this process was forked.
    pub(crate) fn has_lost(&self, patience: &Patience) -> bool {
        patience.is_long() && self.process != process::current()
    }

    #[inline]
    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    #[inline(always)]
    pub(crate) fn slot(&self, id: u32) -> Option<Slot<'_, P>> {
        self.slots.slot(id)
    }

    /// A slot and what belongs to it.
    #[inline(always)]
    pub(crate) fn spot(&self, id: u32) -> Option<Spot<'_, P>> {
        self.slots.spot(id)
    }

    /// See [`Pins::pin`].
    #[inline(always)]
    pub(crate) fn pin(&self) -> Pin {
        self.pins.pin()
    }

    /// How many slots of `face`, which is this engine's, are in use; about, while others come and go.
    pub(crate) fn len(&self, face: &impl Face<P>) -> usize {
        let live: u64 = (0..self.shards()).map(|shard| face.live(shard).0).sum();
        usize::try_from(live).unwrap_or(usize::MAX)
    }

    /// A caller is told that there is no room.
    #[cold]
    pub(crate) fn count_refusal(&self) {
        self.with_stripe(|mine, _| mine.refused.add(1));
    }

    /// How many callers have been.
    pub(crate) fn refusals(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.refused.get()).sum()
    }

    /// An entry that was due at `deadline` is seen at clock reading `now`. By who is at its shard. What has come early, and was never
    /// begun, is no entry.
    #[inline]
    fn late(&self, claim: &Claim<'_, P>, lease: Lease, deadline: u64, now: u64) {
        if !lease.state().is_early() {
            let late = now.saturating_sub(self.ticks.begins(deadline));
            self.shards[self.shard_of(claim.id)].lateness.add(late);
        }
    }

    /// How late what has expired was seen.
    pub(crate) fn lateness(&self) -> Lateness {
        let mut sum = Lateness::default();
        for shard in &*self.shards {
            shard.lateness.add_to(&mut sum);
        }
        sum
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
        (id as usize / CHUNK) & (self.shards.len() - 1)
    }

    /// How many slots of a shard have their memory, in use or not.
    pub(crate) fn held(&self, shard: usize) -> u64 {
        let shard = &self.shards[shard];
        let lingering = shard.lingering.load(std::sync::atomic::Ordering::Relaxed);
        (u64::from(shard.active.load(Ordering::Relaxed)) + u64::from(lingering)) * CHUNK as u64
    }

    /// The seeded hash of some bits.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // the low half is what is kept
    pub(crate) fn hash(&self, bits: u64) -> u32 {
        use std::hash::Hasher;
        let mut hasher = foldhash::quality::FoldHasher::with_seed(self.seed, &self.hasher);
        hasher.write_u64(bits);
        hasher.finish() as u32
    }

    /// The shard whose index has the keys of this hash. The index addresses homes by the lowest bits; shards go by a product,
    /// to which all bits contribute.
    #[inline]
    pub(crate) fn shard_of_hash(&self, hash: u32) -> usize {
        (hash.wrapping_mul(0x9E37_79B1) >> 24) as usize & (self.shards.len() - 1)
    }

    /// The index that has the keys of this hash.
    #[inline]
    pub(crate) fn index_of(&self, hash: u32) -> &Index {
        &self.indexes[self.shard_of_hash(hash)]
    }

    #[inline]
    pub(crate) fn index(&self, shard: usize) -> &Index {
        &self.indexes[shard]
    }
}

impl<P: Payload, C> Engine<P, C> {
    /// Calls `f` with this thread's stripe and index.
    #[inline(always)]
    pub(crate) fn with_stripe<R>(&self, f: impl FnOnce(&Stripe<C>, usize) -> R) -> R {
        let index = index();
        f(self.stripes.get(index.get()), index.get())
    }

    /// Marks this thread as being at a shard, or about to go to some, until the mark is dropped. Marks nest.
    fn driving(&self) -> Driving<'_, P, C> {
        let index = index();
        self.stripes.get(index.get()).driving.add(1);
        Driving {
            engine: self,
            index,
            _in_round: threads::InRound::begin(),
        }
    }

    /// Whether this thread is in a round of the driver: in a handler that one has called.
    pub(crate) fn is_driving(&self) -> bool {
        self.with_stripe(|mine, _| mine.driving.get() != 0)
    }

    /// All stripes that exist.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = &C> {
        self.stripes.iter().map(|stripe| &stripe.face)
    }

    /// Sums what `of` makes of each thread's share: how many slots are in use, and how many keys there are, by what this thread
    /// has counted, which may be less than nothing.
    pub(crate) fn balance(&self, of: impl Fn(&C) -> (u64, u64)) -> (u64, u64) {
        let add = |sum: (u64, u64), (slots, keys): (u64, u64)| {
            (sum.0.wrapping_add(slots), sum.1.wrapping_add(keys))
        };
        let (slots, keys) = self.stripes().map(of).fold((0, 0), add);
        // Counters are read one after another while others count: a little below zero is zero.
        let sane = |n: u64| if n > i64::MAX as u64 { 0 } else { n };
        (sane(slots), sane(keys))
    }

    /// Makes sure that the reaper looks at slot `id` by `tick`. Call after its lease was set to expire then.
    ///
    /// `Err` if the engine was shut down before: the caller must end the slot itself, or find it ended.
    #[inline]
    pub(crate) fn enforce(&self, id: u32, tick: u64) -> Result<(), Refused> {
        match self.slots.header(id) {
            Some(header) => self.enforce_in(header, id, tick),
            None => Ok(()),
        }
    }

    /// As [`enforce`](Self::enforce), for who has the header at hand.
    #[inline(always)]
    pub(crate) fn enforce_in(&self, header: &Header, id: u32, tick: u64) -> Result<(), Refused> {
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
            // After the push: who raises it has taken the inbox with the bucket in it.
            self.shards[self.shard_of(id)].next.name(tick);
            self.wake_by(tick);
        }
    }

    /// Makes sure that the next expiration of the shard of slot `id` is `tick` at the latest. Who has made a lease that
    /// expires then may have found nothing to tell, because another thread is about to tell of an earlier one.
    #[inline]
    pub(crate) fn heed(&self, id: u32, tick: u64) {
        let next = &self.shards[self.shard_of(id)].next;
        if tick < next.get().unwrap_or(NEVER) {
            next.name(tick);
        }
    }

    /// The nearest tick of which somebody has yet to tell, the next one if it has passed; [`NEVER`] if there is none.
    fn untold(&self, now: u64) -> u64 {
        let acquire = std::sync::atomic::Ordering::Acquire;
        let nearest = self
            .stripes
            .iter()
            .map(|stripe| stripe.untold.load(acquire));
        (NEVER - nearest.max().unwrap_or(0)).max(now + 1)
    }

    /// When something next expires, or earlier.
    pub(crate) fn next_expiration(&self) -> Option<u64> {
        self.shards
            .iter()
            .filter_map(|shard| shard.next.get())
            .min()
    }

    /// How long until then.
    pub(crate) fn wait_time(&self) -> Option<std::time::Duration> {
        let promises = self.promises();
        // First: who has told since has named it at its shard before, and whoever leaned on that finds one or the other (Q12).
        let untold = self.untold(0);
        let told = self.shards.iter().filter_map(|shard| shard.next.get_told());
        let next = told.min().unwrap_or(NEVER);
        // Read after them: a stall in between makes the wait shorter (Q12).
        let now = self.clock.now();
        let next = next.min(untold.max(self.ticks.at(now) + 1));
        if let Some(before) = promises {
            let until = match next {
                NEVER => u64::MAX,
                next => self.ticks.begins(next),
            };
            self.promised(before, now, until);
        }
        (next != NEVER).then(|| self.ticks.until(now, next))
    }

    /// Publishes slot `id` in the index, wherever there is room, unless `probe` takes a slot that is there already.
    pub(crate) fn publish(
        &self,
        pin: &Pin,
        hash: u32,
        id: u32,
        probe: &mut impl Probe,
        face: &impl Face<P>,
    ) -> Insert {
        let mut crowded = false;
        let shard = self.shard_of_hash(hash);
        let index = &self.indexes[shard];
        let entered = index.insert(pin, hash, id, &mut crowded, probe);
        if crowded {
            index.grow_if_full(face.live(shard).1);
        }
        self.help_carrying(pin, shard, crowded, face);
        if let Insert::Full = entered {
            self.starves();
        }
        entered
    }

    /// A key has gone into the index of `shard` the long way; `crowded` if the index may have grown. Sees to it that
    /// what is to be carried is carried: the driver hears of it, and if it has fallen behind by more than a table, this
    /// thread carries some words itself, unless another thread does. It does not take the driver's place for that.
    #[inline]
    fn help_carrying(&self, pin: &Pin, shard: usize, crowded: bool, face: &impl Face<P>) {
        let index = &self.indexes[shard];
        let waiting = index.tables_to_carry();
        if crowded && waiting > 0 {
            self.wake_by(1);
        }
        if waiting > 1 {
            index.carry(pin, &mut { HELP }, |id| face.tail(id));
        }
    }

    /// Ends a slot: the one caller for whom this succeeds owns it alone from here on.
    #[inline]
    pub(crate) fn end(&self, slot: Slot<'_, P>, lease: Lease) -> Result<(), Lease> {
        slot.swap_lease(lease, lease.with_state(State::Dead))
    }

    /// Frees a slot that the caller owns alone: it ended it, or claimed it and never published it.
    #[inline]
    pub(crate) fn free(&self, stripe: &Stripe<C>, claim: &Claim<'_, P>) -> bool {
        claim.slot.set_lease(Lease::free(claim.incarnation));
        self.freed(stripe)
    }

    /// A slot has been freed. Whether it is time to ask if memory can go back.
    #[inline]
    pub(crate) fn freed(&self, stripe: &Stripe<C>) -> bool {
        self.return_credit();
        stripe.ended.add(1);
        stripe.ended.get() % CHUNK as u64 == 0
    }

    /// A slot that the caller has ended is out of the index. It is free at once if no thread can be looking at it; else
    /// [later](Self::free_later).
    #[inline]
    pub(crate) fn free_or_rest(
        &self,
        stripe: &Stripe<C>,
        claim: &Claim<'_, P>,
        removed: Removed,
    ) -> bool {
        if let Removed::Clean = removed {
            return self.free(stripe, claim);
        }
        self.free_later(stripe, claim.id, true);
        self.freed(stripe)
    }

    /// As [`free`](Self::free), of a slot that was [claimed instead](Self::claim_instead) of another one.
    pub(crate) fn free_instead(&self, claim: &Claim<'_, P>) {
        claim.slot.set_lease(Lease::free(claim.incarnation));
    }
}
