//! Which places of the slab are free, and their memory.
//!
//! Places come in words of 64, so that the set of free ones stays whole. The lowest free place is
//! used first.

use super::{Place, TimerWheel};

impl<T> TimerWheel<T> {
    /// Number of timers that the wheel has memory for. O(1).
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

    /// Drops all timers; their ids are stale from here on. The clock stays where it is, and the
    /// memory is kept. O(places).
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

    /// Takes a free place. Adds places if there is none.
    #[inline]
    pub(super) fn take_place(&mut self) -> u32 {
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
}
