//! Settings as a server's configuration file has them (feature `serde`).
//!
//! A structure for each store: what its builder takes in words and numbers. What is left out stays
//! as the builder has it. The format's own error refuses an unknown name, or a value of another
//! kind. The builder refuses what makes no sense, with a [`BuildError`](crate::BuildError). Clocks,
//! handlers, hashers and seeds do not come from a file: the program sets them at the builder.
//!
//! Durations are texts of number and unit, `"250ms"`, `"30s"`, `"1h 30m"`, as the crate `humantime`
//! has them (ns, us, ms, s, m, h, days, weeks, months, years). A [`Lifetime`] is one of them,
//! `"never"` or `"default"`.
//!
//! | key | of | kind |
//! |---|---|---|
//! | `interval` | all | duration |
//! | `timeout` | [`AckTrackerSettings`] | duration, or as only key `"never"` or `"default"` |
//! | `timeout` | [`PendingTableSettings`], [`PendingMapSettings`] | duration. For ever: leave it out |
//! | `early_timeout` | [`AckTrackerSettings`] | duration |
//! | `idle_timeout` | [`AckTrackerSettings`] | duration; leave out for none |
//! | `early_capacity` | [`AckTrackerSettings`] | integer |
//! | `latency_sampling` | [`AckTrackerSettings`] | number from `0.0` to `1.0` |
//! | `on_drop` | [`AckTrackerSettings`] | `"let_time_out"` or `"fail"` |
//! | `time_to_live`, `time_to_idle` | [`ExpiringMapSettings`] | duration. For ever: leave it out |
//! | `refresh_after` | [`ExpiringMapSettings`] | duration, below `time_to_live`; leave out for none |
//! | `pause_grace` | [`ExpiryQueueSettings`], [`SessionTrackerSettings`] | duration; leave out for none |
//! | `minimum_timeout`, `maximum_timeout` | [`SessionTrackerSettings`] | duration |
//! | `server_id` | [`SessionTrackerSettings`] | integer, 0 to 255 |
//! | `collect_touches` | [`SessionTrackerSettings`] | `true` or `false` |
//! | `max_capacity`, `max_weight` | [`ExpiringMapSettings`] | integer, at least 1 |
//! | `eviction_policy` | [`ExpiringMapSettings`] | `"s3_fifo"`, `"least_recently_used"` or `"soonest_deadline"` |
//! | `statistics` | [`ExpiringMapSettings`] | `true` or `false` |
//! | `capacity`, `reaper_budget` | all | integer, at least 1 |
//! | `shards` | all | a power of two up to 256 |
//!
//! [`WhenFull`](crate::WhenFull), for a field of your own, is `"wait"`, `"spill"` or `"drop"`.
//!
//! A misspelt key is refused where the settings are a table of their own. With `#[serde(flatten)]`
//! in a structure of yours they are not: serde then silently leaves out an unknown key.
//! (`deny_unknown_fields` at your structure may catch it, but serde says that these two do not go
//! together.) Give each store a table.
//!
//! ```
//! use expiry::settings::AckTrackerSettings;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize)]
//! struct Table {
//!     acks: AckTrackerSettings,
//! }
//!
//! #[derive(Deserialize)]
//! struct Flat {
//!     #[serde(flatten)]
//!     acks: AckTrackerSettings,
//! }
//!
//! assert!(toml::from_str::<Table>("acks.time_out = \"1m\"").is_err());
//! let flat: Flat = toml::from_str("time_out = \"1m\"")?; // serde has left it out
//! assert_eq!(flat.acks, AckTrackerSettings::default());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! These texts are of settings only. Snapshots of counters are serialized with durations as serde
//! has them, `{"secs": 2, "nanos": 0}`: one is not read back as the other.
//!
//! ```
//! use expiry::settings::AckTrackerSettings;
//! use expiry::{AckTracker, BuildError};
//! use std::time::Duration;
//!
//! let file = r#"
//!     timeout = "1m"
//!     interval = "100ms"
//!     capacity = 1_000_000
//!     on_drop = "fail"
//! "#;
//! let settings: AckTrackerSettings = toml::from_str(file)?;
//! let tracker = AckTracker::builder().settings(&settings).build()?;
//! assert_eq!(tracker.interval(), Duration::from_millis(100));
//!
//! let typo = toml::from_str::<AckTrackerSettings>("time_out = \"1m\"");
//! assert!(typo.unwrap_err().to_string().contains("unknown field"));
//! let settings = toml::from_str::<AckTrackerSettings>("shards = 3")?;
//! let refused = AckTracker::builder().settings(&settings).build();
//! assert_eq!(refused.err(), Some(BuildError::BadShards { shards: 3 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "async")]
use crate::TimeoutsBuilder;
use crate::{
    AckTrackerBuilder, EvictionPolicy, ExpiringMapBuilder, ExpiryQueueBuilder, Lifetime, OnDrop,
    PendingMapBuilder, PendingTableBuilder, SessionTrackerBuilder,
};
use serde::{de, Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// Durations as texts.
mod humane {
    use super::*;

    struct Text;

    impl de::Visitor<'_> for Text {
        type Value = Duration;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a duration with its unit, such as \"250ms\" or \"1h 30m\"")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Duration, E> {
            humantime::parse_duration(text)
                .map_err(|why| E::custom(format_args!("{text:?} is no duration: {why}")))
        }
    }

    pub(super) fn parse<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        from.deserialize_str(Text)
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's
    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => to.collect_str(&humantime::format_duration(*duration)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        struct Parsed(Duration);

        impl<'de> Deserialize<'de> for Parsed {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                parse(from).map(Parsed)
            }
        }

        let parsed = Option::<Parsed>::deserialize(from)?;
        Ok(parsed.map(|Parsed(duration)| duration))
    }
}

/// As a text: a duration with its unit, `never`, or `default`.
impl Serialize for Lifetime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Lifetime::Default => to.serialize_str("default"),
            Lifetime::After(time) => humane::serialize(&Some(*time), to),
            Lifetime::Never => to.serialize_str("never"),
        }
    }
}

impl<'de> Deserialize<'de> for Lifetime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Lifetime;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a duration with its unit, such as \"30s\", or \"never\", or \"default\"",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Lifetime, E> {
                match text {
                    "default" => Ok(Lifetime::Default),
                    "never" => Ok(Lifetime::Never),
                    _ => humane::parse(de::value::StrDeserializer::new(text)).map(Lifetime::After),
                }
            }
        }

        from.deserialize_str(Text)
    }
}

/// A store's settings, and its builder's method that takes them. Each of `durations` and `values`
/// is one of the builder's setters, by its name; what is set otherwise is in `others`, with how.
macro_rules! settings {
    (
        $(#[$doc:meta])*
        $settings:ident sets $builder:ident, impl [$($generics:tt)*] [$($of:tt)*] {
            durations { $($duration:ident),* }
            values { $($value:ident: $type:ty),* }
            others { $($(#[$other_doc:meta])* $other:ident: $other_type:ty => $set:ident),* }
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        #[non_exhaustive]
        pub struct $settings {
            $(
                #[doc = concat!("See [`", stringify!($duration), "`](", stringify!($builder), "::", stringify!($duration), ").")]
                #[serde(with = "humane", skip_serializing_if = "Option::is_none")]
                pub $duration: Option<Duration>,
            )*
            $(
                #[doc = concat!("See [`", stringify!($value), "`](", stringify!($builder), "::", stringify!($value), ").")]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $value: Option<$type>,
            )*
            $(
                $(#[$other_doc])*
                pub $other: $other_type,
            )*
        }

        impl $($generics)* $($of)* {
            /// Sets what these settings have, and leaves the rest as it is.
            pub fn settings(mut self, settings: &$settings) -> Self {
                $(
                    if let Some(duration) = settings.$duration {
                        self = self.$duration(duration);
                    }
                )*
                $(
                    if let Some(value) = settings.$value {
                        self = self.$value(value);
                    }
                )*
                $(
                    self = $set(self, settings.$other);
                )*
                self
            }
        }
    };
}

settings! {
    /// Settings of an [`AckTracker`](crate::AckTracker).
    ///
    /// ```
    /// use expiry::settings::AckTrackerSettings;
    /// use expiry::{edge, Ack, AckError, AckTracker, Lifetime};
    ///
    /// let settings: AckTrackerSettings = toml::from_str("timeout = \"never\"\nearly_capacity = 1")?;
    /// assert_eq!((settings.timeout, settings.interval), (Lifetime::Never, None));
    /// let tracker = AckTracker::builder().settings(&settings).build_manual()?;
    /// assert_eq!(tracker.ack(7, edge())?, Ack::Held);
    /// assert_eq!(tracker.ack(8, edge()), Err(AckError::EarlyFull));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    AckTrackerSettings sets AckTrackerBuilder, impl [<T: Send + 'static>] [AckTrackerBuilder<T>] {
        durations { interval, early_timeout, idle_timeout }
        values {
            shards: usize, capacity: usize, early_capacity: usize, latency_sampling: f64, on_drop: OnDrop, reaper_budget: usize
        }
        others {
            /// See [`timeout`](AckTrackerBuilder::timeout); `never` is
            /// [`timeouts_off`](AckTrackerBuilder::timeouts_off).
            timeout: Lifetime => set_timeout
        }
    }
}

fn set_timeout<T: Send + 'static>(
    builder: AckTrackerBuilder<T>,
    timeout: Lifetime,
) -> AckTrackerBuilder<T> {
    match timeout {
        Lifetime::Default => builder,
        Lifetime::After(time) => builder.timeout(time),
        Lifetime::Never => builder.timeouts_off(),
    }
}

settings! {
    /// Settings of an [`ExpiringMap`](crate::ExpiringMap).
    ///
    /// ```
    /// use expiry::settings::ExpiringMapSettings;
    /// use expiry::{ExpiringMap, ManualClock};
    /// use std::time::Duration;
    ///
    /// let settings: ExpiringMapSettings = toml::from_str("time_to_live = \"1h 30m\"")?;
    /// let clock = ManualClock::new();
    /// let map = ExpiringMap::builder().settings(&settings).clock(clock.clone()).build_manual()?;
    /// map.insert("key", 1)?;
    /// clock.advance(Duration::from_secs(89 * 60));
    /// assert!(map.contains_key("key"));
    /// clock.advance(Duration::from_secs(2 * 60));
    /// assert!(!map.contains_key("key"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ExpiringMapSettings sets ExpiringMapBuilder, impl [<K, V, S>] [ExpiringMapBuilder<K, V, S>] {
        durations { time_to_live, time_to_idle, refresh_after, interval }
        values {
            shards: usize, capacity: usize, max_capacity: usize, eviction_policy: EvictionPolicy, statistics: bool, reaper_budget: usize
        }
        others {
            /// The weight of [`max_weight`](ExpiringMapBuilder::max_weight). The program gives the
            /// weigher there.
            #[serde(skip_serializing_if = "Option::is_none")]
            max_weight: Option<usize> => set_max_weight
        }
    }
}

fn set_max_weight<K, V, S>(
    builder: ExpiringMapBuilder<K, V, S>,
    weight: Option<usize>,
) -> ExpiringMapBuilder<K, V, S> {
    builder.set_max_weight(weight)
}

settings! {
    /// Settings of a [`PendingTable`](crate::PendingTable).
    ///
    /// ```
    /// use expiry::settings::PendingTableSettings;
    /// use expiry::{Lifetime, PendingTable};
    ///
    /// let settings: PendingTableSettings = toml::from_str("timeout = \"30s\"\ncapacity = 1")?;
    /// let requests = PendingTable::builder().settings(&settings).build_manual()?;
    /// requests.insert("request", Lifetime::Default)?;
    /// assert!(requests.insert("another", Lifetime::Default).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    PendingTableSettings sets PendingTableBuilder, impl [<T: Send + 'static>] [PendingTableBuilder<T>] {
        durations { timeout, interval }
        values { shards: usize, capacity: usize, reaper_budget: usize }
        others {}
    }
}

settings! {
    /// Settings of a [`PendingMap`](crate::PendingMap).
    ///
    /// ```
    /// use expiry::settings::PendingMapSettings;
    /// use expiry::{Lifetime, PendingMap};
    ///
    /// let settings: PendingMapSettings = toml::from_str("timeout = \"30s\"\ncapacity = 1")?;
    /// let requests = PendingMap::builder().settings(&settings).build_manual()?;
    /// requests.insert(7, "request", Lifetime::Default)?;
    /// assert!(requests.insert(8, "another", Lifetime::Default).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    PendingMapSettings sets PendingMapBuilder, impl [<K: Hash + Eq + Send + Sync + 'static, T: Send + 'static>] [PendingMapBuilder<K, T>] {
        durations { timeout, interval }
        values { shards: usize, capacity: usize, reaper_budget: usize }
        others {}
    }
}

settings! {
    /// Settings of an [`ExpiryQueue`](crate::ExpiryQueue).
    ///
    /// ```
    /// use expiry::settings::ExpiryQueueSettings;
    /// use expiry::{ExpiryQueue, StoreError};
    /// use std::time::Duration;
    ///
    /// let settings: ExpiryQueueSettings = toml::from_str("interval = \"1s\"\ncapacity = 1")?;
    /// assert_eq!(settings.interval, Some(Duration::from_secs(1)));
    /// let leases = ExpiryQueue::builder().settings(&settings).build_manual()?;
    /// leases.update("worker 1", Duration::from_secs(10))?;
    /// assert_eq!(leases.update("worker 2", Duration::from_secs(10)), Err(StoreError::Full));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ExpiryQueueSettings sets ExpiryQueueBuilder, impl [<K: Hash + Eq + Send + Sync + 'static>] [ExpiryQueueBuilder<K>] {
        durations { interval, pause_grace }
        values { shards: usize, capacity: usize, reaper_budget: usize }
        others {}
    }
}

settings! {
    /// Settings of a [`SessionTracker`](crate::SessionTracker).
    ///
    /// ```
    /// use expiry::settings::SessionTrackerSettings;
    /// use expiry::SessionTracker;
    /// use std::time::Duration;
    ///
    /// let settings: SessionTrackerSettings = toml::from_str("minimum_timeout = \"4s\"\nserver_id = 1")?;
    /// let sessions = SessionTracker::builder().settings(&settings).build_manual()?;
    /// let session = sessions.create(Duration::from_secs(1), 7)?;
    /// assert_eq!((session.timeout(), session.id().server()), (Duration::from_secs(4), 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    SessionTrackerSettings sets SessionTrackerBuilder, impl [<T: Send + 'static>] [SessionTrackerBuilder<T>] {
        durations { interval, minimum_timeout, maximum_timeout, pause_grace }
        values { server_id: u8, shards: usize, capacity: usize, reaper_budget: usize }
        others {
            /// See [`collect_touches`](SessionTrackerBuilder::collect_touches). Once on it stays.
            collect_touches: bool => set_collect_touches
        }
    }
}

fn set_collect_touches<T: Send + 'static>(
    builder: SessionTrackerBuilder<T>,
    collect: bool,
) -> SessionTrackerBuilder<T> {
    if collect {
        builder.collect_touches()
    } else {
        builder
    }
}

#[cfg(feature = "async")]
settings! {
    /// Settings of [`Timeouts`](crate::Timeouts).
    ///
    /// ```
    /// use expiry::settings::TimeoutsSettings;
    /// use expiry::{BuildError, Timeouts};
    /// use std::time::Duration;
    ///
    /// let settings: TimeoutsSettings = toml::from_str("interval = \"10ms\"\nshards = 4")?;
    /// assert_eq!(settings.interval, Some(Duration::from_millis(10)));
    /// let timeouts = Timeouts::builder().settings(&settings).build_manual()?;
    ///
    /// let settings: TimeoutsSettings = toml::from_str("interval = \"1us\"")?; // a duration, but too short
    /// let refused = Timeouts::builder().settings(&settings).build_manual();
    /// assert_eq!(refused.err(), Some(BuildError::IntervalTooShort { interval: Duration::from_micros(1) }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    TimeoutsSettings sets TimeoutsBuilder, impl [] [TimeoutsBuilder] {
        durations { interval }
        values { shards: usize, capacity: usize, reaper_budget: usize }
        others {}
    }
}
