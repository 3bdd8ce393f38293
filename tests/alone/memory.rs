//! F8: the memory of a burst is given back once it has drained. It measures the process.

use crate::heap;
use expiry::{AckTracker, ManualClock, Polled, Root};
use std::time::Duration;

/// Resident memory of this process, in MiB.
fn resident() -> f64 {
    heap::statm(1) as f64 / f64::from(1 << 20)
}

/// Polls, and lets time go by as `poll` says, until there is nothing left to come back for.
pub fn rest(clock: &ManualClock, poll: impl Fn() -> Polled) {
    for _ in 0..100_000 {
        let polled = poll();
        match (polled.more, polled.next) {
            (true, _) => {}
            (false, Some(next)) => clock.advance(next),
            (false, None) => return,
        }
    }
    panic!("an empty store never comes to rest");
}

/// Two million issued roots, and then half a million chosen ones, acked; and a third burst that is
/// left to expire.
pub fn f08_a_burst_that_has_drained_gives_its_memory_back() {
    const ISSUED: usize = 2_000_000;
    const CHOSEN: u64 = 500_000;
    // The system's khugepaged makes a huge page again of one that was given back but for a few
    // small ones, and fills it up with zeroes. It does so whenever it comes by: the longer this
    // takes the more of them, and three are most of a quarter.
    rustix::thread::disable_transparent_huge_pages(true).unwrap();
    let clock = ManualClock::new();
    let tracker = AckTracker::builder()
        .timeout(Duration::from_secs(10))
        .interval(Duration::from_millis(10))
        .shards(2)
        .clock(clock.clone())
        .build_manual()
        .unwrap();
    // The ids are held throughout, so that they do not count.
    let mut roots: Vec<Root> = vec![Root::from_bits(1); ISSUED];
    let before = resident();
    let given_back = |peak: f64, what: &str| {
        let after = resident();
        println!("{what}: {before:.0} MiB before, {peak:.0} at the peak, {after:.0} after");
        assert!(peak - before > 12.0, "{what}: the burst took only {:.0} MiB", peak - before);
        assert!(
            after - before < (peak - before) / 4.0,
            "{what}: of {:.0} MiB {:.0} were kept",
            peak - before,
            after - before
        );
    };
    for root in &mut roots {
        *root = tracker.issue(1, 0).unwrap();
    }
    assert_eq!(tracker.len(), ISSUED);
    let peak = resident();
    // A3: a slot of 32 bytes, a birth stamp of 8 and a sixteenth of a block header, and some of a
    // last chunk.
    let each = (peak - before) * f64::from(1 << 20) / ISSUED as f64;
    println!("{each:.1} bytes an issued root");
    assert!((40.0..42.0).contains(&each), "{each:.1} bytes an issued root");
    for &root in &roots {
        tracker.ack(root, 1).unwrap();
    }
    rest(&clock, || tracker.poll(100_000));
    given_back(peak, "2 M issued, acked");

    for id in 0..CHOSEN {
        tracker.init(id, 1, 0).unwrap();
        if id % 1000 == 0 {
            tracker.poll(10_000);
        }
    }
    let peak = resident();
    for id in 0..CHOSEN {
        tracker.ack(id, 1).unwrap();
        if id % 1000 == 0 {
            tracker.poll(10_000);
        }
    }
    rest(&clock, || tracker.poll(100_000));
    given_back(peak, "500 K chosen, acked");

    for id in 0..CHOSEN {
        tracker.init(id, 1, 0).unwrap();
    }
    let peak = resident();
    rest(&clock, || tracker.poll(100_000));
    assert!(tracker.is_empty());
    given_back(peak, "500 K chosen, expired");
    assert_eq!(tracker.metrics().total.expired, CHOSEN);

    // And it still works.
    for &root in &roots {
        assert!(tracker.ack(root, 1).is_err());
    }
    for id in 0..100_000 {
        tracker.init(id, 1, 0).unwrap();
        tracker.ack(id, 1).unwrap();
    }
}
