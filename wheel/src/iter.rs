//! Timers by deadline, from both ends.

use super::dense::{Payload, Wheel};
use super::id::TimerId;
use super::timers::Place;
use std::fmt;
use std::iter::FusedIterator;
use std::vec::IntoIter;

/// A timer of a [`TimerWheel`](super::TimerWheel), seen.
///
/// # Examples
///
/// ```
/// # use expiry_wheel::{Geometry, TimerWheel};
/// # let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// wheel.schedule(30, "call");
/// let ping = wheel.schedule(10, "ping");
/// let first = wheel.iter().next().unwrap();
/// assert_eq!((first.id, first.deadline, *first.value), (ping, 10, "ping"));
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timer<'a, T> {
    /// What it is known by.
    pub id: TimerId,
    /// The deadline that it is scheduled for.
    pub deadline: u64,
    /// What it was scheduled with.
    pub value: &'a T,
}

impl<T> Clone for Timer<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Timer<'_, T> {}

/// The timers of a [`TimerWheel`](super::TimerWheel) by deadline; made by
/// [`iter`](super::TimerWheel::iter).
///
/// # Examples
///
/// ```
/// use expiry_wheel::{Geometry, Iter, TimerWheel};
///
/// fn due_by(timers: Iter<'_, &'static str>, deadline: u64) -> Vec<&'static str> {
///     timers.take_while(|timer| timer.deadline <= deadline).map(|timer| *timer.value).collect()
/// }
///
/// let mut wheel = TimerWheel::new(Geometry::TICKS, 0);
/// for (deadline, value) in [(30, "call"), (10, "ping"), (3_600, "hour")] {
///     wheel.schedule(deadline, value);
/// }
/// assert_eq!((wheel.iter().len(), due_by(wheel.iter(), 60)), (3, vec!["ping", "call"]));
/// ```
pub struct Iter<'a, T> {
    wheel: &'a Wheel<Place<T>>,
    left: IntoIter<u32>,
}

impl<'a, T> Iter<'a, T> {
    pub(super) fn new(wheel: &'a Wheel<Place<T>>) -> Iter<'a, T> {
        let all = wheel.all().map(|(index, due, known)| {
            let at = at(wheel, due);
            // The clock may have gone on so far that what is overdue looks like the future.
            let wrapped = known && at >= 1 << 63;
            (if wrapped { 0 } else { at }, index)
        });
        let mut all: Vec<(u64, u32)> = all.collect();
        // Stable: what has one deadline stays in the order of its list.
        all.sort_by_key(|&(at, _)| at);
        let left: Vec<u32> = all.into_iter().map(|(_, index)| index).collect();
        Iter { wheel, left: left.into_iter() }
    }

    fn see(&self, index: u32) -> Option<Timer<'a, T>> {
        let deadline = self.wheel.due(index)?;
        match self.wheel.payload(index)? {
            Place::Live { serial, value } => {
                Some(Timer { id: TimerId { serial: *serial, index }, deadline, value })
            }
            Place::Free => None,
        }
    }
}

/// Where `due` lies between the furthest past and the furthest future of the wheel's clock.
fn at<P: Payload>(wheel: &Wheel<P>, due: u64) -> u64 {
    due.wrapping_sub(wheel.now()).wrapping_add((1 << 63) - 1)
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = Timer<'a, T>;

    fn next(&mut self) -> Option<Timer<'a, T>> {
        let index = self.left.next()?;
        self.see(index)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let index = self.left.next_back()?;
        self.see(index)
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> FusedIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Iter { wheel: self.wheel, left: self.left.clone() }
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("left", &self.left.len()).finish_non_exhaustive()
    }
}
