//! Topologies at work: on threads, or step by step.
//!
//! | module | mechanism |
//! |---|---|
//! | [`assemble`] | from a declaration to tasks, and the lanes between them |
//! | [`thread`] | tasks on one thread, and how it waits |
//! | [`board`] | what other threads can ask of the tasks; rest |
//! | [`stuck`] | why a topology did not come to rest |
//! | [`topology`], [`simulation`] | the two ways to run |

mod assemble;
mod board;
mod simulation;
mod stuck;
mod thread;
mod topology;

pub use simulation::Simulation;
pub use stuck::{Stuck, StuckComponent};
pub use topology::Topology;

use crate::task::{nanos, Shared};

/// The methods that a topology has on threads and in simulated time.
macro_rules! at_work {
    ($($topology:ident)*) => {$(
        impl $topology {
            /// What the components have been doing, in the order in which they were declared.
            #[must_use]
            pub fn metrics(&self) -> Vec<crate::ComponentMetrics> {
                self.board.metrics()
            }

            /// What the tracker of the topology's trees has been doing; `None` without acking.
            #[must_use]
            pub fn tracker_metrics(&self) -> Option<expiry::Metrics> {
                self.board.tracker_metrics()
            }

            /// Asks spouts for messages from now on.
            pub fn activate(&self) {
                self.board.activate(true);
            }

            /// Asks spouts for no more messages. Pending messages go on, and are replayed.
            pub fn deactivate(&self) {
                self.board.activate(false);
            }
        }
    )*};
}

at_work! { Topology Simulation }

/// Ends the trees that are due, of a tracker without a reaper. Returns when to do so again.
fn poll(shared: &Shared) -> Option<u64> {
    let tracker = shared.tracker.as_ref()?;
    loop {
        let now = shared.clock.now();
        let polled = tracker.poll(4096);
        if !polled.more {
            return Some(now.saturating_add(nanos(polled.next?)));
        }
    }
}
