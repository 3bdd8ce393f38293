//! Leases with fencing tokens, which any number of processes share.
//!
//! A lease set has a set of partitions of its own. Each process that joins may come to own some of
//! them: `keep` answers for those. The owner of a key's partition grants the key, in a record that
//! the brokers store (`owner`). A process renews what it holds in batches (`holder`).

mod holder;
mod leader;
mod owner;
#[cfg(test)]
#[path = "../tests/unit/leases.rs"]
mod tests;
mod wire;

use crate::base::{debug, lock, setters, Task, DAY};
use crate::keep::{self, Joined, Served};
use crate::partitions::check_key;
use crate::{clock, Nats, NatsError, PartitionSet};
pub use leader::{Election, Leader};

use holder::{Event, Holder, Renew};
use owner::Owner;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::{Ask, Grant, Renewal, Said};

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
    ///         () = lease.lost() => {} // another process may run it now
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
        let joined = keep::join::<Owner<_>>(set, kind, &name, ()).await?;
        let holder = Mutex::new(Holder::new());
        let shared = Arc::new(Shared { served: joined.served.clone(), holder });
        let due = |shared: &Shared| shared.on(Event::Tick);
        let renew = |shared: Arc<Shared>, renew| async move { shared.renew(renew).await };
        let task = Task::new(keep::each_tick(joined.served.lease, shared.clone(), due, renew));
        Ok(Leases(Arc::new(Inner { shared, runtime: Handle::current(), joined, _task: task })))
    }
}

struct Shared {
    served: Arc<Served>,
    /// The sender of a lost lease is dropped, which wakes those that wait in `lost`.
    holder: Mutex<Holder<watch::Sender<()>>>,
}

impl Shared {
    fn holder(&self) -> MutexGuard<'_, Holder<watch::Sender<()>>> {
        lock(&self.holder)
    }

    /// Lets the machine act. What it lost is dropped after the lock.
    fn with<T>(&self, act: impl FnOnce(&mut Holder<watch::Sender<()>>) -> T) -> T {
        let mut holder = self.holder();
        let result = act(&mut holder);
        let lost = std::mem::take(&mut holder.lost);
        drop(holder);
        drop(lost);
        result
    }

    fn on(&self, event: Event) -> Vec<Renew> {
        let mut out = Vec::new();
        self.with(|holder| holder.on(clock::now(), event, &mut out));
        out
    }

    async fn renew(&self, Renew { partition, sent_at, limit, leases }: Renew) {
        let ask = Ask::Renew(Renewal { leases });
        let tokens = match self.served.ask(partition, ask, limit).await {
            Some(Said::Renewed(tokens)) => Some(tokens),
            _ => None,
        };
        self.on(Event::Answered { partition, sent_at, tokens });
    }

    async fn free(&self, partition: u32, grant: Grant) -> Result<(), NatsError> {
        // After its time the lease ends in any case.
        let (patience, ask) = (grant.time(), Ask::Release(grant));
        let fits = |said, _| matches!(said, Said::Released(_)).then_some(());
        self.served.ask_until("release a lease", patience, (partition, ask), fits).await
    }
}

struct Inner {
    shared: Arc<Shared>,
    runtime: Handle,
    joined: Joined,
    _task: Task,
}

/// A process's part in a set of leases. A clone is the same. When the last clone and the last
/// [`Lease`] are dropped, the process hands its partitions over in the background.
#[derive(Clone)]
pub struct Leases(Arc<Inner>);

debug!(Leases, |it| "Leases({}, {:?})", it.0.shared.served.prefix, it.stats());

/// Counts of a process's part in a set of leases, since it joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// The leases that the process holds.
    pub held: usize,
    /// The partitions that it owns.
    pub partitions: usize,
    /// Requests, answers and records that did not parse. The process dropped them.
    pub malformed: u64,
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
        let served = &*self.0.shared.served;
        let (key, least) = (key.as_ref().to_vec(), served.lease * SHORTEST);
        check_key(&key)?;
        let needed = "8 times the partitions' lease, to a day";
        NatsError::within("the time of a lease", time, least..=DAY, needed)?;
        if let Some(why) = served.ended.get() {
            return Err(why.clone());
        }
        let partition = (crate::ownership::hash_of(&key) % u64::from(served.count)) as u32;
        let id = served.nats.random();
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let grant = Grant { key, id, millis, ..Grant::default() };
        let (_, lost) = watch::channel(());
        // Dropped, it frees what the call may have got.
        let mut lease = Lease { inner: self.0.clone(), partition, grant, token: 0, lost };
        let patience = served.patience();
        let fits = |said, sent_at| match said {
            Said::Granted(token) => Some((token, sent_at)),
            _ => None,
        };
        loop {
            let ask = (partition, Ask::Acquire(lease.grant.clone()));
            let shared = &self.0.shared;
            let (token, sent_at) = served.ask_until("acquire a lease", patience, ask, fits).await?;
            if token == 0 {
                lease.grant.id = 0; // there is nothing to free
                return Ok(None);
            }
            let (value, lost) = watch::channel(());
            (lease.token, lease.lost) = (token, lost);
            let (at, key, time) = ((partition, token), lease.grant.key.clone(), lease.grant.time());
            let mut holder = shared.holder();
            if holder.granted(clock::now(), at, key, time, sent_at, value) {
                drop(holder);
                return Ok(Some(lease));
            }
        }
    }

    /// Hands the process's partitions over to the others, for two partition leases at most. The
    /// process may go on to acquire leases. They are renewed while it runs.
    pub async fn leave(&self) {
        self.0.joined.leave().await;
    }

    /// Counts, without asking a broker.
    #[must_use]
    pub fn stats(&self) -> LeaseStats {
        let Shared { served, .. } = &*self.0.shared;
        LeaseStats {
            held: self.0.shared.holder().len(),
            partitions: served.partitions.load(Ordering::Relaxed),
            malformed: served.malformed.load(Ordering::Relaxed),
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
    inner: Arc<Inner>,
    partition: u32,
    grant: Grant,
    token: u64,
    lost: watch::Receiver<()>,
}

debug!(
    Lease,
    |it| "Lease({}, token {}, {:?} left)",
    it.grant.key.escape_ascii(),
    it.token,
    it.valid_for()
);

impl Lease {
    /// The key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.grant.key
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
        let holder = self.inner.shared.holder();
        holder.valid_for(clock::now(), (self.partition, self.token))
    }

    /// Returns when the lease is not valid any more.
    pub async fn lost(&self) {
        let mut lost = self.lost.clone();
        loop {
            let left = self.valid_for();
            if left.is_zero() {
                return;
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
    pub async fn release(mut self) -> Result<(), NatsError> {
        let Some(freed) = self.free() else { return Ok(()) };
        let gone = || self.inner.shared.served.nats.unanswered("release a lease");
        freed.await.unwrap_or_else(|_| Err(gone()))
    }

    fn free(&mut self) -> Option<JoinHandle<Result<(), NatsError>>> {
        let (partition, grant) = (self.partition, std::mem::take(&mut self.grant));
        let shared = self.inner.shared.clone();
        shared.with(|holder| holder.forget((partition, self.token)));
        let is_some = grant.id != 0;
        let free = async move { shared.free(partition, grant).await };
        is_some.then(|| self.inner.runtime.spawn(free))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.free();
    }
}
