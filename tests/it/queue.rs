//! Polling by many, and stalls of the process: one test per promise, in simulated time. Wait times
//! are asserted after each step of the histories of `oracle.rs`.

use crate::drops::census::{Census, Counted};
use crate::rig;
use crate::support::{each_once, wait_for, MS, SECOND};
use expiry::{Clock, Expired, ExpiringMap, ExpiryQueue, ExpiryQueueBuilder, RemovalCause};
use expiry::{ManualClock, SessionTracker, Updated, WhenFull};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

fn builder(clock: &ManualClock) -> ExpiryQueueBuilder<u64> {
    ExpiryQueue::builder().interval(SECOND).clock(clock.clone())
}

/// Keys and expiry times in seconds, as polled.
fn seconds(expired: &[Expired<u64>]) -> Vec<(u64, u64)> {
    expired.iter().map(|key| (key.expiry().as_secs(), **key)).collect()
}

/// The clock has gone back, and no thread has polled: what begins then goes by the clock as it is,
/// not by what was computed before.
#[test]
fn an_expiry_goes_by_a_clock_that_has_gone_back() {
    let (queue, clock) = rig::queue(|queue| queue);
    for (now, key) in [(1000, 1_u64), (5, 2), (1000, 3), (999, 4)] {
        clock.set(now * 1_000_000_000);
        let updated = queue.update(key, SECOND * 10).unwrap();
        let expiry::Updated::Inserted { expiry, .. } = updated else { panic!("{updated:?}") };
        assert_eq!(expiry.as_secs(), now + 10);
    }
}

/// What a caller is to wait for is the clock, but not for what is due by the last round.
#[test]
fn a_wait_lasts_until_a_clock_that_has_gone_back_has_caught_up() {
    let (queue, clock) = rig::queue(|queue| queue.shards(1));
    for key in 0..1000 {
        queue.update(key, SECOND * 10).unwrap();
    }
    queue.update(1000, SECOND * 30).unwrap();
    clock.advance(SECOND * 20);
    let mut expired = Vec::new();
    assert!(queue.poll_into(&mut expired, 10).more);
    clock.set(0);
    assert_eq!(queue.wait_time(), Some(Duration::ZERO));
    while queue.poll_into(&mut expired, 1000).more {}
    assert_eq!(expired.len(), 1000);
    let waits = [queue.wait_time(), queue.poll_into(&mut expired, 1000).next];
    assert!(waits.iter().all(|wait| *wait > Some(SECOND * 20)), "{waits:?}");
}

/// With a budget too, and what was in the vector before stays where it is.
#[test]
fn a_poll_with_a_budget_carries_the_rest_forward() {
    let (queue, clock) = rig::queue(|queue| queue.shards(4));
    for key in 0..20_000u64 {
        queue.update(key, SECOND * (1 + (key % 7) as u32)).unwrap();
    }
    clock.advance(SECOND * 7);
    let (mut expired, mut polls) = (Vec::new(), 0);
    loop {
        let before = expired.len();
        let more = queue.poll_into(&mut expired, 100).more;
        polls += 1;
        let fresh = &expired[before..];
        assert!(
            fresh.len() <= 100 + 16
                && fresh.windows(2).all(|two| two[0].expiry() <= two[1].expiry())
        );
        if !more {
            break;
        }
    }
    assert!(polls >= 20_000 / 116);
    each_once(expired.iter().map(|key| **key).collect(), 20_000);
}

/// W6: a handle is of one stay, also where the same key has come again into the same slot.
#[test]
fn a_handle_of_an_earlier_stay_renews_nothing() {
    let queue = builder(&ManualClock::new()).shards(1).build_manual().unwrap();
    let insert = || match queue.update(7, SECOND) {
        Ok(Updated::Inserted { handle, .. }) => handle,
        other => panic!("{other:?}"),
    };
    // Slots are reused in rotation: more stays than there are slots.
    let mut handles = Vec::new();
    while queue.metrics().total.slots * 2 >= handles.len() as u64 {
        handles.push(insert());
        assert!(queue.remove(&7).is_some());
    }
    let last = insert();
    assert!(handles.iter().all(|&old| queue.touch_by(old, SECOND * 2) == Ok(false)));
    assert_eq!(queue.touch_by(last, SECOND * 2), Ok(true));
}

thread_local! {
    /// How many ends this thread has reported.
    static TOLD: Cell<u64> = const { Cell::new(0) };
    static IS_SLOW: Cell<bool> = const { Cell::new(false) };
}

/// C7: while one poller is held up in one shard, others poll the rest, and do not wait.
#[test]
fn a_slow_poller_holds_up_one_shard_only() {
    const KEYS: u64 = 40_000;
    let (meet, all) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU64::new(0)));
    let (meets, counts) = (meet.clone(), all.clone());
    let (map, clock) = rig::map(|map| {
        map.time_to_live(SECOND).shards(2).removal_listener(move |_: &u64, (): &(), cause| {
            assert_eq!(cause, RemovalCause::Expired);
            TOLD.set(TOLD.get() + 1);
            counts.fetch_add(1, Relaxed);
            if IS_SLOW.replace(false) {
                meets.wait(); // it is at a shard
                meets.wait(); // it may go on
            }
        })
    });
    for key in 0..KEYS {
        map.insert(key, ()).unwrap();
    }
    clock.advance(SECOND);
    let (mine, left, more) = thread::scope(|scope| {
        scope.spawn(|| {
            IS_SLOW.set(true);
            map.poll(usize::MAX);
        });
        meet.wait();
        // All but what the other one is at; and there is no more to be had.
        let first = map.poll(usize::MAX);
        let mine = TOLD.get();
        let second = map.poll(usize::MAX);
        let left = map.len() as u64;
        meet.wait();
        (mine, left, first.more || second.more)
    });
    assert!(!more, "what is left is the other one's");
    assert!(mine > 0 && mine < KEYS, "{mine}");
    assert_eq!(left, KEYS - mine - 1);
    assert!(!map.poll(usize::MAX).more && map.is_empty());
    assert_eq!(all.load(Relaxed), KEYS);
}

/// A listener that polls its own map finds nothing, and does not recurse.
#[test]
fn a_poll_in_a_listener_finds_nothing() {
    let clock = ManualClock::new();
    let map = Arc::new_cyclic(|map: &std::sync::Weak<ExpiringMap<u64, ()>>| {
        let (map, depth) = (map.clone(), AtomicUsize::new(0));
        let builder = ExpiringMap::builder().time_to_live(SECOND).interval(SECOND).shards(4);
        let builder = builder.clock(clock.clone()).removal_listener(move |_, (), cause| {
            if cause == RemovalCause::Expired {
                assert_eq!(depth.fetch_add(1, Relaxed), 0, "it recursed");
                assert!(!map.upgrade().unwrap().poll(usize::MAX).more);
                depth.fetch_sub(1, Relaxed);
            }
        });
        builder.build_manual().unwrap()
    });
    for key in 0..20_000 {
        map.insert(key, ()).unwrap();
    }
    clock.advance(SECOND);
    assert!(!map.poll(usize::MAX).more && map.is_empty());
    assert_eq!(map.metrics().listener_panics, 0);
}

/// A queue that takes five seconds for a stall, polled at second 1, with keys due at 10, 12, 20
/// and 40.
fn to_be_stalled() -> (ExpiryQueue<u64>, ManualClock) {
    let (queue, clock) = rig::queue(|queue| queue.shards(4).pause_grace(SECOND * 5));
    for due in [10, 12, 20, 40] {
        queue.update(due, SECOND * due as u32).unwrap();
    }
    clock.advance(SECOND);
    assert!(queue.poll().is_empty());
    (queue, clock)
}

fn at(clock: &ManualClock, seconds: u64) {
    clock.set(seconds * 1_000_000_000);
}

/// What a poll at this second returns.
fn polled_at(queue: &ExpiryQueue<u64>, clock: &ManualClock, second: u64) -> Vec<(u64, u64)> {
    at(clock, second);
    seconds(&queue.poll())
}

/// C8: late by no more than the threshold is no stall, by more is.
#[test]
fn a_stall_is_told_by_the_threshold() {
    let (queue, clock) = to_be_stalled();
    assert_eq!(polled_at(&queue, &clock, 15), [(10, 10), (12, 12)]);
    let (queue, clock) = to_be_stalled();
    clock.set(15_000_000_001);
    assert_eq!(seconds(&queue.poll()), []);
}

/// What came due in a stall from 10 to 30 gets its 21 seconds on top, and expires then, once,
/// unless it is touched.
#[test]
fn a_stall_is_added_once() {
    let (queue, clock) = to_be_stalled();
    at(&clock, 30);
    assert!(queue.poll().is_empty());
    assert_eq!(queue.len(), 4);
    assert_eq!(queue.wait_time(), Some(SECOND), "10 + 21 - 30");
    let dump = queue.dump();
    assert_eq!(dump.keys().map(Duration::as_secs).collect::<Vec<_>>(), [31, 33, 40, 41]);
    assert!(queue.touch(&12, SECOND * 60).unwrap(), "it lives");
    assert_eq!(polled_at(&queue, &clock, 31), [(31, 10)]);
    at(&clock, 35);
    assert!(queue.poll().is_empty(), "it was touched");
    assert_eq!(polled_at(&queue, &clock, 40), [(40, 40)], "not in the stall");
    assert_eq!(polled_at(&queue, &clock, 41), [(41, 20)]);
    assert_eq!(polled_at(&queue, &clock, 90), [(90, 12)]);
    assert!(queue.is_empty());
}

/// A touch before the first poll after the stall.
#[test]
fn a_touch_after_the_stall_succeeds() {
    let (queue, clock) = to_be_stalled();
    at(&clock, 30);
    assert!(queue.touch(&10, SECOND * 3).unwrap());
    assert!(queue.poll().is_empty());
    at(&clock, 33);
    let mut polled = seconds(&queue.poll());
    polled.sort_unstable();
    assert_eq!(polled, [(33, 10), (33, 12)]);
}

/// The budget is smaller than what came due: the rest gets the same, however much later it is come
/// to.
#[test]
fn a_small_budget_does_not_shorten_the_grace() {
    const KEYS: u64 = 5000;
    let (queue, clock) = rig::queue(|queue| queue.shards(4).pause_grace(SECOND * 5));
    for key in 0..KEYS {
        queue.update(key, SECOND * (10 + key as u32 % 20)).unwrap();
    }
    assert!(queue.poll().is_empty());
    at(&clock, 49);
    let mut expired = Vec::new();
    // From 10 to 49: 40 more, so due from 50 to 69. The last is come to at 51 or so, by which the
    // first are due.
    for round in 0.. {
        if !queue.poll_into(&mut expired, 16).more {
            break;
        }
        assert!(round < 10_000);
        clock.advance(8 * MS);
    }
    for second in 50..=70 {
        at(&clock, second.max(52));
        while queue.poll_into(&mut expired, 16).more {}
    }
    let mut polled = seconds(&expired);
    polled.sort_unstable_by_key(|&(_, key)| key);
    assert!(polled.into_iter().eq((0..KEYS).map(|key| (50 + key % 20, key))));
    assert!(queue.is_empty());
}

/// Two stalls, the second before the first is worked off: an entry that fell into both gets both.
#[test]
fn stalls_add_up() {
    let (queue, clock) = rig::queue(|queue| queue.shards(1).pause_grace(SECOND * 5));
    for key in 0..1000_u64 {
        queue.update(key, SECOND * 10).unwrap();
    }
    assert!(queue.poll().is_empty());
    let mut expired = Vec::new();
    at(&clock, 20); // 10 becomes 21
    assert!(queue.poll_into(&mut expired, 16).more);
    at(&clock, 30); // 21 becomes 31, and so does what still was at 10
    assert!(queue.poll_into(&mut expired, 16).more);
    while queue.poll_into(&mut expired, 16).more {}
    assert!(expired.is_empty());
    assert_eq!(queue.dump().keys().map(Duration::as_secs).collect::<Vec<_>>(), [31]);
    at(&clock, 31);
    assert_eq!(queue.poll().len(), 1000);
}

/// Slow handlers are no stall: what came due behind them expires.
#[test]
fn a_backlog_of_slow_handlers_is_not_extended() {
    let clock = ManualClock::new();
    let told = Arc::new(AtomicUsize::new(0));
    let handler = {
        let (clock, told) = (clock.clone(), told.clone());
        move |_: &u64| {
            // Takes longer than the threshold each time.
            clock.advance(SECOND * 20);
            told.fetch_add(1, Relaxed);
        }
    };
    let builder = builder(&clock).shards(4).pause_grace(SECOND * 5).expiry_listener(handler);
    let queue = builder.build_manual().unwrap();
    let began = std::time::Instant::now();
    for key in 0..6 {
        queue.update(key, SECOND * 100 + SECOND * 15 * key as u32).unwrap();
    }
    at(&clock, 100);
    while !queue.is_empty() {
        let _ = queue.poll();
        assert!(began.elapsed() < SECOND * 60);
    }
    // Each was come to in the round after the one that it came due in: at 100, 120, 140, ... 200;
    // no entry got a grace.
    assert_eq!(told.load(Relaxed), 6);
    assert_eq!(expiry::Clock::now(&clock), 220_000_000_000);
}

/// It is no stall while a thread drives a shard: what comes due in the others expires.
#[test]
fn others_expire_while_a_handler_is_slow() {
    // So many that two shards have some; the first is due first.
    const KEYS: usize = 6000;
    let clock = ManualClock::new();
    let told = Arc::new(AtomicUsize::new(0));
    let meet = Arc::new(Barrier::new(2));
    let handler = {
        let (told, meet) = (told.clone(), meet.clone());
        move |key: &u64| {
            if *key == 0 {
                meet.wait(); // a thread drives a shard
                meet.wait(); // and may go on
            }
            told.fetch_add(1, Relaxed);
        }
    };
    let builder = builder(&clock).shards(2).pause_grace(SECOND * 5).expiry_listener(handler);
    let queue = builder.build_manual().unwrap();
    for key in 0..KEYS as u64 {
        queue.update(key, SECOND * (100 + 10 * u32::from(key > 0))).unwrap();
    }
    at(&clock, 100);
    let others = std::thread::scope(|scope| {
        scope.spawn(|| queue.poll().len());
        meet.wait();
        at(&clock, 130);
        let began = std::time::Instant::now();
        // All in the other shard: what does not fit in the first one's first chunk.
        while told.load(Relaxed) < KEYS - 4096 {
            let _ = queue.poll();
            if began.elapsed() > SECOND * 20 {
                break;
            }
        }
        let others = told.load(Relaxed);
        meet.wait();
        others
    });
    assert_eq!(others, KEYS - 4096, "they got a grace");
}

/// A caller that just does not poll for long looks stalled, as the documentation says; a caller
/// that has polled since does not.
#[test]
fn only_a_gap_between_polls_is_a_stall() {
    let (queue, clock) = to_be_stalled();
    for second in 2..=10 {
        at(&clock, second);
        let _ = queue.poll();
    }
    // The next one is due at 12; the gap before it does not count.
    assert_eq!(polled_at(&queue, &clock, 17), [(12, 12)]);
    at(&clock, 26);
    assert!(queue.poll().is_empty());
    assert_eq!(queue.wait_time(), Some(SECOND), "20 to 26 is 7 more");
}

/// A caller that polls every ten seconds, with a threshold of five. Its first two gaps look like
/// stalls; from the third on they are its habit, and keys expire at the first poll after they have
/// come due.
#[test]
fn a_caller_that_polls_more_rarely_than_the_threshold_expires_keys() {
    for (drains, asks) in [(false, false), (true, false), (false, true)] {
        let (queue, clock) = rig::queue(|queue| queue.pause_grace(SECOND * 5));
        let (mut expired, mut polled) = (Vec::new(), Vec::new());
        for nth in 0..10 {
            at(&clock, 10 * nth);
            queue.update(nth, SECOND * 3).unwrap();
            while queue.poll_into(&mut expired, 4096).more {}
            if drains {
                // One that polls until nothing is left makes gaps of no length.
                queue.poll_into(&mut expired, 4096);
            }
            polled.extend(expired.drain(..).map(|key| (10 * nth, *key)));
            if asks {
                // The answer is shown to people: this caller does not go by it.
                assert!(queue.wait_time() <= Some(SECOND * 3));
            }
        }
        polled.sort_unstable_by_key(|&(_, key)| key);
        let due = (0..9).map(|key| (10 * (key + 1).max(3), key));
        assert!(polled.iter().copied().eq(due), "{drains} {asks}: {polled:?}");
    }
}

/// A caller that polls every second again is seen to stall again, although it has polled rarely
/// before.
#[test]
fn a_caller_that_polls_often_again_is_seen_to_stall() {
    let (queue, clock) = rig::queue(|queue| queue.pause_grace(SECOND * 5));
    for second in (0..=50).step_by(10).chain(51..=60) {
        at(&clock, second);
        if second == 60 {
            queue.update(1_u64, SECOND * 2).unwrap();
        }
        assert!(queue.poll().is_empty());
    }
    at(&clock, 69);
    assert!(queue.poll().is_empty(), "a stall from 62 to 69");
    assert_eq!(queue.wait_time(), Some(SECOND), "due at 62 + 8");
}

/// A caller that goes by `wait_time` is expected at the time that it returned, however far apart
/// those are.
#[test]
fn a_caller_that_goes_by_the_wait_time_is_seen_to_stall() {
    let (queue, clock) = rig::queue(|queue| queue.pause_grace(SECOND * 5));
    for _ in 0..5 {
        queue.update(1_u64, SECOND * 30).unwrap();
        let wait = queue.wait_time().unwrap();
        assert_eq!(wait, SECOND * 30);
        clock.advance(wait);
        assert_eq!(queue.poll().len(), 1);
    }
    queue.update(1, SECOND * 30).unwrap();
    let wait = queue.wait_time().unwrap();
    clock.advance(wait + SECOND * 6);
    assert!(queue.poll().is_empty(), "a stall of seven seconds");
    clock.advance(SECOND);
    assert_eq!(queue.poll().len(), 1);
}

/// The channel has one place, and is full.
#[test]
fn a_shutdown_does_not_wait_for_who_reads_the_channel() {
    let builder = ExpiryQueue::builder().interval(MS);
    let (queue, channel) = builder.build_with_channel(1, WhenFull::Wait).unwrap();
    (0..100).for_each(|key| _ = queue.update(key, MS).unwrap());
    wait_for("the first key", || !channel.is_empty());
    let mut all: Vec<u64> = queue.shutdown().iter().map(|key| **key).collect();
    all.extend(std::iter::from_fn(|| channel.try_next()).map(|key| *key));
    each_once(all, 100);
    let builder = SessionTracker::builder().interval(MS);
    let (sessions, channel) = builder.build_with_channel(1, WhenFull::Wait).unwrap();
    (0..100).for_each(|owner| _ = sessions.create(MS, owner).unwrap());
    wait_for("the first session", || !channel.is_empty());
    let mut all: Vec<u64> = sessions.shutdown().iter().map(|gone| gone.owner).collect();
    all.extend(std::iter::from_fn(|| channel.try_next()).map(|gone| gone.owner));
    each_once(all, 100);
}

#[test]
fn a_key_is_looked_at_without_touching_it() {
    let (queue, clock) = rig::queue(|queue| queue);
    assert_eq!(queue.get(&1), None);
    queue.update(1, 5 * SECOND).unwrap();
    clock.advance(2 * SECOND);
    let (expiry, handle) = queue.get(&1).unwrap();
    assert_eq!(expiry, 5 * SECOND);
    assert!(queue.touch_by(handle, 5 * SECOND).unwrap());
    assert_eq!(queue.get(&1).unwrap().0, 7 * SECOND);
    clock.advance(5 * SECOND);
    assert!(queue.contains(&1), "nobody has polled it");
    assert_eq!(seconds(&queue.poll()), [(7, 1)]);
    assert!(!queue.contains(&1));
}

type Act = Box<dyn FnOnce() + Send>;

/// A clock at whose readings something happens.
#[derive(Clone, Default)]
struct Staged {
    time: ManualClock,
    /// At which reading of a thread, counted down, what.
    acts: Arc<Mutex<HashMap<ThreadId, (u32, Act)>>>,
}

impl Staged {
    /// At the second reading of this thread from now on.
    fn at_second_reading(&self, act: impl FnOnce() + Send + 'static) {
        let thread = thread::current().id();
        let mut acts = self.acts.lock().unwrap();
        acts.insert(thread, (2, Box::new(act)));
    }
}

impl Clock for Staged {
    fn now(&self) -> u64 {
        let thread = thread::current().id();
        let mut acts = self.acts.lock().unwrap();
        if let Some((left, _)) = acts.get_mut(&thread) {
            *left -= 1;
            if *left == 0 {
                let (_, act) = acts.remove(&thread).unwrap();
                drop(acts);
                act();
            }
        }
        self.time.now()
    }
}

/// One poller reads the clock before anything is due, and drives the only shard. Another comes for
/// what is due by then, and finds the first one there. The first one leaves before the second
/// returns; so the second looks again. (Each reads the clock first at its beginning, then, as
/// stalls are looked out for, about to leave the shard, and after its round.)
fn looks_again(clock: &Staged, poll: impl Fn() -> usize + Sync) {
    let (there, is_there) = channel();
    let (go, may_go) = channel::<()>();
    let (left, has_left) = channel();
    thread::scope(|scope| {
        let early = scope.spawn(|| {
            clock.at_second_reading(move || {
                there.send(()).unwrap();
                let _ = may_go.recv();
            });
            let found = poll();
            left.send(()).unwrap();
            found
        });
        is_there.recv().unwrap();
        clock.time.advance(SECOND);
        clock.at_second_reading(move || {
            go.send(()).unwrap();
            has_left.recv().unwrap();
        });
        assert_eq!(poll(), 1);
        assert_eq!(early.join().unwrap(), 0);
    });
}

#[test]
fn a_poller_looks_again_where_another_has_been() {
    let clock = Staged::default();
    let queue = ExpiryQueue::builder().interval(SECOND).shards(1).pause_grace(SECOND * 100);
    let queue = queue.clock(clock.clone()).build_manual().unwrap();
    queue.update(1_u64, SECOND).unwrap();
    looks_again(&clock, || queue.poll().len());
    let clock = Staged::default();
    let sessions = SessionTracker::builder().interval(SECOND).shards(1).pause_grace(SECOND * 100);
    let sessions = sessions.clock(clock.clone()).build_manual().unwrap();
    sessions.create(SECOND, 1).unwrap();
    looks_again(&clock, || sessions.poll().len());
}

/// A key is removed and inserted again when it is cloned.
#[test]
fn a_dump_has_a_key_that_comes_again_once() {
    let (queue, _) = rig::queue(|queue| queue);
    let census = Census::new();
    for key in 0..100 {
        queue.update(Counted::of(&census, key), SECOND * 10).unwrap();
    }
    let moves = queue.clone();
    let _asks = Counted::when_asked(move |how, key| {
        if how == "clone" {
            assert!(moves.remove(key).is_some());
            moves.update(Counted::of(key.census(), key.id()), SECOND * 10).unwrap();
        }
    });
    each_once(queue.dump().into_values().flatten().map(|key| key.id()).collect(), 100);
}
