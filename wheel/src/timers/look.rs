//! What the wheel holds, and when it is worth advancing.

use super::{Place, TimerWheel};
use crate::id::TimerId;
use crate::iter::{Iter, Timer};
use crate::Geometry;

impl<T> TimerWheel<T> {
    /// How long after [`now`](TimerWheel::now) the next advance is worthwhile. `None` if nothing is
    /// scheduled; 0 if a timer is due, or a limited call left work. Otherwise the time until the
    /// earliest deadline, on whatever level that lies, or less. O(levels).
    ///
    /// The delay is exact unless the earliest timer of its bucket was moved or descheduled. Then it
    /// may be shorter, and an advance at that time makes it exact. A caller that sleeps so long and
    /// advances, over and over, wakes at most once per distinct deadline and once per removal, and
    /// never only to cascade.
    #[must_use]
    pub fn expiration_delay(&self) -> Option<u64> {
        self.next_expiration().map(|next| next.wrapping_sub(self.now()))
    }

    /// Returns [`expiration_delay`](TimerWheel::expiration_delay) as a point in time.
    #[must_use]
    pub fn next_expiration(&self) -> Option<u64> {
        self.wheel.next_expiration()
    }

    /// The time that the wheel was last advanced to, or created with. O(1).
    #[must_use]
    pub fn now(&self) -> u64 {
        self.wheel.now()
    }

    /// The wheel's geometry.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        self.wheel.geometry()
    }

    /// How many timers are scheduled. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether no timer is scheduled. O(1).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Whether a timer has this id. O(1).
    #[inline]
    #[must_use]
    pub fn contains(&self, id: TimerId) -> bool {
        self.get(id).is_some()
    }

    /// The value of a timer. O(1).
    #[inline]
    #[must_use]
    pub fn get(&self, id: TimerId) -> Option<&T> {
        match self.wheel.payload(id.index) {
            Some(Place::Live { serial, value }) if *serial == id.serial => Some(value),
            _ => None,
        }
    }

    /// The value of a timer, as a mutable reference. O(1).
    #[inline]
    #[must_use]
    pub fn get_mut(&mut self, id: TimerId) -> Option<&mut T> {
        match self.wheel.payload_mut(id.index) {
            Some(Place::Live { serial, value }) if *serial == id.serial => Some(value),
            _ => None,
        }
    }

    /// The deadline of a timer, as it was given. O(1).
    #[inline]
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<u64> {
        self.contains(id).then(|| self.wheel.due(id.index))?
    }

    /// All timers in ascending order of deadline, or, from the other end ([`rev`](Iterator::rev)),
    /// in descending order. What is overdue comes first.
    ///
    /// This call sorts: O(n log n) for *n* timers, with 16 bytes for each. A step is O(1).
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter::new(&self.wheel)
    }
}

impl<'a, T> IntoIterator for &'a TimerWheel<T> {
    type Item = Timer<'a, T>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}
