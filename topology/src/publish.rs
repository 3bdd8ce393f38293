//! Publishing through the facade `metrics` (feature `metrics`), as [`expiry::publish`] does for
//! trackers. A publication sets counters to a snapshot's absolute values, so it may be repeated,
//! and counting pays nothing for it. The snapshot of
//! [`Topology::tracker_metrics`](crate::Topology::tracker_metrics) publishes the tracker's own.

use crate::ComponentMetrics;
use ::metrics::{with_recorder, Unit};
pub use expiry::publish::Labels;
use expiry::publish::Out;

/// The percentiles of a latency that are published.
const QUANTILES: [(&str, f64); 4] = [("0.5", 50.0), ("0.9", 90.0), ("0.99", 99.0), ("1", 100.0)];

macro_rules! name {
    ($($rest:expr),+) => { concat!("expiry_topology_", $($rest),+) };
}

/// Counters and gauges by the names of their fields, times spent without work, and the rest.
macro_rules! series {
    (
        counters { $($counter:ident, $counts:literal;)* }
        gauges { $($gauge:ident, $gauges:literal;)* }
        skipped { $($skipped:ident, $skips:literal;)* }
        others { $($kind:ident $method:ident $other:literal, $unit:ident, $others:literal;)* }
    ) => {
        /// Describes each series and its unit to the recorder. Call it once, after the recorder was
        /// installed.
        ///
        /// | series | kind | unit | what it is |
        /// |---|---|---|---|
        $(#[doc = concat!("| `", name!(stringify!($counter), "_total"), "` | Counter | Count | ", $counts, " |")])*
        $(#[doc = concat!("| `", name!(stringify!($gauge)), "` | Gauge | Count | ", $gauges, " |")])*
        $(#[doc = concat!("| `", name!(stringify!($skipped), "_nanoseconds_total"), "` | Counter | Nanoseconds | ", $skips, " |")])*
        $(#[doc = concat!("| `", name!($other), "` | ", stringify!($kind), " | ", stringify!($unit), " | ", $others, " |")])*
        pub fn describe() {
            with_recorder(|it| {
                let (count, time) = (Some(Unit::Count), Some(Unit::Nanoseconds));
                $(it.describe_counter(name!(stringify!($counter), "_total").into(), count, $counts.into());)*
                $(it.describe_gauge(name!(stringify!($gauge)).into(), count, $gauges.into());)*
                $(it.describe_counter(name!(stringify!($skipped), "_nanoseconds_total").into(), time, $skips.into());)*
                $(it.$method(name!($other).into(), Some(Unit::$unit), $others.into());)*
            });
        }

        /// Sets the series that have a field of their own.
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // 2^53; 584 years
        fn set(metrics: &ComponentMetrics, out: &Out<'_>) {
            // By name: a field that is added there does not compile until it is published here.
            let ComponentMetrics {
                name: _, latency: _, inputs: _, own: _, $($counter,)* $($gauge,)* $($skipped,)*
            } = metrics;
            $(out.counter(name!(stringify!($counter), "_total"), *$counter, &[]);)*
            $(out.gauge(name!(stringify!($gauge)), *$gauge as f64, &[]);)*
            $(out.counter(
                name!(stringify!($skipped), "_nanoseconds_total"), $skipped.as_nanos() as u64, &[],
            );)*
        }
    };
}

series! {
    counters {
        emitted, "messages that it emitted; by a spout, each attempt counted";
        transferred, "copies of these, one for each task that one goes to";
        executed, "tuples that a bolt executed";
        acked, "of a bolt, tuples acked; of a spout, messages whose tree was";
        failed, "of a bolt, tuples failed; of a spout, attempts that failed";
        trees_acked, "trees that ended with one of a bolt's acks";
        trees_failed, "trees that ended with one of a bolt's fails";
        late, "a bolt's acks and fails that came when their tree had ended";
        timed_out, "a spout's attempts that timed out";
        replayed, "a spout's messages that were emitted again";
        dead_letters, "a spout's messages that were given up";
        panics, "panics that were caught";
        errors, "errors that it has reported, and panics";
    }
    gauges {
        tasks, "tasks of a component";
        held, "tuples that a bolt has neither acked nor failed";
        pending, "a spout's messages in flight, or waiting to be emitted again";
        queued, "batches in a bolt's queues";
        overflow, "batches that it could not send on yet";
    }
    skipped {
        skipped_max_pending, "time in which a spout emitted nothing because as much was pending as may be";
        skipped_inactive, "the same, because it was not active";
        skipped_back_pressure, "time in which it did nothing new because those after it had no room";
    }
    others {
        Gauge describe_gauge "latency_seconds", Seconds, "since the start, the label `quantile` of: a bolt's `execute`; a spout's messages, from emission to ack";
        Counter describe_counter "latency_seconds_count", Count, "how many of these were taken";
        Counter describe_counter "input_executed_total", Count, "tuples that a bolt executed, by the labels `source` and `input`, the number of the grouping";
        Counter describe_counter "input_acked_total", Count, "tuples of these that it acked";
        Counter describe_counter "input_failed_total", Count, "tuples of these that it failed";
        Gauge describe_gauge "input_process_seconds", Seconds, "since the start, by the labels `source` and `input`: what 99 of 100 took from their receipt to ack or fail";
        Gauge describe_gauge "own", Count, "a component's own counter, by the label `name`";
    }
}

impl ComponentMetrics {
    /// Sets each series of [`describe`]'s table to this snapshot, in the recorder of the facade
    /// `metrics`, with the component's name as the label `component`. O(series), with an allocation
    /// and a look-up in the recorder for each: for a thread that does so every few seconds.
    pub fn publish(&self, labels: impl Into<Labels>) {
        labels.into().with("component", self.name.as_str()).out(|out| {
            set(self, out);
            for (quantile, percent) in QUANTILES {
                let value = self.latency.percentile(percent).as_secs_f64();
                out.gauge(name!("latency_seconds"), value, &[("quantile", quantile)]);
            }
            out.counter(name!("latency_seconds_count"), self.latency.count(), &[]);
            for (at, input) in self.inputs.iter().enumerate() {
                let at = at.to_string();
                let labels = [("source", input.source.as_str()), ("input", at.as_str())];
                out.counter(name!("input_executed_total"), input.executed, &labels);
                out.counter(name!("input_acked_total"), input.acked, &labels);
                out.counter(name!("input_failed_total"), input.failed, &labels);
                let process = input.process.percentile(99.0).as_secs_f64();
                out.gauge(name!("input_process_seconds"), process, &labels);
            }
            for (name, value) in &self.own {
                #[allow(clippy::cast_precision_loss)] // beyond 2^53
                out.gauge(name!("own"), *value as f64, &[("name", name)]);
            }
        });
    }
}
