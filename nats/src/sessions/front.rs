//! The sessions that a front-end serves, without any I/O: `(now, event) -> requests`.
//!
//! The caller touches the tracker, which any number of threads do at once. The machine takes the
//! touched ids a few times in a timeout. A partition's ids go to its owner in one request at a
//! time. What has no answer goes again, with what was touched since.
//!
//! A session that was not touched for its timeout is dropped here without a word: its owner ends
//! it, unless another front-end touches it. A touch counts from the last tick, so ticks that stop
//! for a timeout drop all sessions: their callers adopt them again.

use super::wire::Ids;
use super::Terms;
use crate::keep::set;
use expiry::{ManualClock, SessionId, SessionTracker};
use std::sync::Arc;
use std::time::Duration;

/// The ids of one request: 256 KiB.
const MOST_IDS: usize = 32_768;

/// What the driver reports to the machine.
pub(crate) enum Event {
    Tick,
    /// The owner of the partition has answered the request that was sent at `sent_at`. None: there
    /// is no answer.
    Answered {
        partition: u32,
        sent_at: Duration,
        gone: Option<Vec<u64>>,
    },
}

/// Ask the owner of the partition to touch sessions.
pub(crate) struct Touch {
    pub(crate) partition: u32,
    pub(crate) sent_at: Duration,
    pub(crate) touched: Ids,
}

#[derive(Default)]
struct Partition {
    touched: Vec<u64>,
    /// When the request was sent that is under way, and its ids.
    under_way: Option<(Duration, Vec<u64>)>,
}

pub(crate) struct Front {
    terms: Terms,
    clock: ManualClock,
    live: Arc<SessionTracker>,
    partitions: Vec<Partition>,
    /// When the machine takes the touched ids.
    due: Duration,
}

impl Front {
    pub(crate) fn new(terms: Terms, now: Duration, partitions: u32) -> (Self, Arc<SessionTracker>) {
        let (clock, live) = super::tracker(now, true);
        let live = Arc::new(live);
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        (Self { terms, clock, live: live.clone(), partitions, due: now }, live)
    }

    /// Takes an event and appends the requests that the driver is to send.
    pub(crate) fn on(&mut self, now: Duration, event: Event, out: &mut Vec<Touch>) {
        set(&self.clock, now);
        match event {
            Event::Tick => {
                drop(self.live.poll());
                if now >= self.due {
                    self.due = now + self.terms.timeout / 4;
                    for (id, _) in self.live.take_touched() {
                        let partition = id.0 % self.partitions.len() as u64;
                        self.partitions[partition as usize].touched.push(id.0);
                    }
                }
                for partition in 0..self.partitions.len() {
                    out.extend(self.next(now, partition));
                }
            }
            Event::Answered { partition, sent_at, gone } => {
                let one = &mut self.partitions[partition as usize];
                let Some((_, sent)) = one.under_way.take_if(|(at, _)| *at == sent_at) else {
                    return;
                };
                let Some(gone) = gone else {
                    one.touched.extend(sent);
                    one.touched.sort_unstable();
                    one.touched.dedup();
                    one.touched.retain(|&id| self.live.contains(SessionId(id)));
                    return;
                };
                for id in gone.into_iter().map(SessionId) {
                    if self.live.remove(id).is_some() {
                        // An error says that the process takes no ends.
                        let _ = self.terms.reported.send(id);
                    }
                }
                out.extend(self.next(now, partition as usize));
            }
        }
    }

    fn next(&mut self, now: Duration, partition: usize) -> Option<Touch> {
        let one = &mut self.partitions[partition];
        if one.under_way.is_some() || one.touched.is_empty() {
            return None;
        }
        let ids = one.touched.split_off(one.touched.len().saturating_sub(MOST_IDS));
        one.under_way = Some((now, ids.clone()));
        let partition = u32::try_from(partition).expect("it was one");
        Some(Touch { partition, sent_at: now, touched: Ids { ids } })
    }
}
