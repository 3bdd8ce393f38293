//! A bolt that publishes.

use crate::base::{debug, setters};
use crate::Nats;
use async_nats::header::{HeaderMap, HeaderValue};
use async_nats::jetstream::context::PublishErrorKind;
use bytes::Bytes;
use expiry_topology::{concurrent, Concurrent, Context, Failed};
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
    /// An id that follows from the input makes a replay harmless. By default each attempt has an id
    /// of its own.
    pub id: Option<String>,
    /// Other headers.
    pub headers: HeaderMap,
}

/// A stream that bolts publish to. Made by [`Nats::sink`].
///
/// Its bolts publish each message, and ack its tuple when the stream has stored it. A message that
/// is not stored is published again under the same id. An outage that is shorter than
/// `give_up_after`, and than the topology's timeout, uses up no attempt. A message larger than the
/// server takes is rejected.
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
    pub fn bolt(&self, context: &Context) -> Concurrent<M> {
        let (nats, encode, limit) = (self.nats.clone(), self.encode.clone(), self.give_up_after);
        let runtime = self.runtime.clone();
        let store = move |message: M| {
            let (encoded, nats) = (encode(&message), nats.clone());
            async move { store(&nats, encoded.map_err(Failed::reject)?, limit).await }
        };
        concurrent(context, self.window, move |future| runtime.spawn(future), store).unordered()
    }
}

/// Publishes a message until the stream has stored it.
async fn store(nats: &Nats, outgoing: Outgoing, limit: Duration) -> Result<Option<()>, Failed> {
    let Outgoing { subject, payload, id, mut headers } = outgoing;
    let id = id.unwrap_or_else(|| nats.client().new_inbox());
    headers.insert("Nats-Msg-Id", id.parse::<HeaderValue>().map_err(Failed::reject)?);
    let (payload, began) = (Bytes::from(payload), Instant::now());
    loop {
        let stored = nats.store(subject.clone(), headers.clone(), payload.clone()).await;
        let Err(error) = stored else { return Ok(None) };
        let why = || format!("{subject:?} was not stored: {error}");
        if error.kind() == PublishErrorKind::MaxPayloadExceeded {
            return Err(Failed::reject(why()));
        }
        if began.elapsed() >= limit {
            return Err(Failed::new(why()));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
