//! Leader election: a lease with one key.

use super::{Lease, LeaseSet, Leases, SHORTEST};
use crate::base::{setters, DAY};
use crate::{Nats, NatsError};
use std::time::Duration;

/// An election, and how a process takes part in it.
#[derive(Debug, Clone)]
#[must_use = "an election is joined by `join`"]
pub struct Election {
    set: LeaseSet,
    time: Duration,
}

impl Nats {
    /// An election: of the processes that join it, at most one leads at a time. The name takes 1 to
    /// 64 of `[A-Za-z0-9_-]`. `nats/examples/leader.rs` is a whole program.
    ///
    /// ```no_run
    /// # async fn run(nats: expiry_nats::Nats) -> Result<(), expiry_nats::NatsError> {
    /// let leader = nats.leader("jobs").join().await?;
    /// loop {
    ///     let lease = leader.campaign().await?;
    ///     tokio::select! {
    ///         () = lead(lease.token()) => lease.release().await?,
    ///         _ = lease.lost() => {} // another process may lead now
    ///     }
    /// }
    /// # }
    /// # async fn lead(_token: u64) {}
    /// ```
    pub fn leader(&self, name: &str) -> Election {
        Election { set: self.lease_set(name, "leader", 1), time: Duration::from_secs(16) }
    }
}

setters! { Election
    /// How long a dead leader's place stays taken: 8 s to a day, 16 s by default. It stays taken up
    /// to 3/8 longer where the leader's process owned the election's partition too. The partition's
    /// lease is an eighth of this time. All processes have to name the same.
    time(time: Duration) => time = time;
    /// The number of brokers, 1, 3 or 5, that store the election. It counts when that is created.
    replicas(replicas: usize) => set.set.replicas = replicas;
}

impl Election {
    /// Takes part, as [`LeaseSet::join`] does.
    ///
    /// # Errors
    ///
    /// As [`LeaseSet::join`].
    pub async fn join(self) -> Result<Leader, NatsError> {
        let times = Duration::from_secs(1) * SHORTEST..=DAY;
        NatsError::within("the time of an election", self.time, times, "8 s to a day")?;
        let leases = self.set.partition_lease(self.time / SHORTEST).join().await?;
        Ok(Leader { leases, time: self.time })
    }
}

/// A process's part in an election.
#[derive(Debug, Clone)]
pub struct Leader {
    leases: Leases,
    time: Duration,
}

impl Leader {
    /// Waits until this process leads, also while no broker answers. It leads until the lease is
    /// released, dropped or [lost](Lease::lost).
    ///
    /// # Errors
    ///
    /// As [`Leases::acquire`], without [`Unanswered`](NatsError::Unanswered).
    pub async fn campaign(&self) -> Result<Lease, NatsError> {
        loop {
            match self.leases.acquire("leader", self.time).await {
                Ok(Some(lease)) => return Ok(lease),
                Ok(None) | Err(NatsError::Unanswered { .. }) => {}
                Err(why) => return Err(why),
            }
            tokio::time::sleep(self.time / SHORTEST / 2).await;
        }
    }

    /// Hands the election's partition over, as [`Leases::leave`] does.
    pub async fn leave(&self) {
        self.leases.leave().await;
    }
}
