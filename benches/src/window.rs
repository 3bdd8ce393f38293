//! A thread's trees in flight, and the steps that replace them.

use crate::peers::{finished_owners, Batch, Id, New, Peer, Proof, Touch};
pub use model::mix::mix;
use model::mix::STEP;
use std::sync::Arc;

/// Steps at a time, for every peer; also the size of a batch.
pub const GROUP: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    Fifo,
    Random,
}

/// A number below `end` that looks random, from a seed.
#[inline]
pub fn below(seed: u64, end: u64) -> u64 {
    ((u128::from(mix(seed)) * u128::from(end)) >> 64) as u64
}

/// Draws `steps` positions (a multiple of [`GROUP`]) below `window`, distinct within a group. FIFO
/// takes as many as one turn of the window takes.
pub fn draw(order: Order, window: usize, steps: usize, seed: u64) -> Arc<[u32]> {
    match order {
        Order::Fifo => (0..window as u32).collect(),
        Order::Random => {
            let mut state = mix(seed);
            let mut positions: Vec<u32> = Vec::with_capacity(steps);
            while positions.len() < steps {
                state = state.wrapping_add(STEP);
                let at = below(state, window as u64) as u32;
                let group = positions.len() / GROUP * GROUP;
                if !positions[group..].contains(&at) {
                    positions.push(at);
                }
            }
            positions.into()
        }
    }
}

/// A tree in flight. The edges stay with the position, for every peer.
#[derive(Clone, Copy)]
struct Entry<I> {
    id: I,
    edges: [u64; 3],
}

impl<I> Entry<I> {
    #[inline]
    fn tree(&self, key: u64) -> New {
        let [a, b, c] = self.edges;
        (key, a ^ b ^ c, a)
    }
}

pub struct Window<P: Peer> {
    entries: Vec<Entry<P::Id>>,
    order: Arc<[u32]>,
    at: usize,
    begun: u64,
    thread: usize,
}

impl<P: Peer> Window<P> {
    /// Room for `in_flight` trees (a multiple of [`GROUP`]), none of them begun.
    pub fn new(thread: usize, in_flight: usize, order: Arc<[u32]>) -> Self {
        assert!(in_flight.is_multiple_of(GROUP) && order.len().is_multiple_of(GROUP));
        let base = ((thread + 1) as u64) << 40;
        let entries = (0..in_flight as u64)
            .map(|at| Entry {
                id: P::Id::blank(),
                edges: [1, 2, 3].map(|edge| mix(base + at * 4 + edge)),
            })
            .collect();
        Window { entries, order, at: 0, begun: 0, thread }
    }

    /// A key that no thread has had.
    #[inline]
    fn key(&mut self) -> u64 {
        self.begun += 1;
        mix(((self.thread as u64) << 48) | self.begun)
    }

    pub fn fill(&mut self, peer: &P) {
        let base = self.thread * self.entries.len();
        for at in 0..self.entries.len() {
            let key = self.key();
            let entry = &mut self.entries[at];
            entry.id = peer.begin(base + at, entry.tree(key));
        }
    }

    #[inline]
    fn group(&mut self) -> [usize; GROUP] {
        let group: [u32; GROUP] = self.order[self.at..][..GROUP].try_into().expect("whole groups");
        self.at += GROUP;
        if self.at == self.order.len() {
            self.at = 0;
        }
        group.map(|at| at as usize)
    }

    /// Completes `count` trees (a multiple of [`GROUP`]) and begins as many.
    pub fn run(&mut self, peer: &P, count: usize, batches: bool) {
        let base = self.thread * self.entries.len();
        finished_owners();
        let (mut owners, mut completed) = (0u64, 0);
        let blank = Entry { id: P::Id::blank(), edges: [0; 3] };
        let mut held = [blank; GROUP];
        let mut acks = [(P::Id::blank(), 0); GROUP * 3];
        let mut batch = Batch::default();
        for _ in 0..count / GROUP {
            let positions = self.group();
            // Sixteen independent loads: the harness's own misses overlap, for every peer.
            for (held, &at) in held.iter_mut().zip(&positions) {
                *held = self.entries[at];
                owners = owners.wrapping_add(held.edges[0]);
            }
            if batches {
                for (acks, entry) in acks.chunks_exact_mut(3).zip(&held) {
                    for (ack, &edge) in acks.iter_mut().zip(&entry.edges) {
                        *ack = (entry.id, edge);
                    }
                }
                completed += peer.ack_many(&acks);
                batch.trees = held.map(|entry| entry.tree(self.key()));
                batch.at = positions.map(|at| base + at);
                peer.begin_many(&mut batch);
                for (&at, &id) in positions.iter().zip(&batch.ids) {
                    self.entries[at].id = id;
                }
            } else {
                for (&at, entry) in positions.iter().zip(&held) {
                    for edge in entry.edges {
                        completed += usize::from(peer.ack(entry.id, edge));
                    }
                    let key = self.key();
                    self.entries[at].id = peer.begin(base + at, entry.tree(key));
                }
            }
        }
        let told = finished_owners();
        if P::PROOF != Proof::None {
            let name = P::NAME;
            assert!(completed == count, "{name}: trees completed: {completed}, not {count}");
        }
        if P::PROOF == Proof::Owners {
            assert!(told == owners, "{}: sum of owners: {told}, not {owners}", P::NAME);
        }
    }

    /// Touches `trees` trees (a multiple of [`GROUP`]).
    pub fn touch(&mut self, peer: &P, trees: usize)
    where
        P: Touch,
    {
        for _ in 0..trees / GROUP {
            let positions = self.group();
            let held = positions.map(|at| self.entries[at].id);
            for id in held {
                peer.touch(id);
            }
        }
    }
}
