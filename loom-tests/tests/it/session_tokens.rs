//! Tokens of sessions: each comes back once, however its session ends. Loom's cell fails where a
//! thread takes a token twice, or without having seen it put in.

use crate::tokens::Token;
use expiry::{
    ManualClock, NewSession, SessionId, SessionInfo, SessionTracker, StoreError, Tracked,
};
use loom_tests::{at_once, beside, model, TICK};
use std::mem::{take, ManuallyDrop};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A tracker by itself, polled, of one shard, and every token that has come back. Its sessions live
/// for ten ticks.
struct Rig {
    sessions: ManuallyDrop<SessionTracker<Token>>,
    clock: ManualClock,
    back: Mutex<Vec<Token>>,
    given: AtomicUsize,
    dropped: Arc<AtomicUsize>,
}

impl Rig {
    /// A rig that has had a session, so its memory exists.
    fn new() -> Arc<Rig> {
        at_once(|| {
            let clock = ManualClock::new();
            let builder =
                SessionTracker::builder().with_tokens().interval(TICK).first_id(2).shards(1);
            let sessions = builder.seed(7).clock(clock.clone()).build_manual().unwrap();
            let (back, given, dropped) = Default::default();
            let sessions = ManuallyDrop::new(sessions);
            let rig = Rig { sessions, clock, back, given, dropped };
            rig.track().unwrap();
            assert!(rig.remove());
            Arc::new(rig)
        })
    }

    /// Puts session 1 in. Returns whether it was not there.
    fn track(&self) -> Result<bool, StoreError> {
        self.given.fetch_add(1, Relaxed);
        let token = Token(self.dropped.clone());
        match self.sessions.track(SessionId(1), TICK * 10, NewSession::from(1).token(token)) {
            Ok(Tracked::Added(_)) => Ok(true),
            Ok(Tracked::Renewed(_, back) | Tracked::Closing(back)) => {
                self.keep([back]);
                Ok(false)
            }
            Err(refused) => {
                self.keep([refused.token]);
                Err(refused.error)
            }
        }
    }

    fn keep(&self, tokens: impl IntoIterator<Item = Token>) {
        self.back.lock().unwrap().extend(tokens);
    }

    /// Keeps the tokens of sessions that have ended. Returns how many there are.
    fn kept(&self, ended: impl IntoIterator<Item = SessionInfo<Token>>) -> usize {
        let tokens: Vec<_> = ended.into_iter().map(|session| session.token).collect();
        let count = tokens.len();
        self.keep(tokens);
        count
    }

    fn remove(&self) -> bool {
        self.kept(self.sessions.remove(SessionId(1))) == 1
    }

    fn poll(&self) -> usize {
        self.kept(self.sessions.poll())
    }

    fn shut(&self) -> usize {
        self.kept(self.sessions.shutdown())
    }

    /// Each token has come back.
    fn end(&self) {
        self.shut();
        self.poll();
        let back = take(&mut *self.back.lock().unwrap());
        assert_eq!(self.dropped.load(Relaxed), 0, "the tracker has dropped a token");
        assert_eq!(back.len(), self.given.load(Relaxed), "a token is lost");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: the value is dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.sessions) };
        }
    }
}

// A removal beside the round in which the session expires. Guards: the swap to DEAD gives the token
// to one of them.
model!(a_removal_beside_an_expiry_returns_one_token, || {
    let rig = Rig::new();
    rig.track().unwrap();
    rig.clock.advance(TICK * 12);
    let (removed, expired) = beside(&rig, |rig| rig.remove(), |rig| rig.poll());
    assert_eq!(usize::from(removed) + expired, 1);
    rig.end();
});

// A creation beside a shutdown. Guards: the shutdown returns the session, or the creating thread
// ends it and gives the token back.
model!(a_creation_beside_a_shutdown_returns_the_token, || {
    let rig = Rig::new();
    let (tracked, left) = beside(&rig, |rig| rig.track(), |rig| rig.shut());
    assert_eq!(left, usize::from(tracked.is_ok()), "{tracked:?}");
    rig.end();
});

// A removal beside a shutdown. Guards: the swap to DEAD.
model!(a_removal_beside_a_shutdown_returns_one_token, || {
    let rig = Rig::new();
    rig.track().unwrap();
    let (removed, left) = beside(&rig, |rig| rig.remove(), |rig| rig.shut());
    assert_eq!(usize::from(removed) + left, 1);
    rig.end();
});

// Two threads put one session in. Guards: the one that finds the other's in the index takes its
// token out of the slot that it has filled.
model!(two_creations_of_a_session_return_one_token, || {
    let rig = Rig::new();
    let (a, b) = beside(&rig, |rig| rig.track().unwrap(), |rig| rig.track().unwrap());
    assert!(a != b, "{a} {b}");
    rig.end();
});

// A look at a token beside the removal of its session, and a poll that frees the slot. Guards: the
// end hands out a clone; the slot's own token goes after the pin of the look.
model!(a_token_is_lent_beside_the_end_of_its_session, || {
    let dropped = Arc::new(AtomicUsize::new(0));
    let sessions = at_once(|| {
        let builder = SessionTracker::builder().with_tokens().interval(TICK).first_id(2).shards(1);
        let builder = builder.seed(7).clock(ManualClock::new()).lend_tokens();
        let sessions = builder.build_manual().unwrap();
        let token = Arc::new(Token(dropped.clone()));
        sessions.track(SessionId(1), TICK * 10, NewSession::from(1).token(token)).unwrap();
        Arc::new(ManuallyDrop::new(sessions))
    });
    let (lent, ended) = beside(
        &sessions,
        |sessions| sessions.token(SessionId(1)),
        |sessions| {
            let ended = sessions.remove(SessionId(1)).unwrap();
            assert!(sessions.poll().is_empty());
            ended
        },
    );
    assert_eq!(dropped.load(Relaxed), 0, "it was handed out");
    drop((lent, ended));
    let sessions = Arc::into_inner(sessions).unwrap();
    assert!(sessions.shutdown().is_empty());
    drop(ManuallyDrop::into_inner(sessions));
    assert_eq!(dropped.load(Relaxed), 1);
});
