//! Unit tests of `src/time/recent.rs`.

use super::*;

/// A counter of so many counts a microsecond and a clock, both by a true time in nanoseconds, which
/// goes on by `step` with each reading.
struct Simulated {
    now: Cell<u64>,
    step: Cell<u64>,
    per_us: Cell<u64>,
    ahead: Cell<u64>,
}

impl Simulated {
    fn new(per_us: u64) -> Self {
        Simulated {
            now: Cell::new(1 << 40),
            step: Cell::new(20),
            per_us: Cell::new(per_us),
            ahead: Cell::new(0),
        }
    }

    fn pass(&self) -> u64 {
        self.now.set(self.now.get() + self.step.get());
        self.now.get()
    }

    fn counter(&self) -> u64 {
        let counts = self.pass() / 1000 * self.per_us.get();
        counts.wrapping_add(self.ahead.get())
    }

    fn exact(&self) -> u64 {
        self.pass()
    }
}

/// Reads over and over for so long, and sees that no reading is ahead, or older than promised. How
/// many were taken anew.
fn read_for(recent: &Recent, span: &Span, sources: &Simulated, nanos: u64) -> u64 {
    let end = sources.now.get() + nanos;
    let (mut anew, mut last) = (0, 0);
    while sources.now.get() < end {
        let before = sources.now.get();
        let reading = recent.reading(span, || sources.counter(), || sources.exact());
        assert!(reading <= sources.now.get(), "ahead");
        assert!(before.saturating_sub(reading) <= RECENT, "too old");
        anew += u64::from(reading != last);
        last = reading;
    }
    anew
}

#[test]
fn a_reading_is_never_ahead_and_not_older_than_promised() {
    for per_us in [25, 1_000, 2_500, 6_000] {
        let (recent, span) = (Recent::new(), Span::unknown());
        let sources = Simulated::new(per_us);
        read_for(&recent, &span, &sources, 30_000_000);
        let known = span.0.load(Relaxed);
        let right = per_us * RECENT / 2 / 1000;
        assert!(known <= right && known * 16 >= right * 15, "{known}");
        // Each is good for half of it.
        let anew = read_for(&recent, &span, &sources, 100_000_000);
        assert!((200..=220).contains(&anew), "{anew}");
    }
}

#[test]
fn a_thread_that_is_held_up_wherever_it_may_be_reads_no_old_time() {
    for known in [false, true] {
        let (recent, span) = (Recent::new(), Span::unknown());
        let sources = Simulated::new(2_500);
        if known {
            read_for(&recent, &span, &sources, 30_000_000);
        }
        for turn in 0..3_000 {
            sources.step.set(if turn % 7 == 0 { 3_000_000 } else { 20 });
            let before = sources.now.get();
            let reading = recent.reading(&span, || sources.counter(), || sources.exact());
            assert!(before.saturating_sub(reading) <= RECENT, "too old");
            assert!(reading <= sources.now.get(), "ahead");
        }
        assert!(span.0.load(Relaxed) <= 2_500 * RECENT / 2 / 1000);
    }
}

#[test]
fn a_counter_that_jumps_is_not_believed() {
    let (recent, span) = (Recent::new(), Span::unknown());
    let sources = Simulated::new(2_500);
    read_for(&recent, &span, &sources, 30_000_000);
    for ahead in [1 << 62, 0, u64::MAX - (1 << 45), 7] {
        sources.ahead.set(ahead);
        read_for(&recent, &span, &sources, 2_000_000);
    }
}

#[test]
fn a_rate_that_halves_breaks_no_promise() {
    let (recent, span) = (Recent::new(), Span::unknown());
    let sources = Simulated::new(3_000);
    read_for(&recent, &span, &sources, 30_000_000);
    sources.per_us.set(1_501);
    read_for(&recent, &span, &sources, 30_000_000);
}

#[test]
fn what_is_measured_is_plausible_or_nothing() {
    let second = 1_000_000_000;
    assert_eq!(measured(second, 2_500_000_000, 100), Some(1_250_000));
    // The machine has slept; too short; held up while it began; it stands still; it is no counter
    // of this world.
    assert_eq!(measured(second + 1, 2_500_000_000, 100), None);
    assert_eq!(measured(9_999_999, 25_000_000, 100), None);
    assert_eq!(measured(second, 2_500_000_000, 400_000_000), None);
    assert_eq!(measured(second, 0, 0), None);
    assert_eq!(measured(second, 10_000_000_001_000, 0), None);
}
