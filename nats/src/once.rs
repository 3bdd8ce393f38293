//! Idempotency keys: of all that claim a key, one does the work, and the others get its answer.
//!
//! The stream `APP+NAME+once` stores one record for each key, on the subject
//! `APP.once.NAME.KEY`: a claim, or an answer. The server removes a record when its time to live
//! has passed. Every write is a compare-and-swap: the server takes it only while the subject's last
//! sequence is the expected one.
//!
//! A claim expects 0, which the server finds before the first record and after the last one has
//! expired; so the stream has no delete markers. An answer expects the sequence of its claim, so
//! the server refuses the answer of a late claimer. A write that was refused or not answered proves
//! nothing: the server also refuses a write while another one of the key is on its way. The
//! claimer then reads the record at the stream's leader, and compares its own random id.

use crate::base::{debug, setters, DAY};
use crate::keyed::Keyed;
use crate::message::{header, token, EXPECTED, INCARNATION};
use crate::{Nats, NatsError};
use async_nats::jetstream::stream::Config;
use async_nats::HeaderMap;
use bytes::Bytes;
use std::time::{Duration, Instant};

/// The pause before a refused write is sent again.
const PAUSE: Duration = Duration::from_millis(10);
/// Marks a record that has an answer.
const DONE: &str = "Expiry-Done";

/// A set of idempotency keys, and for how long it remembers them.
///
/// | setting | default |
/// |---|---|
/// | [`time`](Self::time) | 60 s |
/// | [`keep`](Self::keep) | a day |
/// | [`replicas`](Self::replicas) | 3 |
#[derive(Debug, Clone)]
#[must_use = "a set is opened by `open`"]
pub struct OnceSet {
    keyed: Keyed,
    time: Duration,
    keep: Duration,
}

impl Nats {
    /// A set of idempotency keys. The first worker that opens it creates its stream.
    ///
    /// The name takes 1 to 64 of `[A-Za-z0-9_-]`.
    pub fn once(&self, set: &str) -> OnceSet {
        let keyed = Keyed::new(self, "once", set);
        OnceSet { keyed, time: Duration::from_secs(60), keep: DAY }
    }
}

setters! { OnceSet
    /// The time, a second to 366 days, after which the claim of a dead claimer expires. Take it
    /// several times as long as the work. The server counts it, in whole seconds, rounded up. Each
    /// process has its own `time` and `keep`: a claim takes the claimer's.
    time(time: Duration) => time = time;
    /// The time, a second to 366 days, for which the server keeps an answer. Take it longer than
    /// a caller tries again.
    keep(time: Duration) => keep = time;
    /// The number of brokers, 1, 3 or 5, that store the set. It counts when the set is created.
    replicas(replicas: usize) => keyed.replicas = replicas;
}

impl OnceSet {
    /// Opens the set. Creates its stream if it does not exist.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: among others `Setting`, for a time or the replicas.
    pub async fn open(self) -> Result<Once, NatsError> {
        for (what, time) in [("time", self.time), ("keep", self.keep)] {
            NatsError::within(what, time, Duration::from_secs(1)..=DAY * 366, "1 s to 366 days")?;
        }
        let config =
            Config { max_messages_per_subject: 1, allow_message_ttl: true, ..Config::default() };
        self.keyed.open(&["*"], config).await?;
        Ok(Once(self))
    }
}

/// Idempotency keys. Of all workers that claim a key, one is first and does the work; the others
/// get its answer. A clone is the same set.
///
/// Work is done twice only where a claimer is late: its claim expired, and another one is first.
/// The server refuses its answer, but what it did elsewhere stays done.
///
/// ```no_run
/// # async fn pay(nats: expiry_nats::Nats) -> Result<(), expiry_nats::NatsError> {
/// use expiry_nats::Claim;
///
/// let payments = nats.once("payments").open().await?;
/// match payments.claim("order-17").await? {
///     Claim::First(mut guard) => guard.done("receipt 4711").await?,
///     Claim::InProgress => println!("another worker is at it: try again later"),
///     Claim::Done(receipt) => println!("it is paid: {receipt:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Once(OnceSet);

/// What a claim found.
#[derive(Debug)]
pub enum Claim {
    /// The key is this claimer's. It does the work.
    First(Guard),
    /// Another claimer has the key. It finishes, or its claim expires.
    InProgress,
    /// The answer of the claimer that did the work.
    Done(Bytes),
}

/// A record, as seen by one claimer.
enum Found {
    /// There is none, or one that does not parse. The number is its sequence.
    Free(u64),
    /// The claimer wrote it.
    Own { sequence: u64, done: bool },
    /// Another claimer wrote it. It may have an answer.
    Other(Option<Bytes>),
}

impl Once {
    /// Claims a key: 1 to 256 bytes of any kind. Costs one stored message where the key is free,
    /// and a read more where it is not.
    ///
    /// If its future is dropped, a claim may stay until it expires.
    ///
    /// # Errors
    ///
    /// [`NatsError`]. The brokers may have stored nothing that the claimer can see for four times
    /// the request timeout; a claim may still arrive, and stays until it expires.
    pub async fn claim(&self, key: impl AsRef<[u8]>) -> Result<Claim, NatsError> {
        let keyed = &self.0.keyed;
        let subject = keyed.subject(token(key.as_ref())?);
        let key = String::from_utf8_lossy(key.as_ref()).into_owned();
        let id = keyed.nats.client().new_inbox();
        let mut guard = Guard { once: self.clone(), subject, key, id, sequence: 0 };
        Ok(match guard.swap("claim a key", None).await? {
            Found::Own { .. } => Claim::First(guard),
            Found::Other(Some(answer)) => Claim::Done(answer),
            Found::Other(None) | Found::Free(_) => Claim::InProgress,
        })
    }
}

/// A claimed key. The claimer answers with [`done`](Self::done), or gives the key up with
/// [`release`](Self::release). A guard that is dropped does neither: its claim expires after the
/// set's [`time`](OnceSet::time), as that of a claimer that died.
#[must_use = "a key stays claimed until its time has passed"]
pub struct Guard {
    once: Once,
    subject: String,
    key: String,
    id: String,
    sequence: u64,
}

debug!(Guard, |it| "Guard({:?}, token {})", it.key, it.sequence);

impl Guard {
    /// The fencing token: a later claimer's is higher. Other systems that compare it refuse a late
    /// claimer as the brokers do.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.sequence
    }

    /// Stores the answer: a `Vec<u8>`, a `String` or a `&'static str`. The first answer counts:
    /// another call changes nothing. Costs one stored message.
    ///
    /// # Errors
    ///
    /// [`ClaimExpired`](NatsError::ClaimExpired): the answer is not stored, and another claimer
    /// may be first. [`Setting`](NatsError::Setting): the answer is too large; the claim stays.
    /// After any other error, calling again is harmless.
    pub async fn done(&mut self, answer: impl Into<Bytes>) -> Result<(), NatsError> {
        let answer = answer.into();
        self.once.0.keyed.fits(&answer)?;
        self.hold("answer a claim", Some(answer)).await
    }

    /// Begins the claim's time anew, and takes a new token. Costs one stored message.
    ///
    /// # Errors
    ///
    /// Those of [`done`](Self::done).
    pub async fn extend(&mut self) -> Result<(), NatsError> {
        self.hold("extend a claim", None).await
    }

    /// Gives the key up: the next claimer is first. It changes nothing after
    /// [`done`](Self::done), or if the claim has expired.
    ///
    /// # Errors
    ///
    /// [`Unanswered`](NatsError::Unanswered): the claim may stay until it expires.
    pub async fn release(self) -> Result<(), NatsError> {
        match self.read().await? {
            Found::Own { sequence, done: false } => {
                self.once.0.keyed.delete(sequence).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    async fn hold(&mut self, what: &'static str, answer: Option<Bytes>) -> Result<(), NatsError> {
        let is_own = matches!(self.swap(what, answer).await?, Found::Own { .. });
        is_own.then_some(()).ok_or_else(|| NatsError::ClaimExpired { key: self.key.clone() })
    }

    fn own(&mut self, sequence: u64, done: bool) -> Found {
        // The sequence of an answer would let another one follow it.
        if !done {
            self.sequence = sequence;
        }
        Found::Own { sequence, done }
    }

    async fn read(&self) -> Result<Found, NatsError> {
        let Some(found) = self.once.0.keyed.last(&self.subject).await? else {
            return Ok(Found::Free(0));
        };
        let headers = Some(found.headers);
        let done = header(&headers, DONE).is_some();
        Ok(match header(&headers, INCARNATION) {
            None => Found::Free(found.sequence),
            Some(id) if id == self.id => Found::Own { sequence: found.sequence, done },
            Some(_) => Found::Other(done.then_some(found.payload)),
        })
    }

    /// Writes a claim or an answer over the record that the guard has seen last, until the stream
    /// has it or shows why not.
    async fn swap(
        &mut self,
        what: &'static str,
        answer: Option<Bytes>,
    ) -> Result<Found, NatsError> {
        let (nats, claims) = (&self.once.0.keyed.nats, self.sequence == 0);
        let (began, patience) = (Instant::now(), nats.request_timeout() * 4);
        let time = if answer.is_some() { self.once.0.keep } else { self.once.0.time };
        let mut headers = HeaderMap::new();
        headers.insert(INCARNATION, self.id.as_str());
        headers.insert("Nats-TTL", format!("{}s", time.as_nanos().div_ceil(1_000_000_000)));
        if answer.is_some() {
            headers.insert(DONE, "1");
        }
        let payload = answer.clone().unwrap_or_default();
        let mut expected = self.sequence;
        loop {
            headers.insert(EXPECTED, expected.to_string());
            let stored = nats.store(self.subject.clone(), headers.clone(), payload.clone()).await;
            let error = match stored {
                Ok(ack) => return Ok(self.own(ack.sequence, answer.is_some())),
                Err(error) => error,
            };
            match self.read().await {
                Ok(Found::Free(sequence)) if claims => expected = sequence,
                // The claim is there, and what was to follow it is not, or not yet.
                Ok(Found::Own { sequence, done: false })
                    if answer.is_some() || sequence == self.sequence =>
                {
                    expected = sequence;
                }
                Ok(Found::Own { sequence, done }) => return Ok(self.own(sequence, done)),
                Ok(found) => return Ok(found),
                Err(_) => {}
            }
            if began.elapsed() >= patience {
                return Err(nats.unstored(what, &error));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
