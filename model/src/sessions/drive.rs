//! Does the same to a `SessionTracker` and to the oracle, and compares every result and all that there is.

use expiry::{
    ManualClock, Session, SessionError, SessionId, SessionInfo, SessionTracker, StoreError, Tracked,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Nanoseconds since the tracker was built.
type Time = u128;

/// The end of time: 64 bits of nanoseconds.
const LAST: Time = u64::MAX as Time;

/// By how many intervals a tracker may fall behind its clock before it expires what is due whatever it is asked: documented as
/// 2^38.
const BEHIND: u128 = 1 << 38;

#[derive(Debug, Clone)]
pub struct Setup {
    pub interval: Duration,
    /// In intervals.
    pub bounds: Option<(u32, u32)>,
    pub capacity: Option<usize>,
    pub shards: usize,
    pub collects: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Asked {
    Intervals(u32),
    Nanos(u32),
    Zero,
    Longest,
}

#[derive(Debug, Clone)]
pub enum Op {
    Create(Asked, u64, bool),
    Track(u64, Asked, u64, bool),
    Touch(u64),
    TouchFor(u64, Asked),
    TouchBy(u64),
    TouchByFor(u64, Asked),
    Batch(Vec<(u64, Asked)>),
    SetClosing(u64),
    Remove(u64),
    Check(u64, u64),
    SetOwner(u64, u64),
    Upgrade(u64),
    TakeTouched,
    Advance(Asked),
    ToTheNext,
    Years(u32),
    Poll,
    PollBriefly(usize),
}

/// What the oracle knows of a session.
#[derive(Debug, Clone)]
struct Entry {
    owner: u64,
    timeout: Duration,
    global: bool,
    /// `None`: it is being closed.
    due: Option<Time>,
    touched: bool,
    /// Which stay of the id it is.
    stay: usize,
}

struct Model {
    interval: Time,
    bounds: (Duration, Duration),
    capacity: usize,
    collects: bool,
    now: Time,
    /// Up to when what was due has been expired.
    caught_up: Time,
    live: BTreeMap<SessionId, Entry>,
    /// Expired, and not polled yet.
    expired: Vec<SessionInfo2>,
    next: u64,
    stays: usize,
}

/// What is told of a session that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SessionInfo2(SessionId, u64, Duration, bool, Option<Duration>);

impl From<&SessionInfo> for SessionInfo2 {
    fn from(s: &SessionInfo) -> Self {
        SessionInfo2(s.id, s.owner, s.timeout, s.is_global, s.remaining)
    }
}

/// A new session came while the tracker was full: some of what was due has been expired for it.
fn room_was_made(model: &mut Model, sessions: &SessionTracker) {
    if model.live.len() < model.capacity {
        return;
    }
    let (now, is_there) = (model.now, |id| sessions.contains(id));
    let gone =
        |id: SessionId, entry: &Entry| entry.due.is_some_and(|due| due <= now) && !is_there(id);
    let over: Vec<_> = model
        .live
        .iter()
        .filter(|(&id, entry)| gone(id, entry))
        .map(|(&id, entry)| model.info(id, entry))
        .collect();
    model.live.retain(|&id, entry| !gone(id, entry));
    model.expired.extend(over);
}

fn nanos(time: Time) -> Duration {
    Duration::from_nanos(u64::try_from(time.min(LAST)).unwrap())
}

impl Model {
    fn granted(&self, asked: Duration) -> Duration {
        asked.max(self.bounds.0).min(self.bounds.1)
    }

    /// A deadline is rounded up to the interval.
    fn due(&mut self, timeout: Duration) -> Time {
        if self.now / self.interval - self.caught_up / self.interval >= BEHIND {
            self.expire();
        }
        let due = self.now + self.granted(timeout).as_nanos();
        let due = due.min(LAST).div_ceil(self.interval) * self.interval;
        due.min(LAST)
    }

    fn left(&self, entry: &Entry) -> Option<Duration> {
        entry.due.map(|due| nanos(due.saturating_sub(self.now)))
    }

    fn info(&self, id: SessionId, entry: &Entry) -> SessionInfo2 {
        SessionInfo2(id, entry.owner, entry.timeout, entry.global, self.left(entry))
    }

    fn expire(&mut self) {
        let now = self.now;
        let is_due = |entry: &Entry| entry.due.is_some_and(|due| due <= now);
        for (&id, entry) in self.live.iter().filter(|(_, entry)| is_due(entry)) {
            self.expired.push(self.info(id, entry));
        }
        self.live.retain(|_, entry| !is_due(entry));
        self.caught_up = now;
    }

    fn poll(&mut self) -> Vec<SessionInfo2> {
        self.expire();
        let mut expired = std::mem::take(&mut self.expired);
        expired.sort_unstable();
        expired
    }

    fn add(
        &mut self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
        global: bool,
    ) -> Result<usize, StoreError> {
        let due = self.due(timeout);
        if self.live.len() >= self.capacity {
            return Err(StoreError::Full);
        }
        self.stays += 1;
        let entry = Entry {
            owner,
            timeout: self.granted(timeout),
            global,
            due: Some(due),
            touched: false,
            stay: self.stays,
        };
        self.live.insert(id, entry);
        Ok(self.stays)
    }

    fn touch(&mut self, id: SessionId, timeout: Option<Duration>) -> Result<(), SessionError> {
        let own = self.live.get(&id).ok_or(SessionError::Unknown)?.timeout;
        let due = self.due(timeout.unwrap_or(own));
        let collects = self.collects;
        let entry = self.live.get_mut(&id).ok_or(SessionError::Unknown)?;
        if entry.due.is_none() {
            return Err(SessionError::Closing);
        }
        entry.due = Some(due);
        entry.touched |= collects && entry.global;
        Ok(())
    }

    /// The session, if it lives.
    fn alive(&mut self, id: SessionId) -> Result<&mut Entry, SessionError> {
        let entry = self.live.get_mut(&id).ok_or(SessionError::Unknown)?;
        if entry.due.is_none() {
            return Err(SessionError::Closing);
        }
        Ok(entry)
    }
}

pub struct Run {
    sessions: SessionTracker,
    clock: ManualClock,
    interval: Duration,
    model: Model,
    /// Handles, and which stay each is of.
    handles: Vec<(Session, usize)>,
}

/// Sets both sides against each other.
macro_rules! same {
    ($ours:expr, $theirs:expr) => {
        prop_assert_eq!($ours, $theirs, "the tracker, the oracle")
    };
}

impl Run {
    pub fn new(setup: &Setup) -> Self {
        let (clock, interval) = (ManualClock::new(), setup.interval);
        let mut builder = SessionTracker::builder()
            .interval(interval)
            .first_id(1)
            .seed(3)
            .shards(setup.shards)
            .clock(clock.clone());
        if let Some((minimum, maximum)) = setup.bounds {
            builder =
                builder.minimum_timeout(interval * minimum).maximum_timeout(interval * maximum);
        }
        if let Some(capacity) = setup.capacity {
            builder = builder.capacity(capacity);
        }
        if setup.collects {
            builder = builder.collect_touches();
        }
        let longest = nanos(interval.as_nanos() * ((1 << 39) - 2));
        let (minimum, maximum) = setup
            .bounds
            .map_or((interval, longest), |(least, most)| (interval * least, interval * most));
        Run {
            sessions: builder.build().unwrap(),
            clock,
            interval,
            model: Model {
                interval: interval.as_nanos(),
                bounds: (minimum, maximum),
                capacity: setup.capacity.unwrap_or(usize::MAX),
                collects: setup.collects,
                now: 0,
                caught_up: 0,
                live: BTreeMap::new(),
                expired: Vec::new(),
                next: 1,
                stays: 0,
            },
            handles: Vec::new(),
        }
    }

    fn time(&self, asked: Asked) -> Duration {
        match asked {
            Asked::Intervals(n) => self.interval * n,
            Asked::Nanos(n) => Duration::from_nanos(u64::from(n)),
            Asked::Zero => Duration::ZERO,
            Asked::Longest => Duration::MAX,
        }
    }

    /// Mostly a session that is there, or was; or one that may be issued next.
    fn id(&self, pick: u64) -> SessionId {
        let (which, pick) = (pick % 8, pick / 8);
        match which {
            0 => SessionId(self.model.next + pick % 3),
            1 => SessionId(pick % self.model.next.max(1)),
            _ => {
                let at = pick as usize % self.model.live.len().max(1);
                let id = self.model.live.keys().nth(at);
                id.copied().unwrap_or(SessionId(pick % 20))
            }
        }
    }

    fn handle(&self, pick: u64) -> Option<(Session, usize)> {
        let recent = self.handles.len().min(30);
        let at = self.handles.len().checked_sub(1 + pick as usize % recent.max(1))?;
        self.handles.get(at).copied()
    }

    fn advance(&mut self, by: Duration) {
        // Of 64 bits of nanoseconds some are to be left.
        if self.model.now + by.as_nanos() < 1 << 62 {
            self.clock.advance(by);
            self.model.now += by.as_nanos();
        }
    }

    fn create(&mut self, timeout: Duration, owner: u64, global: bool) -> Result<(), TestCaseError> {
        let created = if global {
            self.sessions.create(timeout, owner)
        } else {
            self.sessions.create_local(timeout, owner)
        };
        let model = &mut self.model;
        // If an id is in use, and found to be so, the next one is taken; without room for another nothing is looked up in vain.
        let stay = loop {
            let id = SessionId(model.next);
            model.next += 1;
            if !model.live.contains_key(&id) {
                room_was_made(model, &self.sessions);
                break model.add(id, timeout, owner, global).map(|stay| (id, stay));
            }
            // What is due by a jump of years goes first.
            model.due(timeout);
            if !model.live.contains_key(&id) {
                room_was_made(model, &self.sessions);
                break model.add(id, timeout, owner, global).map(|stay| (id, stay));
            }
        };
        match (created, stay) {
            (Ok(session), Ok((id, stay))) => {
                same!((session.id(), session.timeout()), (id, model.granted(timeout)));
                self.handles.push((session, stay));
            }
            (created, stay) => same!(created.map(|_| ()), stay.map(|_| ())),
        }
        Ok(())
    }

    fn track(
        &mut self,
        id: SessionId,
        timeout: Duration,
        owner: u64,
        global: bool,
    ) -> Result<(), TestCaseError> {
        let tracked = if global {
            self.sessions.track(id, timeout, owner)
        } else {
            self.sessions.track_local(id, timeout, owner)
        };
        let model = &mut self.model;
        model.due(timeout);
        let there = model.live.contains_key(&id).then(|| model.touch(id, Some(timeout)));
        match (tracked, there) {
            (Ok(Tracked::Added(session)), None) => {
                room_was_made(model, &self.sessions);
                let stay = model.add(id, timeout, owner, global).unwrap();
                same!((session.id(), session.timeout()), (id, model.granted(timeout)));
                self.handles.push((session, stay));
            }
            (Ok(Tracked::Renewed(session)), Some(Ok(()))) => {
                let entry = &model.live[&id];
                same!((session.id(), session.timeout()), (id, entry.timeout));
                self.handles.push((session, entry.stay));
            }
            (Ok(Tracked::Closing), Some(Err(SessionError::Closing))) => {}
            (Err(StoreError::Full), None) => {
                same!(model.live.len(), model.capacity);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    }

    fn touch_by(&mut self, pick: u64, timeout: Option<Duration>) -> Result<(), TestCaseError> {
        let Some((session, stay)) = self.handle(pick) else {
            return Ok(());
        };
        let touched = match timeout {
            None => self.sessions.touch_by(&session),
            Some(timeout) => self.sessions.touch_by_for(&session, timeout),
        };
        let model = &mut self.model;
        let is_it =
            |model: &Model| model.live.get(&session.id()).map(|entry| entry.stay) == Some(stay);
        // Where touches are collected the session is looked at before the clock is.
        if !model.collects || is_it(model) {
            model.due(Duration::ZERO);
        }
        let expected = if is_it(model) {
            model.touch(session.id(), timeout)
        } else {
            Err(SessionError::Unknown)
        };
        same!(touched, expected);
        Ok(())
    }

    pub fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Create(asked, owner, global) => self.create(self.time(asked), owner, global)?,
            Op::Track(pick, asked, owner, global) => {
                self.track(self.id(pick), self.time(asked), owner, global)?;
            }
            Op::Touch(pick) => {
                let id = self.id(pick);
                same!(self.sessions.touch(id), self.model.touch(id, None));
            }
            Op::TouchFor(pick, asked) => {
                let (id, timeout) = (self.id(pick), self.time(asked));
                let touched = self.sessions.touch_for(id, timeout);
                same!(touched, self.model.touch(id, Some(timeout)));
            }
            Op::TouchBy(pick) => self.touch_by(pick, None)?,
            Op::TouchByFor(pick, asked) => self.touch_by(pick, Some(self.time(asked)))?,
            Op::Batch(ref items) => {
                let item = |&(pick, asked): &(u64, Asked)| (self.id(pick), self.time(asked));
                let items: Vec<_> = items.iter().map(item).collect();
                let touched = self.sessions.touch_batch(&items);
                let each = items.iter().map(|&(id, timeout)| self.model.touch(id, Some(timeout)));
                same!(touched, each.collect::<Vec<_>>());
            }
            Op::SetClosing(pick) => {
                let id = self.id(pick);
                let closed = self.model.alive(id).map(|entry| entry.due = None);
                same!(self.sessions.set_closing(id), closed);
            }
            Op::Remove(pick) => {
                let id = self.id(pick);
                let removed = self.model.live.remove(&id);
                let removed = removed.map(|entry| self.model.info(id, &entry));
                let ours = self.sessions.remove(id);
                same!(ours.as_ref().map(SessionInfo2::from), removed);
            }
            Op::Check(pick, owner) => {
                let id = self.id(pick);
                let checked = self.model.alive(id).and_then(|entry| {
                    if entry.owner == 0 {
                        entry.owner = owner;
                    }
                    let moved = SessionError::Moved { owner: entry.owner };
                    (entry.owner == owner).then_some(()).ok_or(moved)
                });
                same!(self.sessions.check(id, owner), checked);
            }
            Op::SetOwner(pick, owner) => {
                let id = self.id(pick);
                let moved = self.model.alive(id);
                let moved = moved.map(|entry| std::mem::replace(&mut entry.owner, owner));
                same!(self.sessions.set_owner(id, owner), moved);
            }
            Op::Upgrade(pick) => {
                let id = self.id(pick);
                let entry = self.model.live.get_mut(&id).ok_or(SessionError::Unknown);
                let upgraded = entry.map(|entry| !std::mem::replace(&mut entry.global, true));
                same!(self.sessions.upgrade(id), upgraded);
                let global = upgraded.map(|_| true);
                same!(self.sessions.is_global(id), global);
            }
            Op::TakeTouched => {
                let mut taken = self.sessions.take_touched();
                taken.sort_unstable();
                let mut expected = Vec::new();
                let now = self.model.now;
                for (&id, entry) in &mut self.model.live {
                    let touched = std::mem::take(&mut entry.touched);
                    if let Some(due) = entry.due.filter(|_| touched) {
                        expected.push((id, nanos(due.saturating_sub(now))));
                    }
                }
                same!(taken, expected);
            }
            Op::Advance(asked) => self.advance(self.time(asked)),
            Op::ToTheNext => {
                let next = self.model.live.values().filter_map(|entry| entry.due).min();
                let by = next.map(|due| nanos(due.saturating_sub(self.model.now)));
                self.advance(by.unwrap_or_default());
            }
            Op::Years(n) => self.advance(Duration::from_secs(31_557_600) * n),
            Op::Poll => self.poll()?,
            Op::PollBriefly(budget) => {
                let mut expired = Vec::new();
                while self.sessions.poll_into(&mut expired, budget) {}
                let mut expired: Vec<_> = expired.iter().map(SessionInfo2::from).collect();
                expired.sort_unstable();
                same!(expired, self.model.poll());
            }
        }
        same!(self.sessions.len(), self.model.live.len());
        Ok(())
    }

    fn poll(&mut self) -> Result<(), TestCaseError> {
        let expired = self.sessions.poll();
        let mut expired: Vec<_> = expired.iter().map(SessionInfo2::from).collect();
        expired.sort_unstable();
        same!(expired, self.model.poll());
        Ok(())
    }

    /// All that there is.
    pub fn look(&self) -> Result<(), TestCaseError> {
        let mut seen = Vec::new();
        self.sessions.for_each(|session| seen.push(SessionInfo2::from(session)));
        seen.sort_unstable();
        let model = &self.model;
        let all: Vec<_> = model.live.iter().map(|(&id, entry)| model.info(id, entry)).collect();
        same!(seen, all);
        for expected in &model.live {
            let ours = self.sessions.get(*expected.0);
            same!(ours.as_ref().map(SessionInfo2::from), Some(model.info(*expected.0, expected.1)));
        }
        let mut dump = BTreeMap::<Duration, Vec<SessionId>>::new();
        for (&id, entry) in &model.live {
            if let Some(due) = entry.due {
                dump.entry(nanos(due)).or_default().push(id);
            }
        }
        let mut ours = self.sessions.dump();
        ours.values_mut().for_each(|ids| ids.sort_unstable());
        same!(ours, dump);
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), TestCaseError> {
        self.look()?;
        self.poll()?;
        let left = self.sessions.shutdown();
        let mut left: Vec<_> = left.iter().map(|session| session.id).collect();
        left.sort_unstable();
        let all: Vec<_> = self.model.live.keys().copied().collect();
        same!(left, all);
        same!(self.sessions.len(), 0);
        Ok(())
    }
}
