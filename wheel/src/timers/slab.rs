//! Which places of the slab are free (`places`), and its memory, which grows by 64 places.

use super::{Place, TimerWheel};

impl<T> TimerWheel<T> {
    /// Number of timers that the wheel has memory for. O(1).
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.wheel.capacity()
    }

    /// Allocates for `additional` timers more than there are, so that scheduling them does not.
    ///
    /// # Panics
    /// If that overflows the address space, like [`Vec::reserve`].
    pub fn reserve(&mut self, additional: usize) {
        // One more: the place that was fired last is kept until the wheel fires again.
        let timers = self.len().saturating_add(additional).saturating_add(1);
        // Places come in whole words.
        let timers = (timers | 63).saturating_add(1);
        self.wheel.reserve(timers);
        self.free.reserve(timers);
    }

    /// Gives back the memory of places above the highest one in use. O(places), and a copy if the
    /// allocator cannot shrink in place. Places are not moved, so one timer at the far end keeps
    /// them all; the lowest are used first from here on.
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

    /// Drops all timers; their ids are stale from here on. The clock stays where it is, and the
    /// memory is kept. O(places).
    ///
    /// # Panics
    /// If a value's drop does. The wheel is empty then, too.
    pub fn clear(&mut self) {
        self.last = None;
        self.free.clear();
        self.wheel.clear();
    }

    /// Adds a word's worth of places, and takes the first of them.
    #[cold]
    pub(super) fn add_places(&mut self) -> u32 {
        let places = self.wheel.ids();
        assert!(places < Self::MAX_TIMERS, "a wheel holds TimerWheel::MAX_TIMERS timers at most");
        let (from, to) = (places, Self::MAX_TIMERS.min((places | 63) + 1));
        // Fit: they are ids.
        let (from, to) = (from as u32, to as u32);
        self.wheel.grow(to - 1);
        self.free.add(from, to);
        from
    }
}
