//! The races of sessions (Q7, Q14, and those of owners, upgrades and ends), through the public
//! interface.

use expiry::{
    ManualClock, NewSession, Session, SessionError, SessionId, SessionInfo, SessionTracker,
    SessionTrackerBuilder, Tracked,
};
use loom_tests::{aside, at_once, beside, bounded, large, model, TICK};
use std::ops::Deref;
use std::sync::Arc;

/// Preemptions where two threads create: each looks for a chunk and a slot block of its own.
const FEW: usize = 1;

/// A tracker by itself, polled, of one shard. Timeouts are of 1 to 100 ticks.
#[derive(Clone)]
struct Rig {
    sessions: Arc<SessionTracker>,
    clock: ManualClock,
}

impl Rig {
    fn new() -> Self {
        Rig::with(|builder| builder)
    }

    /// A rig that has had a session, with id 1, so its first chunk and the table of its index
    /// exist.
    fn used() -> Self {
        at_once(|| {
            let rig = Rig::new();
            assert!(rig.remove(rig.create().id()).is_some());
            assert_eq!(rig.expired(), []);
            rig
        })
    }

    fn with(settings: impl FnOnce(SessionTrackerBuilder) -> SessionTrackerBuilder) -> Self {
        let clock = ManualClock::new();
        let builder = SessionTracker::builder()
            .interval(TICK)
            .maximum_timeout(TICK * 100)
            .first_id(1)
            .shards(1)
            .seed(7)
            .clock(clock.clone());
        Rig { sessions: Arc::new(settings(builder).build_manual().unwrap()), clock }
    }

    /// A session that lives for ten ticks, and has owner 1.
    fn create(&self) -> Session {
        self.sessions.create(TICK * 10, 1).unwrap()
    }

    fn advance(&self, ticks: u32) {
        self.clock.advance(TICK * ticks);
    }

    fn expired(&self) -> Vec<SessionId> {
        self.sessions.poll().iter().map(|gone| gone.id).collect()
    }

    /// Everything that expires comes out, each once.
    fn drain(&self) -> Vec<SessionId> {
        self.advance(200);
        self.expired()
    }
}

impl Deref for Rig {
    type Target = SessionTracker;

    fn deref(&self) -> &SessionTracker {
        &self.sessions
    }
}

// Q7: a touch meets the closing. A touch that comes after it fails, and nothing brings the session
// back.
model!(q07_touch_and_closing, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let a = aside(&rig, move |rig| rig.touch_for(id, TICK * 20));
    assert_eq!(rig.set_closing(id), Ok(()));
    let after = rig.touch(id);
    assert_eq!(after, Err(SessionError::Closing));
    let touched = a.join().unwrap();
    assert!(touched.is_ok() || touched == Err(SessionError::Closing));
    assert_eq!(rig.drain(), [], "it is being closed");
    assert_eq!(rig.closing(), [id]);
    assert_eq!(rig.remove(id).unwrap().remaining, None);
    assert!(rig.is_empty());
});

// Q7: the closing meets the expiry. Either the closer has it or the poller, and never both.
model!(q07_closing_and_expiry, || {
    let rig = Rig::new();
    let id = rig.create().id();
    rig.advance(10);
    let (closed, expired) = beside(&rig, move |rig| rig.set_closing(id), |rig| rig.expired());
    let told = match closed {
        Ok(()) => 0,
        Err(SessionError::Unknown) => 1,
        other => panic!("{other:?}"),
    };
    assert_eq!(expired.len() + rig.drain().len(), told);
    assert_eq!(rig.remove(id).is_some(), closed.is_ok());
    assert!(rig.is_empty());
});

// Q7, all three: whatever comes first, the session has one end, and no touch succeeds after the
// closing.
model!(q07_touch_closing_and_expiry, large, || {
    let rig = Rig::new();
    let session = rig.create();
    let id = session.id();
    rig.advance(10);
    let a = aside(&rig, move |rig| rig.touch_by(&session));
    let b = aside(&rig, move |rig| {
        let closed = rig.set_closing(id);
        (closed, rig.touch(id))
    });
    let mut expired = rig.expired();
    let touched = a.join().unwrap();
    let (closed, after) = b.join().unwrap();
    if closed.is_ok() {
        assert_eq!(after, Err(SessionError::Closing));
    }
    expired.extend(rig.drain());
    assert_eq!(expired.len() + usize::from(closed.is_ok()), 1, "{touched:?}");
    assert_eq!(rig.remove(id).is_some(), closed.is_ok());
});

// Two closers: one of them begins.
model!(two_closers, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let (a, b) =
        beside(&rig, move |rig| rig.set_closing(id).is_ok(), |rig| rig.set_closing(id).is_ok());
    assert!(a != b);
});

// Two threads upgrade a session: the result of one of them says that it did so.
model!(two_upgraders, || {
    let rig = Rig::new();
    let id = rig.sessions.create(TICK * 10, NewSession::from(1).local()).unwrap().id();
    let (a, b) = beside(&rig, move |rig| rig.upgrade(id).unwrap(), |rig| rig.upgrade(id).unwrap());
    assert!(a != b, "one of them");
    assert_eq!(rig.is_global(id), Ok(true));
});

// An upgrade meets the removal: the removal returns an upgraded session, or the upgrade finds no
// session. Guards: one word, changed by both.
model!(upgrade_and_remove, || {
    let rig = Rig::new();
    let id = rig.sessions.create(TICK * 10, NewSession::from(1).local()).unwrap().id();
    let (a, removed) = beside(&rig, move |rig| rig.upgrade(id), |rig| rig.remove(id).unwrap());
    match a {
        Ok(true) => assert!(removed.is_global),
        Err(SessionError::Unknown) => assert!(!removed.is_global),
        other => panic!("{other:?}"),
    }
});

// A check meets a move: by the old owner, or by the new one. Guards: the owner is one word.
model!(check_and_set_owner, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let a = aside(&rig, move |rig| {
        let old = rig.check(id, 1);
        (old, rig.check(id, 2))
    });
    assert_eq!(rig.set_owner(id, 2), Ok(1));
    let (old, new) = a.join().unwrap();
    match (old, new) {
        (Ok(()), Ok(()))
        | (Ok(()), Err(SessionError::Moved { owner: 1 }))
        | (Err(SessionError::Moved { owner: 2 }), Ok(())) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.check(id, 2), Ok(()));
});

// Two threads check a session without an owner: one of them becomes its owner.
model!(two_checks_of_nobodys, || {
    let rig = Rig::new();
    let id = rig.sessions.create(TICK * 10, 0).unwrap().id();
    let (a, b) = beside(&rig, move |rig| rig.check(id, 1), |rig| rig.check(id, 2));
    match (a, b) {
        (Ok(()), Err(SessionError::Moved { owner: 1 }))
        | (Err(SessionError::Moved { owner: 2 }), Ok(())) => {}
        other => panic!("{other:?}"),
    }
});

// A change of owner meets the removal. If it succeeds, the removal returns the new owner; if it
// fails, it came too late. Guards: the read-modify-write of the lease after the owner.
model!(set_owner_and_remove, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let (a, removed) = beside(&rig, move |rig| rig.set_owner(id, 2), |rig| rig.remove(id).unwrap());
    match a {
        Ok(1) => assert_eq!(removed.owner, 2),
        Err(SessionError::Unknown) => {}
        other => panic!("{other:?}"),
    }
});

// A change of owner meets the closing and the removal. Guards: as before; a change that finds the
// session closing writes nothing.
model!(set_owner_closing_and_remove, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let a = aside(&rig, move |rig| rig.set_owner(id, 2));
    assert_eq!(rig.set_closing(id), Ok(()));
    let removed = rig.remove(id).unwrap();
    match a.join().unwrap() {
        Ok(1) => assert_eq!(removed.owner, 2),
        Err(SessionError::Closing) => assert_eq!(removed.owner, 1),
        Err(SessionError::Unknown) => {}
        other => panic!("{other:?}"),
    }
});

// W8: a closing meets the shutdown: the session is returned, whichever comes first. Guards: the
// shutdown ends what is being closed.
model!(w08_closing_and_shutdown, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let (closing, left) =
        beside(&rig, move |rig| rig.set_closing(id).is_ok(), |rig| rig.shutdown());
    let found: Vec<_> = left.iter().map(|left| left.remaining.is_none()).collect();
    assert_eq!(found, [closing]);
    assert!(rig.is_empty());
});

/// A tracker that collects touches.
fn collecting() -> Rig {
    Rig::with(SessionTrackerBuilder::collect_touches)
}

fn left(taken: &[(SessionId, std::time::Duration)]) -> Vec<u128> {
    let ticks = |left: &std::time::Duration| left.as_nanos() / TICK.as_nanos();
    taken.iter().map(|(_, time)| ticks(time)).collect()
}

// Q14: a touch meets a taking, and the session was touched before. This taking or the next one
// returns the last touch's deadline.
model!(q14_touch_and_taking, || {
    let rig = collecting();
    let id = rig.create().id();
    rig.touch_for(id, TICK * 20).unwrap();
    let (_, first) = beside(
        &rig,
        move |rig| rig.touch_for(id, TICK * 30).unwrap(),
        |rig| left(&rig.take_touched()),
    );
    let second = left(&rig.take_touched());
    match (&first[..], &second[..]) {
        // It came before the taking; or after it; or its swap before and its flag after.
        ([30], []) | ([20], [30]) | ([30], [30]) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.take_touched(), []);
});

// Q14 by handle, where the session was not touched before.
model!(q14_first_touch_and_taking, || {
    let rig = collecting();
    let session = rig.create();
    let (_, mut taken) = beside(
        &rig,
        move |rig| rig.touch_by_for(&session, TICK * 30).unwrap(),
        |rig| left(&rig.take_touched()),
    );
    taken.extend(left(&rig.take_touched()));
    assert_eq!(taken, [30]);
});

// Q14: two touches and a taking.
model!(q14_two_touches_and_taking, large, || {
    let rig = collecting();
    let id = rig.create().id();
    let a = aside(&rig, move |rig| rig.touch_for(id, TICK * 20).unwrap());
    let b = aside(&rig, move |rig| rig.touch_for(id, TICK * 30).unwrap());
    let mut taken = left(&rig.take_touched());
    a.join().unwrap();
    b.join().unwrap();
    taken.extend(left(&rig.take_touched()));
    let lives = rig.get(id).unwrap().remaining.unwrap();
    let now = lives.as_nanos() / TICK.as_nanos();
    assert_eq!(taken.last(), Some(&now), "{taken:?}");
    assert!(taken.len() <= 2, "{taken:?}");
});

// Q14: two takings. One of them returns each touch.
model!(q14_two_takings, || {
    let rig = collecting();
    let ids = [rig.create().id(), rig.create().id()];
    for id in ids {
        rig.touch(id).unwrap();
    }
    let (a, mut all) = beside(&rig, |rig| rig.take_touched(), |rig| rig.take_touched());
    all.extend(a);
    let mut all: Vec<_> = all.into_iter().map(|(id, _)| id).collect();
    all.sort_unstable();
    assert_eq!(all, ids);
});

// Q14: the session is removed and tracked anew while it is taken, with the same id and in the same
// slot or another. A taking returns a touch of the new one.
model!(q14_taking_across_two_lives, large, || {
    let rig = collecting();
    let id = rig.create().id();
    rig.touch(id).unwrap();
    let a = aside(&rig, move |rig| {
        let removed: Option<SessionInfo> = rig.remove(id);
        assert!(removed.is_some());
        let tracked = rig.track(id, TICK * 20, 1).unwrap();
        assert!(matches!(tracked, Tracked::Added(_)));
        rig.touch_for(id, TICK * 30).unwrap();
    });
    let first = left(&rig.take_touched());
    a.join().unwrap();
    let second = left(&rig.take_touched());
    match (&first[..], &second[..]) {
        // The old life, taken or not; then the new one.
        ([10] | [], [30]) => {}
        // The new one only: the taking reached the session after its touch.
        ([30], []) => {}
        other => panic!("{other:?}"),
    }
});

// W15: a touch by handle, which a taking is to return, meets the removal. Guards: the pin, and the
// look at the place under it.
model!(w15_touch_by_handle_and_remove, || {
    let rig = collecting();
    let session = rig.create();
    beside(
        &rig,
        move |rig| rig.touch_by(&session).is_ok(),
        |rig| assert!(rig.remove(session.id()).is_some()),
    );
    assert_eq!(rig.take_touched(), []);
});

// Q8, W15: a touch by id, which asks the session for its timeout, meets the removal: nothing comes
// back. Guards: the pin.
model!(q08_touch_and_remove, || {
    let rig = Rig::new();
    let id = rig.create().id();
    beside(&rig, move |rig| rig.touch(id).is_ok(), |rig| assert!(rig.remove(id).is_some()));
    assert!(rig.is_empty());
    assert_eq!(rig.drain(), []);
});

// W15: a look at all sessions meets the removal of one. Guards: the pins.
model!(w15_look_and_remove, || {
    let rig = Rig::new();
    let id = rig.create().id();
    let seen = aside(&rig, |rig| {
        let mut seen = Vec::new();
        rig.for_each(|session| seen.push(session.id));
        seen
    });
    assert!(rig.remove(id).is_some());
    let seen = seen.join().unwrap();
    assert!(seen.is_empty() || seen == [id]);
});

// A dump meets a session's end, and another one in the same slot: the dump lists neither under the
// other's deadline. Guards: the dump reads the lease again, for its generation.
model!(w06_a_dump_meets_a_later_occupant, bounded(FEW + 1), || {
    let rig = Rig::new();
    // They fill the chunk.
    let first = rig.create().id();
    rig.create();
    let a = aside(&rig, |rig| rig.dump());
    assert!(rig.remove(first).is_some());
    let later = rig.sessions.create(TICK * 20, 2).unwrap().id();
    for (due, ids) in a.join().unwrap() {
        assert!(!ids.contains(if due == TICK * 20 { &first } else { &later }));
    }
});

// W15: a taking meets the removal of a touched session.
model!(w15_taking_and_remove, || {
    let rig = collecting();
    let session = rig.create();
    rig.touch_by(&session).unwrap();
    let (a, _) = beside(
        &rig,
        |rig| rig.take_touched().len(),
        |rig| assert!(rig.remove(session.id()).is_some()),
    );
    assert!(a <= 1);
    assert_eq!(rig.take_touched(), []);
});

// Two creations issue different ids, even if the first session is gone. Guards: the
// read-modify-write of the issuer.
model!(two_creations, large, || {
    let rig = Rig::used();
    let a = aside(&rig, |rig| {
        let id = rig.create().id();
        assert!(rig.remove(id).is_some());
        id
    });
    let b = rig.create().id();
    assert_ne!(a.join().unwrap(), b);
});

// A creation meets the adoption of the id that it is about to issue: there are two sessions, with
// ids of their own.
model!(create_and_track, large, || {
    let rig = Rig::used();
    let (a, created) =
        beside(&rig, |rig| rig.track(SessionId(2), TICK * 10, 2).unwrap(), |rig| rig.create().id());
    match a {
        Tracked::Added(_) => assert_eq!(created, SessionId(3)),
        Tracked::Renewed(session, ()) => {
            assert_eq!((session.id(), created), (SessionId(2), SessionId(2)));
        }
        other => panic!("{other:?}"),
    }
    let all = if created.0 == 3 { 2 } else { 1 };
    assert_eq!(rig.drain().len(), all);
});
