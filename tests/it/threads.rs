//! Many threads on one tracker, with its reaper running: however they meet, each root has exactly
//! one outcome.
//!
//! A ledger has one cell per root. Owners are cell numbers, so that the ledger does not depend on
//! the ids.

use crate::support::{after, wait_for, MS};
use expiry::{
    edge, Ack, AckError, AckTracker, Done, Lifetime, ManualClock, Outcome, Reason, Root, RootId,
    ShutdownMode,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::time::Duration;

const THREADS: usize = 4;

/// How often each owner got an outcome, and which ones.
struct Ledger(Vec<[AtomicU8; 4]>);

impl Ledger {
    fn new(owners: usize) -> Arc<Ledger> {
        Arc::new(Ledger((0..owners).map(|_| Default::default()).collect()))
    }

    fn handler(self: &Arc<Self>) -> impl Fn(Outcome) + Send + Sync + 'static {
        let ledger = self.clone();
        move |outcome: Outcome| {
            let kind = match outcome.reason {
                Reason::Acked => 0,
                Reason::Failed { .. } => 1,
                Reason::TimedOut { due, seen } => {
                    assert!(seen >= due);
                    2
                }
                _ => 3,
            };
            ledger.0[outcome.owner as usize][kind].fetch_add(1, Ordering::SeqCst);
        }
    }

    fn of(&self, owner: usize) -> [u8; 4] {
        [0, 1, 2, 3].map(|kind| self.0[owner][kind].load(Ordering::SeqCst))
    }

    fn told(&self) -> usize {
        (0..self.0.len())
            .map(|owner| self.of(owner).iter().map(|&n| usize::from(n)).sum::<usize>())
            .sum()
    }
}

/// Issued and chosen roots, acked, failed, renewed and left alone by other threads than those that
/// began them.
#[test]
fn each_root_has_one_outcome_across_threads() {
    const EACH: usize = 3000;
    const ALL: usize = THREADS * EACH;
    let ledger = Ledger::new(ALL);
    let tracker = AckTracker::builder()
        .timeout(Duration::from_secs(3600))
        .interval(MS)
        .shards(2)
        .on_outcome(ledger.handler())
        .build()
        .unwrap();
    // What thread n begins, thread n + 1 ends.
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| std::sync::mpsc::channel::<(RootId, [u64; 3], usize)>()).unzip();
    let mut senders = senders.into_iter();
    let first = senders.next().unwrap();
    let senders = senders.chain([first]);
    std::thread::scope(|scope| {
        for (thread, (sender, receiver)) in senders.zip(receivers).enumerate() {
            let tracker = &tracker;
            scope.spawn(move || {
                for n in 0..EACH {
                    let owner = thread * EACH + n;
                    let edges = [edge(), edge(), edge()];
                    let xor = edges[0] ^ edges[1] ^ edges[2];
                    // A sixth is left to time out, and must not do so for an hour otherwise.
                    let timeout = if n % 6 == 5 { after(30 * MS) } else { Lifetime::Default };
                    let root = if n % 2 == 0 {
                        let root = tracker.issue_with(xor, owner as u64, timeout).unwrap();
                        sender.send((root.into(), edges, owner)).unwrap();
                        continue;
                    } else {
                        RootId::Chosen(owner as u64)
                    };
                    // The acks of chosen roots may overtake their inits.
                    sender.send((root, edges, owner)).unwrap();
                    tracker.init_with(owner as u64, xor, owner as u64, timeout).unwrap();
                }
                drop(sender);
                for (root, edges, owner) in receiver {
                    match owner % EACH % 6 {
                        0 | 1 | 3 => {
                            tracker.ack(root, edges[0]).unwrap();
                            let _ = tracker.reset_timeout(root).unwrap();
                            tracker.ack(root, edges[1]).unwrap();
                            tracker.ack(root, edges[2]).unwrap();
                        }
                        2 | 4 => {
                            tracker.ack(root, edges[0]).unwrap();
                            tracker.fail_by(root, 7).unwrap();
                        }
                        // Untouched: an ack that came too late would be held as an early one.
                        _ => {}
                    }
                }
            });
        }
    });
    wait_for("the rest to time out", || ledger.told() >= ALL);
    for owner in 0..ALL {
        let expected = match owner % EACH % 6 {
            0 | 1 | 3 => [1, 0, 0, 0],
            2 | 4 => [0, 1, 0, 0],
            _ => [0, 0, 1, 0],
        };
        assert_eq!(ledger.of(owner), expected, "owner {owner}");
    }
    assert!(tracker.is_empty());
    let total = tracker.metrics().total;
    assert_eq!(total.inserted, ALL as u64);
    assert_eq!(total.acked + total.failed + total.expired, ALL as u64);
    assert_eq!(total.early_held, total.early_merged);
    tracker.shutdown(ShutdownMode::Cancel);
    assert_eq!(ledger.told(), ALL);
}

/// Acks, fails and the reaper go for the same roots at the same time: one of them wins, and only it
/// says so.
#[test]
fn racing_ends_have_one_winner() {
    const ALL: usize = 6000;
    let ledger = Ledger::new(ALL);
    let tracker = AckTracker::builder()
        .timeout(20 * MS)
        .interval(MS)
        .on_outcome(ledger.handler())
        .build()
        .unwrap();
    let roots: Vec<RootId> = (0..ALL)
        .map(|owner| match owner % 2 {
            0 => tracker.issue(1, owner as u64).unwrap().into(),
            _ => {
                tracker.init(owner as u64, 1, owner as u64).unwrap();
                RootId::Chosen(owner as u64)
            }
        })
        .collect();
    let claimed: Vec<AtomicU8> = (0..ALL).map(|_| AtomicU8::new(0)).collect();
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (tracker, roots, claimed, start) = (&tracker, &roots, &claimed, &start);
            scope.spawn(move || {
                start.wait();
                for (owner, &root) in roots.iter().enumerate() {
                    let won = match thread {
                        0 => tracker.ack(root, 1) == Ok(Ack::Completed),
                        1 => tracker.fail(root) == Ok(Done::Now),
                        _ => {
                            // Renewing races with all the others, and ends nothing.
                            let _ = tracker.reset_timeout_to(root, after(15 * MS));
                            false
                        }
                    };
                    claimed[owner].fetch_add(u8::from(won), Ordering::SeqCst);
                }
            });
        }
    });
    wait_for("every root to end", || ledger.told() >= ALL && tracker.is_empty());
    for (owner, claimed) in claimed.iter().enumerate() {
        let [acked, failed, expired, cancelled] = ledger.of(owner);
        assert_eq!(acked + failed + expired + cancelled, 1, "owner {owner}");
        assert_eq!(claimed.load(Ordering::SeqCst), acked + failed, "owner {owner}");
    }
}

/// Two or more threads init the same chosen id: exactly one of their calls says that the id is its
/// own.
#[test]
fn concurrent_inits_of_one_id_have_one_winner() {
    const IDS: u64 = 3000;
    let ledger = Ledger::new(IDS as usize * THREADS);
    let tracker = AckTracker::builder().shards(1).on_outcome(ledger.handler()).build().unwrap();
    let start = Barrier::new(THREADS);
    let winners: Vec<AtomicUsize> = (0..IDS).map(|_| AtomicUsize::new(0)).collect();
    let owner_of: Vec<AtomicU64> = (0..IDS).map(|_| AtomicU64::new(u64::MAX)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let (tracker, start, winners, owner_of) = (&tracker, &start, &winners, &owner_of);
            scope.spawn(move || {
                start.wait();
                for id in 0..IDS {
                    let owner = thread * IDS + id;
                    // Some find an early ack, by whichever thread was first.
                    if (id + thread) % 3 == 0 {
                        tracker.ack(id, 1 << thread).unwrap();
                        tracker.ack(id, 1 << thread).unwrap();
                    }
                    match tracker.init(id, 1 << 20, owner) {
                        Ok(()) => {
                            winners[id as usize].fetch_add(1, Ordering::SeqCst);
                            owner_of[id as usize].store(owner, Ordering::SeqCst);
                        }
                        Err(error) => assert_eq!(error, AckError::Duplicate),
                    }
                }
            });
        }
    });
    for (id, winners) in winners.iter().enumerate() {
        assert_eq!(winners.load(Ordering::SeqCst), 1, "id {id}");
    }
    assert_eq!(tracker.len() as u64, IDS);
    for id in 0..IDS {
        assert_eq!(tracker.ack(id, 1 << 20), Ok(Ack::Completed));
        let owner = owner_of[id as usize].load(Ordering::SeqCst);
        assert_eq!(ledger.of(owner as usize), [1, 0, 0, 0]);
    }
    assert_eq!(ledger.told() as u64, IDS);
}

/// The table grows from nothing under all threads at once, chosen ids in the same blocks; no root
/// is lost on the way.
#[test]
fn growth_under_all_threads() {
    const EACH: u64 = 15_000;
    let ledger = Ledger::new(THREADS * EACH as usize);
    let tracker = AckTracker::builder()
        .shards(1)
        // However slow the machine is, no root times out.
        .timeout(std::time::Duration::from_secs(3600))
        .on_outcome(ledger.handler())
        .build()
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS as u64 {
            let tracker = &tracker;
            scope.spawn(move || {
                let id = |n: u64| n * THREADS as u64 + thread;
                for n in 0..EACH {
                    tracker.init(id(n), 3, id(n)).unwrap();
                    // One that is a while old.
                    assert_eq!(tracker.ack(id(n / 2), 1 << 50), Ok(Ack::Pending));
                    assert_eq!(tracker.ack(id(n / 2), 1 << 50), Ok(Ack::Pending));
                    assert_eq!(tracker.init(id(n / 3), 3, 0), Err(AckError::Duplicate));
                }
                for n in 0..EACH {
                    assert_eq!(tracker.ack(id(n), 3), Ok(Ack::Completed), "{}", id(n));
                }
            });
        }
    });
    assert!(tracker.is_empty());
    for owner in 0..ledger.0.len() {
        assert_eq!(ledger.of(owner), [1, 0, 0, 0], "owner {owner}");
    }
}

/// The reaper at once migrates an index that has outgrown its table, not when something next
/// expires.
fn wait_for_one_table(tracker: &AckTracker) {
    let settled = || tracker.metrics().shards.iter().all(|shard| shard.tables == 1);
    wait_for("the index to be carried over", settled);
}

#[test]
fn growth_wakes_the_reaper() {
    let tracker =
        AckTracker::builder().timeout(std::time::Duration::from_secs(3600)).build().unwrap();
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
    let hour = std::time::Duration::from_secs(3600);
    let builder = AckTracker::builder().timeout(100 * hour).interval(hour);
    let tracker = builder.build().unwrap();
    // The reaper has looked around by then.
    std::thread::sleep(std::time::Duration::from_millis(20));
    (0..10_000).for_each(|id| tracker.init(id, 1, 0).unwrap());
    wait_for_one_table(&tracker);
}

/// A bounded capacity is exact under all threads: never more than it, and not one less either.
#[test]
fn a_bounded_capacity_under_all_threads() {
    const CAPACITY: usize = 500;
    let tracker = AckTracker::builder().capacity(CAPACITY).shards(2).build_manual().unwrap();
    for _ in 0..5 {
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mut mine = Vec::new();
                    let error = loop {
                        match tracker.issue(1, 0) {
                            Ok(root) => mine.push(root),
                            Err(error) => break error,
                        }
                    };
                    assert_eq!(error, AckError::Full);
                    taken.lock().unwrap().extend(mine);
                });
            }
        });
        let taken = taken.into_inner().unwrap();
        assert_eq!((taken.len(), tracker.len()), (CAPACITY, CAPACITY));
        for root in taken {
            tracker.ack(root, 1).unwrap();
        }
    }
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
        let told = Arc::new(Mutex::new(Vec::<Outcome>::new()));
        let record = told.clone();
        let tracker = AckTracker::builder()
            .timeout(if round < 3 { 2 * MS } else { Duration::from_secs(60) })
            .interval(MS)
            .shards(2)
            .on_outcome(move |outcome: Outcome| record.lock().unwrap().push(outcome))
            .build()
            .unwrap();
        let begun = Mutex::new(HashSet::new());
        let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let mut returned = Vec::new();
        std::thread::scope(|scope| {
            for thread in 0..THREADS as u64 {
                let (tracker, begun, count, stop) = (&tracker, &begun, &count, &stop);
                scope.spawn(move || {
                    let mut mine: Vec<RootId> = Vec::new();
                    for n in 0..1_000_000u64 {
                        let id = n * THREADS as u64 + thread;
                        let root = match n % 3 {
                            0 => tracker.issue(1, id).map(RootId::from),
                            1 => tracker.init(id, 1, id).map(|()| RootId::from(id)),
                            // Early arrivals of both kinds first.
                            _ => {
                                let early = match n % 2 {
                                    0 => tracker.ack(id, 1).err(),
                                    _ => tracker.fail(id).err(),
                                };
                                assert!(matches!(
                                    early,
                                    None | Some(AckError::Closed | AckError::EarlyFull)
                                ));
                                tracker.init(id, 3, id).map(|()| RootId::from(id))
                            }
                        };
                        match root {
                            Ok(root) => mine.push(root),
                            Err(error) => {
                                assert_eq!(error, AckError::Closed);
                                break;
                            }
                        }
                        if n % 4 == 0 {
                            let _ = tracker.ack(mine[mine.len() / 2], 1);
                        }
                        count.fetch_add(1, Ordering::Relaxed);
                        if stop.load(Ordering::Relaxed) && n > 500_000 {
                            panic!("the shutdown refuses nobody");
                        }
                    }
                    begun.lock().unwrap().extend(mine);
                });
            }
            wait_for("some thousand roots", || count.load(Ordering::Relaxed) > 3000);
            let other = scope.spawn(|| tracker.shutdown(fate));
            returned = tracker.shutdown(fate);
            returned.extend(other.join().unwrap());
            stop.store(true, Ordering::Relaxed);
        });
        drop(tracker);
        let begun = begun.into_inner().unwrap();
        let mut seen = HashSet::new();
        let told = std::mem::take(&mut *told.lock().unwrap());
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

/// A late ack from another thread never touches the next attempt, however fast slots are reused.
#[test]
fn late_acks_from_other_threads_touch_nothing() {
    const ATTEMPTS: usize = 20_000;
    let ledger = Ledger::new(ATTEMPTS);
    let tracker = AckTracker::builder().shards(1).on_outcome(ledger.handler()).build().unwrap();
    let latest = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::SeqCst) {
                    let bits = latest.load(Ordering::SeqCst);
                    // Removed before it was published: always too late, though the edge is always
                    // the same.
                    let root = Root::from_bits(bits);
                    assert_eq!(tracker.ack(root, 5), Err(AckError::NotLive));
                    assert_eq!(tracker.fail(root), Err(AckError::NotLive));
                }
            });
        }
        for owner in 0..ATTEMPTS {
            let root = tracker.issue(5, owner as u64).unwrap();
            assert_eq!(tracker.ack(root, 5), Ok(Ack::Completed));
            latest.store(root.to_bits(), Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
    });
    for owner in 0..ATTEMPTS {
        assert_eq!(ledger.of(owner), [1, 0, 0, 0]);
    }
    wait_for("nothing to be left", || tracker.is_empty());
}

/// A poll that has left a shard out, because another one drives it, says that there is more: no
/// other thread reports what comes there.
#[test]
fn who_finds_another_at_a_shard_is_to_come_back() {
    let tracker: Arc<OnceLock<AckTracker>> = Arc::default();
    let (clock, told) = (ManualClock::new(), Arc::<Mutex<Vec<_>>>::default());
    let handler = {
        let (tracker, told) = (Arc::downgrade(&tracker), told.clone());
        move |_: Outcome| {
            let tracker = tracker.upgrade().expect("it is polled");
            let other = std::thread::scope(|scope| {
                let poll = || tracker.get().expect("it was built").poll(1000);
                scope.spawn(poll).join().unwrap()
            });
            told.lock().unwrap().push(other.more);
        }
    };
    let built = AckTracker::builder()
        .shards(1)
        .clock(clock.clone())
        .on_outcome(handler)
        .build_manual()
        .unwrap();
    let tracker = tracker.get_or_init(|| built);
    tracker.issue(1, 0).unwrap();
    clock.advance(Duration::from_secs(3600));
    assert!(!tracker.poll(1000).more, "alone");
    assert_eq!(*told.lock().unwrap(), [true]);
}
