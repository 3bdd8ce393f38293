//! Publishing through the facade `metrics` (feature `metrics`). The caller sets counters to
//! absolute values whenever it likes; counting itself does nothing more.

use crate::{PartitionStats, SessionStats, SourceStats};
use metrics::{counter, gauge, Label};

macro_rules! publish {
    ($stats:ident, $prefix:literal, counters: $($counter:ident)*, gauges: $($gauge:ident)*) => {
        impl $stats {
            /// Sets a series for each field, in the recorder of the facade `metrics`:
            $(#[doc = concat!("* the counter `", $prefix, stringify!($counter), "_total`")])*
            $(#[doc = concat!("* the gauge `", $prefix, stringify!($gauge), "`")])*
            ///
            /// It looks each up, which allocates: for a thread that publishes every few seconds.
            #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
            pub fn publish<'a>(&self, labels: impl IntoIterator<Item = (&'static str, &'a str)>) {
                // By name: a field that is added does not compile until it is published.
                let $stats { $($counter,)* $($gauge),* } = *self;
                let labels = labels.into_iter();
                let labels: Vec<Label> =
                    labels.map(|(key, value)| Label::new(key, value.to_string())).collect();
                $({
                    let name = concat!($prefix, stringify!($counter), "_total");
                    counter!(name, labels.iter()).absolute($counter);
                })*
                $(gauge!(concat!($prefix, stringify!($gauge)), labels.iter()).set($gauge as f64);)*
            }
        }
    };
}

publish!(
    SourceStats, "expiry_nats_source_",
    counters: delivered redelivered_held acked acked_again naks in_progress dead dead_refused
        pull_errors,
    gauges: held
);
publish!(
    PartitionStats, "expiry_nats_partitions_",
    counters: beats failures claims watches,
    gauges: held
);
publish!(
    SessionStats, "expiry_nats_sessions_",
    counters: touches unanswered malformed,
    gauges: served partitions
);

#[cfg(test)]
#[path = "../tests/unit/publish.rs"]
mod tests;
