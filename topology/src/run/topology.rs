//! A topology that runs on threads.

use super::assemble::{assemble, Parts};
use super::board::Board;
use super::Stuck;
use crate::builder::TopologyBuilder;
use crate::error::BuildError;
use crate::metrics::ComponentMetrics;
use crate::task::debug;
use expiry::ShutdownMode;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a thread that waits for a topology looks at it.
const LOOK: Duration = Duration::from_millis(1);

/// How long a call waits for threads that are to end, if it does not wait for components.
const GRACE: Duration = Duration::from_millis(100);

/// A topology on its threads. Dropping it does what [`kill`](Self::kill) does. A component may drop
/// the topology that it is part of: the drop does not wait for that component's thread.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, TopologyBuilder, VecSpout};
/// use std::time::Duration;
///
/// let topology = TopologyBuilder::new();
/// let numbers = topology.spout("numbers", |_| VecSpout::new(0..1_000));
/// topology.bolt("sink", |_| sink(|_: &u64, _| ())).parallelism(2).shuffle(&numbers);
/// let topology = topology.start()?; // runs by itself from here on
/// topology.wait(Duration::from_secs(60))?;
/// let metrics = topology.drain(Duration::from_secs(60))?; // none is left half done
/// assert_eq!((metrics[0].acked, metrics[0].pending), (1_000, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Topology {
    pub(super) board: Board,
    threads: Vec<JoinHandle<()>>,
}

debug!([] Topology, |it| "Topology {{ components: {:?}, threads: {}, .. }}",
    it.board.names().collect::<Vec<_>>(), it.threads.len());

impl Topology {
    pub(crate) fn start(builder: TopologyBuilder) -> Result<Self, BuildError> {
        let Parts { board, threads, real } = assemble(builder, false)?;
        let mut topology = Topology { board, threads: Vec::new() };
        for thread in threads {
            let shared = topology.board.shared.clone();
            let handle = std::thread::Builder::new()
                .name(thread.name.clone())
                .spawn(move || thread.run(&shared, real))
                .map_err(|error| BuildError::NoThread(error.to_string()))?;
            topology.threads.push(handle);
        }
        Ok(topology)
    }

    /// Waits until all spouts are [done](crate::Next::Done) and everything has come to its end:
    /// each message is acked or given up, the spouts have been called with that, and every tuple is
    /// executed. (Bolts may still hold tuples that were not tracked, or whose trees have ended.)
    /// Where a spout is never done, use [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`Stuck`] if that has not happened in time; it names the components that are not at rest.
    /// The topology goes on.
    pub fn wait(&self, limit: Duration) -> Result<(), Stuck> {
        self.until(limit, true, |board| board.is_done() && board.is_quiet())
    }

    fn until(
        &self,
        limit: Duration,
        is_done_asked: bool,
        done: impl Fn(&Board) -> bool,
    ) -> Result<(), Stuck> {
        let began = Instant::now();
        while !done(&self.board) {
            if began.elapsed() >= limit {
                return Err(self.board.stuck(is_done_asked));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Stops the topology when everything has come to its end. It asks spouts for no more messages,
    /// waits for pending ones, including replays and tuples that bolts hold until a tick, and ends
    /// the threads. Returns the components' metrics. Spouts keep what they have not emitted by now
    /// (for example what is still in a channel). To have that done too, let them be `Done`, and use
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`Stuck`] if that has not happened in time. The topology is stopped all the same then, as by
    /// [`kill`](Self::kill), but the call does not wait for a component that is in a call of its
    /// own code: its thread ends after that.
    pub fn drain(mut self, limit: Duration) -> Result<Vec<ComponentMetrics>, Stuck> {
        let draining = &self.board.shared.draining;
        draining.store(true, Ordering::Release);
        self.deactivate();
        let rest = self.until(limit, false, |board| board.is_silent() && board.is_quiet());
        self.stop(rest.is_ok());
        rest.map(|()| self.metrics())
    }

    /// Stops the topology at once. Pending messages are left alone, and the spouts get no outcome
    /// of them. The call waits until each thread has finished its current call. It does not wait in
    /// a component of a topology, nor in a handler or listener of a store.
    pub fn kill(mut self) -> Vec<ComponentMetrics> {
        self.stop(true);
        self.metrics()
    }

    /// Stops the threads. Waits for those that are in a component's call only if `joins`.
    fn stop(&mut self, joins: bool) {
        let shared = &self.board.shared;
        shared.stopping.store(true, Ordering::Release);
        self.board.wake();
        if expiry::is_inside() {
            // A component of some topology, or a handler of some store, dropped this topology. The
            // call must not wait for threads that may wait for it: each ends with its current call.
            self.threads.clear();
        }
        if !joins {
            let deadline = Instant::now() + GRACE;
            while !self.threads.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
            self.threads.retain(JoinHandle::is_finished);
        }
        for thread in self.threads.drain(..) {
            // The thread catches components' panics. If it has died all the same, there is nothing
            // to join.
            let _ = thread.join();
        }
        if let Some(tracker) = &shared.tracker {
            tracker.shutdown(ShutdownMode::Return);
        }
    }
}

impl Drop for Topology {
    fn drop(&mut self) {
        self.stop(true);
    }
}
