//! A pull consumer of a stream as the spout of a topology.
//!
//! ```text
//!  broker  --batches-->  I/O task (Custody)  --messages-->  spout, on its topology's thread
//!          <--ack, nak--                     <--outcomes--
//! ```
//!
//! One tokio task for each spout task owns the messages of that spout, see `custody.rs`. It asks
//! for no more than the window leaves room for, so both channels are bounded by the window. A task
//! has one *inlet*, a consumer, or one for each partition that it serves: see `partitioned.rs`. The
//! link between the spout and the I/O task belongs to the [`StreamSource`]: it outlives the spout.

mod batch;
mod partitioned;
mod task;

use crate::base::{debug, lock, setters, stats};
use crate::custody::{Custody, Letter};
use crate::ownership::hash_of;
use crate::{clock, Held, Nats, NatsError};
use async_nats::header::HeaderMap;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, Consumer};
use async_nats::jetstream::context::GetStreamByNameErrorKind;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::stream::ConsumerErrorKind;
use async_nats::jetstream::ErrorCode;
use expiry_topology::{Context, Failure, Next, Replay, Spout, SpoutCollector, Waker};
use futures_util::stream::SelectAll;
use partitioned::{Owned, Owner};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc as blocking, Arc, Mutex};
use std::time::Duration;
use task::{Inlet, Tag, Task};
use tokio::sync::{mpsc, watch};

/// How a source reads a stream.
///
/// | setting | default |
/// |---|---|
/// | [`attempts`](Self::attempts) | 5 |
/// | [`ack_wait`](Self::ack_wait) | 30 s |
/// | [`for_at_least`](Self::for_at_least) | 15 min |
/// | [`window`](Self::window) | 4,096 messages a task |
/// | [`window_bytes`](Self::window_bytes) | 64 MiB a task |
/// | [`subject`](Self::subject) | all of the stream |
/// | [`dead_letters`](Self::dead_letters) | `APP.dead.STREAM` |
#[derive(Debug, Clone)]
#[must_use = "settings do nothing by themselves"]
pub struct SourceOptions {
    stream: String,
    consumer: String,
    subject: String,
    dead_letters: Option<String>,
    attempts: u64,
    ack_wait: Duration,
    at_least: Duration,
    window: usize,
    window_bytes: usize,
}

setters! { SourceOptions
    /// The consumer gets only messages of this subject, which may have wildcards. A partitioned
    /// source has the subjects of its stream's partitions instead.
    subject(subject: &str) => subject = subject.to_string();
    /// The subject of dead letters, without wildcards. A stream has to take it, and the source
    /// itself must not read it. A letter that is larger than the server takes loses the end of its
    /// payload: its header `Expiry-Truncated` has the whole length.
    dead_letters(subject: &str) => dead_letters = Some(subject.to_string());
    /// The number of deliveries, 1 to 10,000, before which a failed message is no dead letter. In
    /// each delivery the topology emits the message several times: see [`StreamSpout`].
    ///
    /// The broker counts them, also those in which nothing failed, because the worker died or the
    /// topology ended or was deactivated. So from this delivery on a failed message becomes a dead
    /// letter if the process has seen it fail for [`for_at_least`](Self::for_at_least), else after
    /// twice as many deliveries, and at least 4. A message that comes more often than that may kill
    /// its workers. The source stores its dead letter, then gives it to the topology alone.
    attempts(attempts: u64) => attempts = attempts;
    /// The time after which the broker delivers the messages of a dead worker again: 1 s or more.
    ack_wait(time: Duration) => ack_wait = time;
    /// The time that a message fails at least before it becomes a dead letter. An outage that is
    /// shorter makes no dead letters, unless more than [`attempts`](Self::attempts) deliveries of a
    /// message failed nothing. The pauses between the attempts add up to the time: with 5 attempts
    /// they are 1, 2, 3 and 4 tenths of it, up to a fifth longer, and later ones are as long as the
    /// last. The broker keeps the message meanwhile, and counts it as pending.
    for_at_least(time: Duration) => at_least = time;
    /// The most messages, 1 or more, that a task holds: those that wait for room downstream count.
    window(messages: usize) => window = messages;
    /// The bytes, 1 or more, that a task's messages have at the most, with their subjects and
    /// headers, until they leave the task. What `decode` makes of them is not counted. A message
    /// that is larger is not refused: the task takes it when it holds nothing else. Below a few
    /// times the server's `max_payload` a task holds few messages.
    window_bytes(bytes: usize) => window_bytes = bytes;
}

impl SourceOptions {
    /// Settings of a stream's durable consumer. Workers that name the same one share its messages.
    pub fn new(stream: &str, consumer: &str) -> Self {
        SourceOptions {
            stream: stream.to_string(),
            consumer: consumer.to_string(),
            subject: String::new(),
            dead_letters: None,
            attempts: 5,
            ack_wait: Duration::from_secs(30),
            at_least: Duration::from_secs(15 * 60),
            window: 4096,
            window_bytes: 64 << 20,
        }
    }

    /// The source's name in the ids of what it causes to be stored. Neither part has a dot.
    fn source(&self) -> String {
        format!("{}.{}", self.stream, self.consumer)
    }

    fn check(&self) -> Result<(), NatsError> {
        // The streams of this crate are named APP+SET+KIND.
        self.stream.split('+').try_for_each(|part| NatsError::name("stream", part))?;
        NatsError::name("consumer", &self.consumer)?;
        NatsError::within("attempts", self.attempts, 1..=10_000, "1 to 10,000")?;
        NatsError::within("window", self.window, 1.., "1 or more")?;
        NatsError::within("window_bytes", self.window_bytes, 1.., "1 or more")?;
        NatsError::within("ack_wait", self.ack_wait, Duration::from_secs(1).., "1s or more")?;
        let letters = self.dead_letters.as_deref().unwrap_or_default();
        let is_one = !letters.contains(['*', '>']);
        NatsError::unless(is_one, "dead_letters", &letters, "one subject, without wildcards")
    }
}

/// A message as the stream has it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Incoming<'a> {
    /// Its subject.
    pub subject: &'a str,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// How often it was delivered, this time included.
    pub deliveries: u64,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Its headers, if it has any.
    pub headers: Option<&'a HeaderMap>,
}

/// A message of a stream: its sequence, and the time at which the stream stored it, in nanoseconds
/// since 1970. A stream that is deleted and made again counts from 1 again; the time distinguishes
/// its messages from earlier ones. A message of a
/// [partitioned source](Nats::partitioned_source) has another id under another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageId {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the stream stored it.
    pub published: i128,
    /// The epoch of its partition's owner, in a partitioned source.
    pub epoch: Option<u64>,
}

impl MessageId {
    /// The message's name among the messages of all sources, the same under each owner.
    fn name(self, source: &str) -> String {
        format!("{source}-{}-{}", self.sequence, self.published)
    }
}

stats! { counted
    /// What a worker's source has done so far, and what it holds. A snapshot.
    SourceStats as "expiry_nats_source_"
    gauges {
        /// Messages that are held now.
        held: u64,
        /// The bytes of those, with their subjects and headers.
        held_bytes: u64,
        /// Messages that the consumer had yet to deliver when it delivered last, or when a request
        /// found no more: the lag. Of a partitioned source, those of the worker's partitions.
        waiting: u64,
    }
    counters {
        /// Messages that were delivered, redeliveries included.
        delivered,
        /// Messages that were delivered while the topology had them already.
        redelivered_held,
        /// Messages that were acked.
        acked,
        /// Messages that were acked again, because the first ack was lost.
        acked_again,
        /// Failed deliveries after which the broker delivers again.
        naks,
        /// Reports that work is in progress.
        in_progress,
        /// Dead letters that were stored.
        dead,
        /// Attempts to store a dead letter that failed. Its message stays in the stream, and comes
        /// again after a pause.
        dead_refused,
        /// Requests for messages that failed.
        pull_errors,
    }
}

/// What the spout reports to the I/O task.
enum Outcome {
    Acked(MessageId),
    /// Why the topology has failed the message, and whether no attempt can succeed.
    Failed(MessageId, String, bool),
    /// The waker of the spout that is to get messages, if one is.
    Active(Option<Waker>),
    /// The consumer of an inlet was found or made, for this request; or was not.
    Opened(Tag, Box<Result<Consumer<Config>, NatsError>>),
    /// A dead letter was stored, or was there before; or was not stored.
    Buried(MessageId, Result<(Letter, bool), PublishError>),
    /// The task answers when all outcomes before this one are at the broker.
    Close(blocking::Sender<()>),
}

/// What a task gives to its spout. A message of a partition is emitted while its owner may act.
type Given<M> = (MessageId, M, Option<Held>);

/// What the I/O task has given and the spout has not taken. The task takes it back while no spout
/// is active.
type Messages<M> = Arc<Mutex<VecDeque<Given<M>>>>;

/// What a spout task shares with its I/O task.
struct Link<M> {
    gauges: Arc<Gauges>,
    messages: Messages<M>,
    outcomes: mpsc::UnboundedSender<Outcome>,
}

/// What an I/O task holds and expects, for `stats`.
#[derive(Default)]
struct Gauges {
    /// The number of messages that it holds, and their bytes.
    held: AtomicU64,
    held_bytes: AtomicU64,
    /// The number of those that its inlets have yet to bring.
    waiting: AtomicU64,
}

type Decode<M> = dyn Fn(&Incoming<'_>, Option<&Held>) -> Result<M, String> + Send + Sync;

/// A durable consumer whose messages spouts get. Made by [`Nats::source`]. To call
/// [`stats`](Self::stats) and [`last_error`](Self::last_error) beside a running topology, keep it
/// in an `Arc`, and move a clone of that into the topology's closure.
pub struct StreamSource<M> {
    shared: Arc<Shared<M>>,
    links: Mutex<Links<M>>,
    runtime: tokio::runtime::Handle,
    /// The worker's part in a set, if the source is partitioned.
    owner: Option<Owner>,
}

/// The links of all tasks, by component, number of tasks, and task.
type Links<M> = HashMap<(String, usize, usize), Arc<Link<M>>>;

struct Shared<M> {
    nats: Nats,
    options: SourceOptions,
    dead_letters: String,
    decode: Box<Decode<M>>,
    counts: Counts,
    /// When a failing message failed first, by the tasks' clock.
    failing: Mutex<HashMap<MessageId, Duration>>,
    /// Why the last request for messages failed, why the last dead letter was not stored, and why
    /// the worker owns no partitions.
    last_error: Mutex<[Option<String>; 3]>,
}

debug!(StreamSource<M>, |it| "StreamSource({:?})", it.shared.options);

impl Nats {
    /// A source of messages. Creates the durable consumer, or updates the settings of the one that
    /// is there. `decode` runs on the runtime's threads; a message that it refuses becomes a dead
    /// letter at once. A topology takes the source if `M` is `Clone`.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: among others `NoStream`, if the stream is missing or no stream takes the dead
    /// letters.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub async fn source<M: Send + 'static, E: fmt::Display>(
        &self,
        options: SourceOptions,
        decode: impl Fn(&Incoming<'_>) -> Result<M, E> + Send + Sync + 'static,
    ) -> Result<StreamSource<M>, NatsError> {
        let decode = move |incoming: &Incoming<'_>, _: Option<&Held>| decode(incoming);
        options.check()?;
        let source = self.source_of(options, decode);
        source.shared.consumer(None).await?;
        source.shared.check_letters().await?;
        Ok(source)
    }

    /// A source that has not asked the brokers yet.
    fn source_of<M, E: fmt::Display>(
        &self,
        options: SourceOptions,
        decode: impl Fn(&Incoming<'_>, Option<&Held>) -> Result<M, E> + Send + Sync + 'static,
    ) -> StreamSource<M> {
        let by_default = || format!("{}.dead.{}", self.app(), options.stream);
        let dead_letters = options.dead_letters.clone().unwrap_or_else(by_default);
        let shared = Shared {
            nats: self.clone(),
            options,
            dead_letters,
            decode: Box::new(move |incoming, held| {
                decode(incoming, held).map_err(|error| error.to_string())
            }),
            counts: Counts::default(),
            failing: Mutex::default(),
            last_error: Mutex::default(),
        };
        StreamSource {
            shared: Arc::new(shared),
            links: Mutex::default(),
            runtime: tokio::runtime::Handle::current(),
            owner: None,
        }
    }

    /// The name of the stream that takes a subject.
    async fn stream_of(&self, what: &'static str, subject: &str) -> Result<String, NatsError> {
        let found = self.context().stream_by_subject(subject).await;
        found.map_err(|error| match error.kind() {
            GetStreamByNameErrorKind::NotFound | GetStreamByNameErrorKind::InvalidSubject => {
                let name = subject.to_string();
                NatsError::NoStream { what, name }
            }
            GetStreamByNameErrorKind::Request => self.unanswered(what),
            _ => NatsError::refused(what, &error),
        })
    }
}

impl<M: Send + 'static> StreamSource<M> {
    /// The spout of a task. Call it where the topology makes its spouts:
    /// `topology.spout("lines", move |context| source.spout(context))`. Another topology may use
    /// the source when the first one has ended.
    pub fn spout(&self, context: &Context) -> StreamSpout<M> {
        let task = (context.component().to_string(), context.tasks(), context.task());
        let mut links = lock(&self.links);
        if self.owner.is_some() {
            // An earlier topology may have shared the partitions out among other tasks.
            links.retain(|link, _| (&link.0, link.1) == (&task.0, task.1));
        }
        let link = links.entry(task).or_insert_with(|| {
            let messages = Messages::<M>::default();
            let (outcomes, told) = mpsc::unbounded_channel();
            let (shared, options) = (self.shared.clone(), &self.shared.options);
            let gauges = Arc::<Gauges>::default();
            let (inlets, owned) = match &self.owner {
                Some(owner) => (BTreeMap::new(), owner.owned.subscribe()),
                None => {
                    (BTreeMap::from([(None, Inlet::default())]), watch::channel(Owned::new()).1)
                }
            };
            let mut task = Task {
                custody: Custody::new(options.ack_wait, options.attempts, options.at_least),
                shared,
                gauges: gauges.clone(),
                messages: messages.clone(),
                outcomes: outcomes.downgrade(),
                active: None,
                inlets,
                batches: SelectAll::new(),
                requests: 0,
                owned,
                part: (context.task(), context.tasks()),
            };
            task.owned.mark_changed();
            self.runtime.spawn(task.run(told));
            Arc::new(Link { gauges, messages, outcomes })
        });
        let source = self.shared.options.source();
        StreamSpout { link: link.clone(), waker: context.waker(), source }
    }

    /// What this worker's spouts have done so far.
    #[must_use]
    pub fn stats(&self) -> SourceStats {
        let links = lock(&self.links);
        let each = |gauge: fn(&Gauges) -> &AtomicU64| {
            links.values().map(move |link| gauge(&link.gauges).load(Ordering::Relaxed))
        };
        let [held, bytes] = [each(|it| &it.held), each(|it| &it.held_bytes)].map(Iterator::sum);
        let waiting = each(|it| &it.waiting);
        // Without partitions all tasks ask one consumer.
        let is_shared = self.owner.is_none();
        let waiting = if is_shared { waiting.max().unwrap_or(0) } else { waiting.sum() };
        self.shared.counts.snapshot(held, bytes, waiting)
    }

    /// Why the source gets no messages, or cannot store dead letters. `None` if the last attempts
    /// succeeded.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        lock(&self.shared.last_error).iter().flatten().next().cloned()
    }
}

/// Whether a filter takes a subject. An empty filter takes all.
fn takes(filter: &str, subject: &str) -> bool {
    let (mut filters, mut tokens) = (filter.split('.'), subject.split('.'));
    filter.is_empty()
        || loop {
            match (filters.next(), tokens.next()) {
                (Some(">"), Some(_)) | (None, None) => return true,
                (Some(filter), Some(token)) if filter == "*" || filter == token => {}
                _ => return false,
            }
        }
}

/// Drops what the user's function has made. A panic of the drop does not end the I/O task.
fn discard<M>(message: M) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(message)));
}

/// The most messages of which the source notes when they failed first.
const NOTED: usize = 1 << 16;

/// The places in `last_error`.
const PULL: usize = 0;
const DEAD: usize = 1;
const OWNER: usize = 2;

impl<M> Shared<M> {
    fn note(&self, place: usize, error: Option<String>) {
        lock(&self.last_error)[place] = error;
    }

    /// How long this process has seen the message fail.
    fn fails_for(&self, id: MessageId) -> Duration {
        let (now, mut failing) = (clock::now(), lock(&self.failing));
        if failing.len() == NOTED {
            failing.clear(); // the count of the deliveries ends these
        }
        now.saturating_sub(*failing.entry(id).or_insert(now))
    }

    /// Calls the user's function. A panic is a refusal: it does not end the I/O task.
    fn decode(&self, incoming: &Incoming<'_>, held: Option<&Held>) -> Result<M, String> {
        let decoded = catch_unwind(AssertUnwindSafe(|| (self.decode)(incoming, held)));
        decoded.unwrap_or_else(|_| Err("the decoder panicked".to_string()))
    }

    /// Checks that a stream takes the dead letters, and that the source does not read them.
    async fn check_letters(&self) -> Result<(), NatsError> {
        let (options, letters) = (&self.options, &self.dead_letters);
        let dead_stream = self.nats.stream_of("dead letters", letters).await?;
        let feeds_itself = dead_stream == options.stream && takes(&options.subject, letters);
        let needed = "a subject that the source does not read";
        NatsError::unless(!feeds_itself, "dead_letters", letters, needed)
    }

    /// Creates the consumer, or that of a partition, or updates it.
    async fn consumer(&self, partition: Option<u32>) -> Result<Consumer<Config>, NatsError> {
        let (context, stream) = (self.nats.context(), &self.options.stream);
        let (mut name, mut subject) = (self.options.consumer.clone(), self.options.subject.clone());
        if let Some(partition) = partition {
            name += &format!("-{partition}");
            subject = subject.replacen('*', &partition.to_string(), 1);
        }
        let config = Config {
            durable_name: Some(name),
            ack_policy: AckPolicy::Explicit,
            ack_wait: self.options.ack_wait,
            // A limit of deliveries would strand messages: the source counts them.
            max_deliver: -1,
            // Messages that wait for their next attempt count as pending: with a limit, a flood of
            // poison would hold up the others. The windows of the tasks bound the rest.
            max_ack_pending: -1,
            filter_subject: subject,
            ..Config::default()
        };
        let made = context.create_consumer_on_stream(config, stream).await;
        made.map_err(|error| match error.kind() {
            ConsumerErrorKind::TimedOut | ConsumerErrorKind::Request => {
                self.nats.unanswered("consumer")
            }
            ConsumerErrorKind::JetStream(why)
                if why.error_code() == ErrorCode::STREAM_NOT_FOUND =>
            {
                let name = stream.clone();
                NatsError::NoStream { what: "source", name }
            }
            _ => NatsError::refused("consumer", &error),
        })
    }
}

/// A spout that gets its messages from a [`StreamSource`].
///
/// It acks a message at the broker when its tree is acked, and never before. The topology emits a
/// failed message again: by default five times, and for at least five seconds. Then it is the
/// broker that delivers the message again after a pause, to any worker of the consumer. After the
/// last delivery, the source publishes the message as a dead letter and removes it from the
/// consumer when that is stored.
///
/// While the topology is inactive, the source asks for nothing and gives back what was not emitted.
/// [`close`](Spout::close) blocks until the broker has the outcomes, for 5 s at the most.
pub struct StreamSpout<M> {
    link: Arc<Link<M>>,
    waker: Waker,
    source: String,
}

debug!(StreamSpout<M>, |_it| "StreamSpout");

impl<M> StreamSpout<M> {
    fn tell(&self, outcome: Outcome) {
        // The task ends only when the connection is closed for good; the broker delivers again.
        let _ = self.link.outcomes.send(outcome);
    }
}

impl<M: Clone + Send + 'static> Spout<M, MessageId> for StreamSpout<M> {
    fn replay_by_default() -> Replay {
        Replay::default().for_at_least(Duration::from_secs(5))
    }

    fn next(&mut self, out: &mut SpoutCollector<'_, M, MessageId>) -> Next {
        while out.room() > 0 {
            let given = lock(&self.link.messages).pop_front();
            let Some((id, message, held)) = given else { return Next::Asleep };
            if held.is_some_and(|held| !held.may_act()) {
                continue; // the I/O task forgets it
            }
            let seed = hash_of(id.name(&self.source));
            if let Err(refused) = out.emit_seeded(message, id, seed) {
                self.tell(Outcome::Failed(refused.id, refused.to_string(), false));
                out.report(&refused); // last: a panic of users' code there costs no outcome
            }
        }
        Next::Ready
    }

    fn ack(&mut self, id: MessageId) {
        self.tell(Outcome::Acked(id));
    }

    fn fail(&mut self, id: MessageId, failure: &Failure) {
        self.tell(match failure {
            Failure::Rejected { why, .. } => Outcome::Failed(id, why.to_string(), true),
            other => Outcome::Failed(id, other.to_string(), false),
        });
    }

    fn activate(&mut self) {
        self.tell(Outcome::Active(Some(self.waker.clone())));
    }

    fn deactivate(&mut self) {
        self.tell(Outcome::Active(None));
    }

    fn close(&mut self) {
        let (done, closed) = blocking::channel();
        self.tell(Outcome::Close(done));
        let _ = closed.recv_timeout(Duration::from_secs(5));
        // They are given back. A later topology does not get them.
        let given = std::mem::take(&mut *lock(&self.link.messages));
        given.into_iter().for_each(|(_, message, _)| discard(message));
    }
}

#[cfg(test)]
#[path = "../tests/unit/source.rs"]
mod tests;
