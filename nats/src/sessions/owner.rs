//! The owner of a partition of sessions, without any I/O: `(now, event) -> actions`.
//!
//! Each session is a record of the partition. **The linearization point of a session's begin and of
//! its end is the store's write**, which the store refuses to a late owner. The invariants:
//!
//! 1. The owner answers a begin or an end, and reports an end, after the store has confirmed the
//!    write. Until then it calls no session gone.
//! 2. A session whose time is up stays in the tracker until the batch that deletes its record is
//!    made. A touch before that moment takes the session back.
//! 3. One batch is under way at a time. A batch without a known outcome ends the machine: a new one
//!    begins under a new epoch, with the records.
//! 4. A machine gives each session that it finds its whole timeout and a grace. It reports the ends
//!    of the last minute again, because its predecessor may have died before it reported them.
//! 5. The driver gives a request to the machine while the worker may act.

use super::wire::{key, record, session_of, Ask, Ids, Said};
use super::Terms;
use crate::keep::{set, Action, Event, Keeper};
use crate::partitions::{Numbered, MOST_RECORDS};
use expiry::{ManualClock, SessionId, SessionTracker};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// A session whose record is being written, and the place of the reply that waits for it.
struct Open<R> {
    /// The record is to be deleted.
    ending: bool,
    reply: Option<R>,
}

/// The sessions of a partition. The tracker has those whose records are not being written.
pub(crate) struct Owner<R> {
    terms: Terms,
    clock: ManualClock,
    live: SessionTracker,
    open: HashMap<u64, Open<R>>,
    next: VecDeque<u64>,
    under_way: Vec<u64>,
}

impl<R: Send + 'static> Keeper<R> for Owner<R> {
    type Ask = Ask;
    type Said = Said;
    type Terms = Terms;

    fn new(terms: Terms, now: Duration, records: Numbered, grace: Duration) -> (Self, u64) {
        let (clock, live) = super::tracker(now, false);
        let (open, next, under_way) = (HashMap::new(), VecDeque::new(), Vec::new());
        let owner = Self { terms, clock, live, open, next, under_way };
        let mut malformed = 0;
        for (key, (_, record)) in records {
            match session_of(&key, record.as_deref()) {
                Some((id, true)) => drop(owner.track(id, owner.terms.timeout + grace)),
                Some((id, false)) => owner.report(id),
                None => malformed += 1,
            }
        }
        (owner, malformed)
    }

    fn on(&mut self, now: Duration, event: Event<Ask, R>, out: &mut Vec<Action<Said, R>>) {
        set(&self.clock, now);
        match event {
            Event::Asked { ask, reply, .. } => {
                out.extend(self.asked(ask, reply).map(|(reply, said)| Action::Answer(reply, said)));
            }
            Event::Written(_) => self.written(out),
            Event::Tick => {}
        }
        if self.under_way.is_empty() {
            self.write(out);
        }
    }
}

impl<R> Owner<R> {
    /// The answer, unless a write has to come first.
    fn asked(&mut self, ask: Ask, reply: R) -> Option<(R, Said)> {
        let (id, ending) = match ask {
            Ask::Touch(Ids { ids }) => {
                let items = ids.iter().map(|&id| (SessionId(id), self.terms.timeout));
                let touched = self.live.touch_batch(&items.collect::<Vec<_>>());
                let missed = ids.iter().zip(touched).filter(|(_, touched)| touched.is_err());
                let gone = missed.map(|(id, _)| *id).filter(|id| !self.open.contains_key(id));
                return Some((reply, Said::Gone(Ids { ids: gone.collect() })));
            }
            Ask::Begin(id) | Ask::Adopt(id) => (id, false),
            Ask::End(id) => (id, true),
        };
        if let Some(open) = self.open.get_mut(&id) {
            // The caller has sent its request again, and waits for the later reply. Where the
            // session goes the other way, the caller is to ask once more.
            if open.ending == ending {
                open.reply = Some(reply);
            }
            return None;
        }
        let lives = if ending {
            self.live.remove(SessionId(id)).is_some()
        } else {
            self.live.touch_for(SessionId(id), self.terms.timeout).is_ok()
        };
        // What is to begin is not there yet, and what is to end is there.
        if lives == ending && !matches!(ask, Ask::Adopt(_)) {
            self.open.insert(id, Open { ending, reply: Some(reply) });
            self.next.push_back(id);
            return None;
        }
        Some((reply, Said::Lives(lives)))
    }

    /// Gives a session its time. False: there was no memory. No call gets the session then, and it
    /// ends by a later owner.
    fn track(&self, id: u64, time: Duration) -> bool {
        self.live.track(SessionId(id), time, 0).is_ok()
    }

    fn report(&self, id: u64) {
        // An error says that the process takes no ends.
        let _ = self.terms.reported.send(SessionId(id));
    }

    fn written(&mut self, out: &mut Vec<Action<Said, R>>) {
        for id in std::mem::take(&mut self.under_way) {
            let Open { ending, reply } = self.open.remove(&id).expect("it is written");
            let is_done = ending || self.track(id, self.terms.timeout);
            if ending {
                self.report(id);
            }
            let reply = reply.filter(|_| is_done);
            out.extend(reply.map(|reply| Action::Answer(reply, Said::Lives(!ending))));
        }
    }

    /// Begins the next batch.
    fn write(&mut self, out: &mut Vec<Action<Said, R>>) {
        let room = MOST_RECORDS.saturating_sub(self.next.len());
        let mut expired = Vec::new();
        while expired.len() < room && self.live.poll_into(&mut expired, room).more {}
        for session in expired {
            self.open.insert(session.id.0, Open { ending: true, reply: None });
            self.next.push_back(session.id.0);
        }
        let most = self.next.len().min(MOST_RECORDS);
        self.under_way = self.next.drain(..most).collect();
        if !self.under_way.is_empty() {
            let write = |id| (key(id), (!self.open[&id].ending).then(|| record().into()));
            out.push(Action::Write(self.under_way.iter().map(|&id| write(id)).collect()));
        }
    }
}
