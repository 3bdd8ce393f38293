//! Each key and each value is dropped exactly once, whatever becomes of its entry.

use super::census::{Census, Counted, CALM};
use super::SECOND;
use crate::support::clocks::Moved;
use crate::support::{on_threads, wait_for, Random, Same, GENEROUS, MS};
use expiry::expiring_map::Entry;
use expiry::{ExpiringMap, ExpiryQueue, ManualClock, StoreError, WhenFull};
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::thread;

/// What keys and values are made of.
trait Part: Eq + Hash + Send + Sync + 'static {
    /// Whether parts of different ids differ.
    const DIFFER: bool = true;

    fn new(id: u64, census: &Arc<Census>) -> Self;
}

impl Part for Counted {
    fn new(id: u64, census: &Arc<Census>) -> Self {
        Counted::of(census, id)
    }
}

/// Without a `Drop`.
impl Part for u64 {
    fn new(id: u64, _: &Arc<Census>) -> Self {
        id
    }
}

/// Beyond what a slot holds: it is boxed.
#[derive(PartialEq, Eq, Hash)]
struct Large([u64; 25], Counted);

impl Part for Large {
    fn new(id: u64, census: &Arc<Census>) -> Self {
        Large([id; 25], Counted::of(census, id))
    }
}

/// More aligned than slots are.
#[derive(PartialEq, Eq, Hash)]
#[repr(align(128))]
struct Aligned(Counted);

impl Part for Aligned {
    fn new(id: u64, census: &Arc<Census>) -> Self {
        let new = Aligned(Counted::of(census, id));
        new.check();
        new
    }
}

impl Aligned {
    fn check(&self) {
        assert_eq!(std::ptr::addr_of!(*self) as usize % 128, 0);
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        self.check();
    }
}

/// More aligned than slots are, and without anything in it that the slot itself would hold.
#[derive(PartialEq, Eq, Hash)]
#[repr(align(64))]
struct AlignedSmall(u8);

static SMALL: Census = Census::zero();

impl Part for AlignedSmall {
    fn new(id: u64, _: &Arc<Census>) -> Self {
        SMALL.begin();
        AlignedSmall(id as u8)
    }
}

impl Drop for AlignedSmall {
    fn drop(&mut self) {
        assert_eq!(std::ptr::addr_of!(*self) as usize % 64, 0);
        SMALL.end();
    }
}

/// Of no size; all are equal.
#[derive(PartialEq, Eq, Hash)]
struct Nothing;

static NOTHINGS: Census = Census::zero();

impl Part for Nothing {
    const DIFFER: bool = false;

    fn new(_: u64, _: &Arc<Census>) -> Self {
        NOTHINGS.begin();
        Nothing
    }
}

impl Drop for Nothing {
    fn drop(&mut self) {
        NOTHINGS.end();
    }
}

/// The statics count one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What the test itself drops does not panic.
fn calm<R>(f: impl FnOnce() -> R) -> R {
    let before = CALM.replace(true);
    let done = f();
    CALM.set(before);
    done
}

fn all_paths<K: Part, V: Part>(what: &str, census: fn() -> Arc<Census>) {
    let _alone = ALONE.lock().unwrap_or_else(|error| error.into_inner());
    for reaper in [false, true] {
        for flushes in [false, true] {
            for shuts in [false, true] {
                let census = census();
                one_map::<K, V>(&census, reaper, flushes, shuts);
                let left = (census.left(), NOTHINGS.left(), SMALL.left());
                let how = format!("{what}, {reaper}, {flushes}, {shuts}: {census:?}");
                assert_eq!(left, (0, 0, 0), "{how}");
            }
        }
    }
}

#[allow(clippy::too_many_lines)] // one path after the other
fn one_map<K: Part, V: Part>(census: &Arc<Census>, reaper: bool, flushes: bool, shuts: bool) {
    let (k, v) = (|id| K::new(id, census), |id| V::new(id, census));
    let clock = ManualClock::new();
    let builder = ExpiringMap::builder()
        .time_to_live(10 * SECOND)
        .interval(SECOND)
        .capacity(500)
        .shards(2)
        .clock(clock.clone());
    let map = match reaper {
        true => builder.clock(Moved(clock.clone())).build(),
        false => builder.build_manual(),
    };
    let map = map.unwrap();
    let settle = || {
        if flushes {
            assert!(map.flush(GENEROUS));
            assert_eq!(map.metrics().unreclaimed, 0);
        }
    };
    calm(|| {
        for id in 0..40 {
            map.insert(k(id), v(id)).unwrap();
        }
        // Replaced, removed.
        for id in 0..20 {
            drop(map.insert(k(id), v(id + 100)).unwrap());
        }
        settle();
        for id in 0..10 {
            let key = k(id);
            drop(map.remove(&key));
            drop(map.remove_if(&key, |_, _| true));
        }
        settle();
        // Entries: present, absent, lost.
        for id in 5..15 {
            drop(map.entry(k(id)).or_insert(v(id)).unwrap());
            map.upsert(k(id), |_| (v(id), ())).unwrap();
            if let Entry::Occupied(entry) = map.entry(k(id)) {
                drop(map.insert(k(id), v(id)).unwrap());
                let refused = entry.insert(v(id)).err().unwrap();
                assert_eq!(refused.error, StoreError::Changed);
            }
            if let Entry::Occupied(entry) = map.entry(k(id)) {
                drop(entry.remove());
            }
            if let Entry::Vacant(entry) = map.entry(k(id)) {
                drop(map.insert(k(id), v(id)).unwrap());
                assert!(entry.insert(v(id)).is_err());
            }
            if let Entry::Vacant(entry) = map.entry(k(id + 1000)) {
                drop(map.insert(k(id + 1000), v(id)).unwrap());
                let entry = Entry::Vacant(entry);
                drop(entry.or_insert(v(id)).unwrap());
            }
        }
        settle();
        // What has ended is kept for longer than a reference to it, and the other way round.
        for (id, first) in [(20, true), (21, false)] {
            drop(map.insert(k(id), v(id)).unwrap());
            let lent = map.get(&k(id)).unwrap();
            let ended = map.remove(&k(id)).unwrap();
            let ended = ended.try_into_value().err().expect("it is lent");
            if first {
                drop(lent);
                settle();
                assert!(*ended.key() == k(id));
                match ended.try_into_value() {
                    Ok(value) => assert!(value == v(id)),
                    // The reaper is in the middle of something.
                    Err(_) => assert!(reaper),
                }
            } else {
                drop(ended);
                if flushes {
                    assert!(!map.flush(MS));
                }
                assert!(*lent.key() == k(id));
                assert!(*lent.value() == v(id));
            }
        }
        settle();
        // A replaced one, taken out.
        drop(map.insert(k(22), v(22)).unwrap());
        let replaced = map.insert(k(22), v(23)).unwrap().unwrap();
        drop(replaced.try_into_value());
        assert!(*map.get(&k(22)).unwrap().value() == v(23));
        map.retain(|_, value| *value != v(25));
    });
    // Expired: by a poll or the reaper, and where another one is put in the place.
    clock.advance(11 * SECOND);
    calm(|| {
        for id in 30..35 {
            drop(map.insert(k(id), v(id)).unwrap());
            assert_eq!(map.remove(&k(id + 100)).is_none(), K::DIFFER);
        }
    });
    while map.poll(7).more {}
    calm(|| {
        if reaper {
            // It may be ending the rest, for which a flush does not wait.
            wait_for("the rest to be dropped", || {
                !flushes || map.flush(GENEROUS) && map.metrics().unreclaimed == 0
            });
        } else {
            settle();
        }
        assert!(
            (0..1000).all(|id| id == 30 || map.insert(k(id), v(id)).is_ok()) || map.len() == 500
        );
        if map.len() == 500 {
            assert_eq!(map.insert(k(2000), v(1)).err().unwrap().error, StoreError::Full);
        }
    });
    let kept = calm(|| {
        let id = 1;
        (map.get(&k(id)), map.remove(&k(id)))
    });
    calm(|| {
        if shuts {
            map.shutdown();
            let refused = map.insert(k(1), v(1)).err().unwrap();
            assert_eq!(refused.error, StoreError::Closed);
        }
        let (lent, ended) = kept;
        assert!(!K::DIFFER || *lent.unwrap().value() == v(1));
        let ended = ended.unwrap();
        assert!(!K::DIFFER || *ended.value() == v(1));
        drop(ended);
    });
}

#[test]
fn counted() {
    all_paths::<Counted, Counted>("counted", Census::new);
    all_paths::<u64, Counted>("counted values", Census::new);
    all_paths::<u64, u64>("no drops", Census::new);
}

#[test]
fn of_no_size() {
    all_paths::<Nothing, Nothing>("key and value of no size", Census::new);
}

#[test]
fn over_aligned() {
    all_paths::<Aligned, Aligned>("aligned, in a box", Census::new);
    all_paths::<AlignedSmall, Nothing>("as aligned as a slot may be", Census::new);
}

#[test]
fn boxed() {
    all_paths::<Large, Large>("large", Census::new);
}

#[test]
fn panicking() {
    all_paths::<u64, Counted>("panicking values", Census::panicking);
    all_paths::<Counted, Counted>("panicking keys and values", Census::panicking);
}

/// Threads insert, replace, remove, look, and take values out, while what they insert expires: by
/// its time to live, or, where there is room for three entries only, by its time to idle.
fn by_many<K: Part, V: Part>(census: fn() -> Arc<Census>) {
    for few in [false, true] {
        by_many_with::<K, V>(few, &census());
    }
}

fn by_many_with<K: Part, V: Part>(few: bool, census: &Arc<Census>) {
    let _alone = ALONE.lock().unwrap_or_else(|error| error.into_inner());
    let made = NOTHINGS.made() + SMALL.made();
    let mut builder = ExpiringMap::builder().time_to_live(2 * MS).interval(MS).shards(2);
    if few {
        builder = builder.time_to_idle(MS).capacity(3);
    }
    let map = builder.build().unwrap();
    let refused = move |error: StoreError| assert!(few && error == StoreError::Full, "{error}");
    on_threads(3, |thread| {
        CALM.set(true);
        let mut seed = Random(thread + 1);
        let mut kept = Vec::new();
        for turn in 0..10_000 {
            let random = seed.next();
            let id = random % 16;
            let key = K::new(id, census);
            match random >> 8 & 7 {
                0 | 1 => drop(map.remove(&key)),
                2 => drop(map.remove(&key).map(expiry::Removed::try_into_value)),
                3 => kept.extend(map.remove(&key)),
                4 => match map.entry(key).or_insert(V::new(id, census)) {
                    Ok(lent) => drop(lent),
                    Err(back) => refused(back.error),
                },
                5 => map
                    .upsert(key, |_| (V::new(id, census), ()))
                    .unwrap_or_else(|back| refused(back.error)),
                _ => match map.insert(key, V::new(id, census)) {
                    Ok(before) => drop(before.map(expiry::Removed::try_into_value)),
                    Err(back) => refused(back.error),
                },
            }
            if let Some(lent) = map.get(&K::new(id, census)) {
                thread::yield_now();
                assert!(!K::DIFFER || *lent.value() == V::new(id, census));
            }
            if turn % 100 == 0 {
                kept.clear();
            }
        }
    });
    // Half of the 30,000 turns insert. How many of the others meet an entry depends on the machine.
    assert!(census.made() + NOTHINGS.made() + SMALL.made() - made > 10_000);
    drop(map);
    assert_eq!((census.left(), NOTHINGS.left(), SMALL.left()), (0, 0, 0));
}

#[test]
fn by_many_threads() {
    by_many::<Counted, Counted>(Census::new);
    by_many::<u64, Counted>(Census::new);
    by_many::<Large, Large>(Census::new);
    by_many::<Aligned, Aligned>(Census::new);
    by_many::<Nothing, Nothing>(Census::new);
    by_many::<AlignedSmall, Nothing>(Census::new);
    by_many::<Counted, Counted>(Census::panicking);
}

/// What a queue's poll has returned outlives the queue.
#[test]
fn expired_keys_outlive_their_queue() {
    for by_channel in [false, true] {
        let (census, clock) = (Census::new(), ManualClock::new());
        let builder = ExpiryQueue::builder().interval(SECOND).clock(clock.clone());
        let (queue, receiver) = if by_channel {
            let (queue, receiver) = builder.build_manual_with_channel(10, WhenFull::Spill).unwrap();
            (queue, Some(receiver))
        } else {
            (builder.build_manual().unwrap(), None)
        };
        for id in 0..100 {
            queue.update(Counted::of(&census, id), SECOND).unwrap();
        }
        let last = Counted::of(&census, 100);
        queue.update(last, 100 * SECOND).unwrap();
        clock.advance(2 * SECOND);
        let mut expired = queue.poll();
        drop(queue);
        expired.extend(receiver.into_iter().flatten());
        assert_eq!(expired.len(), 100);
        assert!(census.left() >= 100);
        let kept = expired.split_off(50);
        let first = thread::spawn(move || {
            assert!(expired.iter().all(|key| !key.key().is_dropped()));
            drop(expired);
        });
        let second = thread::spawn(move || {
            assert!(kept.iter().all(|key| !key.key().is_dropped()));
            kept.into_iter().rev().for_each(drop);
        });
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(census.left(), 0, "{by_channel}");
    }
}

/// What a shutdown has handed out is dropped by the caller that drops it, though the queue stays.
#[test]
fn keys_that_a_shutdown_has_handed_out() {
    let census = Census::new();
    let queue = ExpiryQueue::builder().shards(1).build_manual().unwrap();
    queue.update(Counted::of(&census, 7), 100 * SECOND).unwrap();
    let left = queue.shutdown();
    assert_eq!((left.len(), census.left()), (1, 1));
    drop(left);
    assert_eq!(census.left(), 0);
}

/// Queues drop their keys in every path too.
#[test]
fn keys_of_queues() {
    for shuts in [false, true] {
        let (census, clock) = (Census::new(), ManualClock::new());
        let builder = ExpiryQueue::builder().interval(SECOND).capacity(60);
        let queue = builder.clock(clock.clone()).build_manual().unwrap();
        let key = |id| Counted::of(&census, id);
        for id in 0..50 {
            queue.update(key(id), SECOND).unwrap();
            queue.update(key(id), 2 * SECOND).unwrap();
            assert!(queue.touch(&key(id), 3 * SECOND).unwrap());
        }
        for id in 0..10 {
            assert!(queue.remove(&key(id)).is_some());
        }
        clock.advance(4 * SECOND);
        let expired = queue.poll();
        assert_eq!(expired.len(), 40);
        drop(expired);
        for id in 0..60 {
            queue.update(key(id), SECOND).unwrap();
        }
        assert_eq!(queue.update(key(99), SECOND), Err(StoreError::Full));
        if shuts {
            let left = queue.shutdown();
            assert_eq!(left.len(), 60);
            assert_eq!(queue.update(key(1), SECOND), Err(StoreError::Closed));
            drop(queue);
            assert_eq!(census.left(), 60, "the keys that were left are lent");
            drop(left);
        } else {
            drop(queue);
        }
        assert_eq!(census.left(), 0);
    }
}

/// A key that a thread has removed from an idle queue with a reaper is dropped.
#[test]
fn keys_of_an_idle_queue() {
    let census = Census::new();
    let queue =
        ExpiryQueue::builder().interval(MS).expiry_listener(|_: &Counted| ()).build().unwrap();
    for id in 0..100 {
        queue.update(Counted::of(&census, id), 100 * SECOND).unwrap();
        queue.remove(&Counted::of(&census, id));
    }
    wait_for("they are dropped", || census.left() == 0);
    for id in 0..100 {
        queue.update(Counted::of(&census, id), MS).unwrap();
    }
    wait_for("they have expired and are dropped", || census.left() == 0);
}

thread_local!(static ASKS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });

/// A call for a key with this id.
type Call = fn(&ExpiringMap<Counted, Counted, Same>, u64, &Arc<Census>);

/// Keys have one hash, and their `Eq` panics when the thread has asked so often.
/// A call that a key's `Eq` has taken down leaves its key and value to be dropped, and the map
/// whole.
#[test]
fn where_eq_panics() {
    let calls: [Call; 6] = [
        |map, id, census| {
            let (key, value) = (Counted::of(census, id), Counted::new(census));
            drop(map.insert(key, value).unwrap());
        },
        |map, id, census| {
            let (key, value) = (Counted::of(census, id), Counted::new(census));
            drop(map.entry(key).or_insert(value).unwrap());
        },
        |map, id, census| {
            let key = Counted::of(census, id);
            map.upsert(key, |_| (Counted::new(census), ())).unwrap();
        },
        |map, id, census| drop(map.remove(&Counted::of(census, id))),
        |map, id, census| drop(map.get(&Counted::of(census, id))),
        |map, id, census| {
            map.remove_if(&Counted::of(census, id), |_, _| true);
        },
    ];
    let (census, mut panics) = (Census::new(), 0);
    let _asks = Counted::when_asked(|how, _| {
        ASKS.set(ASKS.get().wrapping_sub(u32::from(how == "eq")));
        assert!(how != "eq" || ASKS.get() != 0, "as it is meant to");
    });
    for call in calls {
        for id in [3, 99] {
            for asks in 1..12 {
                let map = ExpiringMap::builder().hasher(Same).build_manual().unwrap();
                for there in 0..5 {
                    let key = Counted::of(&census, there);
                    map.insert(key, Counted::new(&census)).unwrap();
                }
                ASKS.set(asks);
                let run = std::panic::AssertUnwindSafe(|| call(&map, id, &census));
                panics += u32::from(std::panic::catch_unwind(run).is_err());
                ASKS.set(0);
                // Not pinned any more, and the rest is there.
                for there in [0, 1, 2, 4] {
                    let key = Counted::of(&census, there);
                    assert!(map.get(&key).is_some());
                }
                map.clear();
                assert_eq!(map.len(), 0);
                assert!(map.flush(GENEROUS));
                assert_eq!((census.left(), map.metrics().unreclaimed), (0, 0));
            }
        }
    }
    assert!(panics > 40, "{panics}");
}

/// Where most of what a poll has returned is dropped, the queue and some of the keys staying or
/// not.
#[test]
fn expired_keys_do_not_keep_each_other() {
    for queue_goes in [false, true] {
        let (census, clock) = (Census::new(), ManualClock::new());
        let builder = ExpiryQueue::builder().interval(SECOND).clock(clock.clone());
        let queue = builder.build_manual().unwrap();
        for id in 0..100 {
            queue.update(Counted::of(&census, id), SECOND).unwrap();
        }
        clock.advance(2 * SECOND);
        let mut expired = queue.poll();
        let queue = (!queue_goes).then_some(queue);
        let kept = expired.pop();
        drop(expired);
        if let Some(queue) = &queue {
            clock.advance(2 * SECOND);
            drop(queue.poll());
        }
        assert_eq!(census.left(), 1, "the queue goes: {queue_goes}");
        assert!(!kept.unwrap().key().is_dropped());
        drop(queue);
        assert_eq!(census.left(), 0);
    }
}
