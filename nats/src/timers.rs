//! Timers that outlive every process: the server's message schedules.
//!
//! The stream `APP+NAME+timers` is a work queue. A timer is a message with a schedule on the
//! subject `APP.timers.NAME.set.KEY.ID`. When it is due, the stream's leader stores its payload on
//! `APP.timers.NAME.due.KEY`, where a source reads it, and removes everything on the schedule's
//! subject. So each timer has a subject of its own: on a subject for each key, a timer that comes
//! out would take along the one that replaces it.
//!
//! The leader collects the timers that are due, and then stores one after the other. Meanwhile it
//! does not notice that one is deleted. So [`Timers::cancel`] deletes no timer that may be due.

use crate::base::{setters, DAY};
use crate::keyed::Keyed;
use crate::message::{decoded, token};
use crate::{clock, Nats, NatsError, SourceOptions};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::HeaderMap;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use time::format_description::well_known::Rfc3339;
use time::OffsetDateTime;
use tokio::sync::Mutex;

const SCHEDULE: &str = "Nats-Schedule";
/// How far the brokers' clocks, and what this worker knows of them, may differ.
const SKEW: Duration = Duration::from_millis(500);
/// For how long a reading of the broker's clock is good.
const FRESH: Duration = Duration::from_secs(10);

/// A set of timers. Its [`replicas`](Self::replicas) are 3 by default.
#[derive(Debug, Clone)]
#[must_use = "a set is opened by `open`"]
pub struct TimerSet(Keyed);

impl Nats {
    /// A set of timers. The first worker that opens it creates its stream.
    ///
    /// The name takes 1 to 64 of `[A-Za-z0-9_-]`.
    pub fn timers(&self, set: &str) -> TimerSet {
        TimerSet(Keyed::new(self, "timers", set))
    }
}

setters! { TimerSet
    /// The number of brokers, 1, 3 or 5, that store the set. It counts when the set is created.
    replicas(replicas: usize) => 0.replicas = replicas;
}

impl TimerSet {
    /// Opens the set. Creates its stream if it does not exist.
    ///
    /// # Errors
    ///
    /// [`NatsError`]: among others `Setting`, for the replicas.
    pub async fn open(self) -> Result<Timers, NatsError> {
        let config = Config {
            retention: RetentionPolicy::WorkQueue,
            allow_message_schedules: true,
            ..Config::default()
        };
        self.0.open(&["set.*.*", "due.*"], config).await?;
        Ok(Timers { keyed: self.0, clock: Arc::default() })
    }
}

/// Timers that outlive every process. A clone is the same set.
///
/// The clock is that of the brokers, to the error of a round trip: a timer is as good as their
/// agreement on the time. A timer comes out up to 0.3 s late, and later where many are due (20,000
/// at once take 2 s) or the brokers have no majority. It is never lost. It may come out twice: when
/// the stream's leader dies, and when its message is not acked. Both have the same header
/// `Nats-Scheduler`.
///
/// ```no_run
/// # async fn remind(nats: expiry_nats::Nats) -> Result<(), expiry_nats::NatsError> {
/// use expiry_nats::Incoming;
/// use std::time::Duration;
///
/// let timers = nats.timers("reminders").open().await?;
/// timers.after("order-17", Duration::from_secs(3600), "still unpaid").await?;
/// let keys = timers.clone();
/// let decode = move |due: &Incoming<'_>| {
///     keys.key(due.subject).map(|key| (key, due.payload.to_vec())).ok_or("not a timer's subject")
/// };
/// let source = nats.source(timers.due().dead_letters("billing.dead.reminders"), decode).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Timers {
    keyed: Keyed,
    /// A reading of the broker's clock, and when it was asked for.
    clock: Arc<Mutex<Option<(OffsetDateTime, Duration)>>>,
}

impl Timers {
    /// Sets a timer: the payload comes out after a time, up to ten years. It replaces the key's
    /// timer; where that one is due, both come out. A key is 1 to 256 bytes of any kind. Costs one
    /// stored message and one purge.
    ///
    /// # Errors
    ///
    /// [`Setting`](NatsError::Setting): the key's or the payload's length, or the time. After any
    /// other error the timer before it may come out or not; calling again sets one.
    pub async fn after(
        &self,
        key: impl AsRef<[u8]>,
        time: Duration,
        payload: impl Into<Bytes>,
    ) -> Result<(), NatsError> {
        const WHAT: &str = "set a timer";
        let (payload, keyed) = (payload.into(), &self.keyed);
        let key = token(key.as_ref())?;
        keyed.fits(&payload)?;
        NatsError::within("time", time, ..=DAY * 3660, "at most ten years")?;
        let due = later(self.now().await?, time)?.format(&Rfc3339);
        let due = due.map_err(|error| NatsError::refused(WHAT, &error))?;
        let mut headers = HeaderMap::new();
        headers.insert(SCHEDULE, format!("@at {due}"));
        headers.insert("Nats-Schedule-Target", keyed.subject(format_args!("due.{key}")));
        let id = keyed.nats.client().new_inbox();
        let id = id.rsplit('.').next().unwrap_or_default();
        let subject = keyed.subject(format_args!("set.{key}.{id}"));
        let stored = keyed.nats.store(subject, headers, payload).await;
        let stored = stored.map_err(|error| keyed.nats.unstored(WHAT, &error))?;
        // A purge up to the stream's first sequence would take everything.
        if stored.sequence <= 1 {
            return Ok(());
        }
        let before = keyed.handle().await?;
        let before = before.purge().filter(keyed.subject(format_args!("set.{key}.*")));
        let purged = before.sequence(stored.sequence).await;
        purged.map(drop).map_err(|_| keyed.nats.unanswered(WHAT))
    }

    /// Cancels a key's timer. True: it was set, and does not come out. False: there is none, or it
    /// comes out: a timer that is due within half a second is not cancelled. That holds while the
    /// brokers' clocks agree to within half a second. Costs a read, a deletion and a read.
    ///
    /// # Errors
    ///
    /// [`Setting`](NatsError::Setting): the key's length. After any other error the timer may come
    /// out or not.
    pub async fn cancel(&self, key: impl AsRef<[u8]>) -> Result<bool, NatsError> {
        const WHAT: &str = "cancel a timer";
        let set = self.keyed.subject(format_args!("set.{}.*", token(key.as_ref())?));
        let (mut cancelled, mut tried) = (false, 0);
        while let Some(found) = self.keyed.last(&set).await? {
            let due = found.headers.get(SCHEDULE).and_then(|due| due.as_str().strip_prefix("@at "));
            let due = due.and_then(|due| OffsetDateTime::parse(due, &Rfc3339).ok());
            // What is not a timer of this crate is left alone.
            let Some(due) = due else { return Ok(false) };
            if later(self.now().await?, SKEW)? > due {
                return Ok(false);
            }
            if std::mem::replace(&mut tried, found.sequence) == found.sequence {
                return Err(NatsError::refused(WHAT, &"the brokers do not delete it"));
            }
            cancelled |= self.keyed.delete(found.sequence).await?;
            // The leader may have collected the timer before it deleted it. Survives: a test would
            // have to hold the brokers up between the read and the deletion.
            if self.now().await? > due {
                return Err(self.keyed.nats.unanswered(WHAT));
            }
        }
        Ok(cancelled)
    }

    /// The settings of a source that reads the timers that are due, as the consumer `due`. All
    /// workers share it; a work queue takes no other consumer. Dead letters go to the subject
    /// `APP.dead.APP+SET+timers` if [`dead_letters`](SourceOptions::dead_letters) names none.
    pub fn due(&self) -> SourceOptions {
        SourceOptions::new(&self.keyed.stream(), "due").subject(&self.keyed.subject("due.*"))
    }

    /// The key of a timer, by the subject of its message; `None` for another subject.
    #[must_use]
    pub fn key(&self, subject: &str) -> Option<Vec<u8>> {
        decoded(subject.strip_prefix(&self.keyed.subject("due."))?)
    }

    /// The time at the stream's leader, or a little later: what was on its way is counted in.
    async fn now(&self) -> Result<OffsetDateTime, NatsError> {
        const WHAT: &str = "read the broker's clock";
        let mut read = self.clock.lock().await;
        if let Some((time, asked)) = *read {
            let since = clock::now().saturating_sub(asked);
            if since < FRESH {
                return later(time, since);
            }
        }
        let asked = clock::now();
        let info = format!("STREAM.INFO.{}", self.keyed.stream());
        let info = self.keyed.nats.context().request(info, &()).await;
        let info: serde_json::Value = info.map_err(|_| self.keyed.nats.unanswered(WHAT))?;
        let time = info["ts"].as_str().and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
        let time = time.ok_or_else(|| NatsError::refused(WHAT, &info))?;
        *read = Some((time, asked));
        later(time, clock::now().saturating_sub(asked))
    }
}

fn later(time: OffsetDateTime, by: Duration) -> Result<OffsetDateTime, NatsError> {
    let later = by.try_into().ok().and_then(|by| time.checked_add(by));
    later.ok_or_else(|| NatsError::refused("read the broker's clock", &time))
}
