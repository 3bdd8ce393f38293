//! Hierarchical timer wheel: which of many ids is due, in O(1) per change.
//!
//! This is the single-owner core, the only one: the engine schedules the buckets of its shards with
//! it, [`TimerWheel`](super::TimerWheel) the places of its slab. It knows nothing about what an id
//! stands for, reads no clock, runs no callback and holds no lock. Ids are small dense integers
//! that the caller picks; time is a `u64` in whatever unit the caller counts. In an id's node
//! the caller may keep a payload, so that one cache line holds both; the wheel does not look at it.
//!
//! # Nodes and records
//! To schedule an id is to write its due and a new *generation* into its node (`nodes.rs`), and a *record* of due, id and
//! generation at the end of a bucket (`records.rs`). To deschedule it is to raise the generation: the
//! record stays where it is, and is *dead*, since it does not match its node any more. So neither touches more
//! memory at random than the one node. Dead records take part in all that follows as if they were alive, and are dropped when
//! it would be their turn to fire; or before, when there are too many of them: by a cascade that comes upon them, or by the broom.
//!
//! # Time is a circle
//! Only differences mean anything. `a` is before `b` if `a - b`, wrapped and read as signed, is
//! negative: half of the circle is past, the other half future. So a clock may start anywhere,
//! cross zero, and run through `u64::MAX`; no value of it is special. Between two pops that end in
//! [`Pop::Idle`] the clock must move less than 2^63 units in all; in nanoseconds that is 292 years.
//! The wheel's own clock stays within 2^62 of the cursor: it is held back while there is more of a
//! backlog than that. So whatever is scheduled, half the circle ahead of the clock, is less than one
//! period short of the whole circle ahead of the cursor, and its digits do not look like the past.
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
//! - **W-live.** `len` ids are scheduled, and each has one record that matches its node, in generation and due. Every
//!   record's id has a node.
//! - **W-order.** No filed record is due before the cursor, and the cursor is never after `now`, nor
//!   2^62 or more before it.
//! - **W-place.** Each filed record lies where digits of its due and of the *current* cursor say. On
//!   a level the occupied buckets are thus later than the cursor's own, never a turn away (no ring
//!   has to be unrolled), and all of level *n* is earlier than all of level *n + 1*, which is
//!   earlier than the overflow. The earliest bucket of the wheel is the first set bit of the first
//!   non-empty level.
//! - **W-bound.** The head of an occupied bucket keeps a lower bound of the dues in it, which
//!   itself belongs in that bucket. It is exact until the id that set it leaves; then it is
//!   stale, and still a bound, until the bucket is visited.
//! - **W-wake.** If anything stands outside the levels, or a bucket's bound has come, `wake` is `now`. Otherwise
//!   it is after `now`, or says nothing by being `now`; and until then no bound comes and no bucket begins but the
//!   finest, so that the clock may move, and the cursor after it, without a look at anything.
//! - **W-bits.** A bit is set if and only if its list has a record.
//! - **W-blocks.** Every block is in one list, and has a record, or it is in the pool.
//! - **W-dead.** There are at most three records for each id that has a node, and some: 64, and what comes while the broom
//!   goes round once.
//!
//! # Moving the cursor
//! [`Wheel::pop`] looks at the earliest bucket. If it begins after `now`, nothing is due; the
//! cursor steps to `now`, which changes the place of no entry, because nobody is filed in between.
//! Until the next bucket begins, a pop only moves `now` (`wake`); the cursor follows when something is
//! scheduled.
//! Otherwise the cursor steps to the bound of that bucket, or to `now` if that is earlier, and the
//! bucket's whole list is taken off (a few writes) to be filed again under the new cursor, one record
//! per unit of work. That is the cascade. What lies on a level goes to a finer one, and because the
//! cursor steps to the bound rather than to where the bucket begins, a lone entry falls through all
//! levels in one go. (Seen from afar this is a monotone radix heap; the clock is what makes it
//! monotone.)
//!
//! Three lists stand outside the levels. **Ready**: known to be due; fired head first, and never
//! compared with a clock again. **Pending**: taken off a bucket, not yet filed again; the cursor
//! stands still until it is empty. **Late**: due when it was scheduled, and not after the bucket
//! that the cursor stands in. Late entries join ready at the end of a round, a round being what one
//! bucket holds, so a caller that keeps scheduling the past delays the rest by one entry per round
//! and starves nobody.
//!
//! # No callbacks
//! `pop` hands out one entry and leaves the wheel whole. What the caller does before the next pop
//! (panic, schedule, deschedule anything, forget the wheel for a while) meets no half-done state:
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
//! | `deschedule` | O(1): one node |
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
//! - *Records, not links.* In a doubly linked list, cancelling and moving touch two neighbours besides the node, and
//!   firing waits for one node after the other, on every level: at a million timers these misses are all there is to the
//!   cost. With records, cancelling and moving touch one node, a cascade copies from row to row, and what is about to fire
//!   is fetched ahead. In return there are the dead. Filing a record pays for throwing out a dead one, so that
//!   descheduling need not; and if timers are cancelled in the order in which they were scheduled, a list has each
//!   neighbour at hand for the next, and is faster. (`figures -- wheel` has the numbers.)
//! - *Huge pages are asked for* from 2 MiB of nodes or blocks on, where the system leaves that to programs, and so such an array
//!   grows by moving to a new one. What is touched at random waits for page tables as much as for memory. In return, what is scheduled while an array moves waits for a copy of it.
//! - *A cascade goes block by block.* A block is copied out and filed in one loop, in which nothing is looked up again; what is
//!   due now interrupts it.
//! - *Three records for each id.* The fewer dead are kept, the more living ones are looked at for each that is thrown out.
//! - *Generations have 32 bits.* After 2^31 schedules of one id, all the dead are thrown out at once, O(records), so that none
//!   of them can match again.
//!
//! # Sources
//! G. Varghese and A. Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987: the structure and
//! its costs. Ahuja, Mehlhorn, Orlin and Tarjan, "Faster Algorithms for the Shortest Path Problem",
//! 1990: the radix heap. Caffeine's `TimerWheel`: widths as powers of two of a nanosecond, the look
//! ahead into coarser levels, and most of the bugs that the tests are named after. Kafka's
//! `TimingWheel`: empty time should cost nothing (there by a queue of buckets, here by bitmaps).
//! Linux `kernel/time/timer.c`: timeouts are mostly cancelled; there, far levels are coarse so that
//! nothing ever cascades. This wheel stays exact, keeps the cascades, and bounds them by the budget.

mod nodes;
mod records;
#[cfg(test)]
mod tests;
#[cfg(any(test, fuzzing))]
mod validate;
#[cfg(any(test, fuzzing))]
pub(super) use validate::validate;

use super::geometry::Geometry;
use nodes::Nodes;
pub use nodes::Payload;
use records::{Lists, Record};

/// Known to be due, in firing order.
const READY: u32 = 0;
/// Taken off a bucket and to be filed under the new cursor.
const PENDING: u32 = 1;
/// Due when scheduled, and not after the cursor's bucket.
const LATE: u32 = 2;

/// How far the clock may go ahead of the cursor.
const REACH: u64 = (1 << 62) - 1;

/// What one step of [`Wheel::pop`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pop {
    /// This id was due and is no longer scheduled.
    Due {
        /// The id given to [`Wheel::schedule`].
        id: u32,
        /// The deadline given to [`Wheel::schedule`].
        due: u64,
    },
    /// Nothing that is scheduled is due; all work that time had brought is done.
    Idle,
    /// The work allowance is used up and there is more to do. Nothing is lost: pop again.
    Budget,
}

/// Dead records that are put up with whatever the number of ids.
const SLACK: usize = 64;

/// Buckets of a few that are looked at at most, by [`Wheel::next_expiration`], for whether all in them are dead.
const LOOKS: usize = 8;

/// Blocks that are swept at most when a record is filed and there are too many.
const STROKES: usize = 2;

/// Schedules dense ids by deadline. See the module for how it works; one owner, no locks.
#[derive(Clone, Debug)]
pub struct Wheel<P: Payload = ()> {
    nodes: Nodes<P>,
    lists: Lists,
    /// With more records than this, filing one sweeps.
    most: usize,
    geometry: Geometry,
    /// Start of the finest bucket that all places are relative to. Never after `now`.
    cursor: u64,
    /// The latest time a pop was given, or less while it is held back.
    now: u64,
    /// Before this there is nothing to do; `now` if nobody has looked.
    wake: u64,
    len: usize,
}

impl Wheel {
    /// The highest id that can be scheduled; the one above is "none" to whoever keeps ids.
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
            most: SLACK,
            cursor: geometry.floor(now),
            geometry,
            now,
            wake: now,
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
        self.place(id, due);
    }

    /// [`schedule`](Wheel::schedule), and keeps `payload` with the id in place of what was there.
    #[inline]
    pub fn schedule_with(&mut self, id: u32, due: u64, payload: P) {
        self.place(id, due);
        if let Some(place) = self.nodes.payload_mut(id) {
            *place = payload;
        }
    }

    #[inline]
    fn place(&mut self, id: u32, due: u64) {
        if !self.nodes.has(id) {
            self.grow(id);
        }
        if self.nodes.is_scheduled(id) {
            self.end(id);
        } else {
            self.len += 1;
        }
        let generation = self.nodes.begin(id, due);
        self.enter(Record {
            due,
            id,
            generation,
        });
    }

    /// Puts a new record where it belongs.
    #[inline]
    fn enter(&mut self, record: Record) {
        if self.wake != self.now {
            // Nothing lies between: see W-wake.
            self.cursor = self.geometry.floor(self.now);
        }
        if has_come(self.now, record.due) {
            self.enter_due(record);
        } else {
            self.file(record);
        }
        if self.lists.records() > self.most {
            self.sweep();
        }
    }

    #[cold]
    fn enter_due(&mut self, record: Record) {
        // Between the cursor's bucket and now there may be a backlog: there an entry has its
        // regular place although it is due. Not in the cursor's own bucket, which would
        // then never be done with if its entries keep scheduling themselves for it.
        let backlog = self.geometry.granularity()..=self.ahead(self.now);
        if backlog.contains(&self.ahead(record.due)) {
            self.file(record);
        } else {
            self.lists.push(LATE, record);
            self.wake = self.now;
        }
    }

    /// Moves `id` to `due` if it is scheduled and `is` says so of its payload, and returns whether it did. O(1).
    #[inline]
    pub fn reschedule_if(&mut self, id: u32, due: u64, is: impl FnOnce(&P) -> bool) -> bool {
        let Some(generation) = self.nodes.renew(id, due, is) else {
            return false;
        };
        if generation == 1 {
            // It has come round: records of the first one would match again.
            self.come_round(id);
        }
        self.enter(Record {
            due,
            id,
            generation,
        });
        true
    }

    /// Takes `id` out and returns its payload, leaving the default, if it is scheduled and `is` says so of the payload. O(1).
    #[inline]
    pub fn take_if(&mut self, id: u32, is: impl FnOnce(&P) -> bool) -> Option<P> {
        let (payload, round) = self.nodes.take(id, is)?;
        self.len -= 1;
        if round {
            self.lists.sweep_all(&self.nodes);
        }
        Some(payload)
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

    #[cold]
    fn come_round(&mut self, id: u32) {
        self.nodes.set_generation(id, 0);
        self.lists.sweep_all(&self.nodes);
        self.nodes.set_generation(id, 1);
    }

    /// Leaves the record of a scheduled id dead.
    #[inline]
    fn end(&mut self, id: u32) {
        if self.nodes.end(id) {
            self.lists.sweep_all(&self.nodes);
        }
    }

    /// Throws out a few dead records. There are more of them than living ones, so it is soon done with.
    #[inline(never)]
    fn sweep(&mut self) {
        for _ in 0..STROKES {
            self.lists.sweep(&self.nodes);
            if self.lists.records() <= self.most {
                return;
            }
        }
    }

    /// Takes `id` out and returns whether it was scheduled. Idempotent. O(1).
    #[inline]
    pub fn deschedule(&mut self, id: u32) -> bool {
        let scheduled = self.nodes.is_scheduled(id);
        if scheduled {
            self.end(id);
            self.len -= 1;
        }
        scheduled
    }

    /// The deadline `id` is scheduled for, as it was given. O(1).
    #[inline]
    #[must_use]
    pub fn due(&self, id: u32) -> Option<u64> {
        self.nodes.due(id)
    }

    /// Moves the clock to `now` and takes one step: a due id, or the news that there is none.
    ///
    /// Call it with the same `now` until it says [`Pop::Idle`]; then everything due at `now` has
    /// been handed out. The caller may use the wheel freely between two pops. Never hands out
    /// an id before its due. A `now` earlier than one seen before fires nothing and moves
    /// nothing.
    ///
    /// **Budget.** Every id handed out, record dropped or refiled and bucket visited takes 1 from `work`; when
    /// there is none left and something to do, the answer is [`Pop::Budget`] and the next pop
    /// continues at that point. Any allowance above 0 makes progress.
    ///
    /// **Order.** Ids that were scheduled ahead of time come in ascending order of finest bucket
    /// (`due >> shift`), over all pops, whatever the budgets; with one unit per bucket that is the
    /// order of dues. In one bucket they come first in, first out, with two exceptions: what
    /// was scheduled during an interrupted cascade may overtake its elders, and one that is not
    /// due yet when its coarse bucket is looked at comes later. An id that was due when
    /// scheduled comes no later than the next bucket after the one being fired, or in its own
    /// turn if that is ahead.
    ///
    /// **Cost.** O(1) plus the work taken; O(levels) per visited bucket and for `Idle`.
    #[inline]
    pub fn pop(&mut self, now: u64, work: &mut usize) -> Pop {
        if self.rests(now) {
            return Pop::Idle;
        }
        self.work(now, work)
    }

    /// Moves the clock to `now` if that is all there is to do. A few instructions, for loops that mostly find nothing.
    #[inline]
    pub fn rests(&mut self, now: u64) -> bool {
        // W-wake: the right side is less than 2^63, so this says, too, that `now` is not the past.
        let rests = now.wrapping_sub(self.now) < self.wake.wrapping_sub(self.now);
        if rests {
            self.now = now;
        }
        rests
    }

    fn work(&mut self, now: u64, work: &mut usize) -> Pop {
        if !has_come(now, self.now) {
            return Pop::Idle;
        }
        self.now = self.within_reach(now);
        self.wake = self.now;
        if self.len == 0 {
            if !self.lists.are_made() {
                return self.rest_unused(now);
            }
            self.lists.clear();
        }
        loop {
            if let Some(pop) = self.fire_ready(work) {
                return pop;
            }
            if let Some(pop) = self.file_pending(work) {
                return pop;
            }
            // The round is over. Late entries go first in the next one, but do not take the place
            // of the next bucket: otherwise a caller that schedules the past starves the present.
            self.lists.splice(LATE, READY);
            match self.earliest_to_visit() {
                Some(head) => {
                    if !take(work) {
                        return Pop::Budget;
                    }
                    self.visit(head);
                }
                None => {
                    self.cursor = self.geometry.floor(self.now);
                    if self.lists.is_empty(READY) {
                        if self.now == now {
                            self.wake = self.next_visit();
                            return Pop::Idle;
                        }
                        self.now = self.within_reach(now);
                        self.wake = self.now;
                    }
                }
            }
        }
    }

    /// Moves the clock of a wheel that has never had an id to `now`.
    #[cold]
    fn rest_unused(&mut self, now: u64) -> Pop {
        self.now = now;
        self.cursor = self.geometry.floor(now);
        self.wake = self.next_visit();
        Pop::Idle
    }

    /// Fires the next of what is known to be due. `None` if there is no more.
    #[inline]
    fn fire_ready(&mut self, work: &mut usize) -> Option<Pop> {
        while !self.lists.is_empty(READY) {
            if !take(work) {
                return Some(Pop::Budget);
            }
            if let Some(pop) = self.fire(READY) {
                return Some(pop);
            }
        }
        None
    }

    /// Files what was taken off a bucket, or fires it if it is due now. `None` when all is filed.
    #[inline]
    fn file_pending(&mut self, work: &mut usize) -> Option<Pop> {
        while let Some(first) = self.lists.first(PENDING) {
            if *work == 0 {
                return Some(Pop::Budget);
            }
            if !self.is_now(first.due) {
                self.file_block(work);
                continue;
            }
            *work -= 1;
            if let Some(pop) = self.fire(PENDING) {
                return Some(pop);
            }
        }
        None
    }

    /// Files, or drops, the first block of what is pending, as far as the work goes and up to what is due now.
    #[inline]
    fn file_block(&mut self, work: &mut usize) {
        // A copy: there is nothing to look up again between one record and the next.
        let Some(block) = self.lists.first_block(PENDING) else {
            return;
        };
        // With more dead than living, a look at each node is less work than to file the dead, on every level.
        let sifts = self.lists.records() > 2 * self.len;
        if sifts {
            for record in block.records() {
                self.nodes.fetch(record.id);
            }
        }
        let mut filed = 0;
        for record in block.records().iter().take(*work) {
            if self.is_now(record.due) {
                break;
            }
            filed += 1;
            if sifts && !self.nodes.is_live(record.id, record.generation) {
                continue;
            }
            let (head, _) = self.put(*record);
            if records::row(head) == 1 {
                // It is next looked at when it fires.
                self.nodes.fetch(record.id);
            }
        }
        *work -= filed;
        self.lists.drop_first(PENDING, filed);
    }

    /// When it is worth popping next: `None` if nothing is scheduled, [`now`](Wheel::now) if
    /// something is due or half done, otherwise a time after `now` and not after the earliest
    /// due.
    ///
    /// It is the earliest due exactly, on whatever level that lies, unless the earliest entry of
    /// its bucket was descheduled or moved since the bucket was last visited; then it may be
    /// earlier, and a pop at that time makes it exact again. (With one unit per finest bucket
    /// it is always exact if the next event is on the finest level.) Whoever sleeps until then
    /// and pops, over and over, wakes at most once per distinct due and once per removal.
    /// O(levels).
    #[must_use]
    pub fn next_expiration(&self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        if self.lists.any_in_row(0) {
            return Some(self.now);
        }
        let mut head = self.lists.first_head(1)?;
        for _ in 0..LOOKS {
            let live = |record: &Record| self.nodes.is_live(record.id, record.generation);
            match self.lists.only_block(head) {
                Some(few) if !few.iter().any(live) => {}
                _ => break,
            }
            head = self.lists.first_head_from(head + 1)?;
        }
        let bound = self.lists.bound(head);
        Some(if self.reached(bound) { self.now } else { bound })
    }

    /// What the caller keeps with `id`, scheduled or not; `None` if there is no memory for it yet. O(1).
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

    /// The shape it was made with.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Forgets all ids and drops the payloads. The clock and the memory stay. O(ids).
    pub fn clear(&mut self) {
        self.len = 0;
        self.cursor = self.geometry.floor(self.now);
        self.wake = self.now;
        self.lists.clear();
        self.most = SLACK;
        // Last: a payload's drop may panic, and finds all of it done then.
        self.nodes.clear();
    }

    /// What time has brought and pops have not taken yet: ids, their dues, and whether they are
    /// known to be due whatever the clock says.
    pub fn backlog(&self) -> impl Iterator<Item = (u32, u64, bool)> + '_ {
        let lists = [(READY, true), (LATE, true), (PENDING, false)];
        lists
            .into_iter()
            .flat_map(|(head, due)| self.bucket(head).map(move |(id, at)| (id, at, due)))
    }

    /// The earliest filled bucket from `from` up to, and without, `to`. Both are buckets from here, or
    /// any number. All of a bucket is due before all of the next. O(levels).
    #[must_use]
    pub fn first_bucket(&self, from: u32, to: u32) -> Option<u32> {
        let head = self.lists.first_head_from(from.max(records::FIRST))?;
        (head < to).then_some(head)
    }

    /// The latest filled bucket from `from` up to, and without, `to`. O(levels).
    #[must_use]
    pub fn last_bucket(&self, from: u32, to: u32) -> Option<u32> {
        let head = self.lists.last_head_before(to)?;
        (head >= from.max(records::FIRST)).then_some(head)
    }

    /// The ids of a bucket and their dues, in the order in which they were filed.
    pub fn bucket(&self, head: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        let live = move |record: &&Record| self.nodes.is_live(record.id, record.generation);
        let records = self.lists.iter(head).filter(live);
        records.map(|record| (record.id, record.due))
    }

    /// The latest time a pop was given, or the one at creation. O(1).
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
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

    /// Allocates for the ids below `ids`, so that scheduling them does not, however often they are moved.
    pub fn reserve(&mut self, ids: usize) {
        self.lists.make();
        self.nodes.reserve(ids);
        // What is thrown out, a circle of the broom later at the latest, is there until then.
        let most = most(ids);
        self.lists.reserve(most + most / 8);
    }

    /// Gives back the memory of the ids from `ids` on that lie above the highest scheduled one, and that of records beyond
    /// those of the scheduled ids. O(ids given back and records), and a copy of the others if the allocator cannot shrink in
    /// place.
    pub fn shrink_to(&mut self, ids: usize) {
        self.lists.sweep_all(&self.nodes);
        self.lists.shrink();
        self.nodes.shrink_to(ids);
        self.most = most(self.nodes.len());
    }

    /// Files a new record, and keeps W-wake.
    #[inline]
    fn file(&mut self, record: Record) {
        let (head, first) = self.put(record);
        if first {
            let from = self.begins(head, record.due);
            if self.reached(from) {
                self.wake = self.now;
            } else if self.ahead(from) < self.ahead(self.wake) {
                self.wake = from;
            }
        }
    }

    /// Puts a record where its due and the cursor say, and keeps W-bound. Returns the head, and whether it is the first due there.
    #[inline]
    fn put(&mut self, record: Record) -> (u32, bool) {
        let due = record.due;
        let head = self.geometry.head(due, self.cursor);
        let first =
            self.lists.push(head, record) || self.ahead(due) < self.ahead(self.lists.bound(head));
        if first {
            self.lists.set_bound(head, due);
        }
        (head, first)
    }

    /// Whether `due`, of what is pending, has come and is in the cursor's own bucket.
    #[inline]
    fn is_now(&self, due: u64) -> bool {
        self.geometry.floor(due) == self.cursor && self.reached(due)
    }

    /// When it comes to be visited: something in a finest bucket may be due at its bound, and the cursor may
    /// not go into a coarser bucket as it is.
    #[inline]
    fn begins(&self, head: u32, bound: u64) -> u64 {
        match records::row(head) {
            1 => bound,
            row => self.geometry.bucket_start(row, bound),
        }
    }

    /// Takes the first record of a list, which is due, and its id's schedule, unless the record is dead.
    #[inline]
    fn fire(&mut self, head: u32) -> Option<Pop> {
        if let Some(ahead) = self.lists.ahead(head) {
            self.nodes.fetch(ahead);
        }
        let Record {
            due,
            id,
            generation,
        } = self.lists.pop(head)?;
        if !self.nodes.is_live(id, generation) {
            return None;
        }
        self.end(id);
        self.len -= 1;
        Some(Pop::Due { id, due })
    }

    /// The head of the earliest bucket, if time has brought work there.
    #[inline]
    fn earliest_to_visit(&self) -> Option<u32> {
        let head = self.lists.first_head(1)?;
        let from = self.begins(head, self.lists.bound(head));
        self.reached(from).then_some(head)
    }

    /// When time brings work next, if there is none now; at most as far as the clock may go ahead of the cursor.
    #[inline]
    fn next_visit(&self) -> u64 {
        let reach = self.cursor.wrapping_add(REACH);
        match self.lists.first_head(1) {
            Some(head) => {
                let from = self.begins(head, self.lists.bound(head));
                if self.ahead(from) < REACH {
                    from
                } else {
                    reach
                }
            }
            None => reach,
        }
    }

    /// Steps the cursor to the bucket's bound or to now, the earlier one, and takes its list off.
    #[inline]
    fn visit(&mut self, head: u32) {
        let bound = self.lists.bound(head);
        let now_bucket = self.geometry.floor(self.now);
        self.cursor = if self.reached(bound) {
            self.geometry.floor(bound)
        } else {
            now_bucket
        };
        // A finest bucket that now has left behind, or that is one unit wide, is due as a whole.
        let all_due = records::row(head) == 1
            && (self.cursor != now_bucket || self.geometry.granularity() == 1);
        self.lists
            .splice(head, if all_due { READY } else { PENDING });
    }

    /// `now`, or as far towards it as the circle allows while the cursor stands where it does.
    #[inline]
    fn within_reach(&self, now: u64) -> u64 {
        if self.ahead(now) <= REACH {
            now
        } else {
            self.cursor.wrapping_add(REACH)
        }
    }

    /// How far `t` is ahead of the cursor. Unsigned: W-order says that nothing filed is behind, and
    /// a sign would halve the room for now and a due on top of it.
    #[inline]
    fn ahead(&self, t: u64) -> u64 {
        t.wrapping_sub(self.cursor)
    }

    /// Whether `t`, which is not before the cursor, is at or before now.
    #[inline]
    fn reached(&self, t: u64) -> bool {
        self.ahead(t) <= self.ahead(self.now)
    }
}

/// Whether the clock at `now` has come to `t`: it is at most 2^63 - 1 units past it.
#[inline]
fn has_come(now: u64, t: u64) -> bool {
    // The sign bit says on which side of the circle `t` is.
    now.wrapping_sub(t) >> 63 == 0
}

/// With more records than this for so many ids, dead ones are thrown out.
#[inline]
fn most(ids: usize) -> usize {
    3 * ids + SLACK
}

/// Takes one unit of work, if there is one.
#[inline]
fn take(work: &mut usize) -> bool {
    match work.checked_sub(1) {
        Some(left) => {
            *work = left;
            true
        }
        None => false,
    }
}
