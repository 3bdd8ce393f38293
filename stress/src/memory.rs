//! What this process holds in memory.

/// Resident memory in bytes; 0 where the system does not say.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok());
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

/// Gives what the allocator has free back to the system, where it can be asked to: what is resident then is in use.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
