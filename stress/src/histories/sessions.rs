//! A session tracker: its sequential model, and the calls that are made on it.
//!
//! Each session is an object by itself, from its creation on. It can be touched until it has ended
//! or is being closed. It expires in a poll that finds it due, unless it is being closed. The call
//! that ends it returns its owner, whether it was global, and whether it was being closed.
//!
//! A touch of a global session takes two steps: it renews the session, and it sets the flag that
//! the session was touched. A taking takes two for each session: it clears the flag, and it reads
//! when the session is due. The driver takes the touches in each of its polls.

use super::record::{set, Log, Subject, Time, LONGEST};
use crate::options::Histories;
use expiry::{
    BuildError, NewSession, Session, SessionError, SessionId, SessionInfo, SessionTracker,
    StoreError,
};
use model::due::{left_by_poll, Due};
use model::linear::{Span, Then};
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    Unborn,
    Live {
        seat: Seat,
        due: Due,
        /// The flag is set: the next taking reports the session.
        touched: bool,
    },
    Ended,
}

use State::{Ended, Live, Unborn};

type Answer<T> = Result<T, SessionError>;

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
    /// The session's state when it was removed.
    Removed(Option<Seat>),
    /// The session got this owner; the answer is the earlier one.
    Moved {
        owner: u32,
        answer: Answer<u32>,
    },
    /// The session's owner.
    Checked(Answer<u32>),
    /// Whether this made it global.
    Upgraded(Answer<bool>),
    /// A poll returned it.
    Expired(Seat),
    /// A taking named it, and so many ticks were left.
    Reported {
        left: u32,
    },
}

/// A touch that has renewed the session.
const RENEWED: u32 = 1;
/// A change of owner that has written the owner of a session which another call is about to end.
const WRITTEN: u32 = 1;
/// A taking that has cleared the flag.
const CLEARED: u32 = 1;

impl State {
    fn step(self, call: &Span, did: Did, memory: u32) -> Option<(State, Then)> {
        let done = |state| Some((state, Then::Done));
        let refused = match did {
            Did::Touched { answer: Err(how), .. }
            | Did::Closed(Err(how))
            | Did::Checked(Err(how))
            | Did::Upgraded(Err(how)) => Some(how),
            _ => None,
        };
        let (seat, due, touched) = match (self, did) {
            (Live { seat, .. }, _) if refused.is_some() => {
                let right = seat.closing && refused == Some(SessionError::Closing);
                return right.then_some((self, Then::Done));
            }
            (Live { seat, due, touched }, _) => (seat, due, touched),
            (Unborn, Did::Created { seat, timeout }) => {
                return done(Live { seat, due: Due::after(call, timeout), touched: false });
            }
            (Unborn, _) => return None,
            (Ended, _) => {
                let right = match did {
                    Did::Removed(None) => true,
                    Did::Touched { answer: Ok(()), .. } => memory != 0,
                    Did::Moved { answer: Err(how), .. } => how == SessionError::Unknown,
                    _ => refused == Some(SessionError::Unknown),
                };
                return right.then_some((self, Then::Done));
            }
        };
        let live = |seat| Live { seat, due, touched };
        match did {
            Did::Touched { timeout, .. } if memory == 0 && !seat.closing => Some((
                Live { seat, due: due.touched(call, timeout)?, touched },
                Then::Goes(RENEWED),
            )),
            Did::Touched { .. } if memory != 0 => {
                done(Live { seat, due, touched: touched || seat.global })
            }
            Did::Closed(_) if !seat.closing => done(live(Seat { closing: true, ..seat })),
            Did::Removed(Some(told)) if told == seat => done(Ended),
            Did::Moved { owner, answer } => match answer {
                Ok(before) if before == seat.owner && !seat.closing => {
                    done(live(Seat { owner, ..seat }))
                }
                Err(SessionError::Closing) if seat.closing => done(self),
                Err(SessionError::Unknown) if !seat.closing && memory == 0 => {
                    Some((live(Seat { owner, ..seat }), Then::Goes(WRITTEN)))
                }
                _ => None,
            },
            Did::Checked(Ok(owner)) if owner == seat.owner && !seat.closing => done(self),
            Did::Upgraded(Ok(first)) if first != seat.global => {
                done(live(Seat { global: true, ..seat }))
            }
            Did::Expired(told) if told == seat && !seat.closing => {
                due.has_come(call).and(done(Ended))
            }
            Did::Reported { .. } if memory == 0 && touched => {
                Some((Live { seat, due, touched: false }, Then::Goes(CLEARED)))
            }
            Did::Reported { left } if memory == CLEARED && !seat.closing => {
                let due = if left == 0 { due.has_come(call) } else { due.left(call, left) };
                done(Live { seat, due: due?, touched })
            }
            _ => None,
        }
    }
}

/// A tracker under load.
pub struct Load {
    tracker: SessionTracker,
    time: Time,
    /// The last session that was created at each place at which threads meet.
    places: Vec<Mutex<Option<Session>>>,
    /// Owners so far: no two are the same.
    owners: AtomicU32,
}

impl Subject for Load {
    type State = State;
    type Did = Did;
    type Error = StoreError;
    type Knowledge = ();
    const CHECK: &'static str = "sessions_linearizable";
    const INITIAL: State = Unborn;
    const OVER: State = Ended;

    fn apply(state: State, call: &Span, did: Did, memory: u32) -> Option<(State, Then)> {
        state.step(call, did, memory)
    }

    fn due(state: &mut State) -> Option<&mut Due> {
        match state {
            Live { seat, due, .. } if !seat.closing => Some(due),
            _ => None,
        }
    }

    /// A poll also takes the touches.
    fn polled(state: State, poll: &Span, since: u64, next: &mut Vec<(State, Then)>) {
        if !matches!(state, Live { touched: true, seat, .. } if !seat.closing) {
            next.extend(left_by_poll(state, Self::due, poll, since));
        }
    }

    fn is_look(did: &Did) -> bool {
        matches!(did, Did::Checked(_) | Did::Touched { answer: Err(_), .. })
    }

    fn new(time: &Time, capacity: Option<usize>, options: &Histories) -> Result<Self, BuildError> {
        let builder = set!(SessionTracker::builder(), time, capacity);
        let builder = builder.first_id(FIRST).minimum_timeout(time.ticks(1)).collect_touches();
        Ok(Load {
            tracker: builder.build_manual()?,
            time: time.clone(),
            places: (0..options.keys).map(|_| Mutex::new(None)).collect(),
            owners: AtomicU32::new(0),
        })
    }

    fn knowledge(&self, _: u8, _: &Histories) {}

    /// A key is a place here.
    fn operate(&self, key: u32, (): &mut (), luck: &mut SmallRng, log: &mut Log<'_, Self>) {
        let session = self.at(key);
        let Some(session) = session.filter(|_| !luck.random_bool(CREATES)) else {
            return self.create(key, luck, log);
        };
        let (tracker, id, chance) = (&self.tracker, session.id(), luck.random_range(0..100));
        let own = self.time.to_ticks(session.timeout());
        let other = luck.random_range(1..=LONGEST);
        let after = log.time.ticks(other);
        if (40..=49).contains(&chance) {
            let keys = (key..key + BATCH).map(|at| self.at(at % self.places.len() as u32));
            let items: Vec<_> = keys.flatten().map(|one| (one.id(), after)).collect();
            let did = |answer| Ok(Did::Touched { timeout: other, answer });
            let batch = || tracker.touch_many(&items).into_iter().map(did);
            return log.calls(|| items.iter().map(|item| number(item.0)).zip(batch()).collect());
        }
        // The asked owner is mostly not the right one; the answer then names that.
        let asked = luck.random_range(1..=self.owners.load(Relaxed));
        log.call(number(id), || {
            let touched = |timeout, answer| Did::Touched { timeout, answer };
            Ok(match chance {
                0..=9 => touched(own, tracker.touch(id)),
                10..=19 => touched(other, tracker.touch_for(id, after)),
                20..=29 => touched(own, tracker.touch_by(&session)),
                30..=39 => touched(other, tracker.touch_by_for(&session, after)),
                50..=64 => Did::Checked(match tracker.check(id, asked.into()) {
                    Err(SessionError::Moved { owner }) => Ok(owner as u32),
                    answer => answer.map(|()| asked),
                }),
                65..=79 => {
                    let owner = self.owner();
                    let before = tracker.set_owner(id, owner.into());
                    Did::Moved { owner, answer: before.map(|before| before as u32) }
                }
                80..=89 => Did::Upgraded(tracker.upgrade(id)),
                90..=94 => Did::Closed(tracker.set_closing(id)),
                _ => Did::Removed(tracker.remove(id).map(|told| seat(&told))),
            })
        });
    }

    fn poll(&self) {
        for (id, left) in self.tracker.take_touched() {
            let left = self.time.to_ticks(left);
            self.time.note(number(id).into(), Did::Reported { left });
        }
        for session in self.tracker.poll() {
            self.time.hear(number(session.id).into(), Did::Expired(seat(&session)));
        }
    }

    /// A closing session does not expire.
    fn finish(&self) {
        for session in self.tracker.closing().into_iter().filter_map(|id| self.tracker.remove(id)) {
            self.time.note(number(session.id).into(), Did::Removed(Some(seat(&session))));
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
    /// The session that was created last at a place.
    fn at(&self, place: u32) -> Option<Session> {
        *self.places[place as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn owner(&self) -> u32 {
        self.owners.fetch_add(1, Relaxed) + 1
    }

    fn create(&self, place: u32, luck: &mut SmallRng, log: &mut Log<'_, Self>) {
        let seat = Seat { owner: self.owner(), global: luck.random(), closing: false };
        let timeout = luck.random_range(1..=LONGEST);
        let after = log.time.ticks(timeout);
        let mut created = None;
        log.calls(|| {
            let new = NewSession::from(u64::from(seat.owner));
            let session = self.tracker.create(after, if seat.global { new } else { new.local() });
            let at = session.as_ref().map_or(u32::MAX, |session| number(session.id()));
            let did = session.map(|session| {
                created = Some(session);
                Did::Created { seat, timeout }
            });
            vec![(at, did.map_err(StoreError::from))]
        });
        *self.places[place as usize].lock().unwrap_or_else(PoisonError::into_inner) = created;
    }
}

/// Which session of the round it is, in the order of their ids.
fn number(id: SessionId) -> u32 {
    u32::try_from(id.0.wrapping_sub(FIRST)).unwrap_or(u32::MAX)
}

fn seat(told: &SessionInfo) -> Seat {
    Seat { owner: told.owner as u32, global: told.is_global, closing: told.remaining.is_none() }
}
