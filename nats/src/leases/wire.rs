//! What holders and owners say to each other, and the record of a lease, in protobuf.

use crate::base::DAY;
use crate::keep::{wire, VERSION};
use crate::partitions::check_key;
use prost::{Message, Oneof};
use std::time::Duration;

/// What a holder asks the owner of a partition.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Ask {
    #[prost(message, tag = "2")]
    Acquire(Grant),
    #[prost(message, tag = "3")]
    Release(Grant),
    #[prost(message, tag = "4")]
    Renew(Renewal),
}

/// A lease: as its holder asks for it, and as its record.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Grant {
    /// Empty in a record, which has it as its own key.
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// A random number of the call that asks for the lease. The owner knows a call that asks again.
    #[prost(fixed64, tag = "2")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) millis: u64,
    /// The holder's name, in a record. A request has it in its subject, which the server checks.
    #[prost(string, tag = "4")]
    pub(crate) worker: String,
    #[prost(uint32, tag = "5")]
    pub(crate) version: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Renewal {
    #[prost(message, repeated, tag = "1")]
    pub(crate) leases: Vec<Renewed>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Renewed {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub(crate) token: u64,
}

/// What an owner answers.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Said {
    /// The token of the lease; 0: another call holds the key.
    #[prost(uint64, tag = "2")]
    Granted(u64),
    /// The call holds the key no longer.
    #[prost(bool, tag = "3")]
    Released(bool),
    /// Of the tokens that the holder named. The owner does not know yet about one that is in
    /// neither list.
    #[prost(message, tag = "4")]
    Renewed(Tokens),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tokens {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) kept: Vec<u64>,
    #[prost(uint64, repeated, tag = "2")]
    pub(crate) gone: Vec<u64>,
}

wire!(Ask, "Ask", tags "2, 3, 4" in Request, sound if |ask| match ask {
    Ask::Acquire(grant) | Ask::Release(grant) => check_key(&grant.key).is_ok() && grant.is_sound(),
    Ask::Renew(_) => true,
});
wire!(Said, "Said", tags "2, 3, 4" in Answer, sound if |_| true);

impl Grant {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    fn is_sound(&self) -> bool {
        self.millis > 0 && self.time() <= DAY
    }

    /// The record of the lease.
    pub(crate) fn record(&self, worker: &str) -> Vec<u8> {
        let (worker, key, version) = (worker.to_string(), Vec::new(), VERSION);
        Grant { worker, key, version, ..*self }.encode_to_vec()
    }

    pub(crate) fn of_record(bytes: &[u8]) -> Option<Grant> {
        let found = Grant::decode(bytes).ok()?;
        (found.version == VERSION && found.is_sound()).then_some(found)
    }
}
