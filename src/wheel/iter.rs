//! Timers by deadline, from both ends, without sorting more than is asked for.
//!
//! Whole buckets are in order already (W-place of the dense wheel), so each is sorted when it is
//! reached. What time has brought and no pop has taken yet lies in lists that overlap with the
//! buckets in time; it is sorted at the start and merged in.

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
/// # use expiry::wheel::{Geometry, TimerWheel};
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
/// use expiry::wheel::{Geometry, Iter, TimerWheel};
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
    backlog: IntoIter<Seen>,
    /// The earliest bucket that was looked at, and the latest.
    early: IntoIter<Seen>,
    late: IntoIter<Seen>,
    /// Buckets between the two.
    from: u32,
    to: u32,
    left: usize,
}

/// A timer that was found in a list.
#[derive(Clone, Copy)]
struct Seen {
    /// The deadline as a number that grows from the furthest past to the furthest future.
    at: u64,
    index: u32,
}

impl<'a, T> Iter<'a, T> {
    pub(super) fn new(wheel: &'a Wheel<Place<T>>) -> Iter<'a, T> {
        let backlog = wheel.backlog().map(|(index, due, known)| {
            let at = at(wheel, due);
            // The clock may have gone on so far that what is overdue looks like the future.
            let wrapped = known && at >= 1 << 63;
            Seen { at: if wrapped { 0 } else { at }, index }
        });
        Iter {
            wheel,
            backlog: sorted(backlog),
            early: IntoIter::default(),
            late: IntoIter::default(),
            from: 0,
            to: u32::MAX,
            left: wheel.len(),
        }
    }

    fn bucket(&self, head: u32) -> IntoIter<Seen> {
        let timers = self.wheel.bucket(head);
        sorted(timers.map(|(index, due)| Seen { at: at(self.wheel, due), index }))
    }

    /// The timers that the earliest of the buckets' is next in.
    fn earliest(&mut self) -> &mut IntoIter<Seen> {
        while self.early.as_slice().is_empty() {
            match self.wheel.first_bucket(self.from, self.to) {
                Some(head) => {
                    self.early = self.bucket(head);
                    self.from = head + 1;
                }
                None => return &mut self.late,
            }
        }
        &mut self.early
    }

    fn latest(&mut self) -> &mut IntoIter<Seen> {
        while self.late.as_slice().is_empty() {
            match self.wheel.last_bucket(self.from, self.to) {
                Some(head) => {
                    self.late = self.bucket(head);
                    self.to = head;
                }
                None => return &mut self.early,
            }
        }
        &mut self.late
    }

    fn see(&mut self, seen: Option<Seen>) -> Option<Timer<'a, T>> {
        let index = seen?.index;
        let deadline = self.wheel.due(index)?;
        match self.wheel.payload(index)? {
            Place::Live { serial, value } => {
                self.left -= 1;
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

fn sorted(seen: impl Iterator<Item = Seen>) -> IntoIter<Seen> {
    let mut seen: Vec<Seen> = seen.collect();
    // Stable: what has one deadline stays in the order of its list.
    seen.sort_by_key(|seen| seen.at);
    seen.into_iter()
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = Timer<'a, T>;

    fn next(&mut self) -> Option<Timer<'a, T>> {
        let overdue = self.backlog.as_slice().first().map(|seen| seen.at);
        let bucket = self.earliest();
        let filed = bucket.as_slice().first().map(|seen| seen.at);
        let seen = match (overdue, filed) {
            (Some(overdue), Some(filed)) if filed < overdue => bucket.next(),
            (None, _) => bucket.next(),
            (Some(_), _) => self.backlog.next(),
        };
        self.see(seen)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let overdue = self.backlog.as_slice().last().map(|seen| seen.at);
        let bucket = self.latest();
        let filed = bucket.as_slice().last().map(|seen| seen.at);
        let seen = match (overdue, filed) {
            (Some(overdue), Some(filed)) if overdue > filed => self.backlog.next_back(),
            (_, None) => self.backlog.next_back(),
            (_, Some(_)) => bucket.next_back(),
        };
        self.see(seen)
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
impl<T> FusedIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Iter {
            wheel: self.wheel,
            backlog: self.backlog.clone(),
            early: self.early.clone(),
            late: self.late.clone(),
            from: self.from,
            to: self.to,
            left: self.left,
        }
    }
}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = &self.left;
        f.debug_struct("Iter").field("left", left).finish_non_exhaustive()
    }
}
