//! Partitions whose owners keep something for the processes of a set, in memory and in records:
//! what leases and sessions share.
//!
//! Each process that joins may come to own some of the partitions, and answers for those (`serve`).
//! It asks the owner of any partition by a request on that partition's subject.

mod serve;
#[cfg(test)]
#[path = "../tests/unit/keep.rs"]
pub(crate) mod sim;

use crate::base::{count, ticks};
use crate::partitions::{Numbered, PAUSE};
use crate::{clock, Nats, NatsError, PartitionSet};
use async_nats::Subject;
use bytes::Bytes;
use expiry::ManualClock;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// What processes and owners send to each other.
pub(crate) trait Wire: Sized {
    fn into_bytes(self) -> Vec<u8>;
    fn of_bytes(bytes: &[u8]) -> Option<Self>;
}

/// The version of every message and record.
pub(crate) const VERSION: u32 = 1;

/// Makes an enum of messages what is sent, in a message of its own with the version. A reader skips
/// the fields that it does not know. A field never changes its meaning: what an old reader must not
/// take for something else gets a new version.
macro_rules! wire {
    ($what:ident, $name:tt, tags $tags:tt in $message:ident, sound if $is_sound:expr) => {
        #[derive(Clone, PartialEq, prost::Message)]
        struct $message {
            #[prost(uint32, tag = "1")]
            version: u32,
            #[prost(oneof = $name, tags = $tags)]
            what: Option<$what>,
        }

        impl crate::keep::Wire for $what {
            fn into_bytes(self) -> Vec<u8> {
                let (version, what) = (crate::keep::VERSION, Some(self));
                prost::Message::encode_to_vec(&$message { version, what })
            }

            fn of_bytes(bytes: &[u8]) -> Option<Self> {
                let found: $message = prost::Message::decode(bytes).ok()?;
                let is_sound: fn(&$what) -> bool = $is_sound;
                found.what.filter(|what| found.version == crate::keep::VERSION && is_sound(what))
            }
        }
    };
}

pub(crate) use wire;

/// What the driver reports to the machine. `R` is the place of a reply.
pub(crate) enum Event<A, R> {
    /// A worker asks.
    Asked { worker: String, ask: A, reply: R },
    /// The store took the batch; its last record has this sequence.
    Written(u64),
    /// Time has passed.
    Tick,
}

/// What the driver does.
pub(crate) enum Action<S, R> {
    /// Write a batch of records; one without a value is deleted.
    Write(Vec<(Vec<u8>, Option<Bytes>)>),
    Answer(R, S),
}

/// What an owner keeps for the workers that ask it, in its memory and in records. The driver
/// begins with a new one for each epoch.
pub(crate) trait Keeper<R>: Send + Sized + 'static {
    type Ask: Wire + Send;
    type Said: Wire + Send;
    /// What all owners of a set have in common.
    type Terms: Clone + Send + Sync;
    /// The second result is the number of records that do not parse.
    fn new(terms: Self::Terms, now: Duration, records: Numbered, grace: Duration) -> (Self, u64);
    fn on(
        &mut self,
        now: Duration,
        event: Event<Self::Ask, R>,
        out: &mut Vec<Action<Self::Said, R>>,
    );
}

pub(crate) fn set(clock: &ManualClock, now: Duration) {
    clock.set(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
}

/// What the tasks of a set share.
pub(crate) struct Served {
    pub(crate) nats: Nats,
    /// Requests for partition P come to `PREFIX.P.WORKER`.
    pub(crate) prefix: String,
    pub(crate) count: u32,
    pub(crate) lease: Duration,
    pub(crate) partitions: AtomicUsize,
    /// Requests, answers and records that did not parse.
    pub(crate) malformed: AtomicU64,
    /// Why the worker owns nothing any more.
    pub(crate) ended: OnceLock<NatsError>,
}

impl Served {
    /// How long a call tries.
    pub(crate) fn patience(&self) -> Duration {
        (self.lease + self.nats.request_timeout()) * 4
    }

    /// Asks the partition's owner. None: no answer.
    pub(crate) async fn ask<S: Wire>(
        &self,
        partition: u32,
        ask: impl Wire,
        limit: Duration,
    ) -> Option<S> {
        let subject = format!("{}.{partition}.{}", self.prefix, self.nats.worker());
        let request = self.nats.client().request(subject, ask.into_bytes().into());
        let reply = tokio::time::timeout(limit, request).await.ok()?.ok()?;
        let said = S::of_bytes(&reply.payload);
        if said.is_none() {
            count(&self.malformed);
        }
        said
    }

    /// Asks until an answer fits, for as long as `patience`.
    pub(crate) async fn ask_until<S: Wire, T>(
        &self,
        what: &'static str,
        patience: Duration,
        (partition, ask): (u32, impl Wire + Clone),
        fits: impl Fn(S, Duration) -> Option<T>,
    ) -> Result<T, NatsError> {
        let began = Instant::now();
        loop {
            let sent_at = clock::now();
            let said = self.ask(partition, ask.clone(), self.lease).await;
            if let Some(answer) = said.and_then(|said| fits(said, sent_at)) {
                return Ok(answer);
            }
            if began.elapsed() >= patience {
                return Err(NatsError::Unanswered { what, after: patience });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Asks `due` what is to be done, 16 times in a lease of the partitions, and does each in a task of
/// its own.
pub(crate) async fn each_tick<S, T, F: Future<Output = ()> + Send + 'static>(
    lease: Duration,
    shared: Arc<S>,
    due: fn(&S) -> Vec<T>,
    run: fn(Arc<S>, T) -> F,
) {
    let mut ticks = ticks(lease / 16);
    loop {
        ticks.tick().await;
        for one in due(&shared) {
            tokio::spawn(run(shared.clone(), one));
        }
    }
}

/// A process's part in a set. When it is dropped, the process hands its partitions over in the
/// background.
pub(crate) struct Joined {
    pub(crate) served: Arc<Served>,
    leave: watch::Sender<()>,
    ended: watch::Receiver<()>,
}

/// Joins the set, and serves the partitions that the process comes to own.
pub(crate) async fn join<K: Keeper<Subject>>(
    set: PartitionSet,
    kind: &'static str,
    name: &str,
    terms: K::Terms,
) -> Result<Joined, NatsError> {
    let (nats, count, lease) = (set.nats.clone(), set.count, set.lease);
    let partitions = set.join_any().await?;
    let served = Arc::new(Served {
        prefix: format!("{}.{kind}.{name}", nats.app()),
        nats,
        count,
        lease,
        partitions: 0.into(),
        malformed: 0.into(),
        ended: OnceLock::new(),
    });
    let (leave, left) = watch::channel(());
    let (serving, ended) = watch::channel(());
    let serve = serve::serve::<K>(terms, partitions, served.clone(), left);
    tokio::spawn(async move {
        serve.await;
        drop(serving);
    });
    Ok(Joined { served, leave, ended })
}

impl Joined {
    /// Hands the partitions over to the others.
    pub(crate) async fn leave(&self) {
        self.leave.send_replace(());
        // An error says that the sender is dropped.
        let _ = self.ended.clone().changed().await;
    }
}
