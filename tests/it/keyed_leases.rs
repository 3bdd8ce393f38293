//! What stores promise of their leases: a renewal that was reported holds, and an entry lives for
//! its full lifetime after the call that has put it in. What trackers promise beyond that is in
//! `tracker_leases.rs`.

use crate::rig;
use crate::support::clocks;
use crate::support::{HOUR, MS, SECOND};

use clocks::{Delayed, Lagging, LAG, LAGS};
use expiry::expiring_map::Entry;
use expiry::{AckTracker, Clock, ExpiringMap, ExpiryQueue, ManualClock, SessionId, SessionTracker};
use expiry::{Lifetime, Lifetimes, RootId, Updated};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

macro_rules! kinds {
    ($($(#[$about:meta])* $kind:ident,)*) => {
        /// The calls that renew a lease.
        #[derive(Debug, Clone, Copy, PartialEq)]
        enum Kind {
            $($(#[$about])* $kind,)*
        }

        use Kind::*;

        const ALL: &[Kind] = &[$($kind,)*];
    };
}

kinds! {
    QueueTouch,
    QueueTouchBy,
    QueueUpdate,
    MapTouch,
    MapTouchWith,
    /// Of a map with a time to idle that is longer, so that the time to live decides.
    MapTouchBound,
    MapTouchWithBound,
    /// Of a map with a time to idle, which decides.
    MapTouchIdle,
    MapGetIdle,
    SessionTouch,
    SessionTouchFor,
    SessionTouchBy,
    SessionTouchByFor,
    SessionTrack,
    SessionBatch,
    /// Of a tracker that collects touches.
    CollectedTouchFor,
    CollectedTouchByFor,
    ResetIssued,
    ResetChosen,
    /// Of a chosen root of which the first signs have come only.
    ResetEarly,
}

impl Kind {
    /// Whether the caller says for how long. (It does so for early signs too, of which no test asks
    /// for less or more.)
    fn chooses(self) -> bool {
        !matches!(
            self,
            MapTouch
                | MapTouchBound
                | MapTouchIdle
                | MapGetIdle
                | SessionTouch
                | SessionTouchBy
                | ResetEarly
        )
    }
}

/// One entry, with a lifetime of 100 s.
struct Subject {
    /// Renews it, for so long if the call chooses. False if it has ended.
    renew: Box<dyn Fn(Duration) -> bool + Send + Sync>,
    /// Whether it is there, after a poll.
    is_there: Box<dyn Fn() -> bool + Send + Sync>,
}

const TIME: Duration = Duration::from_secs(100);

fn subject(kind: Kind, interval: Duration, clock: impl Clock) -> Arc<Subject> {
    Arc::new(match kind {
        QueueTouch | QueueTouchBy | QueueUpdate => queue(kind, interval, clock),
        MapTouch | MapTouchWith | MapTouchBound | MapTouchWithBound | MapTouchIdle | MapGetIdle => {
            map(kind, interval, clock)
        }
        ResetIssued | ResetChosen | ResetEarly => tracker(kind, interval, clock),
        _ => sessions(kind, interval, clock),
    })
}

fn queue(kind: Kind, interval: Duration, clock: impl Clock) -> Subject {
    let builder = ExpiryQueue::builder().interval(interval).clock(clock);
    let queue = Arc::new(builder.build_manual().unwrap());
    let Updated::Inserted { handle, .. } = queue.update(1_u64, TIME).unwrap() else {
        unreachable!("it is new")
    };
    let same = queue.clone();
    Subject {
        renew: Box::new(move |time| match kind {
            QueueTouch => queue.touch(&1, time).unwrap(),
            QueueTouchBy => queue.touch_by(handle, time).unwrap(),
            _ => !matches!(queue.update(1, time).unwrap(), Updated::Inserted { .. }),
        }),
        is_there: Box::new(move || {
            drop(same.poll());
            same.contains(&1)
        }),
    }
}

fn map(kind: Kind, interval: Duration, clock: impl Clock) -> Subject {
    let builder = ExpiringMap::builder().interval(interval).clock(clock);
    let builder = match kind {
        MapTouch | MapTouchWith => builder.time_to_live(TIME),
        MapTouchBound | MapTouchWithBound => builder.time_to_live(TIME).time_to_idle(9 * TIME),
        _ => builder.time_to_live(9 * TIME).time_to_idle(TIME),
    };
    let map = Arc::new(builder.build_manual().unwrap());
    map.insert(1_u64, ()).unwrap();
    let same = map.clone();
    Subject {
        renew: Box::new(move |time| match kind {
            MapTouch | MapTouchBound | MapTouchIdle => map.touch(&1),
            MapGetIdle => map.get(&1).is_some(),
            _ => map.touch_for(&1, time).unwrap(),
        }),
        is_there: Box::new(move || {
            while same.poll(1000).more {}
            same.contains_key(&1)
        }),
    }
}

fn tracker(kind: Kind, interval: Duration, clock: impl Clock) -> Subject {
    let builder = AckTracker::builder().timeout(TIME).early_timeout(TIME);
    let tracker = Arc::new(builder.interval(interval).clock(clock).build_manual().unwrap());
    let root: RootId = match kind {
        ResetIssued => tracker.issue(7, 42).unwrap().into(),
        _ => 1_u64.into(),
    };
    match kind {
        ResetChosen => tracker.init(1, 7, 42).unwrap(),
        ResetEarly => drop(tracker.ack(root, 1).unwrap()),
        _ => {}
    }
    let same = tracker.clone();
    Subject {
        renew: Box::new(move |time| tracker.reset_timeout_for(root, time).is_ok()),
        is_there: Box::new(move || {
            while same.poll(1000).more {}
            !same.is_empty()
        }),
    }
}

fn sessions(kind: Kind, interval: Duration, clock: impl Clock) -> Subject {
    let builder =
        SessionTracker::builder().interval(interval).maximum_timeout(9 * TIME).clock(clock);
    let builder = match kind {
        CollectedTouchFor | CollectedTouchByFor => builder.collect_touches(),
        _ => builder,
    };
    let sessions = Arc::new(builder.build_manual().unwrap());
    let session = sessions.create(TIME, 7).unwrap();
    let id: SessionId = session.id();
    let same = sessions.clone();
    Subject {
        renew: Box::new(move |time| {
            let touched = match kind {
                SessionTouch => sessions.touch(id),
                SessionTouchFor | CollectedTouchFor => sessions.touch_for(id, time),
                SessionTouchBy => sessions.touch_by(&session),
                SessionTouchByFor | CollectedTouchByFor => sessions.touch_by_for(&session, time),
                SessionBatch => sessions.touch_many(&[(id, time)])[0],
                _ => {
                    let tracked = sessions.track(id, time, 7).unwrap();
                    return matches!(tracked, expiry::Tracked::Renewed(..));
                }
            };
            touched.is_ok()
        }),
        is_there: Box::new(move || {
            drop(same.poll());
            same.contains(id)
        }),
    }
}

/// How long the subject is there from now on, in steps of a second.
fn rest(subject: &Subject, clock: &ManualClock) -> Duration {
    let mut rest = Duration::ZERO;
    while (subject.is_there)() {
        clock.advance(SECOND);
        rest += SECOND;
        assert!(rest <= 10 * TIME, "it does not expire");
    }
    rest
}

/// A renewal, with `mine` as its timeout, is held up at each of its clock readings in turn.
/// Meanwhile five seconds go by and another thread renews the entry for each of `others`, which is
/// reported. What is left of the entry when both are done.
fn left_after(kind: Kind, mine: Duration, others: &[Duration]) -> Vec<Duration> {
    let mut left = Vec::new();
    for readings in 0.. {
        let clock = Delayed::default();
        let subject = subject(kind, SECOND, clock.clone());
        let (theirs, passing, others) = (subject.clone(), clock.clone(), others.to_vec());
        clock.after(readings, move || {
            passing.clock.advance(5 * SECOND);
            for other in others {
                assert!((theirs.renew)(other));
            }
        });
        assert!((subject.renew)(mine));
        if !clock.has_been() {
            break;
        }
        left.push(rest(&subject, &clock.clock));
    }
    left
}

#[test]
fn a_delayed_renewal_shortens_nothing_that_was_renewed_meanwhile() {
    for &kind in ALL {
        let left = left_after(kind, TIME, &[TIME]);
        assert!(!left.is_empty());
        assert!(left.iter().all(|&left| left == TIME), "{kind:?}: {left:?}");
    }
}

/// The same where the entry had been renewed before in this interval, and the first renewal finds
/// nothing to do.
#[test]
fn a_delayed_renewal_that_would_change_nothing_shortens_nothing() {
    for &kind in ALL {
        for readings in 0.. {
            let clock = Delayed::default();
            let subject = subject(kind, SECOND, clock.clone());
            assert!((subject.renew)(TIME));
            let (theirs, passing) = (subject.clone(), clock.clone());
            clock.after(readings, move || {
                for _ in 0..3 {
                    passing.clock.advance(2 * SECOND);
                    assert!((theirs.renew)(TIME));
                }
            });
            assert!((subject.renew)(TIME));
            if !clock.has_been() {
                assert!(readings > 0);
                break;
            }
            assert_eq!(rest(&subject, &clock.clock), TIME, "{kind:?}, {readings}");
        }
    }
}

/// A call that asked for less, and looked at the lease before it was renewed for longer, came
/// first; also if the lease has come back to the tick that the call saw.
#[test]
fn a_delayed_renewal_for_less_shortens_nothing_that_was_renewed_meanwhile() {
    // The five seconds that have gone by.
    let back = TIME - 5 * SECOND;
    let renewals: [&[Duration]; 3] = [&[2 * TIME], &[TIME / 2, back], &[2 * TIME, back]];
    let kinds = ALL.iter().copied().filter(|kind| kind.chooses());
    for (kind, others) in kinds.flat_map(|kind| renewals.map(|others| (kind, others))) {
        let left = left_after(kind, TIME / 10, others);
        // The time to live of an entry with a time to idle is a word of its own, which the call
        // looks at after its first reading. And `track` reads the clock for an insertion before it
        // looks: such a call came last, and counts from a later reading.
        let came_last = |at| matches!(kind, MapTouchWithBound | SessionTrack) && at == 0;
        for (at, left) in left.iter().enumerate() {
            let is_last = came_last(at) && *left == TIME / 10;
            assert!(is_last || Some(left) == others.last(), "{kind:?}, {at}: {left:?}");
        }
        assert!(left.len() > usize::from(came_last(0)), "{kind:?}");
    }
}

/// What asks for more and was delayed counts from when it was through.
#[test]
fn a_delayed_renewal_for_more_is_the_last_one() {
    for kind in ALL.iter().copied().filter(|kind| kind.chooses()) {
        let left = left_after(kind, 3 * TIME, &[2 * TIME]);
        // That word is set before the call's last reading: the other call came last then, and was
        // no shorter for it.
        let came_first = |at| kind == MapTouchWithBound && at + 1 == left.len();
        for (at, &left) in left.iter().enumerate() {
            let is_first = came_first(at) && left == 2 * TIME;
            let is_last = left >= 3 * TIME - 5 * SECOND;
            assert!(is_first || is_last, "{kind:?}, {at}: {left:?}");
        }
    }
}

/// An update that lost to another one, and then slept, reports no later expiry than the key has.
#[test]
fn a_delayed_update_reports_no_later_expiry_than_the_key_has() {
    type Act = Box<dyn FnOnce()>;
    thread_local!(static AFTER: RefCell<VecDeque<Act>> = const { RefCell::new(VecDeque::new()) });
    /// After each reading of a thread comes what that thread has planned next.
    struct Planned(ManualClock);
    impl Clock for Planned {
        fn now(&self) -> u64 {
            let now = self.0.now();
            if let Some(act) = AFTER.with_borrow_mut(VecDeque::pop_front) {
                act();
            }
            now
        }
    }
    for readings in 0..8 {
        let clock = ManualClock::new();
        let builder = ExpiryQueue::builder().interval(SECOND).clock(Planned(clock.clone()));
        let queue = Arc::new(builder.build_manual().unwrap());
        queue.update(1_u64, 100 * SECOND).unwrap();
        let (other, later) = (queue.clone(), clock.clone());
        let renew: Act = Box::new(move || {
            thread::spawn(move || other.update(1, 50 * SECOND).unwrap()).join().unwrap();
        });
        let sleep: Act = Box::new(move || later.advance(200 * SECOND));
        let wait = std::iter::repeat_with(|| Box::new(|| ()) as Act).take(readings);
        AFTER.set([renew].into_iter().chain(wait).chain([sleep]).collect());
        let updated = queue.update(1, SECOND).unwrap();
        AFTER.take();
        let (has, _) = queue.get(&1).unwrap();
        let Updated::Renewed { expiry } = updated else { panic!("{updated:?}") };
        assert!(expiry <= has, "{readings} readings: {expiry:?} was reported, it has {has:?}");
    }
}

/// The cheap reading of one thread may be older than the one that another thread took before it.
/// Two renewals for the same time: the later one does not take back what the earlier one has
/// returned.
#[test]
fn a_thread_whose_clock_lags_shortens_nothing() {
    let interval = 4 * LAG;
    for &kind in ALL {
        // Wherever in an interval it is.
        for step in 0..8 {
            let clock = Lagging(ManualClock::new());
            clock.0.advance(SECOND);
            let subject = subject(kind, interval, clock.clone());
            let now = SECOND / 2 + step * LAG / 2;
            clock.0.advance(now);
            assert!((subject.renew)(TIME));
            thread::scope(|scope| {
                scope.spawn(|| {
                    LAGS.set(true);
                    assert!((subject.renew)(TIME));
                });
            });
            // The first renewal has had this deadline, counted from when the store was built.
            let due = (now + LAG + TIME).as_nanos().div_ceil(interval.as_nanos());
            let due = interval * u32::try_from(due).unwrap();
            clock.0.advance(due - now - Duration::from_nanos(1));
            assert!((subject.is_there)(), "{kind:?}, step {step}");
            clock.0.advance(interval);
            assert!(!(subject.is_there)(), "{kind:?}, step {step}: not for ever");
        }
    }
}

// ---- fault 8: calls that are slow because of the listeners that they call ----

type Slow = ExpiringMap<u64, u64>;

/// A map whose listener takes a minute for each entry that has expired while the thread is in a
/// call of [`PUTS`]. Its entries live for ten seconds.
fn slow(capacity: usize, interval: Duration) -> (Slow, ManualClock) {
    let clock = ManualClock::new();
    let passing = clock.clone();
    let map = ExpiringMap::builder()
        .time_to_live(10 * SECOND)
        .interval(interval)
        .shards(1)
        .capacity(capacity)
        .clock(clock.clone())
        .removal_listener(move |_: &u64, _: &u64, cause| {
            if cause == expiry::RemovalCause::Expired && IN_CALL.get() {
                CALLED.set(true);
                passing.advance(60 * SECOND);
            }
        })
        .build_manual()
        .unwrap();
    (map, clock)
}

/// A call that puts key 1 in, to live for ten seconds.
type Puts = fn(&Slow, &ManualClock);

const PUTS: [(&str, Puts); 9] = [
    ("insert", |map, _| {
        assert!(map.insert(1, 2).unwrap().is_none());
    }),
    ("insert_for", |map, _| {
        assert!(map.insert_for(1, 2, 10 * SECOND).unwrap().is_none());
    }),
    ("insert_for a time to idle alone", |map, _| {
        let lifetime = Lifetimes::new().idle(10 * SECOND);
        let lifetime = lifetime.live(Lifetime::Never);
        assert!(map.insert_for(1, 2, lifetime).unwrap().is_none());
    }),
    ("upsert", |map, _| {
        let update = |there: Option<&u64>| (2 + there.unwrap_or(&0), ());
        map.upsert(1, update).unwrap();
    }),
    ("upsert with a slow closure", |map, clock| {
        let slow = |there: Option<&u64>| {
            clock.advance(60 * SECOND);
            (2 + there.unwrap_or(&0), ())
        };
        map.upsert(1, slow).unwrap();
    }),
    ("or_insert", |map, _| {
        assert_eq!(*map.entry(1).or_insert(2).unwrap(), 2);
    }),
    ("or_insert_with a slow closure", |map, clock| {
        let slow = || {
            clock.advance(60 * SECOND);
            2
        };
        assert_eq!(*map.entry(1).or_insert_with(slow).unwrap(), 2);
    }),
    ("or_insert_for", |map, _| {
        let put = map.entry(1).or_insert_for(10 * SECOND, || 2).unwrap();
        assert_eq!(*put, 2);
    }),
    ("the vacant entry's insert", |map, _| {
        let Entry::Vacant(entry) = map.entry(1) else { unreachable!("its time is up") };
        assert_eq!(*entry.insert(2).unwrap(), 2);
    }),
];

thread_local! {
    /// Whether the thread is in a call that listeners are to delay.
    static IN_CALL: Cell<bool> = const { Cell::new(false) };
    /// Whether a listener was called there.
    static CALLED: Cell<bool> = const { Cell::new(false) };
}

/// Puts key 1 in, which calls a slow listener, and then lives for ten seconds from now on.
fn lives_its_time(map: &Slow, clock: &ManualClock, (what, put): (&str, Puts)) {
    CALLED.set(false);
    IN_CALL.set(true);
    put(map, clock);
    IN_CALL.set(false);
    assert!(CALLED.get(), "{what}: no listener was called");
    assert_eq!(map.remaining(&1), Some(10 * SECOND), "{what}");
    clock.advance(9 * SECOND);
    while map.poll(1000).more {}
    assert!(map.contains_key(&1), "{what}");
    clock.advance(SECOND);
    assert!(!map.contains_key(&1), "{what}");
}

#[test]
fn an_entry_that_an_expired_one_makes_way_for_lives_its_full_time() {
    for put in PUTS {
        for others in [0, 1, 100] {
            let (map, clock) = slow(1000, SECOND);
            for key in 1..=1 + others {
                map.insert(key, 0).unwrap();
            }
            clock.advance(20 * SECOND);
            lives_its_time(&map, &clock, put);
        }
    }
}

#[test]
fn an_entry_that_room_is_made_for_lives_its_full_time() {
    for put in PUTS {
        for (capacity, itself) in [(1, false), (1, true), (3, false), (3, true)] {
            let (map, clock) = slow(capacity, SECOND);
            let first = if itself { 1 } else { 2 };
            for key in first..first + capacity as u64 {
                map.insert(key, 0).unwrap();
            }
            clock.advance(20 * SECOND);
            lives_its_time(&map, &clock, put);
        }
    }
}

/// After a jump of the clock by years the call lets the driver catch up first.
#[test]
fn an_entry_that_a_driver_catches_up_for_lives_its_full_time() {
    for put in PUTS {
        for there in [false, true] {
            let (map, clock) = slow(1000, MS);
            for key in 2..50 {
                map.insert(key, 0).unwrap();
            }
            if there {
                map.insert(1, 0).unwrap();
            }
            clock.advance(Duration::from_millis(3 << 38));
            lives_its_time(&map, &clock, put);
        }
    }
}

/// A queue calls its handler from an update that makes room.
#[test]
fn a_key_that_room_is_made_for_in_a_queue_lives_its_full_time() {
    let clock = ManualClock::new();
    let passing = clock.clone();
    let queue = ExpiryQueue::builder()
        .interval(SECOND)
        .capacity(1)
        .clock(clock.clone())
        .expiry_listener(move |_: &u64| passing.advance(600 * SECOND))
        .build_manual()
        .unwrap();
    queue.update(1, HOUR).unwrap();
    clock.advance(HOUR);
    let updated = queue.update(2, 10 * SECOND).unwrap();
    let due = 4210 * SECOND;
    assert!(matches!(updated, Updated::Inserted { expiry, .. } if expiry == due));
    assert_eq!(queue.get(&2).map(|(expiry, _)| expiry), Some(due));
}

/// An entry that has a time to idle and no time to live, too.
#[test]
fn an_entry_with_a_time_to_idle_alone_lives_its_full_time_after_a_jump_of_years() {
    let at_most = u64::MAX / 1_000_000 - 100_000;
    for jump in [1 << 38, 1 << 39, (1 << 39) + 77, 3 << 38, 1 << 40, 5 << 39, 1 << 43] {
        let (map, clock) = rig::map(|map| map.time_to_idle(10 * SECOND).interval(MS));
        map.insert(1_u64, 0_u64).unwrap();
        map.insert_for(2, 0, Lifetimes::new().idle(Lifetime::Never)).unwrap();
        clock.advance(Duration::from_millis(jump.min(at_most)));
        assert!(map.get(&1).is_none(), "{jump}");
        assert!(map.get(&2).is_some(), "{jump}");
        map.insert(3, 0).unwrap();
        map.insert(1, 0).unwrap();
        let left = [1, 3].map(|key| map.remaining(&key));
        assert_eq!(left, [Some(10 * SECOND); 2], "{jump}");
        clock.advance(10 * SECOND - MS);
        while map.poll(1000).more {}
        assert!([1, 2, 3].iter().all(|key| map.contains_key(key)), "{jump}");
        assert!(map.get(&3).is_some());
        clock.advance(MS);
        while map.poll(1000).more {}
        assert_eq!([1, 2, 3].map(|key| map.contains_key(&key)), [false, true, true], "{jump}");
        assert_eq!(map.len(), 2, "{jump}");
    }
}
