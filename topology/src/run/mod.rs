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

/// Drives a tracker that has no reaper: ends the trees that are due. Returns the clock reading at
/// which to do so again.
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
