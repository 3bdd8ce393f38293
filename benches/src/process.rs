//! What Linux says about this process and its threads.

use cpu_time::{ProcessTime, ThreadTime};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// A number of a file of lines such as `VmRSS:  1234 kB`.
fn field(file: impl AsRef<Path>, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The `nth` number of a file of one line.
fn number(file: impl AsRef<Path>, nth: usize) -> Option<u64> {
    fs::read_to_string(file).ok()?.split_whitespace().nth(nth)?.parse().ok()
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Took {
    pub cpu: f64,
    pub wall: f64,
}

impl Took {
    /// Processor and wall time of so many operations, all threads together. The process was on
    /// processors for `cpu`, and each thread ran for `wall`.
    pub fn of(cpu: Duration, wall: Duration, threads: usize, operations: usize) -> Self {
        Took {
            cpu: cpu.as_nanos() as f64 / operations as f64,
            wall: wall.as_nanos() as f64 * threads as f64 / operations as f64,
        }
    }
}

pub fn resident() -> u64 {
    field("/proc/self/status", "VmRSS:").unwrap_or(0) * 1024
}

pub fn peak() -> u64 {
    field("/proc/self/status", "VmHWM:").unwrap_or(0) * 1024
}

/// What the thread named `expiry-reaper` has used up to now: time on a processor, by the
/// scheduler's account, or by the ticks in `stat` where it has none; and how often it went to
/// sleep. There must be one tracker only. `None` if there is none, or no
/// `/proc`.
pub fn reaper() -> Option<(Duration, u64)> {
    let task =
        fs::read_dir("/proc/self/task").ok()?.flatten().map(|task| task.path()).find(|task| {
            fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "expiry-reaper")
        })?;
    let cpu = match number(task.join("schedstat"), 0) {
        Some(nanos) if nanos > 0 => Duration::from_nanos(nanos),
        _ => {
            // Fields 14 and 15 in ticks of 10 ms; the name before them has no space in it.
            let ticks = |nth| number(task.join("stat"), nth);
            Duration::from_millis((ticks(13)? + ticks(14)?) * 10)
        }
    };
    Some((cpu, field(task.join("status"), "voluntary_ctxt_switches:")?))
}

/// How long the threads of this process have had processors, together.
pub fn cpu() -> Duration {
    ProcessTime::now().as_duration()
}

/// How long this thread has had a processor. Of two of these the difference is what its work took,
/// however busy the machine.
pub fn busy() -> Duration {
    ThreadTime::now().as_duration()
}

/// Processor time of the process once its threads are idle: in 5 ms they use a twentieth of a
/// processor at most. Gives up after 10 s.
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

/// Bytes that the allocator has given out, its own included, and bytes that it holds of the system,
/// given out or not; 0 where it cannot be asked.
pub fn allocated() -> (u64, u64) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: it takes nothing, and locks what it reads.
        let info = unsafe { libc::mallinfo2() };
        ((info.uordblks + info.hblkhd) as u64, (info.arena + info.hblkhd) as u64)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    (0, 0)
}
