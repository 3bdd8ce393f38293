//! The partitions of a worker: what the records say, and what the worker claims and gives up.

use super::{Action, Ownership, Phase};
use std::time::Duration;

/// The largest number of writes of records under way at a time.
pub(super) const UNDER_WAY: usize = 32;

#[derive(Clone, Default)]
pub(super) struct Partition {
    pub(super) owner: Option<String>,
    pub(super) incarnation: u64,
    pub(super) revision: u64,
    pub(super) held: Option<Holding>,
    pub(super) busy: Busy,
    /// When the worker learnt of this revision.
    pub(super) seen: Duration,
    /// The rendezvous hash gives the partition to this worker.
    pub(super) mine: bool,
}

#[derive(Clone, Copy)]
pub(super) struct Holding {
    pub(super) epoch: u64,
    pub(super) losing: bool,
    /// The worker's lease has not expired since it sent the claim.
    pub(super) sure: bool,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Busy {
    #[default]
    Idle,
    Claiming {
        sure: bool,
    },
    GivingUp,
}

enum Step {
    Nothing,
    /// Wait, and look again at the next event.
    Wait,
    Claim,
    GiveUp,
    Lose,
}

impl Ownership {
    pub(super) fn record(
        &mut self,
        now: Duration,
        partition: u32,
        owner: Option<String>,
        inc: u64,
        rev: u64,
        out: &mut Vec<Action>,
    ) {
        let Some(one) = self.partitions.get_mut(partition as usize) else {
            return;
        };
        self.todo.insert(partition);
        if rev <= one.revision {
            return;
        }
        let own = owner.as_deref() == Some(&self.name) && inc == self.incarnation;
        // An owner whose beat the watch has not shown is waited for like any other.
        if let Some(name) = owner.as_ref().filter(|name| **name != self.name) {
            if !self.peers.contains_key(name) {
                self.watched_peer(now, name.clone(), inc, false, 0);
            }
        }
        let one = &mut self.partitions[partition as usize];
        (one.owner, one.incarnation, one.revision, one.seen) = (owner, inc, rev, now);
        if let Some(held) = one.held.filter(|_| !own) {
            self.losing -= usize::from(held.losing);
            one.held = None;
            out.push(Action::Lost { partition });
        }
    }

    pub(super) fn claim_answered(
        &mut self,
        partition: u32,
        revision: Option<u64>,
        out: &mut Vec<Action>,
    ) {
        let one = &mut self.partitions[partition as usize];
        let busy = std::mem::take(&mut one.busy);
        self.under_way -= 1;
        let Some(revision) = revision else {
            self.refused.insert(partition);
            return;
        };
        self.todo.insert(partition);
        // The watch may have shown a later record already.
        if revision < one.revision {
            return;
        }
        one.revision = revision;
        if busy == Busy::GivingUp {
            one.owner = None;
        } else if let Busy::Claiming { sure } = busy {
            one.owner = Some(self.name.clone());
            one.incarnation = self.incarnation;
            if sure {
                let losing = one.held.is_some_and(|held| held.losing);
                one.held = Some(Holding { epoch: revision, losing, sure });
                out.push(Action::Gained { partition, epoch: revision });
            }
        }
    }

    /// Begins what is to be done for each partition that has changed.
    pub(super) fn pump(&mut self, out: &mut Vec<Action>) {
        if self.members_changed && self.leaving {
            self.elect();
        }
        for partition in std::mem::take(&mut self.todo) {
            let one = &self.partitions[partition as usize];
            let step = match one.busy {
                Busy::Idle => self.next_step(one),
                _ => continue,
            };
            let expected = one.revision;
            let full = self.under_way >= UNDER_WAY;
            let one = &mut self.partitions[partition as usize];
            match step {
                Step::Nothing => continue,
                Step::Claim if !full => {
                    one.busy = Busy::Claiming { sure: true };
                    out.push(Action::Claim { partition, expected });
                }
                Step::GiveUp if !full => {
                    one.busy = Busy::GivingUp;
                    out.push(Action::GiveUp { partition, expected });
                }
                Step::Wait | Step::Claim | Step::GiveUp => {
                    self.todo.insert(partition);
                    continue;
                }
                Step::Lose => {
                    one.held.as_mut().expect("it is held").losing = true;
                    self.losing += 1;
                    out.push(Action::Losing { partition });
                    continue;
                }
            }
            self.under_way += 1;
        }
        let busy = self.losing + self.todo.len() + self.refused.len() + self.under_way;
        if self.leaving && self.told_leaving && busy == 0 {
            self.phase = Phase::Ended;
            out.push(Action::Left);
        }
    }

    /// What is to be done for a partition that no request is under way for.
    fn next_step(&self, one: &Partition) -> Step {
        if let Some(held) = one.held {
            // A worker gives up an eighth of the set at a time, and all of it when it leaves.
            let most = (self.partitions.len() / 8).max(1);
            return match (held.losing, one.mine) {
                (true, _) => Step::Nothing,
                (false, false) if self.leaving || self.losing < most => Step::Lose,
                _ if !held.sure || held.epoch != one.revision => Step::Claim,
                (false, false) => Step::Wait,
                (false, true) => Step::Nothing,
            };
        }
        match (&one.owner, one.mine) {
            (None, true) => Step::Claim,
            (None, false) => Step::Nothing,
            (Some(owner), true) if *owner == self.name => Step::Claim,
            (Some(owner), false) if *owner == self.name && one.incarnation == self.incarnation => {
                Step::GiveUp
            }
            (Some(_), false) => Step::Nothing,
            (Some(owner), true) => {
                let peer = self.peers.get(owner);
                let dead = peer.is_some_and(|it| it.dead || it.incarnation != one.incarnation);
                // The beats and the records are two streams. The judgement counts only once
                // the worker has seen every beat from before this record.
                match (dead, self.seen_through > one.seen) {
                    (false, _) => Step::Nothing,
                    (true, false) => Step::Wait,
                    (true, true) => Step::Claim,
                }
            }
        }
    }
}
