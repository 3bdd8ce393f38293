//! A bolt's task: executes the tuples in its queue, and reports their acks to the tracker together.

use crate::builder::{BoltParts, TaskParts};
use crate::component::{Bolt, Seen};
use crate::emit::{Emitter, Port};
use crate::inbox::{Inbox, Jam};
use crate::instance::{Factory, Instance};
use crate::lanes::Batch;
use crate::outcomes::{Ended, Owner};
use crate::replay::Failure;
use crate::task::{Sampler, Step, Task};
use crate::tuple::sealed::{derive, Parents};
use crate::tuple::{Origin, Roots, Tuple};
use expiry::{Ack, AckError, Root};
use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

/// In a batch of tuples that are executed quickly, the bolt reads the clock after this many.
const SELDOM: u64 = 8;

/// What a bolt's collector works on.
pub(crate) struct Bench<Out> {
    pub(crate) task: TaskParts,
    pub(crate) port: Port<Out>,
    /// Acks not reported to the tracker yet: the bolt reports them together, at the end of a batch.
    acks: Vec<(Root, u64)>,
    /// The component that each of the bolt's groupings listens to.
    inputs: Vec<usize>,
}

impl<Out> AsRef<TaskParts> for Bench<Out> {
    fn as_ref(&self) -> &TaskParts {
        &self.task
    }
}

impl<Out> Bench<Out> {
    pub(crate) fn emit(&mut self, parents: &impl Parents, message: Out)
    where
        Out: Clone + 'static,
    {
        match self.task.emitter.offer(&mut self.port, || message) {
            Ok(_) => self.port.send(|| derive(parents)),
            Err(panicked) => {
                let mut roots = Roots::new();
                parents.each(|anchor| roots.push(anchor.root));
                let failure = self.failure(Some(&panicked));
                self.fail_trees(roots.into_iter(), &failure);
            }
        }
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.task.emitter.context.component.clone()
    }

    pub(crate) fn failure(&self, why: Option<&dyn Display>) -> Failure {
        Failure::Failed { by: Some(self.name()), why: why.map(|why| why.to_string().into()) }
    }

    pub(crate) fn source(&self, origin: Origin) -> &str {
        let from = self.inputs.get(origin.input as usize);
        from.and_then(|&from| self.task.shared.names.get(from)).map_or("", |name| name)
    }

    fn seen(&self, origin: Origin, took: u64) -> Seen<'_> {
        let (source, source_task) = (self.source(origin), origin.task as usize);
        Seen { source, source_task, took: Duration::from_nanos(took) }
    }

    /// The time since a tuple was received whose latency is taken; it is noted.
    fn process(&self, origin: Origin, received: u64) -> u64 {
        if received == 0 {
            return 0;
        }
        let took = self.task.shared.clock.now().saturating_sub(received);
        self.task.emitter.stats.input(origin).process.took(took);
        took
    }

    pub(crate) fn ack<T: 'static>(&mut self, tuple: Tuple<T>) {
        for anchor in &tuple.anchors {
            self.acks.push((anchor.root, anchor.xor.get()));
        }
        let (emitter, origin) = (&self.task.emitter, tuple.origin);
        emitter.stats.input(origin).acked.add(1);
        let took = self.process(origin, tuple.received);
        emitter.tell(|hook| hook.ack(&emitter.context, &self.seen(origin, took), &tuple.message));
    }

    pub(crate) fn fail<T>(&mut self, tuple: &Tuple<T>, failure: &Failure) {
        self.fail_roots(tuple.roots(), tuple.origin, tuple.received, failure);
    }

    fn fail_roots(
        &mut self,
        roots: impl Iterator<Item = Root>,
        origin: Origin,
        received: u64,
        failure: &Failure,
    ) {
        self.fail_trees(roots, failure);
        let emitter = &self.task.emitter;
        emitter.stats.input(origin).failed.add(1);
        let took = self.process(origin, received);
        emitter.tell(|hook| hook.fail(&emitter.context, &self.seen(origin, took)));
    }

    fn fail_trees(&self, roots: impl Iterator<Item = Root>, failure: &Failure) {
        let (shared, emitter) = (&self.task.shared, &self.task.emitter);
        if let Some(tracker) = &shared.tracker {
            for root in roots {
                match tracker.fail_undelivered(root) {
                    Ok(outcome) => {
                        let Owner { task, place } = outcome.owner.into();
                        shared.desks.tell(task, Ended::Failed(place, failure.clone()));
                        emitter.stats.trees_failed.add(1);
                    }
                    Err(error) => refused(emitter, error),
                }
            }
        }
    }

    /// Sends what has been emitted.
    fn send(&mut self)
    where
        Out: Clone,
    {
        self.port.flush();
        self.task.emitter.stats.overflow.set(self.port.overflow() as u64);
    }

    /// Reports the acks so far to the tracker. Returns `false` if the tracker refused one of them.
    pub(crate) fn flush_acks(&mut self) -> bool {
        if self.acks.is_empty() {
            return true;
        }
        let (mut ended, mut all) = (0, true);
        let (shared, emitter) = (&self.task.shared, &self.task.emitter);
        if let Some(tracker) = &shared.tracker {
            shared.desks.together(|| {
                tracker.ack_many(&self.acks, |_, acked| match acked {
                    Ok(acked) => ended += u64::from(acked == Ack::Completed),
                    Err(error) => {
                        all = false;
                        refused(emitter, error);
                    }
                });
            });
        }
        emitter.stats.trees_acked.add(ended);
        self.acks.clear();
        all
    }
}

/// Counts an ack or a fail that was refused.
#[cold]
fn refused(emitter: &Emitter, error: AckError) {
    match error {
        // The spout has already received this message's outcome.
        AckError::NotLive => emitter.stats.late.add(1),
        other => emitter.report(&other),
    }
}

/// What a task executes, and what it notes meanwhile.
struct Work<In> {
    /// What is left of the batch that was taken last: something if the instance is not ready, or
    /// is gone and another one cannot be made.
    batch: VecDeque<Tuple<In>>,
    current: Option<(Roots, Origin, u64)>,
    /// Whether the instance takes another tuple.
    is_ready: bool,
    /// It has executed something, or was woken, since its last tick.
    is_fresh: bool,
    sampler: Sampler,
    /// Tuples executed since the last flush, by input: counted once the tracker has their acks.
    executed: Vec<u64>,
    /// Their sum.
    unsettled: u64,
    /// Number of executed tuples after which the bolt reads the clock.
    look_after: u64,
    flushed: u64,
}

impl<In: 'static> Work<In> {
    /// Executes the batch at hand, while the bolt is ready. Flushes in between: what has come of
    /// the first tuples does not wait for the last one.
    fn execute<Out: Clone + 'static>(
        &mut self,
        bolt: &mut dyn Bolt<In, Out>,
        bench: &mut Bench<Out>,
    ) {
        while self.is_ready {
            let Some(mut tuple) = self.batch.pop_front() else {
                break;
            };
            let timed = self.sampler.is_due() || !bench.task.emitter.hooks.is_empty();
            if timed {
                tuple.received = bench.task.shared.clock.now().max(1);
            }
            let mut roots = Roots::new();
            // A loop: `collect` would take as long as the rest of this function.
            tuple.roots().for_each(|root| roots.push(root));
            self.current = Some((roots, tuple.origin, tuple.received));
            bolt.execute(tuple, &mut crate::BoltCollector { bench });
            self.executed(bench);
            self.is_ready = bolt.is_ready(); // last: its panic fails no tuple that was executed
            if self.unsettled >= self.look_after {
                let shared = &bench.task.shared;
                let now = shared.clock.coarse();
                bench.task.emitter.stats.busy_since.set(now.max(1));
                if now.saturating_sub(self.flushed) >= shared.flush_every {
                    self.flush(bench, now);
                } else {
                    self.look_after += self.look_after.min(SELDOM);
                }
            }
        }
    }

    /// Notes that the tuple at hand was executed, or panicked over. Returns its roots.
    fn executed<Out>(&mut self, bench: &Bench<Out>) -> Option<(Roots, Origin, u64)> {
        let current = self.current.take();
        if let Some((_, origin, received)) = current {
            if received != 0 {
                let TaskParts { emitter, shared, .. } = &bench.task;
                let took = shared.clock.now().saturating_sub(received);
                emitter.stats.input(origin).execute.took(took);
                let seen = bench.seen(origin, took);
                emitter.tell(|hook| hook.execute(&emitter.context, &seen));
            }
            self.executed[origin.input as usize] += 1;
            self.unsettled += 1;
            self.is_fresh = true;
        }
        current
    }

    /// Reports the acks so far to the tracker, then counts the executed tuples: a thread that reads
    /// a tuple as executed finds it acked.
    fn settle<Out>(&mut self, bench: &mut Bench<Out>) {
        bench.flush_acks();
        if self.unsettled > 0 {
            let inputs = &bench.task.emitter.stats.inputs;
            for (input, executed) in inputs.iter().zip(&mut self.executed) {
                input.executed.add(std::mem::take(executed));
            }
            self.unsettled = 0;
        }
        self.look_after = 1;
    }

    /// Settles, and sends what has been emitted.
    fn flush<Out: Clone>(&mut self, bench: &mut Bench<Out>, now: u64) {
        self.settle(bench);
        self.flushed = now;
        bench.send();
    }
}

pub(crate) struct BoltTask<In, Out> {
    bolt: Instance<dyn Bolt<In, Out>>,
    bench: Bench<Out>,
    inbox: Arc<Inbox<Batch<In>>>,
    work: Work<In>,
    /// The jams of the spouts that lead to the bolt, if it is on a cycle.
    jams: Option<Vec<Arc<Jam>>>,
    /// Whether the bolt is counted there.
    is_jammed: bool,
}

impl<In: Send + 'static, Out: Clone + Send + 'static> BoltTask<In, Out> {
    pub(crate) fn new(
        parts: BoltParts,
        inbox: Arc<Inbox<Batch<In>>>,
        factory: Factory<dyn Bolt<In, Out>>,
        port: Port<Out>,
    ) -> Self {
        let BoltParts { task, inputs, jams } = parts;
        let work = Work {
            batch: VecDeque::new(),
            current: None,
            is_ready: true,
            is_fresh: false,
            sampler: Sampler::new(task.shared.sample_every),
            executed: vec![0; inputs.len()],
            unsettled: 0,
            look_after: 1,
            flushed: task.now,
        };
        BoltTask {
            bolt: Instance::new(factory),
            inbox,
            work,
            jams,
            is_jammed: false,
            bench: Bench { task, port, acks: Vec::new(), inputs },
        }
    }

    /// Whether there is an instance; if not, one is made, unless that panics, or has a moment ago.
    fn is_made(&mut self) -> bool {
        let BoltTask { bolt, bench, work, .. } = self;
        bolt.is_made(bench, |bolt, context| {
            bolt.prepare(context);
            work.is_ready = bolt.is_ready();
        })
    }

    /// Calls the bolt, if there is one. The instance counts a panic.
    fn call(&mut self, f: impl FnOnce(&mut dyn Bolt<In, Out>, &mut Bench<Out>)) {
        let work = &mut self.work;
        let _ = self.bolt.call(&mut self.bench, |bolt, bench| {
            f(bolt, bench);
            work.is_ready = bolt.is_ready();
        });
    }

    /// Takes the next batch, if the one at hand is done.
    fn refill(&mut self) {
        let batch = &mut self.work.batch;
        if batch.is_empty() && self.work.is_ready {
            if let Some(next) = self.inbox.pop() {
                self.inbox.give_back(std::mem::replace(batch, next.into()).into());
            }
        }
    }

    /// Executes the batch while there is a ready instance. Returns whether it executed a tuple.
    fn execute_all(&mut self) -> bool {
        let left = self.work.batch.len();
        while !self.work.batch.is_empty() && self.work.is_ready && self.is_made() {
            let work = &mut self.work;
            let done = self.bolt.call(&mut self.bench, |bolt, bench| work.execute(bolt, bench));
            if let Some(Err(panicked)) = done {
                if let Some((roots, origin, received)) = self.work.executed(&self.bench) {
                    let failure = self.bench.failure(Some(&panicked));
                    self.bench.fail_roots(roots.into_iter(), origin, received, &failure);
                }
            }
        }
        self.work.batch.len() < left
    }

    /// Notifies the spouts that lead to a cycle whether there is overflow on it.
    fn tell_jam(&mut self) {
        let Some(jams) = &self.jams else {
            return;
        };
        let is_jammed = self.bench.port.overflow() > 0;
        if is_jammed != std::mem::replace(&mut self.is_jammed, is_jammed) {
            let tell = if is_jammed { Jam::begin } else { Jam::end };
            jams.iter().for_each(|jam| tell(jam));
        }
    }

    /// Whether the next tick comes early: the topology is drained, this bolt executes nothing more
    /// for now, and what it may hold came after its last tick.
    fn hurries(&self) -> bool {
        let is_drained = || self.bench.task.shared.is_draining();
        let waits = !self.work.is_ready || self.inbox.is_empty();
        self.bench.task.ticks.due.is_some() && self.work.is_fresh && waits && is_drained()
    }

    fn tick(&mut self) -> bool {
        let hurries = self.hurries();
        let is_due = self.bench.task.ticks.take(self.bench.task.now, hurries);
        if is_due {
            self.work.is_fresh = false;
            self.call(|bolt, bench| bolt.tick(&mut crate::BoltCollector { bench }));
        }
        is_due
    }

    /// Calls the bolt if its waker was used.
    fn woken(&mut self) -> bool {
        // In this order: a call that is taken while there is no instance is lost.
        let is_called = self.is_made() && self.bench.task.emitter.context.call.take();
        if is_called {
            self.work.is_fresh = true;
            self.call(|bolt, bench| bolt.woken(&mut crate::BoltCollector { bench }));
        }
        is_called
    }
}

impl<In: Send + 'static, Out: Clone + Send + 'static> Task for BoltTask<In, Out> {
    fn make_first(&mut self) -> Result<(), String> {
        self.bolt.make_first(&mut self.bench)
    }

    fn step(&mut self) -> Step {
        let (since, now) = (self.bench.task.begin_step(), self.bench.task.now);
        let mut worked = self.bench.port.retry();
        if self.bench.port.overflow() > 0 && self.jams.is_none() {
            self.bench.task.emitter.stats.skipped_back_pressure.add(since);
            // Batches whose tasks have room go on.
            self.bench.send();
            return Step { worked, due: None };
        }
        if self.is_made() {
            worked |= self.tick();
            worked |= self.woken();
            self.refill();
            worked |= self.execute_all();
        }
        self.work.settle(&mut self.bench);
        let waits = now.saturating_sub(self.work.flushed) >= self.bench.task.shared.flush_every;
        if !worked || self.inbox.is_empty() || waits {
            self.work.flush(&mut self.bench, now);
        }
        self.tell_jam();
        let due = if self.bolt.is_alive() {
            self.bench.task.ticks.due
        } else {
            self.bolt.due(&self.bench)
        };
        Step { worked, due }
    }

    fn has_input(&self) -> bool {
        let waits = self.bench.port.overflow() > 0;
        let takes = !waits || self.jams.is_some();
        let is_due = self.bolt.due(&self.bench).is_some_and(|due| due <= self.bench.task.now);
        let is_called = self.bench.task.emitter.context.call.is_there();
        let has_tuples =
            self.work.is_ready && !(self.work.batch.is_empty() && self.inbox.is_empty());
        let has_come = self.bolt.is_alive() && (has_tuples || is_called || self.hurries());
        (takes && (has_come || is_due)) || (waits && self.bench.port.look_for_room())
    }

    fn close(&mut self) {
        if self.bolt.is_alive() {
            self.call(|bolt, _| bolt.cleanup());
            self.bolt.end();
        }
        self.work.settle(&mut self.bench);
    }
}
