//! Sessions of many clients over many front-ends.
//!
//! A session is an entry of `keep`. A process collects touches in a tracker of its own, and sends
//! them in batches (`FrontEnd`).

#[cfg(test)]
#[path = "../tests/unit/sessions.rs"]
mod tests;

use crate::base::{debug, setters, stats, DAY};
use crate::keep::{self, Answer, Entry, Front, Member, Served, Terms};
use crate::{clock, Nats, NatsError, PartitionSet};
/// Names a session of [`Nats::sessions`], by a random number. The layout of an id in the text below
/// is that of `expiry`'s trackers only.
///
pub use expiry::SessionId;
use expiry::{ManualClock, SessionTracker};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

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
        let SessionSet { name, mut set, timeout } = self;
        set.timeout = Some(timeout);
        let leases = Duration::from_secs(1)..=Duration::from_secs(10);
        NatsError::within("partition_lease", set.lease, leases, "1 s to 10 s")?;
        let needed = "8 times `partition_lease`, which is 2 s by default, to a day";
        NatsError::within("timeout", timeout, set.lease * SHORTEST..=DAY, needed)?;
        let (tell, ended) = mpsc::unbounded_channel();
        let front = FrontEnd::new(clock::now(), timeout);
        let live = front.live.clone();
        let report = move |id| {
            // An error says that the process takes no ends.
            let _ = tell.send(SessionId(id));
        };
        let terms = Terms { timeout: Some(timeout), report: Arc::new(report.clone()) };
        let member = keep::join(set, ("sessions", &name), terms, front, report).await?;
        Ok((Sessions(Arc::new(Inner { member, live, timeout })), Ended(ended)))
    }
}

/// The sessions that a process serves, without any I/O. Any number of threads touch the tracker;
/// the machine takes the touched ids a few times in a timeout.
///
/// A session that was not touched for its timeout is dropped here without a word: its owner ends
/// it, unless another front-end touches it. A touch counts from the last tick, so ticks that stop
/// for a timeout drop all sessions: their callers adopt them again.
struct FrontEnd {
    timeout: Duration,
    clock: ManualClock,
    live: Arc<SessionTracker>,
    /// When the machine takes the touched ids.
    due: Duration,
}

impl FrontEnd {
    fn new(now: Duration, timeout: Duration) -> Self {
        let (clock, live) = keep::tracker(now, true);
        Self { timeout, clock, live: Arc::new(live), due: now }
    }
}

impl Front for FrontEnd {
    type Gone = u64;

    fn tick(&mut self, now: Duration, due: &mut Vec<u64>, _gone: &mut Vec<u64>) {
        keep::set(&self.clock, now);
        drop(self.live.poll());
        if now >= self.due {
            self.due = now + self.timeout / 4;
            due.extend(self.live.take_touched().iter().map(|(id, _)| id.0));
        }
    }

    fn serves(&self, id: u64) -> bool {
        self.live.contains(SessionId(id))
    }

    fn touched(
        &mut self,
        now: Duration,
        _: Duration,
        id: u64,
        answer: Answer,
        gone: &mut Vec<u64>,
    ) {
        keep::set(&self.clock, now);
        if answer == Answer::No && self.live.remove(SessionId(id)).is_some() {
            gone.push(id);
        }
    }
}

struct Inner {
    member: Member<FrontEnd>,
    live: Arc<SessionTracker>,
    timeout: Duration,
}

impl Inner {
    fn served(&self) -> &Arc<Served> {
        self.member.served()
    }

    /// Serves a session. If there is no memory for it, `touch` says so.
    fn serve(&self, id: SessionId) {
        let _ = self.live.track(id, self.timeout, 0);
    }
}

/// A process's part in a set of sessions: a front-end, and the owner of some partitions. A clone is
/// the same. When the last clone is dropped, the process hands its partitions over in the
/// background, and sends no touches any more.
#[derive(Clone)]
pub struct Sessions(Arc<Inner>);

debug!(Sessions, |it| "Sessions({}, {:?})", it.0.served().prefix, it.stats());

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
        /// Requests, answers and records that did not parse. The process dropped them.
        malformed,
    }
}

impl Sessions {
    /// Begins a session, which this process serves: when this returns, the brokers have stored it.
    /// Its id is random, and no secret; its `Display` and `FromStr` take it to the client and back.
    /// When the future is dropped, the session that may have begun ends by its timeout.
    ///
    /// # Errors
    ///
    /// [`Unanswered`](NatsError::Unanswered): the partition has had no owner that answers for 4
    /// partition leases and 4 times the request timeout. [`NameTaken`](NatsError::NameTaken).
    pub async fn begin(&self) -> Result<SessionId, NatsError> {
        let id = SessionId(self.0.served().new_id(None));
        let entry = Entry::new(id.0, Vec::new(), self.0.timeout);
        self.0.served().begin("begin a session", entry).await?;
        self.0.serve(id);
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
        let lives = self.0.served().touch("adopt a session", id.0).await? != Answer::No;
        if lives {
            self.0.serve(id);
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
        self.0.live.touch(id).is_ok()
    }

    /// Ends a session, whichever process serves it: when this returns, its record is deleted.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin). This process serves the session no longer, so that it ends by its
    /// timeout.
    pub async fn end(&self, id: SessionId) -> Result<(), NatsError> {
        self.0.live.remove(id);
        let served = self.0.served();
        served.end("end a session", id.0, served.patience()).await
    }

    /// Hands the process's partitions over to the others, for two partition leases at most. The
    /// process may go on as a front-end.
    pub async fn leave(&self) {
        self.0.member.leave().await;
    }

    /// Counts, without asking a broker.
    #[must_use]
    pub fn stats(&self) -> SessionStats {
        let served = self.0.served();
        SessionStats {
            served: self.0.live.len(),
            partitions: served.partitions.load(Ordering::Relaxed),
            touches: served.touches.load(Ordering::Relaxed),
            unanswered: served.unanswered.load(Ordering::Relaxed),
            malformed: served.malformed.load(Ordering::Relaxed),
        }
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
