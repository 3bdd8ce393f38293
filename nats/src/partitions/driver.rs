//! Carries out the actions of [`Ownership`] on NATS, and reports to it what the brokers say.
//!
//! One task owns the dialogue. Requests run as tasks of their own, each with a time limit, and so
//! does the watch; all of them report to the one task through a channel. A watch that ends, for
//! whatever reason, reports that, and the machine asks for a new one. A watch that finds a stream
//! made anew reports that too. The stream's sequences began again, so the worker loses everything
//! and begins anew, with a new `incarnation`.

use super::{last_of_each, Change, Held, Shared};
use super::{OWNER, READS, VERSION};
use crate::base::{count, ticks, Task};
use crate::message::{header, EXPECTED, INCARNATION};
use crate::ownership::{beat_life, Action, Event};
use crate::{clock, Loss, NatsError};
use async_nats::jetstream::stream::Stream;
use async_nats::{HeaderMap, HeaderValue};
use bytes::Bytes;
use futures_util::StreamExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const BEAT: &str = "Expiry-Beat";
const LEAVING: &str = "Expiry-Leaving";

/// What the other tasks report to this one.
pub(super) enum Told {
    /// An answer to a request of this `incarnation`.
    Answer(u64, Event),
    /// The watch of this number shows something.
    Watch(u64, Event),
    /// The watch of this number found a stream made anew.
    Anew(u64),
    /// What the worker asks for.
    Asked(Event),
    /// The worker cannot go on.
    Failed(NatsError),
}

type Joined = oneshot::Sender<Result<(), NatsError>>;

pub(super) struct Driver {
    pub(super) shared: Arc<Shared>,
    pub(super) streams: [Stream; 2],
    pub(super) changes: mpsc::UnboundedSender<Change>,
    pub(super) joined: Option<Joined>,
    /// The number of the current watch, and its task.
    pub(super) watch: u64,
    pub(super) watching: Option<Task>,
    pub(super) leaving: bool,
    pub(super) ended: bool,
}

impl Driver {
    pub(super) async fn run(mut self, mut told: mpsc::UnboundedReceiver<Told>) {
        let mut ticks = ticks((self.shared.set.lease / 16).min(Duration::from_secs(1)));
        self.give(Event::Start);
        while !self.ended {
            let told = tokio::select! {
                told = told.recv() => told.expect("this task has a sender"),
                _ = ticks.tick() => {
                    self.give(Event::Tick);
                    continue;
                }
            };
            match told {
                Told::Answer(incarnation, event) => {
                    if incarnation == self.shared.machine().incarnation() {
                        self.give(event);
                    }
                }
                Told::Watch(number, event) if number == self.watch => {
                    let is_synced = matches!(event, Event::Synced);
                    self.give(event);
                    if is_synced {
                        self.give(Event::Tick); // the first beat need not wait
                    }
                }
                Told::Anew(number) if number == self.watch => self.begin_anew().await,
                Told::Watch(..) | Told::Anew(_) => {}
                Told::Failed(error) => self.end(error),
                Told::Asked(event) => {
                    self.leaving |= matches!(event, Event::Leave);
                    self.give(event);
                }
            }
        }
    }

    /// The streams were made anew, or have to be: the worker loses everything.
    async fn begin_anew(&mut self) {
        match self.shared.set.open().await {
            Ok(streams) => self.streams = streams,
            Err(error @ NatsError::OtherTerms { .. }) => return self.end(error),
            // The watch fails once more, and finds the same.
            Err(_) => count(&self.shared.counts.failures),
        }
        self.abandon(Loss::Deleted);
        *self.shared.machine() = self.shared.set.machine(true);
        self.give(Event::Start);
        if self.leaving {
            self.give(Event::Leave);
        }
    }

    fn give(&mut self, event: Event) {
        match &event {
            Event::Beaten { revision: Some(_), .. } => count(&self.shared.counts.beats),
            Event::Beaten { .. } | Event::Claimed { revision: None, .. } => {
                count(&self.shared.counts.failures);
            }
            _ => {}
        }
        let beats = matches!(event, Event::Beaten { revision: Some(_), .. });
        let mut actions = Vec::new();
        self.shared.machine().on(clock::now(), event, &mut actions);
        if beats {
            self.answer_join(Ok(()));
        }
        actions.into_iter().for_each(|action| self.act(action));
    }

    fn answer_join(&mut self, answer: Result<(), NatsError>) -> bool {
        self.joined.take().is_some_and(|joined| joined.send(answer).is_ok())
    }

    fn change(&self, change: Change) {
        // An error says that the user has dropped the receiver: this task is about to be aborted.
        let _ = self.changes.send(change);
    }

    fn abandon(&self, why: Loss) {
        let lost = self.shared.machine().abandon();
        lost.into_iter().for_each(|partition| self.change(Change::Lost(partition, why)));
    }

    fn end(&mut self, error: NatsError) {
        self.ended = true;
        self.abandon(Loss::Ended);
        if !self.answer_join(Err(error.clone())) {
            self.change(Change::Ended(error));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Resync => self.watch_anew(),
            Action::SendBeat { expected, beat, leaving, sent_at } => {
                self.beat(expected, beat, leaving, sent_at)
            }
            Action::Claim { partition, expected } => {
                self.claim(partition, expected, self.shared.set.nats.worker())
            }
            Action::GiveUp { partition, expected } => self.claim(partition, expected, ""),
            Action::Gained { partition, epoch } => {
                self.change(Change::Gained(Held { shared: self.shared.clone(), partition, epoch }))
            }
            Action::Losing { partition } => self.change(Change::Losing(partition)),
            Action::Lost { partition } => self.change(Change::Lost(partition, Loss::Claimed)),
            Action::Left => self.ended = true,
            Action::NameTaken => {
                let worker = self.shared.set.nats.worker().to_string();
                self.end(NatsError::NameTaken { worker });
            }
        }
    }

    /// Writes a message, if its subject's last sequence is the expected one, in a task of its own.
    fn swap(
        &self,
        subject: String,
        expected: u64,
        headers: impl IntoIterator<Item = (&'static str, HeaderValue)>,
        event: impl FnOnce(Option<u64>) -> Event + Send + 'static,
    ) {
        let mut all = HeaderMap::new();
        all.insert(EXPECTED, expected.to_string());
        all.insert(VERSION, READS.to_string());
        all.insert(INCARNATION, self.shared.machine().incarnation().to_string());
        headers.into_iter().for_each(|(name, value)| all.insert(name, value));
        let (shared, incarnation) = (self.shared.clone(), self.shared.machine().incarnation());
        tokio::spawn(async move {
            let stored = shared.set.nats.store(subject, all, Bytes::new());
            let stored = tokio::time::timeout(shared.set.lease / 2, stored).await;
            let event = event(stored.ok().and_then(Result::ok).map(|ack| ack.sequence));
            let _ = shared.tell.send(Told::Answer(incarnation, event));
        });
    }

    fn beat(&self, expected: u64, beat: u64, leaving: bool, sent_at: Duration) {
        let set = &self.shared.set;
        let subject = set.subject(format_args!("beat.{}", set.nats.worker()));
        let life = HeaderValue::from(format!("{}s", beat_life(set.lease).as_secs()));
        let headers =
            [(BEAT, beat.into()), (LEAVING, u64::from(leaving).into()), ("Nats-TTL", life)];
        self.swap(subject, expected, headers, move |revision| Event::Beaten { sent_at, revision });
    }

    fn claim(&self, partition: u32, expected: u64, owner: &str) {
        count(&self.shared.counts.claims);
        let subject = self.shared.set.record(partition);
        let event = move |revision| Event::Claimed { partition, revision };
        self.swap(subject, expected, [(OWNER, owner.into())], event);
    }

    fn watch_anew(&mut self) {
        count(&self.shared.counts.watches);
        self.watch += 1;
        let (shared, streams) = (self.shared.clone(), self.streams.clone());
        let (tell, number) = (self.shared.tell.clone(), self.watch);
        let watch = async move {
            let show = |event| drop(tell.send(Told::Watch(number, event)));
            let is_anew = is_anew(&shared, &streams).await;
            if is_anew == Some(false) {
                if let Some(version) = watch(&shared, &streams, &show).await {
                    return drop(tell.send(Told::Failed(shared.set.too_new(version))));
                }
            }
            // What fails at once is not tried at once.
            tokio::time::sleep(shared.set.lease / 16).await;
            match is_anew {
                Some(true) => drop(tell.send(Told::Anew(number))),
                _ => show(Event::WatchLost),
            }
        };
        self.watching = Some(Task::new(watch));
    }
}

/// Whether a stream was made anew. None: there is no answer.
async fn is_anew(shared: &Shared, known: &[Stream; 2]) -> Option<bool> {
    for known in known.iter().map(Stream::cached_info) {
        match shared.set.nats.context().get_stream(&known.config.name).await {
            Ok(found) if found.cached_info().created == known.created => {}
            Ok(_) => return Some(true),
            Err(error) => return super::is_missing(&error).then_some(true),
        }
    }
    Some(false)
}

/// Shows the records and the beats, until one has a version that this crate does not read, which it
/// returns. None: something failed.
async fn watch(shared: &Shared, streams: &[Stream; 2], show: impl Fn(Event)) -> Option<u32> {
    let set = &shared.set;
    let heartbeat = (set.lease / 4).min(Duration::from_secs(5));
    let records = last_of_each(&streams[0], vec![set.record("*")], heartbeat);
    let beats = last_of_each(&streams[1], vec![set.subject("beat.*")], heartbeat);
    let (records, beats) = tokio::join!(records, beats);
    let ((mut records, records_left), (mut beats, beats_left)) = (records?, beats?);
    let mut left = [records_left, beats_left];
    let mut expected = [1, 1];
    let mut synced = false;
    let own = set.nats.worker();
    let mut own_seen = tokio::time::Instant::now();
    loop {
        if !synced && left == [0, 0] {
            synced = true;
            show(Event::Synced);
        }
        let (which, message) = tokio::select! {
            message = records.next() => (0, message),
            message = beats.next() => (1, message),
            () = tokio::time::sleep_until(own_seen + set.lease) => return None,
        };
        let message = message?.ok()?;
        let info = message.info().ok()?;
        if info.consumer_sequence != expected[which] {
            return None;
        }
        expected[which] += 1;
        left[which] = left[which].min(info.pending);
        let version = header(&message.headers, VERSION).and_then(|text| text.parse().ok());
        if version.is_some_and(|version| version > READS) {
            return version;
        }
        let last = message.subject.rsplit('.').next().unwrap_or_default();
        if which == 0 {
            if let Ok(partition) = last.parse() {
                show(record(partition, &message.headers, info.stream_sequence));
            }
        } else {
            if last == own {
                own_seen = tokio::time::Instant::now();
            }
            let number = |name| header(&message.headers, name).and_then(|text| text.parse().ok());
            if let (Some(incarnation), Some(beat)) = (number(INCARNATION), number(BEAT)) {
                show(Event::Watched {
                    worker: last.to_string(),
                    incarnation,
                    beat,
                    leaving: number(LEAVING) == Some(1),
                    revision: info.stream_sequence,
                });
            }
        }
    }
}

/// A record as the machine knows it. One that does not parse has no owner, and may be claimed.
fn record(partition: u32, headers: &Option<HeaderMap>, revision: u64) -> Event {
    let owner = header(headers, OWNER).filter(|owner| !owner.is_empty());
    let incarnation = header(headers, INCARNATION).and_then(|text| text.parse().ok());
    Event::Record {
        partition,
        owner: owner.map(String::from),
        incarnation: incarnation.unwrap_or(0),
        revision,
    }
}
