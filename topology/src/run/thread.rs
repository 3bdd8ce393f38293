//! The threads of a topology: each runs its tasks, and waits when none of them has work.

use super::poll;
use crate::inbox::Bell;
use crate::sync::Parker;
use crate::task::{Shared, Task};
use crate::wait::WaitStrategy;
use std::sync::Arc;
use std::time::Duration;

/// The longest sleep where a thread waits for room, or its clock does not run with real time.
const NAP: Duration = Duration::from_millis(1);

/// Tasks of one component that run on one thread.
pub(super) struct Thread {
    pub(super) component: usize,
    pub(super) name: String,
    pub(super) tasks: Vec<Box<dyn Task>>,
    pub(super) bell: Arc<Bell>,
    pub(super) parker: Parker,
    pub(super) wait: WaitStrategy,
}

impl Thread {
    /// Runs the tasks until the topology stops. `real`: the clock runs with real time.
    pub(super) fn run(mut self, shared: &Shared, real: bool) {
        let mut fruitless = 0;
        while !shared.is_stopping() {
            if !real {
                poll(shared);
            }
            let mut due: Option<u64> = None;
            let mut worked = false;
            for task in &mut self.tasks {
                let step = task.step();
                worked |= step.worked;
                due = due.into_iter().chain(step.due).min();
            }
            if worked {
                fruitless = 0;
                continue;
            }
            self.pause(fruitless, due, shared, real);
            fruitless = fruitless.saturating_add(1);
        }
        self.tasks.iter_mut().for_each(|task| task.close());
    }

    /// Waits, in the `nth` idle round in a row, until a task is `due` at the latest.
    fn pause(&self, nth: u32, due: Option<u64>, shared: &Shared, real: bool) {
        let mut limit = if real { Duration::MAX } else { NAP };
        if let Some(due) = due {
            let until = Duration::from_nanos(due.saturating_sub(shared.clock.now()));
            // A task that is due and did nothing waits for room.
            limit = limit.min(if until.is_zero() { NAP } else { until });
        }
        match self.wait {
            WaitStrategy::Progressive { spins, .. } if nth < spins => std::hint::spin_loop(),
            WaitStrategy::Progressive { spins, yields } if nth - spins < yields => {
                std::thread::yield_now();
            }
            // The bell does not know of this sleep, so no sender wakes the thread. A drain does not
            // wait for such a sleep of each task on a message's way.
            WaitStrategy::Sleep(time) if !shared.is_draining() => {
                self.parker.park_timeout(time.min(limit));
            }
            _ => self.bell.sleep(&self.parker, limit, || {
                shared.is_stopping() || self.tasks.iter().any(|task| task.has_input())
            }),
        }
    }
}
