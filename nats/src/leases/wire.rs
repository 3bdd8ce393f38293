//! What holders and owners say to each other, and the record of a lease, in protobuf.
//!
//! A reader skips the fields that it does not know. A field never changes its meaning: what an old
//! reader must not take for something else gets a new version.

use super::LONGEST_TIME;
use crate::keep::{wire, VERSION};
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
    Ask::Acquire(grant) | Ask::Release(grant) => super::is_key(&grant.key) && grant.is_sound(),
    Ask::Renew(_) => true,
});
wire!(Said, "Said", tags "2, 3, 4" in Answer, sound if |_| true);

impl Grant {
    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    fn is_sound(&self) -> bool {
        self.millis > 0 && self.time() <= LONGEST_TIME
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

#[cfg(test)]
mod tests {
    use super::{Ask, Grant, Said};
    use crate::keep::Wire;
    use rand::rngs::SmallRng;
    use rand::{RngCore, SeedableRng};

    #[test]
    fn what_does_not_parse_is_none() {
        let grant = Grant { key: b"k".to_vec(), id: 7, millis: 9_000, ..Grant::default() };
        let ask = Ask::Acquire(grant.clone());
        assert_eq!(Ask::of_bytes(&ask.clone().into_bytes()), Some(ask.clone()));
        // A later version's field is skipped.
        assert_eq!(
            Ask::of_bytes(&[ask.clone().into_bytes(), vec![0x7a, 1, 0]].concat()),
            Some(ask)
        );
        for millis in [0, u64::MAX] {
            assert_eq!(
                Ask::of_bytes(&Ask::Release(Grant { millis, ..grant.clone() }).into_bytes()),
                None
            );
        }
        assert_eq!(
            Ask::of_bytes(&Ask::Acquire(Grant { key: vec![], ..grant.clone() }).into_bytes()),
            None
        );
        assert_eq!(Grant::of_record(&grant.record("w")).map(|it| it.worker), Some("w".into()));
        let mut random = SmallRng::seed_from_u64(1);
        for length in (0..64).cycle().take(100_000) {
            let mut bytes = vec![0; length];
            random.fill_bytes(&mut bytes);
            assert_eq!((Ask::of_bytes(&bytes), Grant::of_record(&bytes)), (None, None));
            assert_eq!(Said::of_bytes(&bytes), None);
        }
    }
}
