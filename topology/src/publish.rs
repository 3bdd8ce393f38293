//! Publishing through the facade `metrics` (feature `metrics`), as [`expiry::publish`] does for
//! trackers: snapshots, whose counters are set to absolute values, whenever you like, and nothing
//! is done where they are counted. The tracker's own are published by
//! [`Topology::tracker_metrics`](crate::Topology::tracker_metrics).

use crate::{ComponentMetrics, Latency};
use ::metrics::{with_recorder, Key, Label, Level, Metadata, Recorder, Unit};
pub use expiry::publish::Labels;
use std::time::Duration;

static METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// The percentiles of a latency that are published.
const QUANTILES: [(&str, f64); 4] = [("0.5", 50.0), ("0.9", 90.0), ("0.99", 99.0), ("1", 100.0)];

struct Out<'a> {
    recorder: &'a dyn Recorder,
    labels: Vec<Label>,
}

impl Out<'_> {
    fn key(&self, name: &'static str, further: impl IntoIterator<Item = Label>) -> Key {
        let labels: Vec<Label> = self.labels.iter().cloned().chain(further).collect();
        Key::from_parts(name, labels)
    }

    fn counter(&self, counter: &Counter, value: u64) {
        self.labelled(counter, value, None);
    }

    fn labelled(&self, counter: &Counter, value: u64, labels: impl IntoIterator<Item = Label>) {
        let key = self.key(counter.0, labels);
        let counter = self.recorder.register_counter(&key, &METADATA);
        counter.absolute(value);
    }

    fn gauge(&self, gauge: &Gauge, value: u64) {
        let key = self.key(gauge.0, None);
        #[allow(clippy::cast_precision_loss)] // beyond 2^53
        let value = value as f64;
        self.recorder.register_gauge(&key, &METADATA).set(value);
    }

    fn skipped(&self, counter: &Counter, time: Duration) {
        #[allow(clippy::cast_possible_truncation)] // 584 years
        self.counter(counter, time.as_nanos() as u64);
    }

    fn latency(&self, latency: &Latency) {
        for (quantile, percent) in QUANTILES {
            let key = self.key(LATENCY.0, Some(Label::new("quantile", quantile)));
            let gauge = self.recorder.register_gauge(&key, &METADATA);
            gauge.set(latency.percentile(percent).as_secs_f64());
        }
        self.counter(&LATENCY_COUNT, latency.count());
    }
}

struct Counter(&'static str);
struct Gauge(&'static str);

impl Counter {
    fn describe(&self, recorder: &dyn Recorder, unit: Unit, help: &'static str) {
        recorder.describe_counter(self.0.into(), Some(unit), help.into());
    }
}

impl Gauge {
    fn describe(&self, recorder: &dyn Recorder, unit: Unit, help: &'static str) {
        recorder.describe_gauge(self.0.into(), Some(unit), help.into());
    }
}

macro_rules! series {
    ($($kind:ident $constant:ident = $name:literal, $unit:ident, $help:literal;)*) => {
        $(const $constant: $kind = $kind($name);)*

        /// Describes each series and its unit to the recorder. Call it once, after the recorder was
        /// installed.
        ///
        /// | series | kind | unit | what it is |
        /// |---|---|---|---|
        $(#[doc = concat!("| `", $name, "` | ", stringify!($kind), " | ", stringify!($unit), " | ", $help, " |")])*
        pub fn describe() {
            with_recorder(|recorder| {
                $($constant.describe(recorder, Unit::$unit, $help);)*
            });
        }
    };
}

series! {
    Gauge TASKS = "expiry_topology_tasks", Count, "tasks of a component";
    Counter EMITTED = "expiry_topology_emitted_total", Count, "messages that it emitted; by a spout, each attempt counted";
    Counter TRANSFERRED = "expiry_topology_transferred_total", Count, "copies of these, one for each task that one goes to";
    Counter EXECUTED = "expiry_topology_executed_total", Count, "tuples that a bolt executed";
    Counter ACKED = "expiry_topology_acked_total", Count, "of a bolt, tuples acked; of a spout, messages whose tree was";
    Counter FAILED = "expiry_topology_failed_total", Count, "of a bolt, tuples failed; of a spout, attempts that failed";
    Gauge HELD = "expiry_topology_held", Count, "tuples that a bolt has neither acked nor failed";
    Counter TREES_ACKED = "expiry_topology_trees_acked_total", Count, "trees that ended with one of a bolt's acks";
    Counter TREES_FAILED = "expiry_topology_trees_failed_total", Count, "trees that ended with one of a bolt's fails";
    Counter LATE = "expiry_topology_late_total", Count, "a bolt's acks and fails that came when their tree had ended";
    Counter TIMED_OUT = "expiry_topology_timed_out_total", Count, "a spout's attempts that timed out";
    Counter REPLAYED = "expiry_topology_replayed_total", Count, "a spout's messages that were emitted again";
    Counter DEAD_LETTERS = "expiry_topology_dead_letters_total", Count, "a spout's messages that were given up";
    Counter PANICS = "expiry_topology_panics_total", Count, "panics that were caught";
    Counter ERRORS = "expiry_topology_errors_total", Count, "errors that it has reported, and panics";
    Gauge PENDING = "expiry_topology_pending", Count, "a spout's messages in flight, or waiting to be emitted again";
    Gauge QUEUED = "expiry_topology_queued", Count, "batches in a bolt's queues";
    Gauge OVERFLOW = "expiry_topology_overflow", Count, "batches that it could not send on yet";
    Counter SKIPPED_MAX_PENDING = "expiry_topology_skipped_max_pending_nanoseconds_total", Nanoseconds, "time in which a spout emitted nothing because as much was pending as may be";
    Counter SKIPPED_INACTIVE = "expiry_topology_skipped_inactive_nanoseconds_total", Nanoseconds, "the same, because it was not active";
    Counter SKIPPED_BACK_PRESSURE = "expiry_topology_skipped_back_pressure_nanoseconds_total", Nanoseconds, "time in which it did nothing new because those after it had no room";
    Gauge LATENCY = "expiry_topology_latency_seconds", Seconds, "since the start, the label `quantile` of: a bolt's `execute`; a spout's messages, from emission to ack";
    Counter INPUT_EXECUTED = "expiry_topology_input_executed_total", Count, "tuples that a bolt executed, by the labels `source` and `input`, the number of the grouping";
    Counter INPUT_ACKED = "expiry_topology_input_acked_total", Count, "tuples of these that it acked";
    Counter INPUT_FAILED = "expiry_topology_input_failed_total", Count, "tuples of these that it failed";
    Gauge INPUT_PROCESS = "expiry_topology_input_process_seconds", Seconds, "since the start, by the labels `source` and `input`: what 99 of 100 took from their receipt to ack or fail";
    Gauge OWN = "expiry_topology_own", Count, "a component's own counter, by the label `name`";
    Counter LATENCY_COUNT = "expiry_topology_latency_seconds_count", Count, "how many of these were taken";
}

impl ComponentMetrics {
    /// Sets each series of [`describe`]'s table to this snapshot, in the recorder of the facade
    /// `metrics`, with the component's name as the label `component`. O(series), with an allocation
    /// and a look-up in the recorder for each: for a thread that does so every few seconds.
    pub fn publish(&self, labels: impl Into<Labels>) {
        // By name: a counter that is added there does not compile until it is published here.
        let ComponentMetrics {
            name,
            tasks,
            emitted,
            transferred,
            executed,
            acked,
            failed,
            held,
            trees_acked,
            trees_failed,
            late,
            timed_out,
            replayed,
            dead_letters,
            panics,
            errors,
            pending,
            queued,
            overflow,
            skipped_max_pending,
            skipped_inactive,
            skipped_back_pressure,
            latency,
            inputs,
            own,
        } = self;
        let labels = labels.into().with("component", name.as_str());
        let labels = labels
            .iter()
            .map(|(key, value)| Label::new(key.to_string(), value.to_string()))
            .collect();
        with_recorder(|recorder| {
            let out = Out { recorder, labels };
            for (counter, &value) in [
                (&EMITTED, emitted),
                (&TRANSFERRED, transferred),
                (&EXECUTED, executed),
                (&ACKED, acked),
                (&FAILED, failed),
                (&TREES_ACKED, trees_acked),
                (&TREES_FAILED, trees_failed),
                (&LATE, late),
                (&TIMED_OUT, timed_out),
                (&REPLAYED, replayed),
                (&DEAD_LETTERS, dead_letters),
                (&PANICS, panics),
                (&ERRORS, errors),
            ] {
                out.counter(counter, value);
            }
            out.gauge(&TASKS, *tasks as u64);
            out.gauge(&HELD, *held);
            out.gauge(&PENDING, *pending);
            out.gauge(&QUEUED, *queued as u64);
            out.gauge(&OVERFLOW, *overflow);
            out.skipped(&SKIPPED_MAX_PENDING, *skipped_max_pending);
            out.skipped(&SKIPPED_INACTIVE, *skipped_inactive);
            out.skipped(&SKIPPED_BACK_PRESSURE, *skipped_back_pressure);
            out.latency(latency);
            for (at, input) in inputs.iter().enumerate() {
                let source = || {
                    [
                        Label::new("source", input.source.clone()),
                        Label::new("input", at.to_string()),
                    ]
                };
                let counts = [
                    (&INPUT_EXECUTED, input.executed),
                    (&INPUT_ACKED, input.acked),
                    (&INPUT_FAILED, input.failed),
                ];
                counts
                    .into_iter()
                    .for_each(|(counter, value)| out.labelled(counter, value, source()));
                let process = input.process.percentile(99.0).as_secs_f64();
                let key = out.key(INPUT_PROCESS.0, source());
                out.recorder.register_gauge(&key, &METADATA).set(process);
            }
            for (name, value) in own {
                #[allow(clippy::cast_precision_loss)] // beyond 2^53
                let value = *value as f64;
                let key = out.key(OWN.0, Some(Label::new("name", name.clone())));
                out.recorder.register_gauge(&key, &METADATA).set(value);
            }
        });
    }
}
