//! Partitions with one owner each: what users see of [`crate::ownership`].
//!
//! A set of partitions has two streams. `APP+SET` stores one message for each subject: the number
//! of partitions (`APP.partitions.SET.count`), each partition's record (`.own.P`: its owner) and
//! what the owners have written (`.data.P.KEY`). `APP+SET+beats` stores the latest beat of each
//! worker (`.beat.WORKER`).
//!
//! A record's stream sequence is the owner's epoch, and its fence: the server takes an owner's
//! write only while the record still has that sequence. Everything that earlier owners have written
//! has a lower sequence than the record, so an owner that has read as far as its own record has
//! read all.

mod driver;

use crate::base::{debug, lock, setters, stats, Task, DAY};
use crate::ownership::{Event, Ownership};
use crate::{clock, Nats, NatsError};
use async_nats::jetstream::consumer::pull::{Config as Consumer, Stream as Messages};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config as StreamConfig, StorageType, Stream};
use async_nats::jetstream::{publish::PublishAck, ErrorCode};
use async_nats::HeaderMap;
use bytes::Bytes;
use driver::{Driver, Told};
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, Semaphore};

/// The largest number of records that [`Held::write`] takes, which is the server's limit of a
/// batch.
pub const MOST_RECORDS: usize = 1000;
/// The batches that a worker has under way in one set. A server takes 50 of a stream at a time.
const BATCHES: usize = 8;
/// The pause before what was not answered, or found too many batches, is tried again.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The longest key, in bytes.
const LONGEST_KEY: usize = 256;
/// The headers of a record and of a beat.
const OWNER: &str = "Expiry-Owner";
pub(crate) const INCARNATION: &str = "Expiry-Incarnation";
/// Marks the record of a key that was deleted, until the server forgets it.
const DELETED: &str = "Expiry-Deleted";
pub(crate) const EXPECTED: &str = "Nats-Expected-Last-Subject-Sequence";

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
    set: String,
    pub(crate) count: u32,
    pub(crate) lease: Duration,
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
            replicas: 3,
        }
    }

    /// Opens a stream, and creates it if it does not exist.
    pub(crate) async fn open_stream(&self, config: StreamConfig) -> Result<Stream, NatsError> {
        use async_nats::jetstream::context::CreateStreamErrorKind as Kind;
        const WHAT: &str = "create a stream";
        self.context().get_or_create_stream(config).await.map_err(|error| match error.kind() {
            Kind::TimedOut | Kind::JetStreamUnavailable | Kind::Response => self.unanswered(WHAT),
            _ => refused(WHAT, &error),
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
    Lost(u32),
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
        /// Beats, claims and releases that were refused or had no answer.
        failures,
        /// Claims and releases that the worker sent.
        claims,
        /// How often the worker began to watch the set anew.
        watches,
    }
}

setters! { PartitionSet
    /// The time, a second to a day, after which the others take a silent worker for dead. A new
    /// owner comes within two leases. A worker sends its beat four times in a lease. All workers of
    /// a set have to name the same lease.
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
    /// [`Name`](NatsError::Name); [`Setting`](NatsError::Setting): the lease, the replicas, or the
    /// number of partitions; [`OtherCount`](NatsError::OtherCount);
    /// [`NameTaken`](NatsError::NameTaken); [`Refused`](NatsError::Refused),
    /// [`Unanswered`](NatsError::Unanswered).
    pub async fn join(self) -> Result<Partitions, NatsError> {
        NatsError::name("set", &self.set)?;
        self.join_any().await
    }

    /// As `join`, with any name. One with a `+` meets no set of a user.
    pub(crate) async fn join_any(self) -> Result<Partitions, NatsError> {
        let leases = Duration::from_secs(1)..=DAY;
        NatsError::within("lease", self.lease, leases, "1 s to a day")?;
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

    /// The two streams, created where they do not exist.
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
        let data = ["own.*", "data.>", "count"];
        let data = config(self.stream(), &data);
        let beats = format!("{}+beats", self.stream());
        let beats = config(beats, &["beat.*"]);
        let streams = [self.nats.open_stream(data).await?, self.nats.open_stream(beats).await?];
        self.agree().await.map(|()| streams)
    }

    /// Stores the number of partitions, or compares it with the stored one.
    async fn agree(&self) -> Result<(), NatsError> {
        const WHAT: &str = "agree on the number of partitions";
        let subject = self.subject("count");
        let mut headers = HeaderMap::new();
        headers.insert(EXPECTED, "0");
        let count = self.count.to_string();
        let stored = self.nats.store(subject.clone(), headers, count.into()).await;
        match stored {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {}
            Err(error) => return Err(self.nats.unstored(WHAT, &error)),
        }
        let stream = self.nats.context().get_stream_no_info(self.stream()).await;
        let stream = stream.map_err(|error| refused(WHAT, &error))?;
        let found = stream.get_last_raw_message_by_subject(&subject).await;
        let found = found.map_err(|error| refused(WHAT, &error))?;
        let found = String::from_utf8_lossy(&found.payload).into_owned();
        if found == self.count.to_string() {
            return Ok(());
        }
        Err(NatsError::OtherCount { set: self.set.clone(), found, asked: self.count })
    }
}

fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(why)
        if why.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

pub(crate) fn refused(what: &'static str, why: &dyn fmt::Display) -> NatsError {
    let why = why.to_string();
    NatsError::Refused { what, why }
}

/// Reads the last message of each subject, in the order of the stream, and then what follows. The
/// number says how many are there already. None: the brokers failed.
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
    let consumer = stream.create_consumer(config).await.ok()?;
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

/// A partition that the worker owns, under one epoch. A clone is the same.
#[derive(Clone)]
pub struct Held {
    shared: Arc<Shared>,
    partition: u32,
    epoch: u64,
}

debug!(Held, |it| "Held({} of {:?}, epoch {})", it.partition, it.shared.set.set, it.epoch);

impl Held {
    /// Which partition it is, counted from 0.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// The fencing token: a later owner's is higher. Other systems that compare it refuse a late
    /// owner as the brokers do.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the worker may act as the owner. It may for three quarters of a lease after it sent
    /// its last beat that the brokers took. No other worker acts in that time, if the machines'
    /// monotonic clocks run at the same rate, to within a quarter. Costs a lock and a reading of
    /// the clock.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.shared.machine().may_act(self.partition, clock::now()) == Some(self.epoch)
    }

    /// Claims the partition again, under a new epoch, which defeats every write of this one that
    /// may still be on its way. `Gained` or `Lost` follows.
    pub(crate) fn claim_anew(&self) {
        let (partition, epoch) = (self.partition, self.epoch);
        let _ = self.shared.tell.send(Told::Asked(Event::Doubted { partition, epoch }));
    }

    pub(crate) fn nats(&self) -> &Nats {
        &self.shared.set.nats
    }

    fn late(&self) -> NatsError {
        let (partition, epoch) = (self.partition, self.epoch);
        NatsError::Late { partition, epoch }
    }

    fn data(&self, key: impl fmt::Display) -> String {
        self.shared.set.subject(format_args!("data.{}.{key}", self.partition))
    }

    /// Writes records, all or none: at most [`MOST_RECORDS`]. A record without a value is deleted.
    /// A key is 1 to 256 bytes of any kind; of equal keys the last record counts. The brokers
    /// refuse the write if a later owner has claimed the partition. One write of a partition is
    /// under way at a time, and 8 of a set; others wait. A write goes on when its future is
    /// dropped.
    ///
    /// # Errors
    ///
    /// [`Late`](NatsError::Late): another worker has claimed the partition, or may have. Nothing
    /// was written. [`Setting`](NatsError::Setting): too many records, a key or a value too long.
    /// [`Unanswered`](NatsError::Unanswered): the brokers may have taken the write or not; writing
    /// the same again is harmless. [`Refused`](NatsError::Refused).
    pub async fn write<K: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<(), NatsError> {
        self.write_numbered(records).await.map(drop)
    }

    /// As `write`. Returns the stream sequence of the last record; those of a batch are
    /// consecutive.
    pub(crate) async fn write_numbered<K: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<u64, NatsError> {
        let messages = self.messages(records)?;
        let held = self.clone();
        // A batch that is cut off would stay with the server for ten seconds, among its 50.
        let task = tokio::spawn(async move { held.store(&messages).await });
        task.await.unwrap_or_else(|error| Err(refused(WRITE, &error)))
    }

    /// Sends messages, again while the server has too many batches of other workers.
    async fn store(&self, messages: &[(String, HeaderMap, Bytes)]) -> Result<u64, NatsError> {
        let _one = self.shared.writing[self.partition as usize].lock().await;
        let _batch = self.shared.batches.acquire().await;
        let began = Instant::now();
        loop {
            if !self.may_act() {
                return Err(self.late());
            }
            match self.send(messages.to_vec()).await? {
                Some(last) => return Ok(last),
                None if began.elapsed() < self.patience() => tokio::time::sleep(PAUSE).await,
                None => return Err(refused(WRITE, &"too many batches are under way")),
            }
        }
    }

    /// How long a write or a load tries.
    fn patience(&self) -> Duration {
        self.shared.set.nats.request_timeout() * 4
    }

    /// Records as messages. The first one has the fence.
    fn messages<K: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<Vec<(String, HeaderMap, Bytes)>, NatsError> {
        let mut messages = Vec::new();
        for (key, value) in records {
            let key = token(key.as_ref())?;
            let mut headers = HeaderMap::new();
            if value.is_none() {
                headers.insert(DELETED, "1");
                headers.insert("Nats-TTL", "60s");
            }
            let value = value.unwrap_or_default();
            self.shared.set.nats.fits(&value, 512, "512 bytes less than `max_payload`")?;
            messages.push((self.data(key), headers, value));
        }
        let count = messages.len();
        NatsError::within("the number of records", count, ..=MOST_RECORDS, "1000 or fewer")?;
        if let Some((_, headers, _)) = messages.first_mut() {
            headers.insert(EXPECTED, self.epoch.to_string());
            let fence = self.shared.set.record(self.partition);
            headers.insert("Nats-Expected-Last-Subject-Sequence-Subject", fence);
        }
        Ok(messages)
    }

    /// Sends messages as one: a batch, where there are several. None: the server has dropped it,
    /// because it had too many, and nothing is stored.
    async fn send(
        &self,
        messages: Vec<(String, HeaderMap, Bytes)>,
    ) -> Result<Option<u64>, NatsError> {
        let nats = &self.shared.set.nats;
        let client = nats.client();
        let id = client.new_inbox();
        let last = messages.len();
        for (number, (subject, mut headers, payload)) in (1..).zip(messages) {
            if last > 1 {
                headers.insert("Nats-Batch-Id", id.rsplit('.').next().unwrap_or_default());
                headers.insert("Nats-Batch-Sequence", number.to_string());
            }
            if number < last {
                let sent = client.publish_with_headers(subject, headers, payload).await;
                sent.map_err(|error| refused(WRITE, &error))?;
                continue;
            }
            if last > 1 {
                headers.insert("Nats-Batch-Commit", "1");
            }
            let asked = client.request_with_headers(subject, headers, payload);
            let Ok(Ok(reply)) = tokio::time::timeout(nats.request_timeout(), asked).await else {
                return Err(nats.unanswered(WRITE));
            };
            return match serde_json::from_slice(&reply.payload) {
                Ok(Response::<PublishAck>::Ok(ack)) => Ok(Some(ack.sequence)),
                Ok(Response::Err { error }) if error.error_code() == INCOMPLETE => Ok(None),
                Ok(Response::Err { error }) if is_late(error.error_code()) => Err(self.late()),
                Ok(Response::Err { error }) => Err(refused(WRITE, &error)),
                Err(error) => Err(refused(WRITE, &error)),
            };
        }
        Ok(Some(0))
    }

    /// Reads everything that this and earlier owners have written: the key and the value of each
    /// record that is not deleted.
    ///
    /// # Errors
    ///
    /// [`Late`](NatsError::Late); [`Unanswered`](NatsError::Unanswered): the brokers have not shown
    /// all for 4 times the request timeout.
    pub async fn load(&self) -> Result<BTreeMap<Vec<u8>, Bytes>, NatsError> {
        let records = self.load_numbered().await?;
        let live = records.into_iter().filter_map(|(key, (_, value))| Some((key, value?)));
        Ok(live.collect())
    }

    /// As `load`, with the stream sequence of each record, and with those that were deleted within
    /// the last minute.
    pub(crate) async fn load_numbered(&self) -> Result<Numbered, NatsError> {
        const WHAT: &str = "read the records of a partition";
        let wait = self.patience();
        let all = async {
            loop {
                match self.read().await {
                    Some(answer) => return answer,
                    None => tokio::time::sleep(PAUSE).await,
                }
            }
        };
        tokio::time::timeout(wait, all)
            .await
            .unwrap_or(Err(NatsError::Unanswered { what: WHAT, after: wait }))
    }

    /// None: the brokers failed, and the caller reads again.
    async fn read(&self) -> Option<Result<Numbered, NatsError>> {
        let set = &self.shared.set;
        let own = set.record(self.partition);
        let prefix = self.data("");
        let subjects = vec![own.clone(), format!("{prefix}>")];
        let stream = set.nats.context().get_stream_no_info(set.stream()).await.ok()?;
        let heartbeat = Duration::from_secs(1);
        let (mut messages, _) = last_of_each(&stream, subjects, heartbeat).await?;
        let (mut records, mut fence, mut expected) = (BTreeMap::new(), false, 1);
        // The consumer may be at a broker that lags: it shows everything up to the record in time.
        while let Some(Ok(message)) = messages.next().await {
            let info = message.info().ok()?;
            if info.consumer_sequence != expected {
                return None;
            }
            expected += 1;
            if message.subject.as_str() == own {
                if info.stream_sequence != self.epoch {
                    return (info.stream_sequence > self.epoch).then(|| Err(self.late()));
                }
                fence = true;
            } else if let Some(key) = message.subject.strip_prefix(&*prefix).and_then(decoded) {
                let lives = header(&message.headers, DELETED).is_none();
                let value = lives.then(|| message.payload.clone());
                records.insert(key, (info.stream_sequence, value));
            }
            if fence && info.pending == 0 {
                return Some(Ok(records));
            }
        }
        None
    }
}

/// Records by key, with their stream sequences. None: it was deleted.
pub(crate) type Numbered = BTreeMap<Vec<u8>, (u64, Option<Bytes>)>;

const WRITE: &str = "write records of a partition";
const INCOMPLETE: ErrorCode = ErrorCode(10176);

/// The stream has another last sequence for the subject: the codes of one message and of a batch.
fn is_late(code: ErrorCode) -> bool {
    [ErrorCode::STREAM_WRONG_LAST_SEQUENCE, ErrorCode(10164)].contains(&code)
}

pub(crate) fn header<'a>(headers: &'a Option<HeaderMap>, name: &str) -> Option<&'a str> {
    headers.as_ref()?.get(name).map(|value| value.as_str())
}

/// A key as one token of a subject.
pub(crate) fn token(key: &[u8]) -> Result<String, NatsError> {
    check_key(key).map(|()| encoded(key))
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), NatsError> {
    NatsError::within("the length of a key", key.len(), 1..=LONGEST_KEY, "1 to 256 bytes")
}

/// What is not in `[A-Za-z0-9_-]` becomes `=XX`.
fn encoded(key: &[u8]) -> String {
    let mut token = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            token.push(byte.into());
        } else {
            token += &format!("={byte:02X}");
        }
    }
    token
}

pub(crate) fn decoded(token: &str) -> Option<Vec<u8>> {
    let mut bytes = token.bytes();
    let mut key = Vec::with_capacity(token.len());
    while let Some(byte) = bytes.next() {
        key.push(if byte == b'=' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            u8::try_from(digit()? * 16 + digit()?).ok()?
        } else {
            byte
        });
    }
    Some(key)
}

#[cfg(test)]
#[path = "../tests/unit/partitions.rs"]
mod tests;
