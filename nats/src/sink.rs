//! A bolt that publishes.

use crate::base::debug;
use crate::Nats;
use async_nats::header::{HeaderMap, HeaderValue};
use bytes::Bytes;
use expiry_topology::{Bolt, BoltCollector, Context, Tuple, Waker};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::HashMap;
use std::fmt;
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc as unbounded;

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

/// How a [`StreamSink`] publishes. Made by [`Nats::sink`].
///
/// | setting | default |
/// |---|---|
/// | [`window`](Self::window) | 1,024 messages a task |
/// | [`give_up_after`](Self::give_up_after) | 60 s |
pub struct StreamSinks<M> {
    nats: Nats,
    encode: Arc<Encode<M>>,
    window: usize,
    give_up_after: Duration,
    runtime: tokio::runtime::Handle,
}

type Encode<M> = dyn Fn(&M) -> Result<Outgoing, String> + Send + Sync;

debug!(StreamSinks<M>, |it| "StreamSinks({:?})", format!("{}/{}", it.nats.app(), it.nats.worker()));

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
    ) -> StreamSinks<M> {
        StreamSinks {
            nats: self.clone(),
            encode: Arc::new(move |message| encode(message).map_err(|error| error.to_string())),
            window: 1024,
            give_up_after: Duration::from_secs(60),
            runtime: tokio::runtime::Handle::current(),
        }
    }
}

impl<M> StreamSinks<M> {
    /// The number of messages, 1 or more, that a task has under way at the most. Zero counts as 1.
    #[must_use]
    pub fn window(mut self, messages: usize) -> Self {
        self.window = messages.max(1);
        self
    }

    /// The time for which the sink publishes a message again and again before it fails the tuple.
    #[must_use]
    pub fn give_up_after(mut self, time: Duration) -> Self {
        self.give_up_after = time;
        self
    }

    /// The bolt of a task. Call it where the topology makes its bolts:
    /// `topology.bolt("out", move |context| sinks.bolt(context))`.
    pub fn bolt(&self, context: &Context) -> StreamSink<M> {
        let (done, stored) = mpsc::channel();
        let (publishes, asked) = unbounded::unbounded_channel();
        self.runtime.spawn(publisher(self.nats.clone(), asked, done, context.waker()));
        StreamSink {
            sinks: StreamSinks {
                nats: self.nats.clone(),
                encode: self.encode.clone(),
                runtime: self.runtime.clone(),
                ..*self
            },
            prefix: self.nats.client().new_inbox(),
            next: 0,
            held: HashMap::new(),
            publishes,
            stored,
        }
    }
}

/// A bolt that publishes each message, and acks its tuple when the stream has stored it.
///
/// While `window` messages are under way, the bolt takes no more, which holds back the bolts and
/// spouts before it. A message that is not stored is published again under the same id, so an
/// outage of the brokers does not use up attempts. A message larger than the server takes is
/// rejected.
pub struct StreamSink<M> {
    sinks: StreamSinks<M>,
    /// Distinguishes the ids of this instance from those of all others.
    prefix: String,
    next: u64,
    held: HashMap<u64, Tuple<M>>,
    publishes: unbounded::UnboundedSender<Publish>,
    stored: mpsc::Receiver<Stored>,
}

/// A message for the I/O task, and when it is given up.
struct Publish {
    number: u64,
    outgoing: Outgoing,
    give_up_at: Option<Instant>,
}

/// The answer to a publish: which one, and why it was given up.
type Stored = (u64, Result<(), String>);

debug!(StreamSink<M>, |_it| "StreamSink");

impl<M: 'static> StreamSink<M> {
    fn settle(&mut self, (number, result): Stored, out: &mut BoltCollector<'_>) {
        let Some(tuple) = self.held.remove(&number) else {
            return;
        };
        match result {
            Ok(()) => out.ack(tuple),
            Err(why) => {
                out.report(&why);
                out.fail_with(tuple, why);
            }
        }
    }

    /// Encodes a message, and checks its size.
    fn encode(&self, message: &M, number: u64) -> Result<Outgoing, String> {
        let mut outgoing = (self.sinks.encode)(message)?;
        let id = outgoing.id.take();
        let id = id.unwrap_or_else(|| format!("{}-{number}", self.prefix));
        if id.chars().any(char::is_control) {
            return Err(format!("the id {id:?} is not one line"));
        }
        outgoing.headers.insert("Nats-Msg-Id", id);
        let headers = outgoing.headers.iter();
        let size: usize = headers
            .map(|(name, values)| {
                let name: &str = name.as_ref();
                let value = |value: &HeaderValue| name.len() + value.as_str().len() + 4;
                values.iter().map(value).sum::<usize>()
            })
            .sum();
        let (size, limit) =
            (size + 16 + outgoing.payload.len(), self.sinks.nats.client().max_payload());
        if size > limit {
            return Err(format!("the message has {size} bytes; the server takes {limit}"));
        }
        Ok(outgoing)
    }
}

impl<M: Send + 'static> Bolt<M> for StreamSink<M> {
    fn execute(&mut self, tuple: Tuple<M>, out: &mut BoltCollector<'_>) {
        let number = self.next;
        self.next += 1;
        let outgoing = match self.encode(tuple.message(), number) {
            Ok(outgoing) => outgoing,
            Err(why) => {
                out.report(&why);
                return out.reject(tuple, why);
            }
        };
        self.held.insert(number, tuple);
        let give_up_at = Instant::now().checked_add(self.sinks.give_up_after);
        // Without a runtime there is no I/O task: the tuple times out.
        let _ = self.publishes.send(Publish { number, outgoing, give_up_at });
    }

    fn is_ready(&self) -> bool {
        self.held.len() < self.sinks.window
    }

    fn woken(&mut self, out: &mut BoltCollector<'_>) {
        while let Ok(stored) = self.stored.try_recv() {
            self.settle(stored, out);
        }
    }
}

/// The I/O task of a bolt: publishes what it is sent, until the bolt has gone. Its bolt's window
/// bounds the messages under way.
async fn publisher(
    nats: Nats,
    mut asked: unbounded::UnboundedReceiver<Publish>,
    done: mpsc::Sender<Stored>,
    waker: Waker,
) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            publish = asked.recv() => match publish {
                Some(publish) => under_way.push(until_stored(&nats, publish)),
                None => return,
            },
            Some(stored) = under_way.next() => {
                // An error says that the bolt has gone.
                let _ = done.send(stored);
                waker.wake();
            }
        }
    }
}

/// Publishes a message until the stream has stored it.
async fn until_stored(nats: &Nats, publish: Publish) -> Stored {
    let Publish { number, outgoing, give_up_at } = publish;
    let payload = Bytes::from(outgoing.payload);
    loop {
        let (subject, headers) = (outgoing.subject.clone(), outgoing.headers.clone());
        match nats.store(subject, headers, payload.clone()).await {
            Ok(_) => return (number, Ok(())),
            Err(error) if give_up_at.is_some_and(|at| Instant::now() >= at) => {
                let why = format!("{:?} was not stored: {error}", outgoing.subject);
                return (number, Err(why));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
