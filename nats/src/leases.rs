//! Leases with fencing tokens, which any number of processes share.
//!
//! A lease is an entry of `keep`, in the partition that the hash of its key names. A process
//! renews what it holds (`holder`).

mod holder;
mod leader;
#[cfg(test)]
#[path = "../tests/unit/leases.rs"]
mod tests;

use crate::base::{debug, setters, stats, DAY};
use crate::keep::{self, Answer, Entry, Member, Terms};
use crate::message::check_key;
use crate::{clock, Loss, Nats, NatsError, PartitionSet};
use holder::Holder;
pub use leader::{Election, Leader};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The shortest time of a lease, in leases of the partitions. A third of the time may have passed
/// since the last renewal when an owner dies. Its successor comes within 2 partition leases. The
/// rest of the holder's three quarters is for the successor's reading and for the next renewal.
const SHORTEST: u32 = 8;

/// A set of leases, and how a process takes part in it.
///
/// | setting | default |
/// |---|---|
/// | [`partition_lease`](Self::partition_lease) | 2 s |
/// | [`replicas`](Self::replicas) | 3 |
#[derive(Debug, Clone)]
#[must_use = "a set is joined by `join`"]
pub struct LeaseSet {
    name: String,
    /// The second word of the set's subjects.
    kind: &'static str,
    /// The partitions, in a set whose name has a `+`.
    set: PartitionSet,
}

impl Nats {
    /// A set of leases, whose keys are spread over `partitions`, 1 to 1,024. The number never
    /// changes. More partitions than processes let each process own some.
    ///
    /// The name takes 1 to 64 of `[A-Za-z0-9_-]`. It may be the name of a set of partitions too.
    ///
    /// ```no_run
    /// # async fn job(nats: expiry_nats::Nats) -> Result<(), expiry_nats::NatsError> {
    /// use std::time::Duration;
    ///
    /// let leases = nats.leases("jobs", 16).join().await?;
    /// if let Some(lease) = leases.acquire("nightly", Duration::from_secs(20)).await? {
    ///     tokio::select! {
    ///         () = run(lease.token()) => lease.release().await?,
    ///         _ = lease.lost() => {} // another process may run it now
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// # async fn run(_token: u64) {}
    /// ```
    pub fn leases(&self, name: &str, partitions: u32) -> LeaseSet {
        self.lease_set(name, "leases", partitions)
    }

    fn lease_set(&self, name: &str, kind: &'static str, partitions: u32) -> LeaseSet {
        let set = self.partitions(&format!("{name}+{kind}"), partitions);
        LeaseSet { name: name.to_string(), kind, set: set.lease(Duration::from_secs(2)) }
    }
}

setters! { LeaseSet
    /// How soon a dead owner of a partition is replaced: within two of these. It is a second or
    /// more, and all processes of a set have to name the same. The time of each lease is at least 8
    /// times this.
    partition_lease(lease: Duration) => set.lease = lease;
    /// The number of brokers, 1, 3 or 5, that store the set. It counts when the set is created.
    replicas(replicas: usize) => set.replicas = replicas;
}

impl LeaseSet {
    /// Joins the set, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// As [`PartitionSet::join`].
    pub async fn join(self) -> Result<Leases, NatsError> {
        NatsError::name("set of leases", &self.name)?;
        let LeaseSet { name, kind, set } = self;
        let terms = Terms { timeout: None, report: Arc::new(|_| ()) };
        // The sender of a lost lease is dropped, which wakes those that wait in `lost`.
        let member = keep::join(set, (kind, &name), terms, Holder::new(), drop).await?;
        Ok(Leases(Arc::new(member)))
    }
}

type Joined = Member<Holder<watch::Sender<()>>>;

const ACQUIRE: &str = "acquire a lease";

async fn acquire(
    member: Arc<Joined>,
    key: Vec<u8>,
    time: Duration,
) -> Result<Option<Lease>, NatsError> {
    let id = member.served().new_id(Some(crate::ownership::hash_of(&key)));
    let (entry, (_, lost)) = (Entry::new(id, key.clone(), time), watch::channel(()));
    // Dropped, it frees what the call may have got.
    let mut lease = Lease { member: member.clone(), id: Some(id), key, time, token: 0, lost };
    loop {
        let (answer, sent_at) = member.served().begin(ACQUIRE, entry.clone()).await?;
        let Answer::Begun(token) = answer else {
            lease.id = None; // there is nothing to free
            return Ok(None);
        };
        let (value, lost) = watch::channel(());
        (lease.token, lease.lost) = (token, lost);
        let now = clock::now();
        if member.with(|holder, _| holder.granted(now, id, time, sent_at, value)) {
            return Ok(Some(lease));
        }
    }
}

/// A process's part in a set of leases. A clone is the same. When the last clone and the last
/// [`Lease`] are dropped, the process hands its partitions over in the background.
#[derive(Clone)]
pub struct Leases(Arc<Joined>);

debug!(Leases, |it| "Leases({}, {:?})", it.0.served().prefix, it.stats());

stats! {
    /// Counts of a process's part in a set of leases, since it joined.
    LeaseStats as "expiry_nats_leases_"
    gauges {
        /// The leases that the process holds.
        held: usize,
        /// The partitions that it owns.
        partitions: usize,
    }
    counters {
        /// Requests, answers and records that did not parse. The process dropped them.
        malformed,
    }
}

impl Leases {
    /// Takes the lease of a key for `time`, or returns none if another call holds it. The process
    /// renews the lease until it is released, dropped or lost. A key is 1 to 256 bytes of any kind.
    /// When the future is dropped, what it may have got is released.
    ///
    /// `time` is how long the key stays taken after its holder has died; 8 partition leases to a
    /// day. After the death of a partition's owner too the dead holders' keys stay taken for that
    /// time once more, and for a partition lease.
    ///
    /// # Errors
    ///
    /// [`Setting`](NatsError::Setting): the key or the time.
    /// [`Unanswered`](NatsError::Unanswered): the partition has had no owner that answers for 4
    /// partition leases and 4 times the request timeout. [`NameTaken`](NatsError::NameTaken).
    pub async fn acquire(
        &self,
        key: impl AsRef<[u8]>,
        time: Duration,
    ) -> Result<Option<Lease>, NatsError> {
        let served = self.0.served();
        let (key, least) = (key.as_ref().to_vec(), served.lease * SHORTEST);
        check_key(&key)?;
        let needed = "8 times `partition_lease`, which is 2 s by default, to a day";
        NatsError::within("the time of a lease", time, least..=DAY, needed)?;
        // A task: where the caller drops the call, its end cannot overtake the begin.
        let acquire = served.runtime.spawn(acquire(self.0.clone(), key, time));
        acquire.await.unwrap_or_else(|_| Err(served.nats.unanswered(ACQUIRE)))
    }

    /// Hands the process's partitions over to the others, for two partition leases at most. The
    /// process may go on to acquire leases. They are renewed while it runs.
    pub async fn leave(&self) {
        self.0.leave().await;
    }

    /// Counts, without asking a broker.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        LeaseStats {
            held: self.0.with(|holder, _| holder.len()),
            partitions: self.0.served().partitions.load(Ordering::Relaxed),
            malformed: self.0.served().malformed.load(Ordering::Relaxed),
        }
    }
}

/// A key that this process holds. When it is dropped, it is released in the background.
///
/// A holder may be suspended between a look at [`valid_for`](Self::valid_for) and what it does
/// next. So pass [`token`](Self::token) along with each write to another system, and have that
/// system refuse a token that is lower than one that it has seen. `examples/leader.rs` does so with
/// a file.
#[must_use = "a dropped lease is released"]
pub struct Lease {
    member: Arc<Joined>,
    /// `None`: it is released.
    id: Option<u64>,
    key: Vec<u8>,
    time: Duration,
    token: u64,
    lost: watch::Receiver<()>,
}

debug!(
    Lease,
    |it| "Lease({}, token {}, {:?} left)",
    it.key.escape_ascii(),
    it.token,
    it.valid_for()
);

impl Lease {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The fencing token: the stream sequence of the grant. A later holder's is higher.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// For how long the lease is valid if it is not renewed: three quarters of its time, counted
    /// from when the last renewal was sent that the owner confirmed. Suspended time counts. Once
    /// this is zero, it stays zero. No other process holds the key in that time, if the machines'
    /// monotonic clocks run at the same rate, to within a quarter. Costs a lock and a reading of
    /// the clock.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let Some(id) = self.id else { return Duration::ZERO };
        self.member.with(|holder, _| holder.valid_for(clock::now(), id))
    }

    /// Returns when the lease is not valid any more, and why:
    /// [`Expired`](Loss::Expired) or [`Unanswered`](Loss::Unanswered).
    pub async fn lost(&self) -> Loss {
        let mut lost = self.lost.clone();
        loop {
            let left = self.valid_for();
            if left.is_zero() {
                let id = self.id.unwrap_or_default(); // only a dropped lease has none
                return self.member.with(|holder, _| holder.loss(id));
            }
            tokio::select! {
                _ = lost.changed() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// Releases the lease: when this returns, the key is free.
    ///
    /// # Errors
    ///
    /// [`Unanswered`](NatsError::Unanswered): no owner has answered for the time of the lease.
    /// [`NameTaken`](NatsError::NameTaken).
    pub async fn release(mut self) -> Result<(), NatsError> {
        let Some(freed) = self.free() else { return Ok(()) };
        let gone = || self.member.served().nats.unanswered("release a lease");
        freed.await.unwrap_or_else(|_| Err(gone()))
    }

    fn free(&mut self) -> Option<JoinHandle<Result<(), NatsError>>> {
        let (id, patience) = (self.id.take()?, self.time);
        self.member.with(|holder, gone| gone.extend(holder.forget(id)));
        let served = self.member.served().clone();
        // After its time the lease ends in any case.
        let end = async move { served.end("release a lease", id, patience).await };
        Some(self.member.served().runtime.spawn(end))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.free();
    }
}
