//! `docs/api.md` as a program: a call that a store lacks, or that has another type, does not
//! compile.

use crate::support::MS;
use expiry::{
    edge, Ack, AckError, AckTracker, BuildError, Done, Expired, ExpiringMap, ExpiryQueue, Lifetime,
    LifetimeError, Lifetimes, ManualClock, MonotonicClock, Outcome, PendingEntry, PendingMap,
    PendingTable, Polled, Reaper, Receiver, Removed, Root, Session, SessionError, SessionInfo,
    SessionTracker, ShutdownMode, StoreError, StoreMetrics, Ticket, TimeCacheMap, WhenFull,
};
use std::fmt::Debug;
use std::time::{Duration, Instant};

const NOW: Duration = Duration::ZERO;
const LONG: Duration = Duration::from_secs(3600);

type Map = ExpiringMap<u64, String>;
type Cache = TimeCacheMap<u64, String>;
type Gone = Removed<'static, u64, String>;

fn is_builder(_: &(impl Clone + Debug + Send + Sync + 'static)) {}
fn is_handle(_: &(impl Clone + Debug + Send + Sync + 'static)) {}
#[cfg(feature = "async")]
fn ends_in<T>(_: impl std::future::Future<Output = T> + Send) {}

/// The settings of all builders. Returns the builder.
macro_rules! set {
    ($builder:expr, $settings:ident) => {{
        let builder = $builder
            .clock(MonotonicClock::new())
            .interval(MS)
            .shards(2)
            .capacity(8)
            .name("a store")
            .reaper(&Reaper::global().unwrap())
            .reaper_budget(64)
            .seed(7);
        #[cfg(feature = "serde")]
        let builder = builder.settings(&expiry::settings::$settings::default());
        builder
    }};
}

/// The ways to build a store, and what all handles have. Returns one without a reaper.
macro_rules! build {
    ($builder:expr => $store:ty, $metrics:ty) => {{
        let builder = $builder;
        is_builder(&builder);
        let built: [Result<$store, BuildError>; 2] =
            [builder.clone().build(), builder.clock(ManualClock::new()).build_manual()];
        let [reaped, store] = built.map(Result::unwrap);
        is_handle(&reaped);
        let has_reaper = |store: &$store| format!("{store:?}").contains("reaper: true");
        assert!(has_reaper(&reaped) && !has_reaper(&store));
        let _: (usize, bool, $metrics) = (store.len(), store.is_empty(), store.metrics());
        #[cfg(feature = "async")]
        drop::<expiry::CapacityReady<'_>>(store.room());
        store
    }};
    ($builder:expr => $store:ty, $metrics:ty, channel of $item:ty) => {{
        let of = || ($builder, 1, WhenFull::Spill);
        let (builder, length, when_full) = of();
        let built: Result<($store, Receiver<$item>), BuildError> =
            builder.build_with_channel(length, when_full);
        drop(built.unwrap());
        let (builder, length, when_full) = of();
        let built: Result<($store, Receiver<$item>), BuildError> =
            builder.build_manual_with_channel(length, when_full);
        drop(built.unwrap());
        build!($builder => $store, $metrics)
    }};
}

/// Polls that report elsewhere.
fn reports(polled: Polled) -> (bool, Option<Duration>) {
    (polled.more, polled.next)
}

/// Polls and shutdowns that return what has ended.
macro_rules! returns {
    ($store:expr, $item:ty) => {
        let store = $store;
        let _: Vec<$item> = store.poll();
        reports(store.poll_into(&mut Vec::<$item>::new(), 100));
        let _: bool = store.drain(NOW);
        let _: Vec<$item> = store.shutdown();
        #[cfg(feature = "async")]
        {
            ends_in::<bool>(store.drain_async(NOW));
            ends_in::<Vec<$item>>(store.shutdown_async());
        }
    };
}

/// What maps have, of whichever name.
fn is_map(map: &Map) {
    let _: Option<Removed<'_, u64, String>> = map.insert(1, String::new()).unwrap();
    for lifetime in [Lifetime::from(LONG), Lifetime::Never, Lifetime::Default] {
        map.insert_for(1, String::new(), lifetime).unwrap();
    }
    map.insert_for(1, String::new(), Instant::now() + LONG).unwrap();
    map.insert_for(1, String::new(), Lifetimes::new().live(LONG).idle(LONG)).unwrap();
    map.insert_for(1, String::new(), Lifetimes::from(LONG).keep()).unwrap();
    let renewed: (bool, Result<bool, LifetimeError>) = (map.touch(&1), map.touch_for(&1, LONG));
    assert_eq!(renewed, (true, Ok(true)));
    assert_eq!(map.touch_for(&1, NOW), Err(LifetimeError::Zero));
    assert!(map.get(&1).is_some() && map.peek(&1).is_some() && map.contains_key(&1));
    let _: (Option<Duration>, Option<Instant>) = (map.remaining(&1), map.expires_at(&1));
    let _: [Vec<(u64, Duration)>; 2] = [map.soonest(1), map.latest(1)];
    assert_eq!((map.iter().count(), map.get_cloned(&1).as_deref()), (1, Some("")));
    let _: Option<Removed<'_, u64, String>> = map.remove(&1);
    let _: Option<Removed<'_, u64, String>> = map.remove_if(&1, |_, _| true);
    map.retain(|_, _| true);
    map.clear();
    reports(map.poll(100));
    let _: (bool, bool) = (map.flush(NOW), map.drain(NOW));
    map.shutdown();
    #[cfg(feature = "async")]
    {
        ends_in::<bool>(map.drain_async(NOW));
        ends_in::<()>(map.shutdown_async());
    }
    assert_eq!(map.insert(1, String::new()).unwrap_err().error, StoreError::Closed);
}

#[test]
fn maps() {
    drop(Map::new(LONG).unwrap());
    let builder = || set!(Map::builder().time_to_live(LONG), ExpiringMapSettings);
    drop(builder().removal_listener(|_, _, _| ()));
    is_map(&build!(builder() => Map, StoreMetrics, channel of Gone));
    drop(Cache::new(LONG).unwrap());
    let builder = || Cache::builder(LONG).expiry_listener(|_, _| ());
    drop(set!(builder().into_map_builder().unwrap(), ExpiringMapSettings));
    let cache = build!(builder() => Cache, StoreMetrics);
    cache.put(1, String::new()).unwrap();
    is_map(&cache);
}

#[test]
fn queues() {
    let builder = || set!(ExpiryQueue::<u64>::builder(), ExpiryQueueSettings);
    drop(builder().expiry_listener(|_| ()));
    let queue = build!(builder() => ExpiryQueue<u64>, StoreMetrics, channel of Expired<u64>);
    queue.update(1, LONG).unwrap();
    let (_, handle) = queue.get(&1).unwrap();
    let renewed: [Result<bool, LifetimeError>; 2] =
        [queue.touch(&1, LONG), queue.touch_by(handle, LONG)];
    assert_eq!(renewed, [Ok(true); 2]);
    assert_eq!((queue.touch(&1, NOW), queue.contains(&1)), (Err(LifetimeError::Zero), true));
    let _: (Option<Duration>, Option<Instant>) = (queue.remaining(&1), queue.expires_at(&1));
    let _: [Vec<(u64, Duration)>; 2] = [queue.soonest(1), queue.latest(1)];
    assert_eq!(queue.dump().len(), 1);
    let _: (Option<Duration>, Option<Duration>) = (queue.wait_time(), queue.remove(&1));
    let _: bool = queue.flush(NOW);
    returns!(queue, Expired<u64>);
}

#[test]
fn pending() {
    let builder = || set!(PendingTable::<u64>::builder(), PendingTableSettings);
    drop(builder().timeout(LONG).expiry_listener(|_| ()));
    let table = build!(builder() => PendingTable<u64>, expiry::PendingMetrics, channel of u64);
    let ticket: Ticket = table.insert(7, LONG).unwrap();
    let mut tickets = Vec::new();
    table.insert_many([8, 9], Lifetime::Never, &mut tickets).unwrap();
    assert_eq!((table.contains(ticket), table.take(ticket)), (true, Some(7)));
    let _: Option<Duration> = table.remaining(ticket);
    assert_eq!(table.take_many(&tickets[..1]).collect::<Vec<_>>(), [Some(8)]);
    assert_eq!(table.cancel_all(), [9]);
    returns!(table, u64);

    type Entry = PendingEntry<u64, u64>;
    let builder = || set!(PendingMap::<u64, u64>::builder(), PendingMapSettings);
    drop(builder().timeout(LONG).expiry_listener(|_, _| ()));
    let map = build!(builder() => PendingMap<u64, u64>, StoreMetrics, channel of Entry);
    map.insert(1, 7, LONG).unwrap();
    let renewed: Result<bool, LifetimeError> = map.touch(&1, LONG);
    assert_eq!((renewed, map.contains_key(&1)), (Ok(true), true));
    let _: (Option<Duration>, Option<u64>) = (map.remaining(&1), map.take(&1));
    let _: Vec<Entry> = map.cancel_all();
    returns!(map, Entry);
}

#[test]
fn sessions() {
    let builder = || set!(SessionTracker::builder(), SessionTrackerSettings);
    drop(builder().with_tokens::<String>().expiry_listener(|_| ()));
    let sessions = build!(builder() => SessionTracker, StoreMetrics, channel of SessionInfo);
    let session: Session = sessions.create(LONG, 42).unwrap();
    let id = session.id();
    let renewed: [Result<(), SessionError>; 4] = [
        sessions.touch(id),
        sessions.touch_for(id, LONG),
        sessions.touch_by(&session),
        sessions.touch_by_for(&session, LONG),
    ];
    assert_eq!(renewed, [Ok(()); 4]);
    assert_eq!((sessions.touch_many(&[(id, LONG)]), sessions.contains(id)), (vec![Ok(())], true));
    let _: (Option<SessionInfo>, Option<Duration>) = (sessions.get(id), sessions.wait_time());
    assert_eq!(sessions.dump().len(), 1);
    let ended: (Result<(), SessionError>, Option<SessionInfo>) =
        (sessions.set_closing(id), sessions.remove(id));
    assert_eq!((ended.0, ended.1.map(|info| info.owner)), (Ok(()), Some(42)));
    returns!(sessions, SessionInfo);
}

#[test]
fn trackers() {
    let builder = || set!(AckTracker::builder(), AckTrackerSettings);
    drop(builder().with_tokens::<String>().on_outcome(|_: Outcome<String>| ()));
    let tracker = build!(builder() => AckTracker, expiry::Metrics, channel of Outcome);
    let share = edge();
    let root: Root = tracker.issue(share, 42).unwrap();
    tracker.issue_for(share, 42, LONG).unwrap();
    tracker.init(1, share, 42).unwrap();
    tracker.init_for(2, share, 42, Lifetime::Never).unwrap();
    let renewed: [Result<Done, AckError>; 2] =
        [tracker.reset_timeout(root), tracker.reset_timeout_for(root, LONG)];
    assert!(renewed.iter().all(Result::is_ok));
    tracker.issue_many(&[(share, 42)], &mut Vec::<Root>::new()).unwrap();
    tracker.init_many(&[(3, share, 42)], |_, done: Result<(), AckError>| done.unwrap());
    tracker.ack_many(&[(3_u64, share)], |_, done| assert_eq!(done, Ok(Ack::Completed)));
    let _: (Result<Ack, AckError>, Result<Done, AckError>) =
        (tracker.ack(root, share), tracker.fail(1));
    assert_eq!(tracker.owned_by(42).len(), tracker.oldest(10).len());
    reports(tracker.poll(100));
    let _: Vec<Outcome> = tracker.shutdown(ShutdownMode::Return);
    #[cfg(feature = "async")]
    ends_in::<Vec<Outcome>>(tracker.shutdown_async(ShutdownMode::Cancel));
}

#[cfg(feature = "async")]
#[test]
fn timeouts() {
    use expiry::timeouts::TimeoutsMetrics;
    use expiry::Timeouts;
    drop(Timeouts::new().unwrap());
    let builder = set!(Timeouts::builder(), TimeoutsSettings);
    let timeouts = build!(builder => Timeouts, TimeoutsMetrics);
    drop(timeouts.sleep(LONG));
    reports(timeouts.poll(100));
    timeouts.shutdown();
    ends_in::<()>(timeouts.shutdown_async());
}
