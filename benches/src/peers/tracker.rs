//! This crate's tracker: default settings, its reaper running, a handler that takes the owner.

use super::{finished, New, Peer, Touch};
use crate::window::GROUP;
use expiry::{Ack, AckError, AckTracker, Outcome, Root};
use std::time::{Duration, Instant};

/// The timeout of all trackers here.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// From here on filling takes too long for [`TIMEOUT`].
const MANY: usize = 20_000_000;

fn tracker(in_flight: usize) -> AckTracker {
    let timeout = if in_flight > MANY { TIMEOUT * 40 } else { TIMEOUT };
    AckTracker::builder()
        .timeout(timeout)
        .on_outcome(|outcome: &Outcome| finished(outcome.owner))
        .build()
        .expect("valid settings")
}

/// Until the reaper has carried all ids over from tables that were outgrown. Gives up after 10 s.
fn settle(tracker: &AckTracker) {
    let began = Instant::now();
    let settled = || {
        let metrics = tracker.metrics();
        metrics.shards.iter().all(|shard| shard.tables == 1)
    };
    while !settled() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cold]
fn refused(error: AckError) -> ! {
    panic!("refused: {error}; has the machine been too slow for the timeout?")
}

#[inline]
fn completed(ack: Result<Ack, AckError>) -> bool {
    match ack {
        Ok(ack) => ack == Ack::Completed,
        Err(error) => refused(error),
    }
}

/// Roots that the tracker issues.
pub struct Issued(pub AckTracker);

impl Peer for Issued {
    const NAME: &'static str = "expiry, issued";
    const EXPIRES: bool = true;
    type Id = Root;
    /// What `issue_batch` takes and returns.
    type Scratch = (Vec<(u64, u64)>, Vec<Root>);

    fn new(in_flight: usize) -> Self {
        Issued(tracker(in_flight))
    }

    fn blank() -> Root {
        Root::from_bits(0)
    }

    #[inline]
    fn begin(&self, _at: usize, (_, xor, owner): New) -> Root {
        self.0.issue(xor, owner).unwrap_or_else(|error| refused(error))
    }

    #[inline]
    fn ack(&self, id: Root, edge: u64) -> bool {
        completed(self.0.ack(id, edge))
    }

    #[inline]
    fn begin_many(
        &self,
        (items, roots): &mut Self::Scratch,
        _at: &[usize; GROUP],
        trees: &[New; GROUP],
        ids: &mut [Root; GROUP],
    ) {
        items.clear();
        items.extend(trees.iter().map(|&(_, xor, owner)| (xor, owner)));
        roots.clear();
        if let Err(error) = self.0.issue_batch(items, roots) {
            refused(error);
        }
        ids.copy_from_slice(roots);
    }

    #[inline]
    fn ack_many(&self, acks: &[(Root, u64)]) -> usize {
        let mut done = 0;
        self.0.ack_batch(acks, |_, ack| done += usize::from(completed(ack)));
        done
    }

    fn settle(&self) {
        settle(&self.0);
    }
}

impl Touch for Issued {
    #[inline]
    fn touch(&self, id: Root) {
        if let Err(error) = self.0.reset_timeout(id) {
            refused(error);
        }
    }
}

/// Roots under ids that the caller chooses.
pub struct Chosen(pub AckTracker);

impl Peer for Chosen {
    const NAME: &'static str = "expiry, chosen";
    const EXPIRES: bool = true;
    type Id = u64;
    type Scratch = ();

    fn new(in_flight: usize) -> Self {
        Chosen(tracker(in_flight))
    }

    fn blank() -> u64 {
        0
    }

    #[inline]
    fn begin(&self, _at: usize, (key, xor, owner): New) -> u64 {
        if let Err(error) = self.0.init(key, xor, owner) {
            refused(error);
        }
        key
    }

    #[inline]
    fn ack(&self, id: u64, edge: u64) -> bool {
        completed(self.0.ack(id, edge))
    }

    #[inline]
    fn begin_many(
        &self,
        (): &mut (),
        _at: &[usize; GROUP],
        trees: &[New; GROUP],
        ids: &mut [u64; GROUP],
    ) {
        self.0.init_batch(trees, |_, done| {
            if let Err(error) = done {
                refused(error);
            }
        });
        for (id, tree) in ids.iter_mut().zip(trees) {
            *id = tree.0;
        }
    }

    #[inline]
    fn ack_many(&self, acks: &[(u64, u64)]) -> usize {
        let mut done = 0;
        self.0.ack_batch(acks, |_, ack| done += usize::from(completed(ack)));
        done
    }

    fn settle(&self) {
        settle(&self.0);
    }
}

impl Touch for Chosen {
    #[inline]
    fn touch(&self, id: u64) {
        if let Err(error) = self.0.reset_timeout(id) {
            refused(error);
        }
    }
}
