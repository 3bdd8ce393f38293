//! Where the wheel stands in time: its clock, its cursor, and when there is next anything to do.
//!
//! The head of [the module](super) says what the cursor is ("Levels are digits"), what comparing
//! two times means ("Time is a circle"), and what the wake-up promises (W-wake, W-order).

use super::records;
use crate::geometry::Geometry;

/// How far the clock may go ahead of the cursor.
const REACH: u64 = (1 << 62) - 1;

#[derive(Clone, Debug)]
pub(super) struct Clock {
    geometry: Geometry,
    /// Start of the finest bucket that all places are relative to. It is never after `now`.
    cursor: u64,
    /// The latest time that a pop was given, or less while the clock is held back.
    now: u64,
    /// There is nothing to do before this time. It is `now` if no pop has looked for what is next.
    wake: u64,
}

impl Clock {
    pub(super) fn new(geometry: Geometry, now: u64) -> Clock {
        Clock { cursor: geometry.floor(now), geometry, now, wake: now }
    }

    pub(super) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Moves the clock to `now` if that is all there is to do.
    #[inline]
    pub(super) fn rests(&mut self, now: u64) -> bool {
        // W-wake: the right side is less than 2^63, so this says, too, that `now` is not the past.
        let rests = now.wrapping_sub(self.now) < self.wake.wrapping_sub(self.now);
        if rests {
            self.now = now;
        }
        rests
    }

    /// Moves the clock to `now`, or as far ahead of the cursor as it may go.
    #[inline]
    pub(super) fn advance(&mut self, now: u64) {
        let far = self.ahead(now) > REACH;
        self.now = if far { self.cursor.wrapping_add(REACH) } else { now };
        self.wake = self.now;
    }

    /// Lets the cursor follow the clock after a rest, in which the clock moved alone.
    #[inline]
    pub(super) fn catch_up(&mut self) {
        if self.wake != self.now {
            // No bucket begins between the two: see W-wake.
            self.step_to_now();
        }
    }

    /// Steps the cursor to now. No record is filed between the two.
    #[inline]
    pub(super) fn step_to_now(&mut self) {
        self.cursor = self.geometry.floor(self.now);
    }

    /// Steps the cursor to the bound of the bucket `head`, or to now if that is earlier. Returns
    /// whether the bucket is due as a whole.
    #[inline]
    pub(super) fn step_to(&mut self, head: u32, bound: u64) -> bool {
        let now_bucket = self.geometry.floor(self.now);
        self.cursor = if self.reached(bound) { self.geometry.floor(bound) } else { now_bucket };
        // A finest bucket that now has left behind, or that is one unit wide, is due as a whole.
        records::row(head) == 1 && (self.cursor != now_bucket || self.geometry.granularity() == 1)
    }

    /// There is something to do at once: the next pop looks.
    #[inline]
    pub(super) fn stay_awake(&mut self) {
        self.wake = self.now;
    }

    /// A bucket has work from `from` on: the clock does not rest beyond it.
    #[inline]
    pub(super) fn wake_by(&mut self, from: u64) {
        if self.reached(from) {
            self.wake = self.now;
        } else if self.ahead(from) < self.ahead(self.wake) {
            self.wake = from;
        }
    }

    /// All work is done until `from`, when the earliest bucket has some; `None` if all buckets are
    /// empty. The clock rests until then, or as far as it may go ahead of the cursor.
    #[inline]
    pub(super) fn rest_until(&mut self, from: Option<u64>) {
        self.wake = match from {
            Some(from) if self.ahead(from) < REACH => from,
            _ => self.cursor.wrapping_add(REACH),
        };
    }

    /// Moves the clock of a wheel in which no id was ever scheduled to `now`.
    pub(super) fn skip_to(&mut self, now: u64) {
        self.now = now;
        self.step_to_now();
        self.rest_until(None);
    }

    /// The bucket in which a record of `due` belongs.
    #[inline]
    pub(super) fn head(&self, due: u64) -> u32 {
        self.geometry.head(due, self.cursor)
    }

    /// When the bucket `head` has work: something in a finest bucket may be due at its bound, and
    /// the cursor may not go into a coarser bucket as it is.
    #[inline]
    pub(super) fn begins(&self, head: u32, bound: u64) -> u64 {
        match records::row(head) {
            1 => bound,
            row => self.geometry.bucket_start(row, bound),
        }
    }

    /// Whether the clock has come to `t`: it is at most 2^63 - 1 units past it.
    #[inline]
    pub(super) fn has_come(&self, t: u64) -> bool {
        has_come(self.now, t)
    }

    /// Whether `now` is before the clock.
    #[inline]
    pub(super) fn is_past(&self, now: u64) -> bool {
        !has_come(now, self.now)
    }

    /// Whether `due` lies after the cursor's own bucket, and not after now.
    pub(super) fn is_in_backlog(&self, due: u64) -> bool {
        let backlog = self.geometry.granularity()..=self.ahead(self.now);
        backlog.contains(&self.ahead(due))
    }

    /// Whether `due`, of what is pending, has come and is in the cursor's own bucket.
    #[inline]
    pub(super) fn is_now(&self, due: u64) -> bool {
        self.geometry.floor(due) == self.cursor && self.reached(due)
    }

    /// Whether `t`, which is not before the cursor, is at or before now.
    #[inline]
    pub(super) fn reached(&self, t: u64) -> bool {
        self.ahead(t) <= self.ahead(self.now)
    }

    /// How far `t` is ahead of the cursor. Unsigned: W-order says that no filed record is behind,
    /// and a sign would halve the room for now and a due on top of it.
    #[inline]
    pub(super) fn ahead(&self, t: u64) -> u64 {
        t.wrapping_sub(self.cursor)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn cursor(&self) -> u64 {
        self.cursor
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn wake(&self) -> u64 {
        self.wake
    }
}

/// Whether a clock at `now` has come to `t`.
#[inline]
fn has_come(now: u64, t: u64) -> bool {
    // The sign bit says on which side of the circle `t` is.
    now.wrapping_sub(t) >> 63 == 0
}
