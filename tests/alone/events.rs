//! Events: each is seen once where it happens, by a subscriber that may use the store it hears of,
//! and may panic.

use crate::support::{within, SECOND};
use expiry::{
    edge, AckTracker, ExpiringMap, ExpiryQueue, ManualClock, Outcome, RemovalCause, ShutdownMode,
    WhenFull,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{set_global_default, with_default};
use tracing::{Event, Metadata, Subscriber};
use tracing_core::span::Current;

/// Writes each event of the target down, `span: LEVEL message field=value`, and then does
/// something.
pub struct Seen {
    events: Arc<Mutex<Vec<String>>>,
    then: Box<dyn Fn() + Send + Sync>,
    spans: Mutex<BTreeMap<u64, &'static Metadata<'static>>>,
    ids: AtomicU64,
}

thread_local! {
    static ENTERED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

impl Seen {
    pub fn new(then: impl Fn() + Send + Sync + 'static) -> (Self, Arc<Mutex<Vec<String>>>) {
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Seen {
            events: events.clone(),
            then: Box::new(then),
            spans: Mutex::default(),
            ids: AtomicU64::new(1),
        };
        (seen, events)
    }
}

impl Subscriber for Seen {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "expiry"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.ids.fetch_add(1, SeqCst);
        self.spans.lock().unwrap().insert(id, span.metadata());
        Id::from_u64(id)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        if let Some(id) = ENTERED.with(|entered| entered.borrow().last().copied()) {
            write!(line.0, "{}: ", self.spans.lock().unwrap()[&id].name()).unwrap();
        }
        write!(line.0, "{}", event.metadata().level()).unwrap();
        event.record(&mut line);
        self.events.lock().unwrap().push(line.0);
        (self.then)();
    }

    fn enter(&self, id: &Id) {
        ENTERED.with(|entered| entered.borrow_mut().push(id.into_u64()));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with(|entered| entered.borrow_mut().pop());
    }

    fn current_span(&self) -> Current {
        ENTERED.with(|entered| match entered.borrow().last() {
            Some(&id) => Current::new(Id::from_u64(id), self.spans.lock().unwrap()[&id]),
            None => Current::none(),
        })
    }
}

/// What this thread's events were in `f`.
fn seen(f: impl FnOnce()) -> Vec<String> {
    seen_then(|| (), f)
}

fn seen_then(then: impl Fn() + Send + Sync + 'static, f: impl FnOnce()) -> Vec<String> {
    let (subscriber, events) = Seen::new(then);
    with_default(subscriber, f);
    let events = events.lock().unwrap();
    events.clone()
}

fn tracker(handler: impl Fn(Outcome) + Send + Sync + 'static) -> AckTracker {
    let builder = AckTracker::builder().clock(ManualClock::new());
    builder.on_outcome(handler).build_manual().unwrap()
}

pub fn a_handler_that_panics() {
    let tracker = tracker(|outcome: Outcome| match outcome.owner {
        1 => panic!("not {}", "this one"),
        2 => panic!("nor this"),
        3 => std::panic::panic_any(3),
        _ => {}
    });
    let events = seen(|| {
        for owner in 0..4 {
            tracker.fail(tracker.issue(edge(), owner).unwrap()).unwrap();
        }
    });
    let event = |why: &str| format!("ERROR a handler panicked panic=\"{why}\"");
    assert_eq!(events, ["not this one", "nor this", "no text"].map(event));
}

pub fn an_index_that_grows_and_shrinks() {
    let clock = ManualClock::new();
    let map = ExpiringMap::builder().shards(1).clock(clock.clone()).build_manual().unwrap();
    let poll = || {
        for _ in 0..100 {
            clock.advance(SECOND);
            let _ = map.poll(usize::MAX);
        }
    };
    assert!(seen(poll).is_empty());
    let insert = || (0..10_000u64).for_each(|key| drop(map.insert(key, key).unwrap()));
    assert!(seen(insert).is_empty(), "not in the midst of it");
    let grew = seen(poll);
    let remove = || (0..10_000u64).for_each(|key| drop(map.remove(&key)));
    assert!(seen(remove).is_empty());
    let shrank = seen(poll);
    let [grew] = &grew[..] else {
        panic!("{grew:?}");
    };
    assert!(grew.starts_with("DEBUG index grew shard=0 from="), "{grew}");
    assert!(!shrank.is_empty());
    let shrinks = |event: &String| event.starts_with("DEBUG index shrank shard=0 from=");
    assert!(shrank.iter().all(shrinks), "{shrank:?}");
    let size = |event: &str, of: &str| -> u64 {
        let mut fields = event.split(' ');
        let value = fields.find_map(|field| field.strip_prefix(of)).unwrap();
        value.parse().unwrap()
    };
    assert!(size(grew, "to=") >= 10_000);
    assert_eq!(size(&shrank[0], "from="), size(grew, "to="));
    let last = shrank.last().unwrap();
    assert_eq!(size(last, "to="), size(grew, "from="));
}

fn stalled(queue: &ExpiryQueue<&'static str>, clock: &ManualClock) {
    queue.update("worker", 12 * SECOND).unwrap();
    clock.advance(10 * SECOND);
    assert!(queue.poll().is_empty());
    clock.advance(20 * SECOND);
    assert!(queue.poll().is_empty());
}

fn graced(clock: &ManualClock) -> ExpiryQueue<&'static str> {
    let builder = ExpiryQueue::builder().interval(SECOND);
    let builder = builder.pause_grace(5 * SECOND).clock(clock.clone());
    builder.build_manual().unwrap()
}

pub fn a_process_that_was_stalled() {
    let clock = ManualClock::new();
    let queue = graced(&clock);
    let events = seen(|| stalled(&queue, &clock));
    // From 12, when it was due, or the second after, to 30.
    let [event] = &events[..] else {
        panic!("{events:?}");
    };
    let seconds = event.strip_prefix("WARN process was stalled: leases are extended seconds=");
    let seconds: f64 = seconds.unwrap().parse().unwrap();
    assert!((18.0..=19.0).contains(&seconds), "{seconds}");
}

pub fn a_shutdown_and_what_was_left() {
    let tracker = tracker(|_| ());
    for owner in 0..3 {
        tracker.issue(edge(), owner).unwrap();
    }
    let events = seen(|| {
        let _ = tracker.shutdown(ShutdownMode::Cancel);
        let _ = tracker.shutdown(ShutdownMode::Cancel);
        drop(tracker);
    });
    assert_eq!(events, ["INFO shut down left=3"]);
}

pub fn a_channel_that_begins_to_spill() {
    let (tracker, outcomes) = AckTracker::builder().build_with_channel(2, WhenFull::Spill).unwrap();
    let events = seen(|| {
        for _ in 0..2 {
            for owner in 0..6 {
                tracker.fail(tracker.issue(edge(), owner).unwrap()).unwrap();
            }
            while outcomes.try_next().is_some() {}
        }
    });
    assert_eq!(events, ["WARN channel full: spilling length=2"; 2]);
}

pub fn a_reaper_in_the_span_that_it_was_built_in() {
    let (subscriber, events) = Seen::new(|| ());
    set_global_default(subscriber).unwrap();
    tracing::info_span!(target: "expiry", "leases").in_scope(|| {
        let map = ExpiringMap::<u64, u64>::builder().build().unwrap();
        drop(map); // waits for it
    });
    let events = events.lock().unwrap();
    let mine = events.iter().filter(|event| event.contains("leases: "));
    let mut mine: Vec<_> = mine.map(String::as_str).collect();
    mine.sort_unstable(); // the shutdown is this thread's
    let expected = [
        "leases: DEBUG reaper started",
        "leases: DEBUG reaper stopped",
        "leases: INFO shut down left=0",
    ];
    assert_eq!(mine, expected);
}

pub fn a_subscriber_may_use_the_store() {
    within(|| {
        let clock = ManualClock::new();
        let map = Arc::new(OnceLock::<ExpiringMap<u64, u64>>::new());
        let used = map.clone();
        let uses = move || {
            let map = used.get().unwrap();
            let _ = map.insert(1, 1);
            let _ = map.insert(1_000_001, 1);
            let _ = map.get(&1);
            let _ = map.touch(&1);
            let _ = map.remove(&1_000_001);
            let _ = map.poll(usize::MAX);
            let _ = map.metrics();
        };
        let builder = ExpiringMap::builder().shards(1).time_to_live(100 * SECOND);
        let builder = builder
            .removal_listener(|&key, _, _: RemovalCause| assert!(key != 7, "7"))
            .clock(clock.clone());
        assert!(map.set(builder.build_manual().unwrap()).is_ok());
        let map_of = map.clone();
        let events = seen_then(uses, move || {
            let map = map_of.get().unwrap();
            (0..10_000u64).for_each(|key| drop(map.insert(key, key).unwrap()));
            for _ in 0..300 {
                clock.advance(SECOND);
                let _ = map.poll(usize::MAX);
            }
            map.insert(8, 8).unwrap();
            map.shutdown();
        });
        let had = |what: &str| events.iter().any(|event| event.contains(what));
        for what in ["index grew", "a handler panicked", "index shrank", "shut down left="] {
            assert!(had(what), "{what}: {events:?}");
        }
    });
}

pub fn a_subscriber_may_shut_the_store_down() {
    // Where a round, or another shutdown, is under way on this thread, that only asks, as a
    // handler's does.
    within(|| {
        let told = Arc::new(AtomicU64::new(0));
        let counts = told.clone();
        let tracker = Arc::new(tracker(move |_| {
            counts.fetch_add(1, SeqCst);
            panic!("of all");
        }));
        let shut = tracker.clone();
        let _ = seen_then(
            move || drop(shut.shutdown(ShutdownMode::Cancel)),
            || {
                let roots = [1, 2, 3].map(|owner| tracker.issue(edge(), owner).unwrap());
                let _ = tracker.fail(roots[0]);
            },
        );
        assert_eq!((told.load(SeqCst), tracker.len()), (3, 0));
    });
    within(|| {
        let tracker = Arc::new(tracker(|_| ()));
        tracker.issue(edge(), 1).unwrap();
        let shut = tracker.clone();
        let events = seen_then(
            move || drop(shut.shutdown(ShutdownMode::Cancel)),
            || drop(tracker.shutdown(ShutdownMode::Cancel)),
        );
        assert_eq!(events, ["INFO shut down left=1"]);
    });
    within(|| {
        let clock = ManualClock::new();
        let queue = Arc::new(graced(&clock));
        let shut = queue.clone();
        let events = seen_then(move || drop(shut.shutdown()), || stalled(&queue, &clock));
        assert_eq!(events.len(), 1, "{events:?}");
    });
    within(|| {
        let (tracker, outcomes) =
            AckTracker::builder().build_with_channel(1, WhenFull::Spill).unwrap();
        let tracker = Arc::new(tracker);
        let shut = tracker.clone();
        let events = seen_then(
            move || drop(shut.shutdown(ShutdownMode::Cancel)),
            || {
                let roots = [1, 2, 3].map(|owner| tracker.issue(edge(), owner).unwrap());
                for root in roots {
                    let _ = tracker.fail(root);
                }
            },
        );
        assert!(events[0].contains("spilling"), "{events:?}");
        assert_eq!(outcomes.len(), 3);
    });
}

pub fn a_subscriber_that_panics_stops_nothing() {
    let clock = ManualClock::new();
    let queue = graced(&clock);
    let events = seen_then(|| panic!("in a subscriber"), || stalled(&queue, &clock));
    assert_eq!(events.len(), 1);
    let expired = (0..30).find(|_| {
        clock.advance(SECOND); // or it would look stalled again
        !queue.poll().is_empty()
    });
    assert!(expired.is_some());
}
