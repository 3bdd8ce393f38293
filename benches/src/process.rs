//! What Linux says about this process and its threads.

use std::fs;
use std::time::{Duration, Instant};

fn status(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// What an operation took, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    /// Of the process's time on processors.
    pub cpu: f64,
    /// Of the time that went by for a thread.
    pub wall: f64,
}

impl Took {
    /// Of so many operations, all threads together, that the process was on processors for `cpu` for, and each thread at for `wall`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn of(cpu: Duration, wall: Duration, threads: usize, operations: usize) -> Self {
        Took {
            cpu: cpu.as_nanos() as f64 / operations as f64,
            wall: wall.as_nanos() as f64 * threads as f64 / operations as f64,
        }
    }
}

/// Resident bytes now.
#[must_use]
pub fn resident() -> u64 {
    status("VmRSS:").unwrap_or(0)
}

/// The most bytes that ever were resident.
#[must_use]
pub fn peak() -> u64 {
    status("VmHWM:").unwrap_or(0)
}

/// What the thread named `expiry-reaper` has used up to now. There must be one tracker only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reaper {
    /// Time on a processor, by the scheduler's account (nanoseconds), or by the ticks in `stat` where it has none.
    pub cpu: Duration,
    /// How often it went to sleep.
    pub sleeps: u64,
}

/// Looks the reaper up; `None` if there is none, or no `/proc`.
#[must_use]
pub fn reaper() -> Option<Reaper> {
    let task =
        fs::read_dir("/proc/self/task").ok()?.flatten().map(|task| task.path()).find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "expiry-reaper")
        })?;
    let read = |file| fs::read_to_string(task.join(file)).ok();
    let sched = read("schedstat").and_then(|s| s.split_whitespace().next()?.parse().ok());
    let cpu = match sched {
        Some(nanos) if nanos > 0 => Duration::from_nanos(nanos),
        _ => {
            // Fields 14 and 15 in ticks of 10 ms; the name before them has no space in it.
            let stat = read("stat")?;
            let mut fields = stat.split_whitespace().skip(13);
            let user: u64 = fields.next()?.parse().ok()?;
            let system: u64 = fields.next()?.parse().ok()?;
            Duration::from_millis((user + system) * 10)
        }
    };
    let sleeps = read("status").and_then(|status| {
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    })?;
    Some(Reaper { cpu, sleeps })
}

/// How long this thread has waited for a processor, in nanoseconds since it began.
#[must_use]
pub fn waited() -> u64 {
    fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|s| s.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// How long the threads of this process have had processors, together.
#[cfg(target_os = "linux")]
#[must_use]
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // both are positive, one below 10^9
pub fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where that cannot be asked, what this thread has had.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn cpu() -> Duration {
    busy()
}

/// Processor time of the process once its threads are idle: in 5 ms they use a twentieth of a
/// processor at most. Gives up after 10 s.
#[must_use]
pub fn settled() -> Duration {
    let began = Instant::now();
    let mut last = cpu();
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = cpu();
        if now - last < Duration::from_micros(250) || began.elapsed() > Duration::from_secs(10) {
            return now;
        }
        last = now;
    }
}

/// Bytes that the allocator has given out, its own included; 0 where it cannot be asked.
#[must_use]
#[allow(clippy::missing_const_for_fn)]
pub fn allocated() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes nothing, and locks what it reads.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as u64
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    0
}

/// Bytes that the allocator holds of the system, given out or not; 0 where it cannot be asked.
#[must_use]
#[allow(clippy::missing_const_for_fn)]
pub fn held() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes nothing, and locks what it reads.
        let info = unsafe { libc::mallinfo2() };
        (info.arena + info.hblkhd) as u64
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    0
}

/// How long this thread has had a processor. Of two of these the difference is what its work took, however busy the machine.
#[cfg(target_os = "linux")]
#[must_use]
#[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // both are positive, one below 10^9
pub fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Where that cannot be asked, the time that has gone by.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn busy() -> Duration {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BEGAN.get_or_init(Instant::now).elapsed()
}
