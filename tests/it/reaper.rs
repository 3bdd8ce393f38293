//! One reaper for many stores.

use crate::support::clocks::Reapers;
use crate::support::{wait_for, GENEROUS, HOUR, MS, SECOND};
use expiry::{
    edge, AckTracker, BuildError, Clock, ExpiringMap, ExpiryQueue, MonotonicClock, Outcome,
    PendingTable, Reaper, SessionTracker, ShutdownMode, Timeouts, WhenFull,
};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, OnceLock};

/// How many threads of this process have this name, of 15 bytes at most.
#[cfg(target_os = "linux")]
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().filter(|comm| comm.trim_end() == name).count()
}

#[test]
#[cfg(target_os = "linux")]
fn a_thousand_stores_have_one_thread_which_ends_with_them() {
    let reaper = Reaper::named("a-thousand").unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let maps: Vec<ExpiringMap<u64, u64>> = (0..1000)
        .map(|_| {
            let counts = ended.clone();
            let builder = ExpiringMap::builder().interval(MS).reaper(&reaper);
            let builder = builder.removal_listener(move |_: &u64, _: &u64, _| {
                counts.fetch_add(1, SeqCst);
            });
            builder.build().unwrap()
        })
        .collect();
    drop(reaper);
    for (nth, map) in (0..).zip(&maps) {
        map.insert_for(nth, nth, MS * (1 + nth as u32 % 20)).unwrap();
        map.insert_for(nth + 1, nth, HOUR).unwrap();
    }
    wait_for("the short-lived half", || maps.iter().all(|map| map.len() == 1));
    // The reaper takes an entry out of its map before it calls the listener.
    wait_for("the listeners", || ended.load(SeqCst) == 1000);
    assert_eq!(threads("a-thousand"), 1);
    // With nothing due the thread has nothing to do: rounds of other reasons come to an end.
    let rounds = || maps.iter().map(|map| map.metrics().reaper_rounds).sum::<u64>();
    let mut before = rounds();
    wait_for("an idle thread", || {
        std::thread::sleep(50 * MS);
        let now = rounds();
        std::mem::replace(&mut before, now) == now
    });
    drop(maps);
    assert_eq!(ended.load(SeqCst), 2000, "each entry ends once");
    wait_for("the thread's end", || threads("a-thousand") == 0);
}

/// A clock that goes on where the machine's stands still: in a suspend.
struct Suspended(MonotonicClock, AtomicU64);

impl Clock for Suspended {
    fn now(&self) -> u64 {
        self.0.now() + self.1.load(SeqCst)
    }
}

#[test]
fn what_came_due_in_a_suspend_ends_soon_after_it() {
    for reaper in [None, Some(Reaper::new().unwrap())] {
        let clock = Arc::new(Suspended(MonotonicClock::new(), AtomicU64::new(0)));
        let (sender, ended) = mpsc::channel();
        let builder = ExpiringMap::builder().clock(clock.clone());
        let builder =
            builder.removal_listener(move |&key: &u64, (), _| sender.send(key).unwrap_or_default());
        let builder = match &reaper {
            Some(reaper) => builder.reaper(reaper),
            None => builder,
        };
        let map = builder.build().unwrap();
        map.insert_for(1, (), 20 * SECOND).unwrap();
        // The reaper has time to go to sleep until the entry's deadline.
        std::thread::sleep(100 * MS);
        clock.1.store(40_000_000_000, SeqCst);
        assert_eq!(ended.recv_timeout(15 * SECOND), Ok(1));
    }
}

/// It slept until the next tick after its last round, again and again.
#[test]
fn a_reaper_sleeps_until_a_clock_that_has_gone_back_has_caught_up() {
    let clock = Reapers::new();
    clock.ahead.store(HOUR.as_nanos() as u64, SeqCst);
    let queue = ExpiryQueue::<u64>::builder().interval(MS / 100).clock(clock.clone());
    let queue = queue.build().unwrap();
    for key in 1..1000 {
        queue.update(key, MS * key as u32).unwrap();
    }
    wait_for("a key to expire", || queue.len() < 999);
    clock.ahead.store(0, SeqCst);
    std::thread::sleep(10 * MS);
    let before = queue.metrics().reaper_rounds;
    std::thread::sleep(100 * MS);
    let rounds = queue.metrics().reaper_rounds - before;
    assert!(rounds < 10, "{rounds} rounds");
}

#[test]
fn a_slow_listener_delays_other_stores_by_sixteen_of_its_calls() {
    let reaper = Reaper::new().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let (told, due) = mpsc::channel();
    let seen = calls.clone();
    let quick = PendingTable::<u64>::builder().interval(MS).reaper(&reaper);
    let quick = quick.expiry_listener(move |_| told.send(seen.load(SeqCst)).unwrap());
    let quick = quick.build().unwrap();
    let slow = ExpiryQueue::<u64>::builder().interval(MS).reaper(&reaper);
    let slow = slow.expiry_listener(move |_| {
        if calls.fetch_add(1, SeqCst) == 0 {
            quick.insert(7, MS).unwrap();
        }
        std::thread::sleep(MS);
    });
    let slow = slow.build().unwrap();
    for key in 0..500 {
        slow.update(key, 50 * MS).unwrap();
    }
    // A block of 16 takes longer than the other store's millisecond. It is due in the next tick,
    // or the one after.
    let calls = due.recv_timeout(GENEROUS).unwrap();
    assert!(calls <= 32, "{calls} calls of the other listener before");
}

#[test]
fn stores_of_all_types_end_what_is_theirs_and_shut_down_in_any_order() {
    for backwards in [false, true] {
        let reaper = Reaper::new().unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        let count = || {
            let ended = ended.clone();
            move || {
                ended.fetch_add(1, SeqCst);
            }
        };
        let (tell, tell_too, tell_all) = (count(), count(), count());
        let acks = AckTracker::builder().timeout(20 * MS).reaper(&reaper);
        let acks = acks.on_outcome(move |_: Outcome| tell()).build().unwrap();
        let queue = ExpiryQueue::builder().reaper(&reaper);
        let queue = queue.expiry_listener(move |_: &u64| tell_too()).build().unwrap();
        let sessions = SessionTracker::builder().interval(MS).minimum_timeout(MS).reaper(&reaper);
        let sessions = sessions.expiry_listener(move |_| tell_all()).build().unwrap();
        let builder = ExpiringMap::<u64, u64>::builder().reaper(&reaper);
        let (map, mut removals) = builder.build_with_channel(10, WhenFull::Spill).unwrap();
        acks.issue(edge(), 1).unwrap();
        queue.update(1, 20 * MS).unwrap();
        sessions.create(20 * MS, 1).unwrap();
        map.insert_for(1, 1, 20 * MS).unwrap();
        assert_eq!(removals.by_ref().next().map(|removed| *removed.key()), Some(1));
        wait_for("all four", || ended.load(SeqCst) == 3);
        let mut stores: Vec<Box<dyn std::any::Any>> =
            vec![Box::new(reaper), Box::new(acks), Box::new(queue), Box::new(sessions)];
        stores.push(Box::new(map));
        if backwards {
            stores.reverse();
        }
        stores.into_iter().for_each(drop);
        assert_eq!(removals.count(), 0, "the channel has come to its end");
    }
}

/// The handler of each of two stores on one thread shuts the other one down.
#[test]
fn stores_of_one_thread_shut_each_other_down() {
    let reaper = Reaper::new().unwrap();
    let acks: Arc<OnceLock<AckTracker>> = Arc::default();
    let other = acks.clone();
    let queue = ExpiryQueue::builder().interval(MS).reaper(&reaper);
    let queue = queue.expiry_listener(move |_: &u64| {
        other.get().unwrap().shutdown(ShutdownMode::Cancel);
    });
    let queue = queue.build().unwrap();
    let same = queue.clone();
    let builder = AckTracker::builder().timeout(HOUR).reaper(&reaper);
    let tracker = builder.on_outcome(move |_: Outcome| drop(same.shutdown())).build().unwrap();
    tracker.issue(edge(), 1).unwrap();
    acks.set(tracker).unwrap();
    queue.update(2, HOUR).unwrap();
    queue.update(1, MS).unwrap();
    let down = || queue.is_empty() && acks.get().unwrap().is_empty();
    wait_for("both to be down", down);
    assert!(queue.update(3, HOUR).is_err() && acks.get().unwrap().issue(edge(), 1).is_err());
}

/// A thread that shuts a store down may hold what another store's listener waits for.
#[test]
fn a_shutdown_does_not_wait_for_another_stores_listener() {
    let reaper = Reaper::new().unwrap();
    let (held, holds) = mpsc::channel::<()>();
    let (inside, is_inside) = mpsc::channel();
    let held_by = std::sync::Mutex::new(holds);
    let waits = PendingTable::<u64>::builder().interval(MS).reaper(&reaper);
    let waits = waits.expiry_listener(move |_| {
        inside.send(()).unwrap();
        let _ = held_by.lock().unwrap().recv();
    });
    let waits = waits.build().unwrap();
    let other = ExpiringMap::<u64, u64>::builder().reaper(&reaper).build().unwrap();
    other.insert(1, 1).unwrap();
    waits.insert(1, MS).unwrap();
    is_inside.recv_timeout(GENEROUS).unwrap();
    other.shutdown();
    assert!(other.is_empty());
    drop(held);
}

#[test]
fn timeouts_and_asynchronous_shutdowns_are_a_shared_reapers_too() {
    let reaper = Reaper::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let timeouts = Timeouts::builder().reaper(&reaper).build().unwrap();
    let acks = AckTracker::builder().timeout(HOUR).reaper(&reaper).build().unwrap();
    acks.issue(edge(), 1).unwrap();
    drop(reaper);
    runtime.block_on(async {
        assert_eq!(timeouts.sleep(MS).await, Ok(()));
        let left = acks.shutdown_async(ShutdownMode::Return).await;
        assert_eq!(left.len(), 1);
        let drained = ShutdownMode::Drain(HOUR);
        assert!(acks.shutdown_async(drained).await.is_empty());
        timeouts.shutdown_async().await;
    });
}

#[test]
fn the_process_has_one_of_its_own() -> Result<(), BuildError> {
    let (told, ended) = mpsc::channel();
    let map = || {
        let told = told.clone();
        let builder = ExpiringMap::<u64, u64>::builder().interval(MS).reaper(&Reaper::global()?);
        let tell = move |_: &u64, _: &u64, _| told.send(std::thread::current().id()).unwrap();
        builder.removal_listener(tell).build()
    };
    let maps = [map()?, map()?];
    for map in &maps {
        map.insert_for(1, 1, MS).unwrap();
    }
    let [first, second] = [(); 2].map(|()| ended.recv_timeout(GENEROUS).unwrap());
    assert_eq!(first, second, "one thread has ended both entries");
    Ok(())
}

/// Panics where it is dropped: what a listener has captured, or a clock.
struct Fuse;

impl Drop for Fuse {
    fn drop(&mut self) {
        panic!("as planned");
    }
}

#[test]
fn a_listener_whose_drop_panics_leaves_the_thread_to_the_other_stores() {
    let reaper = Reaper::new().unwrap();
    let (told, due) = mpsc::channel();
    let other = PendingTable::<u64>::builder().reaper(&reaper);
    let other = other.expiry_listener(move |value| told.send(value).unwrap()).build().unwrap();
    // The thread has the store for the longest where a listener drops the last handle.
    let fuse = Fuse;
    let ends = Arc::new(std::sync::Mutex::new(None));
    let handle = ends.clone();
    let queue = ExpiryQueue::<u64>::builder().interval(MS).reaper(&reaper);
    let queue = queue.expiry_listener(move |_| {
        let _fuse = &fuse;
        drop(handle.lock().unwrap().take());
    });
    let queue = queue.build().unwrap();
    *ends.lock().unwrap() = Some(queue.clone());
    queue.update(1, 50 * MS).unwrap();
    drop(queue);
    wait_for("the listener", || ends.lock().unwrap().is_none());
    wait_for("the store's drop", || Arc::strong_count(&ends) == 1);
    other.insert(7, MS).unwrap();
    assert_eq!(due.recv_timeout(GENEROUS), Ok(7));
}
