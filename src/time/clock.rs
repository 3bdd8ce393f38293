//! Clocks that an engine can be driven by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A source of time, in nanoseconds since an origin of its own.
///
/// The engine needs nothing but this, so tests and simulations run without threads and without
/// sleeps on a [`ManualClock`].
///
/// ```
/// use expiry::{Clock, ExpiringMap};
/// use std::time::{SystemTime, UNIX_EPOCH};
///
/// /// The time of day, which counts what the machine sleeps through.
/// struct Wall;
///
/// impl Clock for Wall {
///     fn now(&self) -> u64 {
///         let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
///         u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
///     }
/// }
///
/// let map = ExpiringMap::<u64, u64>::builder().clock(Wall).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Contract
///
/// * A panic of the clock is caught, and counted in the store's metrics: the store then goes by
///   the reading with which its last round began. With nothing due that round may have been
///   hours ago. An entry that begins, or is renewed, by that reading may expire early by as
///   much. A thread that waits for what is due asks the clock again after 10 ms. A store is not
///   built with a clock that panics then.
/// * `now` should not go backwards. If it does, nothing expires early and nothing is lost: time
///   stands still for the engine until the clock has caught up.
/// * `coarse` may lag behind `now` by at most `lag` nanoseconds, and must never be ahead of it. The
///   engine adds `lag` to every deadline that it derives from a coarse reading, so a coarse clock
///   makes an expiry late, never early.
/// * Whether the time that a machine spends suspended counts is the clock's choice; each clock of
///   this crate says what it does.
/// * A store asks for `lag`, `pauses_in_suspend` and `is_manual` when it is built, and not again.
pub trait Clock: Send + Sync + 'static {
    /// The time now, in nanoseconds since this clock's origin.
    fn now(&self) -> u64;

    /// A reading that may lag by up to [`lag`](Self::lag) but is cheaper. Defaults to
    /// [`now`](Self::now).
    #[inline]
    fn coarse(&self) -> u64 {
        self.now()
    }

    /// The most that [`coarse`](Self::coarse) may lag behind, in nanoseconds. Defaults to 0.
    #[inline]
    fn lag(&self) -> u64 {
        0
    }

    /// Whether this clock stands still while the machine is suspended. Defaults to `false`: a
    /// reaper then sleeps for at most a second while anything is scheduled, because the time that
    /// it sleeps by stands still. So what came due during a suspend ends within about a second of
    /// the resume.
    #[inline]
    fn pauses_in_suspend(&self) -> bool {
        false
    }

    /// Whether this clock stands still until the program moves it. Defaults to `false`. A store
    /// with a reaper, which sleeps by the machine's time, is not built with such a clock.
    #[inline]
    fn is_manual(&self) -> bool {
        false
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    #[inline]
    fn now(&self) -> u64 {
        (**self).now()
    }
    #[inline]
    fn coarse(&self) -> u64 {
        (**self).coarse()
    }
    #[inline]
    fn lag(&self) -> u64 {
        (**self).lag()
    }
    #[inline]
    fn pauses_in_suspend(&self) -> bool {
        (**self).pauses_in_suspend()
    }
    #[inline]
    fn is_manual(&self) -> bool {
        (**self).is_manual()
    }
}

/// [`std::time::Instant`] as a [`Clock`]: about 20 ns a reading, no lag.
///
/// On Linux this is `CLOCK_MONOTONIC`: the time that the machine spends suspended does not count,
/// so what was due in ten seconds before a laptop's lid was closed is due in ten seconds after it
/// opens.
///
/// ```
/// use expiry::{ExpiringMap, MonotonicClock};
///
/// let map = ExpiringMap::<u64, u64>::builder().clock(MonotonicClock::new()).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        MonotonicClock { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> u64 {
        nanos(self.origin.elapsed())
    }

    fn pauses_in_suspend(&self) -> bool {
        true
    }
}

/// The default clock: exact where exactness is asked for, and a cheap reading for deadlines where
/// the platform has one.
///
/// On Linux the exact reading is `CLOCK_MONOTONIC`, about 20 ns. The cheap one, about 10 ns, is the
/// exact one that the same thread took last, for as long as the processor's counter says that this
/// was within a millisecond, which is the lag. For the counter to be asked it must be an x86-64's,
/// invariant, and offered by the kernel as a clock source; otherwise, and on other systems, this is
/// [`MonotonicClock`]. The kernel's `CLOCK_MONOTONIC_COARSE` is not used: in a virtual machine
/// nothing bounds its lag. Suspended time does not count.
///
/// ```
/// use expiry::{Clock, CoarseClock, ExpiringMap};
/// use std::time::Duration;
///
/// let clock = CoarseClock::new();
/// assert!(Duration::from_nanos(clock.lag()) <= Duration::from_millis(1));
/// let map = ExpiringMap::builder().clock(clock).build_manual()?; // as without a clock
/// map.insert("key", 1)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct CoarseClock {
    #[cfg(target_os = "linux")]
    origin: u64,
    #[cfg(target_os = "linux")]
    lag: u64,
    #[cfg(not(target_os = "linux"))]
    exact: MonotonicClock,
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::time::recent::{counter, Recent, Span};
    use libc::{clock_gettime, clockid_t, CLOCK_MONOTONIC};

    static SPAN: Span = Span::unknown();
    thread_local!(static RECENT: Recent = const { Recent::new() });

    #[inline]
    pub(super) fn exact() -> u64 {
        reading(CLOCK_MONOTONIC)
    }

    #[inline]
    #[allow(clippy::cast_sign_loss)]
    pub(super) fn reading(clock: clockid_t) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is written to this place.
        let failed = unsafe { clock_gettime(clock, &mut time) };
        debug_assert_eq!(failed, 0, "every kernel that Rust supports has these clocks");
        // Both fields are non-negative: these clocks count from the machine's start.
        (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Called only where the counter can be trusted.
    #[inline(always)]
    pub(super) fn recent() -> u64 {
        // It has no destructor, so that it is there as long as the thread.
        let reading = |recent: &Recent| recent.reading(&SPAN, counter::read, exact);
        RECENT.try_with(reading).unwrap_or_else(|_| exact())
    }

    /// The lag of [`recent`]; 0 if it must not be called.
    pub(super) fn lag() -> u64 {
        u64::from(counter::is_trusted()) * crate::time::recent::RECENT
    }
}

impl CoarseClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        #[cfg(target_os = "linux")]
        {
            let lag = linux::lag();
            CoarseClock {
                // Cheap readings taken now may lie this far in the past; the origin must not be
                // after them.
                origin: linux::exact().saturating_sub(lag),
                lag,
            }
        }
        #[cfg(not(target_os = "linux"))]
        CoarseClock { exact: MonotonicClock::new() }
    }
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for CoarseClock {
    #[inline]
    fn now(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return linux::exact().saturating_sub(self.origin);
        #[cfg(not(target_os = "linux"))]
        self.exact.now()
    }

    #[inline]
    fn coarse(&self) -> u64 {
        #[cfg(target_os = "linux")]
        if self.lag != 0 {
            return linux::recent().saturating_sub(self.origin);
        }
        self.now()
    }

    #[inline]
    fn lag(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return self.lag;
        #[cfg(not(target_os = "linux"))]
        0
    }

    fn pauses_in_suspend(&self) -> bool {
        true
    }
}

/// `CLOCK_BOOTTIME` as a [`Clock`]: the time that the machine spends suspended counts. About 20 ns
/// a reading, no lag. Linux only.
///
/// Look-ups never return an entry that expired during a suspend. The reaper reports such entries
/// within about a second of the resume: it sleeps for at most a second while anything is scheduled.
///
/// ```
/// use expiry::{BootClock, ExpiringMap};
///
/// let map = ExpiringMap::<u64, u64>::builder().clock(BootClock).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

#[cfg(target_os = "linux")]
impl Clock for BootClock {
    #[inline]
    fn now(&self) -> u64 {
        linux::reading(libc::CLOCK_BOOTTIME)
    }
}

/// A clock that moves only when the program advances it: for tests and simulation.
///
/// Clones share the same time. It is for stores without a thread, from `build_manual`. `build`
/// refuses it ([`BuildError::ManualClock`](crate::BuildError::ManualClock)): a reaper thread sleeps
/// by the machine's time and does not notice an advance.
///
/// ```
/// use expiry::{Clock, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let same = clock.clone();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(same.now(), 5_000_000_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    now: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that stands at 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forwards; it saturates at `u64::MAX` nanoseconds, 584 years.
    pub fn advance(&self, by: Duration) {
        // AcqRel: a thread that reads the new time sees what was done before it was set, as with a
        // real clock.
        let _ = self.now.fetch_update(Ordering::AcqRel, Ordering::Acquire, |now| {
            Some(now.saturating_add(nanos(by)))
        });
    }

    /// Sets the clock to an absolute time, backwards too if that is what a test is about.
    pub fn set(&self, nanos: u64) {
        self.now.store(nanos, Ordering::Release);
    }
}

impl Clock for ManualClock {
    #[inline]
    fn now(&self) -> u64 {
        self.now.load(Ordering::Acquire)
    }

    #[inline]
    fn is_manual(&self) -> bool {
        true
    }
}

/// A duration in nanoseconds, saturating at 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "../../tests/unit/time_clock.rs"]
mod tests;
