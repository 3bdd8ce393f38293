//! The owner of a partition of entries, without any I/O: `(now, event) -> actions`.
//!
//! Each entry is a record of the partition. **The linearization point of an entry's begin and of
//! its end is the store's write**, which the store refuses to a late owner. The invariants:
//!
//! 1. The owner answers a begin or an end, and reports an end, after the store has confirmed its
//!    write. Until then it is unsure of the entry, and gives a lease's key to no other call.
//! 2. An entry whose time is up stays in the tracker until it has its turn among the requests to
//!    write. A touch before that moment takes the entry back.
//! 3. One batch is under way at a time. A batch without a known outcome ends the machine: the
//!    worker claims the partition again, under a new epoch that defeats the batch if it is still on
//!    its way, and a new machine begins with the records.
//! 4. A machine gives each entry that it finds its whole time and a grace. A touch that an earlier
//!    owner confirmed was sent before, so a lease outlasts what its holder believes. The machine
//!    reports the sessions' ends of the last minute again, because its predecessor may have died
//!    before it reported them.
//! 5. The driver gives a request to the machine while the worker may act. A late owner therefore
//!    confirms no touch, and calls no entry gone that a later owner has begun.
//!
//! A lease's token is the sequence of its record. Only its holder may touch and end a lease; any
//! process may do so with a session.

use super::wire::{session_of, Answer, Entry, Request, Write};
use super::{set, tracker, Terms};
use crate::partitions::{Numbered, MOST_RECORDS};
use bytes::Bytes;
use expiry::{ManualClock, SessionId, SessionTracker};
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// What the driver reports to the machine. `R` is the place of a reply.
pub(crate) enum Event<R> {
    /// A worker asks.
    Asked { worker: String, request: Request, reply: R },
    /// The store took the batch; its last record has this sequence.
    Written(u64),
    /// Time has passed.
    Tick,
}

/// What the driver does.
pub(crate) enum Action<R> {
    /// Write a batch of records; one without a value is deleted.
    Write(Vec<(Vec<u8>, Option<Bytes>)>),
    Answer(R, Vec<Answer>),
}

/// A request's writes, each with the place of its answer, and the reply that waits for them.
struct Pending<R> {
    writes: Vec<(u64, bool, usize)>,
    answers: Vec<Answer>,
    reply: Option<R>,
}

/// The entries of a partition under one epoch.
pub(crate) struct Owner<R> {
    terms: Terms,
    clock: ManualClock,
    /// The entries whose record is stored and is not being written, each with its token.
    live: SessionTracker,
    /// The entries whose record is being written.
    open: HashSet<u64>,
    /// The leases by id, and their ids by key, open ones too.
    leases: HashMap<u64, Entry>,
    keys: HashMap<Vec<u8>, u64>,
    next: VecDeque<Pending<R>>,
    under_way: Vec<Pending<R>>,
}

impl<R> Owner<R> {
    /// Returns also the number of records that do not parse.
    pub(crate) fn new(
        terms: Terms,
        now: Duration,
        records: Numbered,
        grace: Duration,
    ) -> (Self, u64) {
        let (clock, live) = tracker(now, false);
        let mut owner = Self {
            terms,
            clock,
            live,
            open: HashSet::new(),
            leases: HashMap::new(),
            keys: HashMap::new(),
            next: VecDeque::new(),
            under_way: Vec::new(),
        };
        let (of_leases, mut malformed) = (owner.terms.timeout.is_none(), 0);
        for (key, (token, record)) in records {
            match record.map(|record| Entry::of_record(&record, of_leases)) {
                Some(Some(entry)) if entry.record_key() == key => {
                    let (id, time) = (entry.id, entry.time() + grace);
                    owner.name(entry);
                    owner.track(id, time, token);
                }
                Some(_) => malformed += 1,
                None => drop(session_of(&key).map(|id| (owner.terms.report)(id))),
            }
        }
        (owner, malformed)
    }

    /// Takes an event and appends what the driver is to do, in order.
    pub(crate) fn on(&mut self, now: Duration, event: Event<R>, out: &mut Vec<Action<R>>) {
        set(&self.clock, now);
        match event {
            Event::Asked { worker, request, reply } => self.asked(&worker, request, reply, out),
            Event::Written(last) => self.written(last, out),
            Event::Tick => {}
        }
        if self.under_way.is_empty() {
            self.write(out);
        }
    }

    fn asked(&mut self, worker: &str, request: Request, reply: R, out: &mut Vec<Action<R>>) {
        let mut answers = self.touch(worker, &request.touched);
        let mut writes = Vec::new();
        for Write { entry, ends } in request.writes {
            let (id, place) = (entry.id, answers.len());
            let answer = if ends { self.end(worker, id) } else { self.begin(worker, entry) };
            if answer.is_none() {
                self.open.insert(id);
                writes.push((id, ends, place));
            }
            answers.push(answer.unwrap_or(Answer::Unsure));
        }
        if writes.is_empty() {
            out.push(Action::Answer(reply, answers));
        } else {
            self.next.push_back(Pending { writes, answers, reply: Some(reply) });
        }
    }

    /// Whether the entry is another worker's lease.
    fn is_foreign(&self, worker: &str, id: u64) -> bool {
        self.leases.get(&id).is_some_and(|lease| lease.worker != worker)
    }

    fn time(&self, id: u64) -> Duration {
        self.leases.get(&id).map(Entry::time).or(self.terms.timeout).unwrap_or_default()
    }

    fn touch(&self, worker: &str, ids: &[u64]) -> Vec<Answer> {
        let items = ids.iter().map(|&id| (SessionId(id), self.time(id)));
        let items = items.filter(|&(id, _)| !self.is_foreign(worker, id.0));
        let items: Vec<_> = items.collect();
        let touched = items.iter().map(|(id, _)| id.0).zip(self.live.touch_many(&items));
        let mut touched = touched.peekable();
        let mut answer = |&id: &u64| match touched.next_if(|(touched, _)| *touched == id) {
            Some((_, Ok(()))) => Answer::Yes,
            _ if self.open.contains(&id) => Answer::Unsure,
            _ => Answer::No,
        };
        ids.iter().map(&mut answer).collect()
    }

    /// None: the record is to be written.
    fn begin(&mut self, worker: &str, mut entry: Entry) -> Option<Answer> {
        let id = entry.id;
        if self.open.contains(&id) {
            return Some(Answer::Unsure);
        }
        if self.is_foreign(worker, id) {
            return Some(Answer::No);
        }
        // The caller asks again for an entry that has begun.
        if self.live.touch_for(SessionId(id), self.time(id)).is_ok() {
            return self.live.get(SessionId(id)).map(|found| Answer::Begun(found.owner));
        }
        if self.keys.contains_key(&entry.key) {
            return Some(Answer::No);
        }
        entry.worker = worker.to_string();
        self.name(entry);
        None
    }

    /// None: the record is to be deleted.
    fn end(&mut self, worker: &str, id: u64) -> Option<Answer> {
        if self.open.contains(&id) {
            return Some(Answer::Unsure);
        }
        let ends = !self.is_foreign(worker, id) && self.live.remove(SessionId(id)).is_some();
        (!ends).then_some(Answer::Yes)
    }

    /// Reserves the key of a lease.
    fn name(&mut self, entry: Entry) {
        if self.terms.timeout.is_none() {
            self.keys.insert(entry.key.clone(), entry.id);
            self.leases.insert(entry.id, entry);
        }
    }

    /// Gives a new entry its time. False: there was no memory. No call gets the entry then, and it
    /// ends by a later owner.
    fn track(&self, id: u64, time: Duration, token: u64) -> bool {
        self.live.track(SessionId(id), time, token).is_ok()
    }

    fn written(&mut self, last: u64, out: &mut Vec<Action<R>>) {
        let batch = std::mem::take(&mut self.under_way);
        // The records of a batch have consecutive sequences.
        let count: usize = batch.iter().map(|pending| pending.writes.len()).sum();
        let mut tokens = last + 1 - count as u64..;
        for Pending { writes, mut answers, reply } in batch {
            for ((id, ends, place), token) in writes.into_iter().zip(&mut tokens) {
                self.open.remove(&id);
                if ends {
                    let lease = self.leases.remove(&id);
                    lease.map(|lease| self.keys.remove(&lease.key));
                    (self.terms.report)(id);
                    answers[place] = Answer::Yes;
                } else if self.track(id, self.time(id), token) {
                    answers[place] = Answer::Begun(token);
                }
            }
            out.extend(reply.map(|reply| Action::Answer(reply, answers)));
        }
    }

    /// Begins the next batch.
    fn write(&mut self, out: &mut Vec<Action<R>>) {
        if self.next.iter().all(|pending| pending.reply.is_some()) {
            self.expire();
        }
        let mut room = MOST_RECORDS;
        while self.next.front().is_some_and(|pending| pending.writes.len() <= room) {
            let pending = self.next.pop_front().expect("it is the first");
            room -= pending.writes.len();
            self.under_way.push(pending);
        }
        if !self.under_way.is_empty() {
            let writes = self.under_way.iter().flat_map(|pending| &pending.writes);
            out.push(Action::Write(writes.map(|&(id, ends, _)| self.record(id, ends)).collect()));
        }
    }

    /// Ends entries whose time is up. They have their turn among the requests. A poll may find a
    /// few more than it is asked for.
    fn expire(&mut self) {
        let (mut expired, mut more) = (Vec::new(), true);
        while more && expired.len() < MOST_RECORDS {
            let left = MOST_RECORDS - expired.len();
            more = self.live.poll_into(&mut expired, left).more;
        }
        let writes: Vec<_> = expired.iter().map(|entry| (entry.id.0, true, 0)).collect();
        self.open.extend(writes.iter().map(|(id, ..)| id));
        for writes in writes.chunks(MOST_RECORDS) {
            let (writes, answers) = (writes.to_vec(), vec![Answer::No]);
            self.next.push_back(Pending { writes, answers, reply: None });
        }
    }

    fn record(&self, id: u64, ends: bool) -> (Vec<u8>, Option<Bytes>) {
        let session = || Entry::new(id, Vec::new(), self.time(id));
        let entry = self.leases.get(&id).cloned().unwrap_or_else(session);
        (entry.record_key(), (!ends).then(|| entry.record().into()))
    }
}
