//! A reading of the exact clock, reused while the processor's counter says that it is recent.
//!
//! The kernel's own cheap clock (`CLOCK_MONOTONIC_COARSE`) will not do. It is as old as the last
//! timer interrupt that was handled, and nothing bounds that. Where a hypervisor has taken away the
//! processor whose turn it is, the others go on reading the old time, for 12 ms where the kernel's
//! tick is 4. What is due by such a reading is due too early.
//!
//! Here each thread keeps its last exact reading, and the counter from just before it. That reading
//! is the time until the counter has gone further than a *span*; then the thread reads anew. So a
//! reading is never ahead, and behind by a span at most. A span is half of [`RECENT`], so the
//! promise holds even if its measurement or the counter's rate is off by a factor of two.
//!
//! * The span is measured once for the process, over [`WINDOW`], from a counter read after one
//!   exact reading to one read before another: what comes in between makes it shorter, not longer.
//!   Until then nothing is recent.
//! * A counter that has gone backwards, or far ahead, is not recent either: it is compared as a
//!   distance, modulo 2^64.
//! * It is used only where it ticks at one rate in all states of the processor (the invariant bit).
//!   The kernel must offer it as a source of its own clock, too: it tests that it is the same on
//!   all processors. Elsewhere all readings are exact.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How old a reading may be, in nanoseconds.
pub(super) const RECENT: u64 = 1_000_000;
/// Shortest and longest measurement of the span. During a longer one the machine may have slept,
/// which the counter and the clock count differently.
const WINDOW: std::ops::RangeInclusive<u64> = 10_000_000..=1_000_000_000;
/// Counts per nanosecond that no counter exceeds.
const FASTEST: u64 = 10;

/// How far the counter goes in half of [`RECENT`]; 0 until that is known.
pub(super) struct Span(AtomicU64);

impl Span {
    pub(super) const fn unknown() -> Self {
        Span(AtomicU64::new(0))
    }
}

#[derive(Clone, Copy)]
struct Memory {
    /// The exact reading, and the counter from before it.
    time: u64,
    at: u64,
    /// Where the measurement of the span begins: an exact reading, the counter from after it, and
    /// how far the counter went during the reading.
    from: (u64, u64, u64),
}

pub(super) struct Recent(Cell<Memory>);

impl Recent {
    pub(super) const fn new() -> Self {
        Recent(Cell::new(Memory { time: 0, at: 0, from: (0, 0, 0) }))
    }

    /// The time, in nanoseconds of the `exact` clock, or what it was at most [`RECENT`] ago by the
    /// processor's `counter`.
    #[inline(always)]
    pub(super) fn reading(
        &self,
        span: &Span,
        counter: impl Fn() -> u64,
        exact: impl Fn() -> u64,
    ) -> u64 {
        let memory = self.0.get();
        if counter().wrapping_sub(memory.at) < span.0.load(Relaxed) {
            memory.time
        } else {
            self.anew(span, counter, exact)
        }
    }

    #[cold]
    fn anew(&self, span: &Span, counter: impl Fn() -> u64, exact: impl Fn() -> u64) -> u64 {
        let Memory { mut from, .. } = self.0.get();
        let at = counter();
        let time = exact();
        if span.0.load(Relaxed) == 0 {
            let (began, after, width) = from;
            let elapsed = time.wrapping_sub(began);
            if elapsed >= *WINDOW.start() {
                if let Some(measured) = measured(elapsed, at.wrapping_sub(after), width) {
                    // A thread that was faster has measured the same.
                    let _ = span.0.compare_exchange(0, measured, Relaxed, Relaxed);
                }
                let now = counter();
                from = (time, now, now.wrapping_sub(at));
            }
        }
        self.0.set(Memory { time, at, from });
        time
    }
}

/// How far the counter goes in half of [`RECENT`], after `counts` in less than `elapsed` ns and a
/// first reading that took `width` counts. `None` if that is implausible.
fn measured(elapsed: u64, counts: u64, width: u64) -> Option<u64> {
    let half = RECENT / 2;
    if !WINDOW.contains(&elapsed) || width > counts / 8 {
        return None;
    }
    let span = u128::from(counts) * u128::from(half) / u128::from(elapsed);
    let span = u64::try_from(span).ok()?;
    (1..=FASTEST * half).contains(&span).then_some(span)
}

/// The processor's counter, where it can be trusted.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
pub(super) mod counter {
    use std::sync::OnceLock;

    #[inline(always)]
    pub(in crate::time) fn read() -> u64 {
        // SAFETY: every processor of this architecture has it.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    /// Whether it goes at one rate, whatever the processor does, and the kernel trusts it.
    pub(in crate::time) fn is_trusted() -> bool {
        static TRUSTED: OnceLock<bool> = OnceLock::new();
        *TRUSTED.get_or_init(|| is_invariant() && is_offered())
    }

    #[allow(unused_unsafe)] // newer compilers know that it is safe
    fn is_invariant() -> bool {
        const POWER: u32 = 0x8000_0007;
        // SAFETY: every processor of this architecture has it.
        let leaf = |leaf| unsafe { std::arch::x86_64::__cpuid(leaf) };
        leaf(0x8000_0000).eax >= POWER && leaf(POWER).edx & 1 << 8 != 0
    }

    /// The kernel no longer offers a counter that it found to be unstable for its fine clock.
    fn is_offered() -> bool {
        let path = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
        let offered = std::fs::read_to_string(path).unwrap_or_default();
        offered.split_whitespace().any(|source| source == "tsc")
    }
}

/// No counter: nothing is recent.
#[cfg(all(target_os = "linux", not(all(target_arch = "x86_64", not(miri)))))]
pub(super) mod counter {
    pub(in crate::time) fn read() -> u64 {
        0
    }

    pub(in crate::time) fn is_trusted() -> bool {
        false
    }
}

#[cfg(test)]
#[path = "../../tests/unit/time_recent.rs"]
mod tests;
