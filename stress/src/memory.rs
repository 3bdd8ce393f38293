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
