//! What processes and owners send to each other, and the record of an entry, in protobuf.
//!
//! A reader skips the fields that it does not know. A field never changes its meaning: what an old
//! reader must not take for something else gets a new version. A worker that finds a record of a
//! version above [`READS`] leaves the set. A later version of this crate therefore has to read the
//! earlier ones, and to write what the oldest worker of the set reads: beats have a version, too.

use crate::base::DAY;
use crate::message::check_key;
use crate::partitions::{MOST_RECORDS, READS};
use prost::Message;
use std::time::Duration;

/// The version of every message and record that this crate writes.
const VERSION: u32 = 1;

/// An owner's answer to one question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The owner cannot say yet: the entry's record is being written. The caller asks again.
    Unsure,
    /// The entry is not there, or another one has its key.
    No,
    /// The entry was touched, or has ended.
    Yes,
    /// The entry has begun. The token is its record's sequence, which is 2 or higher: the owner's
    /// own record has a lower one. So the answer 2 is a token if the question was a begin.
    Begun(u64),
}

impl Answer {
    fn of(number: u64, begins: bool) -> Self {
        match number {
            0 => Answer::Unsure,
            1 => Answer::No,
            token if begins => Answer::Begun(token),
            _ => Answer::Yes,
        }
    }
}

impl From<Answer> for u64 {
    fn from(answer: Answer) -> u64 {
        match answer {
            Answer::Unsure => 0,
            Answer::No => 1,
            Answer::Yes => 2,
            Answer::Begun(token) => token,
        }
    }
}

/// What a process asks the owner of a partition. The answers come in this order.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Request {
    #[prost(uint32, tag = "1")]
    version: u32,
    /// Entries whose time is to begin anew.
    #[prost(fixed64, repeated, tag = "2")]
    pub(crate) touched: Vec<u64>,
    /// Entries that are to begin or to end.
    #[prost(message, repeated, tag = "3")]
    pub(crate) writes: Vec<Write>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Write {
    #[prost(message, required, tag = "1")]
    pub(crate) entry: Entry,
    #[prost(bool, tag = "2")]
    pub(crate) ends: bool,
}

/// An entry: as a process asks for it, and as its record.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    /// A random number, by which an owner knows a request that comes again.
    #[prost(fixed64, tag = "1")]
    pub(crate) id: u64,
    /// A lease's key. A session has none.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) key: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub(crate) millis: u64,
    /// A lease's holder, in a record. A request's sender is in its subject: the server checks that.
    #[prost(string, tag = "4")]
    pub(crate) worker: String,
    #[prost(uint32, tag = "5")]
    version: u32,
}

#[derive(Clone, PartialEq, Message)]
struct Reply {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint64, repeated, tag = "2")]
    answers: Vec<u64>,
}

impl Request {
    pub(crate) fn new(touched: Vec<u64>, writes: Vec<Write>) -> Self {
        Self { version: VERSION, touched, writes }
    }

    /// The number of answers that it is to get.
    pub(crate) fn len(&self) -> usize {
        self.touched.len() + self.writes.len()
    }

    /// A request to an owner of leases, or of sessions.
    pub(crate) fn of_bytes(bytes: &[u8], of_leases: bool) -> Option<Self> {
        let found = Self::decode(bytes).ok()?;
        let is_sound = (1..=READS).contains(&found.version)
            && found.len() > 0
            && found.writes.len() <= MOST_RECORDS
            && found.writes.iter().all(|write| write.ends || write.entry.is_sound(of_leases));
        is_sound.then_some(found)
    }
}

impl Entry {
    pub(crate) fn new(id: u64, key: Vec<u8>, time: Duration) -> Self {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { id, key, millis, ..Self::default() }
    }

    pub(crate) fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    fn is_sound(&self, of_leases: bool) -> bool {
        let has_key = check_key(&self.key).is_ok();
        (1..=DAY.as_millis()).contains(&self.millis.into()) && has_key == of_leases
    }

    /// The key of the entry's record.
    pub(crate) fn record_key(&self) -> Vec<u8> {
        if self.key.is_empty() {
            return session_key(self.id);
        }
        self.key.clone()
    }

    pub(crate) fn record(&self) -> Vec<u8> {
        Self { version: VERSION, ..self.clone() }.encode_to_vec()
    }

    pub(crate) fn of_record(bytes: &[u8], of_leases: bool) -> Option<Self> {
        let found = Self::decode(bytes).ok()?;
        ((1..=READS).contains(&found.version) && found.is_sound(of_leases)).then_some(found)
    }
}

/// The version of a record.
pub(crate) fn version(bytes: &[u8]) -> u32 {
    Entry::decode(bytes).map_or(0, |found| found.version)
}

pub(crate) fn session_key(id: u64) -> Vec<u8> {
    format!("{id:016x}").into_bytes()
}

/// The session of a record's key.
pub(crate) fn session_of(key: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(key).ok()?, 16).ok()
}

pub(crate) fn reply(answers: Vec<Answer>) -> Vec<u8> {
    let answers = answers.into_iter().map(u64::from).collect();
    Reply { version: VERSION, answers }.encode_to_vec()
}

/// The answers to a request.
pub(crate) fn answers(bytes: &[u8], request: &Request) -> Option<Vec<Answer>> {
    let found = Reply::decode(bytes).ok()?;
    let fits = (1..=READS).contains(&found.version) && found.answers.len() == request.len();
    let begins = request.touched.iter().map(|_| false);
    let begins = begins.chain(request.writes.iter().map(|write| !write.ends));
    let answers = found.answers.into_iter().zip(begins);
    fits.then(|| answers.map(|(number, begins)| Answer::of(number, begins)).collect())
}
