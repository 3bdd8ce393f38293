//! A session tracker: its sequential model, and the calls that are made on it.
//!
//! Each session is an object by itself, from its creation on. Until it has ended it can be touched, unless it is being closed; it
//! expires in a poll that finds its time up, unless it is being closed. Who ends it is told whose it was, whether it was global, and
//! whether it was being closed.
//!
//! A touch of a global session takes two steps: it renews the session, and it sets the flag that the
//! session was touched. A taking takes two for each session: it clears the flag, and it reads when
//! the session is due. The driver takes the touches in each of its sweeps.

use super::check::{Call, Model, Then};
use super::due::Due;
use super::record::{Heard, Kind, Log, Subject, Time, LONGEST};
use expiry::{Session, SessionError, SessionId, SessionInfo, SessionTracker};
use rand::rngs::SmallRng;
use rand::Rng;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::sync::{Mutex, PoisonError};

/// Share of operations that create a session, which takes another's place.
const CREATES: f64 = 0.12;
/// The most sessions of a batch.
const BATCH: u32 = 4;
/// The number of the first id.
const FIRST: u64 = 1 << 40;

/// What a session is beside its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seat {
    pub owner: u32,
    pub global: bool,
    pub closing: bool,
}

/// What is to be told to a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Report {
    Nothing,
    /// The flag is set: the next taking finds it.
    Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Unborn,
    Live { seat: Seat, due: Due, report: Report },
    Ended,
}

/// How an operation was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Unknown,
    Closing,
}

type Answer<T> = Result<T, Refused>;

/// Timeouts are in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Did {
    Created {
        seat: Seat,
        timeout: u32,
    },
    Touched {
        timeout: u32,
        answer: Answer<()>,
    },
    Closed(Answer<()>),
    /// What it was when it was removed.
    Removed(Option<Seat>),
    /// It was given to this owner. Whose it was.
    Moved {
        owner: u32,
        answer: Answer<u32>,
    },
    /// Whose it is.
    Checked(Answer<u32>),
    /// Whether this made it global.
    Upgraded(Answer<bool>),
    /// A poll gave it out.
    Expired(Seat),
    /// A taking named it, and so many ticks were left.
    Reported {
        left: u32,
    },
    /// A taking and a poll have gone by. See [`Due::is_left`].
    Swept {
        since: u64,
    },
    Over,
}

pub struct Sessions;

/// A touch that has renewed the session.
const RENEWED: u32 = 1;
/// A move that has written the owner of a session that somebody is about to end.
const WRITTEN: u32 = 1;
/// A taking that has cleared the flag.
const CLEARED: u32 = 1;

impl State {
    /// As it would be refused.
    fn refuses(self, how: Refused) -> bool {
        match self {
            State::Live { seat, .. } => seat.closing && how == Refused::Closing,
            State::Ended => how == Refused::Unknown,
            State::Unborn => false,
        }
    }

    fn step(self, call: &Call<Did>, memory: u32, next: &mut Vec<(State, Then)>) {
        let mut becomes = |state, then| next.push((state, then));
        let done = Then::Done;
        if let Did::Touched { answer: Err(how), .. }
        | Did::Closed(Err(how))
        | Did::Checked(Err(how))
        | Did::Upgraded(Err(how)) = call.did
        {
            if self.refuses(how) {
                becomes(self, done);
            }
            return;
        }
        let (seat, due, report) = match self {
            State::Live { seat, due, report } => (seat, due, report),
            State::Unborn => match call.did {
                Did::Created { seat, timeout } => {
                    let due = Due::after(call, timeout);
                    return becomes(State::Live { seat, due, report: Report::Nothing }, done);
                }
                Did::Swept { .. } => return becomes(self, done),
                _ => return,
            },
            State::Ended => match call.did {
                Did::Removed(None) | Did::Swept { .. } | Did::Over => return becomes(self, done),
                Did::Touched { .. } if memory != 0 => return becomes(self, done),
                Did::Moved { answer: Err(Refused::Unknown), .. } => return becomes(self, done),
                _ => return,
            },
        };
        let live = |seat, report| State::Live { seat, due, report };
        match call.did {
            Did::Touched { timeout, .. } if memory == 0 => {
                if let Some(due) = due.renewed(call, timeout).filter(|_| !seat.closing) {
                    becomes(State::Live { seat, due, report }, Then::Goes(RENEWED));
                }
            }
            Did::Touched { .. } if seat.global => becomes(live(seat, Report::Ready), done),
            Did::Touched { .. } => becomes(self, done),
            Did::Closed(_) if !seat.closing => {
                becomes(live(Seat { closing: true, ..seat }, report), done)
            }
            Did::Removed(Some(told)) if told == seat => becomes(State::Ended, done),
            Did::Moved { owner, answer } => match answer {
                Ok(before) if before == seat.owner && !seat.closing => {
                    becomes(live(Seat { owner, ..seat }, report), done);
                }
                Err(Refused::Closing) if seat.closing => becomes(self, done),
                Err(Refused::Unknown) if !seat.closing && memory == 0 => {
                    becomes(live(Seat { owner, ..seat }, report), Then::Goes(WRITTEN));
                }
                _ => {}
            },
            Did::Checked(Ok(owner)) if owner == seat.owner && !seat.closing => becomes(self, done),
            Did::Upgraded(Ok(first)) if first != seat.global => {
                becomes(live(Seat { global: true, ..seat }, report), done);
            }
            Did::Expired(told) if told == seat && !seat.closing && due.has_come(call).is_some() => {
                becomes(State::Ended, done);
            }
            Did::Reported { .. } if memory == 0 && report == Report::Ready => {
                becomes(live(seat, Report::Nothing), Then::Goes(CLEARED));
            }
            Did::Reported { left } if memory == CLEARED => {
                let due = if left == 0 { due.has_come(call) } else { due.left(call, left) };
                if let Some(due) = due.filter(|_| !seat.closing) {
                    becomes(State::Live { seat, due, report }, done);
                }
            }
            Did::Swept { .. } if seat.closing => becomes(self, done),
            Did::Swept { since } if report != Report::Ready => {
                if let Some(due) = due.is_left(call, since) {
                    becomes(State::Live { seat, due, report }, done);
                }
            }
            _ => {}
        }
    }
}

impl Model for Sessions {
    type State = State;
    type Did = Did;

    fn step(state: &State, call: &Call<Did>, memory: u32, next: &mut Vec<(State, Then)>) {
        state.step(call, memory, next);
    }

    fn only_looks(did: &Did) -> bool {
        matches!(did, Did::Checked(_) | Did::Swept { .. } | Did::Touched { answer: Err(_), .. })
    }
}

/// A tracker under load.
pub struct Load {
    tracker: SessionTracker,
    time: Time,
    /// The session that was created last at each place at which threads meet.
    places: Vec<Mutex<Option<Session>>>,
    /// Owners so far: no two are the same.
    owners: AtomicU32,
}

impl Subject for Load {
    type Model = Sessions;
    type Knowledge = ();
    const CHECK: &'static str = "sessions_linearizable";
    const INITIAL: State = State::Unborn;

    fn knowledge(&self, _: u8, _: u32) {}

    /// A key is a place here.
    fn operate(&self, key: u32, (): &mut (), luck: &mut SmallRng, log: &mut Log<'_, Did>) {
        let session = self.at(key);
        let Some(session) = session.filter(|_| !luck.random_bool(CREATES)) else {
            return self.create(key, luck, log);
        };
        let (tracker, id, number) = (&self.tracker, session.id(), number(session.id()));
        let own = self.time.to_ticks(session.timeout());
        let other = luck.random_range(1..=LONGEST);
        let after = log.time.ticks(other);
        let mut call = |did: &dyn Fn() -> Result<Did, SessionError>| {
            log.call(number, did);
        };
        let touched = |timeout, done| answer(done).map(|answer| Did::Touched { timeout, answer });
        match luck.random_range(0..100) {
            0..=9 => call(&|| touched(own, tracker.touch(id))),
            10..=19 => call(&|| touched(other, tracker.touch_for(id, after))),
            20..=29 => call(&|| touched(own, tracker.touch_by(&session))),
            30..=39 => call(&|| touched(other, tracker.touch_by_for(&session, after))),
            40..=49 => {
                let keys = (key..key + BATCH).map(|at| self.at(at % self.places.len() as u32));
                let items: Vec<_> = keys.flatten().map(|one| (one.id(), after)).collect();
                let did = |done| touched(other, done);
                let batch = || tracker.touch_batch(&items).into_iter().map(did);
                log.calls(|| items.iter().map(|item| self::number(item.0)).zip(batch()).collect());
            }
            50..=64 => {
                // Mostly somebody who is not the owner, and is told who is.
                let asked = luck.random_range(1..=self.owners.load(Relaxed));
                call(&|| match tracker.check(id, asked.into()) {
                    Err(SessionError::Moved { owner }) => Ok(Did::Checked(Ok(owner as u32))),
                    done => answer(done.map(|()| asked)).map(Did::Checked),
                });
            }
            65..=79 => {
                let owner = self.owner();
                let moved = |before| Did::Moved { owner, answer: before };
                call(&|| {
                    let before = tracker.set_owner(id, owner.into());
                    answer(before.map(|before| before as u32)).map(moved)
                });
            }
            80..=89 => call(&|| answer(tracker.upgrade(id)).map(Did::Upgraded)),
            90..=94 => call(&|| answer(tracker.set_closing(id)).map(Did::Closed)),
            _ => call(&|| Ok(Did::Removed(tracker.remove(id).map(|told| seat(&told))))),
        }
    }

    fn poll(&self) {
        for (id, left) in self.tracker.take_touched() {
            let left = Some(self.time.to_ticks(left));
            self.time.note(number(id).into(), 0, Kind::Other, left);
        }
        for session in self.tracker.poll() {
            let token = token(&seat(&session));
            self.time.hear(number(session.id).into(), token, Kind::Expired, None);
        }
    }

    fn polled(since: u64) -> Did {
        Did::Swept { since }
    }

    fn told(heard: &Heard) -> Did {
        match (heard.kind, heard.due) {
            (Kind::Expired, _) => Did::Expired(of_token(heard.token)),
            (_, Some(left)) => Did::Reported { left },
            (_, None) => Did::Removed(Some(of_token(heard.token))),
        }
    }

    fn over() -> Did {
        Did::Over
    }

    /// What is being closed does not expire.
    fn finish(&self) {
        for session in self.tracker.closing().into_iter().filter_map(|id| self.tracker.remove(id)) {
            self.time.note(number(session.id).into(), token(&seat(&session)), Kind::Other, None);
        }
    }

    fn left(&self) -> u64 {
        self.tracker.len() as u64
    }

    fn ended(&self) -> u64 {
        self.tracker.metrics().total.expired
    }

    fn put(&self, _number: u64) -> bool {
        self.tracker.create(self.time.ticks(1), 1).is_ok()
    }
}

impl Load {
    /// # Errors
    ///
    /// If the tracker cannot be built.
    pub fn new(
        time: &Time,
        capacity: Option<usize>,
        places: u32,
    ) -> Result<Self, expiry::BuildError> {
        let mut builder = SessionTracker::builder()
            .interval(time.interval())
            .clock(time.clock())
            .first_id(FIRST)
            .minimum_timeout(time.ticks(1))
            .collect_touches();
        if let Some(capacity) = capacity {
            builder = builder.capacity(capacity);
        }
        Ok(Load {
            tracker: builder.build_manual()?,
            time: time.clone(),
            places: (0..places).map(|_| Mutex::new(None)).collect(),
            owners: AtomicU32::new(0),
        })
    }

    /// The session that was created last at a place.
    fn at(&self, place: u32) -> Option<Session> {
        *self.places[place as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> u32 {
        self.owners.fetch_add(1, Relaxed) + 1
    }

    fn create(&self, place: u32, luck: &mut SmallRng, log: &mut Log<'_, Did>) {
        let seat = Seat { owner: self.owner(), global: luck.random(), closing: false };
        let timeout = luck.random_range(1..=LONGEST);
        let after = log.time.ticks(timeout);
        let mut created = None;
        log.calls(|| {
            let session = if seat.global {
                self.tracker.create(after, seat.owner.into())
            } else {
                self.tracker.create_local(after, seat.owner.into())
            };
            let at = session.as_ref().map_or(u32::MAX, |session| number(session.id()));
            let did = session.map(|session| {
                created = Some(session);
                Did::Created { seat, timeout }
            });
            vec![(at, did)]
        });
        *self.places[place as usize].lock().unwrap_or_else(PoisonError::into_inner) = created;
    }
}

/// Which session of the round it is, in the order of their ids.
fn number(id: SessionId) -> u32 {
    u32::try_from(id.0.wrapping_sub(FIRST)).unwrap_or(u32::MAX)
}

/// What a caller was answered. Other errors are a surprise.
fn answer<T>(done: Result<T, SessionError>) -> Result<Answer<T>, SessionError> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(SessionError::Unknown) => Ok(Err(Refused::Unknown)),
        Err(SessionError::Closing) => Ok(Err(Refused::Closing)),
        Err(error) => Err(error),
    }
}

fn seat(told: &SessionInfo) -> Seat {
    Seat { owner: told.owner as u32, global: told.is_global, closing: told.remaining.is_none() }
}

/// What a session was, as a number.
fn token(seat: &Seat) -> u64 {
    u64::from(seat.owner) | u64::from(seat.global) << 32 | u64::from(seat.closing) << 33
}

fn of_token(token: u64) -> Seat {
    Seat { owner: token as u32, global: token >> 32 & 1 != 0, closing: token >> 33 & 1 != 0 }
}
