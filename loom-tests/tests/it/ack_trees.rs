//! The races of ack trees (S1 to S14 of the list, W6 and W14), through the public interface.
//!
//! Not here, because types exclude them: S11 (an emit after the ack: `Tuple::ack` takes the tuple by value, and
//! `emit` needs it) and, for tuples, S13 (a tuple exists only once its root is registered) and the half of S4 that
//! two threads emitting from one parent would be (`emit` takes `&mut self`). For edges that callers make
//! themselves S13 is a contract of the caller, and an ack that is early all the same is held (S8).

use expiry::model::stop_at;
use expiry::{Ack, AckError, AckMany, Done, Reason, RootId, Timeout};
use loom_tests::{costly, deep, model, thread, Rig, TICK};
use std::collections::HashMap;
use std::sync::OnceLock;

fn timed_out(reasons: &[Reason]) -> bool {
    matches!(reasons, [Reason::TimedOut { .. }])
}

/// S1: two threads ack the last edge. Guards: one winner of LIVE -> DEAD; a late ack of an issued root creates nothing.
#[test]
fn s01_duplicate_ack_after_completion() {
    model("s01_duplicate_ack_after_completion", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3, 10).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.ack(root, 3));
        let b = rig.tracker.ack(root, 3);
        let a = a.join().unwrap();
        let completed = [a, b].iter().filter(|r| **r == Ok(Ack::Completed)).count();
        assert_eq!(completed, 1, "{a:?} {b:?}");
        assert_eq!(rig.outcomes(root), [Reason::Acked]);
        assert!(rig.tracker.is_empty(), "an entry without an owner");
        assert_eq!(rig.tracker.ack(root, 3), Err(AckError::NotLive));
    });
}

/// S1 for chosen ids, where the late ack looks like an early one: it is held, and gone after the early timeout.
#[test]
fn s01_duplicate_ack_of_a_chosen_root_is_bounded() {
    model("s01_duplicate_ack_of_a_chosen_root_is_bounded", || {
        let rig = Rig::new();
        rig.tracker.init(1, 3, 10).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.ack(1, 3));
        let b = rig.tracker.ack(1, 3);
        let a = a.join().unwrap();
        let completed = [a, b].iter().filter(|r| **r == Ok(Ack::Completed)).count();
        assert_eq!(completed, 1, "{a:?} {b:?}");
        assert_eq!(rig.outcomes(1), [Reason::Acked]);
        let held = [a, b].iter().filter(|r| **r == Ok(Ack::Held)).count();
        assert_eq!(rig.tracker.len(), held, "{a:?} {b:?}");
        rig.pass(11);
        assert!(rig.tracker.is_empty(), "an entry without an owner");
        assert_eq!(rig.told().len(), 1);
    });
}

/// S6: a root is initialised again while whoever has ended it has yet to take its word out of the index: it is found behind that
/// word. Guards: a candidate whose slot does not hold the root is no answer.
#[test]
fn s06_a_replay_behind_an_attempt_that_has_ended() {
    model("s06_a_replay_behind_an_attempt_that_has_ended", || {
        // Who does not find it would have to hold what came early.
        let rig = Rig::with(|builder| builder.early_capacity(0));
        rig.tracker.init(1, 3, 10).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.fail(1));
        let again = rig.tracker.init(1, 5, 11);
        if again == Ok(()) {
            assert_eq!(rig.tracker.reset_timeout(1), Ok(Done::Now));
            assert_eq!(rig.tracker.ack(1, 5), Ok(Ack::Completed));
        }
        assert_eq!(a.join().unwrap(), Ok(Done::Now));
        let mut ends = vec![Reason::Failed { by: None }];
        ends.extend(again.is_ok().then_some(Reason::Acked));
        let mut told = rig.outcomes(1);
        // Of the two ends each thread tells its own.
        told.sort_by_key(|reason| *reason == Reason::Acked);
        assert_eq!(told, ends, "{again:?}");
        assert!(rig.tracker.is_empty());
    });
}

/// S2: two fails, and a sibling's ack. Guards: one winner of LIVE -> DEAD.
#[test]
fn s02_fail_then_fail_and_ack() {
    model("s02_fail_then_fail_and_ack", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3 ^ 5, 10).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.fail(root));
        let other = rig.clone();
        let c = thread::spawn(move || other.tracker.ack(root, 5));
        let b = rig.tracker.fail_by(root, 9);
        let (a, c) = (a.join().unwrap(), c.join().unwrap());
        let by = match (a, b) {
            (Ok(Done::Now), Err(AckError::NotLive)) => None,
            (Err(AckError::NotLive), Ok(Done::Now)) => Some(9),
            other => panic!("{other:?} {c:?}"),
        };
        assert_eq!(rig.outcomes(root), [Reason::Failed { by }]);
        assert!(rig.tracker.is_empty());
    });
}

/// Of two inits of a root, by owners 10 and 11, the one that succeeded.
fn one_init(a: Result<(), AckError>, b: Result<(), AckError>) -> u64 {
    match (a, b) {
        (Ok(()), Err(AckError::Duplicate)) => 10,
        (Err(AckError::Duplicate), Ok(())) => 11,
        other => panic!("{other:?}"),
    }
}

/// S3, S7: two inits of one key. Guards: the home's version in the swap that publishes.
#[test]
fn s03_duplicate_init() {
    model("s03_duplicate_init", || {
        let rig = Rig::used();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.init(1, 3, 10));
        let b = rig.tracker.init(1, 3, 11);
        let owner = one_init(a.join().unwrap(), b);
        assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Completed));
        assert_eq!(rig.told().len(), 1);
        assert_eq!(rig.told()[0].owner, owner);
        assert!(rig.tracker.is_empty());
    });
}

/// S3 where acks came first. Guards: EARLY -> INITING refuses the second init.
#[test]
fn s03_duplicate_init_of_an_early_root() {
    model("s03_duplicate_init_of_an_early_root", || {
        let rig = Rig::new();
        assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held));
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.init(1, 3 ^ 5, 10));
        let b = rig.tracker.init(1, 3 ^ 5, 11);
        let owner = one_init(a.join().unwrap(), b);
        assert_eq!(rig.tracker.ack(1, 5), Ok(Ack::Completed));
        assert_eq!(rig.told().len(), 1);
        assert_eq!(rig.told()[0].owner, owner);
        assert!(rig.tracker.is_empty());
    });
}

/// S4: siblings acked at once, one of them emitting a child. Guards: the word changes by compare-and-swap only.
#[test]
fn s04_lost_edge() {
    model("s04_lost_edge", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3 ^ 5, 10).unwrap();
        let other = rig.clone();
        // Acks 3 and emits 8 from it.
        let a = thread::spawn(move || other.tracker.ack(root, 3 ^ 8));
        let b = rig.tracker.ack(root, 5);
        assert_eq!((a.join().unwrap(), b), (Ok(Ack::Pending), Ok(Ack::Pending)));
        assert!(rig.told().is_empty(), "completed while a child runs");
        assert_eq!(rig.tracker.ack(root, 8), Ok(Ack::Completed));
        assert_eq!(rig.outcomes(root), [Reason::Acked]);
    });
}

/// S4: the two last siblings. Exactly one of them completes the tree.
#[test]
fn s04_last_two_edges() {
    model("s04_last_two_edges", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3 ^ 5, 10).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.ack(root, 3));
        let b = rig.tracker.ack(root, 5);
        let a = a.join().unwrap();
        assert!(
            matches!(
                (a, b),
                (Ok(Ack::Completed), Ok(Ack::Pending)) | (Ok(Ack::Pending), Ok(Ack::Completed))
            ),
            "{a:?} {b:?}"
        );
        assert_eq!(rig.outcomes(root), [Reason::Acked]);
        assert!(rig.tracker.is_empty());
    });
}

/// What a batch of acks was answered, in order.
fn ack_all<R: AckMany>(rig: &Rig, items: &[(R, u64)]) -> Vec<Result<Ack, AckError>> {
    let mut all = Vec::new();
    rig.tracker.ack_batch(items, |at, done| {
        assert_eq!(at, all.len());
        all.push(done);
    });
    all
}

/// Two roots with edges 3 and 5 each: a batch acks the one edge of both, and another thread the other, in the other order.
/// Each tree is completed by exactly one of them.
fn a_batch_beside_single_acks<R>(name: &str, begin: fn(&Rig) -> [R; 2])
where
    R: AckMany + Into<RootId> + Copy + 'static,
{
    model(name, move || {
        let rig = Rig::new();
        let roots = begin(&rig);
        let other = rig.clone();
        let singles = thread::spawn(move || {
            let second = other.tracker.ack(roots[1], 5);
            [other.tracker.ack(roots[0], 5), second]
        });
        let batch = ack_all(&rig, &roots.map(|root| (root, 3)));
        for ((root, a), b) in roots.into_iter().zip(batch).zip(singles.join().unwrap()) {
            assert!(
                matches!(
                    (a, b),
                    (Ok(Ack::Completed), Ok(Ack::Pending)) | (Ok(Ack::Pending), Ok(Ack::Completed))
                ),
                "{a:?} {b:?}"
            );
            assert_eq!(rig.outcomes(root), [Reason::Acked]);
        }
        assert_eq!(rig.told().len(), 2);
        assert!(rig.tracker.is_empty());
    });
}

/// S4 for a batch of issued roots.
#[test]
fn s04_a_batch_beside_single_acks() {
    a_batch_beside_single_acks("s04_a_batch_beside_single_acks", |rig| {
        [10, 11].map(|owner| rig.tracker.issue(3 ^ 5, owner).unwrap())
    });
}

/// S4 for a batch of chosen roots, which it looks up before it acks the first. The index has grown, and been carried, before.
#[test]
fn s04_a_batch_of_chosen_roots_beside_single_acks() {
    let name = "s04_a_batch_of_chosen_roots_beside_single_acks";
    a_batch_beside_single_acks(name, |rig| {
        for key in [1, 2] {
            rig.tracker.init(key, 3 ^ 5, key).unwrap();
        }
        rig.pass(0);
        [1u64, 2]
    });
}

/// S5: a duplicate ack beside the last one. Before it, the edge is open again, and the tree ends by its timeout, told
/// once; after it, nothing is re-opened.
#[test]
fn s05_duplicate_ack_before_completion() {
    model("s05_duplicate_ack_before_completion", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3 ^ 5, 10).unwrap();
        rig.tracker.ack(root, 3).unwrap();
        let other = rig.clone();
        let duplicate = thread::spawn(move || other.tracker.ack(root, 3));
        let last = rig.tracker.ack(root, 5);
        let duplicate = duplicate.join().unwrap();
        let before = rig.outcomes(root);
        rig.pass(11);
        let after = rig.outcomes(root);
        match last {
            Ok(Ack::Completed) => {
                assert_eq!((before, after.as_slice()), (vec![Reason::Acked], &[Reason::Acked][..]))
            }
            Ok(Ack::Pending) => {
                assert_eq!(duplicate, Ok(Ack::Pending));
                assert!(before.is_empty() && timed_out(&after), "{after:?}");
            }
            other => panic!("{other:?}"),
        }
        assert!(rig.tracker.is_empty());
    });
}

/// S6, W14 for issued roots: a late ack of attempt 1 while attempt 2 begins in the same slot with the same edges.
/// Guards: the word is whitened with the root, is read before key and lease, and these are checked.
#[test]
fn s06_replay_under_the_same_root() {
    model("s06_replay_under_the_same_root", || {
        let rig = Rig::new();
        let first = rig.tracker.issue(3, 10).unwrap();
        // The chunk's other slot: so the next claim comes round to the first one's.
        rig.tracker.issue(7, 11).unwrap();
        let other = rig.clone();
        let late = thread::spawn(move || other.tracker.ack(first, 3));
        let failed = rig.tracker.fail(first);
        let second = rig.tracker.issue(3, 20).unwrap();
        let late = late.join().unwrap();
        match failed {
            Ok(Done::Now) => {
                assert_eq!(rig.outcomes(first), [Reason::Failed { by: None }], "{late:?}")
            }
            Err(AckError::NotLive) => {
                assert_eq!(late, Ok(Ack::Completed));
                assert_eq!(rig.outcomes(first), [Reason::Acked]);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(rig.outcomes(second), [], "attempt 2 was ended by attempt 1's ack");
        assert_eq!(
            rig.tracker.ack(second, 3),
            Ok(Ack::Completed),
            "attempt 1's ack poisoned attempt 2"
        );
    });
}

/// S6 for fail and reset: what names attempt 1 does not end, or renew, attempt 2 in the same slot.
#[test]
fn s06_late_fail_and_reset_of_an_earlier_attempt() {
    model("s06_late_fail_and_reset_of_an_earlier_attempt", || {
        let rig = Rig::new();
        let first = rig.tracker.issue(3, 10).unwrap();
        rig.tracker.issue(7, 11).unwrap();
        let other = rig.clone();
        let late = thread::spawn(move || {
            let _ = other.tracker.reset_timeout_to(first, Timeout::Never);
            other.tracker.fail(first)
        });
        let acked = rig.tracker.ack(first, 3);
        let second = rig.tracker.issue(5, 20).unwrap();
        let failed = late.join().unwrap();
        assert!(
            matches!(
                (acked, failed),
                (Ok(Ack::Completed), Err(AckError::NotLive))
                    | (Err(AckError::NotLive), Ok(Done::Now))
                    | (Ok(Ack::Pending), Ok(Done::Now))
            ),
            "{acked:?} {failed:?}"
        );
        assert_eq!(rig.outcomes(first).len(), 1);
        assert_eq!(rig.outcomes(second), [], "attempt 2 was failed by attempt 1's fail");
        rig.pass(11);
        assert!(timed_out(&rig.outcomes(second)), "attempt 2 was renewed by attempt 1's reset");
    });
}

/// S8: the init of a root whose early acks are expiring. It meets them, or it has not: then it times out like any
/// other, and the loss is counted. Guards: EARLY -> INITING against EARLY -> DEAD.
#[test]
fn s08_init_after_its_early_acks_have_expired() {
    model("s08_init_after_its_early_acks_have_expired", || {
        let rig = Rig::new();
        assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held));
        rig.clock.advance(TICK * 10);
        let other = rig.clone();
        let a = thread::spawn(move || {
            other.tracker.poll(100);
        });
        assert_eq!(rig.tracker.init(1, 3, 10), Ok(()));
        a.join().unwrap();
        let before = rig.outcomes(1);
        rig.pass(11);
        let expired = rig.tracker.metrics().total.early_expired;
        match before.as_slice() {
            [Reason::Acked] => {
                assert_eq!(expired, 0);
                assert_eq!(rig.told().len(), 1);
            }
            [] => {
                assert_eq!(expired, 1, "lost in silence");
                assert!(timed_out(&rig.outcomes(1)));
            }
            other => panic!("{other:?}"),
        }
        assert!(rig.tracker.is_empty());
    });
}

/// S9: the timeout and the last ack. Guards: both end the slot by one swap of the lease.
#[test]
fn s09_timeout_against_completion() {
    model("s09_timeout_against_completion", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3, 10).unwrap();
        rig.clock.advance(TICK * 10);
        let other = rig.clone();
        let a = thread::spawn(move || {
            other.tracker.poll(100);
        });
        let acked = rig.tracker.ack(root, 3);
        a.join().unwrap();
        rig.pass(1);
        match acked {
            Ok(Ack::Completed) => assert_eq!(rig.outcomes(root), [Reason::Acked]),
            Err(AckError::NotLive) => assert!(timed_out(&rig.outcomes(root))),
            other => panic!("{other:?}"),
        }
        assert!(rig.tracker.is_empty());
    });
}

/// Q6: a touch beside the expiry of the old deadline: renewed, or refused, never both.
#[test]
fn s09_renewed_yet_expired() {
    model("s09_renewed_yet_expired", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3, 10).unwrap();
        rig.clock.advance(TICK * 10);
        let other = rig.clone();
        let a = thread::spawn(move || {
            other.tracker.poll(100);
        });
        let renewed = rig.tracker.reset_timeout(root);
        a.join().unwrap();
        rig.pass(9);
        match renewed {
            Ok(Done::Now) => {
                assert_eq!(rig.outcomes(root), [], "expired after it was renewed");
                rig.pass(1);
                assert!(timed_out(&rig.outcomes(root)), "never expires again");
            }
            Err(AckError::NotLive) => assert!(timed_out(&rig.outcomes(root))),
            other => panic!("{other:?}"),
        }
        assert!(rig.tracker.is_empty());
    });
}

/// Q6: a touch beside another one, between whose beginnings time goes by. Guards: the clock is read
/// after the lease was looked at, and again after a lost swap; what the later touch was told holds.
#[test]
fn q06_a_delayed_touch_beside_another() {
    for chosen in [false, true] {
        let name = format!("q06_a_delayed_touch_beside_another, chosen: {chosen}");
        model(&name, move || {
            let rig = Rig::new();
            let root: RootId = if chosen {
                rig.tracker.init(1, 3, 10).unwrap();
                1.into()
            } else {
                rig.tracker.issue(3, 10).unwrap().into()
            };
            let other = rig.clone();
            let a = thread::spawn(move || other.tracker.reset_timeout(root));
            rig.clock.advance(TICK * 5);
            assert_eq!(rig.tracker.reset_timeout(root), Ok(Done::Now));
            assert_eq!(a.join().unwrap(), Ok(Done::Now));
            rig.pass(9);
            assert_eq!(rig.outcomes(root), [], "earlier than a touch was told");
            rig.pass(1);
            assert!(timed_out(&rig.outcomes(root)));
            assert!(rig.tracker.is_empty());
        });
    }
}

/// A touch for two ticks is delayed. Meanwhile five ticks go by and another thread touches the root
/// for each of `others`. The root lives for a tick, and is gone `rest` ticks later.
fn delayed_touch_for_less(name: &str, others: &'static [u32], rest: u32) {
    model(name, move || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3, 10).unwrap();
        let after = |ticks| Timeout::After(TICK * ticks);
        let (other, less) = (rig.clone(), after(2));
        let a = thread::spawn(move || other.tracker.reset_timeout_to(root, less));
        rig.clock.advance(TICK * 5);
        for &ticks in others {
            let renewed = rig.tracker.reset_timeout_to(root, after(ticks));
            assert_eq!(renewed, Ok(Done::Now));
        }
        assert_eq!(a.join().unwrap(), Ok(Done::Now));
        rig.pass(1);
        assert_eq!(rig.outcomes(root), [], "earlier than all touches were told");
        rig.pass(rest);
        assert!(timed_out(&rig.outcomes(root)));
        assert!(rig.tracker.is_empty());
    });
}

/// Q6: as before, where the delayed touch asks for less. It may be the later one, and then what it
/// asked for counts from after the other one.
#[test]
fn q06_a_delayed_touch_for_less_beside_another() {
    delayed_touch_for_less("q06_a_delayed_touch_for_less_beside_another", &[10], 9);
}

/// Q6: as before, where the other touches shorten the lease and bring it back to the tick that the
/// delayed one saw. Guards: the lease counts the renewals that lower it.
#[test]
fn q06_a_delayed_touch_for_less_beside_one_that_comes_back() {
    let name = "q06_a_delayed_touch_for_less_beside_one_that_comes_back";
    delayed_touch_for_less(name, &[3, 5], 4);
}

/// Q6 for an init that takes over early signs: a touch in the middle of it. Guards: the init goes
/// on with the lease that the touch has made.
#[test]
fn q06_a_touch_in_the_middle_of_an_init() {
    model("q06_a_touch_in_the_middle_of_an_init", || {
        let rig = Rig::new();
        assert_eq!(rig.tracker.ack(1, 1), Ok(Ack::Held));
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.init(1, 3, 10));
        rig.clock.advance(TICK * 5);
        let touched = rig.tracker.reset_timeout(1);
        assert_eq!(a.join().unwrap(), Ok(()));
        if touched == Ok(Done::Now) {
            rig.pass(9);
            assert_eq!(rig.outcomes(1), [], "earlier than the touch was told");
            rig.pass(1);
        } else {
            assert_eq!(touched, Ok(Done::Held));
            rig.pass(10);
        }
        assert!(timed_out(&rig.outcomes(1)));
        assert!(rig.tracker.is_empty());
    });
}

/// S10: fail and last ack of an issued root. Guards: one winner of LIVE -> DEAD.
#[test]
fn s10_fail_against_ack() {
    model("s10_fail_against_ack", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3, 10).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.ack(root, 3));
        let failed = rig.tracker.fail(root);
        match (a.join().unwrap(), failed) {
            (Ok(Ack::Completed), Err(AckError::NotLive)) => {
                assert_eq!(rig.outcomes(root), [Reason::Acked])
            }
            (Ok(Ack::Pending) | Err(AckError::NotLive), Ok(Done::Now)) => {
                assert_eq!(rig.outcomes(root), [Reason::Failed { by: None }]);
            }
            other => panic!("{other:?}"),
        }
        assert!(rig.tracker.is_empty());
    });
}

/// S10 where the init has yet to merge early acks: init, fail and last ack, three threads, one outcome.
/// Guards: INITING, INITING_FAILED, the word's two whitenings.
#[test]
fn s10_merge_against_fail_and_ack() {
    costly("s10_merge_against_fail_and_ack", 1, 3, || {
        let rig = Rig::new();
        assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held));
        let other = rig.clone();
        let init = thread::spawn(move || other.tracker.init(1, 3 ^ 5, 10));
        let other = rig.clone();
        let fail = thread::spawn(move || other.tracker.fail(1));
        let acked = rig.tracker.ack(1, 5);
        let failed = fail.join().unwrap();
        assert_eq!(init.join().unwrap(), Ok(()));
        let before = rig.outcomes(1);
        let held = rig.tracker.len();
        rig.pass(11);
        rig.pass(11);
        assert_eq!(rig.outcomes(1).len(), 1, "{acked:?} {failed:?} {before:?}");
        assert_eq!(before.len(), 1, "acked or failed, so it has ended: {acked:?} {failed:?}");
        assert_eq!(rig.told()[0].owner, 10);
        // What came after the end looks like an early arrival, and was one entry at most.
        assert!(held <= 1);
        match (acked, failed) {
            (Ok(Ack::Completed), _) => assert_eq!(before, [Reason::Acked]),
            (_, Ok(Done::Now)) => assert!(matches!(before[..], [Reason::Failed { .. }])),
            _ => {}
        }
        assert!(rig.tracker.is_empty());
    });
}

/// Init on early acks, the last ack beside it: the tree completes, once, whoever comes last, and with the init's
/// owner. Guards: the owner is written before the word's swap, W0 against W1.
#[test]
fn s10_merge_against_the_last_ack() {
    model("s10_merge_against_the_last_ack", || {
        let rig = Rig::new();
        assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held));
        let other = rig.clone();
        let init = thread::spawn(move || other.tracker.init(1, 3 ^ 5, 10));
        let acked = rig.tracker.ack(1, 5);
        assert_eq!(init.join().unwrap(), Ok(()));
        assert!(matches!(acked, Ok(Ack::Completed | Ack::Pending | Ack::Held)), "{acked:?}");
        assert_eq!(rig.outcomes(1), [Reason::Acked]);
        assert_eq!(rig.told()[0].owner, 10);
        assert!(rig.tracker.is_empty());
    });
}

/// An early fail and its init: the init reports it, with the culprit.
#[test]
fn s10_early_fail_against_init() {
    model("s10_early_fail_against_init", || {
        let rig = Rig::used();
        let other = rig.clone();
        let fail = thread::spawn(move || other.tracker.fail_by(1, 9));
        assert_eq!(rig.tracker.init(1, 3, 10), Ok(()));
        let failed = fail.join().unwrap();
        assert!(matches!(failed, Ok(Done::Now | Done::Held)), "{failed:?}");
        assert!(
            matches!(rig.outcomes(1)[..], [Reason::Failed { by: Some(9) }]),
            "{:?}",
            rig.told()
        );
        assert_eq!(rig.told()[0].owner, 10);
        assert!(rig.tracker.is_empty());
    });
}

/// S12: a reset beside the end. Guards: the lease is swapped only while it is live; nothing is created for an
/// issued root.
#[test]
fn s12_late_reset() {
    model("s12_late_reset", || {
        let rig = Rig::new();
        let root = rig.tracker.issue(3, 10).unwrap();
        let other = rig.clone();
        // To another deadline: or the lease would be as it was.
        let longer = Timeout::After(TICK * 20);
        let a = thread::spawn(move || other.tracker.reset_timeout_to(root, longer));
        assert_eq!(rig.tracker.ack(root, 3), Ok(Ack::Completed));
        let reset = a.join().unwrap();
        assert!(matches!(reset, Ok(Done::Now) | Err(AckError::NotLive)), "{reset:?}");
        assert!(rig.tracker.is_empty(), "the reset created an entry");
        rig.pass(30);
        assert_eq!(rig.outcomes(root), [Reason::Acked]);
    });
}

/// S14: the same tick delivered twice, by two threads. Nothing is early, and nothing is told twice.
#[test]
fn s14_one_tick_delivered_twice() {
    model("s14_one_tick_delivered_twice", || {
        let rig = Rig::new();
        let soon = rig.tracker.issue_with(3, 10, Timeout::After(TICK)).unwrap();
        let later = rig.tracker.issue_with(3, 11, Timeout::After(TICK * 2)).unwrap();
        rig.clock.advance(TICK);
        let other = rig.clone();
        let a = thread::spawn(move || {
            other.tracker.poll(100);
            other.tracker.poll(100);
        });
        rig.tracker.poll(100);
        a.join().unwrap();
        rig.pass(0);
        assert!(timed_out(&rig.outcomes(soon)));
        assert_eq!(rig.outcomes(later), [], "early");
        rig.pass(1);
        assert!(timed_out(&rig.outcomes(later)));
    });
}

/// W6: an operation has looked a slot up, and acts on it after the slot was given to another key. Guards: the index
/// is asked again after the look into the slot (in `look`).
#[test]
fn w06_slot_reuse_by_another_key() {
    model("w06_slot_reuse_by_another_key", || {
        let rig = Rig::with(|builder| builder.early_capacity(0));
        rig.tracker.init(1, 3, 10).unwrap();
        rig.tracker.issue(7, 0).unwrap();
        let other = rig.clone();
        let a = thread::spawn(move || other.tracker.fail(1));
        let ended = rig.tracker.ack(1, 3);
        let begun = rig.tracker.init(2, 5, 20);
        let failed = a.join().unwrap();
        assert_eq!(begun, Ok(()));
        assert_eq!(rig.outcomes(2), [], "{ended:?} {failed:?}");
        assert_eq!(rig.tracker.ack(2, 5), Ok(Ack::Completed));
        assert_eq!(rig.outcomes(1).len(), 1);
    });
}

/// W6 where it is the driver, or an init, that has looked the slot up: a reset of the old key does not renew the new
/// one, and an init of the old key does not merge into it.
#[test]
fn w06_init_merges_into_its_own_entry() {
    deep("w06_init_merges_into_its_own_entry", 2, || {
        let rig = Rig::new();
        assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Held));
        rig.tracker.issue(7, 0).unwrap();
        let other = rig.clone();
        // Merges with the held ack, or comes after the entry has expired, perhaps into a slot of its own.
        let a = thread::spawn(move || other.tracker.init(1, 3 ^ 5, 10));
        rig.clock.advance(TICK * 10);
        rig.tracker.poll(100);
        assert_eq!(rig.tracker.ack(2, 8), Ok(Ack::Held));
        assert_eq!(a.join().unwrap(), Ok(()));
        assert_eq!(
            rig.tracker.init(2, 8 ^ 9, 20),
            Ok(()),
            "another key's init has taken the entry"
        );
        assert_eq!(rig.tracker.ack(2, 9), Ok(Ack::Completed));
        rig.pass(10);
        assert_eq!((rig.outcomes(1).len(), rig.outcomes(2)), (1, vec![Reason::Acked]));
    });
}

/// W14: an ack has read state and word of attempt 1; the same id is initialised again in the same slot with the same
/// edges. Guards: the incarnation in the whitening, and the index is asked again after the look into the slot.
#[test]
fn w14_stale_share() {
    model("w14_stale_share", || {
        let rig = Rig::with(|builder| builder.early_capacity(0));
        rig.tracker.init(1, 3, 10).unwrap();
        rig.tracker.issue(7, 0).unwrap();
        let other = rig.clone();
        let late = thread::spawn(move || other.tracker.ack(1, 3));
        let ended = rig.tracker.fail(1);
        let again = rig.tracker.init(1, 3, 20);
        let late = late.join().unwrap();
        assert_eq!(again, Ok(()));
        if late != Ok(Ack::Completed) {
            // It took effect on attempt 1, or on none: attempt 2 has its edge open.
            assert_eq!(rig.outcomes(1), [Reason::Failed { by: None }], "{ended:?} {late:?}");
            assert_eq!(rig.tracker.ack(1, 3), Ok(Ack::Completed), "{ended:?} {late:?}");
        }
        rig.pass(11);
        assert_eq!(rig.outcomes(1).len(), 2, "{ended:?} {late:?}");
        assert_eq!(rig.outcomes(1).iter().filter(|reason| **reason == Reason::Acked).count(), 1);
    });
}

/// W14 for a batch: it has looked up both its roots, and while it acks the one, the other ends, and is initialised again in
/// the same slot with the same edges. Guards: as before; a candidate is believed only after the look into its slot.
#[test]
fn w14_a_batch_with_a_stale_candidate() {
    model("w14_a_batch_with_a_stale_candidate", || {
        let rig = Rig::with(|builder| builder.early_capacity(0));
        rig.tracker.init(1, 3, 10).unwrap();
        rig.tracker.init(2, 3 ^ 5, 11).unwrap();
        rig.pass(0);
        let other = rig.clone();
        let late = thread::spawn(move || ack_all(&other, &[(2, 3), (1, 3)]));
        let ended = rig.tracker.fail(1);
        let again = rig.tracker.init(1, 3, 20);
        let late = late.join().unwrap();
        assert_eq!((again, late[0]), (Ok(()), Ok(Ack::Pending)));
        if late[1] != Ok(Ack::Completed) {
            // It took effect on attempt 1, or on none: attempt 2 has its edge open.
            let failed = [Reason::Failed { by: None }];
            assert_eq!(rig.outcomes(1), failed, "{ended:?} {late:?}");
            let acked = rig.tracker.ack(1, 3);
            assert_eq!(acked, Ok(Ack::Completed), "{ended:?} {late:?}");
        }
        assert_eq!(rig.tracker.ack(2, 5), Ok(Ack::Completed));
        rig.pass(11);
        assert_eq!(rig.outcomes(1).len(), 2, "{ended:?} {late:?}");
        assert!(rig.outcomes(1).contains(&Reason::Acked));
        assert!(rig.tracker.is_empty());
    });
}

/// W14, W6 for what a slot is before it is published: the same id again in the same slot, filled but refused by the index
/// because another init was first; a fail that had found the slot under attempt 1 must not end it.
#[test]
fn w14_refused_before_it_is_published() {
    deep("w14_refused_before_it_is_published", 2, || {
        let rig = Rig::with(|builder| builder.early_capacity(0));
        rig.tracker.init(1, 3, 10).unwrap();
        rig.tracker.issue(7, 0).unwrap();
        let other = rig.clone();
        let late = thread::spawn(move || other.tracker.fail(1));
        let other = rig.clone();
        let rival = thread::spawn(move || other.tracker.init(1, 3, 30));
        let ended = rig.tracker.ack(1, 3);
        let again = rig.tracker.init(1, 3, 20);
        let (late, rival) = (late.join().unwrap(), rival.join().unwrap());
        let begun = 1 + usize::from(again.is_ok()) + usize::from(rival.is_ok());
        rig.pass(11);
        assert_eq!(rig.outcomes(1).len(), begun, "{ended:?} {again:?} {late:?} {rival:?}");
        assert!(rig.tracker.is_empty());
    });
}

/// Two keys that the index does not tell apart.
static ALIKE: OnceLock<(u64, u64)> = OnceLock::new();

/// An early ack reads a slot while its next occupant comes: another chosen root, whose key has the
/// same hash. The ack counts. Guards: a thread that reads the key of the next occupant does not read
/// the lease of the one before; the key's store and load.
#[test]
fn an_early_ack_beside_a_root_of_the_same_hash() {
    costly("an_early_ack_beside_a_root_of_the_same_hash", 1, 3, || {
        loom::stop_exploring();
        let rig = Rig::new();
        let &(first, second) = ALIKE.get_or_init(|| {
            let mut seen = HashMap::new();
            let alike = |key| Some((seen.insert(rig.tracker.hash_of(key), key)?, key));
            (1..).find_map(alike).expect("a key that is like an earlier one")
        });
        rig.tracker.init(first, 3, 10).unwrap();
        rig.tracker.issue(7, 0).unwrap();
        stop_at(|step| step == "occupied");
        let other = rig.clone();
        // Not the thread that claims the slot: it would know that the first root has ended.
        let fail = thread::spawn(move || other.tracker.fail(first));
        let other = rig.clone();
        let ack = thread::spawn(move || {
            loom::explore();
            let acked = other.tracker.ack(second, 9);
            loom::stop_exploring();
            acked
        });
        fail.join().unwrap().unwrap();
        rig.tracker.init(second, 9 ^ 5, 20).unwrap();
        let early = ack.join().unwrap();
        stop_at(|_| false);
        assert!(matches!(early, Ok(Ack::Pending | Ack::Held)), "{early:?}");
        let last = rig.tracker.ack(second, 5);
        assert_eq!(last, Ok(Ack::Completed), "{early:?} was lost");
    });
}
