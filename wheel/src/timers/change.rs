//! Scheduling, moving and cancelling a timer.

use super::{Place, TimerWheel};
use crate::id::TimerId;
use std::{error, fmt};

/// No timer with this id is in the wheel: it was fired, descheduled or cleared, or the id is
/// another wheel's.
///
/// # Examples
///
/// ```
/// use expiry_wheel::{Geometry, NotScheduled, TimerWheel};
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
    /// Schedules `value` for `deadline`, and returns the name under which it can be moved and
    /// cancelled.
    ///
    /// A deadline at or before [`now`](TimerWheel::now), or more than 2^63 units after it (on a
    /// circle that is the past), is due at once: the next call that fires anything fires the timer.
    /// If a callback schedules it, the present call does, after what it is firing.
    ///
    /// O(1). Allocates if [`capacity`](TimerWheel::capacity) is used up (amortised O(1)).
    ///
    /// # Panics
    /// If there are [`MAX_TIMERS`](TimerWheel::MAX_TIMERS) timers already. (Like any collection it
    /// aborts when there is no memory.)
    #[inline]
    pub fn schedule(&mut self, deadline: u64, value: T) -> TimerId {
        let index = self.free.take().unwrap_or_else(|| self.add_places());
        let serial = self.serials.take();
        self.wheel.schedule_with(index, deadline, Place::Live { serial, value });
        TimerId { serial, index }
    }

    /// Moves a timer to another deadline. The timer keeps its id and value. As in
    /// [`schedule`](TimerWheel::schedule), a deadline that has come is due at once. O(1).
    ///
    /// # Errors
    /// [`NotScheduled`] if no timer has this id; nothing happens then. For a timer that a callback
    /// has just been given, that is [`rearm`](TimerWheel::rearm)'s work.
    #[inline]
    pub fn reschedule(&mut self, id: TimerId, deadline: u64) -> Result<(), NotScheduled> {
        let moved = self.wheel.reschedule_if(id.index, deadline, |place| place.is(id));
        if moved {
            Ok(())
        } else {
            Err(NotScheduled)
        }
    }

    /// Takes a timer out and returns its value. Returns `None` and changes nothing if no timer has
    /// this id, so a caller may repeat the call. O(1).
    #[inline]
    pub fn cancel(&mut self, id: TimerId) -> Option<T> {
        let place = self.wheel.take_if(id.index, |place| place.is(id))?;
        self.free.give(id.index);
        match place {
            Place::Live { value, .. } => Some(value),
            Place::Free => None,
        }
    }
}
