//! The owner of a partition of leases, without any I/O: `(now, event) -> actions`.
//!
//! Each lease is a record of the partition. **The linearization point of a grant and of its end is
//! the store's write**, which the store refuses to a late owner. The invariants:
//!
//! 1. The owner answers a grant or a release after the store has confirmed its write. A key is free
//!    when the delete of its record is confirmed. Until then the owner grants it to no other call.
//! 2. One batch is under way at a time. A batch without a known outcome ends the machine: the
//!    worker claims the partition again, under a new epoch that defeats the batch if it is still on
//!    its way, and a new machine begins with the records.
//! 3. A machine gives each lease that it finds its whole time and a grace. A renewal that an
//!    earlier owner confirmed was sent before, so the lease outlasts what its holder believes.
//! 4. The driver gives a request to the machine while the worker may act. A late owner therefore
//!    renews nothing, and calls no lease gone that a later owner has granted.
//!
//! A grant's token is the sequence of its record.

use super::wire::{Ask, Grant, Said, Tokens};
use crate::keep::{set, Action, Event, Keeper};
use crate::partitions::{Numbered, MOST_RECORDS};
use expiry::{ExpiryQueue, ManualClock};
use std::collections::HashMap;
use std::time::Duration;

struct Lease {
    grant: Grant,
    /// 0: the record is not confirmed yet.
    token: u64,
    /// The record is to be deleted.
    ending: bool,
}

impl Lease {
    fn is_of(&self, worker: &str, id: u64) -> bool {
        self.grant.id == id && self.grant.worker == worker
    }
}

/// A write of a lease's record, and the place of the reply that waits for it.
struct Write<R> {
    key: Vec<u8>,
    reply: Option<R>,
}

/// The leases of a partition. The queue has those that are confirmed and do not end.
pub(crate) struct Owner<R> {
    clock: ManualClock,
    queue: ExpiryQueue<Vec<u8>>,
    leases: HashMap<Vec<u8>, Lease>,
    next: Vec<Write<R>>,
    under_way: Vec<Write<R>>,
}

impl<R: Send + 'static> Keeper<R> for Owner<R> {
    type Ask = Ask;
    type Said = Said;
    type Terms = ();

    fn new((): (), now: Duration, records: Numbered, grace: Duration) -> (Self, u64) {
        let clock = ManualClock::new();
        set(&clock, now);
        let queue = ExpiryQueue::builder().shards(1).clock(clock.clone()).build_manual();
        let queue = queue.expect("one shard is allowed");
        let (leases, next, under_way) = (HashMap::new(), Vec::new(), Vec::new());
        let mut owner = Self { clock, queue, leases, next, under_way };
        let mut malformed = 0;
        for (key, (token, record)) in records {
            let Some(record) = record else { continue };
            if let Some(grant) = Grant::of_record(&record) {
                owner.keep(key.clone(), grant.time() + grace);
                owner.leases.insert(key, Lease { grant, token, ending: false });
            } else {
                malformed += 1;
            }
        }
        (owner, malformed)
    }

    fn on(&mut self, now: Duration, event: Event<Ask, R>, out: &mut Vec<Action<Said, R>>) {
        set(&self.clock, now);
        match event {
            Event::Asked { worker, ask: Ask::Acquire(grant), reply } => {
                self.acquire(worker, grant, reply, out);
            }
            Event::Asked { worker, ask: Ask::Release(grant), reply } => {
                self.release(&worker, grant, reply, out);
            }
            Event::Asked { worker, ask: Ask::Renew(asked), reply } => {
                let mut tokens = Tokens::default();
                for one in asked.leases {
                    let lease = self.leases.get(&one.key).filter(|lease| {
                        lease.token == one.token && lease.token > 0 && lease.grant.worker == worker
                    });
                    match lease {
                        None => tokens.gone.push(one.token),
                        // Its end may still fail.
                        Some(lease) if lease.ending => {}
                        Some(lease) if self.keep(one.key, lease.grant.time()) => {
                            tokens.kept.push(one.token);
                        }
                        Some(_) => {}
                    }
                }
                out.push(Action::Answer(reply, Said::Renewed(tokens)));
            }
            Event::Written(last) => self.written(last, out),
            Event::Tick => {}
        }
        if self.under_way.is_empty() {
            self.write(out);
        }
    }
}

impl<R> Owner<R> {
    fn acquire(&mut self, worker: String, asked: Grant, reply: R, out: &mut Vec<Action<Said, R>>) {
        let key = asked.key.clone();
        match self.leases.get(&key) {
            None => {
                let grant = Grant { worker, ..asked };
                self.leases.insert(key.clone(), Lease { grant, token: 0, ending: false });
                self.next.push(Write { key, reply: Some(reply) });
            }
            Some(lease) if !lease.is_of(&worker, asked.id) => {
                out.push(Action::Answer(reply, Said::Granted(0)));
            }
            // The call asks again. If its lease has ended meanwhile, it is to ask once more.
            Some(lease) if lease.ending => {}
            Some(lease) if lease.token == 0 => self.reply_to(&key, reply),
            Some(lease) => {
                if self.keep(key, lease.grant.time()) {
                    out.push(Action::Answer(reply, Said::Granted(lease.token)));
                }
            }
        }
    }

    fn release(&mut self, worker: &str, asked: Grant, reply: R, out: &mut Vec<Action<Said, R>>) {
        match self.leases.get_mut(&asked.key).filter(|it| it.is_of(worker, asked.id)) {
            None => out.push(Action::Answer(reply, Said::Released(true))),
            Some(lease) if lease.ending => self.reply_to(&asked.key, reply),
            // The grant is under way. The holder asks again.
            Some(lease) if lease.token == 0 => {}
            Some(lease) => {
                lease.ending = true;
                self.queue.remove(&asked.key);
                self.next.push(Write { key: asked.key, reply: Some(reply) });
            }
        }
    }

    /// The caller has sent its request again, and waits for the later reply.
    fn reply_to(&mut self, key: &[u8], reply: R) {
        let mut all = self.next.iter_mut().chain(&mut self.under_way);
        if let Some(write) = all.find(|write| write.key == key) {
            write.reply = Some(reply);
        }
    }

    /// Gives a lease its time. False: there was no memory for a new one. No call gets it then, and
    /// it ends when it is released, or by a later owner.
    fn keep(&self, key: Vec<u8>, time: Duration) -> bool {
        self.queue.update(key, time).is_ok()
    }

    fn written(&mut self, last: u64, out: &mut Vec<Action<Said, R>>) {
        let batch = std::mem::take(&mut self.under_way);
        // The records of a batch have consecutive sequences.
        let first = last + 1 - batch.len() as u64;
        for (token, Write { key, reply }) in (first..).zip(batch) {
            let lease = self.leases.get_mut(&key).expect("it is written");
            let said = if lease.ending {
                self.leases.remove(&key);
                Some(Said::Released(true))
            } else {
                lease.token = token;
                let time = lease.grant.time();
                self.keep(key, time).then_some(Said::Granted(token))
            };
            out.extend(reply.zip(said).map(|(reply, said)| Action::Answer(reply, said)));
        }
    }

    /// Begins the next batch. A lease whose time is up ends only now, so that a renewal before this
    /// moment keeps it.
    fn write(&mut self, out: &mut Vec<Action<Said, R>>) {
        if let Some(budget) = MOST_RECORDS.checked_sub(self.next.len() + 1) {
            let mut expired = Vec::new();
            self.queue.poll_into(&mut expired, budget + 1);
            for key in expired {
                let lease = self.leases.get_mut(key.key()).expect("the queue has live leases");
                lease.ending = true;
                self.next.push(Write { key: key.key().clone(), reply: None });
            }
        }
        let most = self.next.len().min(MOST_RECORDS);
        self.under_way = self.next.drain(..most).collect();
        if !self.under_way.is_empty() {
            let records = self.under_way.iter().map(|Write { key, .. }| {
                let lease = &self.leases[key];
                let record =
                    (!lease.ending).then(|| lease.grant.record(&lease.grant.worker).into());
                (key.clone(), record)
            });
            out.push(Action::Write(records.collect()));
        }
    }
}
