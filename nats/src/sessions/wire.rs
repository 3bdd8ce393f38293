//! What front-ends and owners say to each other, and the record of a session, in protobuf.

use crate::keep::{wire, VERSION};
use prost::{Message, Oneof};

/// What a front-end asks the owner of a partition.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Ask {
    #[prost(fixed64, tag = "2")]
    Begin(u64),
    #[prost(fixed64, tag = "3")]
    End(u64),
    #[prost(fixed64, tag = "4")]
    Adopt(u64),
    #[prost(message, tag = "5")]
    Touch(Ids),
}

/// What an owner answers.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Said {
    /// Whether the session of the request lives.
    #[prost(bool, tag = "2")]
    Lives(bool),
    /// The touched sessions that have ended. The others live, or their end is not stored yet.
    #[prost(message, tag = "3")]
    Gone(Ids),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ids {
    #[prost(fixed64, repeated, tag = "1")]
    pub(crate) ids: Vec<u64>,
}

wire!(Ask, "Ask", tags "2, 3, 4, 5" in Request, sound if |_| true);
wire!(Said, "Said", tags "2, 3" in Answer, sound if |_| true);

/// The key of a session's record. The record itself has nothing but the version.
pub(crate) fn key(id: u64) -> Vec<u8> {
    format!("{id:016x}").into_bytes()
}

pub(crate) fn record() -> Vec<u8> {
    Request { version: VERSION, what: None }.encode_to_vec()
}

/// The session of a record, and whether the record is there.
pub(crate) fn session_of(key: &[u8], record: Option<&[u8]>) -> Option<(u64, bool)> {
    let id = u64::from_str_radix(std::str::from_utf8(key).ok()?, 16).ok()?;
    let Some(record) = record else {
        return Some((id, false));
    };
    (Request::decode(record).ok()?.version == VERSION).then_some((id, true))
}
