//! A bolt that publishes.

use crate::base::{debug, setters};
use crate::ownership::hash_of;
use crate::Nats;
use async_nats::header::{HeaderMap, HeaderValue};
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::SubjectError;
use bytes::Bytes;
use expiry_topology::{concurrent, Bolt, BoltCollector, Concurrent, Context, Failed, Tuple};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The pause before a message that was not stored is published again.
const PAUSE: Duration = Duration::from_millis(100);

/// A message as a [`StreamSink`] publishes it.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// Its subject. A stream has to take it.
    pub subject: String,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Its `Nats-Msg-Id`. Within its duplicate window the stream stores one message with this id.
    /// By default it follows from the subject, the payload and the tuple's
    /// [lineage](Tuple::lineage): an attempt that emits the same is stored once.
    pub id: Option<String>,
    /// Other headers.
    pub headers: HeaderMap,
}

/// A stream that bolts publish to. Made by [`Nats::sink`].
///
/// Its bolts publish each message, and ack its tuple when the stream has stored it. A message that
/// is not stored is published again under the same id, for half the topology's timeout or
/// `give_up_after`, whichever is shorter; then its tuple fails. A message that no stream can take
/// is rejected.
///
/// | setting | default |
/// |---|---|
/// | [`window`](Self::window) | 1,024 messages a task |
/// | [`give_up_after`](Self::give_up_after) | 60 s |
pub struct StreamSink<M> {
    nats: Nats,
    encode: Arc<Encode<M>>,
    window: usize,
    give_up_after: Duration,
    runtime: tokio::runtime::Handle,
}

type Encode<M> = dyn Fn(&M) -> Result<Outgoing, String> + Send + Sync;

debug!(StreamSink<M>, |it| "StreamSink({:?})", format!("{}/{}", it.nats.app(), it.nats.worker()));

impl Nats {
    /// A sink for messages. `encode` runs on the bolt's thread; a message that it refuses is
    /// rejected.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn sink<M, E: fmt::Display>(
        &self,
        encode: impl Fn(&M) -> Result<Outgoing, E> + Send + Sync + 'static,
    ) -> StreamSink<M> {
        StreamSink {
            nats: self.clone(),
            encode: Arc::new(move |message| encode(message).map_err(|error| error.to_string())),
            window: 1024,
            give_up_after: Duration::from_secs(60),
            runtime: tokio::runtime::Handle::current(),
        }
    }
}

setters! { StreamSink<M>
    /// The number of messages, 1 or more, that a task has under way at the most. While it has so
    /// many, it takes no more, which holds back the bolts and spouts before it. Zero counts as 1.
    window(messages: usize) => window = messages;
    /// The time for which the sink publishes a message again and again before it fails the tuple.
    give_up_after(time: Duration) => give_up_after = time;
}

impl<M: Send + 'static> StreamSink<M> {
    /// The bolt of a task. Call it where the topology makes its bolts:
    /// `topology.bolt("out", move |context| sink.bolt(context))`.
    pub fn bolt(&self, context: &Context) -> impl Bolt<M> {
        let (nats, encode, runtime) =
            (self.nats.clone(), self.encode.clone(), self.runtime.clone());
        // An old attempt's future does not publish beside the next attempt's.
        let limit = self.give_up_after.min(context.timeout() / 2);
        let store = move |(lineage, message): (Option<u64>, M)| {
            let (encoded, nats) = (encode(&message), nats.clone());
            async move { store(&nats, encoded.map_err(Failed::reject)?, lineage, limit).await }
        };
        let spawn = move |future| runtime.spawn(future);
        SinkBolt(concurrent(context, self.window, spawn, store).unordered())
    }
}

/// Passes the lineage of its tuple along with each message.
struct SinkBolt<M>(Concurrent<(Option<u64>, M)>);

impl<M: Send + 'static> Bolt<M> for SinkBolt<M> {
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_>) {
        let lineage = tuple.lineage();
        self.0.execute(tuple.map(|message| (lineage, message)), out);
    }

    fn is_ready(&self) -> bool {
        self.0.is_ready()
    }

    fn woken(&mut self, out: &mut BoltCollector<'_>) {
        self.0.woken(out);
    }
}

/// Whether no later publish of the message can succeed: it is too large for the server or for the
/// stream, or its subject is none. A full stream has room again some day.
fn is_permanent(error: &PublishError) -> bool {
    let why = std::error::Error::source(error);
    let refusal = why.and_then(|why| why.downcast_ref::<jetstream::Error>());
    let too_large =
        [ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM];
    error.kind() == PublishErrorKind::MaxPayloadExceeded
        || refusal.is_some_and(|why| too_large.contains(&why.error_code()))
        || why.is_some_and(|why| why.is::<SubjectError>())
}

/// Publishes a message until the stream has stored it.
async fn store(
    nats: &Nats,
    outgoing: Outgoing,
    lineage: Option<u64>,
    limit: Duration,
) -> Result<Option<()>, Failed> {
    let Outgoing { subject, payload, id, mut headers } = outgoing;
    let id = id.or_else(|| {
        lineage.map(|lineage| {
            format!("{lineage:016x}{:016x}", hash_of(&payload) ^ hash_of(&subject).rotate_left(1))
        })
    });
    let id = id.unwrap_or_else(|| nats.client().new_inbox());
    headers.insert("Nats-Msg-Id", id.parse::<HeaderValue>().map_err(Failed::reject)?);
    let (payload, began) = (Bytes::from(payload), Instant::now());
    loop {
        let stored = nats.store(subject.clone(), headers.clone(), payload.clone()).await;
        let Err(error) = stored else { return Ok(None) };
        let why = || format!("{subject:?} was not stored: {error}");
        if is_permanent(&error) {
            return Err(Failed::reject(why()));
        }
        if began.elapsed() >= limit {
            return Err(Failed::new(why()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
