//! What this process holds in memory, and what its threads have had of the processors.

use std::time::Duration;

/// Resident memory in bytes; 0 where the system does not say.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * page()
}

#[cfg(target_os = "linux")]
fn page() -> u64 {
    // SAFETY: it only asks.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

#[cfg(not(target_os = "linux"))]
fn page() -> u64 {
    4096
}

/// Has the allocator keep all of its memory in one place. In one for each thread, what is free between the leftovers of
/// threads that have ended stays resident: hundreds of megabytes that nobody holds.
pub fn one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a limit, which holds for arenas that are yet to be made.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives what the allocator has free back to the system, where it can be asked to: what is resident then is in use.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How long this thread has run, without what others had in between; where the system does not say, real time.
pub fn thread_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes to what it is given, which is valid.
        if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } == 0 {
            let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
            return Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0));
        }
    }
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}
