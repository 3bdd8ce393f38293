//! A bolt at work.

use crate::builder::BoltFactory;
use crate::component::Bolt;
use crate::emit::{Batch, Emitter};
use crate::inbox::{Inbox, Jam};
use crate::instance::{Instance, Workplace};
use crate::outcomes::Cause;
use crate::task::{Panicked, Shared, Step, Task, SAMPLED};
use crate::tuple::{Roots, Tuple};
use expiry::{Ack, AckError, Root};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

/// In a batch of tuples that are executed quickly, the bolt reads the clock after so many.
const SELDOM: u64 = 8;

/// What a bolt's collector works on.
pub(crate) struct Bench<M> {
    pub(crate) emitter: Emitter<M>,
    pub(crate) shared: Arc<Shared>,
    /// Acks not reported to the tracker yet: the bolt reports them together, at the end of a batch.
    acks: Vec<(Root, u64)>,
    component: u64,
    now: u64,
}

impl<M: Clone> Workplace for Bench<M> {
    type Message = M;

    fn emitter(&self) -> &Emitter<M> {
        &self.emitter
    }

    fn now(&self) -> u64 {
        self.now
    }
}

impl<M: Clone> Bench<M> {
    pub(crate) fn ack(&mut self, tuple: Tuple<M>) {
        for anchor in &tuple.anchors {
            self.acks.push((anchor.root, anchor.xor.get()));
        }
        self.emitter.stats.acked.add(1);
        self.emitter.tell(|hook| hook.ack(&self.emitter.context));
    }

    pub(crate) fn fail(&mut self, roots: impl Iterator<Item = Root>, cause: Option<Cause>) {
        let Shared { tracker, desks, .. } = &*self.shared;
        if let Some(tracker) = tracker {
            for root in roots {
                match desks.because(cause.as_ref(), || tracker.fail_by(root, self.component)) {
                    Ok(_) => self.emitter.stats.trees_failed.add(1),
                    Err(error) => refused(&self.emitter, error),
                }
            }
        }
        self.emitter.stats.failed.add(1);
        self.emitter.tell(|hook| hook.fail(&self.emitter.context));
    }

    /// Reports the acks so far to the tracker. Returns `false` if the tracker refused one of them.
    pub(crate) fn flush_acks(&mut self) -> bool {
        if self.acks.is_empty() {
            return true;
        }
        let (mut ended, mut all) = (0, true);
        let Shared { tracker, desks, .. } = &*self.shared;
        if let Some(tracker) = tracker {
            desks.together(|| {
                tracker.ack_batch(&self.acks, |_, acked| match acked {
                    Ok(acked) => ended += u64::from(acked == Ack::Completed),
                    Err(error) => {
                        all = false;
                        refused(&self.emitter, error);
                    }
                });
            });
        }
        self.emitter.stats.trees_acked.add(ended);
        self.acks.clear();
        all
    }
}

/// Counts an ack or a fail that was refused.
#[cold]
fn refused<M: Clone>(emitter: &Emitter<M>, error: AckError) {
    match error {
        // The spout has already received this message's outcome.
        AckError::NotLive => emitter.stats.late.add(1),
        other => emitter.report(&other),
    }
}

pub(crate) struct BoltTask<M> {
    bolt: Instance<dyn Bolt<M>>,
    factory: BoltFactory<M>,
    bench: Bench<M>,
    inbox: Arc<Inbox<Batch<M>>>,
    /// What is left of the batch that was taken last: something if the instance is gone, and
    /// another one cannot be made.
    batch: std::vec::IntoIter<Tuple<M>>,
    /// If it is on a cycle, those of the spouts that lead to it.
    jams: Option<Vec<Arc<Jam>>>,
    /// It is counted there.
    is_jammed: bool,
    tick: Option<u64>,
    next_tick: u64,
    /// It has executed something since its last tick.
    is_fresh: bool,
    /// Number of tuples executed since the last flush. They are counted once the tracker has their
    /// acks.
    executed: u64,
    /// Number of executed tuples after which the bolt reads the clock.
    look_after: u64,
    flushed: u64,
    last: u64,
}

impl<M: Clone + Send + 'static> BoltTask<M> {
    pub(crate) fn new(
        component: usize,
        emitter: Emitter<M>,
        shared: Arc<Shared>,
        inbox: Arc<Inbox<Batch<M>>>,
        factory: BoltFactory<M>,
        tick: Option<Duration>,
        jams: Option<Vec<Arc<Jam>>>,
    ) -> Self {
        let now = shared.clock.now();
        let tick = tick.map(|tick| u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX));
        BoltTask {
            bolt: Instance::new(),
            factory,
            bench: Bench { emitter, shared, acks: Vec::new(), component: component as u64, now },
            inbox,
            batch: Vec::new().into_iter(),
            jams,
            is_jammed: false,
            next_tick: now.saturating_add(tick.unwrap_or(0)),
            tick,
            is_fresh: false,
            executed: 0,
            look_after: 1,
            flushed: now,
            last: now,
        }
    }

    /// Whether there is an instance; if not, one is made, unless that panics, or has a moment ago.
    fn is_made(&mut self) -> bool {
        let BoltTask { bolt, factory, bench, .. } = self;
        bolt.is_made(bench, |context| factory(context), |bolt, context| bolt.prepare(context))
    }

    /// Calls the bolt, if there is one.
    fn call(&mut self, f: impl FnOnce(&mut dyn Bolt<M>, &mut Bench<M>)) -> Result<(), Panicked> {
        let done = self.bolt.call(&mut self.bench, |bolt, bench| f(bolt, bench));
        done.unwrap_or(Ok(()))
    }

    fn execute(&mut self, tuple: Tuple<M>) {
        let mut roots = Roots::new();
        // This loop does not collect: that takes as long as the rest of this.
        tuple.roots().for_each(|root| roots.push(root));
        let stats = &self.bench.emitter.stats;
        let sampled = (stats.executed.get() + self.executed) % SAMPLED == 0;
        let timed = sampled || !self.bench.emitter.hooks.is_empty();
        let began = if timed { self.bench.shared.clock.now() } else { 0 };
        let done = self.call(|bolt, bench| {
            bolt.execute(tuple, &mut crate::BoltCollector { bench });
        });
        if let Err(panicked) = done {
            let cause = Cause::Failed(panicked.to_string().into());
            self.bench.fail(roots.into_iter(), Some(cause));
        }
        if timed {
            let took = self.bench.shared.clock.now().saturating_sub(began);
            let emitter = &self.bench.emitter;
            if sampled {
                emitter.stats.took(took);
            }
            emitter.tell(|hook| hook.execute(&emitter.context, Duration::from_nanos(took)));
        }
        self.executed += 1;
        self.is_fresh = true;
    }

    /// Executes the batch at hand, as long as there is an instance. What its first tuples have come
    /// to does not wait for the last one for longer than the topology says.
    fn execute_all(&mut self) {
        while self.batch.len() > 0 && self.is_made() {
            let Some(tuple) = self.batch.next() else {
                break;
            };
            self.execute(tuple);
            if self.executed >= self.look_after {
                let now = self.bench.shared.clock.coarse();
                if now.saturating_sub(self.flushed) >= self.bench.shared.flush_every {
                    self.flush(now);
                } else {
                    self.look_after += self.look_after.min(SELDOM);
                }
            }
        }
    }

    /// Reports the acks so far to the tracker, then counts the executed tuples: a thread that reads
    /// a tuple as executed finds it acked.
    fn settle(&mut self) {
        self.bench.flush_acks();
        let stats = &self.bench.emitter.stats;
        stats.executed.add(std::mem::take(&mut self.executed));
        self.look_after = 1;
    }

    /// Settles, and sends what has been emitted.
    fn flush(&mut self, now: u64) {
        self.settle();
        self.flushed = now;
        self.bench.emitter.flush();
    }

    /// Notifies the spouts that lead to a cycle whether there is overflow on it.
    fn tell_jam(&mut self) {
        let Some(jams) = &self.jams else {
            return;
        };
        let is_jammed = self.bench.emitter.outbox.overflow() > 0;
        if is_jammed != std::mem::replace(&mut self.is_jammed, is_jammed) {
            let tell = if is_jammed { Jam::begin } else { Jam::end };
            jams.iter().for_each(|jam| tell(jam));
        }
    }

    /// Whether the next tick comes early: the topology is drained, and what this bolt may hold came
    /// after its last one.
    fn hurries(&self) -> bool {
        let is_drained = || self.bench.shared.draining.load(Ordering::Acquire);
        self.tick.is_some() && self.is_fresh && self.inbox.is_empty() && is_drained()
    }

    fn tick(&mut self) -> bool {
        let is_due = self.next_tick <= self.bench.now || self.hurries();
        let Some(tick) = self.tick.filter(|_| is_due) else {
            return false;
        };
        self.is_fresh = false;
        // The bolt skips the ticks that it was too busy for.
        self.next_tick = self.bench.now.saturating_add(tick);
        // `call` counts a panic.
        let _ = self.call(|bolt, bench| bolt.tick(&mut crate::BoltCollector { bench }));
        true
    }

    /// Calls the bolt if its waker was used.
    fn woken(&mut self) -> bool {
        // In this order: a call that is taken while there is no instance is lost.
        let is_called = self.is_made() && self.bench.emitter.context.call.take();
        if is_called {
            // The task counts a panic.
            let _ = self.call(|bolt, bench| bolt.woken(&mut crate::BoltCollector { bench }));
        }
        is_called
    }
}

impl<M: Clone + Send + 'static> Task for BoltTask<M> {
    fn make_first(&mut self) -> Result<(), String> {
        self.bolt.make_first(&mut self.bench, |context| (self.factory)(context))
    }

    fn step(&mut self) -> Step {
        self.bench.now = self.bench.shared.clock.now();
        let since =
            self.bench.now.saturating_sub(std::mem::replace(&mut self.last, self.bench.now));
        let (sent, waits) = self.bench.emitter.retry();
        if waits && self.jams.is_none() {
            self.bench.emitter.stats.skipped_back_pressure.add(since);
            // What others have room for does not wait too.
            self.bench.emitter.flush();
            return Step { worked: sent, due: None };
        }
        let mut worked = sent;
        if self.is_made() {
            worked |= self.tick();
            worked |= self.woken();
            if self.batch.len() == 0 {
                self.batch = self.inbox.pop().unwrap_or_default().into_iter();
            }
            worked |= self.batch.len() > 0;
            self.execute_all();
        }
        self.settle();
        if self.inbox.is_empty()
            || self.bench.now.saturating_sub(self.flushed) >= self.bench.shared.flush_every
        {
            self.flush(self.bench.now);
        }
        self.tell_jam();
        let due = if !self.bolt.is_alive() {
            Some(self.bolt.due())
        } else {
            self.tick.map(|_| self.next_tick)
        };
        Step { worked, due }
    }

    fn has_input(&self) -> bool {
        let waits = self.bench.emitter.outbox.overflow() > 0;
        let takes = (!waits || self.jams.is_some()) && self.bolt.is_alive();
        let is_called = self.bench.emitter.context.call.is_there();
        (takes && (!self.inbox.is_empty() || is_called || self.hurries()))
            || (waits && self.bench.emitter.outbox.look_for_room())
    }

    fn close(&mut self) {
        if self.bolt.is_alive() {
            let _ = self.call(|bolt, _| bolt.cleanup());
            self.bolt.end();
        }
        self.settle();
    }
}
