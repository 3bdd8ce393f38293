//! The leases that a process holds, without any I/O: `(now, event) -> actions`.
//!
//! **A lease is valid for three quarters of its time, counted from when the request was sent whose
//! answer confirmed it.** The owner counts the whole time from when it received that request. So
//! the holder gives up first, if the two clocks run at the same rate, to within a quarter. A lease
//! that is not valid any more never becomes valid again.
//!
//! A lease is renewed at a third of its time, and from then on with each tick until the owner
//! confirms it. What a partition's owner is to renew goes to it in batches, one at a time.

use super::wire::{Renewed, Tokens};
use crate::partitions::MOST_RECORDS;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the driver reports to the machine.
#[derive(Clone)]
pub(crate) enum Event {
    Tick,
    /// The owner of the partition has answered the renewal that was sent at `sent_at`.
    /// None: there is no answer.
    Answered {
        partition: u32,
        sent_at: Duration,
        tokens: Option<Tokens>,
    },
}

/// Ask the owner of the partition to renew leases. Without an answer for `limit`, the driver
/// reports that.
#[derive(Clone)]
pub(crate) struct Renew {
    pub(crate) partition: u32,
    pub(crate) sent_at: Duration,
    pub(crate) limit: Duration,
    pub(crate) leases: Vec<Renewed>,
}

struct Lease<T> {
    key: Vec<u8>,
    time: Duration,
    /// When the request was sent that the owner confirmed last.
    sent_at: Duration,
    value: T,
}

impl<T> Lease<T> {
    fn left(&self, now: Duration) -> Duration {
        (self.sent_at + self.time * 3 / 4).saturating_sub(now)
    }
}

struct Partition<T> {
    leases: BTreeMap<u64, Lease<T>>,
    /// When the renewal was sent that is under way.
    under_way: Option<Duration>,
}

/// The leases of a process by partition and token.
pub(crate) struct Holder<T> {
    /// The values of lost leases, which the driver takes. To drop one may wake a task.
    pub(crate) lost: Vec<T>,
    partitions: BTreeMap<u32, Partition<T>>,
}

impl<T> Holder<T> {
    pub(crate) fn new() -> Self {
        Self { lost: Vec::new(), partitions: BTreeMap::new() }
    }

    /// Keeps a lease whose request was sent at `sent_at`, if it is still valid.
    pub(crate) fn granted(
        &mut self,
        now: Duration,
        (partition, token): (u32, u64),
        key: Vec<u8>,
        time: Duration,
        sent_at: Duration,
        value: T,
    ) -> bool {
        let lease = Lease { key, time, sent_at, value };
        let is_valid = !lease.left(now).is_zero();
        if is_valid {
            let new = || Partition { leases: BTreeMap::new(), under_way: None };
            self.partitions.entry(partition).or_insert_with(new).leases.insert(token, lease);
        }
        is_valid
    }

    /// For how long the lease is valid. Zero: it is lost.
    pub(crate) fn valid_for(&self, now: Duration, (partition, token): (u32, u64)) -> Duration {
        let found = self.partitions.get(&partition).and_then(|one| one.leases.get(&token));
        found.map_or(Duration::ZERO, |lease| lease.left(now))
    }

    pub(crate) fn len(&self) -> usize {
        self.partitions.values().map(|one| one.leases.len()).sum()
    }

    /// Forgets a lease: its holder does not want it any more.
    pub(crate) fn forget(&mut self, (partition, token): (u32, u64)) {
        let one = self.partitions.get_mut(&partition);
        let lease = one.and_then(|one| one.leases.remove(&token));
        self.lost.extend(lease.map(|lease| lease.value));
    }

    /// Takes an event and appends the renewals that the driver is to send.
    pub(crate) fn on(&mut self, now: Duration, event: Event, out: &mut Vec<Renew>) {
        match event {
            Event::Tick => {
                self.partitions.retain(|&partition, one| {
                    let leases = one.leases.iter();
                    let expired = leases.filter(|(_, lease)| lease.left(now).is_zero());
                    let expired: Vec<u64> = expired.map(|(token, _)| *token).collect();
                    let expired = expired.iter().filter_map(|token| one.leases.remove(token));
                    self.lost.extend(expired.map(|lease| lease.value));
                    if one.under_way.is_none() {
                        out.extend(one.renewal(now, partition));
                    }
                    !one.leases.is_empty() || one.under_way.is_some()
                });
            }
            Event::Answered { partition, sent_at, tokens } => {
                let Some(one) = self.partitions.get_mut(&partition) else { return };
                one.under_way.take_if(|at| *at == sent_at);
                let tokens = tokens.unwrap_or_default();
                for token in tokens.kept {
                    if let Some(lease) = one.leases.get_mut(&token) {
                        // The next tick drops a lease that is not valid any more.
                        if !lease.left(now).is_zero() {
                            lease.sent_at = lease.sent_at.max(sent_at);
                        }
                    }
                }
                for token in tokens.gone {
                    self.forget((partition, token));
                }
            }
        }
    }
}

impl<T> Partition<T> {
    /// The renewal of what is due, and of what will be soon.
    fn renewal(&mut self, now: Duration, partition: u32) -> Option<Renew> {
        let is_due = |lease: &Lease<T>, part| now >= lease.sent_at + lease.time / part;
        if !self.leases.values().any(|lease| is_due(lease, 3)) {
            return None;
        }
        let mut due: Vec<_> = self.leases.iter().filter(|(_, lease)| is_due(lease, 6)).collect();
        // The first to be lost come first, where they are too many for one request.
        due.sort_by_key(|(_, lease)| lease.left(now));
        due.truncate(MOST_RECORDS);
        let limit = due.iter().map(|(_, lease)| lease.time / 12).min()?;
        let leases = due.into_iter().map(|(&token, it)| Renewed { key: it.key.clone(), token });
        let leases = leases.collect();
        self.under_way = Some(now);
        Some(Renew { partition, sent_at: now, limit, leases })
    }
}
