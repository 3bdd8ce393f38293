//! Publishing through the facade `metrics` (feature `metrics`).
//!
//! The engine counts in its threads' stripes, so no operation pays for a publication. A publication
//! takes a snapshot and sets each series to it. Counters, of which recorders keep the larger value,
//! are set to absolute values: publishing twice, or by two threads at once, counts nothing twice.
//! The lateness, too, is published as the cumulative counters that Prometheus makes of a histogram,
//! and not recorded into a histogram of the recorder's.

use crate::core::lateness::Lateness;
use ::metrics::{with_recorder, Key, Label, Level, Metadata, Recorder, Unit};
use std::time::Duration;

/// Under what name a snapshot is published, with which further labels, and whether shard by shard.
///
/// ```
/// use expiry::publish::Labels;
///
/// let tracker = expiry::AckTracker::builder().build()?;
/// tracker.metrics().publish("acks"); // the label `name` is "acks"
/// tracker.metrics().publish(Labels::new("acks").with("region", "north").by_shard());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Labels {
    /// The first is the name.
    all: Vec<Label>,
    by_shard: bool,
}

impl Labels {
    /// The label `name`: it distinguishes this store from the others of the process. Two that are
    /// published under one name, with the same labels, overwrite each other.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Labels { all: vec![Label::new("name", name.into())], by_shard: false }
    }

    /// One more label. Not `name`, `shard` or `le`, which are taken.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.all.push(Label::new(key.into(), value.into()));
        self
    }

    /// Publishes what is counted shard by shard with the label `shard`, in place of its sum. It
    /// matters only for snapshots that have shards.
    #[must_use]
    pub fn by_shard(mut self) -> Self {
        self.by_shard = true;
        self
    }

    /// What it says, `name` first: keys and values. It is for programs that publish series of their
    /// own beside these.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + '_ {
        self.all.iter().map(|label| (label.key(), label.value()))
    }

    pub(crate) fn each<S>(&self, shards: &[S], total: &S, publish: fn(&S, &Out<'_>)) {
        if !self.by_shard {
            return self.out(|out| publish(total, out));
        }
        for (number, shard) in shards.iter().enumerate() {
            let mut labels = self.all.clone();
            labels.push(Label::new("shard", number.to_string()));
            out(&labels, |out| publish(shard, out));
        }
    }

    #[doc(hidden)] // for `expiry-topology`
    pub fn out(&self, f: impl FnOnce(&Out<'_>)) {
        out(&self.all, f);
    }
}

impl<T: Into<String>> From<T> for Labels {
    fn from(name: T) -> Self {
        Labels::new(name)
    }
}

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Where one set of labels goes.
#[doc(hidden)]
pub struct Out<'a> {
    recorder: &'a dyn Recorder,
    labels: &'a [Label],
}

fn out(labels: &[Label], f: impl FnOnce(&Out<'_>)) {
    with_recorder(|recorder| f(&Out { recorder, labels }));
}

impl Out<'_> {
    fn key(&self, name: &'static str, further: &[(&'static str, &str)]) -> Key {
        let further = further.iter().map(|&(key, value)| Label::new(key, value.to_string()));
        Key::from_parts(name, self.labels.iter().cloned().chain(further).collect::<Vec<_>>())
    }

    pub fn counter(&self, name: &'static str, value: u64, further: &[(&'static str, &str)]) {
        self.recorder.register_counter(&self.key(name, further), &METADATA).absolute(value);
    }

    pub fn gauge(&self, name: &'static str, value: f64, further: &[(&'static str, &str)]) {
        self.recorder.register_gauge(&self.key(name, further), &METADATA).set(value);
    }
}

/// A value of a snapshot, which is published as a series.
pub(crate) trait Value {
    fn publish(&self, series: &Series, out: &Out<'_>);
}

impl Value for u64 {
    fn publish(&self, series: &Series, out: &Out<'_>) {
        match series.kind {
            Kind::Counter => out.counter(series.name, *self, &[]),
            #[allow(clippy::cast_precision_loss)] // beyond 2^53
            Kind::Gauge => out.gauge(series.name, *self as f64, &[]),
        }
    }
}

/// `None` is not published.
impl Value for Option<u64> {
    fn publish(&self, series: &Series, out: &Out<'_>) {
        if let Some(value) = self {
            value.publish(series, out);
        }
    }
}

/// In nanoseconds.
impl Value for Duration {
    fn publish(&self, series: &Series, out: &Out<'_>) {
        #[allow(clippy::cast_possible_truncation)] // 584 years
        (self.as_nanos() as u64).publish(series, out);
    }
}

/// The series counts all of it. Its buckets are series of their own.
impl Value for Lateness {
    fn publish(&self, series: &Series, out: &Out<'_>) {
        let up_to = |le: &str, sum| out.counter(LATENESS_BUCKET.name, sum, &[("le", le)]);
        let mut sum = 0;
        for (power, count) in (1..).zip(&self.counts) {
            sum += count;
            if LE.contains(&power) {
                #[allow(clippy::cast_precision_loss)] // a power of two
                let le = (1u64 << power) as f64 / 1e9;
                up_to(&le.to_string(), sum);
            }
        }
        up_to("+Inf", sum);
        sum.publish(series, out);
    }
}

/// The buckets of the lateness that are published, as powers of two of nanoseconds: 16 us to 69 s.
/// What is above is in `+Inf`.
const LE: std::ops::RangeInclusive<u32> = 14..=36;

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// What one value of all stores is published as.
pub(crate) struct Series {
    name: &'static str,
    kind: Kind,
}

macro_rules! series {
    ($($kind:ident $constant:ident = $name:literal, $unit:ident, $help:literal;)*) => {
        $(pub(crate) const $constant: Series = Series { name: $name, kind: Kind::$kind };)*

        /// Tells the recorder what each series is, and its unit: once, after the recorder was
        /// installed.
        ///
        /// | series | kind | unit | what it is |
        /// |---|---|---|---|
        $(#[doc = concat!("| `", $name, "` | ", stringify!($kind), " | ", stringify!($unit), " | ", $help, " |")])*
        pub fn describe() {
            with_recorder(|recorder| {
                $({
                    let (name, unit) = ($name.into(), Some(Unit::$unit));
                    match Kind::$kind {
                        Kind::Counter => recorder.describe_counter(name, unit, $help.into()),
                        Kind::Gauge => recorder.describe_gauge(name, unit, $help.into()),
                    }
                })*
            });
        }
    };
}

series! {
    Gauge LIVE = "expiry_live", Count, "entries now";
    Gauge CAPACITY = "expiry_capacity", Count, "the most entries there may be, where that is bounded";
    Gauge WEIGHT = "expiry_weight", Count, "what entries weigh, of the capacity, where that is bounded";
    Gauge SLOTS = "expiry_slots", Count, "slots whose memory is held, in use or not";
    Gauge UNRECLAIMED = "expiry_unreclaimed", Count, "entries that have ended and whose memory is not free yet";
    Gauge TABLES = "expiry_tables", Count, "tables of the index: one for each shard, and more while it grows or shrinks";
    Counter INSERTED = "expiry_inserted_total", Count, "entries that came in";
    Counter REFUSED = "expiry_refused_total", Count, "calls that found no room for their entry";
    Counter REPLACED = "expiry_replaced_total", Count, "values that took another's place";
    Counter ACKED = "expiry_acked_total", Count, "roots that were acked";
    Counter FAILED = "expiry_failed_total", Count, "roots that failed";
    Counter REMOVED = "expiry_removed_total", Count, "entries that somebody removed; of timeouts, because the future was ready or dropped";
    Counter EVICTED = "expiry_evicted_total", Count, "entries that a full map has evicted";
    Counter EXPIRED = "expiry_expired_total", Count, "entries whose time was up";
    Counter CLOSED = "expiry_closed_total", Count, "entries that ended with the shutdown";
    Counter HITS = "expiry_hits_total", Count, "look-ups that found an entry";
    Counter MISSES = "expiry_misses_total", Count, "look-ups that found none";
    Counter LOADS = "expiry_loads_total", Count, "loads whose callers got a value";
    Counter FAILED_LOADS = "expiry_failed_loads_total", Count, "loads whose callers got none";
    Counter LATE = "expiry_late_total", Count, "acks, fails and resets after the end of their root";
    Counter DUPLICATE = "expiry_duplicate_total", Count, "inits of roots that were in flight already";
    Counter EARLY_HELD = "expiry_early_held_total", Count, "roots of which something came before their init and was held";
    Counter EARLY_MERGED = "expiry_early_merged_total", Count, "of these, how many met their init";
    Counter EARLY_EXPIRED = "expiry_early_expired_total", Count, "of these, how many waited in vain";
    Counter EARLY_REFUSED = "expiry_early_refused_total", Count, "acks, fails and resets that came before their init and were refused because too many roots were held";
    Counter LATENESS_BUCKET = "expiry_lateness_seconds_bucket", Count, "expirations that were seen at most `le` seconds after they were due";
    Counter LATENESS = "expiry_lateness_seconds_count", Count, "all of these";
    Counter REAPER_BUSY = "expiry_reaper_busy_nanoseconds_total", Nanoseconds, "time that the reaper has spent working";
    Counter REAPER_ROUNDS = "expiry_reaper_rounds_total", Count, "how often it has woken up";
    Counter HANDLER_PANICS = "expiry_handler_panics_total", Count, "panics of handlers, listeners, wakers, and of the clock, that were caught";
    Counter DROP_PANICS = "expiry_drop_panics_total", Count, "panics of keys' and values' drops that were caught";
    Counter SPILLED = "expiry_spilled_total", Count, "what went to the second queue of a full channel";
    Counter UNDELIVERED = "expiry_undelivered_total", Count, "what nobody got: dropped by a full channel, or the receiver was gone";
}
