//! What the modules of this crate share.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Interval, MissedTickBehavior};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A task that ends when this is dropped.
pub(crate) struct Task(AbortHandle);

impl Task {
    pub(crate) fn new(task: impl Future<Output = ()> + Send + 'static) -> Task {
        Task(tokio::spawn(task).abort_handle())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Ticks that come late put off those that follow.
pub(crate) fn ticks(every: Duration) -> Interval {
    let mut ticks = tokio::time::interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Locks. What this crate locks does not panic between two states.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Setters of a builder: `name(argument: Type) => field = value;`.
macro_rules! setters {
    ($builder:ident $(<$param:ident>)? $(
        $(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) => $($field:tt).+ = $value:expr;
    )+) => {
        impl $(<$param>)? $builder $(<$param>)? {
            $($(#[$doc])*
            pub fn $name(mut self, $($arg: $type),*) -> Self {
                self.$($field).+ = $value;
                self
            })+
        }
    };
}

/// `Debug` of a type with fields that have none, as a format string with its arguments.
macro_rules! debug {
    ($type:ident $(<$param:ident>)?, |$it:ident| $($format:tt)+) => {
        impl $(<$param>)? std::fmt::Debug for $type $(<$param>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $it = self;
                write!(f, $($format)+)
            }
        }
    };
}

/// A snapshot of counts, and `publish`. With `counted`, the counters behind it too: the caller of
/// `snapshot` gives the gauges.
macro_rules! stats {
    (counted $(#[$doc:meta])* $stats:ident as $prefix:literal
     gauges { $($(#[$gauge_doc:meta])* $gauge:ident: $type:ty,)+ }
     counters { $($(#[$counter_doc:meta])* $counter:ident,)+ }
    ) => {
        crate::base::stats! {
            $(#[$doc])* $stats as $prefix
            gauges { $($(#[$gauge_doc])* $gauge: $type,)+ }
            counters { $($(#[$counter_doc])* $counter,)+ }
        }

        #[derive(Default)]
        struct Counts {
            $($counter: std::sync::atomic::AtomicU64,)+
        }

        impl Counts {
            fn snapshot(&self, $($gauge: $type,)+) -> $stats {
                $(let $counter = self.$counter.load(std::sync::atomic::Ordering::Relaxed);)+
                $stats { $($gauge,)+ $($counter,)+ }
            }
        }
    };
    ($(#[$doc:meta])* $stats:ident as $prefix:literal
     gauges { $($(#[$gauge_doc:meta])* $gauge:ident: $type:ty,)+ }
     counters { $($(#[$counter_doc:meta])* $counter:ident,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $stats {
            $($(#[$gauge_doc])* pub $gauge: $type,)+
            $($(#[$counter_doc])* pub $counter: u64,)+
        }

        #[cfg(feature = "metrics")]
        impl $stats {
            /// Sets a series for each field, in the recorder of the facade `metrics`, to its
            /// absolute value:
            $(#[doc = concat!("* the counter `", $prefix, stringify!($counter), "_total`")])+
            $(#[doc = concat!("* the gauge `", $prefix, stringify!($gauge), "`")])+
            ///
            /// It looks each up, which allocates: for a thread that publishes every few seconds.
            #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
            pub fn publish<'a>(&self, labels: impl IntoIterator<Item = (&'static str, &'a str)>) {
                let labels = labels.into_iter();
                let labels: Vec<_> = labels.map(|(key, value)| (key, value.to_string())).collect();
                $(metrics::counter!(concat!($prefix, stringify!($counter), "_total"), &labels)
                    .absolute(self.$counter);)+
                $(metrics::gauge!(concat!($prefix, stringify!($gauge)), &labels)
                    .set(self.$gauge as f64);)+
            }
        }
    };
}

pub(crate) use {debug, setters, stats};

#[cfg(all(test, feature = "metrics"))]
#[path = "../tests/unit/base.rs"]
mod tests;
