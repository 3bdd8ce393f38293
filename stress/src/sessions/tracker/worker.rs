//! A thread of a round: creates sessions, and does everything that can be done to those that all threads have created last.

use super::super::lock;
use super::law::{Did, End, Event};
use crate::checks::Checks;
use crate::latency::nanos;
use crate::options::Sessions;
use crate::timeline::Timeline;
use expiry::{Session, SessionError, SessionId, SessionTracker, StoreError};
use rand::rngs::SmallRng;
use rand::Rng;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::Duration;

/// Sessions that all threads are at.
const PLACES: usize = 64;
/// After how many operations a thread lets simulated time pass.
const STEP: usize = 16;
/// The most sessions of a batch.
const BATCH: usize = 8;
/// Share of operations that create a session, which takes another's place.
const CREATES: f64 = 0.12;

/// What all threads of a round share.
pub struct Shared<'a> {
    pub sessions: &'a SessionTracker,
    pub time: &'a Timeline,
    /// Who is told of refusals.
    pub checks: &'a Checks,
    pub interval: Duration,
    /// The longest timeout, in intervals.
    pub longest: u32,
    /// Share of operations that set closing or remove.
    pub removes: f64,
    /// The sessions that were created last.
    pub places: Vec<Mutex<Option<Session>>>,
    /// Owners so far: no two are the same.
    pub owners: AtomicU64,
    /// Sessions so far.
    pub created: AtomicU64,
}

/// A thread's part of a round.
pub struct Worker<'a, 's> {
    shared: &'s Shared<'a>,
    rng: &'s mut SmallRng,
    /// Events, each with its session.
    pub log: Vec<(SessionId, Event)>,
}

impl<'a> Shared<'a> {
    /// For a round with a new tracker.
    pub fn new(
        sessions: &'a SessionTracker,
        time: &'a Timeline,
        checks: &'a Checks,
        options: &Sessions,
    ) -> Self {
        Shared {
            sessions,
            time,
            checks,
            interval: options.interval,
            longest: options.longest,
            removes: options.removes.unwrap_or(0.1),
            places: (0..PLACES).map(|_| Mutex::new(None)).collect(),
            owners: AtomicU64::new(0),
            created: AtomicU64::new(0),
        }
    }
}

impl<'a, 's> Worker<'a, 's> {
    pub fn new(shared: &'s Shared<'a>, rng: &'s mut SmallRng) -> Self {
        Worker { shared, rng, log: Vec::new() }
    }

    /// Works until so many sessions of all threads have been created, or none can be any more.
    pub fn work(mut self, sessions: u64) -> Vec<(SessionId, Event)> {
        let shared = self.shared;
        // In the time of a session's place in the window, on average, some half of the longest timeouts passes.
        let operations = (PLACES as f64 / CREATES) as u32;
        let step = shared.interval * shared.longest * STEP as u32 / (2 * operations);
        for number in 0.. {
            if shared.created.load(Relaxed) >= sessions || !self.operation() {
                break;
            }
            if number % STEP == 0 {
                shared.time.advance(step);
            }
        }
        self.log
    }

    fn timeout(&mut self) -> Duration {
        let least = nanos(self.shared.interval);
        Duration::from_nanos(self.rng.random_range(least..=least * u64::from(self.shared.longest)))
    }

    /// Runs an operation on a session between two readings, and notes what it did.
    fn note(&mut self, id: SessionId, timeout: Duration, operation: impl FnOnce() -> Did) {
        let before = self.shared.time.before();
        let did = operation();
        let event = Event::between(did, before, self.shared.time.after(), nanos(timeout));
        self.log.push((id, event));
    }

    /// False if the tracker is closed.
    fn operation(&mut self) -> bool {
        let place = self.rng.random_range(0..PLACES);
        let session = *lock(&self.shared.places[place]);
        let Some(session) = session.filter(|_| !self.rng.random_bool(CREATES)) else {
            return self.create(place);
        };
        let (sessions, id) = (self.shared.sessions, session.id());
        if self.rng.random_bool(self.shared.removes) {
            if self.rng.random() {
                self.note(id, Duration::ZERO, || did(sessions.set_closing(id), |()| Did::Closing));
            } else {
                self.note(id, Duration::ZERO, || match sessions.remove(id) {
                    Some(session) => Did::Ended(End::Removed, session),
                    None => Did::Unknown,
                });
            }
            return true;
        }
        let (own, other) = (session.timeout(), self.timeout());
        let owner = self.shared.owners.load(Relaxed);
        match self.rng.random_range(0..10) {
            0 => self.note(id, own, || touched(sessions.touch(id))),
            1 => self.note(id, other, || touched(sessions.touch_for(id, other))),
            2 => self.note(id, own, || touched(sessions.touch_by(&session))),
            3 => self.note(id, other, || touched(sessions.touch_by_for(&session, other))),
            4 => self.batch(),
            5 | 6 => {
                // Mostly somebody who is not the owner, and is told who is.
                let asked = self.rng.random_range(1..=owner);
                self.note(id, Duration::ZERO, || match sessions.check(id, asked) {
                    Err(SessionError::Moved { owner }) => Did::Owned { owner },
                    checked => did(checked, |()| Did::Owned { owner: asked }),
                });
            }
            7 | 8 => {
                let owner = self.owner();
                self.note(id, Duration::ZERO, || match sessions.set_owner(id, owner) {
                    Ok(before) => Did::Moved { owner, before },
                    Err(SessionError::Unknown) => Did::NotMoved { owner },
                    Err(error) => refused(error),
                });
            }
            _ => self.note(id, Duration::ZERO, || did(sessions.upgrade(id), Did::Upgraded)),
        }
        true
    }

    fn owner(&self) -> u64 {
        self.shared.owners.fetch_add(1, Relaxed) + 1
    }

    fn create(&mut self, place: usize) -> bool {
        let (timeout, owner, global) = (self.timeout(), self.owner(), self.rng.random());
        let sessions = self.shared.sessions;
        let before = self.shared.time.before();
        let created = if global {
            sessions.create(timeout, owner)
        } else {
            sessions.create_local(timeout, owner)
        };
        let after = self.shared.time.after();
        match created {
            Ok(session) => {
                let did = Did::Created { owner, global };
                let event = Event::between(did, before, after, nanos(session.timeout()));
                self.log.push((session.id(), event));
                *lock(&self.shared.places[place]) = Some(session);
                self.shared.created.fetch_add(1, Relaxed);
                true
            }
            Err(StoreError::Closed) => false,
            Err(error) => {
                let why = || format!("a session was refused: {error}");
                self.shared.checks.violated("no_surprises", why);
                false
            }
        }
    }

    fn batch(&mut self) {
        let mut items = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let session = *lock(&self.shared.places[self.rng.random_range(0..PLACES)]);
            items.extend(session.map(|session| (session.id(), self.timeout())));
        }
        let before = self.shared.time.before();
        let done = self.shared.sessions.touch_batch(&items);
        let after = self.shared.time.after();
        for (&(id, timeout), done) in items.iter().zip(done) {
            let event = Event::between(touched(done), before, after, nanos(timeout));
            self.log.push((id, event));
        }
    }
}

fn did<T>(done: Result<T, SessionError>, what: impl FnOnce(T) -> Did) -> Did {
    done.map_or_else(refused, what)
}

fn touched(done: Result<(), SessionError>) -> Did {
    did(done, |()| Did::Touched)
}

fn refused(error: SessionError) -> Did {
    match error {
        SessionError::Closing => Did::FoundClosing,
        _ => Did::Unknown,
    }
}
