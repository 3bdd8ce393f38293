//! The public wheel: a slab of values over the dense wheel.
//!
//! A timer is one node of the dense wheel, with its serial and its value for a payload: an operation by id touches that
//! node, and no other place.
//!
//! # Invariants
//! The validator checks them after every step, with those of the dense wheel.
//! - **T-live.** A place holds a value if and only if it is scheduled.
//! - **T-free.** Every place without a value is among the free ones once, but for the one that was fired last.
//! - **T-last.** The place that was fired last keeps its serial for [`TimerWheel::rearm`] until another is fired.

use super::dense::{Payload, Pop, Wheel};
use super::id::{Serials, TimerId};
use super::iter::Iter;
use super::places::Places;
use super::Geometry;
use std::num::NonZeroU64;
use std::{error, fmt};

/// What a place of the slab holds.
#[derive(Default)]
pub(super) enum Place<T> {
    /// No timer.
    #[default]
    Free,
    Live {
        serial: NonZeroU64,
        value: T,
    },
}

impl<T> Place<T> {
    #[inline]
    fn is(&self, id: TimerId) -> bool {
        matches!(self, Place::Live { serial, .. } if *serial == id.serial)
    }
}

/// Half a cache line: nodes of values of up to eight bytes do not lie across two.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub(super) struct Half;

impl<T> Payload for Place<T> {
    type Align = Half;
}

/// Holds values until their deadlines, for one owner. See [the module](super) for time, geometry and costs.
///
/// ```
/// use expiry::wheel::{Geometry, TimerWheel};
///
/// let mut wheel = TimerWheel::new(Geometry::MILLIS, 0); // nanoseconds
/// let second = 1_000_000_000;
/// wheel.schedule(second, "beat");
/// let mut beats = 0;
/// for now in 0..=10 {
///     wheel.advance(now * second, |wheel, fired| {
///         beats += 1;
///         let next = fired.deadline + second;
///         wheel.rearm(fired, next);
///     });
/// }
/// assert_eq!(beats, 10);
/// ```
pub struct TimerWheel<T> {
    wheel: Wheel<Place<T>>,
    serials: Serials,
    free: Places,
    /// The timer that was fired last, if its place is kept for it.
    last: Option<TimerId>,
}

/// A timer that was due. It is no longer in the wheel.
///
/// # Examples
///
/// ```
/// # use expiry::wheel::{Geometry, TimerWheel};
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
    /// What it was known by.
    pub id: TimerId,
    /// The deadline that it was scheduled for.
    pub deadline: u64,
    /// What it was scheduled with.
    pub value: T,
}

/// What one step of [`TimerWheel::pop_limited`] came to.
///
/// # Examples
///
/// ```
/// use expiry::wheel::{Geometry, Popped, TimerWheel};
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
    /// Nothing that is scheduled is due, and all that time had brought is done.
    Idle,
    /// The limit is used up, and there is more to do. Nothing is lost: go on with the next call.
    Limit,
}

/// What a call of [`TimerWheel::advance_limited`] did, and whether it left something.
///
/// # Examples
///
/// ```
/// # use expiry::wheel::{Geometry, TimerWheel};
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
    /// How much of the limit was not needed. Above 0 only if there is no more.
    pub unused: usize,
    /// Whether work was left, for the next call to go on with. If [`TimerWheel::expiration_delay`] is not 0 then, it is
    /// cascades only: nothing of it is due yet.
    pub more: bool,
}

/// No timer with this id is in the wheel: it was fired, descheduled or cleared, or the id is another wheel's.
///
/// # Examples
///
/// ```
/// use expiry::wheel::{Geometry, NotScheduled, TimerWheel};
///
/// let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// let reply = wheel.schedule(30, "no reply");
/// wheel.advance(30, |_, _| ());
/// assert_eq!(wheel.reschedule(reply, 60), Err(NotScheduled)); // too late: it has fired
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotScheduled;

impl fmt::Display for NotScheduled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no timer of this wheel has this id (any more); drop the id, or schedule anew")
    }
}

impl error::Error for NotScheduled {}

impl<T> TimerWheel<T> {
    /// The most timers that a wheel can hold, some 4.29 billion.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::wheel::{Geometry, TimerId, TimerWheel};
    ///
    /// /// Refuses where `schedule` panics.
    /// fn try_schedule(wheel: &mut TimerWheel<u64>, deadline: u64) -> Option<TimerId> {
    ///     (wheel.len() < TimerWheel::<u64>::MAX_TIMERS).then(|| wheel.schedule(deadline, 7))
    /// }
    ///
    /// assert!(try_schedule(&mut TimerWheel::new(Geometry::TICKS, 0), 30).is_some());
    /// assert_eq!(TimerWheel::<u64>::MAX_TIMERS / 1_000_000, 4_294);
    /// ```
    pub const MAX_TIMERS: usize = Wheel::MAX_ID as usize + 1;

    /// An empty wheel whose clock stands at `now`.
    ///
    /// Allocates nothing. The first timer makes the buckets: up to 577 of 16 bytes.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::wheel::{Geometry, TimerWheel};
    ///
    /// let mut wheel = TimerWheel::new(Geometry::TICKS, 1_000); // any origin
    /// assert_eq!((wheel.now(), wheel.len()), (1_000, 0));
    /// wheel.schedule(1_030, "no reply");
    /// assert_eq!(wheel.expiration_delay(), Some(30));
    /// ```
    #[must_use]
    pub fn new(geometry: Geometry, now: u64) -> TimerWheel<T> {
        TimerWheel {
            wheel: Wheel::with_payload(geometry, now),
            serials: Serials::new(),
            free: Places::new(),
            last: None,
        }
    }

    /// Schedules `value` for `deadline`, and returns the name under which it can be moved and cancelled.
    ///
    /// A deadline at or before [`now`](TimerWheel::now), or more than 2^63 units after it (on a circle that is the past), is due
    /// at once: it fires with the next call that fires anything, or with the present one if this is a
    /// callback, after what is being fired.
    ///
    /// O(1). Allocates if [`capacity`](TimerWheel::capacity) is used up (amortised O(1)).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.deadline(reply), Some(30));
    /// ```
    ///
    /// # Panics
    /// If there are [`MAX_TIMERS`](TimerWheel::MAX_TIMERS) timers already. (Like any collection it aborts when there is no memory.)
    #[inline]
    pub fn schedule(&mut self, deadline: u64, value: T) -> TimerId {
        let index = self.take_place();
        let serial = self.serials.take();
        self.wheel
            .schedule_with(index, deadline, Place::Live { serial, value });
        TimerId { serial, index }
    }

    /// Moves a timer to another deadline; it keeps its id and value. As in [`schedule`](TimerWheel::schedule), a deadline that has come
    /// is due at once. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, NotScheduled, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let id = wheel.schedule(10, "ping");
    /// wheel.reschedule(id, 20)?;
    /// assert_eq!((wheel.deadline(id), wheel.pop(19)), (Some(20), None));
    /// wheel.deschedule(id);
    /// assert_eq!(wheel.reschedule(id, 30), Err(NotScheduled));
    /// # Ok::<(), NotScheduled>(())
    /// ```
    ///
    /// # Errors
    /// [`NotScheduled`] if no timer has this id; nothing happens then. For a timer that a callback has just been given, that is
    /// [`rearm`](TimerWheel::rearm)'s work.
    #[inline]
    pub fn reschedule(&mut self, id: TimerId, deadline: u64) -> Result<(), NotScheduled> {
        let moved = self
            .wheel
            .reschedule_if(id.index, deadline, |place| place.is(id));
        if moved {
            Ok(())
        } else {
            Err(NotScheduled)
        }
    }

    /// Takes a timer out and returns its value; `None`, and nothing happens, if no timer has this id. So it may be called any number
    /// of times. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.deschedule(reply), Some("no reply"));
    /// assert_eq!(wheel.deschedule(reply), None); // an id is not used again
    /// ```
    #[inline]
    pub fn deschedule(&mut self, id: TimerId) -> Option<T> {
        let place = self.wheel.take_if(id.index, |place| place.is(id))?;
        self.free.give(id.index);
        match place {
            Place::Live { value, .. } => Some(value),
            Place::Free => None,
        }
    }

    /// Schedules again what has just fired.
    ///
    /// It keeps its id if nothing was fired (or cleared) since, as in a callback that rearms what it was given: so the
    /// id of a periodic timer does not change, and whoever has it can move or cancel it. Otherwise it gets
    /// a new one. The answer is the id that it has now. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let beat = wheel.schedule(10, "beat");
    /// let fired = wheel.pop(10).unwrap();
    /// assert_eq!(wheel.rearm(fired, 20), beat);
    /// assert_eq!(wheel.deschedule(beat), Some("beat"));
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
        self.wheel
            .schedule_with(index, deadline, Place::Live { serial, value });
        fired.id
    }

    /// Moves the clock to `now` and takes one timer that is due, or `None` if there is none left.
    ///
    /// `while let Some(fired) = wheel.pop(now)` fires all that is due; the wheel can be used freely in between. A loop that
    /// schedules what is due at once for each that it takes does not end, which is what
    /// [`pop_limited`](TimerWheel::pop_limited) is for.
    ///
    /// No timer is fired before its deadline. A `now` before [`TimerWheel::now`] is not an error: nothing fires and
    /// nothing moves.
    ///
    /// **Order.** Timers that were scheduled ahead of time come in ascending order of deadline, up to the width of a finest
    /// bucket, and first in, first out in one bucket (what is scheduled in the middle of a limited cascade may overtake its elders).
    /// Those that were due when scheduled come no later than the bucket after the one being fired.
    ///
    /// O(1) for each timer plus the cascades that time has brought, each timer being moved at most once per
    /// level; O(levels) if there is nothing to do.
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
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
    /// Every timer that is fired or moved to a finer level, every record of a cancelled or moved one that is dropped, and every bucket that is looked at
    /// takes 1 from `limit`. If there is none left
    /// and something to do, the answer is [`Popped::Limit`], and the next call goes on where this one stopped: nothing is done
    /// twice. Any limit above 0 makes progress.
    ///
    /// ```
    /// use expiry::wheel::{Geometry, Popped, TimerWheel};
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

    /// Moves the clock to `now` and gives all that is due to `on_fire`, which gets the wheel too. Returns how many that were.
    ///
    /// The callback may schedule, reschedule and deschedule, [`rearm`](TimerWheel::rearm) what it was given, even advance: the wheel
    /// is whole. What it schedules for a time that has come is fired by the same call. (If it does so
    /// every time, the call does not end: see [`advance_limited`](TimerWheel::advance_limited).)
    ///
    /// For order, time going backwards and cost see [`pop`](TimerWheel::pop), of which this is a loop.
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.schedule(10, "early");
    /// wheel.schedule(30, "late");
    /// let mut fired = Vec::new();
    /// wheel.advance(20, |_, timer| fired.push(timer.value));
    /// assert_eq!((fired, wheel.now()), (vec!["early"], 20));
    /// ```
    ///
    /// # Panics
    /// If the callback does. What it was given is dropped with it; all else is in its place, and the next call goes on.
    #[inline]
    pub fn advance(
        &mut self,
        now: u64,
        on_fire: impl FnMut(&mut TimerWheel<T>, Fired<T>),
    ) -> usize {
        if self.wheel.rests(now) {
            return 0;
        }
        self.advance_awake(now, on_fire)
    }

    fn advance_awake(
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

    /// [`advance`](TimerWheel::advance) with a bound on the work, cascades included; says what it did and whether something is left.
    ///
    /// For what counts as work see [`pop_limited`](TimerWheel::pop_limited). The clock stands at `now` afterwards; what is left
    /// is carried forward, in order, to whatever call comes next.
    ///
    /// ```
    /// use expiry::wheel::{Geometry, TimerWheel};
    ///
    /// let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// for n in 0..1000 {
    ///     wheel.schedule(n, n);
    /// }
    /// let (mut fired, mut turns) = (0, 0);
    /// loop {
    ///     let progress = wheel.advance_limited(999, 100, |_, _| ());
    ///     fired += progress.fired;
    ///     turns += 1;
    ///     if !progress.more {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(fired, 1000);
    /// assert!(turns >= 10);
    /// ```
    ///
    /// # Panics
    /// If the callback does, as in [`advance`](TimerWheel::advance).
    pub fn advance_limited(
        &mut self,
        now: u64,
        limit: usize,
        mut on_fire: impl FnMut(&mut TimerWheel<T>, Fired<T>),
    ) -> Progress {
        let mut progress = Progress {
            fired: 0,
            unused: limit,
            more: false,
        };
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

    /// How long after [`now`](TimerWheel::now) it is worth advancing next: `None` if nothing is scheduled, 0 if something is due or
    /// half done, else up to the earliest deadline and not beyond it, on whatever level that lies. O(levels).
    ///
    /// It is exact unless the earliest timer of its bucket was moved or descheduled; then it may be shorter, and an advance at that time
    /// makes it exact. Whoever sleeps so long and advances, over and over, wakes at most once per
    /// distinct deadline and once per removal, and never only to cascade.
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// assert_eq!(wheel.expiration_delay(), None);
    /// wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.expiration_delay(), Some(30)); // so long there is nothing to do
    /// ```
    #[must_use]
    pub fn expiration_delay(&self) -> Option<u64> {
        self.next_expiration()
            .map(|next| next.wrapping_sub(self.now()))
    }

    /// [`expiration_delay`](TimerWheel::expiration_delay) as a point in time.
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.next_expiration(), Some(30));
    /// ```
    #[must_use]
    pub fn next_expiration(&self) -> Option<u64> {
        self.wheel.next_expiration()
    }

    /// The time that the wheel was last advanced to, or made at. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// # wheel.schedule(30, "no reply");
    /// wheel.advance(7, |_, _| ());
    /// assert_eq!(wheel.now(), 7);
    /// ```
    #[must_use]
    pub fn now(&self) -> u64 {
        self.wheel.now()
    }

    /// The shape of the wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::wheel::{Geometry, TimerWheel};
    ///
    /// let wheel = TimerWheel::<u64>::new(Geometry::MILLIS, 0);
    /// assert_eq!(*wheel.geometry(), Geometry::MILLIS);
    /// assert_eq!(wheel.geometry().granularity(), 1 << 20); // advance about as often, in nanoseconds
    /// ```
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.wheel.geometry()
    }

    /// How many timers are scheduled. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether no timer is scheduled. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.schedule(30, "no reply");
    /// assert!(!wheel.is_empty());
    /// while let Some(next) = wheel.next_expiration() {
    ///     wheel.advance(next, |_, _| ());
    /// }
    /// assert!(wheel.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Whether a timer has this id. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// assert!(wheel.contains(reply));
    /// wheel.advance(30, |_, _| ());
    /// assert!(!wheel.contains(reply));
    /// ```
    #[inline]
    #[must_use]
    pub fn contains(&self, id: TimerId) -> bool {
        self.get(id).is_some()
    }

    /// The value of a timer. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.get(reply), Some(&"no reply"));
    /// ```
    #[inline]
    #[must_use]
    pub fn get(&self, id: TimerId) -> Option<&T> {
        match self.wheel.payload(id.index) {
            Some(Place::Live { serial, value }) if *serial == id.serial => Some(value),
            _ => None,
        }
    }

    /// The value of a timer, to be changed. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let tries = wheel.schedule(30, 1);
    /// *wheel.get_mut(tries).unwrap() += 1;
    /// assert_eq!(wheel.get(tries), Some(&2));
    /// ```
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        match self.wheel.payload_mut(id.index) {
            Some(Place::Live { serial, value }) if *serial == id.serial => Some(value),
            _ => None,
        }
    }

    /// The deadline of a timer, as it was given. O(1).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// assert_eq!(wheel.deadline(reply), Some(30));
    /// ```
    #[inline]
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<u64> {
        self.contains(id).then(|| self.wheel.due(id.index))?
    }

    /// All timers in ascending order of deadline, or, from the other end ([`rev`](Iterator::rev)), in descending order. What is overdue
    /// comes first.
    ///
    /// ```
    /// use expiry::wheel::{Geometry, TimerWheel};
    ///
    /// let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// for deadline in [70_000, 3, 500, 4] {
    ///     wheel.schedule(deadline, ());
    /// }
    /// assert!(wheel.iter().map(|timer| timer.deadline).eq([3, 4, 500, 70_000]));
    /// assert!(wheel.iter().rev().map(|timer| timer.deadline).eq([70_000, 500, 4, 3]));
    /// ```
    ///
    /// Buckets are sorted when they are reached: the first few timers cost the sorting of the buckets that they are in (O(m log m), and
    /// 16 bytes for each of their *m* timers), all *n* cost O(n log n) at most.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(&self.wheel)
    }

    /// For how many timers there is memory. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// assert_eq!(wheel.capacity(), 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// let room = wheel.capacity();
    /// wheel.deschedule(reply);
    /// assert!(room >= 1 && wheel.capacity() == room); // kept for the next ones
    /// ```
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.wheel.capacity()
    }

    /// Allocates for `additional` timers more than there are, so that scheduling them does not.
    ///
    /// # Panics
    /// If that overflows the address space, like [`Vec::reserve`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// wheel.reserve(1000);
    /// let room = wheel.capacity();
    /// assert!(room >= 1000);
    /// for n in 0..1000 {
    ///     wheel.schedule(n, "allocates nothing");
    /// }
    /// assert_eq!(wheel.capacity(), room);
    /// ```
    pub fn reserve(&mut self, additional: usize) {
        // One more: a place that was fired is kept until the next pop.
        let timers = self.len().saturating_add(additional).saturating_add(1);
        // Places come by the word.
        let timers = (timers | 63).saturating_add(1);
        self.wheel.reserve(timers);
        self.free.reserve(timers);
    }

    /// Gives back the memory of places above the highest one in use. O(places), and a copy if the allocator cannot
    /// shrink in place. Places are not moved, so one timer at the far end keeps them all; the lowest are used first
    /// from here on.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let kept = wheel.schedule(1_000_000, "kept"); // the first, in the lowest place
    /// for n in 0..1000 {
    ///     wheel.schedule(n, "a burst");
    /// }
    /// wheel.advance(1000, |_, _| ());
    /// assert!(wheel.capacity() >= 1000);
    /// wheel.shrink_to_fit();
    /// assert!(wheel.capacity() < 100);
    /// assert_eq!(wheel.get(kept), Some(&"kept"));
    /// ```
    pub fn shrink_to_fit(&mut self) {
        self.last = None;
        self.wheel.shrink_to(0);
        self.free.restart(self.wheel.ids());
        for index in (0..self.wheel.ids()).rev() {
            // Fits: an index is below `MAX_TIMERS`.
            let index = index as u32;
            if let Some(Place::Free) = self.wheel.payload(index) {
                self.free.give(index);
            }
        }
    }

    /// Drops all timers; their ids are stale from here on. The clock stays where it is, and the memory is kept. O(places).
    ///
    /// ```
    /// # use expiry::wheel::{Geometry, TimerWheel};
    /// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
    /// let reply = wheel.schedule(30, "no reply");
    /// wheel.clear();
    /// assert!(wheel.is_empty() && !wheel.contains(reply));
    /// ```
    ///
    /// # Panics
    /// If a value's drop does. The wheel is empty then, too.
    pub fn clear(&mut self) {
        self.last = None;
        self.free.clear();
        self.wheel.clear();
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
        Popped::Fired(Fired {
            id,
            deadline,
            value,
        })
    }

    /// A place that is free.
    #[inline]
    fn take_place(&mut self) -> u32 {
        match self.free.take() {
            Some(index) => index,
            None => self.add_places(),
        }
    }

    /// Adds a word's worth of places, and takes the first of them.
    #[cold]
    fn add_places(&mut self) -> u32 {
        let places = self.wheel.ids();
        assert!(
            places < Self::MAX_TIMERS,
            "a wheel holds TimerWheel::MAX_TIMERS timers at most"
        );
        let (from, to) = (places, Self::MAX_TIMERS.min((places | 63) + 1));
        // Fit: they are ids.
        let (from, to) = (from as u32, to as u32);
        self.wheel.grow(to - 1);
        self.free.add(from, to);
        from
    }

    /// Checks the invariants of this module and of the dense wheel. For tests and the fuzzer.
    ///
    /// # Panics
    /// If one does not hold.
    #[cfg(any(test, fuzzing))]
    #[doc(hidden)]
    pub fn validate(&self) {
        super::dense::validate(&self.wheel);
        let ids = self.wheel.ids();
        let mut serials = std::collections::HashSet::new();
        let mut free = vec![false; ids];
        for index in 0..ids as u32 {
            let scheduled = self.wheel.due(index).is_some();
            match self.wheel.payload(index).unwrap() {
                Place::Free => assert!(!scheduled, "T-live: {index} has no value"),
                Place::Live { serial, .. } => {
                    assert!(scheduled, "T-live: {index} is stranded");
                    assert!(serials.insert(*serial), "{serial} twice");
                }
            }
            free[index as usize] = !scheduled;
        }
        if let Some(last) = self.last {
            assert!(
                std::mem::take(&mut free[last.index as usize]),
                "T-last: in use"
            );
            assert!(!serials.contains(&last.serial), "T-last: used again");
        }
        for index in self.free.free() {
            assert!(
                std::mem::take(&mut free[index as usize]),
                "T-free: {index} in use or twice"
            );
        }
        assert!(!free.contains(&true), "T-free: a place is lost");
    }
}

impl<T> fmt::Debug for TimerWheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("geometry", self.geometry())
            .field("now", &self.now())
            .field("len", &self.len())
            .field("next_expiration", &self.next_expiration())
            .finish_non_exhaustive()
    }
}

impl<'a, T> IntoIterator for &'a TimerWheel<T> {
    type Item = super::Timer<'a, T>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}
