//! Settings from configuration files: there and back, and what the format or the builder refuses.

use crate::support::{MS, SECOND};
use expiry::settings::{
    AckTrackerSettings, ExpiringMapSettings, ExpiryQueueSettings, PendingMapSettings,
    PendingTableSettings, SessionTrackerSettings,
};
use expiry::{
    edge, AckError, AckTracker, BuildError, ExpiringMap, ExpiryQueue, Lifetime, ManualClock,
    OnDrop, PendingMap, PendingTable, SessionTracker, StoreError, Tuple, WhenFull,
};
use serde::de::DeserializeOwned;
use serde::Serialize;
use std::fmt::Debug;
use std::time::Duration;

fn read<T: DeserializeOwned>(text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|why| panic!("{text}: {why}"))
}

/// Through either format and back.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(settings: &T) {
    let text = toml::to_string(settings).unwrap();
    assert_eq!(read::<T>(&text), *settings, "{text}");
    let text = serde_json::to_string(settings).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), *settings, "{text}");
}

const TRACKER: &str = r#"
    timeout = "2m"
    interval = "250ms"
    early_timeout = "1m 30s"
    idle_timeout = "1m 45s"
    shards = 4
    capacity = 2
    early_capacity = 1
    latency_sampling = 1.0
    on_drop = "fail"
    reaper_budget = 100
"#;

#[test]
fn a_tracker_is_as_its_settings_say() {
    let settings: AckTrackerSettings = read(TRACKER);
    let mut told = Vec::new();
    let tracker = AckTracker::builder().settings(&settings);
    let (tracker, outcomes) = tracker.build_with_channel(10, WhenFull::Wait).unwrap();
    assert_eq!(tracker.interval(), 250 * MS);
    assert_eq!(tracker.metrics().shards.len(), 4);
    drop(Tuple::root(&tracker, 1).unwrap());
    tracker.ack(7, edge()).unwrap();
    assert_eq!(tracker.ack(8, edge()), Err(AckError::EarlyFull));
    tracker.issue(edge(), 2).unwrap();
    assert_eq!(tracker.issue(edge(), 3), Err(AckError::Full));
    outcomes.drain_into(&mut told, 10);
    assert!(told[0].is_failed() && told[0].latency.is_some());
    let remaining = tracker.owned_by(2)[0].remaining.unwrap();
    assert!(remaining > 95 * SECOND && remaining <= 106 * SECOND, "it may idle for so long");
    round_trip(&settings);
}

#[test]
fn what_is_left_out_stays_as_it_is() {
    let settings: AckTrackerSettings = read("");
    assert_eq!(settings, AckTrackerSettings::default());
    let builder = AckTracker::builder().interval(7 * MS).timeouts_off();
    let tracker = builder.settings(&settings).build_manual().unwrap();
    assert_eq!(tracker.interval(), 7 * MS);
    tracker.issue(edge(), 1).unwrap();
    assert_eq!(tracker.owned_by(1)[0].remaining, None);
    round_trip(&settings);
    assert_eq!(
        serde_json::from_str::<AckTrackerSettings>(r#"{"interval": null}"#).unwrap(),
        settings
    );
}

#[test]
fn a_timeout_may_be_never() {
    let settings: AckTrackerSettings = read(r#"timeout = "never""#);
    assert_eq!(settings.timeout, Lifetime::Never);
    let tracker = AckTracker::builder().settings(&settings).build_manual().unwrap();
    tracker.issue(edge(), 1).unwrap();
    assert_eq!(tracker.owned_by(1)[0].remaining, None);
    round_trip(&settings);
}

#[test]
fn a_map_is_as_its_settings_say() {
    let settings: ExpiringMapSettings = read(
        r#"
        time_to_live = "1h"
        time_to_idle = "10s"
        refresh_after = "50m"
        interval = "100ms"
        shards = 2
        capacity = 1
        reaper_budget = 5
        "#,
    );
    let map = ExpiringMap::builder().settings(&settings).build_manual().unwrap();
    map.insert(1_u64, 1_u64).unwrap();
    assert!(map.remaining(&1).unwrap() <= 11 * SECOND);
    assert_eq!(map.metrics().shards.len(), 2);
    let full = map.insert(2, 2).unwrap_err();
    assert_eq!(full.error, StoreError::Full);
    round_trip(&settings);
}

#[test]
fn a_cache_is_as_its_settings_say() {
    let settings: ExpiringMapSettings =
        read("max_capacity = 1\nstatistics = true\neviction_policy = \"soonest_deadline\"");
    let map = ExpiringMap::builder().settings(&settings).build_manual().unwrap();
    (1..=3_u64).for_each(|key| drop(map.insert(key, key).unwrap()));
    assert!(map.get(&3).is_some() && map.get(&1).is_none());
    assert_eq!((map.len(), map.metrics().hits), (1, 1));
    round_trip(&settings);
    let settings: ExpiringMapSettings = read("max_weight = 10");
    let refused = ExpiringMap::<u64, u64>::builder().settings(&settings).build_manual();
    assert_eq!(refused.err(), Some(BuildError::NoWeigher));
    let builder = ExpiringMap::builder().max_weight(1, |_: &u64, weight: &u64| *weight as u32);
    let map = builder.settings(&settings).build_manual().unwrap();
    (1..=3).for_each(|key| drop(map.insert(key, 4).unwrap()));
    assert_eq!(map.len(), 2, "entries of weight 4 in a map of 10");
    round_trip(&settings);
}

#[test]
fn pending_values_and_tokens_are_as_their_settings_say() {
    let text = "timeout = \"4s\"\ninterval = \"1s\"\nshards = 2\ncapacity = 1\nreaper_budget = 9";
    let clock = ManualClock::new();
    let settings: PendingTableSettings = read(text);
    let table = PendingTable::builder().settings(&settings).clock(clock.clone());
    let table = table.build_manual().unwrap();
    let ticket = table.insert(1_u64, Lifetime::Default).unwrap();
    assert!(table.insert(2, Lifetime::Default).is_err());
    let again: PendingMapSettings = read(text);
    let map = PendingMap::builder().settings(&again).clock(clock.clone()).build_manual().unwrap();
    map.insert(1_u64, 1_u64, Lifetime::Default).unwrap();
    assert!(map.insert(2, 2, Lifetime::Default).is_err());
    clock.advance(4 * SECOND);
    assert_eq!(table.poll().len() + map.poll().len(), 2);
    assert_eq!((table.take(ticket), map.take(&1)), (None, None));
    round_trip(&settings);
    round_trip(&again);
    let settings: AckTrackerSettings = read("capacity = 1");
    let tracker = AckTracker::builder().with_tokens().settings(&settings).build_manual().unwrap();
    let token = || std::cell::Cell::new(7_u128);
    tracker.issue_with_token(edge(), 1, token(), Lifetime::Default).unwrap();
    assert!(tracker.issue_with_token(edge(), 1, token(), Lifetime::Default).is_err());
}

#[test]
fn a_queue_is_as_its_settings_say() {
    let settings: ExpiryQueueSettings = read(
        "interval = \"1s\"\npause_grace = \"5s\"\nshards = 8\ncapacity = 1\nreaper_budget = 9",
    );
    let queue = ExpiryQueue::builder().settings(&settings).build_manual().unwrap();
    queue.update(1_u64, 10 * SECOND).unwrap();
    assert!(queue.update(2, 10 * SECOND).is_err());
    assert_eq!(queue.metrics().shards.len(), 8);
    let zero: ExpiryQueueSettings = read("pause_grace = \"0s\"");
    let refused = ExpiryQueue::<u64>::builder().settings(&zero).build_manual();
    assert_eq!(refused.err(), Some(BuildError::ZeroPauseGrace));
    round_trip(&settings);
}

#[test]
fn sessions_are_as_their_settings_say() {
    let settings: SessionTrackerSettings = read(
        r#"
        interval = "50ms"
        minimum_timeout = "4s"
        maximum_timeout = "40s"
        pause_grace = "1s"
        server_id = 3
        shards = 1
        capacity = 10
        reaper_budget = 8
        collect_touches = true
        "#,
    );
    let sessions = SessionTracker::builder().settings(&settings).build_manual().unwrap();
    assert_eq!(sessions.grant(SECOND), 4 * SECOND);
    assert_eq!(sessions.grant(100 * SECOND), 40 * SECOND);
    let session = sessions.create(10 * SECOND, 7).unwrap();
    assert_eq!(session.id().server(), 3);
    sessions.touch(session.id()).unwrap();
    assert_eq!(sessions.take_touched().len(), 1);
    round_trip(&settings);
}

#[cfg(feature = "async")]
#[test]
fn timeouts_are_as_their_settings_say() {
    let settings: expiry::settings::TimeoutsSettings =
        read("interval = \"5ms\"\nshards = 1\ncapacity = 7\nreaper_budget = 6");
    let builder = expiry::Timeouts::builder().settings(&settings);
    assert!(format!("{builder:?}").contains("capacity: Some(7)"), "{builder:?}");
    let timeouts = builder.build().unwrap();
    assert!(format!("{timeouts:?}").contains("interval: 5ms"), "{timeouts:?}");
    round_trip(&settings);
}

#[test]
fn a_file_that_is_wrong_is_refused_and_says_why() {
    for (text, says) in [
        ("time_out = \"1m\"", "unknown field `time_out`"),
        ("seed = 1", "unknown field `seed`"),
        ("timeout = 30", "a duration with its unit"),
        ("interval = 0.5", "a duration with its unit"),
        ("interval = \"30\"", "time unit needed"),
        ("interval = \"5 parsecs\"", "unknown time unit"),
        ("interval = \"-1s\"", "expected number"),
        ("interval = \"\"", "value was empty"),
        ("interval = \"99999999999999999999s\"", "is no duration"),
        ("interval = \"9999999999999999999 years\"", "is no duration"),
        ("timeout = \"Never\"", "is no duration"),
        ("interval = \"never\"", "is no duration"),
        ("capacity = -1", "invalid value"),
        ("capacity = \"many\"", "invalid type"),
        ("on_drop = \"explode\"", "unknown variant"),
        ("latency_sampling = \"all\"", "invalid type"),
    ] {
        let why = toml::from_str::<AckTrackerSettings>(text).unwrap_err();
        assert!(why.to_string().contains(says), "{text}: {why}");
    }
    assert!(toml::from_str::<SessionTrackerSettings>("server_id = 256").is_err());
}

#[test]
fn durations_and_enums_are_words() {
    let text = |timeout: Lifetime| serde_json::to_value(timeout).unwrap();
    assert_eq!(text(Lifetime::Never), "never");
    assert_eq!(text(Lifetime::Default), "default");
    assert_eq!(text(Lifetime::After(90 * MS)), "90ms");
    for nanos in [0, 1, 999, 1_000_000_001, 86_400_000_000_000, u64::MAX] {
        let timeout = Lifetime::After(Duration::from_nanos(nanos));
        let back: Lifetime = serde_json::from_value(text(timeout)).unwrap();
        assert_eq!(back, timeout);
    }
    assert_eq!(serde_json::to_value(WhenFull::Spill).unwrap(), "spill");
    assert_eq!(serde_json::to_value(OnDrop::LetTimeOut).unwrap(), "let_time_out");
}

#[test]
fn snapshots_can_be_serialized() {
    let tracker = AckTracker::builder().shards(2).build_manual().unwrap();
    tracker.issue(edge(), 1).unwrap();
    let snapshot = serde_json::to_value(tracker.metrics()).unwrap();
    assert_eq!(snapshot["total"]["inserted"], 1);
    assert_eq!(snapshot["shards"].as_array().unwrap().len(), 2);
    assert_eq!(snapshot["reaper_busy"]["secs"], 0);
    let map = ExpiringMap::builder().build_manual().unwrap();
    map.insert(1_u64, 1_u64).unwrap();
    let snapshot = serde_json::to_value(map.metrics()).unwrap();
    assert_eq!(snapshot["total"]["live"], 1);
    assert_eq!(snapshot["total"]["lateness"]["counts"].as_array().unwrap().len(), 64);
}
