//! What an owner writes in its partition and reads there.

use super::{last_of_each, Shared, Told, MOST_RECORDS, PAUSE};
use crate::base::debug;
use crate::message::{decoded, header, token, EXPECTED};
use crate::ownership::Event;
use crate::{clock, Loss, NatsError, PartitionSet};
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{publish::PublishAck, ErrorCode};
use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Marks the record of a key that was deleted, until the server forgets it.
const DELETED: &str = "Expiry-Deleted";

/// A partition that the worker owns, under one epoch. A clone is the same.
#[derive(Clone)]
pub struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) partition: u32,
    pub(super) epoch: u64,
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

    /// Claims the partition again, under a new epoch. The new epoch defeats every write of this one
    /// that has no answer and may still be on its way. Wait for the
    /// [`Gained`](crate::Change::Gained) or [`Lost`](crate::Change::Lost) that follows. Nothing
    /// happens where either has come since, or [`Losing`](crate::Change::Losing) has: after that,
    /// call [`release`](crate::Partitions::release).
    pub fn claim_anew(&self) {
        let (partition, epoch) = (self.partition, self.epoch);
        let _ = self.shared.tell.send(Told::Asked(Event::Doubted { partition, epoch }));
    }

    /// Ends the worker's part in the set: it cannot read what a later version has written.
    pub(crate) fn refuse(&self, version: u32) {
        let _ = self.shared.tell.send(Told::Failed(self.shared.set.too_new(version)));
    }

    /// [`release`](crate::Partitions::release) of this partition.
    #[cfg(feature = "topology")]
    pub(crate) fn release(&self) {
        let _ = self.shared.tell.send(Told::Asked(Event::Released { partition: self.partition }));
    }

    pub(crate) fn set(&self) -> &PartitionSet {
        &self.shared.set
    }

    fn fenced(&self, why: Loss) -> NatsError {
        let (partition, epoch) = (self.partition, self.epoch);
        NatsError::Fenced { partition, epoch, why }
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
    /// [`Fenced`](NatsError::Fenced): another worker has claimed the partition, or may have, and
    /// nothing was written. [`Setting`](NatsError::Setting): too many records, a key or a value too
    /// long. After any other error the write may still be on its way. Writing the same again is
    /// harmless.
    /// Before writing something else to its keys, call [`claim_anew`](Self::claim_anew) and wait
    /// for the change: else the earlier write may land last.
    pub async fn write<K: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<(), NatsError> {
        self.write_numbered(records).await.map(drop)
    }

    /// `write`, which returns the stream sequence of the last record; a batch's are consecutive.
    pub(crate) async fn write_numbered<K: AsRef<[u8]>>(
        &self,
        records: impl IntoIterator<Item = (K, Option<Bytes>)>,
    ) -> Result<u64, NatsError> {
        let messages = self.messages(records)?;
        let held = self.clone();
        // A batch that is cut off would stay with the server for ten seconds, among its 50.
        let task = tokio::spawn(async move { held.store(&messages).await });
        task.await.unwrap_or_else(|error| Err(NatsError::refused(WRITE, &error)))
    }

    /// Sends messages, again while the server has too many batches of other workers.
    async fn store(&self, messages: &[(String, HeaderMap, Bytes)]) -> Result<u64, NatsError> {
        let _one = self.shared.writing[self.partition as usize].lock().await;
        let _batch = self.shared.batches.acquire().await;
        let began = Instant::now();
        loop {
            if !self.may_act() {
                return Err(self.fenced(self.shared.machine().loss(clock::now())));
            }
            match self.send(messages.to_vec()).await? {
                Some(last) => return Ok(last),
                None if began.elapsed() < self.patience() => tokio::time::sleep(PAUSE).await,
                None => return Err(NatsError::refused(WRITE, &"too many batches are under way")),
            }
        }
    }

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
                sent.map_err(|error| NatsError::refused(WRITE, &error))?;
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
                Ok(Response::Err { error }) => match error.error_code() {
                    ErrorCode::ATOMIC_PUBLISH_INCOMPLETE_BATCH => Ok(None),
                    // The codes of one message and of a batch: the fence has another sequence.
                    ErrorCode::STREAM_WRONG_LAST_SEQUENCE
                    | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => {
                        Err(self.fenced(Loss::Claimed))
                    }
                    _ => Err(NatsError::refused(WRITE, &error)),
                },
                Err(error) => Err(NatsError::refused(WRITE, &error)),
            };
        }
        Ok(Some(0))
    }

    /// Reads everything that this and earlier owners have written: the key and the value of each
    /// record that is not deleted.
    ///
    /// # Errors
    ///
    /// [`Fenced`](NatsError::Fenced); [`Unanswered`](NatsError::Unanswered): the brokers have not
    /// shown all for 4 times the request timeout.
    pub async fn load(&self) -> Result<BTreeMap<Vec<u8>, Bytes>, NatsError> {
        let records = self.load_numbered().await?;
        let live = records.into_iter().filter_map(|(key, (_, value))| Some((key, value?)));
        Ok(live.collect())
    }

    /// `load` with each record's stream sequence, and with what was deleted in the last minute.
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
                    return (info.stream_sequence > self.epoch)
                        .then(|| Err(self.fenced(Loss::Claimed)));
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

#[cfg(test)]
#[path = "../../tests/unit/partitions.rs"]
mod tests;
