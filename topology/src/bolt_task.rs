//! A bolt at work.

use crate::builder::BoltFactory;
use crate::component::Bolt;
use crate::emit::{Batch, Emitter};
use crate::inbox::Inbox;
use crate::task::{guarded, Shared, Step, Task, SAMPLED};
use crate::tuple::{Roots, Tuple};
use expiry::{Ack, AckError, Root};
use std::sync::Arc;
use std::time::Duration;

/// What a bolt's collector works on.
pub(crate) struct Bench<M> {
    pub(crate) emitter: Emitter<M>,
    pub(crate) shared: Arc<Shared>,
    /// Acks that the tracker is yet to be told of: together, at the end of a batch.
    acks: Vec<(Root, u64)>,
    component: u64,
}

impl<M: Clone> Bench<M> {
    pub(crate) fn ack(&mut self, tuple: Tuple<M>) {
        for anchor in &tuple.anchors {
            self.acks.push((anchor.root, anchor.xor.get()));
        }
        self.emitter.stats.acked.add(1);
        self.emitter.tell(|hook| hook.ack(&self.emitter.context));
    }

    pub(crate) fn fail(&mut self, roots: impl Iterator<Item = Root>) {
        if let Some(tracker) = &self.shared.tracker {
            for root in roots {
                match tracker.fail_by(root, self.component) {
                    Ok(_) => self.emitter.stats.trees_failed.add(1),
                    Err(error) => refused(&self.emitter, error),
                }
            }
        }
        self.emitter.stats.failed.add(1);
        self.emitter.tell(|hook| hook.fail(&self.emitter.context));
    }

    /// Tells the tracker of the acks so far. False if one of them was refused.
    pub(crate) fn flush_acks(&mut self) -> bool {
        let (mut ended, mut all) = (0, true);
        if let Some(tracker) = &self.shared.tracker {
            tracker.ack_batch(&self.acks, |_, acked| match acked {
                Ok(acked) => ended += u64::from(acked == Ack::Completed),
                Err(error) => {
                    all = false;
                    refused(&self.emitter, error);
                }
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
        // The spout has been told what has become of it.
        AckError::NotLive => emitter.stats.late.add(1),
        other => emitter.report(&other),
    }
}

pub(crate) struct BoltTask<M> {
    bolt: Option<Box<dyn Bolt<M>>>,
    factory: BoltFactory<M>,
    bench: Bench<M>,
    inbox: Arc<Inbox<Batch<M>>>,
    in_cycle: bool,
    tick: Option<u64>,
    next_tick: u64,
    flushed: u64,
    last: u64,
    now: u64,
}

impl<M: Clone + Send + 'static> BoltTask<M> {
    pub(crate) fn new(
        component: usize,
        emitter: Emitter<M>,
        shared: Arc<Shared>,
        inbox: Arc<Inbox<Batch<M>>>,
        factory: BoltFactory<M>,
        tick: Option<Duration>,
        in_cycle: bool,
    ) -> Self {
        let now = shared.clock.now();
        let tick = tick.map(|tick| u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX));
        BoltTask {
            bolt: None,
            factory,
            bench: Bench {
                emitter,
                shared,
                acks: Vec::new(),
                component: component as u64,
            },
            inbox,
            in_cycle,
            next_tick: now.saturating_add(tick.unwrap_or(0)),
            tick,
            flushed: now,
            last: now,
            now,
        }
    }

    /// Calls the bolt, which is made first, or again, if there is none. False if it has panicked: then it is gone.
    fn call(&mut self, f: impl FnOnce(&mut dyn Bolt<M>, &mut Bench<M>)) -> bool {
        let BoltTask {
            bolt,
            factory,
            bench,
            now,
            ..
        } = self;
        let done = guarded(
            bench,
            |bench| &bench.emitter.stats,
            *now,
            |bench| {
                let context = &bench.emitter.context;
                let bolt = bolt.get_or_insert_with(|| {
                    let mut bolt = factory(context);
                    bolt.prepare(context);
                    bolt
                });
                f(bolt.as_mut(), bench);
            },
        );
        if done.is_none() {
            self.bolt = None;
            self.bench
                .emitter
                .report(&"it has panicked, and is restarted");
        }
        done.is_some()
    }

    fn execute(&mut self, tuple: Tuple<M>) {
        let mut roots = Roots::new();
        // Not collected: that takes as long as the rest of this.
        tuple.roots().for_each(|root| roots.push(root));
        let sampled = self.bench.emitter.stats.executed.get() % SAMPLED == 0;
        let timed = sampled || !self.bench.emitter.hooks.is_empty();
        let began = if timed {
            self.bench.shared.clock.now()
        } else {
            0
        };
        let done =
            self.call(|bolt, bench| bolt.execute(tuple, &mut crate::BoltCollector { bench }));
        if !done {
            self.bench.fail(roots.into_iter());
        }
        if timed {
            let took = self.bench.shared.clock.now().saturating_sub(began);
            let emitter = &self.bench.emitter;
            if sampled {
                emitter.stats.took(took);
            }
            emitter.tell(|hook| hook.execute(&emitter.context, Duration::from_nanos(took)));
        }
        self.bench.emitter.stats.executed.add(1);
    }

    fn tick(&mut self) -> bool {
        let Some(tick) = self.tick.filter(|_| self.next_tick <= self.now) else {
            return false;
        };
        // Those that it was too busy for are left out.
        self.next_tick = self.now.saturating_add(tick);
        self.call(|bolt, bench| bolt.tick(&mut crate::BoltCollector { bench }));
        true
    }
}

impl<M: Clone + Send + 'static> Task for BoltTask<M> {
    fn step(&mut self) -> Step {
        self.now = self.bench.shared.clock.now();
        let since = self
            .now
            .saturating_sub(std::mem::replace(&mut self.last, self.now));
        if self.bolt.is_none() {
            self.call(|_, _| ());
        }
        let (sent, waits) = self.bench.emitter.retry();
        if waits && !self.in_cycle {
            self.bench.emitter.stats.skipped_back_pressure.add(since);
            // Nobody tells when there is room again.
            return Step {
                worked: sent,
                due: Some(self.now),
            };
        }
        let mut worked = self.tick() || sent;
        if let Some(batch) = self.inbox.pop() {
            worked = true;
            batch.into_iter().for_each(|tuple| self.execute(tuple));
        }
        self.bench.flush_acks();
        if self.inbox.is_empty()
            || self.now.saturating_sub(self.flushed) >= self.bench.shared.flush_every
        {
            self.flushed = self.now;
            self.bench.emitter.flush();
        }
        let overflow = self.bench.emitter.outbox.overflow() > 0;
        let tick = self.tick.map(|_| self.next_tick);
        Step {
            worked,
            due: tick.into_iter().chain(overflow.then_some(self.now)).min(),
        }
    }

    fn has_input(&self) -> bool {
        let waits = self.bench.emitter.outbox.overflow() > 0 && !self.in_cycle;
        !waits && !self.inbox.is_empty()
    }

    fn close(&mut self) {
        if self.bolt.is_some() {
            self.call(|bolt, _| bolt.cleanup());
        }
        self.bench.flush_acks();
    }
}
