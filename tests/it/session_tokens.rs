//! Tokens of sessions: each comes back once, by value, however its session ends.

use crate::drops::census::{Census, Counted};
use crate::support::{each_once, on_threads, Told, MS};
use expiry::{
    ManualClock, NewSession, Session, SessionId, SessionInfo, SessionTracker,
    SessionTrackerBuilder, StoreError, Tracked, WhenFull,
};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;

fn manual<T: Send + 'static>(clock: &ManualClock) -> SessionTrackerBuilder<T> {
    SessionTracker::builder().with_tokens().interval(MS).clock(clock.clone())
}

/// A polled tracker of at most two sessions, its clock, and the census of its tokens.
struct Rig {
    sessions: SessionTracker<Counted>,
    clock: ManualClock,
    census: Arc<Census>,
}

impl Rig {
    fn new() -> Rig {
        let clock = ManualClock::new();
        let sessions = manual(&clock).capacity(2).build_manual().unwrap();
        Rig { sessions, clock, census: Census::new() }
    }

    fn token(&self, id: u64) -> Counted {
        Counted::of(&self.census, id)
    }

    fn create(&self, id: u64) -> Result<Session, StoreError> {
        let created = self.sessions.create(10 * MS, NewSession::from(42).token(self.token(id)));
        created.map_err(|refused| {
            assert_eq!((refused.token.id(), refused.to_string()), (id, refused.error.to_string()));
            refused.error
        })
    }
}

/// The tokens' numbers; drops the tokens.
fn numbers(ended: Vec<SessionInfo<Counted>>) -> Vec<u64> {
    ended.iter().map(|session| session.token.id()).collect()
}

#[test]
fn every_end_returns_the_token() {
    let rig = Rig::new();
    rig.create(1).unwrap();
    rig.clock.advance(12 * MS);
    assert_eq!(numbers(rig.sessions.poll()), [1]);
    let removed = rig.create(2).unwrap();
    rig.sessions.touch_by(&removed).unwrap();
    let looked: SessionInfo = rig.sessions.get(removed.id()).unwrap();
    assert_eq!((looked.owner, looked.token), (42, ()));
    let info = rig.sessions.remove(removed.id()).unwrap();
    assert_eq!((info.token.id(), info.owner, info.is_global), (2, 42, true));
    assert!(rig.sessions.remove(removed.id()).is_none());
    let closed =
        rig.sessions.create(10 * MS, NewSession::from(42).local().token(rig.token(3))).unwrap();
    rig.sessions.set_closing(closed.id()).unwrap();
    let info = rig.sessions.remove(closed.id()).unwrap();
    assert_eq!((info.token.id(), info.is_global), (3, false));
    rig.create(4).unwrap();
    let closing = rig.create(5).unwrap();
    rig.sessions.set_closing(closing.id()).unwrap();
    drop(info);
    assert_eq!((rig.census.made(), rig.census.left()), (5, 3), "two in the tracker");
    let mut left = numbers(rig.sessions.shutdown());
    left.sort_unstable();
    assert_eq!((left, numbers(rig.sessions.shutdown())), (vec![4, 5], vec![]));
}

#[test]
fn a_shutdown_returns_what_a_creation_has_ended_and_no_poll_has_got() {
    let rig = Rig::new();
    (1..=2).for_each(|id| _ = rig.create(id).unwrap());
    rig.clock.advance(12 * MS);
    rig.create(3).unwrap(); // ends those two, which makes room
    let mut left = numbers(rig.sessions.shutdown());
    left.sort_unstable();
    assert_eq!((left, numbers(rig.sessions.poll())), (vec![1, 2, 3], vec![]));
}

#[test]
fn a_token_is_lent_while_its_session_is_there_and_dropped_once() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let sessions = manual(&clock).lend_tokens().capacity(3).build_manual().unwrap();
    let create = |number| {
        sessions.create(10 * MS, NewSession::from(42).token(Arc::new(Counted::of(&census, number))))
    };
    let ids = [1, 2, 3].map(|number| create(number).unwrap().id());
    let [expires, removed, closing] = ids;
    let refused = create(4).unwrap_err();
    assert_eq!((refused.token.id(), Arc::strong_count(&refused.token)), (4, 1));
    drop(refused);
    sessions.set_closing(closing).unwrap();
    let lent = ids.map(|id| sessions.token(id).unwrap());
    assert_eq!(lent.each_ref().map(|token| token.id()), [1, 2, 3]);
    assert!(Arc::ptr_eq(&sessions.remove(removed).unwrap().token, &lent[1]));
    clock.advance(12 * MS);
    assert!(Arc::ptr_eq(&sessions.poll()[0].token, &lent[0]));
    assert!(sessions.token(removed).is_none() && sessions.token(expires).is_none());
    assert_eq!((census.made(), census.left()), (4, 3));
    let left = sessions.shutdown();
    assert!(Arc::ptr_eq(&left[0].token, &lent[2]) && sessions.token(closing).is_none());
    drop((lent, left, sessions));
    assert_eq!(census.left(), 0);
}

#[test]
fn a_tracker_lends_no_tokens_unless_it_was_built_to() {
    let sessions = manual(&ManualClock::new()).build_manual().unwrap();
    let token = Arc::new(Counted::new(&Census::new()));
    let session = sessions.create(10 * MS, NewSession::from(42).token(token)).unwrap();
    assert!(sessions.token(session.id()).is_none());
    let token = sessions.remove(session.id()).unwrap().token;
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn tokens_are_lent_beside_the_ends_of_their_sessions() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let sessions = manual(&clock).lend_tokens().build_manual().unwrap();
    thread::scope(|scope| {
        for from in [1, 1000] {
            let (sessions, census) = (&sessions, &census);
            scope.spawn(move || {
                for number in from..from + 300 {
                    let (id, token) = (SessionId(number), Arc::new(Counted::of(census, number)));
                    sessions.track(id, 10 * MS, NewSession::from(1).token(token)).unwrap();
                    assert_eq!(sessions.remove(id).unwrap().token.id(), number);
                    drop(sessions.poll());
                }
            });
            scope.spawn(move || {
                for number in from..from + 300 {
                    let lent = sessions.token(SessionId(number));
                    assert!(lent.map_or(true, |token| token.id() == number));
                }
            });
        }
    });
    drop(sessions);
    assert_eq!((census.made(), census.left()), (600, 0));
}

#[test]
fn a_refused_session_returns_its_token() {
    let rig = Rig::new();
    let first = rig.create(1).unwrap().id();
    rig.create(2).unwrap();
    assert_eq!(rig.create(3), Err(StoreError::Full));
    let refused =
        rig.sessions.track(SessionId(7), MS, NewSession::from(42).token(rig.token(4))).unwrap_err();
    assert_eq!((refused.error, refused.token.id()), (StoreError::Full, 4));
    assert_eq!(StoreError::from(refused), StoreError::Full);
    // One that is there keeps its token, also where it is closing.
    let tracked = rig.sessions.track(first, MS, NewSession::from(42).token(rig.token(5))).unwrap();
    assert!(matches!(tracked, Tracked::Renewed(_, back) if back.id() == 5));
    rig.sessions.set_closing(first).unwrap();
    let new = NewSession::from(42).local().token(rig.token(6));
    let tracked = rig.sessions.track(first, MS, new).unwrap();
    assert!(matches!(tracked, Tracked::Closing(back) if back.id() == 6));
    assert_eq!(rig.sessions.remove(first).unwrap().token.id(), 1);
    // What is due makes room, and is delivered.
    rig.clock.advance(12 * MS);
    rig.create(7).unwrap();
    rig.create(8).unwrap();
    assert_eq!(numbers(rig.sessions.poll()), [2]);
    assert_eq!(numbers(rig.sessions.shutdown()).len(), 2);
    assert_eq!(rig.create(9), Err(StoreError::Closed));
    assert_eq!(rig.census.left(), 0);
}

#[test]
fn the_listener_and_the_channel_get_tokens() {
    let (clock, census, told) = (ManualClock::new(), Census::new(), Told::default());
    let heard = manual(&clock).expiry_listener(told.handler()).build_manual().unwrap();
    let (sent, expired) = manual(&clock).build_manual_with_channel(8, WhenFull::Wait).unwrap();
    for (sessions, number) in [(&heard, 1), (&sent, 2)] {
        sessions.create(10 * MS, NewSession::from(42).token(Counted::of(&census, number))).unwrap();
    }
    clock.advance(12 * MS);
    assert!(heard.poll().is_empty() && sent.poll().is_empty());
    assert_eq!(numbers(told.take()), [1]);
    assert_eq!(numbers(expired.try_next().into_iter().collect()), [2]);
    assert_eq!(census.left(), 0);
}

#[test]
fn tokens_are_dropped_with_the_tracker() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let token = || Counted::new(&census);
    let sessions = manual(&clock).build_manual().unwrap();
    for _ in 0..100 {
        sessions.create(10 * MS, NewSession::from(42).token(token())).unwrap();
    }
    clock.advance(12 * MS);
    // What expired beside a poll waits in the tracker.
    assert!(sessions.poll_into(&mut Vec::new(), 1).more);
    for _ in 0..100 {
        sessions.create(10 * MS, NewSession::from(42).token(token())).unwrap();
    }
    drop(sessions);
    assert_eq!((census.made(), census.left()), (200, 0));
    // What waits in the channel is dropped with it.
    let builder = manual(&clock);
    let (sessions, expired) = builder.build_manual_with_channel(1, WhenFull::Drop).unwrap();
    for _ in 0..3 {
        sessions.create(10 * MS, NewSession::from(42).token(token())).unwrap();
    }
    clock.advance(12 * MS);
    assert!(sessions.poll().is_empty());
    assert_eq!(census.left(), 1);
    drop((sessions, expired));
    assert_eq!(census.left(), 0);
}

#[test]
fn a_token_whose_drop_panics_loses_nothing() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let (full, expired) = manual(&clock).build_manual_with_channel(1, WhenFull::Drop).unwrap();
    for owner in 0..4 {
        let token = Counted::armed(&census, owner);
        full.create(10 * MS, NewSession::from(owner).token(token)).unwrap();
    }
    clock.advance(12 * MS);
    assert!(full.poll().is_empty() && full.is_empty());
    let metrics = full.metrics();
    assert_eq!((metrics.total.expired, metrics.listener_panics), (4, 3));
    expired.try_next().unwrap().token.disarm();
    full.create(10 * MS, NewSession::from(4).token(Counted::armed(&census, 4))).unwrap();
    drop(full);
}

/// Threads create, touch, close and remove sessions, which expire meanwhile. A shutdown ends it.
/// A token need not be shared between threads.
#[test]
fn each_token_comes_back_once_among_threads() {
    let told = Told::default();
    let tell = told.handler();
    let sessions = SessionTracker::builder()
        .with_tokens()
        .interval(MS)
        .expiry_listener(move |gone: SessionInfo<Cell<u128>>| tell(gone.token.get() as u64))
        .build()
        .unwrap();
    let rounds = if cfg!(miri) { 20 } else { 5000 };
    let mut came_back = on_threads(3, |thread| {
        let mut back = Vec::new();
        for round in 0..rounds {
            let token = Cell::new((thread * rounds + round).into());
            let id = SessionId(1 + round % 64);
            match sessions.track(id, 2 * MS, NewSession::from(thread).token(token)).unwrap() {
                Tracked::Added(_) => {}
                Tracked::Renewed(_, kept) | Tracked::Closing(kept) => back.push(kept.get() as u64),
            }
            match (thread + round) % 4 {
                0 => back.extend(sessions.remove(id).map(|info| info.token.get() as u64)),
                1 => drop(sessions.touch(id)),
                2 if sessions.set_closing(id).is_ok() => {
                    back.extend(sessions.remove(id).map(|info| info.token.get() as u64));
                }
                _ => {}
            }
        }
        back
    })
    .concat();
    came_back.extend(sessions.shutdown().into_iter().map(|session| session.token.get() as u64));
    came_back.append(&mut told.take());
    each_once(came_back, 3 * rounds);
}
