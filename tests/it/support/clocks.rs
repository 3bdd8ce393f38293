//! Clocks that are read at an unlucky moment.

use expiry::{Clock, ManualClock};
use std::cell::Cell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock at one of whose readings something happens: the thread that has taken it is held up, and
/// goes on with it when that is over.
#[derive(Clone, Default)]
pub struct Delayed {
    pub clock: ManualClock,
    /// How many readings there are before that.
    before: Arc<AtomicU32>,
    #[allow(clippy::type_complexity)]
    meanwhile: Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>,
}

impl Delayed {
    /// What happens after so many more readings.
    pub fn after(&self, readings: u32, meanwhile: impl FnOnce() + Send + 'static) {
        self.before.store(readings, Relaxed);
        *self.meanwhile.lock().unwrap() = Some(Box::new(meanwhile));
    }

    /// Whether it has happened.
    pub fn has_been(&self) -> bool {
        self.meanwhile.lock().unwrap().is_none()
    }
}

impl Clock for Delayed {
    fn now(&self) -> u64 {
        let now = self.clock.now();
        let meanwhile = match self.before.load(Relaxed) {
            0 => self.meanwhile.lock().unwrap().take(),
            more => {
                self.before.store(more - 1, Relaxed);
                None
            }
        };
        if let Some(meanwhile) = meanwhile {
            std::thread::spawn(meanwhile).join().unwrap();
        }
        now
    }
}

/// A clock that a test moves, of a store with a reaper, which does not notice that.
pub struct Moved(pub ManualClock);

impl Clock for Moved {
    fn now(&self) -> u64 {
        self.0.now()
    }
}

/// A clock whose cheap reading lags, by as much as it may, in those threads that say so.
#[derive(Clone)]
pub struct Lagging(pub ManualClock);

pub const LAG: Duration = Duration::from_millis(1);

thread_local!(pub static LAGS: Cell<bool> = const { Cell::new(false) });

impl Clock for Lagging {
    fn now(&self) -> u64 {
        self.0.now()
    }

    fn coarse(&self) -> u64 {
        let lag = if LAGS.get() { self.lag() } else { 0 };
        self.0.now() - lag
    }

    fn lag(&self) -> u64 {
        u64::try_from(LAG.as_nanos()).unwrap()
    }
}

/// Panics at one of the readings to come.
#[derive(Clone, Default)]
pub struct PanicsAt {
    pub time: ManualClock,
    left: Arc<AtomicU32>,
}

impl PanicsAt {
    /// The first of the readings to come is 1; with 0 none panics. Returns how many were left.
    pub fn panics_at(&self, reading: u32) -> u32 {
        self.left.swap(reading, Relaxed)
    }

    /// Makes a `round` for each reading of the call that it passes on: that reading panics.
    pub fn at_each_reading(round: impl Fn(&Self, &dyn Fn(&mut dyn FnMut()))) {
        for nth in 1.. {
            let (clock, left) = (PanicsAt::default(), Cell::new(0));
            round(&clock, &|call| {
                clock.panics_at(nth);
                let _ = catch_unwind(AssertUnwindSafe(call));
                left.set(clock.panics_at(0));
            });
            if left.get() != 0 {
                return;
            }
        }
    }
}

impl Clock for PanicsAt {
    fn now(&self) -> u64 {
        let less = |left: u32| left.checked_sub(1);
        if self.left.fetch_update(Relaxed, Relaxed, less) == Ok(1) {
            std::panic::resume_unwind(Box::new("a clock that is broken for a moment"));
        }
        self.time.now()
    }

    fn is_manual(&self) -> bool {
        true
    }
}
