//! What a suspend does to the clocks. This program links its own `clock_gettime` before the C
//! library's, and so can pretend that the machine was suspended.

use crate::support::HOUR;
use expiry::{BootClock, Clock, CoarseClock, ExpiringMap, MonotonicClock};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// Seconds that this process adds to the clock that counts suspended time.
static SUSPENDED: AtomicI64 = AtomicI64::new(0);

/// Reads the kernel's clock, and adds [`SUSPENDED`] to `CLOCK_BOOTTIME`.
///
/// # Safety
///
/// As the C library's: `time` can be written to.
#[no_mangle]
unsafe extern "C" fn clock_gettime(
    clock: libc::clockid_t,
    time: *mut libc::timespec,
) -> libc::c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) };
    if result != 0 {
        return -1;
    }
    if clock == libc::CLOCK_BOOTTIME {
        // SAFETY: the caller's promise, and the kernel has written to it.
        unsafe { (*time).tv_sec += SUSPENDED.load(Relaxed) };
    }
    0
}

pub fn a_boot_clock_counts_the_time_that_the_machine_is_suspended() {
    let clocks: [(Arc<dyn Clock>, Duration); 3] = [
        (Arc::new(BootClock), HOUR),
        (Arc::new(MonotonicClock::new()), Duration::ZERO),
        (Arc::new(CoarseClock::new()), Duration::ZERO),
    ];
    let map = ExpiringMap::builder().clock(BootClock).build_manual().unwrap();
    map.insert_for(1, 1, HOUR / 2).unwrap();
    let before: Vec<u64> = clocks.iter().map(|(clock, _)| clock.now()).collect();
    assert!(map.get(&1).is_some());
    SUSPENDED.store(3600, Relaxed);
    for ((clock, counted), before) in clocks.iter().zip(before) {
        let passed = Duration::from_nanos(clock.now() - before);
        assert!((*counted..*counted + HOUR / 2).contains(&passed), "{passed:?} of {counted:?}");
    }
    assert!(map.get(&1).is_none());
}
