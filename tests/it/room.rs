//! Waiting for room: by wakers that count, and under tokio.

use crate::support::{bad_drop, cloning, panics, poll_with, waker, Task, SECOND};
use expiry::expiring_map::{Compute, Entry};
use expiry::{
    edge, AckError, AckTracker, CapacityReady, Closed, ExpiringMap, ExpiryQueue, ManualClock,
    Outcomes, PendingMap, PendingTable, RemovalCause, SessionTracker, ShutdownMode, StoreError,
    Timeouts, WhenFull,
};
use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::task::Poll;
use std::time::Duration;

const READY: Poll<Result<(), Closed>> = Poll::Ready(Ok(()));

/// A full queue of so many keys, from 0 on.
fn full(capacity: u64) -> ExpiryQueue<u64> {
    let builder = ExpiryQueue::builder().capacity(usize::try_from(capacity).unwrap());
    let queue = builder.clock(ManualClock::new()).build_manual().unwrap();
    (0..capacity).for_each(|key| enter(&queue, key));
    assert_eq!(queue.update(capacity, SECOND), Err(StoreError::Full));
    queue
}

fn enter(queue: &ExpiryQueue<u64>, key: u64) {
    queue.update(key, SECOND).unwrap();
}

/// As many that wait, each with its task.
fn waiting<const N: usize>(queue: &ExpiryQueue<u64>) -> [(Arc<Task>, CapacityReady<'_>); N] {
    std::array::from_fn(|_| {
        let (task, mut room) = (Task::new(), queue.room());
        assert!(task.poll(&mut room).is_pending());
        (task, room)
    })
}

fn woken<const N: usize>(all: &[(Arc<Task>, CapacityReady<'_>); N]) -> [usize; N] {
    std::array::from_fn(|at| all[at].0.woken())
}

#[test]
fn there_is_room_where_there_is() {
    let task = Task::new();
    let unbounded = ExpiryQueue::<u64>::builder().build_manual().unwrap();
    assert_eq!(task.poll(&mut unbounded.room()), READY);
    let queue = full(1);
    queue.remove(&0);
    assert_eq!(task.poll(&mut queue.room()), READY);
    assert_eq!((task.woken(), task.held()), (0, 0));
}

#[test]
fn each_slot_that_gets_free_wakes_the_one_who_came_first() {
    let queue = full(3);
    let mut all = waiting::<3>(&queue);
    for turn in 0..3 {
        queue.remove(&turn).unwrap();
        let expected = std::array::from_fn(|at| usize::from(at as u64 <= turn));
        assert_eq!(woken(&all), expected);
        enter(&queue, 10 + turn);
    }
    for (task, room) in &mut all {
        assert!(task.poll(room).is_pending(), "all taken");
    }
}

#[test]
fn who_was_overtaken_keeps_its_place() {
    let queue = full(1);
    let mut all = waiting::<3>(&queue);
    queue.remove(&0);
    enter(&queue, 1); // a caller that has not waited
    assert_eq!(woken(&all), [1, 0, 0]);
    let (task, room) = &mut all[0];
    assert!(task.poll(room).is_pending());
    queue.remove(&1);
    assert_eq!(woken(&all), [2, 0, 0]);
    let (task, room) = &mut all[0];
    assert_eq!(task.poll(room), READY);
    enter(&queue, 2);
    assert_eq!(woken(&all), [2, 1, 0], "the next one, who finds nothing");
    let (task, room) = &mut all[1];
    assert!(task.poll(room).is_pending());
    queue.remove(&2);
    assert_eq!(woken(&all), [2, 2, 0]);
}

#[test]
fn who_comes_later_comes_after() {
    let queue = full(1);
    let mut all = waiting::<2>(&queue);
    queue.remove(&0);
    let (task, room) = &mut all[0];
    assert_eq!(task.poll(room), READY);
    enter(&queue, 1);
    // Woken in turn, in vain: it is the first of the line again. The third comes after it.
    let (task, room) = &mut all[1];
    assert!(task.poll(room).is_pending());
    let before = woken(&all)[1];
    let [third] = waiting::<1>(&queue);
    queue.remove(&1);
    assert_eq!((woken(&all)[1], third.0.woken()), (before + 1, 0));
}

/// As before, where the task that was there has been sorted in, and was never woken.
#[test]
fn who_has_never_been_woken_comes_before_who_comes_later() {
    let queue = full(2);
    let [(first, mut one), second] = waiting::<2>(&queue);
    queue.remove(&0); // sorts both in
    assert_eq!((first.woken(), second.0.woken()), (1, 0));
    enter(&queue, 2);
    assert!(first.poll(&mut one).is_pending());
    drop(one);
    let [third] = waiting::<1>(&queue);
    queue.remove(&1);
    assert_eq!((second.0.woken(), third.0.woken()), (1, 0));
}

#[test]
fn a_turn_that_is_not_taken_is_handed_on() {
    let queue = full(1);
    let [(_, first), (two, mut second), (three, mut third)] = waiting::<3>(&queue);
    queue.remove(&0);
    drop(first); // having been woken
    assert_eq!((two.woken(), three.woken()), (1, 0));
    assert_eq!(two.poll(&mut second), READY); // and does not insert
    assert_eq!(three.woken(), 1);
    assert_eq!(three.poll(&mut third), READY);
}

#[test]
fn who_leaves_unwoken_is_passed_over() {
    let queue = full(1);
    let [(one, first), (two, mut second)] = waiting::<2>(&queue);
    drop(first);
    assert_eq!(two.woken(), 0);
    queue.remove(&0);
    assert_eq!((one.woken(), two.woken()), (0, 1));
    assert_eq!(two.poll(&mut second), READY);
    assert_eq!(one.held(), 0);
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    let queue = full(1);
    let [(one, mut room)] = waiting::<1>(&queue);
    let two = Task::new();
    assert!(two.poll(&mut room).is_pending());
    queue.remove(&0);
    assert_eq!((one.woken(), two.woken()), (0, 1));
    // A turn that came before the other waker did is not lost.
    enter(&queue, 1);
    assert!(two.poll(&mut room).is_pending());
    let [(three, mut other)] = waiting::<1>(&queue);
    queue.remove(&1);
    assert_eq!(one.poll(&mut room), READY);
    assert_eq!(three.poll(&mut other), READY);
}

#[test]
fn all_are_told_of_a_shutdown() {
    let queue = full(1);
    let mut all = waiting::<3>(&queue);
    drop(queue.shutdown());
    for (task, room) in &mut all {
        assert!(task.woken() >= 1);
        assert_eq!(task.poll(room), Poll::Ready(Err(Closed)));
        assert_eq!(task.poll(&mut queue.room()), Poll::Ready(Err(Closed)));
    }
}

/// Abandoned registrations do not pile up while nothing gets free, and a task that stays keeps its
/// place.
#[test]
fn wakers_of_those_that_have_left_are_let_go() {
    let queue = full(1);
    let mut stay = waiting::<2>(&queue);
    let goes = Task::new();
    let mut most = 0;
    for _ in 0..1000 {
        let mut room = queue.room();
        assert!(goes.poll(&mut room).is_pending());
        drop(room);
        most = most.max(goes.held());
        for (task, room) in &mut stay {
            assert!(task.poll(room).is_pending());
        }
    }
    assert!((2..=20).contains(&most), "{most} wakers were kept");
    assert_eq!(goes.woken(), 0);
    let before = woken(&stay);
    queue.remove(&0);
    assert_eq!(woken(&stay), [before[0] + 1, before[1]]);
}

#[test]
fn a_waker_that_panics_loses_no_turn_but_its_own() {
    let queue = full(2);
    let mut bad = queue.room();
    assert!(poll_with(&mut bad, &waker(|| panic!("this waker does"))).is_pending());
    let [(task, mut room)] = waiting::<1>(&queue);
    assert!(queue.remove(&0).is_some());
    assert!(queue.remove(&1).is_some());
    assert_eq!(task.woken(), 1);
    assert_eq!(task.poll(&mut room), READY);
}

/// A waker whose drop panics: the last task that has it is the one that was woken, which hands its
/// turn on.
#[test]
fn a_waker_whose_drop_panics_loses_no_turn() {
    for polls in [false, true] {
        let queue = full(1);
        let mut first = queue.room();
        assert!(poll_with(&mut first, &bad_drop()).is_pending());
        let [(task, mut room)] = waiting::<1>(&queue);
        queue.remove(&0);
        if polls {
            assert_eq!(task.poll(&mut first), READY);
        }
        drop(first);
        assert_eq!((task.woken(), task.poll(&mut room)), (1, READY));
    }
}

/// Many of them, of tasks that have left, which are let go at once.
#[test]
fn many_wakers_whose_drops_panic_are_let_go() {
    let queue = full(1);
    let [(task, mut stays)] = waiting::<1>(&queue);
    for _ in 0..40 {
        let mut room = queue.room();
        assert!(poll_with(&mut room, &bad_drop()).is_pending());
    }
    queue.remove(&0);
    assert_eq!((task.woken() > 0, task.poll(&mut stays)), (true, READY));
}

/// One that cannot be cloned: the place stays what it was.
#[test]
fn a_waker_whose_clone_panics_changes_nothing() {
    let clone: &(dyn Fn() + Sync) = &|| panic!("this waker's clone does");
    let bad = cloning(&clone);
    let queue = full(1);
    let [(one, mut first), (two, _second)] = waiting::<2>(&queue);
    assert!(panics(|| _ = poll_with(&mut first, &bad)));
    queue.remove(&0);
    assert_eq!((one.woken(), two.woken()), (1, 0));
    assert_eq!(one.poll(&mut first), READY);
}

/// A waker that runs its task in place, which inserts, on the thread that is freeing the slot.
#[test]
fn a_waker_may_use_the_slot_at_once() {
    let queue = Arc::new(full(1));
    let theirs = queue.clone();
    let mut room = queue.room();
    assert!(poll_with(&mut room, &waker(move || enter(&theirs, 7))).is_pending());
    assert!(queue.remove(&0).is_some());
    assert!(queue.contains(&7));
    assert_eq!(queue.metrics().total.live, 1);
}

/// Such a waker may shut the tracker down before the outcome of the root that made room was
/// delivered: that outcome is delivered first.
fn a_waker_shuts_down(built: (AckTracker, Outcomes), by_hand: bool) {
    let (tracker, outcomes) = built;
    let tracker = Arc::new(tracker);
    let theirs = tracker.clone();
    let last = waker(move || assert!(theirs.shutdown(ShutdownMode::Cancel).is_empty()));
    let root = tracker.issue(edge(), 7).unwrap();
    let mut room = tracker.room();
    assert!(poll_with(&mut room, &last).is_pending());
    drop(last);
    tracker.fail(root).unwrap();
    if by_hand {
        // It was only asked for.
        assert!(tracker.shutdown(ShutdownMode::Cancel).is_empty());
    }
    let runtime = tokio::runtime::Builder::new_current_thread();
    let mut stream = outcomes.into_stream();
    { runtime }.build().unwrap().block_on(async {
        assert_eq!(stream.recv().await.unwrap().owner, 7);
        assert!(stream.recv().await.is_none());
    });
}

#[test]
fn a_waker_may_shut_the_tracker_down() {
    let builder = || AckTracker::builder().capacity(1);
    let built = builder().build_with_channel(4, WhenFull::Wait).unwrap();
    a_waker_shuts_down(built, false);
    let built = builder().build_manual_with_channel(4, WhenFull::Wait);
    a_waker_shuts_down(built.unwrap(), true);
}

/// Without a channel there is nothing that it would have to wait for.
#[test]
fn a_waker_may_shut_a_tracker_without_a_channel_down() {
    let tracker = Arc::new(AckTracker::builder().capacity(2).build_manual().unwrap());
    let (theirs, left) = (tracker.clone(), Arc::new(Mutex::new(Vec::new())));
    let into = left.clone();
    let last = waker(move || {
        let left = theirs.shutdown(ShutdownMode::Return);
        into.lock().unwrap().extend(left.iter().map(|outcome| outcome.owner));
    });
    let root = tracker.issue(edge(), 7).unwrap();
    tracker.issue(edge(), 8).unwrap();
    let mut room = tracker.room();
    assert!(poll_with(&mut room, &last).is_pending());
    tracker.fail(root).unwrap();
    assert_eq!(*left.lock().unwrap(), [8]);
    assert!(tracker.is_empty());
}

/// A call that makes room wakes the task after it has unpinned, and a round of the driver after it
/// has left every shard: in the waker a flush waits for no pin, and a poll ends what is due.
fn wakes_outside(what: &str, by: fn(&ExpiringMap<u64, u64>, &ManualClock)) {
    wakes_outside_beside(None, what, by);
}

/// As [`wakes_outside`]. The first eviction's listener inserts this key, if any, or replaces its
/// value.
fn wakes_outside_beside(
    key: Option<u64>,
    what: &str,
    by: fn(&ExpiringMap<u64, u64>, &ManualClock),
) {
    let clock = ManualClock::new();
    let mut builder = ExpiringMap::builder().interval(SECOND).clock(clock.clone());
    let listening = Arc::new(OnceLock::<Weak<ExpiringMap<u64, u64>>>::new());
    if let Some(key) = key {
        let (listened, first) = (listening.clone(), AtomicBool::new(true));
        builder = builder.removal_listener(move |_, _, cause| {
            if cause == RemovalCause::Size && first.swap(false, Ordering::Relaxed) {
                let map = listened.get().unwrap().upgrade().unwrap();
                drop(map.insert(key, 4).unwrap());
            }
        });
    }
    let builder = builder.max_weight(12, |_, value: &u64| u32::try_from(*value).unwrap());
    let map = Arc::new(builder.time_to_live(SECOND).build_manual().unwrap());
    listening.set(Arc::downgrade(&map)).unwrap();
    (0..3).for_each(|key| drop(map.insert(key, 4).unwrap()));
    let (theirs, found) = (map.clone(), Arc::new(Mutex::new(Vec::new())));
    let (finds, passes) = (found.clone(), clock.clone());
    let wakes = waker(move || {
        theirs.insert(8, 1).unwrap();
        drop(theirs.remove(&8));
        let unpinned = theirs.flush(Duration::ZERO);
        theirs.insert(9, 1).unwrap();
        passes.advance(3 * SECOND);
        theirs.poll(usize::MAX);
        finds.lock().unwrap().push((unpinned, theirs.is_empty()));
    });
    let mut room = map.room();
    assert!(poll_with(&mut room, &wakes).is_pending());
    by(&map, &clock);
    let found = found.lock().unwrap();
    assert!(found.len() == 1 && found[0] == (true, true), "{what}: unpinned, away: {found:?}");
}

#[test]
fn a_waker_runs_unpinned_and_away_from_shards() {
    wakes_outside("remove", |map, _| drop(map.remove(&1)));
    wakes_outside("remove_if", |map, _| drop(map.remove_if(&1, |_, _| true)));
    wakes_outside("retain", |map, _| map.retain(|&key, _| key != 1));
    wakes_outside("clear", |map, _| map.clear());
    wakes_outside("insert", |map, _| drop(map.insert(1, 1).unwrap()));
    wakes_outside("upsert", |map, _| map.upsert(1, |_| (1, ())).unwrap());
    wakes_outside("compute", |map, _| drop(map.compute(1, |_| Compute::Put(1)).unwrap()));
    wakes_outside("entry", |map, _| match map.entry(1) {
        Entry::Occupied(entry) => drop(entry.insert(1).unwrap()),
        Entry::Vacant(_) => unreachable!("the key has a value"),
    });
    // Each evicts an entry that is heavier than what it puts in.
    wakes_outside("insertion beyond", |map, _| drop(map.insert(7, 1).unwrap()));
    wakes_outside("entry beyond", |map, _| drop(map.entry(7).or_insert_with(|| 1).unwrap()));
    wakes_outside("computing beyond", |map, _| drop(map.compute(7, |_| Compute::Put(1)).unwrap()));
    wakes_outside("wider bound", |map, _| map.set_max_weight(20).unwrap());
    wakes_outside("expiry", |map, clock| {
        clock.advance(3 * SECOND);
        map.poll(usize::MAX);
    });
}

/// A call that has made room and finds that it needs none gives the room back unpinned.
#[test]
fn room_made_in_vain_wakes_unpinned() {
    wakes_outside_beside(Some(7), "or_insert", |map, _| {
        assert_eq!(*map.entry(7).or_insert_with(|| 4).unwrap(), 4);
    });
    wakes_outside_beside(Some(7), "compute", |map, _| {
        let put = map.compute(7, |now| now.map_or(Compute::Put(4), |_| Compute::Keep));
        drop(put.unwrap());
    });
    wakes_outside_beside(Some(1), "entry", |map, _| match map.entry(1) {
        Entry::Occupied(entry) => {
            assert_eq!(entry.insert(8).unwrap_err().error, StoreError::Changed);
        }
        Entry::Vacant(_) => unreachable!("the key has a value"),
    });
}

/// What ends the one entry of a full store wakes the task that waits for its room, once.
#[track_caller]
fn makes_room(mut room: CapacityReady<'_>, ends: impl FnOnce()) {
    let task = Task::new();
    assert!(task.poll(&mut room).is_pending());
    ends();
    assert_eq!((task.woken(), task.poll(&mut room)), (1, READY));
}

#[test]
fn trackers_have_room_when_roots_end() {
    let clock = ManualClock::new();
    let builder = AckTracker::builder().capacity(1).clock(clock.clone());
    let tracker = builder.timeout(SECOND).build_manual().unwrap();
    let chosen = |id: u64| tracker.init(id, edge(), 0).map(|()| id.into());
    let issued = |_| tracker.issue(edge(), 0).map(expiry::RootId::from);
    for round in 0..20 {
        let root = if round % 2 == 0 { chosen(round) } else { issued(round) };
        let root = root.unwrap();
        assert_eq!(tracker.issue(edge(), 0), Err(AckError::Full));
        makes_room(tracker.room(), || {
            if round % 4 < 2 {
                tracker.fail(root).unwrap();
            } else {
                clock.advance(2 * SECOND);
                while tracker.poll(1000).more {}
            }
        });
    }
}

#[test]
fn each_store_has_room_when_an_entry_ends() {
    let clock = ManualClock::new();
    let queue = ExpiryQueue::builder().capacity(1).clock(clock.clone()).build_manual().unwrap();
    enter(&queue, 0);
    makes_room(queue.room(), || {
        clock.advance(2 * SECOND);
        assert_eq!(queue.poll().len(), 1);
    });

    let map = ExpiringMap::builder().capacity(1).build_manual().unwrap();
    map.insert(1_u64, 1_u64).unwrap();
    makes_room(map.room(), || drop(map.remove(&1)));
    map.insert(1, 1).unwrap();
    let (task, mut room) = (Task::new(), map.room());
    assert!(task.poll(&mut room).is_pending());
    map.insert(1, 2).unwrap(); // in its place
    assert!(task.poll(&mut room).is_pending());

    let sessions = SessionTracker::builder().capacity(1).build_manual().unwrap();
    let session = sessions.create(10 * SECOND, 7).unwrap();
    makes_room(sessions.room(), || _ = sessions.remove(session.id()));

    let timeouts = Timeouts::builder().capacity(1).build_manual().unwrap();
    let mut sleep = timeouts.sleep(SECOND);
    assert!(task.poll(&mut sleep).is_pending());
    makes_room(timeouts.room(), || drop(sleep));

    let table = PendingTable::builder().capacity(1).build_manual().unwrap();
    let ticket = table.insert(1_u64, SECOND).unwrap();
    makes_room(table.room(), || _ = table.take(ticket));
    table.insert(2, SECOND).unwrap();
    let mut room = table.room();
    assert!(task.poll(&mut room).is_pending());
    assert_eq!(task.block_on(Box::pin(table.shutdown_async())), [2]);
    assert_eq!(task.poll(&mut room), Poll::Ready(Err(Closed)));
}

/// Many tasks take turns at few slots: each gets all of its turns.
fn turns(runtime: &tokio::runtime::Runtime) {
    const TASKS: u64 = 64;
    const TURNS: u64 = 100;
    let builder = ExpiryQueue::<u64>::builder().capacity(3);
    let queue = Arc::new(builder.clock(ManualClock::new()).build_manual().unwrap());
    let entered = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (queue, entered) = (queue.clone(), entered.clone());
            runtime.spawn(async move {
                for turn in 0..TURNS {
                    let key = task * TURNS + turn;
                    loop {
                        match queue.update(key, SECOND) {
                            Err(StoreError::Full) => queue.room().await.unwrap(),
                            done => {
                                done.unwrap();
                                break;
                            }
                        }
                    }
                    let before = entered.fetch_add(1, Ordering::SeqCst);
                    assert!(before < 3);
                    tokio::task::yield_now().await;
                    entered.fetch_sub(1, Ordering::SeqCst);
                    assert!(queue.remove(&key).is_some());
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    assert!(queue.is_empty());
}

#[test]
fn all_get_their_turns_under_tokio() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    turns(&builder.worker_threads(2).build().unwrap());
}

#[test]
fn all_get_their_turns_on_one_thread() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    turns(&builder.build().unwrap());
}

/// Keys of one hash. Comparing two runs what a test has left in [`ASKED`], the last one first.
#[derive(Debug)]
struct Alike(u64);

type Asked = Vec<Box<dyn FnOnce()>>;

thread_local!(static ASKED: RefCell<Asked> = const { RefCell::new(Vec::new()) });

impl PartialEq for Alike {
    fn eq(&self, other: &Self) -> bool {
        let asked = ASKED.with_borrow_mut(Vec::pop);
        asked.into_iter().for_each(|asked| asked());
        self.0 == other.0
    }
}

impl Eq for Alike {}

impl Hash for Alike {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(0);
    }
}

/// An insertion has claimed the last slot when it finds that another one has just put in its key.
/// It replaces that value, and the slot that it does not need goes to the task that waits.
#[test]
fn an_insertion_that_was_overtaken_wakes_who_waits_for_its_slot() {
    let builder = PendingMap::builder().capacity(3).clock(ManualClock::new());
    let map: &PendingMap<Alike, u64> = Box::leak(Box::new(builder.build_manual().unwrap()));
    map.insert(Alike(0), 0, SECOND).unwrap();
    let (task, mut room) = (Task::new(), map.room());
    let waits = task.clone();
    let overtakes = move || {
        map.insert(Alike(1), 1, SECOND).unwrap();
        assert!(waits.poll(&mut room).is_pending());
        std::mem::forget(room);
    };
    // Two looks find no such key; the third is that of the publication.
    ASKED.set(vec![Box::new(overtakes), Box::new(|| {}), Box::new(|| {})]);
    assert_eq!(map.insert(Alike(1), 2, SECOND).unwrap(), Some(1));
    assert_eq!((map.len(), task.woken()), (2, 1));
}
