//! The leases that a process holds, without any I/O.
//!
//! **A lease is valid for three quarters of its time, counted from when the request was sent whose
//! answer confirmed it.** The owner counts the whole time from when it received that request. So
//! the holder gives up first, if the two clocks run at the same rate, to within a quarter. A lease
//! that is not valid any more never becomes valid again.
//!
//! A lease is due at a third of its time, and then with each tick until the owner confirms it.

use crate::keep::{Answer, Front};
use crate::Loss;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

struct Lease<T> {
    time: Duration,
    /// When the request was sent that the owner confirmed last.
    sent_at: Duration,
    /// A touch has no answer yet.
    is_asked: bool,
    value: T,
}

impl<T> Lease<T> {
    fn left(&self, now: Duration) -> Duration {
        (self.sent_at + self.time * 3 / 4).saturating_sub(now)
    }
}

/// The leases of a process by id.
pub(crate) struct Holder<T> {
    leases: HashMap<u64, Lease<T>>,
    /// Those that their owner has ended, until the process forgets them.
    expired: HashSet<u64>,
}

impl<T> Holder<T> {
    pub(crate) fn new() -> Self {
        Self { leases: HashMap::new(), expired: HashSet::new() }
    }

    /// Keeps a lease whose request was sent at `sent_at`, if it is still valid.
    pub(crate) fn granted(
        &mut self,
        now: Duration,
        id: u64,
        time: Duration,
        sent_at: Duration,
        value: T,
    ) -> bool {
        let lease = Lease { time, sent_at, is_asked: false, value };
        let is_valid = !lease.left(now).is_zero();
        if is_valid {
            self.leases.insert(id, lease);
        }
        is_valid
    }

    /// For how long the lease is valid. Zero: it is lost.
    pub(crate) fn valid_for(&self, now: Duration, id: u64) -> Duration {
        self.leases.get(&id).map_or(Duration::ZERO, |lease| lease.left(now))
    }

    /// Why a lease that is not valid any more was lost.
    pub(crate) fn loss(&self, id: u64) -> Loss {
        if self.expired.contains(&id) {
            Loss::Expired
        } else {
            Loss::Unanswered
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.leases.len()
    }

    /// Forgets a lease: its holder does not want it any more.
    pub(crate) fn forget(&mut self, id: u64) -> Option<T> {
        self.expired.remove(&id);
        self.leases.remove(&id).map(|lease| lease.value)
    }
}

impl<T: Send + 'static> Front for Holder<T> {
    /// The value of a lost lease.
    type Gone = T;

    fn tick(&mut self, now: Duration, due: &mut Vec<u64>, gone: &mut Vec<T>) {
        let lost = self.leases.extract_if(|_, lease| lease.left(now).is_zero());
        gone.extend(lost.map(|(_, lease)| lease.value));
        for (id, lease) in &mut self.leases {
            if now >= lease.sent_at + lease.time / 3 && !lease.is_asked {
                lease.is_asked = true;
                due.push(*id);
            }
        }
    }

    fn serves(&self, id: u64) -> bool {
        self.leases.contains_key(&id)
    }

    fn touched(
        &mut self,
        now: Duration,
        sent_at: Duration,
        id: u64,
        answer: Answer,
        gone: &mut Vec<T>,
    ) {
        if answer == Answer::No {
            let lease = self.leases.remove(&id);
            self.expired.extend(lease.iter().map(|_| id));
            gone.extend(lease.map(|lease| lease.value));
        } else if let Some(lease) = self.leases.get_mut(&id) {
            lease.is_asked = false;
            // The next tick drops a lease that is not valid any more.
            if answer != Answer::Unsure && !lease.left(now).is_zero() {
                lease.sent_at = lease.sent_at.max(sent_at);
            }
        }
    }
}
