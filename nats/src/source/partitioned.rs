//! A source that reads the partitions which its worker owns.
//!
//! The server stores a message of key K in partition P of a stream, as `PREFIX.P.REST`. Each
//! partition has a durable consumer of its own, `CONSUMER-P`, and each worker asks only the
//! consumers of the partitions that it owns in a [`PartitionSet`]. So all messages of a key come to
//! one worker at a time.
//!
//! ```text
//!  Partitions --Gained, Losing, Lost--> drive --Owned--> I/O task: an inlet for each partition
//!             <----------------------release-----------  that is its part
//! ```
//!
//! `drive` alone changes what is [`Owned`]. Each I/O task opens and shuts its inlets by that. The
//! invariants:
//!
//! 1. The task asks a consumer only while [`Held::may_act`]. The request ends within a quarter of
//!    the lease. So it has ended before another worker can own the partition.
//! 2. Each message has the [`Held`] under which it was delivered. An epoch that may not act never
//!    may again. From then on the spout does not emit the message, and the task does not answer
//!    for it: whatever the topology says of it, the broker delivers it again, to the next owner.
//! 3. A message's id has the epoch. So an outcome of a former epoch settles no later delivery.
//! 4. A task whose partition is lost, or has a new epoch, forgets what it held of it.
//! 5. After `Losing` the task asks no more. It releases the partition when its last request has
//!    ended and nothing of the partition is held, or when the worker may not act for it any more:
//!    no worker gets the partition before. Where there is no task, `drive` releases it.

use super::{Incoming, Shared, SourceOptions, StreamSource, OWNER};
use crate::base::ticks;
use crate::{Change, Held, Nats, NatsError, PartitionSet, Partitions};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the worker owns, and whether it is losing that.
pub(super) type Owned = BTreeMap<u32, (Held, bool)>;

/// The worker's part in the set. Its drop hands the partitions over in the background.
pub(super) struct Owner {
    /// Each I/O task is a receiver.
    pub(super) owned: Arc<watch::Sender<Owned>>,
    /// `drive` is the receiver, and drops it last.
    leave: watch::Sender<()>,
}

/// Serves until the set ends, or until `leave` changes or is dropped and the brokers know.
async fn drive<M>(
    shared: Arc<Shared<M>>,
    owned: Arc<watch::Sender<Owned>>,
    mut partitions: Partitions,
    mut leave: watch::Receiver<()>,
) {
    let (mut leaves, mut ticks) = (false, ticks(Duration::from_millis(50)));
    loop {
        tokio::select! {
            change = partitions.next() => match change {
                Some(Change::Gained(held)) => {
                    owned.send_modify(|it| drop(it.insert(held.partition(), (held, false))));
                }
                Some(Change::Losing(partition)) => owned.send_modify(|it| {
                    it.entry(partition).and_modify(|(_, losing)| *losing = true);
                }),
                Some(Change::Lost(partition, _)) => {
                    owned.send_modify(|it| drop(it.remove(&partition)));
                }
                Some(Change::Ended(why)) => shared.note(OWNER, Some(why.to_string())),
                None => return,
            },
            _ = leave.changed(), if !leaves => {
                leaves = true;
                partitions.leave();
            }
            _ = ticks.tick() => {}
        }
        if owned.receiver_count() == 0 {
            let owned = owned.borrow();
            let losing = owned.values().filter(|(_, losing)| *losing);
            losing.for_each(|(held, _)| held.release());
        }
    }
}

/// The prefix and the number of `PREFIX.P.>`.
fn numbered(subject: &str) -> Option<(&str, u32)> {
    let (prefix, number) = subject.strip_suffix(".>")?.rsplit_once('.')?;
    Some((prefix, number.parse().ok()?))
}

/// The subject of a stream's partitions, `PREFIX.*.>`, and their number. None: its configuration
/// does not say either.
pub(super) fn partitions_of(config: &Config) -> Option<(String, u32)> {
    let by_transform = config.subject_transform.as_ref().and_then(|transform| {
        let (prefix, rest) = transform.destination.split_once(".{{")?;
        let (name, rest) = rest.split_once('(')?;
        let (count, rest) = rest.split_once(',')?;
        let is_one = name.trim().eq_ignore_ascii_case("partition") && rest.contains("}}.");
        Some((prefix, count.trim().parse().ok().filter(|_| is_one)?))
    });
    let (prefix, count) = by_transform.or_else(|| {
        let all: BTreeSet<_> =
            config.subjects.iter().map(|it| numbered(it)).collect::<Option<_>>()?;
        let (&(prefix, _), count) = (all.first()?, u32::try_from(all.len()).ok()?);
        let is_whole = all.into_iter().eq((0..count).map(|number| (prefix, number)));
        Some((prefix, Some(count).filter(|_| is_whole)?))
    })?;
    Some((format!("{prefix}.*.>"), count))
}

impl Nats {
    /// A source of the partitions that this worker owns: all messages of a key come to one worker
    /// at a time, so that bolts can keep state by key. The worker joins `set`, as with
    /// [`PartitionSet::join`], and shares the partitions out with the other workers of the source.
    ///
    /// The stream says which partition a message belongs to. Either it transforms the subjects, say
    /// from `words.*` to `words.{{partition(16,1)}}.{{wildcard(1)}}`. Or it takes the subjects
    /// `words.0.>` to `words.15.>`, and the publishers name the partition. Each partition has a
    /// durable consumer, `CONSUMER-P`, from its first owner on. A stream of the retention policy
    /// `Interest` keeps no message of before.
    ///
    /// `decode` gets the [`Held`] of the message's partition beside the message, and may put a
    /// clone of it into what it returns. A bolt loads the state of a partition when it meets a new
    /// [epoch](Held::epoch), and writes it with [`Held::write`], which the brokers refuse to a late
    /// owner. A bolt fails, and does not reject, the message whose write is refused.
    ///
    /// When the worker stops to own a partition, the source neither emits nor answers for its
    /// messages any more. The next owner gets them after [`ack_wait`](SourceOptions::ack_wait) at
    /// the latest. Where the worker hands a partition over, the source finishes first what it
    /// holds of it. The tasks of the topology share the partitions out; one component at a time
    /// may use the source. While the topology is inactive, the worker keeps its partitions.
    ///
    /// # Errors
    ///
    /// Those of [`source`](Self::source) and of [`PartitionSet::join`]. Also
    /// [`OtherTerms`](NatsError::OtherTerms), if the stream has another number of partitions, and
    /// [`Setting`](NatsError::Setting), if it does not say its number.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn create(nats: expiry_nats::Nats) -> Result<(), expiry_nats::NatsError> {
    /// use expiry_nats::{Held, Incoming, SourceOptions};
    ///
    /// let decode = |incoming: &Incoming<'_>, held: &Held| {
    ///     String::from_utf8(incoming.payload.to_vec()).map(|word| (word, held.clone()))
    /// };
    /// let (options, set) = (SourceOptions::new("words", "count"), nats.partitions("words", 16));
    /// let source = nats.partitioned_source(options, set, decode).await?;
    /// # drop(source);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn partitioned_source<M: Send + 'static, E: fmt::Display>(
        &self,
        mut options: SourceOptions,
        set: PartitionSet,
        decode: impl Fn(&Incoming<'_>, &Held) -> Result<M, E> + Send + Sync + 'static,
    ) -> Result<StreamSource<M>, NatsError> {
        options.check()?;
        let (subject, none) = (&options.subject, "none: the stream says what its partitions are");
        NatsError::unless(subject.is_empty(), "subject", subject, none)?;
        let stream = self.context().get_stream(&options.stream).await;
        let stream = stream.map_err(|error| match error.kind() {
            GetStreamErrorKind::Request => self.unanswered("stream"),
            _ => NatsError::NoStream { what: "source", name: options.stream.clone() },
        })?;
        let config = &stream.cached_info().config;
        let (subject, count) = partitions_of(config).ok_or_else(|| NatsError::Setting {
            what: "the stream's configuration",
            found: format!("{:?}, {:?}", config.subjects, config.subject_transform),
            needed: "a transform with {{partition(N,..)}}, or the subjects P.0.> to P.N-1.>",
        })?;
        if count != set.count {
            let (found, asked) = (count.to_string(), set.count.to_string());
            let what = "stream's number of partitions";
            return Err(NatsError::OtherTerms { set: set.set, what, found, asked });
        }
        options.subject = subject;
        let mut source = self.source_of(options, move |incoming, held| {
            decode(incoming, held.expect("a message of a partition has its owner"))
        });
        source.shared.check_letters().await?;
        let partitions = set.join().await?;
        let (owned, leave) = (Arc::new(watch::Sender::default()), watch::Sender::default());
        let (shared, leaves) = (source.shared.clone(), leave.subscribe());
        tokio::spawn(drive(shared, owned.clone(), partitions, leaves));
        source.owner = Some(Owner { owned, leave });
        Ok(source)
    }
}

impl<M> StreamSource<M> {
    /// Hands the partitions of a [partitioned](Nats::partitioned_source) source over to the other
    /// workers, and returns when the brokers know. The source finishes first what it holds, so call
    /// this while its topology runs. After that the source gets nothing. Limit the time, as the
    /// brokers may not come back. A source that is dropped does the same in the background.
    pub async fn leave(&self) {
        if let Some(owner) = &self.owner {
            owner.leave.send_replace(());
            owner.leave.closed().await;
        }
    }
}
