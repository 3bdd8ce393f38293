//! Handing out what is due, one timer at a time, and scheduling it again.
//!
//! Each step takes out one due timer. Between two steps the wheel is whole: callbacks may use it.

use super::{Place, TimerWheel};
use crate::dense::Pop;
use crate::id::TimerId;

/// A timer that was due. It is no longer in the wheel.
///
/// # Examples
///
/// ```
/// # use expiry_wheel::{Geometry, TimerWheel};
/// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// let beat = wheel.schedule(10, "beat");
/// let fired = wheel.pop(25).unwrap(); // late
/// assert_eq!((fired.id, fired.deadline, fired.value), (beat, 10, "beat"));
/// let next = fired.deadline + 10; // from when it was due, so that it does not drift
/// wheel.rearm(fired, next);
/// assert_eq!(wheel.deadline(beat), Some(20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fired<T> {
    /// The id that the timer had.
    pub id: TimerId,
    /// The deadline that the timer was scheduled for.
    pub deadline: u64,
    /// The value that the timer was scheduled with.
    pub value: T,
}

/// What one step of [`TimerWheel::pop_limited`] came to.
///
/// # Examples
///
/// ```
/// use expiry_wheel::{Geometry, Popped, TimerWheel};
///
/// let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// wheel.schedule(1, "first");
/// wheel.schedule(2, "second");
/// assert_eq!(wheel.pop_limited(2, &mut 0), Popped::Limit); // it may do nothing at all
/// let mut values = Vec::new();
/// while let Popped::Fired(fired) = wheel.pop_limited(2, &mut 100) {
///     values.push(fired.value);
/// }
/// assert_eq!((values, wheel.pop_limited(2, &mut 100)), (vec!["first", "second"], Popped::Idle));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Popped<T> {
    /// This timer was due.
    Fired(Fired<T>),
    /// No scheduled timer is due, and all cascades are done.
    Idle,
    /// The limit is used up, and there is more to do. Nothing is lost: the next call goes on.
    Limit,
}

/// What a call of [`TimerWheel::advance_limited`] did, and whether it left something.
///
/// # Examples
///
/// ```
/// # use expiry_wheel::{Geometry, TimerWheel};
/// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// for n in 0..100 {
///     wheel.schedule(n, n);
/// }
/// let turn = wheel.advance_limited(99, 30, |_, _| ());
/// assert!(turn.more && turn.unused == 0 && turn.fired < 100);
/// let rest = wheel.advance_limited(99, 1000, |_, _| ());
/// assert!(!rest.more && rest.unused > 0);
/// assert_eq!(turn.fired + rest.fired, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Progress {
    /// How many timers were fired.
    pub fired: usize,
    /// How much of the limit was not needed. It is above 0 only if `more` is false.
    pub unused: usize,
    /// Whether the call left work for the next one. If [`TimerWheel::expiration_delay`]
    /// is not 0 then, it is cascades only: nothing of it is due yet.
    pub more: bool,
}

impl<T> TimerWheel<T> {
    /// Moves the clock to `now` and takes one timer that is due, or `None` if there is none left.
    ///
    /// `while let Some(fired) = wheel.pop(now)` fires all that is due; the wheel can be used freely
    /// in between. A loop that schedules a timer that is due at once for each that it takes does
    /// not end; [`pop_limited`](TimerWheel::pop_limited) is for such loops.
    ///
    /// No timer is fired before its deadline. A `now` before [`TimerWheel::now`] is not an error:
    /// nothing fires and nothing moves.
    ///
    /// **Order.** Timers that were scheduled ahead of time come in ascending order of deadline, up
    /// to the width of a finest bucket. In one bucket they come first in, first out. A timer that
    /// is scheduled in the middle of a limited cascade may overtake older ones. Timers that were
    /// due when they were scheduled come no later than the bucket after the one being fired.
    ///
    /// O(1) for each timer, plus the cascades: each timer moves at most once per level. O(levels)
    /// if there is nothing to do.
    ///
    /// ```
    /// # use expiry_wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.schedule(30, "late");
    /// wheel.schedule(10, "early");
    /// assert!(wheel.pop(9).is_none());
    /// let fired = wheel.pop(10).unwrap();
    /// assert_eq!((fired.value, fired.deadline), ("early", 10));
    /// assert!(wheel.pop(10).is_none());
    /// ```
    #[inline]
    pub fn pop(&mut self, now: u64) -> Option<Fired<T>> {
        let mut plenty = usize::MAX;
        match self.pop_limited(now, &mut plenty) {
            Popped::Fired(fired) => Some(fired),
            Popped::Idle | Popped::Limit => None,
        }
    }

    /// [`pop`](TimerWheel::pop), with a bound on the work.
    ///
    /// Every timer that is fired or moved to a finer level, every record of a cancelled or moved
    /// one that is dropped, and every bucket that is looked at takes 1 from `limit`. If there is
    /// none left and something to do, the answer is [`Popped::Limit`], and the next call goes on
    /// where this one stopped: nothing is done twice. Any limit above 0 makes progress.
    ///
    /// ```
    /// use expiry_wheel::{Geometry, Popped, TimerWheel};
    ///
    /// let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// for n in 0..100 {
    ///     wheel.schedule(n, n);
    /// }
    /// let (mut fired, mut turns) = (0, 0);
    /// 'turns: loop {
    ///     turns += 1;
    ///     let mut limit = 30; // for this turn of the loop
    ///     loop {
    ///         match wheel.pop_limited(99, &mut limit) {
    ///             Popped::Fired(timer) => fired += u64::from(timer.value == timer.deadline),
    ///             Popped::Limit => break, // something else first
    ///             Popped::Idle => break 'turns,
    ///         }
    ///     }
    /// }
    /// assert!(fired == 100 && turns > 3);
    /// ```
    #[inline]
    pub fn pop_limited(&mut self, now: u64, limit: &mut usize) -> Popped<T> {
        match self.wheel.pop(now, limit) {
            Pop::Due { id: index, due } => self.fire(index, due),
            Pop::Idle => Popped::Idle,
            Pop::Budget => Popped::Limit,
        }
    }

    /// Moves the clock to `now` and gives all that is due to `on_fire`, which gets the wheel too.
    /// Returns how many that were.
    ///
    /// The callback may schedule, reschedule and cancel, [`rearm`](TimerWheel::rearm) what it
    /// was given, even advance: the wheel is whole. What it schedules for a time that has come is
    /// fired by the same call. (If it does so every time, the call does not end: see
    /// [`advance_limited`](TimerWheel::advance_limited).)
    ///
    /// For order, time going backwards and cost see [`pop`](TimerWheel::pop), of which this is a
    /// loop.
    ///
    /// ```
    /// # use expiry_wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.schedule(10, "early");
    /// wheel.schedule(30, "late");
    /// let mut fired = Vec::new();
    /// wheel.advance(20, |_, timer| fired.push(timer.value));
    /// assert_eq!((fired, wheel.now()), (vec!["early"], 20));
    /// ```
    ///
    /// # Panics
    /// If the callback does. What it was given is dropped with it; all else is in its place, and
    /// the next call goes on.
    #[inline]
    pub fn advance(
        &mut self,
        now: u64,
        mut on_fire: impl FnMut(&mut TimerWheel<T>, Fired<T>),
    ) -> usize {
        let mut fired = 0;
        while let Some(next) = self.pop(now) {
            fired += 1;
            on_fire(self, next);
        }
        fired
    }

    /// [`advance`](TimerWheel::advance) with a bound on the work, cascades included; says what it
    /// did and whether something is left.
    ///
    /// For what counts as work see [`pop_limited`](TimerWheel::pop_limited). The clock stands at
    /// `now` afterwards; what is left is carried forward, in order, to whatever call comes next.
    ///
    /// # Panics
    /// If the callback does, as in [`advance`](TimerWheel::advance).
    pub fn advance_limited(
        &mut self,
        now: u64,
        limit: usize,
        mut on_fire: impl FnMut(&mut TimerWheel<T>, Fired<T>),
    ) -> Progress {
        let mut progress = Progress { fired: 0, unused: limit, more: false };
        loop {
            match self.pop_limited(now, &mut progress.unused) {
                Popped::Fired(next) => {
                    progress.fired += 1;
                    on_fire(self, next);
                }
                Popped::Idle => return progress,
                Popped::Limit => {
                    progress.more = true;
                    return progress;
                }
            }
        }
    }

    /// Schedules a timer that has just fired again.
    ///
    /// The timer keeps its id if the wheel has neither fired another timer nor been cleared since,
    /// as in a callback that rearms the timer that it was given. So the id of a periodic timer does
    /// not change, and code that holds the id can move or cancel the timer. Otherwise the timer
    /// gets a new id. Returns the id that the timer has now. O(1).
    ///
    /// ```
    /// # use expiry_wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let beat = wheel.schedule(10, "beat");
    /// let fired = wheel.pop(10).unwrap();
    /// assert_eq!(wheel.rearm(fired, 20), beat);
    /// assert_eq!(wheel.cancel(beat), Some("beat"));
    /// ```
    ///
    /// # Panics
    /// As [`schedule`](TimerWheel::schedule).
    #[inline]
    pub fn rearm(&mut self, fired: Fired<T>, deadline: u64) -> TimerId {
        if self.last != Some(fired.id) {
            return self.schedule(deadline, fired.value);
        }
        self.last = None;
        let TimerId { serial, index } = fired.id;
        let value = fired.value;
        self.wheel.schedule_with(index, deadline, Place::Live { serial, value });
        fired.id
    }

    /// Hands out a due timer that the dense wheel has just let go of.
    #[inline]
    fn fire(&mut self, index: u32, deadline: u64) -> Popped<T> {
        let place = self.wheel.payload_mut(index).map(std::mem::take);
        let Some(Place::Live { serial, value }) = place else {
            unreachable!("T-live: what is scheduled has a value");
        };
        let id = TimerId { serial, index };
        if let Some(last) = self.last.replace(id) {
            self.free.give(last.index);
        }
        Popped::Fired(Fired { id, deadline, value })
    }
}
