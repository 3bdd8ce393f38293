//! How attempts ended, on the way to the spouts' threads from whichever thread has ended them.
//!
//! The tracker reports one outcome at a time. While a bolt acks a batch, its thread holds the
//! outcomes until all are acked. Each spout's task then costs one push, one ring and one cache
//! line, instead of one for each message. No thread waits: a queue has room for as many outcomes as
//! messages may be pending, and each outcome ends one message at least.
//!
//! A bolt that fails a tree delivers the outcome itself, with its reason. If the tree has ended
//! before, there is no outcome, and the reason is dropped.

use crate::inbox::Inbox;
use crate::replay::Failure;
use expiry::{Outcome, Reason};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// How attempts ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The messages in these places were acked.
    Acked(Vec<u32>),
    /// The message in this place was not acked.
    Failed(u32, Failure),
}

/// Whose a tree is: what the tracker returns with its outcome.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner {
    /// The number of the spout's task among all spouts' tasks.
    pub(crate) task: u32,
    /// The place of the message there.
    pub(crate) place: u32,
}

impl From<Owner> for u64 {
    fn from(owner: Owner) -> u64 {
        u64::from(owner.task) << 32 | u64::from(owner.place)
    }
}

impl From<u64> for Owner {
    #[allow(clippy::cast_possible_truncation)] // its halves
    fn from(owner: u64) -> Self {
        Owner { task: (owner >> 32) as u32, place: owner as u32 }
    }
}

/// The queue of each spout's task that receives its outcomes.
#[derive(Clone)]
pub(crate) struct Desks(Arc<[Arc<Inbox<Ended>>]>);

/// The places of acked messages, for each spout's task.
type Acks = Vec<(u32, Vec<u32>)>;

thread_local! {
    /// Whose acks this thread holds: the address of a topology's desks, or 0. (Another topology's
    /// trees may end meanwhile, in a hook.)
    static WHOSE: Cell<usize> = const { Cell::new(0) };
    static ACKS: RefCell<Acks> = const { RefCell::new(Vec::new()) };
}

impl Desks {
    pub(crate) fn new(desks: Vec<Arc<Inbox<Ended>>>) -> Self {
        Desks(desks.into())
    }

    fn address(&self) -> usize {
        self.0.as_ptr() as usize
    }

    /// Puts an outcome into the queue of a spout's task.
    pub(crate) fn tell(&self, task: u32, ended: Ended) {
        let told = self.0[task as usize].push(ended);
        debug_assert!(told.is_ok(), "more outcomes than messages pending");
    }

    /// The handler of the tracker's outcomes.
    pub(crate) fn outcome(&self, outcome: Outcome) {
        let Owner { task, place } = outcome.owner.into();
        let failure = match outcome.reason {
            Reason::Acked if WHOSE.get() == self.address() => {
                return ACKS.with_borrow_mut(|acks| hold(acks, task, place));
            }
            Reason::Acked => return self.tell(task, Ended::Acked(vec![place])),
            Reason::TimedOut { due, seen } => Failure::TimedOut { due, seen },
            _ => Failure::Failed { by: None, why: None },
        };
        self.tell(task, Ended::Failed(place, failure));
        if let Reason::TimedOut { .. } = outcome.reason {
            // A thread that sleeps without its bell would call the spout too late.
            self.0[task as usize].bell.wake();
        }
    }

    /// Calls `f`, then delivers the acks that `f` caused on this thread.
    pub(crate) fn together(&self, f: impl FnOnce()) {
        let (whose, before) = (WHOSE.replace(self.address()), ACKS.take());
        f();
        WHOSE.set(whose);
        for (task, places) in ACKS.replace(before) {
            self.tell(task, Ended::Acked(places));
        }
    }
}

/// Holds an ack until all of them are delivered.
#[inline]
fn hold(acks: &mut Acks, task: u32, place: u32) {
    /// The usual number of acks at once.
    const BATCH: usize = 64;
    match acks.iter_mut().rev().find(|(to, _)| *to == task) {
        Some((_, places)) => places.push(place),
        None => {
            let mut places = Vec::with_capacity(BATCH);
            places.push(place);
            acks.push((task, places));
        }
    }
}
