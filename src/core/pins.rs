//! Pins: a thread says that it may look at what other threads end.
//!
//! One domain of grace periods ([`Grace`]), and in it a seat for each running thread.

#[cfg(not(expiry_loom))]
use super::threads::Vacant;
use super::threads::{index, Holding, Stripes};
use crate::sync::grace::{Grace, Guard, Seat};

/// See the module's head.
pub(crate) struct Pins {
    seats: Stripes<Seat>,
    grace: Grace,
}

/// Held while a thread may look at what others end: see [`Pins::pin`].
pub(crate) struct Pin {
    guard: Guard,
    /// No other thread gets the seat while this lives.
    _index: Holding,
}

impl Pin {
    /// Runs `f` after all threads that are pinned now have unpinned; on any thread, so `f` must not
    /// run users' code.
    pub(crate) fn after(&self, f: impl FnOnce() + Send + 'static) {
        self.guard.after(f);
    }
}

impl Pins {
    pub(crate) fn new() -> Self {
        Pins { seats: Stripes::new(Seat::new), grace: Grace::new() }
    }

    /// Keeps what this thread finds from here on: no slot that another thread can find now is freed
    /// while this lives. One pin inside another costs next to nothing.
    #[inline(always)]
    pub(crate) fn pin(&self) -> Pin {
        let (holding, index) = Holding::begin();
        // SAFETY: the seat is this thread's, as is the index, which the pin keeps.
        let guard = unsafe { self.grace.pin(self.seats.get(index)) };
        Pin { guard, _index: holding }
    }

    /// Empties the seats of threads that have ended: each turn looks at all seats that are not
    /// empty.
    #[cfg(not(expiry_loom))]
    pub(crate) fn clear_seats(&self) {
        for (index, seat) in self.seats.indexed() {
            if let Some(_vacant) = Vacant::keep(index) {
                // SAFETY: no thread has the index, nor gets it meanwhile. A thread that holds a pin
                // has its index.
                unsafe { seat.clear() };
            }
        }
    }

    /// Lets a due grace period end. Never waits.
    pub(crate) fn turn(&self) {
        let index = index();
        // SAFETY: as in `pin`.
        unsafe { self.grace.turn(self.seats.get(index.get())) };
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/core_pins.rs"]
mod tests;
