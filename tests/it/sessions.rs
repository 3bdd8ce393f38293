//! Sessions: promises, and bad input, in simulated time. What each call does to a session, and what
//! a leader collects, is asserted by the histories of `oracle.rs`, and on threads by `stress
//! histories`.

use crate::support::{wait_for, Told, MS, SECOND};
use expiry::{
    BuildError, ManualClock, SessionError, SessionId, SessionInfo, SessionTracker,
    SessionTrackerBuilder, StoreError, Tracked,
};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// A tracker that is polled, with intervals of a second and ids from 1 on.
fn polled_with(
    set: impl FnOnce(SessionTrackerBuilder) -> SessionTrackerBuilder,
) -> (SessionTracker, ManualClock) {
    let clock = ManualClock::new();
    let builder =
        SessionTracker::builder().interval(SECOND).first_id(1).shards(2).clock(clock.clone());
    (set(builder).build_manual().unwrap(), clock)
}

fn polled() -> (SessionTracker, ManualClock) {
    polled_with(|builder| builder)
}

#[test]
fn ids_go_up_and_have_the_server_on_top() {
    let (sessions, _) = polled_with(|builder| builder.server_id(0x80).first_id(41));
    let ids: Vec<_> = (0..3).map(|_| sessions.create(SECOND, 0).unwrap().id()).collect();
    assert_eq!(ids, [41, 42, 43].map(|id| SessionId(0x80 << 56 | id)));
    assert!(ids.iter().all(|id| id.server() == 0x80));
    // An id that a caller has brought along is passed over, whatever its state.
    let next = |n: u64| SessionId(ids[2].0 + n);
    sessions.track(next(1), SECOND, 0).unwrap();
    sessions.track(next(2), SECOND, 0).unwrap();
    sessions.set_closing(next(2)).unwrap();
    assert_eq!(sessions.create(SECOND, 0).unwrap().id(), next(3));
    // Issued by the time if nothing else is asked for.
    let first = || {
        let sessions = SessionTracker::builder().build_manual().unwrap();
        sessions.create(SECOND, 0).unwrap().id()
    };
    let before = first();
    assert_eq!(before.server(), 0);
    wait_for("a later millisecond", || first() > before);
}

/// Stale, foreign, and absurd ids and handles are unknown, and harm nothing.
#[test]
fn foreign_and_stale_ids() {
    let (sessions, clock) = polled();
    let (others, _) = polled_with(|builder| builder.server_id(9));
    let mine = sessions.create(SECOND * 5, 1).unwrap();
    let theirs = others.create(SECOND * 1_000_000_000, 1).unwrap();
    for id in [theirs.id(), SessionId(0), SessionId(u64::MAX), SessionId(2)] {
        assert_eq!(sessions.touch(id), Err(SessionError::Unknown));
        assert_eq!(sessions.check(id, 1), Err(SessionError::Unknown));
        assert_eq!(sessions.set_closing(id), Err(SessionError::Unknown));
        assert_eq!(sessions.remove(id), None);
        assert!(!sessions.contains(id));
    }
    assert_eq!(sessions.touch_by(&theirs), Err(SessionError::Unknown));
    sessions.remove(mine.id()).unwrap();
    // The slot is another's by now, and then the same id's.
    let next: Vec<_> = (0..100).map(|_| sessions.create(SECOND * 5, 1).unwrap()).collect();
    assert_eq!(sessions.touch_by(&mine), Err(SessionError::Unknown));
    sessions.track(mine.id(), SECOND * 5, 1).unwrap();
    assert_eq!(sessions.touch_by(&mine), Err(SessionError::Unknown));
    clock.advance(SECOND * 5);
    assert_eq!(sessions.poll().len(), next.len() + 1);
}

/// A handle is for one stay of an id, also where the next stay is in the same slot: of 4096 slots
/// there are, each comes round again.
#[test]
fn a_handle_is_for_one_stay() {
    for collects in [false, true] {
        let (sessions, _) = polled_with(|builder| {
            let builder = builder.shards(1);
            if collects {
                builder.collect_touches()
            } else {
                builder
            }
        });
        let id = SessionId(5);
        sessions.track(id, SECOND, 0).unwrap();
        let Tracked::Renewed(old, ()) = sessions.track(id, SECOND, 0).unwrap() else {
            panic!("it was there")
        };
        assert_eq!(sessions.touch_by(&old), Ok(()));
        for _ in 0..20_000 {
            assert!(sessions.remove(id).is_some());
            assert!(sessions.take_touched().is_empty());
            sessions.track(id, SECOND, 0).unwrap();
            assert_eq!(sessions.touch_by(&old), Err(SessionError::Unknown));
        }
    }
}

/// A handle from a tracker with a longer interval names the same slot and id here: its timeout is
/// too long here, and is cut.
#[test]
fn a_foreign_handle_that_fits() {
    let (slow, _) = polled_with(|builder| builder.interval(SECOND * 3600));
    let (quick, _) = polled_with(|builder| builder.interval(Duration::from_micros(10)));
    let theirs = slow.create(Duration::MAX, 0).unwrap();
    let mine = quick.create(SECOND, 0).unwrap();
    assert_eq!(theirs.id(), mine.id());
    // Whether it is taken for this one's depends on where that lies; a panic it must not be.
    if quick.touch_by(&theirs) == Ok(()) {
        let left = quick.get(mine.id()).unwrap().remaining.unwrap();
        assert!(left > SECOND * 5_000_000 && left <= quick.grant(Duration::MAX) + SECOND);
    }
}

#[test]
fn what_is_not_built() {
    let refused = |set: fn(SessionTrackerBuilder) -> SessionTrackerBuilder| {
        set(SessionTracker::builder()).build_manual().unwrap_err()
    };
    assert_eq!(refused(|b| b.minimum_timeout(Duration::ZERO)), BuildError::ZeroTimeout);
    assert_eq!(refused(|b| b.maximum_timeout(Duration::ZERO)), BuildError::ZeroTimeout);
    let error = refused(|b| b.minimum_timeout(SECOND * 9).maximum_timeout(SECOND * 8));
    let (minimum, maximum) = (SECOND * 9, SECOND * 8);
    assert_eq!(error, BuildError::MinimumAboveMaximum { minimum, maximum });
    assert!(error.to_string().contains("use a minimum of at most"));
    let error = refused(|b| b.minimum_timeout(SECOND / 100));
    let (interval, timeout) = (SECOND / 10, SECOND / 100);
    assert_eq!(error, BuildError::IntervalAboveTimeout { interval, timeout });
    let error = refused(|b| b.maximum_timeout(Duration::MAX).interval(SECOND / 1000));
    assert!(matches!(error, BuildError::TimeoutTooLong { .. }), "{error:?}");
    assert_eq!(refused(|b| b.pause_grace(Duration::ZERO)), BuildError::ZeroPauseGrace);
    let one = SessionTracker::builder().minimum_timeout(SECOND);
    assert!(one.maximum_timeout(SECOND).build_manual().is_ok());
}

fn reaped(handler: impl Fn(SessionInfo) + Send + Sync + 'static) -> SessionTracker {
    let builder = SessionTracker::builder().interval(MS);
    builder.expiry_listener(handler).build().unwrap()
}

/// F2: each panic of a handler is counted; every session is delivered all the same, once.
#[test]
fn a_panicking_handler_strands_nothing() {
    let told = Told::default();
    let tell = told.handler();
    let sessions = reaped(move |session| {
        tell(session.id);
        std::panic::resume_unwind(Box::new("a handler's panic, which is part of this test"));
    });
    let millis = Duration::from_millis;
    let mut all: Vec<_> =
        (1..200).map(|n| sessions.create(millis(n % 7), n).unwrap().id()).collect();
    wait_for("all to expire", || told.len() >= all.len());
    wait_for("the panics", || sessions.metrics().listener_panics == all.len() as u64);
    let mut told = told.take();
    told.sort_unstable();
    all.sort_unstable();
    assert_eq!(told, all);
    assert!(sessions.is_empty() && sessions.shutdown().is_empty());
}

/// A handler may use the tracker, end other sessions, begin new ones, and shut it down.
#[test]
fn a_handler_that_calls_back() {
    // Weak: the tracker owns its handler.
    let tracker = Arc::new(OnceLock::<Weak<SessionTracker>>::new());
    let told = Arc::new(AtomicUsize::new(0));
    let (inner, count) = (tracker.clone(), told.clone());
    let sessions = reaped(move |session| {
        let Some(sessions) = inner.get().and_then(Weak::upgrade) else {
            return;
        };
        assert_eq!(sessions.touch(session.id), Err(SessionError::Unknown));
        let n = count.fetch_add(1, AcqRel) as u64;
        let _ = sessions.poll();
        if n < 20 {
            let next = sessions.create(MS, n).unwrap();
            sessions.touch_by(&next).unwrap();
        } else {
            let last = sessions.create(1000 * SECOND, n).unwrap();
            sessions.set_closing(last.id()).unwrap();
            assert!(sessions.shutdown().is_empty(), "the reaper ends them");
        }
    });
    let sessions = Arc::new(sessions);
    assert!(tracker.set(Arc::downgrade(&sessions)).is_ok());
    sessions.create(MS, 0).unwrap();
    wait_for("twenty generations", || told.load(Acquire) == 21);
    wait_for("the end", || sessions.is_empty());
    assert_eq!(sessions.metrics().listener_panics, 0);
    assert_eq!(sessions.create(SECOND, 0).unwrap_err().error, StoreError::Closed);
    wait_for("the handler", || Arc::strong_count(&sessions) == 1);
}
