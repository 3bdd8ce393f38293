//! `SessionTracker`: every result, and all that there is.

use super::shared::{
    interval, is_behind, nanos, same, set, shards, tick_of, Span, Time, LAST, LONGEST,
};
use super::{capacity, each, perhaps, Found, Histories};
use arbitrary::{Result, Unstructured};
use expiry::{NewSession, Session, SessionError, SessionId, SessionInfo, SessionTracker};
use expiry::{StoreError, TokenError, Tracked};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// Histories of a `SessionTracker`.
pub struct Sessions {
    /// Whether the clock jumps by years: further than a lease can represent.
    years: bool,
    /// The most sessions that are touched at once.
    batch: u8,
}

fn new(owner: u64, global: bool) -> NewSession {
    let new = NewSession::from(owner);
    if global {
        new
    } else {
        new.local()
    }
}

impl Sessions {
    /// The settings of the property tests.
    pub fn random(years: bool) -> Self {
        Sessions { years, batch: 149 }
    }

    pub(crate) fn kept(bytes: &mut Unstructured<'_>) -> Result<Self> {
        Ok(Sessions { years: bytes.arbitrary()?, batch: 40 })
    }
}

/// A year, in nanoseconds.
const YEAR: u64 = 31_557_600_000_000_000;

fn asked(bytes: &mut Unstructured<'_>) -> Result<Span> {
    Ok(match bytes.int_in_range(0..=17u8)? {
        0..=9 => Span::Intervals(bytes.int_in_range(1..=39)?),
        10..=12 => Span::Intervals(bytes.int_in_range(1..=99_999)?),
        13..=15 => Span::Nanos(bytes.arbitrary::<u32>()?.into()),
        16 => Span::Nanos(0),
        _ => Span::Endless,
    })
}

impl Histories for Sessions {
    type Setup = Setup;
    type Op = Op;

    fn setup(&self, bytes: &mut Unstructured<'_>) -> Result<Setup> {
        let bounds = |bytes: &mut Unstructured<'_>| {
            let least = bytes.int_in_range(1..=9)?;
            Ok((least, least + bytes.int_in_range(0..=99)?))
        };
        Ok(Setup {
            interval: interval(bytes)?,
            bounds: perhaps(bytes, bounds)?,
            // A create that makes room catches up with a jump in part, which the model does not
            // follow.
            capacity: capacity(bytes, self.batch > 40, 29)?.filter(|_| !self.years),
            shards: shards(bytes)?,
            collects: bytes.arbitrary()?,
        })
    }

    fn op(&self, bytes: &mut Unstructured<'_>) -> Result<Op> {
        let pick = u64::from(bytes.arbitrary::<u16>()?);
        let owner = bytes.int_in_range(0..=3u64)?;
        Ok(match bytes.int_in_range(0..=83u8)? {
            0..=11 => Op::Create(asked(bytes)?, owner, bytes.arbitrary()?),
            12..=15 => Op::Track(pick, asked(bytes)?, owner, bytes.arbitrary()?),
            16..=23 => Op::Touch(pick, None),
            24..=27 => Op::Touch(pick, Some(asked(bytes)?)),
            28..=33 => Op::TouchBy(pick, None),
            34..=36 => Op::TouchBy(pick, Some(asked(bytes)?)),
            37 => {
                let n = bytes.int_in_range(0..=self.batch)?;
                let item = |_| Ok((bytes.arbitrary::<u16>()?.into(), asked(bytes)?));
                Op::Batch((0..n).map(item).collect::<Result<_>>()?)
            }
            38..=40 => Op::SetClosing(pick),
            41..=44 => Op::Remove(pick),
            45..=48 => Op::Check(pick, owner),
            49..=51 => Op::SetOwner(pick, owner),
            52 | 53 => Op::Upgrade(pick),
            54..=56 => Op::TakeTouched,
            57..=60 => Op::Advance(Span::Intervals(bytes.int_in_range(1..=29)?)),
            61..=64 => Op::Advance(Span::Nanos(bytes.arbitrary::<u32>()?.into())),
            65..=69 => Op::ToTheNext,
            70..=73 if self.years => Op::Advance(Span::Nanos(YEAR * bytes.int_in_range(1..=3u64)?)),
            70..=80 => Op::Poll(None),
            _ => Op::Poll(Some(bytes.int_in_range(1..=19)?)),
        })
    }

    fn run(&self, setup: &Setup, ops: &[Op]) -> Found {
        let mut run = Run::new(setup);
        each(ops, |at, op| {
            run.step(op)?;
            if at % 16 == 0 {
                run.look()?;
            }
            Ok(())
        })?;
        run.finish()
    }
}

#[derive(Debug, Clone)]
pub struct Setup {
    interval: Duration,
    /// The bounds in intervals.
    bounds: Option<(u32, u32)>,
    capacity: Option<usize>,
    shards: usize,
    collects: bool,
}

#[derive(Debug, Clone)]
pub enum Op {
    Create(Span, u64, bool),
    Track(u64, Span, u64, bool),
    /// A touch with the session's own timeout, or with this one.
    Touch(u64, Option<Span>),
    /// A touch by a handle.
    TouchBy(u64, Option<Span>),
    Batch(Vec<(u64, Span)>),
    SetClosing(u64),
    Remove(u64),
    Check(u64, u64),
    SetOwner(u64, u64),
    Upgrade(u64),
    TakeTouched,
    Advance(Span),
    ToTheNext,
    /// Polls with a budget for each call, or all at once.
    Poll(Option<usize>),
}

/// What the model knows of a session.
#[derive(Debug, Clone)]
struct Entry {
    owner: u64,
    timeout: Duration,
    global: bool,
    /// `None`: it is being closed.
    due: Option<u128>,
    touched: bool,
    /// Which stay of the id it is.
    stay: usize,
}

struct Model {
    interval: Duration,
    bounds: (Duration, Duration),
    capacity: usize,
    collects: bool,
    time: Time,
    /// Up to when what was due has been expired.
    caught_up: u128,
    live: BTreeMap<SessionId, Entry>,
    /// Expired, and not polled yet.
    expired: Vec<Info>,
    next: u64,
    stays: usize,
}

/// What the tracker says of a session.
type Info = (SessionId, u64, Duration, bool, Option<Duration>);

fn told(session: &SessionInfo) -> Info {
    (session.id, session.owner, session.timeout, session.is_global, session.remaining)
}

fn all_told(sessions: &[SessionInfo]) -> Vec<Info> {
    let mut all: Vec<_> = sessions.iter().map(told).collect();
    all.sort_unstable();
    all
}

impl Model {
    fn granted(&self, asked: Duration) -> Duration {
        asked.max(self.bounds.0).min(self.bounds.1)
    }

    /// A deadline is rounded up to the interval.
    fn due(&mut self, timeout: Duration) -> u128 {
        let interval = self.interval.as_nanos();
        let due = self.time.now + self.granted(timeout).as_nanos();
        let tick = tick_of(due, interval);
        if is_behind(tick, self.caught_up / interval) {
            self.expire();
        }
        (tick * interval).min(LAST)
    }

    fn left(&self, entry: &Entry) -> Option<Duration> {
        entry.due.map(|due| nanos(due.saturating_sub(self.time.now)))
    }

    fn info(&self, id: SessionId, entry: &Entry) -> Info {
        (id, entry.owner, entry.timeout, entry.global, self.left(entry))
    }

    fn infos(&self) -> Vec<Info> {
        self.live.iter().map(|(&id, entry)| self.info(id, entry)).collect()
    }

    /// Expires what is due, as far as `has_ended` confirms it.
    fn expire_if(&mut self, has_ended: impl Fn(SessionId) -> bool) {
        let now = self.time.now;
        let ends = |id, entry: &Entry| entry.due.is_some_and(|due| due <= now) && has_ended(id);
        for (&id, entry) in self.live.iter().filter(|(&id, entry)| ends(id, entry)) {
            self.expired.push(self.info(id, entry));
        }
        self.live.retain(|&id, entry| !ends(id, entry));
    }

    /// A new session came while the tracker was full: some of what was due has been expired for it.
    fn room_was_made(&mut self, sessions: &SessionTracker) {
        if self.live.len() >= self.capacity {
            self.expire_if(|id| !sessions.contains(id));
        }
    }

    fn expire(&mut self) {
        self.expire_if(|_| true);
        self.caught_up = self.time.now;
    }

    fn poll(&mut self) -> Vec<Info> {
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
    ) -> std::result::Result<usize, StoreError> {
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

    fn touch(
        &mut self,
        id: SessionId,
        timeout: Option<Duration>,
    ) -> std::result::Result<(), SessionError> {
        let own = self.live.get(&id).ok_or(SessionError::Unknown)?.timeout;
        let due = self.due(timeout.unwrap_or(own));
        let collects = self.collects;
        let entry = self.alive(id)?;
        entry.due = Some(due);
        entry.touched |= collects && entry.global;
        Ok(())
    }

    /// The session, if it lives.
    fn alive(&mut self, id: SessionId) -> std::result::Result<&mut Entry, SessionError> {
        let entry = self.live.get_mut(&id).ok_or(SessionError::Unknown)?;
        if entry.due.is_none() {
            return Err(SessionError::Closing);
        }
        Ok(entry)
    }
}

struct Run {
    sessions: SessionTracker,
    model: Model,
    /// Handles, and which stay each is of.
    handles: Vec<(Session, usize)>,
}

impl Run {
    fn new(setup: &Setup) -> Self {
        let (time, interval) = (Time::new(Duration::ZERO), setup.interval);
        let bounds = setup.bounds.map(|(least, most)| (interval * least, interval * most));
        let mut builder = SessionTracker::builder()
            .interval(interval)
            .first_id(1)
            .seed(3)
            .shards(setup.shards)
            .clock(time.clock.clone());
        set!(builder.minimum_timeout(bounds.map(|(least, _)| least)));
        set!(builder.maximum_timeout(bounds.map(|(_, most)| most)));
        set!(builder.capacity(setup.capacity));
        if setup.collects {
            builder = builder.collect_touches();
        }
        let longest = Span::Intervals(LONGEST).duration(interval);
        Run {
            sessions: builder.build_manual().unwrap(),
            model: Model {
                interval,
                bounds: bounds.unwrap_or((interval, longest)),
                capacity: setup.capacity.unwrap_or(usize::MAX),
                collects: setup.collects,
                time,
                caught_up: 0,
                live: BTreeMap::new(),
                expired: Vec::new(),
                next: 1,
                stays: 0,
            },
            handles: Vec::new(),
        }
    }

    fn span(&self, span: Span) -> Duration {
        span.duration(self.model.interval)
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
        // Some of the 64 bits of nanoseconds are left.
        self.model.time.pass_below(by, 1 << 62);
    }

    fn create(&mut self, timeout: Duration, owner: u64, global: bool) -> Found {
        let created = self.sessions.create(timeout, new(owner, global)).map_err(StoreError::from);
        let model = &mut self.model;
        // An id in use is passed over, also where its session's time is up.
        let stay = loop {
            let id = SessionId(model.next);
            model.next += 1;
            if !model.live.contains_key(&id) {
                model.room_was_made(&self.sessions);
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

    fn track(&mut self, id: SessionId, timeout: Duration, owner: u64, global: bool) -> Found {
        let tracked = self.sessions.track(id, timeout, new(owner, global));
        let model = &mut self.model;
        model.due(timeout);
        let there = model.live.contains_key(&id).then(|| model.touch(id, Some(timeout)));
        match (tracked, there) {
            (Ok(Tracked::Added(session)), None) => {
                model.room_was_made(&self.sessions);
                let stay = model.add(id, timeout, owner, global).unwrap();
                same!((session.id(), session.timeout()), (id, model.granted(timeout)));
                self.handles.push((session, stay));
            }
            (Ok(Tracked::Renewed(session, ())), Some(Ok(()))) => {
                let entry = &model.live[&id];
                same!((session.id(), session.timeout()), (id, entry.timeout));
                self.handles.push((session, entry.stay));
            }
            (Ok(Tracked::Closing(())), Some(Err(SessionError::Closing))) => {}
            (Err(TokenError { error: StoreError::Full, .. }), None) => {
                same!(model.live.len(), model.capacity);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        Ok(())
    }

    fn touch_by(&mut self, pick: u64, timeout: Option<Duration>) -> Found {
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
        // A tracker that collects touches looks at the session before it reads the clock.
        if !model.collects || is_it(model) {
            model.due(timeout.unwrap_or(session.timeout()));
        }
        let expected = if is_it(model) {
            model.touch(session.id(), timeout)
        } else {
            Err(SessionError::Unknown)
        };
        same!(touched, expected);
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Found {
        match *op {
            Op::Create(asked, owner, global) => self.create(self.span(asked), owner, global)?,
            Op::Track(pick, asked, owner, global) => {
                self.track(self.id(pick), self.span(asked), owner, global)?;
            }
            Op::Touch(pick, asked) => {
                let (id, timeout) = (self.id(pick), asked.map(|asked| self.span(asked)));
                let touched = match timeout {
                    None => self.sessions.touch(id),
                    Some(timeout) => self.sessions.touch_for(id, timeout),
                };
                same!(touched, self.model.touch(id, timeout));
            }
            Op::TouchBy(pick, asked) => {
                self.touch_by(pick, asked.map(|asked| self.span(asked)))?;
            }
            Op::Batch(ref items) => {
                let item = |&(pick, asked): &(u64, Span)| (self.id(pick), self.span(asked));
                let items: Vec<_> = items.iter().map(item).collect();
                let touched = self.sessions.touch_many(&items);
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
                same!(ours.as_ref().map(told), removed);
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
                let now = self.model.time.now;
                for (&id, entry) in &mut self.model.live {
                    let touched = std::mem::take(&mut entry.touched);
                    if let Some(due) = entry.due.filter(|_| touched) {
                        expected.push((id, nanos(due.saturating_sub(now))));
                    }
                }
                same!(taken, expected);
            }
            Op::Advance(asked) => self.advance(self.span(asked)),
            Op::ToTheNext => {
                let next = self.model.live.values().filter_map(|entry| entry.due).min();
                let by = next.map(|due| self.model.time.until(due));
                self.advance(by.unwrap_or_default());
            }
            Op::Poll(budget) => self.poll(budget)?,
        }
        same!(self.sessions.len(), self.model.live.len());
        Ok(())
    }

    fn poll(&mut self, budget: Option<usize>) -> Found {
        let expired = match budget {
            None => self.sessions.poll(),
            Some(budget) => {
                let mut expired = Vec::new();
                while self.sessions.poll_into(&mut expired, budget).more {}
                expired
            }
        };
        same!(all_told(&expired), self.model.poll());
        Ok(())
    }

    /// All that there is.
    fn look(&self) -> Found {
        let mut seen = Vec::new();
        self.sessions.for_each(|session| seen.push(told(session)));
        seen.sort_unstable();
        let (model, all) = (&self.model, self.model.infos());
        same!(&seen, &all);
        for info in all {
            same!(self.sessions.get(info.0).as_ref().map(told), Some(info));
        }
        let mut dump = BTreeMap::<Duration, Vec<SessionId>>::new();
        for (&id, entry) in &model.live {
            if let Some(due) = entry.due {
                dump.entry(nanos(due)).or_default().push(id);
            }
        }
        let mut closing = self.sessions.closing();
        closing.sort_unstable();
        let is_closing = |(&id, entry): (&SessionId, &Entry)| entry.due.is_none().then_some(id);
        same!(closing, model.live.iter().filter_map(is_closing).collect::<Vec<_>>());
        let mut ours = self.sessions.dump();
        ours.values_mut().for_each(|ids| ids.sort_unstable());
        same!(ours, dump);
        Ok(())
    }

    fn finish(mut self) -> Found {
        self.look()?;
        // The shutdown of every other history finds what is due, too.
        if self.model.next % 2 == 0 {
            self.poll(None)?;
        }
        // With what calls have ended, and no poll has returned.
        let mut all = self.model.infos();
        all.append(&mut self.model.expired);
        all.sort_unstable();
        self.model.live.clear();
        same!(all_told(&self.sessions.shutdown()), all);
        self.poll(None)?;
        same!((self.sessions.len(), self.sessions.shutdown().len()), (0, 0));
        let (id, timeout) = (SessionId(1), self.model.interval);
        same!(self.sessions.create(timeout, 1).unwrap_err().error, StoreError::Closed);
        same!(self.sessions.track(id, timeout, 1).unwrap_err().error, StoreError::Closed);
        same!(self.sessions.touch(id), Err(SessionError::Unknown));
        same!(self.sessions.set_closing(id), Err(SessionError::Unknown));
        same!(self.sessions.remove(id), None);
        if let Some((session, _)) = self.handle(0) {
            same!(self.sessions.touch_by(&session), Err(SessionError::Unknown));
        }
        Ok(())
    }
}
