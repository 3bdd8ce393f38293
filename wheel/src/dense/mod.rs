//! Hierarchical timer wheel: which of many ids is due, in O(1) per change.
//!
//! [`TimerWheel`](crate::TimerWheel) schedules the places of its slab with it, and the engine of
//! `expiry` the slot blocks of its shards. It knows nothing about what an id stands for, reads no
//! clock, runs no callback and holds no lock. Ids are small dense integers that the caller picks;
//! time is a `u64` in whatever unit the caller counts. In an id's node the caller may keep a
//! payload, so that one cache line holds both; the wheel does not look at it.
//!
//! The module is public for `expiry` alone, and hidden: it keeps no promise between versions, so
//! `expiry` asks for exactly its own version of this crate. A second wheel in `expiry` would repeat
//! all of this module but the payloads, some 1,500 lines, and its tests.
//!
//! | module | mechanism |
//! |---|---|
//! | `clock` | the clock, the cursor, and when there is next anything to do |
//! | `nodes` | what is known of an id |
//! | `records` | the lists of records, and the broom |
//! | `filing` | from a due to a list |
//! | `pop` | what time has brought: firing, and the cascade |
//! | `dead` | when a record is dead, and when there are too many of them |
//! | `look` | reading without a change |
//! | `validate` | the invariants below, checked |
//!
//! # Nodes and records
//! `schedule` writes an id's due and a new *generation* into its node, and a *record* of due, id
//! and generation at the end of a bucket. `cancel` raises the generation: the record stays
//! where it is, and is *dead*, since it does not match its node any more. So neither call touches
//! more memory at random than the one node. Dead records take part in all that follows as if they
//! were alive. A pop drops them when it would be their turn to fire. Where there are too many of
//! them, they go before: a cascade drops those that it meets, and the *broom* those of one block
//! after the other.
//!
//! # Time is a circle
//! Only differences mean anything. `a` is before `b` if `a - b`, wrapped and read as signed, is
//! negative: half of the circle is past, the other half future. So a clock may start anywhere,
//! cross zero, and run through `u64::MAX`; no value of it is special. Between two pops that end in
//! [`Pop::Idle`] the clock must move less than 2^63 units in all; in nanoseconds that is 292 years.
//! The wheel holds its own clock back so that it stays within 2^62 of the cursor. So a due is at
//! most three quarters of the circle ahead of the cursor. What is left is no shorter than the
//! longest period, 2^62: the digits of a due do not look like the past.
//!
//! # Levels are digits
//! A [`Geometry`] cuts the bits of a time into digits: below the finest digit lie `shift` bits that
//! the wheel does not sort by, above the coarsest one all that is left is the *period*. The wheel
//! keeps a **cursor**, the start of a finest bucket. A record is filed under the most significant
//! digit in which its due differs from the cursor, at the value which its due has there; if the
//! periods differ it goes to the **overflow** bucket, if no digit differs it is in the cursor's own
//! finest bucket. Level and bucket come from the same two numbers, so they cannot contradict each
//! other. (Taking the level from the length of the wait but the bucket from the absolute time can:
//! an entry almost one turn away then shares the bucket that the clock is in, and hides what is
//! behind it.)
//!
//! # Invariants
//! The validator in the tests checks each after every step.
//! - **W-live.** `len` ids are scheduled, and each has one record that matches its node, in
//!   generation and due. Every record's id has a node.
//! - **W-order.** No filed record is due before the cursor, and the cursor is never after `now`,
//!   nor 2^62 or more before it.
//! - **W-place.** Each filed record lies where digits of its due and of the *current* cursor say.
//!   On a level the occupied buckets are thus later than the cursor's own, never a turn away (no
//!   ring has to be unrolled). All of level *n* is earlier than all of level *n + 1*, which is
//!   earlier than the overflow. The earliest bucket of the wheel is the first set bit of the first
//!   non-empty level.
//! - **W-bound.** The head of an occupied bucket keeps a lower bound of the dues in it, which
//!   itself belongs in that bucket. It is exact until the id that set it leaves; then it is
//!   stale, and still a bound, until the bucket is visited.
//! - **W-wake.** If anything stands outside the levels, or a bucket's bound has come, `wake` is
//!   `now`. Otherwise `wake` is after `now`, or is `now` because no pop has looked. Before `wake`
//!   no bound comes, and no bucket begins but finest ones. So the clock may move, and the cursor
//!   after it, without a look at anything.
//! - **W-bits.** A bit is set if and only if its list has a record.
//! - **W-blocks.** Every block is in one list, and has a record, or it is in the pool.
//! - **W-dead.** There are at most three records for each id that has a node, and some: 64, and
//!   what comes while the broom goes round once.
//!
//! # Moving the cursor
//! [`Wheel::pop`] looks at the earliest bucket. If it begins after `now`, nothing is due; the
//! cursor steps to `now`, which changes the place of no entry, because no record lies in between.
//! Until the next bucket begins, a pop only moves `now` (`wake`); the cursor follows when something
//! is scheduled. Otherwise the cursor steps to the bound of that bucket, or to `now` if that is
//! earlier. The bucket's whole list is taken off (a few writes), to be filed again under the new
//! cursor, one record per unit of work. That is the *cascade*. What lies on a level goes to a finer
//! one, and because the cursor steps to the bound rather than to where the bucket begins, a lone
//! entry falls through all levels in one go. (Seen from afar this is a monotone radix heap; the
//! clock is what makes it monotone.)
//!
//! Three lists stand outside the levels. **Ready**: known to be due; fired head first, and never
//! compared with a clock again. **Pending**: taken off a bucket, not yet filed again; the cursor
//! stands still until it is empty. **Late**: due when it was scheduled, and not after the bucket
//! that the cursor stands in. Late entries join ready at the end of a round, a round being what one
//! bucket holds. So a caller that keeps scheduling the past delays the rest by one entry per round,
//! and starves none of it.
//!
//! # No callbacks
//! `pop` hands out one entry and leaves the wheel whole. What the caller does before the next pop
//! (panic, schedule, cancel anything, forget the wheel for a while) meets no half-done state:
//! nothing is held on the stack between pops, and an entry taken out of ready or pending leaves
//! a dead record there as in any other list. A budget that runs out is the same thing: the lists
//! and the cursor are the backlog, and the next pop continues there. Nothing is ever rewound.
//!
//! # A small example
//! Two levels of four buckets, one unit each (`Geometry::new(0, &[2, 2])`, period 16), now = 5.
//! In base 4, with the period in front, the cursor is `0.11`.
//!
//! | step | digits | what happens | work |
//! |---|---|---|---|
//! | schedule a, due 7 | `0.13` | last digit differs: level 0, bucket 3 | |
//! | schedule b, due 10 | `0.22` | first digit differs: level 1, bucket 2 | |
//! | schedule c, due 18 | `1.02` | the period differs: overflow | |
//! | `next_expiration` | | first set bit is level 0, bucket 3, bound 7 | |
//! | pop at 9 | `0.21` | bucket 3 is ready, cursor 7; a fires | 2 |
//! | pop at 9 | | b's bucket began at 8: cursor 9, b moves to level 0, bucket 2; idle | 2 |
//! | pop at 20 | `1.10` | b fires | 2 |
//! | pop at 20 | | period 1 began at 16: cursor 18, c is refiled, found due, fires; idle | 2 |
//!
//! # Costs
//! | call | cost |
//! |---|---|
//! | `schedule` | O(1): no search; two blocks of fifteen records are swept at most; no allocation in the steady state |
//! | `cancel` | O(1): one node |
//! | `pop` | one unit of work per id, dropped or refiled record and visited bucket; a record is refiled at most once per level (but see coarse buckets and the overflow below) |
//! | time in which nothing is due | O(levels), be it a tick or a century: a bitmap per level |
//! | `next_expiration`, `due` | O(levels), O(1) |
//! | memory | 16 bytes and a payload per id up to the highest in use; 17 bytes per record, of which there are one to three per id; 1 KiB per level, from the first id on |
//!
//! # Decisions, and what they cost
//! - *Never early, exact at the end.* Buckets say where to look, dues say what fires. If a finest
//!   bucket spans several units, what is in it but not due yet is refiled whenever the bound of
//!   that bucket has been reached: popping often inside a crowded coarse bucket costs its
//!   population each time. Take the finest bucket about as wide as the pops are apart.
//! - *The overflow is one list.* Each visit refiles all of it, once for each period in which
//!   something in it is due. Take a geometry whose top level covers the usual deadlines; then it is
//!   empty.
//! - *The wake-up is the bound, not where a bucket begins.* A sleeper that follows
//!   `next_expiration` wakes once per distinct due and never only to cascade; in return a cascade
//!   may run right before its first entry fires. Descheduling the earliest entry of a bucket may
//!   cost one empty wake-up.
//! - *Records, not links.* In a doubly linked list, cancelling and moving touch two neighbours
//!   besides the node, and firing waits for one node after the other, on every level: at a million
//!   timers these misses are all there is to the cost. With records, cancelling and moving touch
//!   one node, a cascade copies from row to row, and what is about to fire is fetched ahead. In
//!   return there are the dead. Filing a record pays for dropping a dead one, so that descheduling
//!   need not. If timers are cancelled in the order in which they were scheduled, a linked list has
//!   each neighbour at hand for the next, and is faster. (`figures -- wheel` has the numbers.)
//! - *Huge pages are asked for* from 2 MiB of nodes or blocks on, where the system leaves that to
//!   programs, and so such an array grows by moving to a new one. What is touched at random waits
//!   for page tables as much as for memory. In return, what is scheduled while an array moves waits
//!   for a copy of it.
//! - *A cascade goes block by block.* A block is copied out and filed in one loop, in which nothing
//!   is looked up again; what is due now interrupts it.
//! - *Three records for each id.* The fewer dead are kept, the more living ones are looked at for
//!   each that is dropped.
//! - *Generations have 32 bits.* After 2^31 schedules of one id, all the dead are dropped at
//!   once, O(records), so that none of them can match again.
//!
//! # Sources
//! G. Varghese and A. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987: the structure and
//! its costs. Ahuja, Mehlhorn, Orlin and Tarjan, "Faster Algorithms for the Shortest Path Problem",
//! 1990: the radix heap. Caffeine's `TimerWheel`: widths as powers of two of a nanosecond, the look
//! ahead into coarser levels, and most of the bugs that the tests are named after. Kafka's
//! `TimingWheel`: empty time should cost nothing (there by a queue of buckets, here by bitmaps).
//! Linux `kernel/time/timer.c`: timeouts are mostly cancelled; there, far levels are coarse so that
//! nothing ever cascades. This wheel stays exact, keeps the cascades, and bounds them by the
//! budget.

mod clock;
mod dead;
mod filing;
mod look;
mod nodes;
mod pop;
mod records;
#[cfg(test)]
#[path = "../../tests/unit/dense/mod.rs"]
mod tests;
#[cfg(any(test, fuzzing))]
mod validate;
#[cfg(any(test, fuzzing))]
pub(super) use validate::validate;

use super::geometry::Geometry;
use clock::Clock;
use dead::most;
use nodes::Nodes;
pub use nodes::Payload;
pub use pop::Pop;
use records::{Lists, Record};

/// The list of what is known to be due, in firing order.
const READY: u32 = 0;

/// The list of what was taken off a bucket and is to be filed under the new cursor.
const PENDING: u32 = 1;

/// The list of what was due when it was scheduled, and not after the cursor's bucket.
const LATE: u32 = 2;

/// Schedules dense ids by deadline, for one owner. The module's head says how it works.
#[derive(Clone, Debug)]
pub struct Wheel<P: Payload = ()> {
    nodes: Nodes<P>,
    lists: Lists,
    /// Number of records above which filing one sweeps.
    most: usize,
    clock: Clock,
    len: usize,
}

impl Wheel {
    /// The highest id that can be scheduled. The number above it is left for "none".
    pub const MAX_ID: u32 = u32::MAX - 1;

    /// An empty wheel of plain ids. See [`with_payload`](Wheel::with_payload).
    #[must_use]
    pub fn new(geometry: Geometry, now: u64) -> Wheel {
        Wheel::with_payload(geometry, now)
    }
}

impl<P: Payload> Wheel<P> {
    /// An empty wheel whose clock stands at `now`. Allocates nothing.
    #[must_use]
    pub fn with_payload(geometry: Geometry, now: u64) -> Wheel<P> {
        Wheel {
            nodes: Nodes::new(),
            lists: Lists::new(geometry.rows()),
            most: most(0),
            clock: Clock::new(geometry, now),
            len: 0,
        }
    }

    /// Schedules `id` for `due`, or moves it there if it is scheduled already.
    ///
    /// A due at or before [`now`](Wheel::now) fires in the present or next series of pops, before
    /// anything of a finest bucket that is later than both its own and the one being fired.
    /// O(1); the first use of an id above all earlier ones grows the node array up to it (amortised
    /// O(1) if ids are dense).
    ///
    /// # Panics
    /// If `id` exceeds [`MAX_ID`](Wheel::MAX_ID). The wheel is unchanged then.
    #[inline]
    pub fn schedule(&mut self, id: u32, due: u64) {
        if !self.nodes.has(id) {
            self.grow(id);
        }
        if self.nodes.is_scheduled(id) {
            self.end(id);
        } else {
            self.len += 1;
        }
        let generation = self.nodes.begin(id, due);
        self.enter(Record { due, id, generation });
    }

    /// [`schedule`](Wheel::schedule), and keeps `payload` with the id in place of what was there.
    #[inline]
    pub fn schedule_with(&mut self, id: u32, due: u64, payload: P) {
        self.schedule(id, due);
        if let Some(place) = self.nodes.payload_mut(id) {
            *place = payload;
        }
    }

    /// Moves a scheduled `id` to `due` if `is` holds of its payload; returns whether it did. O(1).
    #[inline]
    pub fn reschedule_if(&mut self, id: u32, due: u64, is: impl FnOnce(&P) -> bool) -> bool {
        let Some(generation) = self.nodes.renew(id, due, is) else {
            return false;
        };
        if generation == 1 {
            self.come_round(id);
        }
        self.enter(Record { due, id, generation });
        true
    }

    /// Takes `id` out and returns its payload, leaving the default, if it is scheduled and `is`
    /// says so of the payload. O(1).
    #[inline]
    pub fn take_if(&mut self, id: u32, is: impl FnOnce(&P) -> bool) -> Option<P> {
        let (payload, round) = self.nodes.take(id, is)?;
        self.len -= 1;
        if round {
            self.lists.sweep_all(&self.nodes);
        }
        Some(payload)
    }

    /// Takes `id` out and returns whether it was scheduled. Idempotent. O(1).
    #[inline]
    pub fn cancel(&mut self, id: u32) -> bool {
        let scheduled = self.nodes.is_scheduled(id);
        if scheduled {
            self.end(id);
            self.len -= 1;
        }
        scheduled
    }

    /// Gives memory to `id` and all below it.
    ///
    /// # Panics
    /// If `id` exceeds [`MAX_ID`](Wheel::MAX_ID). The wheel is unchanged then.
    #[cold]
    pub fn grow(&mut self, id: u32) {
        assert!(id <= Wheel::MAX_ID, "wheel id {id} is above Wheel::MAX_ID");
        self.lists.make();
        self.nodes.grow(id);
        self.most = most(self.nodes.len());
    }

    /// The deadline `id` is scheduled for, as it was given. O(1).
    #[inline]
    #[must_use]
    pub fn due(&self, id: u32) -> Option<u64> {
        self.nodes.due(id)
    }

    /// What the caller keeps with `id`, scheduled or not; `None` if that has no memory yet. O(1).
    #[inline]
    #[must_use]
    pub fn payload(&self, id: u32) -> Option<&P> {
        self.nodes.payload(id)
    }

    /// Mutable [`payload`](Wheel::payload).
    #[inline]
    #[must_use]
    pub fn payload_mut(&mut self, id: u32) -> Option<&mut P> {
        self.nodes.payload_mut(id)
    }

    /// Ids below this one have memory, scheduled or not. O(1).
    #[inline]
    #[must_use]
    pub fn ids(&self) -> usize {
        self.nodes.len()
    }

    /// How many ids can be scheduled, from 0 on, before memory is allocated. O(1).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    /// The wheel's geometry.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.clock.geometry()
    }

    /// The latest time a pop was given, or the one at creation. O(1).
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// How many ids are scheduled. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no id is scheduled. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all ids and drops the payloads. The clock and the memory stay. O(ids).
    pub fn clear(&mut self) {
        self.len = 0;
        self.clock.step_to_now();
        self.clock.stay_awake();
        self.lists.clear();
        self.most = most(0);
        // Last: a payload's drop may panic, and finds all of it done then.
        self.nodes.clear();
    }

    /// Allocates for the ids below `ids`, so that no scheduling or moving of them does.
    pub fn reserve(&mut self, ids: usize) {
        self.lists.make();
        self.nodes.reserve(ids);
        // A dead record stays until the broom has gone round once, at the latest.
        let most = most(ids);
        self.lists.reserve(most + most / 8);
    }

    /// Gives back the memory of the ids from `ids` on that lie above the highest scheduled one, and
    /// that of records beyond those of the scheduled ids. O(ids given back and records), and a copy
    /// of the others if the allocator cannot shrink in place.
    pub fn shrink_to(&mut self, ids: usize) {
        self.lists.sweep_all(&self.nodes);
        self.lists.shrink();
        self.nodes.shrink_to(ids);
        self.most = most(self.nodes.len());
    }
}
