//! What this process holds in memory, and what its threads have had of the processors.

use std::time::Duration;

/// A field of one of the system's tables about memory, in bytes; 0 where the system does not say.
pub fn memory(table: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(table).unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib = kib.and_then(|kib| kib.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Resident memory in bytes; 0 where the system does not say.
pub fn resident() -> u64 {
    memory("/proc/self/status", "VmRSS")
}

/// Makes the allocator keep all of its memory in one place. With one place for each thread, free
/// memory between what ended threads have left stays resident: hundreds of megabytes that no thread
/// uses.
pub fn one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a limit, which holds for arenas that are yet to be made.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives the allocator's free memory back to the system, where it can be asked to. What is resident
/// then is in use.
pub fn trim() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// How long this thread has run, without the time of others in between; real time where the system
/// does not say.
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
