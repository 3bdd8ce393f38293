//! A stream with subjects for each key: what idempotency keys and timers share.

use crate::{Nats, NatsError};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Config, DeleteMessageErrorKind as Kind};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, StorageType, Stream};
use async_nats::jetstream::ErrorCode;
use std::fmt;

/// A set of keys. `APP+NAME+KIND` is its stream, and `APP.KIND.NAME.` begins its subjects.
#[derive(Debug, Clone)]
pub(crate) struct Keyed {
    pub(crate) nats: Nats,
    kind: &'static str,
    name: String,
    pub(crate) replicas: usize,
}

impl Keyed {
    pub(crate) fn new(nats: &Nats, kind: &'static str, name: &str) -> Self {
        Keyed { nats: nats.clone(), kind, name: name.to_string(), replicas: 3 }
    }

    pub(crate) fn stream(&self) -> String {
        format!("{}+{}+{}", self.nats.app(), self.name, self.kind)
    }

    pub(crate) fn subject(&self, rest: impl fmt::Display) -> String {
        format!("{}.{}.{}.{rest}", self.nats.app(), self.kind, self.name)
    }

    /// Opens the stream, and creates it if it does not exist.
    pub(crate) async fn open(&self, subjects: &[&str], config: Config) -> Result<(), NatsError> {
        NatsError::name("set", &self.name)?;
        NatsError::replicas(self.replicas)?;
        let config = Config {
            name: self.stream(),
            subjects: subjects.iter().map(|rest| self.subject(rest)).collect(),
            storage: StorageType::File,
            num_replicas: self.replicas,
            ..config
        };
        self.nats.patiently(|| self.nats.open_stream(config.clone())).await.map(drop)
    }

    /// Checks that the server takes a payload beside its headers.
    pub(crate) fn fits(&self, payload: &[u8]) -> Result<(), NatsError> {
        self.nats.fits(payload, 2048, "2,048 bytes less than `max_payload`")
    }

    pub(crate) async fn handle(&self) -> Result<Stream<()>, NatsError> {
        let stream = self.nats.context().get_stream_no_info(self.stream()).await;
        stream.map_err(|error| NatsError::refused("a set of keys", &error))
    }

    /// The last message of a subject. The stream's leader answers.
    pub(crate) async fn last(&self, subject: &str) -> Result<Option<StreamMessage>, NatsError> {
        match self.handle().await?.get_last_raw_message_by_subject(subject).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(_) => Err(self.nats.unanswered("read a key")),
        }
    }

    /// Deletes a message. It returns false if the message is not there.
    pub(crate) async fn delete(&self, sequence: u64) -> Result<bool, NatsError> {
        let missing = [
            ErrorCode::SEQUENCE_NOT_FOUND,
            ErrorCode::NO_MESSAGE_FOUND,
            ErrorCode::STREAM_MESSAGE_DELETE_FAILED,
        ];
        let deleted = self.handle().await?.delete_message(sequence).await;
        deleted.or_else(|error| match error.kind() {
            Kind::JetStream(why) if missing.contains(&why.error_code()) => Ok(false),
            _ => Err(self.nats.unanswered("delete a key")),
        })
    }
}
