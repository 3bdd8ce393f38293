//! A tracker beside other threads: its reaper is woken to migrate, a shutdown comes in the midst of
//! everything, and a poll finds another one at its shard. Races for the outcomes of roots are in
//! `stress ack` and `stress histories`.

use crate::support::{on_threads, wait_for, Told, GENEROUS, HOUR, MS, SECOND};
use expiry::{AckError, AckTracker, ManualClock, Outcome, RootId, ShutdownMode};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, OnceLock};

const THREADS: u64 = 4;

/// The reaper at once migrates an index that has outgrown its table, not when something next
/// expires.
fn wait_for_one_table(tracker: &AckTracker) {
    let settled = || tracker.metrics().shards.iter().all(|shard| shard.tables == 1);
    wait_for("the index to be carried over", settled);
}

#[test]
fn growth_wakes_the_reaper() {
    let tracker = AckTracker::builder().timeout(HOUR).build().unwrap();
    for round in 0..20 {
        for id in round * 10_000..(round + 1) * 10_000 {
            tracker.init(id, 1, 0).unwrap();
        }
        wait_for_one_table(&tracker);
    }
}

/// In the first interval of a store, until the end of which the reaper sleeps.
#[test]
fn growth_wakes_the_reaper_in_the_first_interval() {
    let hour = HOUR;
    let builder = AckTracker::builder().timeout(100 * hour).interval(hour);
    let tracker = builder.build().unwrap();
    // The reaper has looked around by then.
    std::thread::sleep(20 * MS);
    (0..10_000).for_each(|id| tracker.init(id, 1, 0).unwrap());
    wait_for_one_table(&tracker);
}

/// Begins roots of all kinds, by numbers that no other thread has, until the tracker refuses them.
/// The number is the root's owner.
pub fn begin_until_closed(
    tracker: &AckTracker,
    thread: u64,
    begun: impl Fn(),
) -> Vec<(u64, RootId)> {
    let mut mine: Vec<(u64, RootId)> = Vec::new();
    for n in 0..10_000_000u64 {
        let id = n * THREADS + thread;
        let root = match n % 3 {
            0 => tracker.issue(1, id).map(RootId::from),
            1 => tracker.init(id, 1, id).map(|()| RootId::from(id)),
            // Early arrivals of both kinds first.
            _ => {
                let early = match n % 2 {
                    0 => tracker.ack(id, 1).err(),
                    _ => tracker.fail(id).err(),
                };
                assert!(matches!(early, None | Some(AckError::Closed | AckError::EarlyFull)));
                tracker.init(id, 3, id).map(|()| RootId::from(id))
            }
        };
        match root {
            Ok(root) => mine.push((id, root)),
            Err(error) => {
                assert_eq!(error, AckError::Closed);
                return mine;
            }
        }
        if n % 4 == 0 {
            let _ = tracker.ack(mine[mine.len() / 2].1, 1);
        }
        begun();
    }
    panic!("the shutdown refuses no root");
}

/// Shutdown in the midst of everything, from two threads at once: what was begun has its outcome,
/// the rest is refused.
#[test]
fn a_shutdown_in_the_midst_of_everything() {
    for (fate, round) in [ShutdownMode::Cancel, ShutdownMode::Return, ShutdownMode::Drain(5 * MS)]
        .into_iter()
        .cycle()
        .zip(0..9)
    {
        let told = Told::default();
        let tracker = AckTracker::builder()
            .timeout(if round < 3 { 2 * MS } else { 60 * SECOND })
            .interval(MS)
            .shards(2)
            .on_outcome(told.handler())
            .build()
            .unwrap();
        let count = AtomicUsize::new(0);
        let counts = || _ = count.fetch_add(1, Ordering::Relaxed);
        let (begun, returned) = std::thread::scope(|scope| {
            let threads =
                scope.spawn(|| on_threads(THREADS, |me| begin_until_closed(&tracker, me, counts)));
            wait_for("some thousand roots", || count.load(Ordering::Relaxed) > 3000);
            let other = scope.spawn(|| tracker.shutdown(fate));
            let mut returned = tracker.shutdown(fate);
            returned.extend(other.join().unwrap());
            (threads.join().unwrap(), returned)
        });
        drop(tracker);
        let begun: HashSet<_> = begun.into_iter().flatten().map(|(_, root)| root).collect();
        let mut seen = HashSet::new();
        let told = told.take();
        assert!(fate == ShutdownMode::Return || returned.is_empty());
        for outcome in told.iter().chain(&returned) {
            assert!(seen.insert(outcome.root), "{outcome:?} is the second ({fate:?})");
        }
        let lost: Vec<_> = begun.difference(&seen).take(3).collect();
        assert!(lost.is_empty(), "lost: {lost:?} ({fate:?})");
        let ghosts: Vec<_> = seen.difference(&begun).take(3).collect();
        assert!(ghosts.is_empty(), "refused, and told of: {ghosts:?} ({fate:?})");
    }
}

/// A tracker of one shard with this handler, and in it a root that is overdue.
fn one_overdue(
    tracker: &OnceLock<AckTracker>,
    handler: impl Fn(Outcome) + Send + Sync + 'static,
) -> &AckTracker {
    let clock = ManualClock::new();
    let builder = AckTracker::builder().shards(1).clock(clock.clone());
    let tracker = tracker.get_or_init(|| builder.on_outcome(handler).build_manual().unwrap());
    tracker.issue(1, 0).unwrap();
    clock.advance(HOUR);
    tracker
}

/// A poll that has left a shard out, because another one drives it, says that there is more: no
/// other thread reports what comes there.
#[test]
fn who_finds_another_at_a_shard_is_to_come_back() {
    let tracker: Arc<OnceLock<AckTracker>> = Arc::default();
    let told = Told::default();
    let handler = {
        let (tracker, tell) = (Arc::downgrade(&tracker), told.handler());
        move |_: Outcome| {
            let tracker = tracker.upgrade().expect("it is polled");
            let other = std::thread::scope(|scope| {
                let poll = || tracker.get().expect("it was built").poll(1000);
                scope.spawn(poll).join().unwrap()
            });
            tell(other.more);
        }
    };
    let tracker = one_overdue(&tracker, handler);
    assert!(!tracker.poll(1000).more, "alone");
    assert_eq!(told.take(), [true]);
}

/// A caller at a shard does not wait for the thread that drives it, though its handler does not
/// return.
#[test]
fn callers_do_not_wait_for_the_driver_of_their_shard() {
    let tracker: Arc<OnceLock<AckTracker>> = Arc::default();
    let went_on = Arc::<OnceLock<_>>::default();
    let handler = {
        let (tracker, went_on) = (Arc::downgrade(&tracker), went_on.clone());
        move |outcome: Outcome| {
            if outcome.is_acked() {
                return;
            }
            let (all_done, is_done) = mpsc::channel();
            let tracker = tracker.upgrade().expect("it is polled");
            // A caller that does wait ends once this handler has returned.
            std::thread::spawn(move || {
                let tracker = tracker.get().expect("it was built");
                // More roots than a slot block has.
                for owner in 0..100 {
                    let root = tracker.issue(1, owner).unwrap();
                    tracker.reset_timeout(root).unwrap();
                    tracker.ack(root, 1).unwrap();
                }
                all_done.send(()).unwrap_or_default();
            });
            went_on.set(is_done.recv_timeout(GENEROUS)).unwrap();
        }
    };
    let tracker = one_overdue(&tracker, handler);
    tracker.poll(1000);
    assert_eq!(went_on.get(), Some(&Ok(())));
}
