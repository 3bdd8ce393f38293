//! The oracle: what `AckTracker` promises, written down as a plain sequential program.
//!
//! A `HashMap` from root to state, no bits, no hashing, no wheel. Nothing here comes from the
//! crate's own arithmetic: times are `i128` nanoseconds since the tracker was built, and the one
//! rule about them is the documented one: a deadline is rounded up to the interval, is never early,
//! and is seen by the first poll at or after it.
//!
//! # A clock that goes backwards
//!
//! The contract then is: nothing expires early, nothing is lost, time stands still until the clock
//! has caught up. That leaves a tracker some freedom, so each deadline is a [`Window`]: an expiry
//! is a violation before its beginning and a missing one is a violation after its end. While the
//! clock only goes forwards, both are the same instant.

use crate::histories::shared::LONGEST;
use expiry::{Ack, AckError, Done, Lifetime, LifetimeError, Reason, Root, RootId};
use std::collections::HashMap;
use std::time::Duration;

/// Nanoseconds since the tracker was built.
pub type Time = i128;

/// From when on a poll may end an entry, and from when on it must.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The earliest expiry, by the clock as it read when the deadline was set.
    pub may: Time,
    /// When it must expire, by the latest reading until then. It is the same as `may` if the clock
    /// never went backwards.
    pub must: Time,
    /// Number of readings of the clock when the deadline was set.
    pub from: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The init has not come. The first fail sets `failed`.
    Early {
        failed: bool,
    },
    Live {
        owner: u64,
    },
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub phase: Phase,
    pub xor: u64,
    /// When its timeout, or its idle timeout, ends it. `None`: never.
    pub window: Option<Window>,
    /// When its timeout does. It differs only where the clock never goes backwards.
    own: Option<Window>,
    /// When its init came, and how often the clock had gone backwards by then.
    pub born: (Time, u32),
}

/// An outcome that the tracker must deliver.
#[derive(Debug, Clone)]
pub struct Ended {
    pub root: RootId,
    pub owner: u64,
    pub reason: Reason,
    pub born: (Time, u32),
}

/// What the metrics must say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub inserted: u64,
    pub acked: u64,
    pub failed: u64,
    pub expired: u64,
    pub late: u64,
    pub duplicate: u64,
    pub early_held: u64,
    pub early_merged: u64,
    pub early_expired: u64,
    pub early_refused: u64,
}

#[derive(Debug, Clone)]
pub struct Limits {
    pub interval: Duration,
    pub timeout: Option<Duration>,
    pub idle_timeout: Option<Duration>,
    pub early_timeout: Duration,
    pub early_capacity: usize,
    pub capacity: Option<usize>,
}

pub struct Model {
    limits: Limits,
    pub entries: HashMap<RootId, Entry>,
    /// Early arrivals that may have expired; the model cannot know. They are due, but a budget ran
    /// out before the poll was through, or the clock went backwards. `limbo_gone` of them have
    /// expired.
    pub limbo: HashMap<u64, Entry>,
    pub limbo_gone: u64,
    /// Early arrivals in `entries`.
    early: u64,
    pub counts: Counts,
    /// The clock, and the latest it has ever been.
    pub now: Time,
    pub high: Time,
    /// All clock readings: an entry that was due at one of them may be reported later, when a
    /// budget allows.
    readings: Vec<Time>,
    /// How often it has gone backwards.
    pub backwards: u32,
    /// Outcomes that the step must deliver.
    pub ended: Vec<Ended>,
}

impl Model {
    pub fn new(limits: Limits) -> Self {
        Model {
            limits,
            entries: HashMap::new(),
            limbo: HashMap::new(),
            limbo_gone: 0,
            early: 0,
            counts: Counts::default(),
            now: 0,
            high: 0,
            readings: vec![0],
            backwards: 0,
            ended: Vec::new(),
        }
    }

    /// Entries in use: what `len` must say.
    pub fn live(&self) -> u64 {
        self.entries.len() as u64 + self.limbo.len() as u64 - self.limbo_gone
    }

    /// Roots in flight.
    pub fn in_flight(&self) -> impl Iterator<Item = (RootId, u64, &Entry)> {
        self.entries.iter().filter_map(|(&root, entry)| match entry.phase {
            Phase::Live { owner } => Some((root, owner, entry)),
            Phase::Early { .. } => None,
        })
    }

    fn held(&self) -> u64 {
        self.early + self.limbo.len() as u64 - self.limbo_gone
    }

    fn is_full(&self) -> bool {
        self.limits.capacity.is_some_and(|capacity| self.live() >= capacity as u64)
    }

    pub fn set_clock(&mut self, now: Time) {
        self.backwards += u32::from(now < self.now);
        self.now = now;
        self.high = self.high.max(now);
        self.readings.push(now);
    }

    fn rounded_up(&self, time: Time) -> Time {
        let interval = self.limits.interval.as_nanos() as Time;
        let ticks = (time + interval - 1).div_euclid(interval);
        // Documented at `Lifetime`: one interval in 2^40 counts as the next one.
        let last = (1 << 40) - 1;
        (ticks + Time::from(ticks & last == last)) * interval
    }

    fn after(&self, timeout: Duration) -> Window {
        let timeout = timeout.as_nanos() as Time;
        Window {
            may: self.rounded_up(self.now + timeout),
            must: self.rounded_up(self.high + timeout),
            from: self.readings.len() - 1,
        }
    }

    /// The window of a root that begins, or is renewed, now.
    fn window(&self, timeout: Lifetime) -> Result<Option<Window>, AckError> {
        Ok(match timeout {
            Lifetime::Never => None,
            Lifetime::Default => self.limits.timeout.map(|timeout| self.after(timeout)),
            Lifetime::After(Duration::ZERO) => return Err(AckError::Lifetime(LifetimeError::Zero)),
            Lifetime::After(timeout) => {
                if timeout.as_nanos().div_ceil(self.limits.interval.as_nanos())
                    > u128::from(LONGEST)
                {
                    return Err(AckError::Lifetime(LifetimeError::TooLong));
                }
                Some(self.after(timeout))
            }
        })
    }

    fn end(&mut self, root: RootId, reason: Reason) {
        let entry = self.entries.remove(&root).expect("only what is there ends");
        let Phase::Live { owner } = entry.phase else {
            panic!("only what is live has an outcome");
        };
        match reason {
            Reason::Acked => self.counts.acked += 1,
            Reason::Failed { .. } => self.counts.failed += 1,
            Reason::TimedOut { .. } => self.counts.expired += 1,
            _ => {}
        }
        self.ended.push(Ended { root, owner, reason, born: entry.born });
    }

    /// The window of a root whose timeout has the window `own`, and that is used now.
    fn or_idle(&self, own: Option<Window>) -> Option<Window> {
        let idle = self.limits.idle_timeout.map(|timeout| self.after(timeout));
        own.into_iter().chain(idle).min_by_key(|window| window.must)
    }

    fn begin(&mut self, root: RootId, xor: u64, owner: u64, own: Option<Window>) {
        self.counts.inserted += 1;
        let (window, born) = (self.or_idle(own), (self.now, self.backwards));
        let entry = Entry { phase: Phase::Live { owner }, xor, window, own, born };
        self.entries.insert(root, entry);
        if xor == 0 {
            self.end(root, Reason::Acked);
        }
    }

    /// Whether an issue would be refused. The id is the tracker's to choose, so the rest is
    /// [`issued`](Self::issued).
    pub fn issue(&self, timeout: Lifetime) -> Result<(), AckError> {
        self.window(timeout)?;
        if self.is_full() {
            return Err(AckError::Full);
        }
        Ok(())
    }

    pub fn issued(&mut self, root: Root, xor: u64, owner: u64, timeout: Lifetime) {
        let window = self.window(timeout).expect("it was issued");
        self.begin(RootId::Issued(root), xor, owner, window);
    }

    pub fn init(
        &mut self,
        id: u64,
        xor: u64,
        owner: u64,
        timeout: Lifetime,
    ) -> Result<(), AckError> {
        let root = RootId::Chosen(id);
        let window = self.window(timeout)?;
        match self.entries.get(&root).cloned() {
            None if self.is_full() => return Err(AckError::Full),
            None => self.begin(root, xor, owner, window),
            Some(early) => match early.phase {
                Phase::Live { .. } => {
                    self.counts.duplicate += 1;
                    return Err(AckError::Duplicate);
                }
                Phase::Early { failed } => {
                    self.counts.early_merged += 1;
                    self.early -= 1;
                    // A fail ends it whatever the edges say.
                    let xor = if failed { 1 } else { xor ^ early.xor };
                    self.begin(root, xor, owner, window);
                    if failed {
                        self.end(root, Reason::Failed { by: None });
                    }
                }
            },
        }
        Ok(())
    }

    /// The first sign of a chosen root that is not its init.
    fn hold(&mut self, id: u64, xor: u64, failed: bool) -> Result<(), AckError> {
        if self.held() >= self.limits.early_capacity as u64 {
            self.counts.early_refused += 1;
            return Err(AckError::EarlyFull);
        }
        if self.is_full() {
            return Err(AckError::Full);
        }
        self.counts.early_held += 1;
        self.early += 1;
        let (window, born) =
            (Some(self.after(self.limits.early_timeout)), (self.now, self.backwards));
        let entry = Entry { phase: Phase::Early { failed }, xor, window, own: window, born };
        self.entries.insert(RootId::Chosen(id), entry);
        Ok(())
    }

    fn late<T>(&mut self) -> Result<T, AckError> {
        self.counts.late += 1;
        Err(AckError::NotLive)
    }

    pub fn ack(&mut self, root: RootId, xor: u64) -> Result<Ack, AckError> {
        if xor == 0 {
            return Err(AckError::ZeroEdge);
        }
        match (root, self.entries.get_mut(&root)) {
            (RootId::Issued(_), None) => self.late(),
            (RootId::Chosen(id), None) => self.hold(id, xor, false).map(|()| Ack::Held),
            (_, Some(entry)) => {
                entry.xor ^= xor;
                match entry.phase {
                    Phase::Early { .. } => Ok(Ack::Held),
                    Phase::Live { .. } if entry.xor != 0 => {
                        let own = entry.own;
                        let window = self.or_idle(own);
                        self.entries.entry(root).and_modify(|entry| entry.window = window);
                        Ok(Ack::Pending)
                    }
                    Phase::Live { .. } => {
                        self.end(root, Reason::Acked);
                        Ok(Ack::Completed)
                    }
                }
            }
        }
    }

    pub fn fail(&mut self, root: RootId, by: Option<u64>) -> Result<Done, AckError> {
        match (root, self.entries.get_mut(&root)) {
            (RootId::Issued(_), None) => self.late(),
            (RootId::Chosen(id), None) => self.hold(id, 0, true).map(|()| Done::Held),
            (_, Some(entry)) => match &mut entry.phase {
                Phase::Early { failed } => {
                    *failed = true;
                    Ok(Done::Held)
                }
                Phase::Live { .. } => {
                    self.end(root, Reason::Failed { by });
                    Ok(Done::Now)
                }
            },
        }
    }

    pub fn reset(&mut self, root: RootId, timeout: Lifetime) -> Result<Done, AckError> {
        let own = self.window(timeout)?;
        let window = self.or_idle(own);
        let early = self.after(self.limits.early_timeout);
        match (root, self.entries.get_mut(&root)) {
            (RootId::Issued(_), None) => self.late(),
            (RootId::Chosen(id), None) => self.hold(id, 0, false).map(|()| Done::Held),
            (_, Some(entry)) => match entry.phase {
                Phase::Live { .. } => {
                    (entry.window, entry.own) = (window, own);
                    Ok(Done::Now)
                }
                Phase::Early { .. } => {
                    // The docs do not promise whether this also renews how long it may wait for its
                    // init.
                    if let Some(window) = &mut entry.window {
                        window.may = window.may.min(early.may);
                        window.must = window.must.max(early.must);
                    }
                    Ok(Done::Held)
                }
            },
        }
    }

    pub fn fail_all(&mut self, owner: u64) -> usize {
        let owned: Vec<RootId> =
            self.in_flight().filter(|&(_, of, _)| of == owner).map(|(root, ..)| root).collect();
        for &root in &owned {
            self.end(root, Reason::Failed { by: None });
        }
        owned.len()
    }

    pub fn may_expire(&self, window: Window) -> bool {
        self.high >= window.must
            || self.readings[window.from..].iter().any(|&reading| reading >= window.may)
    }

    pub fn must_expire(&self, window: Window) -> bool {
        self.now >= window.must
    }

    /// A poll has reported that `root` timed out. The error says what is wrong with that.
    pub fn timed_out(&mut self, root: RootId, due: Time, seen: Time) -> Result<Ended, String> {
        let Some(entry) = self.entries.get(&root) else {
            return Err(format!("{root} timed out, but is not in flight"));
        };
        let Some(window) = entry.window else {
            return Err(format!("{root} timed out, but never times out"));
        };
        let (now, high) = (self.now, self.high);
        if !matches!(entry.phase, Phase::Live { .. }) {
            return Err(format!("{root} timed out before its init"));
        }
        if !self.may_expire(window) {
            return Err(format!(
                "{root} timed out EARLY: at {now} (at most {high} before) for {window:?}"
            ));
        }
        if due < window.may || due > window.must || due != self.rounded_up(due) {
            return Err(format!("{root} was due at {due}, which is not in {window:?}"));
        }
        if seen < due || (window.may == window.must && now == high && seen != now) {
            return Err(format!("{root}, due at {due}, was seen at {seen}, now {now}"));
        }
        self.end(root, Reason::TimedOut { due: Duration::ZERO, seen: Duration::ZERO });
        Ok(self.ended.pop().expect("it has just ended"))
    }

    /// After a poll: `through` if it had budget left, `early_expired` as the metrics say.
    pub fn polled(&mut self, through: bool, early_expired: u64) -> Result<(), String> {
        let mut due = Vec::new();
        for (&root, entry) in &self.entries {
            let Some(window) = entry.window else { continue };
            match (&entry.phase, root) {
                (Phase::Early { .. }, RootId::Chosen(id)) if self.may_expire(window) => {
                    due.push(id);
                }
                (Phase::Live { .. }, _) if through && self.must_expire(window) => {
                    return Err(format!("{root} should have expired by {}: {window:?}", self.now));
                }
                _ => {}
            }
        }
        for id in due {
            let entry = self.entries.remove(&RootId::Chosen(id)).expect("just seen");
            self.limbo.insert(id, entry);
            self.early -= 1;
        }
        if through {
            let before = self.limbo.len();
            let now = self.now;
            let must = |entry: &Entry| entry.window.is_some_and(|window| now >= window.must);
            self.limbo.retain(|_, entry| !must(entry));
            self.counts.early_expired += (before - self.limbo.len()) as u64;
        }
        let Some(gone) = early_expired.checked_sub(self.counts.early_expired) else {
            return Err(format!(
                "{early_expired} early arrivals have expired, {} should have",
                self.counts.early_expired
            ));
        };
        self.limbo_gone = gone;
        if gone > self.limbo.len() as u64 {
            return Err(format!(
                "{early_expired} early arrivals have expired, at most {} may have",
                self.counts.early_expired + self.limbo.len() as u64
            ));
        }
        if gone == self.limbo.len() as u64 {
            self.counts.early_expired = early_expired;
            self.limbo.clear();
            self.limbo_gone = 0;
        } else if gone == 0 {
            // None of them has.
            for (id, entry) in self.limbo.drain() {
                self.entries.insert(RootId::Chosen(id), entry);
                self.early += 1;
            }
        }
        Ok(())
    }

    /// The first instant at which something must expire that is certainly there.
    pub fn next_certain(&self) -> Option<Time> {
        next(self.entries.values())
    }

    /// The same with the entries in `limbo`, which may have expired.
    pub fn next_due(&self) -> Option<Time> {
        next(self.entries.values().chain(self.limbo.values()))
    }
}

fn next<'a>(entries: impl Iterator<Item = &'a Entry>) -> Option<Time> {
    entries.filter_map(|entry| entry.window).map(|window| window.must).min()
}
