//! Partitions with one owner each: what users see of [`crate::ownership`].
//!
//! A set of partitions has two streams. The metadata of `APP+SET` has the number of partitions and
//! the lease. It stores one message for each subject: each partition's record
//! (`APP.partitions.SET.own.P`: its owner) and what the owners have written (`.data.P.KEY`).
//! `APP+SET+beats` stores the latest beat of each worker (`.beat.WORKER`).
//!
//! A record's stream sequence is the owner's epoch, and its fence: the server takes an owner's
//! write only while the record still has that sequence. All that earlier owners have written has a
//! lower sequence, so an owner that has read as far as its own record has read all.

mod driver;
mod held;

use crate::base::{debug, lock, setters, stats, Task, DAY};
use crate::ownership::{Event, Ownership};
use crate::{clock, Loss, Nats, NatsError};
use async_nats::jetstream::consumer::pull::{Config as Consumer, Stream as Messages};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config as StreamConfig, StorageType, Stream};
use async_nats::jetstream::ErrorCode;
use driver::{Driver, Told};
pub use held::Held;
pub(crate) use held::Numbered;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, Semaphore};

/// The most records that [`Held::write`] takes: the server's limit of a batch.
pub const MOST_RECORDS: usize = 1000;
/// The batches that a worker has under way in one set. A server takes 50 of a stream at a time.
const BATCHES: usize = 8;
/// The pause before what was not answered, or found too many batches, is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The latest version of records and beats that this crate reads. Without a version it is 1.
pub(crate) const READS: u32 = 1;
const VERSION: &str = "Expiry-Version";
/// The headers of a record and of a beat.
const OWNER: &str = "Expiry-Owner";

/// A set of partitions, and how a worker takes part in it.
///
/// | setting | default |
/// |---|---|
/// | [`lease`](Self::lease) | 10 s |
/// | [`replicas`](Self::replicas) | 3 |
#[derive(Debug, Clone)]
#[must_use = "a set is joined by `join`"]
pub struct PartitionSet {
    pub(crate) nats: Nats,
    pub(crate) set: String,
    pub(crate) count: u32,
    pub(crate) lease: Duration,
    /// The timeout of the sessions that the set keeps.
    pub(crate) timeout: Option<Duration>,
    pub(crate) replicas: usize,
}

impl Nats {
    /// A set of `count` partitions, 1 to 1,024, which the workers that join it share out. The first
    /// worker that joins creates its streams; the number of partitions never changes.
    ///
    /// The name takes 1 to 64 of `[A-Za-z0-9_-]`.
    pub fn partitions(&self, set: &str, count: u32) -> PartitionSet {
        PartitionSet {
            nats: self.clone(),
            set: set.to_string(),
            count,
            lease: Duration::from_secs(10),
            timeout: None,
            replicas: 3,
        }
    }

    /// Opens a stream, and creates it if it does not exist.
    pub(crate) async fn open_stream(&self, config: StreamConfig) -> Result<Stream, NatsError> {
        use async_nats::jetstream::context::CreateStreamErrorKind as Kind;
        const WHAT: &str = "create a stream with as many brokers as `replicas` says";
        self.context().get_or_create_stream(config).await.map_err(|error| match error.kind() {
            Kind::TimedOut | Kind::JetStreamUnavailable | Kind::Response => self.unanswered(WHAT),
            _ => NatsError::refused(WHAT, &error),
        })
    }
}

/// What happens to a worker's partitions.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// The worker owns the partition. Where it owned it already, it has a new epoch: its lease had
    /// run out, and no other worker has owned the partition in between.
    Gained(Held),
    /// Another worker is to have the partition. The worker finishes what it does there, and then
    /// calls [`Partitions::release`].
    Losing(u32),
    /// Another worker has the partition, or may have it.
    Lost(u32, Loss),
    /// The worker owns nothing any more, and will not: another worker uses its name.
    Ended(NatsError),
}

stats! { counted
    /// Counts of a worker's part in a set, since it joined.
    PartitionStats as "expiry_nats_partitions_"
    gauges {
        /// The partitions that the worker may act for.
        held: usize,
    }
    counters {
        /// Beats that the brokers took.
        beats,
        /// Beats, claims and releases that were refused or had no answer, and attempts to make
        /// deleted streams again.
        failures,
        /// Claims and releases that the worker sent.
        claims,
        /// How often the worker began to watch the set anew.
        watches,
    }
}

setters! { PartitionSet
    /// The time, a second to a day, after which the others take a silent worker for dead. A new
    /// owner comes within two leases. A worker sends its beat four times in a lease. The set keeps
    /// the lease that it was created with.
    lease(lease: Duration) => lease = lease;
    /// The number of brokers, 1, 3 or 5, that store the set. It counts when the set is created.
    replicas(replicas: usize) => replicas = replicas;
}

impl PartitionSet {
    /// Joins the set. Creates it if it does not exist. Returns when the brokers have taken the
    /// worker's first beat: at once, or after a lease where a worker of this name was there before.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: among others `Setting`, for the lease, the replicas or the number of
    /// partitions; `OtherTerms`; `TooNew`; `NameTaken`.
    pub async fn join(self) -> Result<Partitions, NatsError> {
        NatsError::name("set", &self.set)?;
        self.join_any().await
    }

    /// `join` with any name: one with a `+` is no set of a user's.
    pub(crate) async fn join_any(self) -> Result<Partitions, NatsError> {
        let leases = Duration::from_secs(1)..=DAY;
        NatsError::within("the lease of partitions", self.lease, leases, "1 s to a day")?;
        NatsError::within("the number of partitions", self.count, 1..=1024, "1 to 1024")?;
        NatsError::replicas(self.replicas)?;
        let set = &self;
        let streams = set.nats.patiently(|| set.open()).await?;
        let (tell, told) = mpsc::unbounded_channel();
        let (change, changes) = mpsc::unbounded_channel();
        let (joined, join) = oneshot::channel();
        let shared = Arc::new(Shared {
            machine: Mutex::new(self.machine(false)),
            writing: (0..self.count).map(|_| tokio::sync::Mutex::new(())).collect(),
            batches: Semaphore::new(BATCHES),
            set: self,
            counts: Counts::default(),
            tell,
        });
        let driver = Driver {
            shared: shared.clone(),
            streams,
            changes: change,
            joined: Some(joined),
            watch: 0,
            watching: None,
            leaving: false,
            ended: false,
        };
        let task = Task::new(driver.run(told));
        let partitions = Partitions { shared: shared.clone(), changes, _task: task };
        let wait = shared.set.lease * 2 + shared.set.nats.request_timeout();
        match tokio::time::timeout(wait, join).await {
            Ok(Ok(Ok(()))) => Ok(partitions),
            Ok(Ok(Err(error))) => Err(error),
            _ => Err(NatsError::Unanswered { what: "join a set of partitions", after: wait }),
        }
    }

    fn machine(&self, anew: bool) -> Ownership {
        Ownership::new(self.nats.worker(), self.nats.random(), self.count, self.lease, anew)
    }

    fn subject(&self, rest: impl fmt::Display) -> String {
        format!("{}.partitions.{}.{rest}", self.nats.app(), self.set)
    }

    fn record(&self, partition: impl fmt::Display) -> String {
        self.subject(format_args!("own.{partition}"))
    }

    fn stream(&self) -> String {
        format!("{}+{}", self.nats.app(), self.set)
    }

    fn too_new(&self, found: u32) -> NatsError {
        NatsError::TooNew { set: self.set.clone(), found, reads: READS }
    }

    /// What all workers of the set have to name alike: the stream's metadata has it.
    fn terms(&self) -> impl Iterator<Item = (&'static str, String)> {
        let timeout = self.timeout.map(|time| ("timeout", format!("{time:?}")));
        let lease = ("lease", format!("{:?}", self.lease));
        [("partitions", self.count.to_string()), lease].into_iter().chain(timeout)
    }

    /// The two streams, created where they do not exist. Checks the terms.
    async fn open(&self) -> Result<[Stream; 2], NatsError> {
        let config = |name: String, subjects: &[&str]| StreamConfig {
            name,
            subjects: subjects.iter().map(|rest| self.subject(rest)).collect(),
            // A group in memory whose majority restarted waits for its last broker.
            storage: StorageType::File,
            num_replicas: self.replicas,
            max_messages_per_subject: 1,
            allow_atomic_publish: true,
            allow_message_ttl: true,
            ..StreamConfig::default()
        };
        let mut data = config(self.stream(), &["own.*", "data.>"]);
        data.metadata = self.terms().map(|(what, asked)| (term(what), asked)).collect();
        let beats = config(format!("{}+beats", self.stream()), &["beat.*"]);
        let streams = [self.nats.open_stream(data).await?, self.nats.open_stream(beats).await?];
        let stored = &streams[0].cached_info().config.metadata;
        for (what, asked) in self.terms() {
            let found = stored.get(&term(what)).cloned().unwrap_or_default();
            if found != asked {
                return Err(NatsError::OtherTerms { set: self.set.clone(), what, found, asked });
            }
        }
        Ok(streams)
    }
}

/// The name of one of the terms in the metadata.
fn term(what: &str) -> String {
    format!("expiry-{what}")
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(why)
        if why.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Reads the last message of each subject, in the order of the stream, and then what follows.
/// Returns also how many are there. None: the brokers failed, or the consumer's broker has died.
async fn last_of_each<I>(
    stream: &Stream<I>,
    subjects: Vec<String>,
    heartbeat: Duration,
) -> Option<(Messages, u64)> {
    let config = Consumer {
        deliver_policy: DeliverPolicy::LastPerSubject,
        ack_policy: AckPolicy::None,
        filter_subjects: subjects,
        inactive_threshold: Duration::from_secs(30),
        num_replicas: 1,
        memory_storage: true,
        ..Consumer::default()
    };
    let created = tokio::time::timeout(heartbeat, stream.create_consumer(config));
    let consumer = created.await.ok()?.ok()?;
    let messages = consumer.stream().heartbeat(heartbeat).expires(heartbeat * 4).messages();
    Some((messages.await.ok()?, consumer.cached_info().num_pending))
}

struct Shared {
    set: PartitionSet,
    machine: Mutex<Ownership>,
    /// One write of a partition is under way at a time.
    writing: Box<[tokio::sync::Mutex<()>]>,
    batches: Semaphore,
    counts: Counts,
    tell: mpsc::UnboundedSender<Told>,
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Ownership> {
        lock(&self.machine)
    }
}

/// A worker's part in a set of partitions. When it is dropped, the worker acts for no partition any
/// more, and the others take its partitions after a lease; [`leave`](Self::leave) hands them over
/// at once.
pub struct Partitions {
    shared: Arc<Shared>,
    changes: mpsc::UnboundedReceiver<Change>,
    _task: Task,
}

debug!(Partitions, |it| "Partitions({:?}, {:?})", it.shared.set, it.stats());

impl Partitions {
    /// The next change. It returns none after [`Change::Ended`], and after [`leave`](Self::leave).
    /// Nothing is lost when its future is dropped.
    pub async fn next(&mut self) -> Option<Change> {
        self.changes.recv().await
    }

    /// Lets go of a partition, after [`Change::Losing`]. Nothing happens at any other time.
    pub fn release(&self, partition: u32) {
        // An error says that this worker has ended.
        let _ = self.shared.tell.send(Told::Asked(Event::Released { partition }));
    }

    /// Gives up all partitions: `next` says [`Change::Losing`] for each, and returns none when all
    /// have been released and the brokers know. Without the brokers that may take until they are
    /// back; the partitions go to others after a lease in any case.
    pub fn leave(&self) {
        let _ = self.shared.tell.send(Told::Asked(Event::Leave));
    }

    /// Counts, without asking a broker.
    #[must_use]
    pub fn stats(&self) -> PartitionStats {
        let (machine, now) = (self.shared.machine(), clock::now());
        let held = (0..self.shared.set.count).filter(|p| machine.may_act(*p, now).is_some());
        self.shared.counts.snapshot(held.count())
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        self.shared.machine().abandon();
    }
}
