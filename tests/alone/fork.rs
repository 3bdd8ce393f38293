//! A store that was built before a `fork`, in the child: its reaper does not exist there. Alone in
//! its binary, and one test: what another thread holds at the fork, the child never gets.

use crate::support;

use crate::support::clocks::Moved;
use crate::support::{wait_for, GENEROUS, MS, SECOND};
use expiry::{
    AckTracker, BuildError, ExpiringMap, ExpiryQueue, ManualClock, Reaper, RemovalCause,
    SessionInfo, ShutdownMode,
};
use expiry::{PendingTable, SessionTracker, Timeouts, WhenFull};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};

/// Runs `work` in a child, which has to end well and in time.
fn in_child(what: &str, work: impl FnOnce()) {
    until_reapers_sleep();
    // SAFETY: the child calls `work` and ends. The other threads of this process hold no lock that
    // it wants, but for the allocator's, which the C library sees to.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{what}: no fork");
    if child == 0 {
        // The thread that would get a panic's message may be gone.
        std::panic::set_hook(Box::new(|_| ()));
        let done = catch_unwind(AssertUnwindSafe(work)).is_ok();
        // SAFETY: it ends the process, whatever there is.
        unsafe { libc::_exit(i32::from(!done)) }
    }
    let deadline = Instant::now() + GENEROUS;
    let mut status = 0;
    loop {
        // SAFETY: of the child above, into a place of this function.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if Instant::now() < deadline => std::thread::sleep(MS),
            0 => {
                // SAFETY: the child has not been waited for, so this is still its number.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("{what}: the child hangs");
            }
            _ => break,
        }
    }
    assert!(libc::WIFEXITED(status), "{what}: the child was killed");
    assert_eq!(libc::WEXITSTATUS(status), 0, "{what}: the child panicked");
}

/// Waits until no reaper is in the middle of a round: a shard that a reaper is at during a fork is
/// lost to the child.
fn until_reapers_sleep() {
    let deadline = Instant::now() + GENEROUS;
    let is_awake = |stat: &str| stat.contains("(expiry-reaper)") && !stat.contains(") S ");
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
        let stats = tasks.flatten().map(|task| task.path().join("stat"));
        // A thread that has ended meanwhile is no reaper.
        let mut stats = stats.map(|stat| std::fs::read_to_string(stat).unwrap_or_default());
        if !stats.any(|stat| is_awake(&stat)) {
            return;
        }
        assert!(Instant::now() < deadline, "a reaper never sleeps");
        std::thread::yield_now();
    }
}

pub fn a_store_built_before_a_fork_can_be_used_and_dropped_in_the_child() {
    let clock = ManualClock::new();
    let told = Arc::new(AtomicUsize::new(0));
    let tells = told.clone();
    let map = ExpiringMap::builder()
        .time_to_live(SECOND)
        .interval(MS)
        .clock(Moved(clock.clone()))
        .removal_listener(move |_: &u64, _: &String, cause| {
            assert_ne!(cause, RemovalCause::Replaced);
            tells.fetch_add(1, Ordering::SeqCst);
        })
        .build()
        .unwrap();
    map.insert(1, "parent".into()).unwrap();
    in_child("a map", || {
        assert_eq!(map.get_cloned(&1).as_deref(), Some("parent"));
        map.insert(2, "child".into()).unwrap();
        clock.advance(2 * SECOND);
        assert_eq!(map.get_cloned(&2), None);
        while !map.is_empty() {
            map.poll(1000);
        }
        assert_eq!(told.load(Ordering::SeqCst), 2);
        map.insert(3, "closed".into()).unwrap();
        map.shutdown();
        assert_eq!(told.load(Ordering::SeqCst), 3);
        // SAFETY: the child ends without dropping the original.
        drop(unsafe { std::ptr::read(&map) });
    });
    assert_eq!(map.get_cloned(&1).as_deref(), Some("parent"), "two worlds");

    let (map, removals) =
        ExpiringMap::<u64, String>::builder().build_with_channel(1, WhenFull::Wait).unwrap();
    map.insert(1, "parent".into()).unwrap();
    in_child("a map with a channel", || {
        for key in 2..=10 {
            map.insert(key, "child".into()).unwrap();
            let removed = map.remove(&key).unwrap();
            assert_eq!(removed.try_into_value().ok().as_deref(), Some("child"));
        }
        assert_eq!(
            (removals.len(), map.metrics().undelivered),
            (0, 9),
            "the channel is the parent's"
        );
        map.shutdown();
        // SAFETY: as above.
        drop(unsafe { (std::ptr::read(&map), std::ptr::read(&removals)) });
    });
    drop(map);
    assert_eq!(removals.map(|removed| *removed.key()).collect::<Vec<_>>(), [1]);

    let queue = ExpiryQueue::builder().expiry_listener(|_: &u64| ()).build();
    let queue = queue.unwrap();
    queue.update(1, SECOND).unwrap();
    in_child("a queue", || {
        assert_eq!(queue.shutdown().len(), 1);
        assert!(support::Task::new().block_on(queue.shutdown_async()).is_empty());
    });
    let table = PendingTable::builder().expiry_listener(|_: String| ()).build().unwrap();
    let ticket = table.insert("parent".to_string(), SECOND).unwrap();
    in_child("a table", || {
        let other = table.insert("child".to_string(), SECOND).unwrap();
        assert_eq!(table.take(ticket).as_deref(), Some("parent"));
        assert_eq!((table.shutdown(), table.take(other)), (vec!["child".to_string()], None));
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(&table) });
    });
    assert_eq!(table.take(ticket).as_deref(), Some("parent"), "two worlds");
    let sessions = SessionTracker::builder().expiry_listener(|_: SessionInfo| ()).build();
    let sessions = sessions.unwrap();
    sessions.create(SECOND, 1).unwrap();
    in_child("sessions", || {
        let left = support::Task::new().block_on(sessions.shutdown_async());
        assert_eq!(left.len(), 1);
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(&sessions) });
    });
    let (tracker, _outcomes) =
        AckTracker::builder().build_with_channel(10, WhenFull::Wait).unwrap();
    for (nth, fate) in [ShutdownMode::Cancel, ShutdownMode::Return, ShutdownMode::Drain(10 * MS)]
        .into_iter()
        .enumerate()
    {
        tracker.issue(1, nth as u64).unwrap();
        in_child("a tracker", || {
            let left = tracker.shutdown(fate).len();
            // The channel is the parent's.
            let told = usize::try_from(tracker.metrics().undelivered).unwrap();
            assert_eq!(left + told, nth + 1, "{fate:?}");
        });
        if fate == ShutdownMode::Drain(10 * MS) {
            // As without a reaper, a caller has to poll it while it drains.
            continue;
        }
        in_child("a tracker, async", || {
            let left = support::Task::new().block_on(tracker.shutdown_async(fate)).len();
            // The channel is the parent's.
            let told = usize::try_from(tracker.metrics().undelivered).unwrap();
            assert_eq!(left + told, nth + 1, "{fate:?}");
        });
    }
    let timeouts = Timeouts::new().unwrap();
    let sleep = std::pin::pin!(timeouts.sleep(SECOND));
    in_child("timeouts", || {
        let task = support::Task::new();
        assert!(task.poll(&mut { sleep }).is_pending());
        timeouts.shutdown();
        assert_eq!(task.woken(), 1);
    });

    // The reaper is in a handler: in the child, no thread ever leaves the shard that it is at.
    let (leave, left) = mpsc::channel::<()>();
    let left = std::sync::Mutex::new(left);
    let is_in = Arc::new(AtomicUsize::new(0));
    let enters = is_in.clone();
    let map = ExpiringMap::builder()
        .time_to_live(MS)
        .shards(2)
        .removal_listener(move |key: &u64, _: &u64, cause| {
            if (*key, cause) == (1, RemovalCause::Expired)
                && enters.fetch_add(1, Ordering::SeqCst) == 0
            {
                let _ = left.lock().unwrap().recv();
            }
        })
        .build()
        .unwrap();
    map.insert(1, 1).unwrap();
    wait_for("a handler", || is_in.load(Ordering::SeqCst) == 1);
    in_child("a map whose reaper is in a handler", || {
        for key in 2..5000 {
            map.insert(key, key).unwrap();
        }
        map.poll(1000);
        map.shutdown();
        assert!(map.insert(1, 1).is_err());
        // SAFETY: as above.
        drop(unsafe { std::ptr::read(&map) });
    });
    leave.send(()).unwrap();
    map.shutdown();
    assert!(map.is_empty());
}

/// The child has none of the stores' threads, and says so where a new store asks for one of them.
pub fn a_shared_reaper_is_the_parents() {
    let (reaper, global) = (Reaper::new().unwrap(), Reaper::global().unwrap());
    let builder = ExpiringMap::<u64, u64>::builder().interval(MS);
    let build = |reaper: &Reaper| builder.clone().reaper(reaper).build();
    let map = build(&reaper).unwrap();
    in_child("stores of a shared reaper", || {
        assert!(matches!(build(&reaper), Err(BuildError::NoThread(_))));
        assert!(matches!(build(&global), Err(BuildError::NoThread(_))));
        map.insert_for(1, 1, MS).unwrap();
        wait_for("a poll to end it", || {
            map.poll(1000);
            map.is_empty()
        });
        map.insert(2, 2).unwrap();
        map.shutdown();
        assert!(map.is_empty());
        let own = Reaper::global().unwrap();
        let own = build(&own).unwrap();
        own.insert_for(1, 1, MS).unwrap();
        wait_for("the child's own reaper", || own.is_empty());
        // SAFETY: the child ends without dropping the originals.
        drop(unsafe { (std::ptr::read(&map), std::ptr::read(&reaper)) });
    });
    map.insert_for(1, 1, MS).unwrap();
    wait_for("the parent's", || map.is_empty());
}

/// Two processes that feed one tree draw different edges.
pub fn a_child_draws_other_edges_than_its_parent() {
    let _ = expiry::edge(); // this thread has its generator
    let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    in_child("edges", || {
        let edges = [(); 4].map(|()| expiry::edge().to_le_bytes()).concat();
        there.send(&edges).unwrap();
    });
    let mut theirs = [0; 32];
    assert_eq!(here.recv(&mut theirs).unwrap(), 32);
    let ours = [(); 4].map(|()| expiry::edge().to_le_bytes());
    for (theirs, ours) in theirs.chunks(8).zip(ours) {
        assert_ne!(theirs, ours);
    }
}

/// Other threads are in the middle of a send or a receive at the fork. What they hold of the
/// channel, the child never gets, so nothing in the child touches the channel.
pub fn a_channel_is_the_parents() {
    let builder = AckTracker::builder().timeout(100 * SECOND);
    let (tracker, outcomes) = builder.build_manual_with_channel(4, WhenFull::Spill).unwrap();
    struct Stops<'a>(&'a AtomicUsize);
    impl Drop for Stops<'_> {
        fn drop(&mut self) {
            self.0.store(1, Ordering::Relaxed);
        }
    }
    let stop = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for _ in 0..2 {
            scope.spawn(|| {
                while stop.load(Ordering::Relaxed) == 0 {
                    let root = tracker.issue(1, 1).unwrap();
                    tracker.ack(root, 1).unwrap();
                    let _ = outcomes.clone().next_within(Duration::from_micros(50));
                }
            });
        }
        for _ in 0..200 {
            let root = tracker.issue(1, 2).unwrap();
            in_child("an ack", || {
                let before = tracker.metrics().undelivered;
                assert!(tracker.ack(root, 1).is_ok());
                assert_eq!(tracker.metrics().undelivered, before + 1, "the metrics say so");
                assert!(outcomes.try_next().is_none() && outcomes.is_empty());
                drop(outcomes.clone());
            });
        }
    });
}
