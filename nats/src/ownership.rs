//! Which worker owns which partition, without any I/O: `(now, event) -> actions`.
//!
//! The brokers store one *record* per partition (its owner and that owner's `incarnation`) and one
//! *beat* per worker (`incarnation` and number of the beat). The `incarnation` distinguishes the
//! workers that use one name in turn. A record's stream sequence is its revision, and so the
//! owner's epoch and fence. Every write is a compare-and-swap on its subject.
//!
//! **The linearization point of every change of owner is the store's compare-and-swap.** Time only
//! decides when a worker tries. The invariants:
//!
//! 1. A worker holds a partition only after a claim that the store confirmed. A record that names
//!    the worker without such a claim (its answer was lost) is claimed again.
//! 2. A worker may act while its last confirmed beat was *sent* less than 3/4 of `lease` ago. After
//!    that the worker's lease has *expired* (`lapsed`): it claims each of its partitions again
//!    before it acts. The new revision defeats every claim that another worker sent meanwhile.
//! 3. A watcher takes a worker for dead when the watcher has seen, in one watch, an own beat that
//!    it sent at least `lease` after that worker's last change. The watch is in stream order, so
//!    the dead worker has stored no beat in between: its lease has expired. A gap above `lease / 2`
//!    between own watched beats starts all waits anew: the engine was away, not the workers.
//! 4. A new worker waits until the beat of its name has not changed for `lease`, and then swaps it.
//!    The swap succeeds only if the predecessor has stored no beat since, so that its lease has
//!    expired. An `incarnation` that a beat has replaced is therefore dead for every watcher.
//!
//! The owner of a partition should be the live member with the highest rendezvous hash.
//!
//! Where the beats' stream was made anew, all revisions began again. The driver then begins with a
//! new machine, which waits for a lease before its first beat. By then the lease of any worker that
//! used its name has expired.
//!
//! The brokers forget a beat [`beat_life`] after it was stored. Its lease has expired long before
//! that. A worker that wakes up later finds no own beat in its next watch, and swaps none for one.
//!
//! `now` is a duration on the worker's own monotonic clock, which counts suspended time.

mod claims;

use crate::base::DAY;
use crate::Loss;
use claims::{Busy, Partition};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[cfg(test)]
#[path = "../tests/unit/ownership.rs"]
mod tests;

/// The number of own beats whose time of sending the worker remembers.
const REMEMBERED: usize = 64;

/// How long the brokers store a beat: a day, or ten leases. A watcher forgets a dead worker after
/// twice that, when the brokers show its beat no more.
pub(crate) fn beat_life(lease: Duration) -> Duration {
    DAY.max(lease * 10)
}

/// What the driver reports to the machine.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The worker starts.
    Start,
    /// Time has passed. The driver ticks at least every `lease / 16`.
    Tick,
    /// The store took the beat that was sent at `sent_at`. None: the store refused it, or the beat
    /// has no answer, and the store may have taken it or may still take it.
    Beaten { sent_at: Duration, revision: Option<u64> },
    /// The watch shows a beat, the worker's own ones included, in the order of the stream.
    Watched { worker: String, incarnation: u64, beat: u64, leaving: bool, revision: u64 },
    /// The watch shows a record.
    Record { partition: u32, owner: Option<String>, incarnation: u64, revision: u64 },
    /// The watch has delivered everything that was stored when it began.
    Synced,
    /// The store took a `Claim` or `GiveUp`. None: the store refused it, or there is no answer.
    /// Neither proves anything: the worker tries again, with the revision that the watch has shown.
    Claimed { partition: u32, revision: Option<u64> },
    /// A write under this epoch has no answer. The worker is to claim the partition again.
    Doubted { partition: u32, epoch: u64 },
    /// The watch has missed something.
    WatchLost,
    /// The worker is to give up everything.
    Leave,
    /// The user has released a partition after `Losing`.
    Released { partition: u32 },
}

/// What the driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Write the worker's beat. The answer names `sent_at`.
    SendBeat { expected: u64, beat: u64, leaving: bool, sent_at: Duration },
    /// Write the worker's name and `incarnation` into the record.
    Claim { partition: u32, expected: u64 },
    /// Write the record with no owner. It is never deleted, so that epochs rise.
    GiveUp { partition: u32, expected: u64 },
    /// Watch everything again from the start.
    Resync,
    /// The worker owns the partition under this epoch. After an expired lease it gets a new epoch.
    Gained { partition: u32, epoch: u64 },
    /// Another worker is to have the partition. The user answers `Released`.
    Losing { partition: u32 },
    /// Another worker has claimed the partition.
    Lost { partition: u32 },
    /// The worker has left: it holds nothing, and does nothing any more.
    Left,
    /// Another worker uses this name. The driver abandons what this one holds.
    NameTaken,
}

/// The bugs that tests seed.
#[derive(Clone, Copy, Default)]
struct Bugs {
    count_from_reply: bool,
    wait_not_anew: bool,
}

#[derive(Clone, Copy)]
struct Peer {
    hash: u64,
    incarnation: u64,
    revision: u64,
    leaving: bool,
    dead: bool,
    /// When the wait began: at the last change of the beat, or anew.
    since: Duration,
}

#[derive(Clone, Copy, Default, PartialEq)]
enum Phase {
    /// The worker learns whether its name is in use.
    #[default]
    Waiting,
    /// The worker has sent a beat.
    Beating,
    Ended,
}

#[derive(Default)]
pub(crate) struct Ownership {
    name: String,
    incarnation: u64,
    lease: Duration,
    anew: bool,
    bugs: Bugs,
    phase: Phase,
    synced: bool,
    leaving: bool,
    /// The number of beats that the worker sent before it was to leave.
    plain_beats: u64,
    /// A later beat has been confirmed.
    told_leaving: bool,
    /// When the last confirmed beat was sent.
    confirmed: Option<Duration>,
    lapsed: bool,
    beats: u64,
    own_revision: u64,
    /// The brokers have shown a beat of this name, or taken one, since the current watch began.
    is_stored: bool,
    own_since: Duration,
    beat_under_way: Option<Duration>,
    next_beat: Duration,
    sent: VecDeque<(u64, Duration)>,
    /// When the watch last showed an own beat.
    seen_own: Option<Duration>,
    /// When the latest own beat in the watch was sent. The worker has seen all beats stored before.
    seen_through: Duration,
    peers: BTreeMap<String, Peer>,
    members_changed: bool,
    partitions: Vec<Partition>,
    todo: BTreeSet<u32>,
    /// What the next tick is to add to `todo`.
    refused: BTreeSet<u32>,
    under_way: usize,
    losing: usize,
}

impl Ownership {
    /// A worker of a set of `count` partitions, 1 to 1,024, with a lease of a second or more.
    /// `incarnation` is random. A worker that begins `anew` waits for a lease first.
    pub(crate) fn new(
        name: &str,
        incarnation: u64,
        count: u32,
        lease: Duration,
        anew: bool,
    ) -> Self {
        Self {
            name: name.to_owned(),
            incarnation,
            lease,
            anew,
            lapsed: true,
            members_changed: true,
            partitions: vec![Partition::default(); count as usize],
            ..Self::default()
        }
    }

    /// Whether the worker may act as the owner of `partition`, and under which epoch.
    pub(crate) fn may_act(&self, partition: u32, now: Duration) -> Option<u64> {
        let held = self.partitions.get(partition as usize)?.held?;
        (held.sure && self.phase != Phase::Ended && self.is_fresh(now)).then_some(held.epoch)
    }

    /// Why the worker may not act for a partition.
    pub(crate) fn loss(&self, now: Duration) -> Loss {
        match self.phase {
            Phase::Ended => Loss::Ended,
            _ if !self.is_fresh(now) => Loss::Unanswered,
            _ => Loss::Claimed,
        }
    }

    pub(crate) fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Ends: the worker acts for nothing any more. Returns what it held.
    pub(crate) fn abandon(&mut self) -> Vec<u32> {
        self.phase = Phase::Ended;
        let all = (0..).zip(&mut self.partitions);
        let held = all.filter_map(|(partition, one)| one.held.take().map(|_| partition));
        held.collect()
    }

    fn is_fresh(&self, now: Duration) -> bool {
        self.confirmed.is_some_and(|sent| now < sent + self.lease * 3 / 4)
    }

    /// Takes an event and appends what the driver is to do, in order.
    pub(crate) fn on(&mut self, now: Duration, event: Event, out: &mut Vec<Action>) {
        if self.phase == Phase::Ended {
            return;
        }
        if !self.lapsed && !self.is_fresh(now) {
            self.lapse();
        }
        match event {
            Event::Start => {
                self.own_since = now;
                out.push(Action::Resync);
            }
            Event::Tick => self.tick(now, out),
            Event::Beaten { sent_at, revision: None } => {
                self.beat_answered(sent_at, now + self.lease / 16);
            }
            Event::Beaten { sent_at, revision: Some(revision) } => {
                self.beat_answered(sent_at, now + self.lease / 4);
                self.own_revision = self.own_revision.max(revision);
                self.is_stored = true;
                let from = if self.bugs.count_from_reply { now } else { sent_at };
                self.confirmed = self.confirmed.max(Some(from));
                let said = |&(beat, at): &(u64, Duration)| at == sent_at && beat > self.plain_beats;
                self.told_leaving |= self.leaving && self.sent.iter().any(said);
                self.lapsed = !self.is_fresh(now);
            }
            Event::Watched { worker, incarnation, beat, leaving, revision } => {
                if worker == self.name {
                    self.watched_own(now, incarnation, beat, revision, out);
                } else {
                    self.watched_peer(now, worker, incarnation, leaving, revision);
                }
            }
            Event::Record { partition, owner, incarnation, revision } => {
                self.record(now, partition, owner, incarnation, revision, out);
            }
            Event::Synced => self.synced = true,
            Event::Claimed { partition, revision } => self.claim_answered(partition, revision, out),
            Event::Doubted { partition, epoch } => {
                let held = self.partitions.get_mut(partition as usize);
                let held = held.and_then(|one| one.held.as_mut());
                if let Some(held) = held.filter(|held| held.epoch == epoch) {
                    held.sure = false;
                    self.todo.insert(partition);
                }
            }
            Event::WatchLost => {
                (self.synced, self.is_stored) = (false, false);
                self.seen_own = None;
                out.push(Action::Resync);
            }
            Event::Leave => {
                self.leaving = true;
                self.plain_beats = self.beats;
                self.next_beat = now;
                self.members_changed = true;
            }
            Event::Released { partition } => {
                if let Some(one) = self.partitions.get_mut(partition as usize) {
                    if one.held.is_some_and(|held| held.losing) {
                        one.held = None;
                        self.losing -= 1;
                        self.todo.insert(partition);
                    }
                }
            }
        }
        if self.phase == Phase::Beating && self.synced && !self.lapsed {
            self.pump(out);
        }
    }

    /// The worker's lease has expired: it must claim again whatever it holds, or is claiming.
    fn lapse(&mut self) {
        self.lapsed = true;
        for (partition, one) in (0..).zip(&mut self.partitions) {
            if let Some(held) = &mut one.held {
                held.sure = false;
                self.todo.insert(partition);
            }
            if let Busy::Claiming { sure } = &mut one.busy {
                *sure = false;
            }
        }
    }

    fn tick(&mut self, now: Duration, out: &mut Vec<Action>) {
        if self.phase == Phase::Waiting && self.synced {
            let at_once = self.own_revision == 0 && !self.anew;
            if at_once || now >= self.own_since + self.lease {
                self.phase = Phase::Beating;
            }
        }
        if self.phase != Phase::Beating {
            return;
        }
        if self.beat_under_way.is_none() && now >= self.next_beat {
            self.beats += 1;
            self.beat_under_way = Some(now);
            self.sent.push_back((self.beats, now));
            if self.sent.len() > REMEMBERED {
                self.sent.pop_front();
            }
            // A complete watch without an own beat: it has expired.
            let is_gone = self.synced && !self.is_stored;
            out.push(Action::SendBeat {
                expected: if is_gone { 0 } else { self.own_revision },
                beat: self.beats,
                leaving: self.leaving,
                sent_at: now,
            });
        }
        self.todo.append(&mut self.refused);
    }

    fn beat_answered(&mut self, sent_at: Duration, next: Duration) {
        if self.beat_under_way == Some(sent_at) {
            self.beat_under_way = None;
            self.next_beat = next.min(sent_at + self.lease / 4).max(sent_at + self.lease / 16);
        }
    }

    fn watched_own(&mut self, now: Duration, inc: u64, beat: u64, rev: u64, out: &mut Vec<Action>) {
        self.is_stored = true;
        if inc != self.incarnation {
            if rev <= self.own_revision {
                return;
            }
            let first = self.own_revision == 0;
            self.own_revision = rev;
            // The beat that the first watch shows may be of a dead predecessor.
            if self.phase == Phase::Waiting && first {
                self.own_since = now;
            } else {
                self.phase = Phase::Ended;
                out.push(Action::NameTaken);
            }
            return;
        }
        self.own_revision = self.own_revision.max(rev);
        let Some(&(_, sent_at)) = self.sent.iter().find(|sent| sent.0 == beat) else {
            return;
        };
        let alive = self.seen_own.is_some_and(|seen| now <= seen + self.lease / 2);
        self.seen_own = Some(now);
        self.seen_through = self.seen_through.max(sent_at);
        for peer in self.peers.values_mut().filter(|peer| !peer.dead) {
            if !alive && !self.bugs.wait_not_anew {
                peer.since = now;
            } else if sent_at >= peer.since + self.lease {
                peer.dead = true;
                self.members_changed = true;
            }
        }
        let names =
            |name: &String| self.partitions.iter().any(|it| it.owner.as_ref() == Some(name));
        let is_over = |peer: &Peer| peer.dead && now >= peer.since + beat_life(self.lease) * 2;
        self.peers.retain(|name, peer| !is_over(peer) || names(name));
        if self.members_changed {
            self.elect();
        }
    }

    fn watched_peer(&mut self, now: Duration, name: String, inc: u64, leaving: bool, rev: u64) {
        let (hash, old) = (hash_of(&name), self.peers.get(&name));
        if old.is_none_or(|old| rev > old.revision) {
            let same = |old: &Peer| old.incarnation == inc && old.leaving == leaving && !old.dead;
            self.members_changed |= !old.is_some_and(same);
            let peer =
                Peer { hash, incarnation: inc, revision: rev, leaving, dead: false, since: now };
            self.peers.insert(name, peer);
        }
    }

    /// Finds which partitions are this worker's. It costs partitions times members.
    fn elect(&mut self) {
        self.members_changed = false;
        let own = hash_of(&self.name);
        let others: Vec<(u64, &String)> = (self.peers.iter())
            .filter(|(_, peer)| !peer.dead && !peer.leaving)
            .map(|(name, peer)| (peer.hash, name))
            .collect();
        for (partition, one) in (0..).zip(&mut self.partitions) {
            let mine = (weight(own, partition), &self.name);
            one.mine = !self.leaving
                && others.iter().all(|&(hash, name)| (weight(hash, partition), name) < mine);
            self.todo.insert(partition);
        }
    }
}

/// FNV-1a: every worker finds the same hash of a name.
pub(crate) fn hash_of(name: impl AsRef<[u8]>) -> u64 {
    name.as_ref().iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The rendezvous weight of a worker for a partition: the end of splitmix64.
fn weight(worker: u64, partition: u32) -> u64 {
    let mut x = worker ^ u64::from(partition).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
