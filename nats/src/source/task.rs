//! The I/O task of one spout: asks for messages, hands them over, and answers the broker.

use super::batch::{self, Pulled};
use super::{discard, Gauges, Incoming, MessageId, Messages, Outcome, Owned, Shared, DEAD, PULL};
use crate::base::{count, lock};
use crate::custody::{Action, Custody, Letter};
use crate::{clock, Held};
use async_nats::header::{HeaderMap, HeaderName, HeaderValue};
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::Consumer;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::{AckKind, Message};
use expiry_topology::Waker;
use futures_util::stream::{BoxStream, SelectAll, StreamExt};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long a request for messages stays at the broker.
const REQUEST: Duration = Duration::from_secs(2);
/// The most bytes of a message's subject and reply subject.
const ENVELOPE: usize = 16 << 10;
/// The pause after a request that failed.
const PAUSE: Duration = Duration::from_millis(250);
/// How often the task looks for messages to be reported in progress.
const TICK: Duration = Duration::from_millis(50);
/// The longest text of a failure in a dead letter, in bytes.
const LONGEST_REASON: usize = 1000;
/// The whole length of a payload that a dead letter has no room for.
const TRUNCATED: &str = "Expiry-Truncated";

pub(super) struct Task<M> {
    pub(super) shared: Arc<Shared<M>>,
    pub(super) custody: Custody<MessageId, Received>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) messages: Messages<M>,
    /// Weak, so that the task ends when its source and spouts are gone.
    pub(super) outcomes: mpsc::WeakUnboundedSender<Outcome>,
    /// The waker of the spout that asks for messages, if one does.
    pub(super) active: Option<Waker>,
    /// The inlets by partition. A source without partitions has one inlet, of none.
    pub(super) inlets: BTreeMap<Option<u32>, Inlet>,
    /// What the current requests bring.
    pub(super) batches: SelectAll<BoxStream<'static, (Tag, Pulled)>>,
    pub(super) requests: u64,
    pub(super) owned: watch::Receiver<Owned>,
    /// The task serves the partitions that have its number, modulo the number of tasks.
    pub(super) part: (usize, usize),
}

/// The inlet of a request, and the number of the request.
pub(super) type Tag = (Option<u32>, u64);

/// A consumer that the task asks for messages.
#[derive(Default)]
pub(super) struct Inlet {
    held: Option<Held>,
    /// Another worker is to have the partition.
    losing: bool,
    /// Known until a request for messages fails.
    consumer: Option<Consumer<Config>>,
    /// The latest request's number, whether it is under way, and the messages and bytes to come.
    request: u64,
    is_open: bool,
    asked: usize,
    asked_bytes: usize,
    /// The latest request has brought nothing.
    is_empty: bool,
    /// The next message did not fit into an empty request: the task asks for it alone.
    is_large: bool,
    /// The messages that its consumer has yet to deliver, as far as is known.
    waiting: u64,
    /// The earliest time of the next request.
    ask_at: Duration,
}

impl Inlet {
    fn may_ask(&self, now: Duration) -> bool {
        !self.is_open && !self.losing && now >= self.ask_at && !is_fenced(&self.held)
    }

    fn close(&mut self) {
        (self.is_open, self.asked, self.asked_bytes) = (false, 0, 0);
    }
}

/// A message that the task holds, and the owner of its partition.
pub(super) struct Received {
    message: Message,
    held: Option<Held>,
    gauges: Arc<Gauges>,
}

impl Drop for Received {
    fn drop(&mut self) {
        self.gauges.held_bytes.fetch_sub(self.message.length as u64, Ordering::Relaxed);
    }
}

impl Received {
    fn new(message: Message, held: Option<Held>, gauges: &Arc<Gauges>) -> Received {
        gauges.held_bytes.fetch_add(message.length as u64, Ordering::Relaxed);
        Received { message, held, gauges: gauges.clone() }
    }

    /// Answers the broker, if the worker may. What is lost is made up for by the next delivery.
    async fn answer(&self, kind: AckKind) {
        if !is_fenced(&self.held) {
            let _ = self.message.ack_with(kind).await;
        }
    }
}

/// Whether the worker does not own a partition any more.
fn is_fenced(held: &Option<Held>) -> bool {
    held.as_ref().is_some_and(|held| !held.may_act())
}

impl<M: Send + 'static> Task<M> {
    pub(super) async fn run(mut self, mut told: mpsc::UnboundedReceiver<Outcome>) {
        let mut tick = tokio::time::interval(TICK);
        let mut connects = self.connects();
        loop {
            self.ask().await;
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
                        self.end_requests();
                    }
                }
                Ok(()) = self.owned.changed() => {
                    self.own();
                    self.go_on().await;
                }
                Some((tag, pulled)) = self.batches.next() => self.pulled(tag, pulled).await,
                _ = tick.tick() => {
                    self.extend().await;
                    self.release();
                    // The brokers forget a request when its connection is lost.
                    let now = self.connects();
                    if std::mem::replace(&mut connects, now) != now {
                        self.end_requests();
                    }
                }
            }
            self.gauges.held.store(self.custody.len() as u64, Ordering::Relaxed);
            let waiting = self.inlets.values().map(|inlet| inlet.waiting).sum();
            self.gauges.waiting.store(waiting, Ordering::Relaxed);
        }
    }

    fn connects(&self) -> u64 {
        let statistics = self.shared.nats.client().statistics();
        statistics.connects.load(Ordering::Relaxed)
    }

    /// Opens and shuts inlets by what the worker owns. Forgets what came through a shut one.
    fn own(&mut self) {
        let owned = self.owned.borrow_and_update();
        let epoch = |partition| owned.get(&partition).map(|(held, _)| held.epoch());
        let is_gone = |held: &Option<Held>| {
            held.as_ref().is_some_and(|held| epoch(held.partition()) != Some(held.epoch()))
        };
        self.inlets.retain(|_, inlet| !is_gone(&inlet.held));
        self.custody.forget(|received| is_gone(&received.held));
        let (task, tasks) = self.part;
        let own = owned.iter().filter(|(partition, _)| **partition as usize % tasks == task);
        // The worker claims no partition anew that it is losing: the next tick has to release that,
        // also where the lease has run out.
        let own = own.filter(|(_, (held, losing))| *losing || held.may_act());
        for (partition, (held, losing)) in own {
            let inlet = self.inlets.entry(Some(*partition)).or_default();
            inlet.held.get_or_insert_with(|| held.clone());
            inlet.losing = *losing;
        }
    }

    /// Releases the partitions that the worker is losing and is done with.
    fn release(&mut self) {
        let custody = &mut self.custody;
        self.inlets.retain(|partition, inlet| {
            let is_own =
                |received: &Received| received.held.as_ref().map(Held::partition) == *partition;
            let is_idle = || !inlet.is_open && !custody.messages().any(is_own);
            let is_done = inlet.losing && (is_fenced(&inlet.held) || is_idle());
            if is_done {
                custody.forget(is_own);
                inlet.held.iter().for_each(Held::release);
            }
            !is_done
        });
    }

    fn end_requests(&mut self) {
        self.batches.clear();
        self.inlets.values_mut().for_each(Inlet::close);
    }

    /// Asks each inlet that has no request under way for as much as there is room for, the one that
    /// was asked the longest time ago first. A message that did not fit comes before all others,
    /// alone, when nothing else is held or asked for.
    async fn ask(&mut self) {
        let (now, options) = (clock::now(), &self.shared.options);
        let (window, window_bytes, inlets) =
            (options.window, options.window_bytes, self.inlets.len().max(1));
        let share = (window / inlets).max(1);
        // What the server takes today fits into each request, if it fits into the window.
        let largest = self.shared.nats.client().max_payload() + ENVELOPE;
        let at_least = |bytes: usize| bytes.max(largest).min(window_bytes);
        let share_bytes = at_least(window_bytes / inlets);
        while self.active.is_some() {
            let asked: usize = self.inlets.values().map(|inlet| inlet.asked).sum();
            let asked_bytes: usize = self.inlets.values().map(|inlet| inlet.asked_bytes).sum();
            let room = window.saturating_sub(self.custody.len() + asked).min(share);
            let used_bytes = self.gauges.held_bytes.load(Ordering::Relaxed) as usize + asked_bytes;
            let bytes = window_bytes.saturating_sub(used_bytes).min(share_bytes);
            let inlets = self.inlets.iter_mut().filter(|(_, inlet)| inlet.may_ask(now));
            let next = inlets.min_by_key(|(_, inlet)| (!inlet.is_large, inlet.request));
            // Few large requests: at least a quarter of a share.
            let next = next.filter(|(_, inlet)| match inlet.is_large {
                true => used_bytes == 0,
                false => room > 0 && room >= share / 4 && bytes >= at_least(share_bytes / 4),
            });
            let Some((&partition, inlet)) = next else { return };
            self.requests += 1;
            (inlet.request, inlet.is_open) = (self.requests, true);
            let tag = (partition, self.requests);
            let Some(consumer) = &inlet.consumer else {
                let Some(outcomes) = self.outcomes.upgrade() else { return };
                let shared = self.shared.clone();
                tokio::spawn(async move {
                    let made = Box::new(shared.consumer(partition).await);
                    let _ = outcomes.send(Outcome::Opened(tag, made)); // an error: the task ended
                });
                continue;
            };
            let lease = inlet.held.as_ref().map(|held| held.set().lease);
            let expires = lease.map_or(REQUEST, |lease| REQUEST.min(lease / 4));
            let (room, bytes, limit) = match inlet.is_large {
                true => (1, window_bytes, 0), // without a limit
                false => (room, bytes, bytes),
            };
            match batch::ask(&self.shared.nats, consumer, (room, limit), expires).await {
                Ok(batch) => {
                    (inlet.asked, inlet.asked_bytes, inlet.is_empty) = (room, bytes, true);
                    self.batches.push(batch.map(move |pulled| (tag, pulled)).boxed());
                    self.shared.note(PULL, None);
                }
                Err(why) => self.pull_failed(partition, why.to_string()),
            }
        }
    }

    /// The inlet of a request, while that is its latest one and under way.
    fn inlet(&mut self, (partition, request): Tag) -> Option<&mut Inlet> {
        let inlet = self.inlets.get_mut(&partition);
        inlet.filter(|inlet| inlet.is_open && inlet.request == request)
    }

    async fn pulled(&mut self, tag: Tag, pulled: Pulled) {
        let Some(inlet) = self.inlet(tag) else { return };
        match pulled {
            Pulled::Message(message) => {
                inlet.asked = inlet.asked.saturating_sub(1);
                inlet.asked_bytes = inlet.asked_bytes.saturating_sub(message.length);
                (inlet.is_empty, inlet.is_large) = (false, false);
                if inlet.asked_bytes == 0 {
                    inlet.close(); // the broker may not say so
                }
                inlet.waiting = message.info().map_or(0, |info| info.pending);
                let received = Received::new(message, inlet.held.clone(), &self.gauges);
                if !is_fenced(&received.held) {
                    self.delivered(received).await;
                }
            }
            // The consumer was deleted, or its leader has gone.
            Pulled::Failed(why) => self.pull_failed(tag.0, why),
            Pulled::Ended { is_too_small } => {
                inlet.is_large = is_too_small && inlet.is_empty;
                if inlet.asked > 0 && !is_too_small {
                    inlet.waiting = 0;
                }
                inlet.close();
            }
        }
    }

    /// A random time below this: what failed together does not come again together.
    fn jitter(&self, most: Duration) -> Duration {
        most / 1024 * u32::try_from(self.shared.nats.random() % 1024).unwrap_or(0)
    }

    /// The consumer is asked for again, and made again if an operator has deleted it.
    fn pull_failed(&mut self, partition: Option<u32>, why: String) {
        count(&self.shared.counts.pull_errors);
        self.shared.note(PULL, Some(why));
        let ask_at = clock::now() + PAUSE + self.jitter(PAUSE);
        if let Some(inlet) = self.inlets.get_mut(&partition) {
            inlet.close();
            (inlet.consumer, inlet.ask_at) = (None, ask_at);
        }
    }

    async fn delivered(&mut self, received: Received) {
        let Ok(info) = received.message.info() else { return };
        let id = MessageId {
            sequence: info.stream_sequence,
            published: info.published.unix_timestamp_nanos(),
            epoch: received.held.as_ref().map(Held::epoch),
        };
        let deliveries = info.delivered.unsigned_abs();
        let counts = &self.shared.counts;
        count(&counts.delivered);
        let held = self.custody.message(id).is_some();
        let action = self.custody.deliver(clock::now(), id, deliveries, received);
        if held && action.is_none() {
            count(&counts.redelivered_held);
        }
        self.act(action).await;
        self.go_on().await;
    }

    /// Does what the custody wants done, until it wants nothing or the spout is not active.
    async fn go_on(&mut self) {
        while self.active.is_some() {
            let Some(action) = self.custody.next_step() else { return };
            self.act(Some(action)).await;
        }
        self.give_back().await;
    }

    /// Gives back what the spout, which is not active, has not taken.
    async fn give_back(&mut self) {
        let given = std::mem::take(&mut *lock(&self.messages));
        let unused = given.into_iter().map(|(id, message, _)| {
            discard(message);
            id
        });
        for message in self.custody.take_unused(unused) {
            message.answer(AckKind::Nak(None)).await;
        }
    }

    async fn act(&mut self, mut action: Option<Action<MessageId, Received>>) {
        let counts = &self.shared.clone().counts;
        while let Some(one) = action.take() {
            match one {
                Action::Give(id) => action = self.give(id),
                Action::Bury(id) => self.bury(id),
                Action::AckAgain(message) => {
                    count(&counts.acked_again);
                    message.answer(AckKind::Ack).await;
                }
                Action::Nak(message, pause) => {
                    count(&counts.naks);
                    let pause = pause + self.jitter(pause / 5);
                    message.answer(AckKind::Nak(Some(pause))).await;
                }
                Action::Term(message) => {
                    count(&counts.dead);
                    message.answer(AckKind::Term).await;
                }
            }
        }
    }

    /// Decodes a message and gives it to the topology.
    fn give(&mut self, id: MessageId) -> Option<Action<MessageId, Received>> {
        let (Received { message, held, .. }, deliveries) = self.custody.message(id)?;
        let incoming = Incoming {
            subject: &message.subject,
            sequence: id.sequence,
            deliveries,
            payload: &message.payload,
            headers: message.headers.as_ref(),
        };
        let decoded = self.shared.decode(&incoming, held.as_ref());
        match decoded {
            Ok(decoded) => {
                lock(&self.messages).push_back((id, decoded, held.clone()));
                self.active.iter().for_each(Waker::wake);
                None
            }
            Err(why) => self.custody.failed(id, &format!("it does not decode: {why}"), None),
        }
    }

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
        if let Outcome::Acked(id) | Outcome::Failed(id, ..) = &outcome {
            let held = self.custody.message(*id);
            if held.is_some_and(|(received, _)| is_fenced(&received.held)) {
                return;
            }
        }
        match outcome {
            Outcome::Acked(id) => {
                if let Some((message, letter)) = self.custody.acked(id) {
                    count(&shared.counts.acked);
                    message.answer(AckKind::Ack).await;
                    letter.into_iter().for_each(|letter| self.unbury(letter));
                }
            }
            Outcome::Failed(id, why, is_hopeless) => {
                let fails_for = (!is_hopeless).then(|| shared.fails_for(id));
                let action = self.custody.failed(id, &why, fails_for);
                self.act(action).await;
            }
            Outcome::Active(active) => self.active = active,
            Outcome::Opened(tag, made) => {
                let Some(inlet) = self.inlet(tag) else { return };
                match *made {
                    Ok(consumer) => (inlet.consumer, inlet.is_open) = (Some(consumer), false),
                    Err(why) => self.pull_failed(tag.0, why.to_string()),
                }
            }
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
                self.give_back().await;
                for message in self.custody.take_all() {
                    message.answer(AckKind::Nak(None)).await;
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
            message.answer(AckKind::Progress).await;
        }
        if let Some(id) = self.custody.next_burial(now) {
            self.bury(id);
        }
    }

    /// Publishes a dead letter. The message leaves the consumer only when the letter is stored.
    fn bury(&self, id: MessageId) {
        let Some((Received { message, .. }, deliveries, why)) = self.custody.letter(id) else {
            return;
        };
        let options = &self.shared.options;
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
        headers.insert("Nats-Msg-Id", id.name(&options.source()));
        headers.insert("Expiry-Stream", options.stream.as_str());
        headers.insert("Expiry-Sequence", id.sequence.to_string());
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
