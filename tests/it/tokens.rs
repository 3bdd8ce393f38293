//! Tokens of roots: each comes back once, by value, however its root ends.

use crate::drops::census::{Census, Counted};
use crate::support::{each_once, on_threads, Told, MS};
use expiry::{
    edge, Ack, AckError, AckTracker, AckTrackerBuilder, Done, Lifetime, LifetimeError, ManualClock,
    NewSession, Outcome, Reason, RootId, SessionTracker, ShutdownMode, Tuple, WhenFull,
};
use std::cell::Cell;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const DEFAULT: Lifetime = Lifetime::Default;
const FAILED: Reason = Reason::Failed { by: None };

fn manual<T: Send + 'static>(clock: &ManualClock) -> AckTrackerBuilder<T> {
    AckTracker::builder().with_tokens().timeout(30 * MS).interval(MS).clock(clock.clone())
}

/// A tracker, its clock, what it has delivered, and the census of its tokens.
struct Rig {
    tracker: AckTracker<Counted>,
    clock: ManualClock,
    told: Told<Outcome<Counted>>,
    census: Arc<Census>,
}

impl Rig {
    fn new() -> Rig {
        let (clock, told) = (ManualClock::new(), Told::default());
        let builder = manual(&clock).on_outcome(told.handler());
        let tracker = builder.capacity(2).build_manual().unwrap();
        Rig { tracker, clock, told, census: Census::new() }
    }

    fn token(&self, id: u64) -> Counted {
        Counted::of(&self.census, id)
    }

    fn init(&self, id: u64, xor: u64) -> Result<(), AckError> {
        let token = self.token(id);
        let done = self.tracker.init_with_token(id, xor, 42, token, DEFAULT);
        done.map_err(|refused| {
            assert_eq!(refused.token.id(), id);
            refused.error
        })
    }

    /// The one outcome that was delivered, with its token.
    fn only(&self, id: u64) -> Reason {
        let mut told = self.told.take();
        let outcome = told.pop().unwrap();
        assert!(told.is_empty(), "{told:?}");
        assert_eq!((outcome.token.id(), outcome.owner), (id, 42));
        outcome.reason
    }

    /// No token is left anywhere.
    fn is_clear(&self) -> bool {
        self.told.len() == 0 && self.census.left() == 0
    }
}

#[test]
fn every_end_returns_the_token() {
    let begin: [fn(&Rig) -> RootId; 2] = [
        |rig| rig.tracker.issue_with_token(3, 42, rig.token(7), DEFAULT).unwrap().into(),
        |rig| {
            rig.init(7, 3).unwrap();
            7.into()
        },
    ];
    for begin in begin {
        let rig = Rig::new();
        let root = begin(&rig);
        assert_eq!(rig.tracker.ack(root, 3), Ok(Ack::Completed));
        assert_eq!(rig.only(7), Reason::Acked);
        let root = begin(&rig);
        assert_eq!(rig.tracker.fail_by(root, 9), Ok(Done::Now));
        assert_eq!(rig.only(7), Reason::Failed { by: Some(9) });
        begin(&rig);
        assert_eq!(rig.tracker.fail_all(42), 1);
        assert_eq!(rig.only(7), FAILED);
        match begin(&rig) {
            RootId::Issued(root) => {
                let outcome = rig.tracker.fail_undelivered(root).unwrap();
                assert_eq!((outcome.token.id(), outcome.owner, outcome.reason), (7, 42, FAILED));
                let late = rig.tracker.fail_undelivered(root).unwrap_err();
                assert!(late == AckError::NotLive && rig.told.len() == 0);
            }
            chosen => {
                assert_eq!(rig.tracker.fail(chosen), Ok(Done::Now));
                assert_eq!(rig.only(7), FAILED);
            }
        }
        begin(&rig);
        rig.clock.advance(31 * MS);
        rig.tracker.poll(1000);
        assert!(matches!(rig.only(7), Reason::TimedOut { .. }));
        let root = begin(&rig);
        rig.tracker.reset_timeout(root).unwrap();
        rig.tracker.shutdown(ShutdownMode::Cancel);
        assert_eq!(rig.only(7), Reason::Cancelled);
        assert!(rig.is_clear());

        let rig = Rig::new();
        begin(&rig);
        let left = rig.tracker.shutdown(ShutdownMode::Return);
        assert_eq!((left.len(), left[0].token.id(), left[0].reason), (1, 7, Reason::Cancelled));
        drop(left);
        assert!(rig.is_clear());
    }
}

#[test]
fn what_comes_before_the_init_has_no_token_and_what_it_ends_has() {
    let rig = Rig::new();
    assert_eq!(rig.tracker.fail_by(7, 9), Ok(Done::Held));
    rig.init(7, 3).unwrap();
    assert_eq!(rig.only(7), FAILED);
    assert_eq!(rig.tracker.ack(7, 3), Ok(Ack::Held));
    rig.init(7, 3).unwrap();
    assert_eq!(rig.only(7), Reason::Acked);
    rig.init(7, 0).unwrap(); // without edges
    assert_eq!(rig.only(7), Reason::Acked);
    rig.tracker.issue_with_token(0, 42, rig.token(7), DEFAULT).unwrap();
    assert_eq!(rig.only(7), Reason::Acked);
    // Early entries that expire, or meet a shutdown, are no roots.
    assert_eq!(rig.tracker.ack(8, 3), Ok(Ack::Held));
    rig.clock.advance(31 * MS);
    rig.tracker.poll(1000);
    assert_eq!(rig.tracker.fail(8), Ok(Done::Held));
    assert!(rig.tracker.shutdown(ShutdownMode::Return).is_empty());
    assert!(rig.is_clear());
}

#[test]
fn a_refused_root_returns_its_token() {
    let rig = Rig::new();
    let issue = |timeout: Lifetime| {
        let refused = rig.tracker.issue_with_token(3, 42, rig.token(9), timeout).unwrap_err();
        assert_eq!((refused.token.id(), refused.to_string()), (9, refused.error.to_string()));
        refused.error
    };
    assert_eq!(issue(Duration::ZERO.into()), AckError::Lifetime(LifetimeError::Zero));
    rig.init(7, 3).unwrap();
    assert_eq!(rig.init(7, 3), Err(AckError::Duplicate));
    rig.init(8, 3).unwrap();
    assert_eq!(rig.init(7, 3), Err(AckError::Duplicate), "of a full tracker");
    assert_eq!((issue(DEFAULT), rig.init(9, 3)), (AckError::Full, Err(AckError::Full)));
    assert_eq!(rig.census.left(), 2);
    assert_eq!(rig.tracker.shutdown(ShutdownMode::Return).len(), 2);
    assert_eq!((issue(DEFAULT), rig.init(9, 3)), (AckError::Closed, Err(AckError::Closed)));
    assert!(rig.is_clear());
}

#[test]
fn tokens_are_dropped_with_the_tracker() {
    let census = Census::new();
    let tracker = AckTracker::builder().with_tokens().build().unwrap();
    for id in 0..1000 {
        tracker.issue_with_token(3, id, Counted::new(&census), DEFAULT).unwrap();
        tracker.init_with_token(id, 3, id, Counted::new(&census), DEFAULT).unwrap();
    }
    assert_eq!(tracker.ack(7, 3), Ok(Ack::Completed));
    assert_eq!((census.made(), census.left()), (2000, 1999));
    drop(tracker);
    assert_eq!(census.left(), 0);
    // The tokens that wait in the channel go with the channel.
    let builder = AckTracker::builder().with_tokens();
    let (tracker, outcomes) = builder.build_with_channel(1, WhenFull::Drop).unwrap();
    for id in 0..3 {
        tracker.init_with_token(id, 3, id, Counted::new(&census), DEFAULT).unwrap();
        tracker.fail(id).unwrap();
    }
    assert_eq!(census.left(), 1);
    drop((tracker, outcomes));
    assert_eq!(census.left(), 0);
}

#[test]
fn a_token_whose_drop_panics_loses_nothing() {
    let (clock, census) = (ManualClock::new(), Census::new());
    let quiet = manual(&clock).build_manual().unwrap();
    let (full, outcomes) = manual(&clock).build_manual_with_channel(1, WhenFull::Drop).unwrap();
    for tracker in [&quiet, &full] {
        for id in 0..4 {
            tracker.init_with_token(id, 3, id, Counted::armed(&census, id), DEFAULT).unwrap();
        }
        tracker.init_with_token(4, 3, 4, Counted::of(&census, 4), DEFAULT).unwrap();
        assert_eq!(tracker.ack(1, 3), Ok(Ack::Completed));
        assert_eq!(tracker.fail(2), Ok(Done::Now));
        assert_eq!(tracker.len(), 3);
    }
    clock.advance(31 * MS);
    for (tracker, panics) in [(&quiet, 4), (&full, 3)] {
        tracker.poll(1000);
        assert!(tracker.is_empty());
        let metrics = tracker.metrics();
        assert_eq!((metrics.total.expired, metrics.handler_panics), (3, panics));
    }
    outcomes.try_next().unwrap().token.disarm();
}

/// `u128`s fill a session's slot, lines a root's. Beyond that a token lies in a box.
#[test]
fn tokens_of_every_size_and_alignment() {
    #[derive(Clone, Debug, PartialEq)]
    #[repr(align(128))]
    struct Wide(u8);
    #[derive(Clone, Debug, PartialEq)]
    #[repr(align(64))]
    struct Line(u8);

    fn comes_back<T: Send + Clone + PartialEq + std::fmt::Debug + 'static>(token: &T) {
        let tracker = AckTracker::builder().with_tokens().build_manual().unwrap();
        for id in 0..100 {
            tracker.init_with_token(id, 3, id, token.clone(), DEFAULT).unwrap();
        }
        let left = tracker.shutdown(ShutdownMode::Return);
        assert!(left.len() == 100 && left.iter().all(|outcome| outcome.token == *token));
        let sessions = SessionTracker::builder().with_tokens().build_manual().unwrap();
        for owner in 0..100 {
            sessions.create(MS, NewSession::from(owner).token(token.clone())).unwrap();
        }
        let left = sessions.shutdown();
        assert!(left.len() == 100 && left.iter().all(|session| session.token == *token));
    }
    comes_back(&());
    comes_back(&Cell::new(u128::MAX));
    comes_back(&[u64::MAX; 9]);
    comes_back(&Line(7));
    comes_back(&Wide(7));
}

#[test]
fn a_batch_takes_a_token_for_each_root() {
    let rig = Rig::new();
    let items = [(7, 3, 42), (7, 3, 42), (8, 3, 42), (9, 3, 42), (10, 3, 42)];
    let tokens = (0..4).map(|id| rig.token(id));
    let mut refused = Vec::new();
    rig.tracker.init_many_with_tokens(&items, tokens, DEFAULT, |at, done| {
        refused.extend(done.err().map(|refused| (at, refused.token.id(), refused.error)));
    });
    assert_eq!(refused, [(1, 1, AckError::Duplicate), (3, 3, AckError::Full)]);
    rig.tracker.ack_many(&[(8_u64, 3)], |_, done| assert_eq!(done, Ok(Ack::Completed)));
    assert_eq!(rig.only(2), Reason::Acked);
    let left = rig.tracker.shutdown(ShutdownMode::Return);
    assert_eq!(left[0].token.id(), 0);
}

/// `with_tokens` keeps what was set before it: settings, and a listener, which gets no tokens.
#[test]
fn tokens_may_be_asked_for_after_anything_else() {
    let census = Census::new();
    let owners = Told::default();
    let (of_root, of_session) = (owners.handler(), owners.handler());
    let builder = AckTracker::builder()
        .capacity(1)
        .on_outcome(move |outcome: Outcome| of_root(outcome.owner));
    let tracker = builder.with_tokens().build_manual().unwrap();
    tracker.init_with_token(7, 3, 42, Counted::new(&census), DEFAULT).unwrap();
    let refused = tracker.init_with_token(8, 3, 43, Counted::new(&census), DEFAULT);
    assert_eq!(refused.unwrap_err().error, AckError::Full);
    tracker.fail(7).unwrap();

    let clock = ManualClock::new();
    let builder = SessionTracker::builder()
        .interval(MS)
        .clock(clock.clone())
        .expiry_listener(move |gone| of_session(gone.owner));
    let sessions = builder.with_tokens().build_manual().unwrap();
    sessions.create(MS, NewSession::from(44).token(Counted::new(&census))).unwrap();
    clock.advance(3 * MS);
    assert!(sessions.poll().is_empty());
    assert_eq!((owners.take(), census.left()), (vec![42, 44], 0));
}

#[test]
fn a_tuple_carries_a_token() {
    // A token need not be shared between threads.
    let builder = AckTracker::builder().with_tokens::<Cell<u128>>();
    let (tracker, outcomes) = builder.build_with_channel(1, WhenFull::Wait).unwrap();
    let mut tuple = Tuple::root_with_token(&tracker, 42, Cell::new(7), DEFAULT).unwrap();
    let child = tuple.emit();
    tuple.ack().unwrap();
    thread::scope(|scope| scope.spawn(|| child.ack()).join().unwrap()).unwrap();
    assert_eq!(outcomes.try_next().unwrap().token.get(), 7);
}

/// Threads ack, fail and init the same roots, which time out meanwhile, and a shutdown ends it.
#[test]
fn each_token_comes_back_once_among_threads() {
    let census = Census::new();
    let told = Told::default();
    let tell = told.handler();
    let tracker = AckTracker::builder()
        .with_tokens()
        .timeout(2 * MS)
        .interval(MS)
        .on_outcome(move |outcome: Outcome<Counted>| tell(outcome.token.id()))
        .build()
        .unwrap();
    let rounds = if cfg!(miri) { 20 } else { 5000 };
    let mut came_back = on_threads(3, |thread| {
        let mut refused = Vec::new();
        for round in 0..rounds {
            let token = Counted::of(&census, thread * rounds + round);
            let id = round % 64;
            match (thread + round) % 4 {
                0 => drop(tracker.fail(id)),
                1 => drop(tracker.ack(id, 5)),
                _ => {}
            }
            match tracker.init_with_token(id, 5, id, token, DEFAULT) {
                Ok(()) => drop(tracker.ack(id, 5)),
                Err(error) => refused.push(error.token.id()),
            }
            let token = Counted::of(&census, (thread + 3) * rounds + round);
            let share = edge();
            let root = tracker.issue_with_token(share, id, token, DEFAULT).unwrap();
            if round % 2 == 0 {
                let _ = tracker.ack(root, share);
            }
            if round % 100 == 0 {
                tracker.fail_all(id);
            }
        }
        refused
    })
    .concat();
    let left = tracker.shutdown(ShutdownMode::Return);
    came_back.extend(left.iter().map(|outcome| outcome.token.id()));
    came_back.append(&mut told.take());
    each_once(came_back, 6 * rounds);
    drop((left, tracker));
    assert_eq!(census.left(), 0);
}

/// What no receiver gets is counted, and its panics are, too.
#[test]
fn tokens_that_panic_on_their_way_out_of_a_channel() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("as this test wants it");
        }
    }
    let builder = manual::<Bad>(&ManualClock::new());
    let (tracker, outcomes) = builder.build_manual_with_channel(3, WhenFull::Drop).unwrap();
    let fail = || {
        let root = tracker.issue_with_token(1, 7, Bad, DEFAULT).unwrap();
        tracker.fail(root).unwrap();
    };
    let counts = || (tracker.metrics().undelivered, tracker.metrics().handler_panics);
    (0..5).for_each(|_| fail());
    assert_eq!((outcomes.len(), counts()), (3, (2, 2)));
    drop(outcomes);
    fail();
    assert_eq!(counts(), (3, 3));
}
