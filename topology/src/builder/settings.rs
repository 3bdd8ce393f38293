//! The settings of a topology.

use super::TopologyBuilder;
use crate::component::Hook;
use crate::error::BuildError;
use crate::wait::WaitStrategy;
use expiry::Clock;
use std::sync::Arc;
use std::time::Duration;

impl Settings {
    /// What is wrong with them.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let mut wrong = self
            .timeout
            .is_zero()
            .then_some(("timeout", "is zero; for none it takes Duration::MAX"));
        for (setting, value) in [("queue", self.queue), ("batch", self.batch)] {
            match value {
                0 => wrong = Some((setting, "is zero")),
                value if value > 1 << 20 => wrong = Some((setting, "is above 2^20")),
                _ => {}
            }
        }
        wrong.map_or(Ok(()), |(setting, why)| Err(BuildError::setting("", setting, why)))
    }
}

/// The settings and their setters: `setter(argument: Type) => field: Type = default, value;`.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty)?)
        => $field:ident: $of:ty = $default:expr, $value:expr;)+) => {
        /// See [`TopologyBuilder`]'s methods.
        pub(crate) struct Settings {
            $(pub(crate) $field: $of,)+
            pub(crate) hooks: Vec<Box<dyn Hook>>,
        }

        impl Default for Settings {
            fn default() -> Self {
                Settings { $($field: $default,)+ hooks: Vec::new() }
            }
        }

        impl TopologyBuilder {
            $($(#[$doc])*
            pub fn $name(&self, $($arg: $type)?) -> &Self {
                self.settings.borrow_mut().$field = $value;
                self
            })+
        }
    };
}

settings! {
    /// How long all that is derived from a message may take, counted from each attempt. The time in
    /// which bolts hold tuples counts, too. `Duration::MAX` sets no limit.
    timeout(timeout: Duration) => timeout: Duration = Duration::from_secs(30), timeout;
    /// The granularity of timeouts. The default is a 300th of the timeout, between 1 ms and 1 s.
    interval(interval: Duration) => interval: Option<Duration> = None, Some(interval);
    /// Whether trees are tracked. If not, a message is acked as soon as it is emitted, and no
    /// message times out: delivery is at most once.
    acking(acking: bool) => acking: bool = true, acking;
    /// Number of shards of the tracker; see [`AckTracker`](expiry::AckTracker).
    shards(shards: usize) => shards: Option<usize> = None, Some(shards);
    /// The most trees that may be pending in the whole topology. Spouts wait beyond, and report it.
    capacity(trees: usize) => capacity: Option<usize> = None, Some(trees);
    /// How many batches the queue of a bolt's task holds.
    queue(batches: usize) => queue: usize = 64, batches;
    /// How many messages a batch holds at most.
    batch(messages: usize) => batch: usize = 64, messages;
    /// How long a message waits at most for others of its batch, while its task has more to do. (A
    /// task that has nothing to do sends what it has.)
    flush_every(time: Duration) => flush_every: Duration = Duration::from_millis(1), time;
    /// One in so many messages and tuples has its [latency](crate::ComponentMetrics) taken; zero
    /// for none.
    sample_every(messages: u32) => sample_every: u32 = 16, messages;
    /// How threads wait whose tasks have nothing to do.
    wait(strategy: WaitStrategy) => wait: WaitStrategy = WaitStrategy::default(), strategy;
    /// The clock that timeouts, pauses and ticks go by. It must not panic. If it does not run with
    /// real time, threads look at it once a millisecond; [`simulate`](Self::simulate) is better
    /// then.
    clock(clock: impl Clock) => clock: Option<Arc<dyn Clock>> = None, Some(Arc::new(clock));
    /// Spouts and bolts are neither made, opened nor prepared before
    /// [`Topology::activate`](crate::Topology::activate). Those of [`try_spout`](Self::try_spout)
    /// and [`try_bolt`](Self::try_bolt) are made at once.
    start_inactive() => inactive: bool = false, true;
    /// Makes groupings, edges and jitter reproducible, as far as threads allow.
    seed(seed: u64) => seed: Option<u64> = None, Some(seed);
}

impl TopologyBuilder {
    /// Adds a hook, which is called at each event.
    pub fn hook(&self, hook: impl Hook + 'static) -> &Self {
        self.settings.borrow_mut().hooks.push(Box::new(hook));
        self
    }
}
