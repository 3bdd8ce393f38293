//! The operations of a step, single or in batches, some of them timed.

use crate::latency::Recorder;
use crate::options::Ids;
use expiry::{Ack, AckError, AckTracker, Root, RootId};
use std::time::Instant;

/// One single operation in this many is timed. A power of two.
const TIMED: u64 = 256;
/// One batch in this many is timed. A power of two.
const TIMED_BATCHES: u64 = 16;

#[derive(Debug, Clone, Copy)]
pub struct ToAck {
    /// The place of its root.
    pub place: u32,
    /// The root, as bits.
    pub root: u64,
    pub xor: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct ToIssue {
    pub place: u32,
    /// Its id, if it is chosen.
    pub id: u64,
    pub xor: u64,
    pub owner: u64,
}

/// A tracker and a way to use it.
pub struct Ops<'t> {
    pub tracker: &'t AckTracker,
    ids: Ids,
    batch: usize,
    calls: u64,
    roots: Vec<Root>,
    acks: Vec<(RootId, u64)>,
    issues: Vec<(u64, u64)>,
    inits: Vec<(u64, u64, u64)>,
    /// Time per ack: of single ones, or the mean of a batch.
    ack_time: Recorder,
    issue_time: Recorder,
}

impl<'t> Ops<'t> {
    /// Operations on `tracker`, in batches if `batch` is above 1.
    pub fn new(
        tracker: &'t AckTracker,
        ids: Ids,
        batch: usize,
        (ack_time, issue_time): (Recorder, Recorder),
    ) -> Self {
        Ops {
            tracker,
            ids,
            batch,
            calls: 0,
            roots: Vec::new(),
            acks: Vec::new(),
            issues: Vec::new(),
            inits: Vec::new(),
            ack_time,
            issue_time,
        }
    }

    #[inline]
    pub fn id(&self, root: u64) -> RootId {
        match self.ids {
            Ids::Issued => RootId::Issued(Root::from_bits(root)),
            Ids::Chosen => RootId::Chosen(root),
        }
    }

    /// Whether this call is one that is timed.
    fn timed(&mut self, one_in: u64) -> Option<Instant> {
        self.calls += 1;
        (self.calls & (one_in - 1) == 0).then(Instant::now)
    }

    /// Acks them all in order, and passes each result to `each`.
    pub fn ack(&mut self, acks: &[ToAck], mut each: impl FnMut(&ToAck, Result<Ack, AckError>)) {
        if self.batch <= 1 {
            for ack in acks {
                let began = self.timed(TIMED);
                let done = self.tracker.ack(self.id(ack.root), ack.xor);
                if let Some(began) = began {
                    self.ack_time.record(began.elapsed());
                }
                each(ack, done);
            }
            return;
        }
        for acks in acks.chunks(self.batch) {
            let began = self.timed(TIMED_BATCHES);
            let mut batch = std::mem::take(&mut self.acks);
            batch.clear();
            batch.extend(acks.iter().map(|ack| (self.id(ack.root), ack.xor)));
            self.tracker.ack_many(&batch, |at, done| each(&acks[at], done));
            self.acks = batch;
            if let Some(began) = began {
                self.ack_time.record(began.elapsed() / acks.len() as u32);
            }
        }
    }

    /// Issues, or inits, them all in order, and passes each root's bits or error to `each`.
    pub fn issue(
        &mut self,
        roots: &[ToIssue],
        mut each: impl FnMut(&ToIssue, Result<u64, AckError>),
    ) {
        if self.batch <= 1 {
            for root in roots {
                let began = self.timed(TIMED);
                let done = match self.ids {
                    Ids::Issued => self.tracker.issue(root.xor, root.owner).map(Root::to_bits),
                    Ids::Chosen => {
                        self.tracker.init(root.id, root.xor, root.owner).map(|()| root.id)
                    }
                };
                if let Some(began) = began {
                    self.issue_time.record(began.elapsed());
                }
                each(root, done);
            }
            return;
        }
        for roots in roots.chunks(self.batch) {
            let began = self.timed(TIMED_BATCHES);
            match self.ids {
                Ids::Issued => {
                    self.issues.clear();
                    self.issues.extend(roots.iter().map(|root| (root.xor, root.owner)));
                    self.roots.clear();
                    let done = self.tracker.issue_many(&self.issues, &mut self.roots);
                    for (at, root) in roots.iter().enumerate() {
                        let error = done.err().unwrap_or(AckError::OutOfMemory);
                        each(root, self.roots.get(at).map(|root| root.to_bits()).ok_or(error));
                    }
                }
                Ids::Chosen => {
                    self.inits.clear();
                    self.inits.extend(roots.iter().map(|root| (root.id, root.xor, root.owner)));
                    self.tracker.init_many(&self.inits, |at, done| {
                        each(&roots[at], done.map(|()| roots[at].id));
                    });
                }
            }
            if let Some(began) = began {
                self.issue_time.record(began.elapsed() / roots.len() as u32);
            }
        }
    }
}
