//! The bell, the call, the room, the jam and the gate by themselves, for the models in
//! `loom-tests`. Thin shells: what runs is the real code.

use crate::gate::{Gate as InnerGate, Visitor as InnerVisitor};
use crate::inbox::{Bell as InnerBell, Call as InnerCall, Jam as InnerJam, Room as InnerRoom};
use crate::sync::Parker;
use std::sync::Arc;
use std::time::Duration;

/// A bell.
#[derive(Clone)]
pub struct Bell(Arc<InnerBell>);

/// What its owner sleeps by.
pub struct Sleeper(Parker);

impl Bell {
    /// A bell that no thread has rung.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> (Self, Sleeper) {
        let (bell, parker) = InnerBell::new();
        (Bell(bell), Sleeper(parker))
    }

    /// Rings. A thread calls this after it has sent something.
    pub fn ring(&self) {
        self.0.ring();
    }

    /// Sleeps until it rings, unless there is something.
    pub fn sleep(&self, sleeper: &Sleeper, is_something: impl FnOnce() -> bool) {
        self.0.sleep(&sleeper.0, Duration::MAX, is_something);
    }
}

/// What a waker sets, and its task takes.
pub struct Call(InnerCall);

impl Call {
    /// A call of the task whose thread has this bell.
    #[must_use]
    pub fn new(bell: &Bell) -> Self {
        Call(InnerCall::new(bell.0.clone()))
    }

    /// Calls. A thread calls this after it has sent something.
    pub fn call(&self) {
        self.0.call();
    }

    /// Takes the call. The task does so before it looks.
    pub fn take(&self) -> bool {
        self.0.take()
    }

    /// The last look before the thread sleeps.
    pub fn is_there(&self) -> bool {
        self.0.is_there()
    }
}

/// Whether a thread waits for room in a queue.
pub struct Room(InnerRoom);

impl Room {
    /// No thread waits.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Room(InnerRoom::default())
    }

    /// Announces a waiting thread, before its last look.
    pub fn want(&self) {
        self.0.want();
    }

    /// Whether to ring. A thread calls this after it has taken something out.
    pub fn is_wanted(&self) -> bool {
        self.0.is_wanted()
    }
}

/// Tasks on cycles that have overflow.
pub struct Jam(InnerJam);

impl Jam {
    /// None yet; this one's owner waits for the last.
    #[must_use]
    pub fn new(spout: &Bell) -> Self {
        Jam(InnerJam::new(vec![spout.0.clone()]))
    }

    /// A task has overflow.
    pub fn begin(&self) {
        self.0.begin();
    }

    /// It has none any more.
    pub fn end(&self) {
        self.0.end();
    }

    /// Whether a task has.
    pub fn is_on(&self) -> bool {
        self.0.is_on()
    }
}

/// The gate that spouts go through.
pub struct Gate(InnerGate);

impl Gate {
    /// An open one.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Gate(InnerGate::new(true))
    }

    /// Closes it.
    pub fn close(&self) {
        self.0.set(false);
    }
}

/// A spout's task.
pub struct Visitor(InnerVisitor);

impl Visitor {
    /// A visitor that is outside.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Visitor(InnerVisitor::default())
    }

    /// Goes in, if it is open.
    pub fn enter(&self, gate: &Gate) -> bool {
        self.0.enter(&gate.0)
    }

    /// Goes out.
    pub fn leave(&self) {
        self.0.leave();
    }

    /// Whether it is inside.
    pub fn is_inside(&self) -> bool {
        self.0.is_inside()
    }
}
