//! Tokens of roots: each comes back once, however its root ends. Loom's cell fails where a thread
//! takes a token twice, or without having seen it put in.

use expiry::{Ack, AckError, AckTracker, Done, Lifetime, ManualClock, Outcome, Reason};
use expiry::{Root, ShutdownMode};
use loom_tests::{after, at_once, beside, builder, costly, model, Kept, TICK};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

const FAILED: Reason = Reason::Failed { by: None };

/// Counts its drop.
pub struct Token(pub Arc<AtomicUsize>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// The tokens that were given to a tracker, and those that have come back.
#[derive(Default)]
pub struct Tokens {
    given: AtomicUsize,
    back: Mutex<Vec<Token>>,
    dropped: Arc<AtomicUsize>,
}

impl Tokens {
    pub fn give(&self) -> Token {
        self.given.fetch_add(1, Relaxed);
        Token(self.dropped.clone())
    }

    pub fn keep(&self, tokens: impl IntoIterator<Item = Token>) {
        self.back.lock().unwrap().extend(tokens);
    }

    /// Each token has come back.
    pub fn end(&self) {
        let back = take(&mut *self.back.lock().unwrap());
        assert_eq!(self.dropped.load(Relaxed), 0, "the tracker has dropped a token");
        assert_eq!(back.len(), self.given.load(Relaxed), "a token is lost");
    }
}

/// A tracker without a reaper. All roots have owner 10.
struct Rig {
    tracker: Kept<AckTracker<Token>>,
    clock: ManualClock,
    told: Arc<Mutex<Vec<Outcome<Token>>>>,
    tokens: Tokens,
}

impl Rig {
    /// A rig that has had a root, so its memory exists.
    fn new() -> Arc<Rig> {
        let (clock, told) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
        let into = told.clone();
        at_once(|| {
            let builder = builder(&clock).on_outcome(move |outcome| {
                into.lock().unwrap().push(outcome);
            });
            let tracker = Kept::new(builder.build_manual().unwrap());
            let rig = Rig { tracker, clock, told, tokens: Tokens::default() };
            rig.init_root(99, 3).unwrap();
            assert_eq!(rig.tracker.fail(99), Ok(Done::Now));
            assert_eq!(rig.reasons(), [FAILED]);
            Arc::new(rig)
        })
    }

    fn keep<T>(&self, done: Result<T, expiry::TokenError<Token>>) -> Result<T, AckError> {
        done.map_err(|refused| {
            self.tokens.keep([refused.token]);
            refused.error
        })
    }

    fn issue(&self, edges: u64) -> Result<Root, AckError> {
        self.keep(self.tracker.issue_with_token(edges, 10, self.tokens.give(), Lifetime::Default))
    }

    fn init_root(&self, id: u64, edges: u64) -> Result<(), AckError> {
        let token = self.tokens.give();
        self.keep(self.tracker.init_with_token(id, edges, 10, token, Lifetime::Default))
    }

    /// Inits root 1.
    fn init(&self, edges: u64) -> Result<(), AckError> {
        self.init_root(1, edges)
    }

    /// Keeps what a shutdown returns.
    fn shut(&self) {
        let left = self.tracker.shutdown(ShutdownMode::Return);
        self.told.lock().unwrap().extend(left);
    }

    fn poll(&self) {
        while self.tracker.poll(1 << 20).more {}
    }

    /// How the roots have ended. Keeps their tokens.
    fn reasons(&self) -> Vec<Reason> {
        let told = take(&mut *self.told.lock().unwrap());
        let reason = |outcome: Outcome<Token>| {
            assert_eq!(outcome.owner, 10);
            self.tokens.keep([outcome.token]);
            outcome.reason
        };
        told.into_iter().map(reason).collect()
    }

    /// The same. Each token has come back.
    fn end(&self) -> Vec<Reason> {
        self.shut();
        let reasons = self.reasons();
        self.tokens.end();
        reasons
    }
}

// Two threads ack the last edges of an issued root. Guards: the swap LIVE -> DEAD gives the token
// to one of them.
model!(two_last_acks_return_one_token, || {
    let rig = Rig::new();
    let root = rig.issue(3 ^ 5).unwrap();
    let acks = move |rig: &Arc<Rig>, edge| rig.tracker.ack(root, edge);
    let (a, b) = beside(&rig, move |rig| acks(rig, 3), |rig| acks(rig, 5));
    assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
    assert_eq!(rig.end(), [Reason::Acked]);
});

// An ack beside the round in which the root times out, for both kinds of roots. Guards: the same
// swap.
fn an_ack_beside_a_timeout(begin: fn(&Rig) -> expiry::RootId) {
    let rig = Rig::new();
    let root = begin(&rig);
    rig.clock.advance(TICK * 12);
    let (acked, ()) = beside(&rig, move |rig| rig.tracker.ack(root, 3), |rig| rig.poll());
    let reasons = rig.end();
    match acked {
        Ok(Ack::Completed) => assert_eq!(reasons, [Reason::Acked]),
        _ => assert!(matches!(reasons[..], [Reason::TimedOut { .. }]), "{reasons:?}"),
    }
}

model!(an_ack_beside_a_timeout_returns_one_token, || {
    an_ack_beside_a_timeout(|rig| rig.issue(3).unwrap().into());
});

model!(an_ack_of_a_chosen_root_beside_a_timeout_returns_one_token, costly(1, 2), || {
    an_ack_beside_a_timeout(|rig| {
        rig.init(3).unwrap();
        1.into()
    });
});

// The last ack beside the init that takes an early entry over. Guards: the init writes owner and
// token before it marks the word, and the mark publishes them.
model!(an_ack_beside_an_init_returns_the_token, || {
    let rig = Rig::new();
    assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held));
    let (init, acked) = beside(&rig, |rig| rig.init(3 ^ 5), |rig| rig.tracker.ack(1, 5));
    assert!(init.is_ok() && acked.is_ok(), "{init:?} {acked:?}");
    assert_eq!(rig.end(), [Reason::Acked]);
});

// A failure beside the init, which comes first, meets an early entry, or takes over what the
// failure has left. Guards: the init puts the token in wherever it delivers the outcome.
fn a_failure_beside_an_init(before: fn(&Rig)) {
    let rig = Rig::new();
    before(&rig);
    let (init, failed) = beside(&rig, |rig| rig.init(5), |rig| rig.tracker.fail_by(1, 9));
    assert!(init.is_ok() && failed.is_ok(), "{init:?} {failed:?}");
    let reasons = rig.end();
    assert!(matches!(reasons[..], [Reason::Failed { by: None | Some(9) }]), "{reasons:?}");
}

model!(a_failure_beside_an_init_returns_the_token, || a_failure_beside_an_init(|_| ()));

model!(a_failure_of_an_early_entry_beside_its_init_returns_the_token, || {
    a_failure_beside_an_init(|rig| assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held)));
});

// Two inits of one root. Guards: the one that is refused takes its token out of the slot that it
// has filled.
model!(a_duplicate_init_returns_its_token, || {
    let rig = Rig::new();
    let (a, b) = beside(&rig, |rig| rig.init(3), |rig| rig.init(3));
    assert!([a, b].contains(&Err(AckError::Duplicate)) && (a.is_ok() || b.is_ok()), "{a:?} {b:?}");
    assert_eq!(rig.end(), [Reason::Cancelled]);
});

// An init, fresh or of an early entry, or an issue, beside a shutdown. Guards: the shutdown returns
// the root, or the call gives the token back, or cancels the root.
fn a_root_beside_a_shutdown(begin: fn(&Rig) -> Result<(), AckError>, early: bool) {
    let rig = Rig::new();
    if early {
        assert_eq!(rig.tracker.ack(1, 5), Ok(Ack::Held));
    }
    let (begun, ()) = beside(&rig, move |rig| begin(rig), |rig| rig.shut());
    let cancelled = vec![Reason::Cancelled; usize::from(begun.is_ok())];
    assert_eq!(rig.end(), cancelled, "{begun:?}");
}

model!(an_init_beside_a_shutdown_returns_the_token, || {
    a_root_beside_a_shutdown(|rig| rig.init(3), false);
});

model!(an_init_of_an_early_entry_beside_a_shutdown_returns_the_token, || {
    a_root_beside_a_shutdown(|rig| rig.init(3), true);
});

// The same, and a renewal changes the deadline of the root that has just become live. Guards: the
// init withdraws the root under whatever deadline it has by then.
model!(an_init_of_an_early_entry_beside_a_shutdown_and_a_renewal, || {
    let rig = Rig::new();
    assert_eq!(rig.tracker.ack(1, 5), Ok(Ack::Held));
    let shut_and_renew = |rig: &Arc<Rig>| {
        rig.shut();
        let _ = rig.tracker.reset_timeout_for(1, after(20));
    };
    let ((), begun) = beside(&rig, shut_and_renew, |rig| rig.init(3));
    let cancelled = vec![Reason::Cancelled; usize::from(begun.is_ok())];
    assert_eq!(rig.end(), cancelled, "{begun:?}");
});

model!(an_issue_beside_a_shutdown_returns_the_token, || {
    a_root_beside_a_shutdown(|rig| rig.issue(3).map(drop), false);
});

// An operator fails the roots of an owner while one is on its way into the index. Guards: the
// operator's call leaves a root alone that the index does not lead to.
model!(fail_all_beside_an_init, || {
    let rig = Rig::new();
    let (init, failed) = beside(&rig, |rig| rig.init(3), |rig| rig.tracker.fail_all(10));
    assert_eq!(init, Ok(()));
    let reason = if failed == 1 { FAILED } else { Reason::Cancelled };
    assert_eq!(rig.end(), [reason]);
});
