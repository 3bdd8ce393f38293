//! A spout's task: it asks the spout for messages, emits them, and calls it with their outcomes.
//!
//! | module | mechanism |
//! |---|---|
//! | [`places`] | pending messages, and how many there may be |
//! | [`trees`] | offered messages whose trees have no root yet |
//! | [`desk`] | what the spout's collector works on: emission, on those two |
//! | [`outcomes`] | outcomes, from the task's queue to the spout |
//! | [`replays`] | messages that have failed: emitted again, or given up as dead letters |

mod desk;
mod outcomes;
mod places;
mod replays;
mod trees;

pub(crate) use desk::Desk;

use crate::builder::SpoutParts;
use crate::component::{Next, Spout};
use crate::emit::Port;
use crate::inbox::{Inbox, Jam};
use crate::instance::{Factory, Instance};
use crate::outcomes::Ended;
use crate::replay::{DeadLetter, Replay};
use crate::task::{Sampler, Step, Task};
use places::Places;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use trees::Trees;

/// How long the task leaves a full tracker alone, in nanoseconds.
const FULL_PAUSE: u64 = 1_000_000;

/// How long the task leaves a spout alone that has no message, in nanoseconds.
const IDLE_PAUSE: u64 = 1_000_000;

pub(crate) struct SpoutTask<M, Id> {
    spout: Instance<dyn Spout<M, Id>>,
    desk: Desk<M, Id>,
    /// How often a message is emitted, and how far apart.
    replay: Replay,
    /// When a message is to be emitted again, and its place.
    later: BinaryHeap<Reverse<(u64, u32)>>,
    sampler: Sampler,
    outcomes: Arc<Inbox<Ended>>,
    jam: Arc<Jam>,
    /// Whether the last step emitted nothing because of the jam.
    is_jammed: bool,
    /// Whether the spout was activated, and not deactivated since.
    is_active: bool,
    /// Whether the spout has said that it will emit no more.
    is_done: bool,
    /// The clock reading until which a full tracker is left alone.
    full_until: u64,
    /// The clock reading until which a spout that had no message is left alone.
    idle_until: u64,
    flushed: u64,
}

impl<M: Clone + Send + 'static, Id: fmt::Debug + Send + 'static> SpoutTask<M, Id> {
    pub(crate) fn new(
        parts: SpoutParts,
        factory: Factory<dyn Spout<M, Id>>,
        (port, letters): (Port<M>, Port<DeadLetter<M>>),
    ) -> Self {
        let shared = &parts.task.shared;
        let replay = if shared.tracker.is_some() { parts.replay } else { Replay::once() };
        SpoutTask {
            spout: Instance::new(factory),
            sampler: Sampler::new(shared.sample_every),
            flushed: parts.task.now,
            desk: Desk {
                keeps: replay.repeats() || !letters.is_closed(),
                task: parts.task,
                port,
                letters,
                places: Places::new(parts.max_pending),
                trees: Trees::new(parts.number, parts.timeout),
                acked: VecDeque::new(),
            },
            replay,
            later: BinaryHeap::new(),
            outcomes: parts.outcomes,
            jam: parts.jam,
            is_jammed: false,
            is_active: false,
            is_done: false,
            full_until: 0,
            idle_until: 0,
        }
    }

    /// Makes an instance of the spout if there is none. Returns whether there is one: making it may
    /// panic, and is not repeated for a while then.
    fn is_made(&mut self) -> bool {
        let SpoutTask { spout, desk, is_active, .. } = self;
        spout.is_made(desk, |spout, context| {
            spout.open(context);
            if *is_active {
                spout.activate();
            }
        })
    }

    /// Calls the spout, and makes an instance before if there is none. `None` if the call has
    /// panicked, or there is no instance.
    fn call<R>(
        &mut self,
        f: impl FnOnce(&mut dyn Spout<M, Id>, &mut Desk<M, Id>) -> R,
    ) -> Option<R> {
        self.is_made();
        let done = self.spout.call(&mut self.desk, |spout, desk| f(spout, desk));
        done?.ok()
    }

    /// Begins the trees of the emitted messages. Returns `false` if the tracker has no room: the
    /// task emits nothing new until it has.
    fn begin(&mut self) -> bool {
        match self.desk.begin() {
            Ok(()) => true,
            Err(error) => {
                if !self.desk.task.shared.is_stopping() {
                    self.desk.task.emitter.report(&error);
                }
                self.full_until = self.desk.task.now.saturating_add(FULL_PAUSE);
                false
            }
        }
    }

    fn tick_due(&self) -> Option<u64> {
        self.desk.task.ticks.due.filter(|_| self.spout.is_alive())
    }

    fn tick(&mut self) -> bool {
        let now = self.desk.task.now;
        let is_due = self.spout.is_alive() && self.desk.task.ticks.take(now, false);
        if is_due {
            self.call(|spout, _| spout.tick());
        }
        is_due
    }

    /// Activates or deactivates the spout, as the topology is.
    fn follow(&mut self) {
        let is_open = self.desk.task.shared.gate.is_open();
        if is_open == self.is_active {
            return;
        }
        if is_open {
            let desk = &self.desk;
            if desk.task.emitter.stats.visitor.enter(&desk.task.shared.gate) {
                self.call(|spout, _| spout.activate());
                // After the call: an instance that the call makes would be activated twice.
                self.is_active = true;
            }
        } else {
            self.call(|spout, _| spout.deactivate());
            self.is_active = false;
            self.desk.task.emitter.stats.visitor.leave();
        }
    }

    /// Whether the spout may emit.
    fn is_asked(&self) -> bool {
        self.is_active && !self.is_done && self.desk.room() > 0
    }

    /// Asks the spout for more, if it may emit. `None` if it was not asked, or has panicked.
    fn ask(&mut self, since: u64) -> Option<Next> {
        if self.is_done {
            return None;
        }
        let (stats, now) = (&self.desk.task.emitter.stats, self.desk.task.now);
        if !self.is_active {
            stats.skipped_inactive.add(since);
            return None;
        }
        if self.desk.room() == 0 {
            stats.skipped_max_pending.add(since);
            return None;
        }
        let is_called = self.desk.task.emitter.context.call.take();
        if now < self.idle_until && !is_called {
            return None;
        }
        let next = self.call(|spout, desk| spout.next(&mut crate::SpoutCollector { desk }));
        match next {
            // A spout that panics in each call is left alone, too.
            Some(Next::Idle) | None => self.idle_until = now.saturating_add(IDLE_PAUSE),
            Some(Next::Asleep) => self.idle_until = u64::MAX,
            Some(Next::Done) => {
                self.is_done = true;
                self.desk.task.emitter.stats.is_done.store(true, Ordering::Release);
            }
            Some(Next::Ready) => self.idle_until = 0,
        }
        next
    }
}

impl<M: Clone + Send + 'static, Id: fmt::Debug + Send + 'static> Task for SpoutTask<M, Id> {
    fn make_first(&mut self) -> Result<(), String> {
        self.spout.make_first(&mut self.desk)
    }

    fn step(&mut self) -> Step {
        let (since, now) = (self.desk.task.begin_step(), self.desk.task.now);
        let mut worked = self.settle();
        self.follow();
        worked |= self.tick();
        worked |= self.desk.port.retry() | self.desk.letters.retry();
        self.is_jammed = self.jam.is_on();
        if self.desk.overflow() > 0 || self.is_jammed {
            self.desk.task.emitter.stats.skipped_back_pressure.add(since);
            // Batches whose tasks have room go on.
            self.desk.flush();
            return Step { worked, due: self.tick_due() };
        }
        let is_full = self.desk.trees.len() > 0 && (now < self.full_until || !self.begin());
        if is_full {
            self.desk.flush();
            let due = self.tick_due().into_iter().chain([self.full_until]).min();
            return Step { worked, due };
        }
        worked |= self.replay();
        let emitted = self.desk.task.emitter.stats.emitted.get();
        let next = self.ask(since);
        worked |=
            next == Some(Next::Ready) || self.desk.task.emitter.stats.emitted.get() != emitted;
        self.begin();
        worked |= self.settle();
        if !worked
            || now.saturating_sub(self.flushed) >= self.desk.task.shared.flush_every
            || self.desk.room() == 0
        {
            self.flushed = now;
            self.desk.flush();
        }
        let later = self.later.peek().map(|Reverse((due, _))| *due);
        let again = Some(self.idle_until.max(now)).filter(|&due| self.is_asked() && due < u64::MAX);
        let made = self.spout.due(&self.desk);
        let due = later.into_iter().chain(again).chain(made).chain(self.tick_due()).min();
        Step { worked, due }
    }

    fn has_input(&self) -> bool {
        let is_told = self.spout.is_alive() && !self.outcomes.is_empty();
        let desk = &self.desk;
        let is_free = self.is_asked() && desk.overflow() == 0 && desk.trees.len() == 0;
        is_told
            || self.desk.task.shared.gate.is_open() != self.is_active
            || desk.port.look_for_room()
            || desk.letters.look_for_room()
            || (self.is_jammed && !self.jam.is_on())
            || (is_free && self.desk.task.emitter.context.call.is_there())
    }

    fn close(&mut self) {
        self.desk.task.now = self.desk.task.shared.clock.now();
        if self.spout.is_alive() {
            self.settle();
        }
        if self.spout.is_alive() {
            self.call(|spout, _| spout.close());
            self.spout.end();
        }
    }
}
