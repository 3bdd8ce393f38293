//! The settings of a topology.

use super::TopologyBuilder;
use crate::component::Hook;
use crate::replay::DeadLetter;
use crate::wait::WaitStrategy;
use expiry::Clock;
use std::sync::Arc;
use std::time::Duration;

impl<M: Clone + Send + 'static> TopologyBuilder<M> {
    /// How long all that is derived from a message may take, counted from each attempt. The time in
    /// which bolts hold tuples counts, too. `Duration::MAX` sets no limit.
    pub fn timeout(&mut self, timeout: Duration) -> &mut Self {
        self.timeout = timeout;
        self
    }

    /// The granularity of timeouts. The default is a 300th of the timeout, between 1 ms and 1 s.
    pub fn interval(&mut self, interval: Duration) -> &mut Self {
        self.interval = Some(interval);
        self
    }

    /// Whether trees are tracked. If not, a message is acked as soon as it is emitted, and no
    /// message times out: delivery is at most once.
    pub fn acking(&mut self, acking: bool) -> &mut Self {
        self.acking = acking;
        self
    }

    /// How many batches the queue of a bolt's task holds.
    pub fn queue(&mut self, batches: usize) -> &mut Self {
        self.queue = batches;
        self
    }

    /// How many messages a batch holds at most.
    pub fn batch(&mut self, messages: usize) -> &mut Self {
        self.batch = messages;
        self
    }

    /// How long a message waits at most for others of its batch, while its task has more to do. (A
    /// task that has nothing to do sends what it has.)
    pub fn flush_every(&mut self, time: Duration) -> &mut Self {
        self.flush_every = time;
        self
    }

    /// How threads wait whose tasks have nothing to do.
    pub fn wait(&mut self, strategy: impl WaitStrategy) -> &mut Self {
        self.wait = Arc::new(strategy);
        self
    }

    /// The clock that timeouts, pauses and ticks go by. It must not panic. If it does not run with
    /// real time, threads look at it once a millisecond; [`start_manual`](Self::start_manual) is
    /// better then.
    pub fn clock(&mut self, clock: impl Clock) -> &mut Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Spouts are neither made nor opened before [`Topology::activate`](crate::Topology::activate).
    /// Bolts are made at once, and so are spouts of [`try_spout`](Self::try_spout).
    pub fn start_inactive(&mut self) -> &mut Self {
        self.inactive = true;
        self
    }

    /// Adds a hook, which is called at each event.
    pub fn hook(&mut self, hook: impl Hook<M> + 'static) -> &mut Self {
        self.hooks.push(Box::new(hook));
        self
    }

    /// Sets the handler of messages that are given up. The spout's thread calls it before the
    /// spout's `fail`. With a handler, or with [`replay`](crate::SpoutSpec::replay), a copy of each
    /// pending message is kept. If the handler panics, the panic is counted, the letter is gone,
    /// and the spout's `fail` is called all the same. A spout that sends its
    /// [dead letters](crate::SpoutSpec::dead_letters) to a stream calls no handler.
    pub fn on_dead_letter(
        &mut self,
        handler: impl Fn(DeadLetter<M>) + Send + Sync + 'static,
    ) -> &mut Self {
        self.on_dead_letter = Some(Arc::new(move |letter| {
            handler(letter);
            None
        }));
        self
    }

    /// Makes groupings, edges and jitter reproducible, as far as threads allow.
    pub fn seed(&mut self, seed: u64) -> &mut Self {
        self.seed = Some(seed);
        self
    }
}
