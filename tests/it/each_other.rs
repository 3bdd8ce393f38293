//! Stores whose handlers shut each other down. A thread that is inside a handler, a listener or a
//! waker of any store waits for no other store, so every pair comes to its end.

use crate::support::{poll_with, wait_for, waker, GENEROUS, HOUR, MS};
use expiry::{
    edge, AckTracker, ExpiringMap, ExpiryQueue, ManualClock, Outcome, PendingMap, PendingTable,
    RemovalCause, SessionInfo, SessionTracker, ShutdownMode, Timeouts, WhenFull,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Barrier, OnceLock};
use std::time::Duration;

/// What the end of the first entry calls.
type Event = Arc<dyn Fn() + Send + Sync>;

/// A store of which one entry ends soon and another one would live for an hour.
struct Subject {
    shut: Box<dyn Fn() + Send + Sync>,
    /// Whether nothing is left and nothing comes in.
    is_down: Box<dyn Fn() -> bool + Send + Sync>,
    /// Drives it, where it has no reaper.
    poll: Box<dyn Fn() + Send + Sync>,
}

/// What the tests do to one store: it has to be cloned for each of the three.
macro_rules! subject {
    ($store:ident, $shut:expr, $is_down:expr, $poll:expr) => {{
        let (shut, polled) = ($store.clone(), $store.clone());
        let store = $store;
        Subject {
            shut: Box::new(move || _ = $shut(&shut)),
            is_down: Box::new(move || store.is_empty() && $is_down(&store)),
            poll: Box::new(move || _ = $poll(&polled)),
        }
    }};
}

fn acks_of(tracker: AckTracker, polled: bool) -> Subject {
    tracker.issue(edge(), 1).unwrap();
    tracker.issue_for(edge(), 2, MS).unwrap();
    subject!(
        tracker,
        |it: &AckTracker| it.shutdown(ShutdownMode::Return),
        |it: &AckTracker| it.issue(edge(), 1).is_err(),
        |it: &AckTracker| polled.then(|| it.poll(1000))
    )
}

fn acks(event: Event, polled: bool) -> Subject {
    let handler = move |outcome: Outcome| {
        if outcome.is_timed_out() {
            event();
        }
    };
    let builder = AckTracker::builder().timeout(HOUR).interval(MS).on_outcome(handler);
    let tracker = if polled { builder.build_manual() } else { builder.build() };
    acks_of(tracker.unwrap(), polled)
}

/// Its event is the waker of a task that waits for an outcome in the channel.
fn acks_with_a_channel(event: Event) -> Subject {
    let builder = AckTracker::builder().timeout(HOUR).interval(MS);
    let (tracker, outcomes) = builder.build_manual_with_channel(8, WhenFull::Wait).unwrap();
    let mut outcomes = outcomes.into_stream();
    let mut next = Box::pin(async move { outcomes.recv().await });
    assert!(poll_with(&mut next, &waker(move || event())).is_pending());
    std::mem::forget(next);
    acks_of(tracker, true)
}

fn queue(event: Event) -> Subject {
    let builder = ExpiryQueue::builder().interval(MS);
    let queue = builder.expiry_listener(move |_: &u64| event()).build().unwrap();
    queue.update(1, HOUR).unwrap();
    queue.update(2, MS).unwrap();
    type Queue = ExpiryQueue<u64>;
    subject!(queue, Queue::shutdown, |it: &Queue| it.update(7, HOUR).is_err(), |_| ())
}

fn table(event: Event, polled: bool) -> Subject {
    let builder = PendingTable::builder().expiry_listener(move |_: u64| event());
    let table = if polled { builder.build_manual() } else { builder.build() }.unwrap();
    table.insert(1, HOUR).unwrap();
    table.insert(2, MS).unwrap();
    type Table = PendingTable<u64>;
    subject!(table, Table::shutdown, |it: &Table| it.insert(7, HOUR).is_err(), |it: &Table| polled
        .then(|| it.poll()))
}

fn pending_map(event: Event) -> Subject {
    let builder = PendingMap::builder().interval(MS);
    let map = builder.expiry_listener(move |_: &u64, _: u64| event()).build().unwrap();
    map.insert(1, 1, HOUR).unwrap();
    map.insert(2, 2, MS).unwrap();
    type Map = PendingMap<u64, u64>;
    subject!(map, Map::shutdown, |it: &Map| it.insert(7, 7, HOUR).is_err(), |_| ())
}

fn sessions(event: Event) -> Subject {
    let builder = SessionTracker::builder().interval(MS);
    let sessions = builder.expiry_listener(move |_: SessionInfo| event()).build().unwrap();
    sessions.create(HOUR, 1).unwrap();
    sessions.create(MS, 2).unwrap();
    let is_down = |it: &SessionTracker| it.create(HOUR, 7).is_err();
    subject!(sessions, SessionTracker::shutdown, is_down, |_| ())
}

fn map(event: Event, polled: bool) -> Subject {
    let listener = move |_: &u64, _: &u64, cause| {
        if cause == RemovalCause::Expired {
            event();
        }
    };
    let builder = ExpiringMap::builder().interval(MS).removal_listener(listener);
    let map = if polled { builder.build_manual() } else { builder.build() }.unwrap();
    map.insert(1, 1).unwrap();
    map.insert_for(2, 2, MS).unwrap();
    type Map = ExpiringMap<u64, u64>;
    subject!(map, Map::shutdown, |it: &Map| it.insert(7, 7).is_err(), |it: &Map| polled
        .then(|| it.poll(1000)))
}

fn timeouts(event: Event) -> Subject {
    let timeouts = Timeouts::builder().interval(MS).build_manual().unwrap();
    let lent: &'static Timeouts = Box::leak(Box::new(timeouts.clone()));
    for (after, waker) in [(HOUR, waker(|| ())), (MS, waker(move || event()))] {
        let sleep = Box::leak(Box::new(lent.sleep(after)));
        assert!(poll_with(sleep, &waker).is_pending());
    }
    subject!(
        timeouts,
        Timeouts::shutdown,
        |it: &Timeouts| poll_with(&mut it.sleep(HOUR), &waker(|| ())).is_ready(),
        |it: &Timeouts| it.poll(1000)
    )
}

type Make = fn(Event) -> Subject;

const KINDS: [(&str, Make); 11] = [
    ("tracker", |event| acks(event, false)),
    ("polled tracker", |event| acks(event, true)),
    ("tracker with a channel", acks_with_a_channel),
    ("queue", queue),
    ("sessions", sessions),
    ("table", |event| table(event, false)),
    ("polled table", |event| table(event, true)),
    ("pending map", pending_map),
    ("map", |event| map(event, false)),
    ("polled map", |event| map(event, true)),
    ("timeouts", timeouts),
];

/// Builds two stores. The event of each shuts the other one down, at the same time.
fn pair(makes: [Make; 2]) {
    let meet = Arc::new(Barrier::new(2));
    let stores: Arc<[OnceLock<Subject>; 2]> = Arc::default();
    let (told, events) = mpsc::channel();
    for at in [0, 1] {
        let (meet, other, told) = (meet.clone(), stores.clone(), told.clone());
        let event: Event = Arc::new(move || {
            meet.wait();
            wait_for("the other store", || other[1 - at].get().is_some());
            (other[1 - at].get().unwrap().shut)();
            told.send(()).unwrap();
        });
        assert!(stores[at].set(makes[at](event)).is_ok());
    }
    let done = || stores.iter().all(|store| (store.get().unwrap().is_down)());
    std::thread::scope(|scope| {
        for store in stores.iter() {
            scope.spawn(|| {
                wait_for("both to be down", || {
                    (store.get().unwrap().poll)();
                    done()
                })
            });
        }
    });
    assert_eq!(events.try_iter().count(), 2);
}

#[test]
fn stores_that_shut_each_other_down_come_to_their_end() {
    for (nth, (one, first)) in KINDS.into_iter().enumerate() {
        for (other, second) in &KINDS[nth..] {
            let (sender, done) = mpsc::channel();
            let second = *second;
            std::thread::spawn(move || {
                pair([first, second]);
                let _ = sender.send(());
            });
            let ended = done.recv_timeout(2 * GENEROUS);
            assert!(ended.is_ok(), "{one} and {other}: {ended:?}");
        }
    }
}

/// The clock has jumped by years, and a touch in each of two threads ends what is due. The listener
/// of each map touches the other map, whose shard the other thread drives.
#[test]
fn listeners_that_touch_each_others_maps_after_a_jump_of_years_come_to_their_end() {
    let clock = ManualClock::new();
    let meet = Arc::new(Barrier::new(2));
    let maps: Arc<[OnceLock<ExpiringMap<u64, u64>>; 2]> = Arc::default();
    for at in [0, 1] {
        let (meet, other) = (meet.clone(), maps.clone());
        let listener = move |_: &u64, _: &u64, _| {
            meet.wait();
            assert!(other[1 - at].get().unwrap().touch(&2));
        };
        let builder = ExpiringMap::builder().interval(MS).shards(1);
        let builder = builder.clock(clock.clone()).removal_listener(listener);
        let map = maps[at].get_or_init(|| builder.build_manual().unwrap());
        map.insert_for(1, 1, MS).unwrap();
        map.insert(2, 2).unwrap();
    }
    clock.advance(Duration::from_secs(3600 * 24 * 365 * 10));
    let (sender, done) = mpsc::channel();
    for at in [0, 1] {
        let (maps, sender) = (maps.clone(), sender.clone());
        std::thread::spawn(move || {
            let touched = maps[at].get().unwrap().touch_for(&2, HOUR);
            sender.send(touched).unwrap();
        });
    }
    for _ in 0..2 {
        assert_eq!(done.recv_timeout(GENEROUS), Ok(Ok(true)), "they wait for each other");
    }
}

/// Three threads poll, a listener of another store shuts the store down, and then this thread does.
/// Its shutdown returns what the first one has left to the polling threads: nothing is lost or
/// comes later.
fn the_next_shutdown_returns_all<S: Sync>(
    make: impl Fn() -> S,
    poll: impl Fn(&S) -> usize + Sync,
    shut: impl Fn(&S) -> usize + Sync,
) {
    let (mut late, mut lost) = (0, 0);
    for _ in 0..100 {
        let store = make();
        let (polled, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let returned = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !over.load(SeqCst) {
                        polled.fetch_add(poll(&store), SeqCst);
                    }
                });
            }
            std::thread::yield_now();
            // As a listener of any other store would.
            let inside = expiry::inside(|| shut(&store));
            let returned = inside + shut(&store);
            over.store(true, SeqCst);
            returned
        });
        let came = returned + polled.load(SeqCst);
        let later = shut(&store);
        late += usize::from(later > 0);
        lost += usize::from(came + later < 200);
    }
    assert_eq!((late, lost), (0, 0), "of 100 rounds: late, lost");
}

#[test]
fn the_shutdown_after_one_in_a_listener_returns_all() {
    let sessions = || {
        let sessions = SessionTracker::builder().interval(MS).build_manual().unwrap();
        (0..200).for_each(|owner| assert!(sessions.create(HOUR, owner).is_ok()));
        sessions
    };
    the_next_shutdown_returns_all(sessions, |it| it.poll().len(), |it| it.shutdown().len());
    let queue = || {
        let queue = ExpiryQueue::builder().interval(MS).build_manual().unwrap();
        (0..200u64).for_each(|key| assert!(queue.update(key, HOUR).is_ok()));
        queue
    };
    the_next_shutdown_returns_all(queue, |it| it.poll().len(), |it| it.shutdown().len());
    let tracker = || {
        let tracker = AckTracker::builder().timeout(HOUR).build_manual().unwrap();
        (0..200).for_each(|owner| assert!(tracker.issue(edge(), owner).is_ok()));
        tracker
    };
    let poll = |it: &AckTracker| {
        it.poll(1000);
        0
    };
    the_next_shutdown_returns_all(tracker, poll, |it| it.shutdown(ShutdownMode::Return).len());
}

/// The thread that reads the channel may be the one that waits for that listener.
#[test]
fn a_listener_of_another_store_does_not_wait_for_room() {
    let clock = ManualClock::new();
    macro_rules! built {
        ($store:ident) => {{
            let builder = $store::builder().interval(MS).clock(clock.clone());
            builder.build_manual_with_channel(1, WhenFull::Wait).unwrap()
        }};
    }
    let (tracker, outcomes) = built!(AckTracker);
    let roots: Vec<_> = (0..5).map(|owner| tracker.issue(edge(), owner).unwrap()).collect();
    let (map, removals) = built!(ExpiringMap);
    let (queue, expired) = built!(ExpiryQueue);
    let (table, overdue) = built!(PendingTable);
    let (pending, unanswered) = built!(PendingMap);
    let (sessions, ended) = built!(SessionTracker);
    for key in 0..5u64 {
        map.insert(key, key).unwrap();
        queue.update(key, MS).unwrap();
        table.insert(key, MS).unwrap();
        pending.insert(key, key, MS).unwrap();
        sessions.create(MS, key).unwrap();
    }
    clock.advance(2 * MS);
    let other = ExpiringMap::<u64, u64>::builder().removal_listener(move |_, _, _| {
        for &root in &roots {
            tracker.fail(root).unwrap();
        }
        (0..5).for_each(|key| drop(map.remove(&key)));
        assert!(queue.poll().is_empty());
        assert!(table.poll().is_empty());
        assert!(pending.poll().is_empty());
        assert!(sessions.poll().is_empty());
        let spilled = [
            tracker.metrics().spilled,
            map.metrics().spilled,
            queue.metrics().spilled,
            table.metrics().spilled,
            pending.metrics().spilled,
            sessions.metrics().spilled,
        ];
        assert_eq!(spilled, [4; 6]);
    });
    let other = other.build_manual().unwrap();
    other.insert(0, 0).unwrap();
    drop(other.remove(&0));
    assert_eq!(other.metrics().listener_panics, 0);
    let told = [outcomes.len(), removals.len(), expired.len(), overdue.len()];
    assert_eq!((told, unanswered.len(), ended.len()), ([5; 4], 5, 5));
}
