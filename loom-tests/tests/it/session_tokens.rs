//! Tokens of sessions: each comes back once, however its session ends. Loom's cell fails where a
//! thread takes a token twice, or without having seen it put in.

use crate::tokens::{Token, Tokens};
use expiry::{ManualClock, NewSession, SessionId, SessionInfo, SessionTracker};
use expiry::{SessionTrackerBuilder, StoreError, Tracked};
use loom_tests::{at_once, beside, model, Kept, TICK};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

/// A tracker by itself, polled, of one shard. Its sessions live for ten ticks.
struct Rig {
    sessions: Kept<SessionTracker<Token>>,
    clock: ManualClock,
    tokens: Tokens,
}

fn builder<T: Send + 'static>(clock: &ManualClock) -> SessionTrackerBuilder<T> {
    let builder = SessionTracker::builder().with_tokens().interval(TICK).first_id(2).shards(1);
    builder.seed(7).clock(clock.clone())
}

impl Rig {
    /// A rig that has had a session, so its memory exists.
    fn new() -> Arc<Rig> {
        at_once(|| {
            let clock = ManualClock::new();
            let sessions = Kept::new(builder(&clock).build_manual().unwrap());
            let rig = Rig { sessions, clock, tokens: Tokens::default() };
            rig.track().unwrap();
            assert!(rig.remove());
            Arc::new(rig)
        })
    }

    /// Puts session 1 in. Returns whether it was not there.
    fn track(&self) -> Result<bool, StoreError> {
        let session = NewSession::from(1).token(self.tokens.give());
        match self.sessions.track(SessionId(1), TICK * 10, session) {
            Ok(Tracked::Added(_)) => Ok(true),
            Ok(Tracked::Renewed(_, back) | Tracked::Closing(back)) => {
                self.tokens.keep([back]);
                Ok(false)
            }
            Err(refused) => {
                self.tokens.keep([refused.token]);
                Err(refused.error)
            }
        }
    }

    /// Keeps the tokens of sessions that have ended. Returns how many there are.
    fn kept(&self, ended: impl IntoIterator<Item = SessionInfo<Token>>) -> usize {
        let ended = ended.into_iter();
        ended.map(|session| self.tokens.keep([session.token])).count()
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
        self.tokens.end();
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
        let sessions = builder(&ManualClock::new()).lend_tokens().build_manual().unwrap();
        let token = Arc::new(Token(dropped.clone()));
        sessions.track(SessionId(1), TICK * 10, NewSession::from(1).token(token)).unwrap();
        Arc::new(Kept::new(sessions))
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
    assert!(sessions.shutdown().is_empty());
    drop(sessions);
    assert_eq!(dropped.load(Relaxed), 1);
});
