//! Sessions of many clients over many front-ends.
//!
//! A session set has a set of partitions of its own. Each process that joins may come to own some
//! of them: `keep` answers for those. A session belongs to the partition that its id names. Its
//! record says that it lives; the partition's owner keeps its time in memory (`owner`). A process
//! collects touches, and sends them in batches (`front`).

mod front;
mod owner;
#[cfg(test)]
#[path = "../tests/unit/sessions.rs"]
mod tests;
mod wire;

use crate::base::{debug, lock, setters, stats, Task, DAY};
use crate::keep::{self, Joined, Served};
use crate::{clock, Nats, NatsError, PartitionSet};
pub use expiry::SessionId;
use expiry::{ManualClock, SessionTracker};
use front::{Event, Front, Touch};
use owner::Owner;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use wire::{Ask, Said};

/// The shortest timeout, in leases of the partitions. A client that is touched each half of the
/// timeout leaves a quarter for the taking of the touches, and one for their way: 2 leases.
const SHORTEST: u32 = 8;

/// A set of sessions, and how a process takes part in it.
///
/// | setting | default |
/// |---|---|
/// | [`timeout`](Self::timeout) | 30 s |
/// | [`partition_lease`](Self::partition_lease) | 2 s |
/// | [`replicas`](Self::replicas) | 3 |
#[derive(Debug, Clone)]
#[must_use = "a set is joined by `join`"]
pub struct SessionSet {
    name: String,
    /// The partitions, in a set whose name has a `+`.
    set: PartitionSet,
    timeout: Duration,
}

impl Nats {
    /// A set of sessions, which are spread over `partitions`, 1 to 1,024. The number never changes.
    /// More partitions than processes let each process own some.
    ///
    /// The name takes 1 to 64 of `[A-Za-z0-9_-]`. It may be the name of a set of partitions too.
    ///
    /// ```no_run
    /// # async fn job(nats: expiry_nats::Nats) -> Result<(), expiry_nats::NatsError> {
    /// let (sessions, mut ended) = nats.sessions("clients", 16).join().await?;
    /// let id = sessions.begin().await?; // for a client that has connected
    /// assert!(sessions.touch(id)); // with each sign of life; no I/O
    /// while let Some(id) = ended.next().await {
    ///     println!("{id} has ended"); // once or more
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn sessions(&self, name: &str, partitions: u32) -> SessionSet {
        let set = self.partitions(&format!("{name}+sessions"), partitions);
        let (set, timeout) = (set.lease(Duration::from_secs(2)), Duration::from_secs(30));
        SessionSet { name: name.to_string(), set, timeout }
    }
}

setters! { SessionSet
    /// How long a session lives without a touch: 8 partition leases to a day. All processes of a
    /// set have to name the same.
    timeout(timeout: Duration) => timeout = timeout;
    /// How soon a dead owner of a partition is replaced: within two of these. It is 1 to 10 s, and
    /// all processes of a set have to name the same.
    partition_lease(lease: Duration) => set.lease = lease;
    /// The number of brokers, 1, 3 or 5, that store the set. It counts when the set is created.
    replicas(replicas: usize) => set.replicas = replicas;
}

impl SessionSet {
    /// Joins the set, and creates it if it does not exist. The second result gives the ends that
    /// the process receives. A process that drops it drops the ends of its partitions too.
    ///
    /// # Errors
    ///
    /// As [`PartitionSet::join`]; [`Setting`](NatsError::Setting): the timeout too.
    pub async fn join(self) -> Result<(Sessions, Ended), NatsError> {
        NatsError::name("set of sessions", &self.name)?;
        let SessionSet { name, set, timeout } = self;
        let leases = Duration::from_secs(1)..=Duration::from_secs(10);
        NatsError::within("lease", set.lease, leases, "1 s to 10 s")?;
        let needed = "8 times the partitions' lease, to a day";
        NatsError::within("timeout", timeout, set.lease * SHORTEST..=DAY, needed)?;
        let (reported, ended) = mpsc::unbounded_channel();
        let (counted, counts) = (Counts::default(), set.count);
        let terms = Terms { timeout, reported };
        let joined = keep::join::<Owner<_>>(set, "sessions", &name, terms.clone()).await?;
        let (front, live) = Front::new(terms, clock::now(), counts);
        let (served, front) = (joined.served.clone(), Mutex::new(front));
        let shared = Arc::new(Shared { served, live, front, timeout, counts: counted });
        let due = |shared: &Shared| shared.on(Event::Tick);
        let send = |shared: Arc<Shared>, touch| async move { shared.send(touch).await };
        let task = Task::new(keep::each_tick(joined.served.lease, shared.clone(), due, send));
        Ok((Sessions(Arc::new(Inner { shared, joined, _task: task })), Ended(ended)))
    }
}

/// What all machines of a process have in common.
#[derive(Clone)]
pub(crate) struct Terms {
    timeout: Duration,
    /// Sessions that have ended.
    reported: mpsc::UnboundedSender<SessionId>,
}

/// A tracker whose time is a machine's `now`.
fn tracker(now: Duration, collects: bool) -> (ManualClock, SessionTracker) {
    let clock = ManualClock::new();
    keep::set(&clock, now);
    let builder = SessionTracker::builder().clock(clock.clone());
    let builder = if collects { builder.collect_touches() } else { builder.shards(1) };
    (clock, builder.build_manual().expect("the number of shards is allowed"))
}

struct Shared {
    served: Arc<Served>,
    live: Arc<SessionTracker>,
    front: Mutex<Front>,
    timeout: Duration,
    counts: Counts,
}

impl Shared {
    fn on(&self, event: Event) -> Vec<Touch> {
        let mut out = Vec::new();
        lock(&self.front).on(clock::now(), event, &mut out);
        out
    }

    /// Sends touches until the partition has none left, or its owner does not answer.
    async fn send(&self, touch: Touch) {
        let mut next = Some(touch);
        while let Some(Touch { partition, sent_at, touched }) = next {
            let (sent, ask) = (touched.ids.len(), Ask::Touch(touched));
            let gone = match self.served.ask(partition, ask, self.served.lease / 2).await {
                Some(Said::Gone(gone)) => Some(gone.ids),
                _ => None,
            };
            let Counts { touches, unanswered } = &self.counts;
            let count = if gone.is_some() { touches } else { unanswered };
            count.fetch_add(sent as u64, Ordering::Relaxed);
            next = self.on(Event::Answered { partition, sent_at, gone }).pop();
        }
    }

    /// Asks about a session. The answer is whether it lives.
    async fn ask(&self, what: &'static str, ask: Ask, id: SessionId) -> Result<bool, NatsError> {
        if let Some(why) = self.served.ended.get() {
            return Err(why.clone());
        }
        let partition = (id.0 % u64::from(self.served.count)) as u32;
        let fits = |said, _| match said {
            Said::Lives(lives) => Some(lives),
            Said::Gone(_) => None,
        };
        self.served.ask_until(what, self.served.patience(), (partition, ask), fits).await
    }

    /// Where there is no memory, `touch` says that the process does not serve the session.
    fn serve(&self, id: SessionId) {
        let _ = self.live.track(id, self.timeout, 0);
    }
}

struct Inner {
    shared: Arc<Shared>,
    joined: Joined,
    _task: Task,
}

/// A process's part in a set of sessions: a front-end, and the owner of some partitions. A clone is
/// the same. When the last clone is dropped, the process hands its partitions over in the
/// background, and sends no touches any more.
#[derive(Clone)]
pub struct Sessions(Arc<Inner>);

debug!(Sessions, |it| "Sessions({}, {:?})", it.0.shared.served.prefix, it.stats());

stats! {
    /// Counts of a process's part in a set of sessions, since it joined.
    SessionStats as "expiry_nats_sessions_"
    gauges {
        /// The sessions that the process serves as a front-end.
        served: usize,
        /// The partitions that it owns.
        partitions: usize,
    }
    counters {
        /// Touches that owners have confirmed. Those of one session between two batches are one.
        touches,
        /// Touches without an answer. The process has sent them again.
        unanswered,
    }
    given {
        /// Requests, answers and records that did not parse. The process dropped them.
        malformed,
    }
}

impl Sessions {
    /// Begins a session, which this process serves: when this returns, the brokers have stored it.
    /// Its id is random, and no secret. When the future is dropped, the session that may have begun
    /// ends by its timeout.
    ///
    /// # Errors
    ///
    /// [`Unanswered`](NatsError::Unanswered): the partition has had no owner that answers for 4
    /// partition leases and 4 times the request timeout. [`NameTaken`](NatsError::NameTaken).
    pub async fn begin(&self) -> Result<SessionId, NatsError> {
        let shared = &*self.0.shared;
        let id = SessionId(shared.served.nats.random());
        shared.ask("begin a session", Ask::Begin(id.0), id).await?;
        shared.serve(id);
        Ok(id)
    }

    /// Serves a session that another process began, because its client is connected here now.
    /// False: the session has ended. This counts as a touch. The process that served it before may
    /// go on to touch it: the session lives as long as any process touches it.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub async fn adopt(&self, id: SessionId) -> Result<bool, NatsError> {
        let lives = self.0.shared.ask("adopt a session", Ask::Adopt(id.0), id).await?;
        if lives {
            self.0.shared.serve(id);
        }
        Ok(lives)
    }

    /// Says that a session's client is alive. It does no I/O, and is lock-free: the process sends
    /// the sessions that were touched to their owners four times in a timeout, and again until they
    /// answer. A session that is touched each half of its timeout lives, whatever owners and
    /// brokers die, while its front-end reaches the brokers.
    ///
    /// False: the process does not serve the session, because it has ended or was not touched for
    /// its timeout. [`adopt`](Self::adopt) finds out.
    #[must_use = "it says whether the process serves the session"]
    pub fn touch(&self, id: SessionId) -> bool {
        self.0.shared.live.touch(id).is_ok()
    }

    /// Ends a session, whichever process serves it: when this returns, its record is deleted.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin). This process serves the session no longer, so that it ends by its
    /// timeout.
    pub async fn end(&self, id: SessionId) -> Result<(), NatsError> {
        self.0.shared.live.remove(id);
        self.0.shared.ask("end a session", Ask::End(id.0), id).await.map(drop)
    }

    /// Hands the process's partitions over to the others, for two partition leases at most. The
    /// process may go on as a front-end.
    pub async fn leave(&self) {
        self.0.joined.leave().await;
    }

    /// Counts, without asking a broker.
    #[must_use]
    pub fn stats(&self) -> SessionStats {
        let Shared { served, live, counts, .. } = &*self.0.shared;
        let partitions = served.partitions.load(Ordering::Relaxed);
        counts.snapshot(live.len(), partitions, served.malformed.load(Ordering::Relaxed))
    }
}

/// The sessions that have ended, of the partitions that this process owns, and of those that it
/// served and touched too late. The owner reports an end after the session's record is deleted, to
/// some process at least once: a new owner reports the ends of the last minute again. What the
/// process does not take waits in its memory.
#[derive(Debug)]
pub struct Ended(mpsc::UnboundedReceiver<SessionId>);

impl Ended {
    /// The next end. Cancel safe. None: the [`Sessions`] were dropped.
    pub async fn next(&mut self) -> Option<SessionId> {
        self.0.recv().await
    }
}
