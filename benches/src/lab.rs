//! A peer at work under a given load.

use crate::peers::{Peer, Touch};
use crate::process::settled;
use crate::window::{draw, Order, Window, GROUP};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Least time that a round or a cell is measured for, so that its set-up does not show.
pub const LEAST: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Load {
    /// Trees in flight, all threads together.
    pub in_flight: usize,
    pub threads: usize,
    pub order: Order,
    /// Trees that complete in a pass, all threads together. A round is as many passes as it takes.
    pub trees: usize,
    /// Trees that complete before the first pass, untimed.
    pub warm: usize,
    positions: Vec<Arc<[u32]>>,
}

impl Load {
    /// A load for about this many trees in flight: each thread's shares are rounded to groups. A
    /// round repeats its passes until it is long enough.
    pub fn standard(in_flight: usize, threads: usize, order: Order) -> Self {
        let round = |n: usize| (n / threads / GROUP).max(1) * GROUP * threads;
        let trees = round(in_flight.clamp(1 << 16, 1 << 20));
        let warm = round(in_flight.clamp(1 << 14, 1 << 20));
        let in_flight = round(in_flight);
        let positions = (0..threads as u64)
            .map(|thread| draw(order, in_flight / threads, trees.max(warm) / threads, thread))
            .collect();
        Load { in_flight, threads, order, trees, warm, positions }
    }
}

/// Calls `f` on a thread for each part of the work, with its number, all at once. Returns how long
/// the slowest took, and the results.
pub fn at_once<T: Send, R: Send>(
    work: &mut [T],
    f: impl Fn(usize, &mut T) -> R + Sync,
) -> (Duration, Vec<R>) {
    let (f, start) = (&f, &Barrier::new(work.len()));
    std::thread::scope(|scope| {
        let spawn = |(thread, part)| {
            scope.spawn(move || {
                start.wait();
                let began = Instant::now();
                let done = f(thread, part);
                (began.elapsed(), done)
            })
        };
        let threads: Vec<_> = work.iter_mut().enumerate().map(spawn).collect();
        let (mut slowest, mut done) = (Duration::ZERO, Vec::new());
        for thread in threads {
            let (took, one) =
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            slowest = slowest.max(took);
            done.push(one);
        }
        (slowest, done)
    })
}

pub struct Lab<P: Peer> {
    peer: P,
    windows: Vec<Window<P>>,
}

impl<P: Peer> Lab<P> {
    /// Makes the peer, fills it up from its default size, lets it settle.
    pub fn new(load: &Load) -> Self {
        let mut lab = Lab {
            peer: P::new(load.in_flight),
            windows: (0..load.threads)
                .map(|thread| {
                    let share = load.in_flight / load.threads;
                    Window::new(thread, share, load.positions[thread].clone())
                })
                .collect(),
        };
        lab.each(|peer, window| window.fill(peer));
        lab.peer.settle();
        lab
    }

    fn each(&mut self, f: impl Fn(&P, &mut Window<P>) + Sync) -> Duration {
        let peer = &self.peer;
        at_once(&mut self.windows, |_, window| f(peer, window)).0
    }

    /// Completes `trees` trees, rounded to groups for each thread, and begins as many. Returns how
    /// long it took.
    pub fn run(&mut self, trees: usize, batch: bool) -> Duration {
        let each = trees / self.windows.len();
        self.each(|peer, window| window.run(peer, each, batch))
    }

    pub fn touch(&mut self, trees: usize) -> Duration
    where
        P: Touch,
    {
        let each = trees / self.windows.len();
        self.each(|peer, window| window.touch(peer, each))
    }
}

/// What a round measured: nanoseconds of a thread's time for a tree, and how many trees there was
/// room for at the end, where that is known.
pub type Round = (f64, Option<usize>);

/// One round of `work` with a fresh peer.
pub fn round<P: Peer>(load: &Load, work: impl Fn(&mut Lab<P>, usize) -> Duration) -> Round {
    let mut lab = Lab::<P>::new(load);
    work(&mut lab, load.warm);
    settled();
    let (mut wall, mut trees) = (Duration::ZERO, 0);
    // A pass of nothing but the harness may take a millisecond.
    while wall < LEAST {
        wall += work(&mut lab, load.trees);
        trees += load.trees;
    }
    let nanos = wall.as_nanos() as f64 * load.threads as f64 / trees as f64;
    (nanos, lab.peer.slots())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{Chosen, DashEntry, DashRemoveIf, Floor, Issued, Papaya, Scc};

    /// The windows check that every tree completes, and that its owner comes back.
    fn check<P: Peer>() {
        for (threads, order) in [(1, Order::Fifo), (2, Order::Random)] {
            let load = Load::standard(1000, threads, order);
            let mut lab = Lab::<P>::new(&load);
            for batch in [false, true] {
                lab.run(10 * load.in_flight, batch);
            }
        }
    }

    #[test]
    fn every_peer_completes_its_trees() {
        check::<Issued>();
        check::<Chosen>();
        check::<DashRemoveIf>();
        check::<DashEntry>();
        check::<Papaya>();
        check::<Scc>();
        check::<Floor>();
    }
}
