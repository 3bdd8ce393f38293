//! The I/O task of one spout: asks for messages, hands them over, and answers the broker.

use super::{Incoming, MessageId, Outcome, Shared, DEAD, PULL};
use crate::base::count;
use crate::clock;
use crate::custody::{Action, Custody, Letter};
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use async_nats::jetstream::consumer::pull::{Batch, Config};
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{AckKind, Message};
use expiry_topology::Waker;
use futures_util::StreamExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a request for messages stays at the broker.
const REQUEST: Duration = Duration::from_secs(2);
/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(250);
/// How often the task looks for messages to be reported in progress.
const TICK: Duration = Duration::from_millis(50);
/// The longest text of a failure in a dead letter, in bytes.
const LONGEST_REASON: usize = 1000;
/// The whole length of a payload that a dead letter has no room for.
const TRUNCATED: &str = "Expiry-Truncated";

/// The I/O task of one spout.
pub(super) struct Task<M> {
    pub(super) shared: Arc<Shared<M>>,
    pub(super) custody: Custody<MessageId, Message>,
    pub(super) held: Arc<AtomicU64>,
    pub(super) give: mpsc::UnboundedSender<(MessageId, M)>,
    /// Weak, so that the task ends when its source and spouts are gone.
    pub(super) outcomes: mpsc::WeakUnboundedSender<Outcome>,
    /// The waker of the spout that asks for messages, if one does.
    pub(super) active: Option<Waker>,
    /// Known until a request for messages fails.
    pub(super) consumer: Option<Consumer<Config>>,
    /// The current request for messages, and the earliest time of the next one.
    pub(super) batch: Option<Batch>,
    pub(super) ask_at: Duration,
}

impl<M: Send + 'static> Task<M> {
    pub(super) async fn run(mut self, mut told: mpsc::UnboundedReceiver<Outcome>) {
        let mut tick = tokio::time::interval(TICK);
        let mut connects = self.connects();
        loop {
            let window = self.shared.options.window;
            let room = window.saturating_sub(self.custody.len());
            // Few large requests: at least a quarter of the window.
            let is_worth = room > 0 && room >= window / 4;
            if self.batch.is_none()
                && self.active.is_some()
                && is_worth
                && clock::now() >= self.ask_at
            {
                match self.ask(room).await {
                    Ok(batch) => {
                        self.shared.note(PULL, None);
                        self.batch = Some(batch);
                    }
                    Err(why) => self.pull_failed(why),
                }
            }
            tokio::select! {
                outcome = told.recv() => {
                    let Some(mut outcome) = outcome else { return };
                    loop {
                        self.settle(outcome).await;
                        self.go_on().await;
                        let Ok(next) = told.try_recv() else { break };
                        outcome = next;
                    }
                    if self.active.is_none() {
                        self.batch = None;
                    }
                }
                message = next_of(&mut self.batch) => match message {
                    Some(Ok(message)) => self.delivered(message).await,
                    // The consumer was deleted, or its leader has gone.
                    Some(Err(error)) => self.pull_failed(error.to_string()),
                    None => self.batch = None,
                },
                _ = tick.tick() => {
                    self.extend().await;
                    // The brokers forget a request when its connection is lost.
                    let now = self.connects();
                    if std::mem::replace(&mut connects, now) != now {
                        self.batch = None;
                    }
                }
            }
            self.held.store(self.custody.len() as u64, Ordering::Relaxed);
        }
    }

    fn connects(&self) -> u64 {
        let statistics = self.shared.nats.client().statistics();
        statistics.connects.load(Ordering::Relaxed)
    }

    /// Asks for so many messages.
    async fn ask(&mut self, room: usize) -> Result<Batch, String> {
        let consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => self.shared.consumer().await.map_err(|error| error.to_string())?,
        };
        let batch = consumer.batch().max_messages(room).expires(REQUEST).messages().await;
        self.consumer = Some(consumer);
        batch.map_err(|error| error.to_string())
    }

    /// The consumer is asked for again, and made again if an operator has deleted it.
    fn pull_failed(&mut self, why: String) {
        count(&self.shared.counts.pull_errors);
        self.shared.note(PULL, Some(why));
        (self.consumer, self.batch, self.ask_at) = (None, None, clock::now() + PAUSE);
    }

    async fn delivered(&mut self, message: Message) {
        let Ok(info) = message.info() else { return };
        let id = MessageId {
            sequence: info.stream_sequence,
            published: info.published.unix_timestamp_nanos(),
        };
        let deliveries = info.delivered.unsigned_abs();
        let counts = &self.shared.counts;
        count(&counts.delivered);
        let held = self.custody.message(id).is_some();
        let action = self.custody.deliver(clock::now(), id, deliveries, message);
        if held && action.is_none() {
            count(&counts.redelivered_held);
        }
        self.act(action).await;
        self.go_on().await;
    }

    /// Does what the custody wants done, until it wants nothing.
    async fn go_on(&mut self) {
        while let Some(action) = self.custody.next_step() {
            self.act(Some(action)).await;
        }
    }

    async fn act(&mut self, mut action: Option<Action<MessageId, Message>>) {
        let counts = &self.shared.clone().counts;
        while let Some(one) = action.take() {
            match one {
                Action::Give(id) => action = self.give(id),
                Action::Bury(id) => self.bury(id),
                Action::AckAgain(message) => {
                    count(&counts.acked_again);
                    answer(&message, AckKind::Ack).await;
                }
                Action::Nak(message, pause) => {
                    count(&counts.naks);
                    // Up to a fifth longer: what failed together does not come again together.
                    let part = u32::try_from(self.shared.nats.random() % 1024).unwrap_or(0);
                    let pause = pause + pause / 5120 * part;
                    answer(&message, AckKind::Nak(Some(pause))).await;
                }
                Action::Term(message) => {
                    count(&counts.dead);
                    answer(&message, AckKind::Term).await;
                }
            }
        }
    }

    /// Decodes a message and gives it to the topology.
    fn give(&mut self, id: MessageId) -> Option<Action<MessageId, Message>> {
        let (message, deliveries) = self.custody.message(id)?;
        let decoded = self.shared.decode(&Incoming {
            subject: &message.subject,
            sequence: id.sequence,
            deliveries,
            payload: &message.payload,
            headers: message.headers.as_ref(),
        });
        match decoded {
            Ok(decoded) => {
                let _ = self.give.send((id, decoded));
                self.active.iter().for_each(Waker::wake);
                None
            }
            Err(why) => self.custody.failed(id, &format!("it does not decode: {why}"), true),
        }
    }

    /// Takes a dead letter back.
    fn unbury(&self, letter: Letter) {
        let context = self.shared.nats.context().clone();
        tokio::spawn(async move {
            // A letter that stays is one of a message that was done: an operator may see it.
            if let Ok(stream) = context.get_stream_no_info(&letter.stream).await {
                let _ = stream.delete_message(letter.sequence).await;
            }
        });
    }

    async fn settle(&mut self, outcome: Outcome) {
        let shared = self.shared.clone();
        match outcome {
            Outcome::Acked(id) => {
                if let Some((message, letter)) = self.custody.acked(id) {
                    count(&shared.counts.acked);
                    answer(&message, AckKind::Ack).await;
                    letter.into_iter().for_each(|letter| self.unbury(letter));
                }
            }
            Outcome::Failed(id, why, is_hopeless) => {
                let action = self.custody.failed(id, &why, is_hopeless);
                self.act(action).await;
            }
            Outcome::Unused(id) => {
                if let Some(message) = self.custody.take_back(id) {
                    answer(&message, AckKind::Nak(None)).await;
                }
            }
            Outcome::Active(active) => self.active = active,
            Outcome::Buried(id, Ok((letter, before))) => {
                shared.note(DEAD, None);
                let action = self.custody.stored(id, letter, before);
                self.act(action).await;
            }
            Outcome::Buried(id, Err(why)) => {
                shared.note(DEAD, Some(format!("the dead letter of {id:?}: {why}")));
                count(&shared.counts.dead_refused);
                use PublishErrorKind::{MaxPayloadExceeded, Other, StreamNotFound};
                let is_refused = matches!(why.kind(), MaxPayloadExceeded | Other | StreamNotFound);
                for action in self.custody.not_stored(clock::now(), id, !is_refused) {
                    self.act(Some(action)).await;
                }
            }
            Outcome::Close(done) => {
                self.active = None;
                for message in self.custody.take_all() {
                    answer(&message, AckKind::Nak(None)).await;
                }
                let _ = shared.nats.client().flush().await;
                let _ = done.send(());
            }
        }
    }

    async fn extend(&mut self) {
        let now = clock::now();
        while let Some(message) = self.custody.next_extension(now) {
            count(&self.shared.counts.in_progress);
            answer(message, AckKind::Progress).await;
        }
        if let Some(id) = self.custody.next_burial(now) {
            self.bury(id);
        }
    }

    /// Publishes a dead letter. The message leaves the consumer only when the letter is stored.
    fn bury(&self, id: MessageId) {
        let Some((message, deliveries, why)) = self.custody.letter(id) else {
            return;
        };
        let stream = &self.shared.options.stream;
        let mut headers = HeaderMap::new();
        let original = message.headers.iter().flat_map(HeaderMap::iter);
        // The server would act on headers of its own.
        for (name, values) in
            original.filter(|(name, _)| !AsRef::<str>::as_ref(*name).starts_with("Nats-"))
        {
            for value in values {
                headers.append(name.clone(), value.clone());
            }
        }
        let MessageId { sequence, published } = id;
        headers.insert("Nats-Msg-Id", format!("{stream}-{sequence}-{published}"));
        headers.insert("Expiry-Stream", stream.as_str());
        headers.insert("Expiry-Sequence", sequence.to_string());
        headers.insert("Expiry-Subject", message.subject.as_str());
        headers.insert("Expiry-Deliveries", deliveries.to_string());
        headers.insert("Expiry-Reason", one_line(why));
        let Some(outcomes) = self.outcomes.upgrade() else {
            return;
        };
        let nats = self.shared.nats.clone();
        let (subject, mut payload) = (self.shared.dead_letters.clone(), message.payload.clone());
        let room =
            nats.client().max_payload().saturating_sub(size(&headers) + TRUNCATED.len() + 24);
        if payload.len() > room {
            headers.insert(TRUNCATED, payload.len().to_string());
            payload.truncate(room);
        }
        tokio::spawn(async move {
            let stored = nats.store(subject, headers, payload).await;
            let stored = stored.map(|PublishAck { stream, sequence, duplicate, .. }| {
                (Letter { stream, sequence }, duplicate)
            });
            let _ = outcomes.send(Outcome::Buried(id, stored));
        });
    }
}

/// Waits for ever if there is no batch.
async fn next_of(batch: &mut Option<Batch>) -> Option<Result<Message, async_nats::Error>> {
    match batch {
        Some(batch) => batch.next().await,
        None => std::future::pending().await,
    }
}

/// Sends an answer. One that is lost is made up for by the next delivery.
async fn answer(message: &Message, kind: AckKind) {
    let _ = message.ack_with(kind).await;
}

/// The bytes of headers as they are sent.
fn size(headers: &HeaderMap) -> usize {
    let of = |(name, values): (&HeaderName, &Vec<HeaderValue>)| -> usize {
        let name: &str = name.as_ref();
        values.iter().map(|value| name.len() + value.as_str().len() + 4).sum()
    };
    headers.iter().map(of).sum::<usize>() + "NATS/1.0\r\n\r\n".len()
}

/// A reason as the value of a header: one line, cut to [`LONGEST_REASON`].
fn one_line(why: &str) -> HeaderValue {
    let end = (0..=LONGEST_REASON.min(why.len())).rev().find(|end| why.is_char_boundary(*end));
    let line: String =
        why[..end.unwrap_or(0)].chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    HeaderValue::from(line)
}
