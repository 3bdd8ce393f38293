//! This crate's tracker: default settings, its reaper running, a handler that takes the owner.

use super::{finished, Batch, Id, New, Peer, Touch};
use expiry::{Ack, AckError, AckTracker, Outcome, Root, RootId};
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// The timeout of all trackers here.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Number of entries from which on filling takes too long for [`TIMEOUT`].
const MANY: usize = 20_000_000;

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

/// The tracker with roots that it issues, or with ids that the caller chooses.
pub struct Tracker<R>(AckTracker, PhantomData<R>);

pub type Issued = Tracker<Root>;

pub type Chosen = Tracker<u64>;

pub trait Kind: Id + Into<RootId> {
    const NAME: &'static str;

    fn begin(tracker: &AckTracker, tree: New) -> Self;

    fn begin_many(tracker: &AckTracker, batch: &mut Batch<Self>);
}

impl Kind for Root {
    const NAME: &'static str = "expiry, issued";

    #[inline]
    fn begin(tracker: &AckTracker, (_, xor, owner): New) -> Root {
        tracker.issue(xor, owner).unwrap_or_else(|error| refused(error))
    }

    #[inline]
    fn begin_many(tracker: &AckTracker, batch: &mut Batch<Root>) {
        let (items, roots) = &mut batch.issued;
        items.clear();
        items.extend(batch.trees.iter().map(|&(_, xor, owner)| (xor, owner)));
        roots.clear();
        tracker.issue_many(items, roots).unwrap_or_else(|error| refused(error));
        batch.ids.copy_from_slice(roots);
    }
}

impl Kind for u64 {
    const NAME: &'static str = "expiry, chosen";

    #[inline]
    fn begin(tracker: &AckTracker, (key, xor, owner): New) -> u64 {
        tracker.init(key, xor, owner).unwrap_or_else(|error| refused(error));
        key
    }

    #[inline]
    fn begin_many(tracker: &AckTracker, batch: &mut Batch<u64>) {
        tracker.init_many(&batch.trees, |_, done| done.unwrap_or_else(|error| refused(error)));
        for (id, tree) in batch.ids.iter_mut().zip(&batch.trees) {
            *id = tree.0;
        }
    }
}

impl<R: Kind> Peer for Tracker<R> {
    const NAME: &'static str = R::NAME;
    const EXPIRES: bool = true;
    type Id = R;

    fn new(in_flight: usize) -> Self {
        let timeout = if in_flight > MANY { TIMEOUT * 40 } else { TIMEOUT };
        let builder = AckTracker::builder()
            .timeout(timeout)
            .on_outcome(|outcome: Outcome| finished(outcome.owner));
        Tracker(builder.build().expect("valid settings"), PhantomData)
    }

    #[inline]
    fn begin(&self, _at: usize, tree: New) -> R {
        R::begin(&self.0, tree)
    }

    #[inline]
    fn ack(&self, id: R, edge: u64) -> bool {
        completed(self.0.ack(id, edge))
    }

    #[inline]
    fn begin_many(&self, batch: &mut Batch<R>) {
        R::begin_many(&self.0, batch);
    }

    #[inline]
    fn ack_many(&self, acks: &[(R, u64)]) -> usize {
        let mut done = 0;
        self.0.ack_many(acks, |_, ack| done += usize::from(completed(ack)));
        done
    }

    /// Waits until the reaper has migrated all ids from outgrown tables. Gives up after 10 s.
    fn settle(&self) {
        let began = Instant::now();
        let settled = || self.0.metrics().shards.iter().all(|shard| shard.tables == 1);
        while !settled() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<R: Kind> Touch for Tracker<R> {
    #[inline]
    fn touch(&self, id: R) {
        self.0.reset_timeout(id).unwrap_or_else(|error| refused(error));
    }
}
