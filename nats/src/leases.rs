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

use crate::keep::{self, Joined, Served};
use crate::partitions::LONGEST_KEY;
use crate::{clock, names, Nats, NatsError, PartitionSet};
pub use leader::{Election, Leader};

use holder::{Event, Holder, Renew};
use owner::Owner;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use wire::{Ask, Grant, Renewal, Said};

/// The longest time of a lease.
const LONGEST_TIME: Duration = Duration::from_secs(24 * 3600);
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

impl LeaseSet {
    /// How soon a dead owner of a partition is replaced: within two of these. It is a second or
    /// more, and all processes of a set have to name the same. The time of each lease is at least 8
    /// times this.
    pub fn partition_lease(mut self, lease: Duration) -> Self {
        self.set = self.set.lease(lease);
        self
    }

    /// The number of brokers, 1, 3 or 5, that store the set. It counts when the set is created.
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.set = self.set.replicas(replicas);
        self
    }

    /// Joins the set, and creates it if it does not exist.
    ///
    /// # Errors
    ///
    /// As [`PartitionSet::join`].
    pub async fn join(self) -> Result<Leases, NatsError> {
        names::check("set of leases", &self.name)?;
        let LeaseSet { name, kind, set } = self;
        let joined = keep::join::<Owner<_>>(set, kind, &name, ()).await?;
        let holder = Mutex::new(Holder::new());
        let shared = Arc::new(Shared { served: joined.served.clone(), holder });
        let (frees, freed) = mpsc::unbounded_channel();
        tokio::spawn(hold(shared.clone(), freed));
        Ok(Leases(Arc::new(Inner { shared, frees, joined })))
    }
}

struct Shared {
    served: Arc<Served>,
    /// The sender of a lost lease is dropped, which wakes those that wait in `lost`.
    holder: Mutex<Holder<watch::Sender<()>>>,
}

/// A lease, or a call that may have become one, that the process does not want any more.
struct Free {
    partition: u32,
    grant: Grant,
    answered: Option<oneshot::Sender<Result<(), NatsError>>>,
}

impl Shared {
    /// The machine does not panic between two states.
    fn holder(&self) -> MutexGuard<'_, Holder<watch::Sender<()>>> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
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
        let event = match self.served.ask(partition, ask, limit).await {
            Some(Said::Renewed(tokens)) => {
                Event::Renewed { partition, sent_at, kept: tokens.kept, gone: tokens.gone }
            }
            _ => Event::Unanswered { partition, sent_at },
        };
        self.on(event);
    }

    async fn free(&self, Free { partition, grant, answered }: Free) {
        // After its time the lease ends in any case.
        let (patience, ask) = (grant.time(), Ask::Release(grant));
        let fits = |said, _| matches!(said, Said::Released(_)).then_some(());
        let freed = self.served.ask_until("release a lease", patience, (partition, ask), fits);
        let freed = freed.await;
        if let Some(answered) = answered {
            let _ = answered.send(freed);
        }
    }
}

/// Renews the process's leases, and frees those that it does not want any more.
async fn hold(shared: Arc<Shared>, mut frees: mpsc::UnboundedReceiver<Free>) {
    let mut ticks = tokio::time::interval(shared.served.lease / 16);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            free = frees.recv() => {
                let (Some(free), shared) = (free, shared.clone()) else {
                    return;
                };
                tokio::spawn(async move { shared.free(free).await });
            }
            _ = ticks.tick() => for renew in shared.on(Event::Tick) {
                let shared = shared.clone();
                tokio::spawn(async move { shared.renew(renew).await });
            }
        }
    }
}

struct Inner {
    shared: Arc<Shared>,
    frees: mpsc::UnboundedSender<Free>,
    joined: Joined,
}

/// A process's part in a set of leases. A clone is the same. When the last clone and the last
/// [`Lease`] are dropped, the process hands its partitions over in the background.
#[derive(Clone)]
pub struct Leases(Arc<Inner>);

impl fmt::Debug for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Leases({}, {:?})", self.0.shared.served.prefix, self.stats())
    }
}

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
        let setting = |what, found, needed| Err(NatsError::Setting { what, found, needed });
        if !is_key(&key) {
            return setting("the length of a key", key.len().to_string(), "1 to 256 bytes");
        }
        if !(least..=LONGEST_TIME).contains(&time) {
            let needed = "8 times the partitions' lease, to a day";
            return setting("the time of a lease", format!("{time:?}"), needed);
        }
        if let Some(why) = served.ended.get() {
            return Err(why.clone());
        }
        let partition = (crate::ownership::hash_of(&key) % u64::from(served.count)) as u32;
        let id = served.random();
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

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, left) = (self.grant.key.escape_ascii(), self.valid_for());
        write!(f, "Lease({key}, token {}, {left:?} left)", self.token)
    }
}

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
        let (answer, answered) = oneshot::channel();
        self.free(Some(answer));
        let gone = || self.inner.shared.served.nats.unanswered("release a lease");
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn free(&mut self, answered: Option<oneshot::Sender<Result<(), NatsError>>>) {
        let (partition, grant) = (self.partition, std::mem::take(&mut self.grant));
        self.inner.shared.with(|holder| holder.forget((partition, self.token)));
        if grant.id != 0 {
            // An error says that the runtime has ended.
            let _ = self.inner.frees.send(Free { partition, grant, answered });
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.free(None);
    }
}

fn is_key(key: &[u8]) -> bool {
    (1..=LONGEST_KEY).contains(&key.len())
}
