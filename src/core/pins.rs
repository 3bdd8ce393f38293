//! Pins: a pinned thread may look at payloads. The driver reuses what such a thread may see only
//! after the thread has unpinned.
//!
//! Two things wait until no thread can be looking at them: the slots of ended entries (W15), and a
//! retired table of an index, in which a stale publisher's compare-and-swap could succeed once the
//! table is in use again.
//!
//! The end of a wait sets a flag, and runs no user code. Each engine has its own crossbeam-epoch
//! domain, so a thread that stays pinned in one store holds back no other store's memory. A
//! thread's handle to the domain lies in its *seat*, a stripe that goes with the handle to the next
//! thread of the same index. Under loom [`crate::sync::epoch`] stands in.

#[cfg(not(expiry_loom))]
use super::threads::Vacant;
use super::threads::{hold, Holding, Stripes};
#[cfg(expiry_loom)]
use crate::sync::epoch::{Collector, Guard, LocalHandle};
use crate::sync::exclusive::Exclusive;
use crate::sync::{AtomicBool, AtomicU32, Ordering};
#[cfg(not(expiry_loom))]
use crossbeam_epoch::{Collector, Guard, LocalHandle};
#[cfg(expiry_loom)]
use loom::sync::Arc;
use std::cell::UnsafeCell;
#[cfg(not(expiry_loom))]
use std::sync::Arc;

/// How often a thread that asks whether a grace period is over advances the epoch. A period ends
/// after two or three advances, if no thread is pinned meanwhile.
pub(super) const TURNS: usize = if cfg!(expiry_loom) { 2 } else { 8 };

/// A thread's handle to the domain.
struct Seat(UnsafeCell<Option<LocalHandle>>);

// SAFETY: only the thread that has the seat's index touches the handle. A handle is plain memory
// that two threads must not use at a time; the index's next thread sees what the last one did.
unsafe impl Sync for Seat {}
// SAFETY: as above.
unsafe impl Send for Seat {}

/// The domain of an engine, and its threads' seats.
pub(crate) struct Pins {
    seats: Stripes<Seat>,
    domain: Collector,
    /// The wait of the last [`is_unobserved`](Self::is_unobserved), if that has not ended.
    asked: Exclusive<Option<Wait>>,
    /// How many threads copy index words, or [`GATHERING`] while a thread gathers what has ended.
    copying: AtomicU32,
}

/// In place of the number of copying threads.
const GATHERING: u32 = 1 << 31;

/// Held while a thread may look at what others end: see [`Pins::pin`].
pub(crate) struct Pin {
    guard: Guard,
    /// No other thread gets the seat while this lives.
    index: Holding,
}

impl Pin {
    #[inline(always)]
    pub(crate) fn index(&self) -> &Holding {
        &self.index
    }
}

impl Pins {
    pub(crate) fn new() -> Self {
        let seats = Stripes::new(|| Seat(UnsafeCell::new(None)));
        Pins {
            seats,
            domain: Collector::new(),
            asked: Exclusive::new(None),
            copying: AtomicU32::new(0),
        }
    }

    /// Keeps what this thread finds from here on: while this lives, no slot that another thread can
    /// find now is freed. A pin inside another costs next to nothing.
    #[inline(always)]
    pub(crate) fn pin(&self) -> Pin {
        let index = hold();
        // SAFETY: the seat is this thread's, as is the index, which the pin keeps.
        let seat = unsafe { &mut *self.seats.of(&index).0.get() };
        let guard = match seat {
            Some(handle) => handle.pin(),
            None => self.sit_down(seat),
        };
        Pin { guard, index }
    }

    #[cold]
    #[inline(never)]
    fn sit_down(&self, seat: &mut Option<LocalHandle>) -> Guard {
        seat.insert(self.domain.register()).pin()
    }

    /// Empties the seats of ended threads, because each turn looks at all handles in the domain.
    #[cfg(not(expiry_loom))]
    pub(crate) fn clear_seats(&self) {
        for (index, seat) in self.seats.indexed() {
            if let Some(_vacant) = Vacant::keep(index) {
                // SAFETY: no thread has the index, nor gets it meanwhile. A thread that holds a pin
                // has its index.
                drop(unsafe { &mut *seat.0.get() }.take());
            }
        }
    }

    /// Lets a due grace period end. Never waits.
    pub(crate) fn turn(&self) {
        #[cfg(not(expiry_loom))]
        self.pin().guard.flush();
        #[cfg(expiry_loom)]
        self.domain.turn();
    }

    /// Lets grace periods end until `is_over`, for at most [`TURNS`]. Returns the last answer.
    pub(super) fn turn_until(&self, mut is_over: impl FnMut() -> bool) -> bool {
        for _ in 0..TURNS {
            if is_over() {
                return true;
            }
            self.turn();
        }
        is_over()
    }

    /// Lets this thread copy index words; `None` while another one [gathers](Self::gather).
    pub(crate) fn copier(&self) -> Option<Copier<'_>> {
        let copier = Copier { pin: self.pin(), copying: &self.copying };
        // Acquire pairs with the end of `gather`: the words of what it took are gone
        // (`a_slot_retired_beside_a_copy` fails without it).
        let before = self.copying.fetch_add(1, Ordering::Acquire);
        (before < GATHERING).then_some(copier)
    }

    /// Calls `take`, which takes slots whose words have left the index. `None` while a thread
    /// copies index words, or gathers.
    ///
    /// A copy may name a slot whose word has left the index, until its [`Copier`] has mended it. So
    /// a thread that finds the slot by such a copy has pinned before the slot is taken here, and a
    /// [`Wait`] that begins later waits for it.
    pub(crate) fn gather<R>(&self, take: impl FnOnce() -> R) -> Option<R> {
        // survives: Acquire pairs with the end of each copier, whose copies are mended. In models
        // the thread that gathers has migrated, or looks up itself. Holds for both sides.
        let copying = &self.copying;
        copying.compare_exchange(0, GATHERING, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let taken = take();
        copying.fetch_sub(GATHERING, Ordering::Release);
        Some(taken)
    }

    /// Whether all threads that were pinned when this began have unpinned: none can be looking at
    /// what the caller took out of the index before. Also `false` while another thread asks, or
    /// copies index words.
    ///
    /// An unfinished wait, which costs memory, is kept for the next caller to ask first.
    pub(crate) fn is_unobserved(&self) -> bool {
        let is_over = |wait: &Wait| self.turn_until(|| wait.is_over());
        let unobserved = self.asked.enter(|asked| {
            if asked.as_ref().is_some_and(|before| !is_over(before)) {
                return false;
            }
            let wait = self.gather(|| ()).map(|()| Wait::begin(&self.pin()));
            let unobserved = wait.as_ref().is_some_and(is_over);
            *asked = wait.filter(|_| !unobserved);
            unobserved
        });
        unobserved.unwrap_or(false)
    }
}

/// Held while a thread copies index words: no thread gathers what has ended meanwhile.
pub(crate) struct Copier<'a> {
    pub(crate) pin: Pin,
    copying: &'a AtomicU32,
}

impl Drop for Copier<'_> {
    fn drop(&mut self) {
        self.copying.fetch_sub(1, Ordering::Release);
    }
}

/// A wait for a grace period: until all threads have unpinned that were pinned when it began.
pub(crate) struct Wait(Arc<AtomicBool>);

impl Wait {
    pub(crate) fn begin(pin: &Pin) -> Self {
        let passed = Arc::new(AtomicBool::new(false));
        let flag = passed.clone();
        // Whichever thread pins or turns then runs it.
        pin.guard.defer(move || flag.store(true, Ordering::Release));
        pin.guard.flush();
        Wait(passed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/core_pins.rs"]
mod tests;
