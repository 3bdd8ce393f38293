//! A clock that panics at its nth reading in a call, for each n and each call: the store reports
//! every value that went in once.

#![allow(dropping_copy_types)] // what a call returns does not matter here

use crate::drops::census::{Census, Counted};
use crate::support::clocks::PanicsAt;
use crate::support::{Told, HOUR, MS, SECOND};
use expiry::expiring_map::{Compute, Entry};
#[cfg(feature = "async")]
use expiry::Timeouts;
use expiry::{
    Ack, AckTracker, EvictionPolicy, ExpiringMap, Expiry, ExpiryQueue, Lifetime, Lifetimes,
    NewSession, Outcome, PendingMap, PendingTable, SessionId, SessionTracker,
};
use std::panic::{catch_unwind, AssertUnwindSafe};
#[cfg(feature = "async")]
use std::sync::Arc;
use std::time::Duration;

type Map = ExpiringMap<u64, Counted>;
type InMap = (&'static str, fn(&Map, &dyn Fn(u64) -> Counted));

/// Ends what is due, keeps the deadline of what is replaced, and renews what is read.
struct Policy;

impl Expiry<u64, Counted> for Policy {
    fn created(&self, _: &u64, _: &Counted) -> Lifetimes {
        Lifetimes::new().live(SECOND).idle(SECOND)
    }
    fn updated(&self, _: &u64, _: &Counted, _: Duration) -> Lifetimes {
        Lifetimes::new().keep()
    }
    fn read(&self, _: &u64, _: &Counted, _: Duration) -> Option<Lifetime> {
        Some(Lifetime::After(2 * SECOND))
    }
}

/// Key 0 is due, 1 and 2 live, 9 has no entry, and the map is full.
const IN_MAP: &[InMap] = &[
    ("insert", |map, new| drop(map.insert(9, new(9)))),
    ("insert, due", |map, new| drop(map.insert(0, new(9)))),
    ("replace", |map, new| drop(map.insert(1, new(9)))),
    ("keep", |map, new| drop(map.insert_for(1, new(9), Lifetimes::new().keep()))),
    ("insert_for", |map, new| drop(map.insert_for(9, new(9), MS))),
    ("insert_many", |map, new| {
        drop(map.insert_many([(0, new(8)), (1, new(9)), (7, new(10)), (8, new(11))]));
    }),
    ("upsert", |map, new| drop(map.upsert(1, |_| (new(9), ())))),
    ("upsert, new", |map, new| drop(map.upsert(9, |_| (new(9), ())))),
    ("compute", |map, new| drop(map.compute(1, |_| Compute::Put(new(9))))),
    ("compute, due", |map, new| drop(map.compute(0, |_| Compute::Put(new(9))))),
    ("compute, keep", |map, new| {
        drop(map.compute(1, |_| Compute::PutFor(new(9), Lifetimes::new().keep())));
    }),
    ("compute, touch", |map, _| drop(map.compute(1, |_| Compute::Touch(HOUR.into())))),
    ("compute, remove", |map, _| drop(map.compute(1, |_| Compute::Remove))),
    ("remove", |map, _| drop(map.remove(&1))),
    ("remove, due", |map, _| drop(map.remove(&0))),
    ("remove_if", |map, _| drop(map.remove_if(&1, |_, _| true))),
    ("remove_many", |map, _| drop(map.remove_many(&[0, 1, 2]))),
    ("retain", |map, _| map.retain(|_, _| false)),
    ("clear", |map, _| map.clear()),
    ("poll", |map, _| drop(map.poll(usize::MAX))),
    ("get", |map, _| drop(map.get(&1))),
    ("touch", |map, _| drop(map.touch(&1))),
    ("entry, insert", |map, new| {
        if let Entry::Occupied(entry) = map.entry(1) {
            drop(entry.insert(new(9)));
        }
    }),
    ("entry, remove", |map, _| {
        if let Entry::Occupied(entry) = map.entry(1) {
            drop(entry.remove());
        }
    }),
    ("entry, vacant", |map, new| drop(map.entry(9).or_insert(new(9)))),
    ("load", |map, new| drop(map.get_or_insert_with(&9, || new(9)))),
    ("reload", |map, new| drop(map.get_or_insert_with(&1, || new(9)))),
    // The value is cloned before it is put in.
    ("reload, invalidated", |map, new| {
        let invalidates = map.clone();
        let _asks = Counted::when_asked(move |_, _| drop(invalidates.remove_if(&1, |_, _| false)));
        drop(map.get_or_insert_with(&1, || new(9)));
    }),
    ("load, many", |map, new| {
        drop(map.get_or_insert_many(&[1, 8, 9], |keys| {
            keys.iter().map(|&&key| (key, new(key))).collect::<Vec<_>>()
        }));
    }),
    ("save", |map, _| drop(map.save().collect::<Vec<_>>())),
    ("bound", |map, _| {
        let _ = map.set_max_capacity(1).or_else(|_| map.set_max_weight(1));
    }),
    ("flush", |map, _| drop(map.flush(SECOND))),
    ("shutdown", |map, _| map.shutdown()),
];

#[test]
fn a_map_tells_of_each_end_once() {
    use EvictionPolicy::{LeastRecentlyUsed, S3Fifo, SoonestDeadline};
    for &(name, call) in IN_MAP {
        for (policy, weighs, asks) in [
            (S3Fifo, false, false),
            (LeastRecentlyUsed, true, true),
            (SoonestDeadline, false, true),
        ] {
            PanicsAt::at_each_reading(|clock, attempt| {
                let (census, told) = (Census::new(), Told::default());
                let tell = told.handler();
                let mut builder = ExpiringMap::builder()
                    .time_to_live(SECOND)
                    .refresh_after(5 * MS)
                    .interval(MS)
                    .eviction_policy(policy)
                    .removal_listener(move |_, value: &Counted, _| tell(value.id()))
                    .clock(clock.clone());
                builder = if asks { builder.expiry(Policy) } else { builder };
                builder = match weighs {
                    true => builder.max_weight(3, |_, _| 1),
                    false => builder.max_capacity(3),
                };
                let map = builder.build_manual().unwrap();
                map.insert_for(0, Counted::of(&census, 0), MS).unwrap();
                for key in [1, 2] {
                    map.insert(key, Counted::of(&census, key)).unwrap();
                }
                clock.time.advance(10 * MS);
                attempt(&mut || call(&map, &|id| Counted::of(&census, id)));
                map.clear();
                let total = map.metrics().total;
                let mut told = told.take();
                let ended = total.removed + total.evicted + total.expired + total.closed;
                assert_eq!(total.inserted, ended, "{name}");
                assert_eq!(told.len() as u64, ended + total.replaced, "{name}: {told:?}");
                told.sort_unstable();
                told.dedup();
                assert_eq!(told.len() as u64, ended + total.replaced, "{name}: {told:?}");
                assert!(map.flush(SECOND));
                drop(map);
                assert_eq!(census.left(), 0, "{name}");
            });
        }
    }
}

/// A store that gives what has ended to its caller.
trait Gives {
    fn built(clock: &PanicsAt) -> Self;
    fn put(&self, key: u64, timeout: Duration);
    fn polled(&self) -> Vec<u64>;
    /// How many went in.
    fn came(&self) -> u64;
}

/// What has ended, in the hands of the caller.
type Got = Vec<u64>;
type Call<S> = (&'static str, fn(&S, &mut Got));

fn gives_each_once<S: Gives>(calls: &[Call<S>]) {
    for &(name, call) in calls {
        PanicsAt::at_each_reading(|clock, attempt| {
            let (store, mut got) = (S::built(clock), Got::new());
            (0..100).for_each(|key| store.put(key, MS));
            (100..110).for_each(|key| store.put(key, SECOND));
            clock.time.advance(10 * MS);
            attempt(&mut || call(&store, &mut got));
            got.extend(store.polled());
            clock.time.advance(HOUR);
            got.extend(store.polled());
            got.sort_unstable();
            got.dedup();
            assert_eq!(got.len() as u64, store.came(), "{name}: {got:?}");
        });
    }
}

impl Gives for ExpiryQueue<u64> {
    fn built(clock: &PanicsAt) -> Self {
        let builder = ExpiryQueue::builder().interval(MS).pause_grace(24 * HOUR).capacity(110);
        builder.clock(clock.clone()).build_manual().unwrap()
    }
    fn put(&self, key: u64, timeout: Duration) {
        self.update(key, timeout).unwrap();
    }
    fn polled(&self) -> Vec<u64> {
        self.poll().iter().map(|expired| *expired.key()).collect()
    }
    fn came(&self) -> u64 {
        self.metrics().total.inserted
    }
}

#[test]
fn a_queue_gives_each_key_once() {
    gives_each_once::<ExpiryQueue<u64>>(&[
        ("update", |queue, _| drop(queue.update(200, SECOND))),
        ("renew", |queue, _| drop(queue.update(100, 2 * SECOND))),
        ("renew, nearer", |queue, _| drop(queue.update(100, MS))),
        ("touch", |queue, _| drop(queue.touch(&100, SECOND))),
        ("remove", |queue, got| got.extend(queue.remove(&100).map(|_| 100))),
        ("poll", |queue, got| got.extend(queue.polled())),
        ("poll_into", |queue, got| {
            let mut into = Vec::new();
            let polled = AssertUnwindSafe(|| queue.poll_into(&mut into, 50));
            let _ = catch_unwind(polled);
            got.extend(into.iter().map(|expired| *expired.key()));
        }),
        ("shutdown", |queue, got| {
            got.extend(queue.shutdown().iter().map(|expired| *expired.key()));
        }),
    ]);
}

impl Gives for PendingMap<u64, u64> {
    fn built(clock: &PanicsAt) -> Self {
        let builder = PendingMap::builder().capacity(110);
        builder.clock(clock.clone()).build_manual().unwrap()
    }
    fn put(&self, key: u64, timeout: Duration) {
        self.insert(key, key, timeout).unwrap();
    }
    fn polled(&self) -> Vec<u64> {
        self.poll().into_iter().map(|entry| entry.into_value()).collect()
    }
    fn came(&self) -> u64 {
        let total = self.metrics().total;
        total.inserted + total.replaced
    }
}

#[test]
fn a_map_of_pending_values_gives_each_once() {
    gives_each_once::<PendingMap<u64, u64>>(&[
        ("insert", |map, _| drop(map.insert(200, 200, SECOND))),
        ("replace", |map, got| got.extend(map.insert(100, 200, SECOND).ok().flatten())),
        ("try_insert", |map, _| drop(map.try_insert(100, 200, SECOND))),
        ("touch", |map, _| drop(map.touch(&100, MS))),
        ("take", |map, got| got.extend(map.take(&100))),
        ("cancel_all", |map, got| {
            got.extend(map.cancel_all().into_iter().map(|entry| entry.into_value()));
        }),
        ("poll", |map, got| got.extend(map.polled())),
        ("shutdown", |map, got| {
            got.extend(map.shutdown().into_iter().map(|entry| entry.into_value()));
        }),
    ]);
}

impl Gives for PendingTable<u64> {
    fn built(clock: &PanicsAt) -> Self {
        let builder = PendingTable::builder().capacity(110);
        builder.clock(clock.clone()).build_manual().unwrap()
    }
    fn put(&self, key: u64, timeout: Duration) {
        self.insert(key, timeout).unwrap();
    }
    fn polled(&self) -> Vec<u64> {
        self.poll()
    }
    fn came(&self) -> u64 {
        self.metrics().inserted
    }
}

#[test]
fn a_table_gives_each_value_once() {
    gives_each_once::<PendingTable<u64>>(&[
        ("insert", |table, _| drop(table.insert(200, SECOND))),
        ("insert_many", |table, _| {
            drop(table.insert_many(200..210, SECOND, &mut Vec::new()));
        }),
        ("cancel_all", |table, got| got.extend(table.cancel_all())),
        ("poll", |table, got| got.extend(table.polled())),
        ("shutdown", |table, got| got.extend(table.shutdown())),
    ]);
}

impl Gives for SessionTracker<u64> {
    fn built(clock: &PanicsAt) -> Self {
        let builder = SessionTracker::builder().with_tokens().interval(MS).pause_grace(24 * HOUR);
        let builder = builder.minimum_timeout(MS).maximum_timeout(SECOND).capacity(110);
        builder.clock(clock.clone()).build_manual().unwrap()
    }
    fn put(&self, key: u64, timeout: Duration) {
        let session = NewSession::from(0).token(key);
        self.track(SessionId(key), timeout, session).unwrap();
    }
    fn polled(&self) -> Vec<u64> {
        self.poll().into_iter().map(|session| session.token).collect()
    }
    fn came(&self) -> u64 {
        self.metrics().total.inserted
    }
}

#[test]
fn a_tracker_gives_each_session_once() {
    gives_each_once::<SessionTracker<u64>>(&[
        ("track", |tracker, _| {
            drop(tracker.track(SessionId(200), SECOND, NewSession::from(0).token(200)));
        }),
        ("create", |tracker, _| {
            drop(tracker.create(SECOND, NewSession::from(0).token(200)));
        }),
        ("track, again", |tracker, _| {
            drop(tracker.track(SessionId(100), SECOND, NewSession::from(0).token(200)));
        }),
        ("touch", |tracker, _| drop(tracker.touch(SessionId(100)))),
        ("remove", |tracker, got| {
            got.extend(tracker.remove(SessionId(100)).map(|session| session.token));
        }),
        ("poll", |tracker, got| got.extend(tracker.polled())),
        ("shutdown", |tracker, got| {
            got.extend(tracker.shutdown().into_iter().map(|session| session.token));
        }),
    ]);
}

type InTracker = (&'static str, fn(&AckTracker<Counted>, &dyn Fn(u64) -> Counted));

#[test]
fn a_tracker_tells_of_each_root_once() {
    const DEFAULT: Lifetime = Lifetime::Default;
    // Root 1 is live, and an ack, and a failure, of roots 2 and 3 have come early.
    let calls: &[InTracker] = &[
        ("issue", |tracker, new| drop(tracker.issue_with_token(3, 42, new(9), DEFAULT))),
        ("issue, complete", |tracker, new| {
            drop(tracker.issue_with_token(0, 42, new(9), DEFAULT));
        }),
        ("init", |tracker, new| drop(tracker.init_with_token(9, 3, 42, new(9), DEFAULT))),
        ("init, complete", |tracker, new| {
            drop(tracker.init_with_token(2, 3, 42, new(9), DEFAULT));
        }),
        ("init, early", |tracker, new| drop(tracker.init_with_token(2, 5, 42, new(9), DEFAULT))),
        ("init, failed", |tracker, new| drop(tracker.init_with_token(3, 3, 42, new(9), DEFAULT))),
        ("ack", |tracker, _| drop(tracker.ack(1_u64, 5))),
        ("ack, last", |tracker, _| drop(tracker.ack(1_u64, 3))),
        ("fail", |tracker, _| drop(tracker.fail(1_u64))),
        ("reset", |tracker, _| drop(tracker.reset_timeout(1_u64))),
        ("poll", |tracker, _| drop(tracker.poll(1000))),
    ];
    for (name, call) in calls {
        for idle in [HOUR, MS] {
            PanicsAt::at_each_reading(|clock, attempt| {
                let (census, told) = (Census::new(), Told::default());
                let tell = told.handler();
                let tracker = AckTracker::builder().with_tokens().timeout(SECOND).interval(MS);
                let tracker = tracker.idle_timeout(idle).latency_sampling(1.0).clock(clock.clone());
                let tell = move |outcome: Outcome<Counted>| tell(outcome.token.id());
                let tracker = tracker.on_outcome(tell).build_manual().unwrap();
                let token = Counted::of(&census, 1);
                tracker.init_with_token(1, 3, 42, token, DEFAULT).unwrap();
                tracker.ack(2_u64, 3).unwrap();
                tracker.fail(3_u64).unwrap();
                clock.time.advance(10 * MS);
                attempt(&mut || call(&tracker, &|id| Counted::of(&census, id)));
                for _ in 0..2 {
                    clock.time.advance(HOUR);
                    while tracker.poll(1000).more {}
                }
                let told = told.take();
                assert_eq!(told.len() as u64, tracker.metrics().total.inserted, "{name}: {told:?}");
                assert_eq!(census.left(), 0, "{name}");
            });
        }
    }
}

#[test]
fn an_ack_that_counts_says_so() {
    PanicsAt::at_each_reading(|clock, attempt| {
        let tracker = AckTracker::builder().idle_timeout(SECOND).clock(clock.clone());
        let tracker = tracker.build_manual().unwrap();
        let root = tracker.issue(3, 42).unwrap();
        tracker.init(1, 3, 42).unwrap();
        let mut acked = Vec::new();
        attempt(&mut || {
            acked.push(tracker.ack(root, 5));
            acked.push(tracker.ack(1_u64, 5));
        });
        assert_eq!(acked, [Ok(Ack::Pending); 2]);
    });
}

#[cfg(feature = "async")]
#[test]
fn a_timeout_wakes_its_task() {
    use crate::support::Task;
    use expiry::timeouts::Sleep;
    type Call = (&'static str, fn(&mut Sleep<&Timeouts>, &Arc<Task>));
    let calls: &[Call] = &[
        ("poll", |sleep, task| drop(task.poll(sleep))),
        ("poll by another task", |sleep, task| {
            let _ = Task::new().poll(sleep);
            let _ = task.poll(sleep);
        }),
        ("reset", |sleep, task| {
            sleep.reset(SECOND);
            let _ = task.poll(sleep);
        }),
    ];
    for &(name, call) in calls {
        for begun in [false, true] {
            PanicsAt::at_each_reading(|clock, attempt| {
                let builder = Timeouts::builder().interval(MS).capacity(1).clock(clock.clone());
                let timeouts = builder.build_manual().unwrap();
                let (task, mut sleep) = (Task::new(), Sleep::new(&timeouts, SECOND));
                assert!(!begun || task.poll(&mut sleep).is_pending());
                attempt(&mut || call(&mut sleep, &task));
                let woken = task.woken();
                let waits = task.poll(&mut sleep).is_pending();
                clock.time.advance(HOUR);
                timeouts.poll(1000);
                assert!(!waits || task.woken() > woken, "{name}");
                assert_eq!(task.poll(&mut sleep), std::task::Poll::Ready(Ok(())), "{name}");
                drop(sleep);
                let metrics = timeouts.metrics();
                assert_eq!(metrics.registered, metrics.fired + metrics.cancelled, "{name}");
            });
        }
    }
}
