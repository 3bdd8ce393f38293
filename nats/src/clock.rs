//! The monotonic clock of ownership. It counts the time for which the machine was suspended: an
//! owner that slept must not act on a lease that ran out meanwhile.

use std::time::Duration;

/// Time since an arbitrary origin.
#[cfg(target_os = "linux")]
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Time since an arbitrary origin. On this platform it may leave suspended time out.
#[cfg(not(target_os = "linux"))]
pub(crate) fn now() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    ORIGIN.get_or_init(Instant::now).elapsed()
}
