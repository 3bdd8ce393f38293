//! Clocks that are read at an unlucky moment.

use expiry::{Clock, ManualClock, MonotonicClock};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
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

/// Panics while it is broken.
#[derive(Clone, Default)]
pub struct Breaks {
    pub time: ManualClock,
    broken: Arc<AtomicBool>,
}

impl Breaks {
    pub fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Relaxed);
    }
}

impl Clock for Breaks {
    fn now(&self) -> u64 {
        if self.broken.load(Relaxed) {
            std::panic::resume_unwind(Box::new("a clock that is broken for a moment"));
        }
        self.time.now()
    }

    fn is_manual(&self) -> bool {
        true
    }
}

/// Goes by the machine's, and can be set ahead and back. On the thread of a store's own reaper the
/// next readings panic.
#[derive(Clone)]
pub struct Reapers {
    time: MonotonicClock,
    pub ahead: Arc<AtomicU64>,
    pub panics: Arc<AtomicUsize>,
}

impl Reapers {
    pub fn new() -> Self {
        Reapers { time: MonotonicClock::new(), ahead: Arc::default(), panics: Arc::default() }
    }
}

impl Clock for Reapers {
    fn now(&self) -> u64 {
        let panics =
            || self.panics.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if std::thread::current().name() == Some("expiry-reaper") && panics() {
            std::panic::resume_unwind(Box::new("a clock that is broken for a moment"));
        }
        self.time.now() + self.ahead.load(SeqCst)
    }

    fn pauses_in_suspend(&self) -> bool {
        true
    }
}
