//! Partitions whose owners keep *entries* for the processes of a set: what leases and sessions
//! share.
//!
//! An entry has an id, a record in its partition, and a time that runs in its owner's memory. Its
//! partition is its id modulo the number of partitions. Each process that joins may come to own
//! some of the partitions, and answers for those.
//!
//! ```text
//!  begin, end --> lanes of a partition --requests--> serve --> Owner, a machine
//!  Front, a machine, by ticks  --batches of touches-->   |
//!                                                        +--fenced batches--> brokers
//! ```

mod front;
mod owner;
mod serve;
#[cfg(test)]
#[path = "../tests/unit/keep.rs"]
pub(crate) mod sim;
#[cfg(test)]
#[path = "../tests/unit/keep_owner.rs"]
mod tests;
mod wire;

use crate::base::{count, lock, ticks, Task};
use crate::partitions::{MOST_RECORDS, PAUSE};
use crate::{clock, Nats, NatsError, PartitionSet};
use expiry::{ManualClock, SessionTracker};
pub(crate) use front::Front;
use front::{Touch, Touches};
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
pub(crate) use wire::{Answer, Entry};
use wire::{Request, Write};

/// The requests with begins and ends that a process has under way at a partition.
const SENDERS: usize = 2;
/// The bytes of a begin with the longest key are fewer.
const LARGEST_WRITE: usize = 320;

/// What all owners of a set have in common.
#[derive(Clone)]
pub(crate) struct Terms {
    /// The timeout of a session. None: the entries are leases, which have keys, holders and times.
    pub(crate) timeout: Option<Duration>,
    /// Reports the end of an entry.
    pub(crate) report: Arc<dyn Fn(u64) + Send + Sync>,
}

/// A tracker whose time is a machine's `now`.
pub(crate) fn tracker(now: Duration, collects: bool) -> (ManualClock, SessionTracker) {
    let clock = ManualClock::new();
    set(&clock, now);
    let builder = SessionTracker::builder().clock(clock.clone());
    let builder = if collects { builder.collect_touches() } else { builder.shards(1) };
    (clock, builder.build_manual().expect("the number of shards is allowed"))
}

pub(crate) fn set(clock: &ManualClock, now: Duration) {
    clock.set(u64::try_from(now.as_nanos()).unwrap_or(u64::MAX));
}

/// A begin or an end, and the caller that waits for the answer.
type Waiting = (Write, oneshot::Sender<Answer>);

/// What the tasks of a set share.
pub(crate) struct Served {
    pub(crate) nats: Nats,
    /// Requests for partition P come to `PREFIX.P.WORKER`.
    pub(crate) prefix: String,
    pub(crate) count: u32,
    pub(crate) lease: Duration,
    /// The runtime in which the process joined.
    pub(crate) runtime: Handle,
    /// What waits for the owner of each partition. `SENDERS` tasks send it.
    lanes: Vec<mpsc::UnboundedSender<Waiting>>,
    pub(crate) partitions: AtomicUsize,
    /// Touches with an answer, and without one.
    pub(crate) touches: AtomicU64,
    pub(crate) unanswered: AtomicU64,
    /// Requests, answers and records that did not parse.
    pub(crate) malformed: AtomicU64,
    /// Why the worker owns nothing any more.
    ended: OnceLock<NatsError>,
}

impl Served {
    /// How long a call tries.
    pub(crate) fn patience(&self) -> Duration {
        (self.lease + self.nats.request_timeout()) * 4
    }

    /// A new id of a partition: by the hash, or any.
    pub(crate) fn new_id(&self, hash: Option<u64>) -> u64 {
        let (random, count) = (self.nats.random() >> 1, u64::from(self.count));
        hash.map_or(random, |hash| random - random % count + hash % count)
    }

    /// Asks the owner of a partition. None: no answer.
    async fn request(
        &self,
        partition: u32,
        request: &Request,
        limit: Duration,
    ) -> Option<Vec<Answer>> {
        let subject = format!("{}.{partition}.{}", self.prefix, self.nats.worker());
        let payload = prost::Message::encode_to_vec(request);
        let asked = self.nats.client().request(subject, payload.into());
        let reply = tokio::time::timeout(limit, asked).await.ok()?.ok()?;
        let answers = wire::answers(&reply.payload, request);
        if answers.is_none() {
            count(&self.malformed);
        }
        answers
    }

    fn partition(&self, id: u64) -> u32 {
        u32::try_from(id % u64::from(self.count)).expect("there are at most 1,024")
    }

    /// Touches one entry, until its owner is sure of it.
    pub(crate) async fn touch(&self, what: &'static str, id: u64) -> Result<Answer, NatsError> {
        let request = Request::new(vec![id], Vec::new());
        let ask = || async {
            let answers = self.request(self.partition(id), &request, self.lease).await;
            answers.map_or(Answer::Unsure, |answers| answers[0])
        };
        self.until_sure(what, self.patience(), ask).await.map(|(answer, _)| answer)
    }

    /// Begins an entry. Returns the owner's answer, and when the request was sent.
    pub(crate) async fn begin(
        &self,
        what: &'static str,
        entry: Entry,
    ) -> Result<(Answer, Duration), NatsError> {
        let write = Write { entry, ends: false };
        self.until_sure(what, self.patience(), || self.write(write.clone())).await
    }

    /// Ends an entry, for as long as `patience`.
    pub(crate) async fn end(
        &self,
        what: &'static str,
        id: u64,
        patience: Duration,
    ) -> Result<(), NatsError> {
        let write = Write { entry: Entry::new(id, Vec::new(), Duration::ZERO), ends: true };
        self.until_sure(what, patience, || self.write(write.clone())).await.map(drop)
    }

    async fn until_sure<F: Future<Output = Answer>>(
        &self,
        what: &'static str,
        patience: Duration,
        ask: impl Fn() -> F,
    ) -> Result<(Answer, Duration), NatsError> {
        let began = Instant::now();
        loop {
            if let Some(why) = self.ended.get() {
                return Err(why.clone());
            }
            let sent_at = clock::now();
            let answer = ask().await;
            if answer != Answer::Unsure {
                return Ok((answer, sent_at));
            }
            if began.elapsed() >= patience {
                return Err(NatsError::Unanswered { what, after: patience });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends a begin or an end, in one request with those of other callers.
    async fn write(&self, write: Write) -> Answer {
        let (partition, (tell, told)) = (self.partition(write.entry.id), oneshot::channel());
        // An error says that the runtime has ended.
        let _ = self.lanes[partition as usize].send((write, tell));
        told.await.unwrap_or(Answer::Unsure)
    }
}

/// Sends what waits in a partition's lane, up to `most` in a request, until the set is dropped.
async fn send_writes(
    served: Weak<Served>,
    partition: u32,
    lane: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<Waiting>>>,
    most: usize,
) {
    let mut waiting = Vec::new();
    while lane.lock().await.recv_many(&mut waiting, most).await > 0 {
        let Some(served) = served.upgrade() else { return };
        let (writes, tell): (Vec<_>, Vec<_>) = waiting.drain(..).unzip();
        let request = Request::new(Vec::new(), writes);
        let answers = served.request(partition, &request, served.lease).await;
        for (tell, answer) in tell.into_iter().zip(answers.unwrap_or_default()) {
            // An error says that the caller has gone. One that finds its sender dropped is unsure.
            let _ = tell.send(answer);
        }
    }
}

/// A process as a member of a set. When it is dropped, the process hands its partitions over in the
/// background, and sends no touches any more.
pub(crate) struct Member<F: Front> {
    shared: Arc<Shared<F>>,
    /// `serve` is the receiver.
    leave: watch::Sender<()>,
    _ticks: Task,
}

struct Shared<F: Front> {
    served: Arc<Served>,
    touches: Mutex<Touches<F>>,
    tell: Box<dyn Fn(F::Gone) + Send + Sync>,
}

/// Joins the set, and serves the partitions that it gets. `tell` hands on the front's reports.
pub(crate) async fn join<F: Front>(
    set: PartitionSet,
    (kind, name): (&'static str, &str),
    terms: Terms,
    front: F,
    tell: impl Fn(F::Gone) + Send + Sync + 'static,
) -> Result<Member<F>, NatsError> {
    let (nats, count, lease) = (set.nats.clone(), set.count, set.lease);
    let partitions = set.join_any().await?;
    let payload = nats.client().max_payload();
    let lanes = (0..count).map(|_| mpsc::unbounded_channel());
    let (lanes, receivers): (Vec<_>, Vec<_>) = lanes.unzip();
    let served = Arc::new(Served {
        prefix: format!("{}.{kind}.{name}", nats.app()),
        nats,
        count,
        lease,
        runtime: Handle::current(),
        lanes,
        partitions: 0.into(),
        touches: 0.into(),
        unanswered: 0.into(),
        malformed: 0.into(),
        ended: OnceLock::new(),
    });
    for (partition, lane) in (0..).zip(receivers) {
        let lane = Arc::new(tokio::sync::Mutex::new(lane));
        let most = MOST_RECORDS.min(payload / LARGEST_WRITE);
        for _ in 0..SENDERS {
            let served = Arc::downgrade(&served);
            tokio::spawn(send_writes(served, partition, lane.clone(), most));
        }
    }
    let (leave, left) = watch::channel(());
    tokio::spawn(serve::serve(terms, partitions, served.clone(), left));
    let touches = Mutex::new(Touches::new(front, count, payload));
    let shared = Arc::new(Shared { served, touches, tell: Box::new(tell) });
    let _ticks = Task::new(tick(shared.clone()));
    Ok(Member { shared, leave, _ticks })
}

/// Looks for what is to be touched, 16 times in a lease of the partitions.
async fn tick<F: Front>(shared: Arc<Shared<F>>) {
    let mut ticks = ticks(shared.served.lease / 16);
    loop {
        ticks.tick().await;
        for touch in shared.with(|touches, gone| touches.tick(clock::now(), gone)) {
            tokio::spawn(shared.clone().send(touch));
        }
    }
}

impl<F: Front> Shared<F> {
    fn with<T>(&self, act: impl FnOnce(&mut Touches<F>, &mut Vec<F::Gone>) -> T) -> T {
        let mut gone = Vec::new();
        let result = act(&mut lock(&self.touches), &mut gone);
        gone.into_iter().for_each(&self.tell);
        result
    }

    /// Sends touches until the partition has none left, or its owner does not answer.
    async fn send(self: Arc<Self>, touch: Touch) {
        let (mut next, served) = (Some(touch), &self.served);
        while let Some(Touch { partition, ids }) = next {
            let (sent, request) = (ids.len(), Request::new(ids, Vec::new()));
            let answers = served.request(partition, &request, served.lease / 2).await;
            let counter = if answers.is_some() { &served.touches } else { &served.unanswered };
            counter.fetch_add(sent as u64, Ordering::Relaxed);
            next = self.with(|touches, gone| {
                touches.answered(clock::now(), partition, answers.as_deref(), gone)
            });
        }
    }
}

impl<F: Front> Member<F> {
    pub(crate) fn served(&self) -> &Arc<Served> {
        &self.shared.served
    }

    /// Lets the process's front act. What it reports is handed on after its lock.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut F, &mut Vec<F::Gone>) -> T) -> T {
        self.shared.with(|touches, gone| act(&mut touches.front, gone))
    }

    /// Hands the partitions over to the others.
    pub(crate) async fn leave(&self) {
        self.leave.send_replace(());
        self.leave.closed().await;
    }
}
