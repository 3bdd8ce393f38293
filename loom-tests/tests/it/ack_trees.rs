//! The races of ack trees (S1 to S14 of the list, W6 and W14), through the public interface.
//!
//! Types exclude some races, which therefore have no model. S11 is an emit after the ack:
//! `Tuple::ack` takes the tuple by value, and `emit` needs it. S13 cannot happen to tuples: a tuple
//! exists only once its root is registered. Half of S4 would be two threads that emit from one
//! parent: `emit` takes `&mut self`. For edges that callers make themselves, S13 is a contract of
//! the caller. The tracker holds an ack that is early all the same (S8).

use expiry::model::stop_at;
use expiry::{Ack, AckError, Done, Lifetime, Reason, Root, RootId};
use loom_tests::{after, aside, beside, costly, deep, light, model, Rig, TICK};
use std::collections::HashMap;
use std::sync::OnceLock;

const FAILED: Reason = Reason::Failed { by: None };

pub(crate) fn timed_out(reasons: &[Reason]) -> bool {
    matches!(reasons, [Reason::TimedOut { .. }])
}

// S1: two threads ack the last edge. Guards: one winner of LIVE -> DEAD; a late ack of an issued
// root creates nothing.
model!(s01_duplicate_ack_after_completion, || {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    let (a, b) = beside(&rig, move |rig| rig.ack(root, 3), |rig| rig.ack(root, 3));
    assert!((a == Ok(Ack::Completed)) != (b == Ok(Ack::Completed)), "{a:?} {b:?}");
    assert_eq!(rig.outcomes(root), [Reason::Acked]);
    assert!(rig.is_empty(), "an entry without an owner");
    assert_eq!(rig.ack(root, 3), Err(AckError::NotLive));
});

// S1 for chosen ids, where the late ack looks like an early one. The tracker holds it, and drops it
// after the early timeout.
model!(s01_duplicate_ack_of_a_chosen_root_is_bounded, || {
    let rig = Rig::new();
    rig.init(1, 3, 10).unwrap();
    let (a, b) = beside(&rig, |rig| rig.ack(1, 3), |rig| rig.ack(1, 3));
    assert!((a == Ok(Ack::Completed)) != (b == Ok(Ack::Completed)), "{a:?} {b:?}");
    assert_eq!(rig.outcomes(1), [Reason::Acked]);
    let held = [a, b].iter().filter(|r| **r == Ok(Ack::Held)).count();
    assert_eq!(rig.len(), held, "{a:?} {b:?}");
    rig.pass(11);
    assert!(rig.is_empty(), "an entry without an owner");
    assert_eq!(rig.told().len(), 1);
});

// S6: a root is initialised again while the thread that ended it has yet to remove its index word.
// The new attempt's word lies behind that word. Guards: a candidate whose slot does not hold the
// root is no answer.
model!(s06_a_replay_behind_an_attempt_that_has_ended, || {
    // A call that does not find the root would have to hold an early ack.
    let rig = Rig::with(|builder| builder.early_capacity(0));
    rig.init(1, 3, 10).unwrap();
    let a = aside(&rig, |rig| rig.fail(1));
    let again = rig.init(1, 5, 11);
    if again == Ok(()) {
        assert_eq!(rig.reset_timeout(1), Ok(Done::Now));
        assert_eq!(rig.ack(1, 5), Ok(Ack::Completed));
    }
    assert_eq!(a.join().unwrap(), Ok(Done::Now));
    let mut ends = vec![FAILED];
    ends.extend(again.is_ok().then_some(Reason::Acked));
    let mut told = rig.outcomes(1);
    // Each thread delivers its own outcome of the two.
    told.sort_by_key(|reason| *reason == Reason::Acked);
    assert_eq!(told, ends, "{again:?}");
    assert!(rig.is_empty());
});

// S2: two fails, and a sibling's ack. Guards: one winner of LIVE -> DEAD.
model!(s02_fail_then_fail_and_ack, || {
    let rig = Rig::new();
    let root = rig.issue(3 ^ 5, 10).unwrap();
    let a = aside(&rig, move |rig| rig.fail(root));
    let (c, b) = beside(&rig, move |rig| rig.ack(root, 5), |rig| rig.fail_by(root, 9));
    let (a, c) = (a.join().unwrap(), c);
    let by = match (a, b) {
        (Ok(Done::Now), Err(AckError::NotLive)) => None,
        (Err(AckError::NotLive), Ok(Done::Now)) => Some(9),
        other => panic!("{other:?} {c:?}"),
    };
    assert_eq!(rig.outcomes(root), [Reason::Failed { by }]);
    assert!(rig.is_empty());
});

// A root ends, and the next one has its slot, while another thread lists all roots. Guards: the
// lease is read again after key and owner, which release what came before them.
model!(a_list_beside_the_next_root_of_a_slot, || {
    let rig = Rig::new();
    let first = rig.issue(3, 10).unwrap();
    // This takes the chunk's other slot, so the next claim comes round to the first one's.
    let other = rig.issue(9, 9).unwrap();
    let a = aside(&rig, |rig| rig.oldest(3));
    assert_eq!(rig.ack(first, 3), Ok(Ack::Completed));
    let second = rig.issue(5, 11).unwrap();
    for listed in a.join().unwrap() {
        let all = [(first.into(), 10), (other.into(), 9), (second.into(), 11)];
        assert!(all.contains(&(listed.root, listed.owner)), "{listed:?}");
    }
});

/// One of two inits of root 1, by owners 10 and 11, has succeeded. The root's last edge is `edge`.
fn one_init(rig: &Rig, a: Result<(), AckError>, b: Result<(), AckError>, edge: u64) {
    let owner = match (a, b) {
        (Ok(()), Err(AckError::Duplicate)) => 10,
        (Err(AckError::Duplicate), Ok(())) => 11,
        other => panic!("{other:?}"),
    };
    assert_eq!(rig.ack(1, edge), Ok(Ack::Completed));
    assert_eq!(rig.told().iter().map(|told| told.owner).collect::<Vec<_>>(), [owner]);
    assert!(rig.is_empty());
}

// S3, S7: two inits of one key. Guards: the index bucket's version in the swap that publishes.
model!(s03_duplicate_init, || {
    let rig = Rig::used();
    let (a, b) = beside(&rig, |rig| rig.init(1, 3, 10), |rig| rig.init(1, 3, 11));
    one_init(&rig, a, b, 3);
});

// S3 where acks came first. Guards: EARLY -> INITING refuses the second init.
model!(s03_duplicate_init_of_an_early_root, || {
    let rig = Rig::new();
    assert_eq!(rig.ack(1, 3), Ok(Ack::Held));
    let (a, b) = beside(&rig, |rig| rig.init(1, 3 ^ 5, 10), |rig| rig.init(1, 3 ^ 5, 11));
    one_init(&rig, a, b, 5);
});

// S4: siblings are acked at once, and one of them emits a child. Guards: the word changes by
// compare-and-swap only.
model!(s04_lost_edge, || {
    let rig = Rig::new();
    let root = rig.issue(3 ^ 5, 10).unwrap();
    // Acks 3 and emits 8 from it.
    let (a, b) = beside(&rig, move |rig| rig.ack(root, 3 ^ 8), |rig| rig.ack(root, 5));
    assert_eq!((a, b), (Ok(Ack::Pending), Ok(Ack::Pending)));
    assert!(rig.told().is_empty(), "completed while a child runs");
    assert_eq!(rig.ack(root, 8), Ok(Ack::Completed));
    assert_eq!(rig.outcomes(root), [Reason::Acked]);
});

/// One of two acks of a root's last edges completes it, and the other one came before.
fn one_completes(rig: &Rig, root: impl Into<RootId>, a: Acked, b: Acked) {
    let (first, last) = (Ok(Ack::Pending), Ok(Ack::Completed));
    assert!((a, b) == (first, last) || (a, b) == (last, first), "{a:?} {b:?}");
    assert_eq!(rig.outcomes(root), [Reason::Acked]);
}

type Acked = Result<Ack, AckError>;

/// The answers to a batch of acks, in order.
fn ack_all<R: Copy + Into<RootId>>(rig: &Rig, items: &[(R, u64)]) -> Vec<Acked> {
    let mut all = Vec::new();
    rig.ack_many(items, |at, done| {
        assert_eq!(at, all.len());
        all.push(done);
    });
    all
}

/// Two roots have the edges 3 and 5 each. A batch acks one edge of both, and another thread the
/// other edge, in the opposite order. Exactly one of the two threads completes each tree.
fn a_batch_beside_single_acks<R>(begin: fn(&Rig) -> [R; 2])
where
    R: Copy + Into<RootId> + 'static,
{
    let rig = Rig::new();
    let roots = begin(&rig);
    let singles = aside(&rig, move |rig| {
        let second = rig.ack(roots[1], 5);
        [rig.ack(roots[0], 5), second]
    });
    let batch = ack_all(&rig, &roots.map(|root| (root, 3)));
    for ((root, a), b) in roots.into_iter().zip(batch).zip(singles.join().unwrap()) {
        one_completes(&rig, root, a, b);
    }
    assert_eq!(rig.told().len(), 2);
    assert!(rig.is_empty());
}

// S4 for a batch of issued roots.
model!(s04_a_batch_beside_single_acks, || {
    a_batch_beside_single_acks(|rig| [10, 11].map(|owner| rig.issue(3 ^ 5, owner).unwrap()));
});

// S4 for a batch of chosen roots, which it looks up before it acks the first. The index has grown,
// and been migrated, before.
model!(s04_a_batch_of_chosen_roots_beside_single_acks, || {
    a_batch_beside_single_acks(|rig| {
        (1..=2).for_each(|key| rig.init(key, 3 ^ 5, key).unwrap());
        rig.pass(0);
        [1u64, 2]
    });
});

// S5: a duplicate ack beside the last one. If it comes before, the edge is open again, and the tree
// ends by its timeout, with one outcome. If it comes after, nothing is re-opened.
model!(s05_duplicate_ack_before_completion, || {
    let rig = Rig::new();
    let root = rig.issue(3 ^ 5, 10).unwrap();
    rig.ack(root, 3).unwrap();
    let (duplicate, last) = beside(&rig, move |rig| rig.ack(root, 3), |rig| rig.ack(root, 5));
    let before = rig.outcomes(root);
    rig.pass(11);
    let after = rig.outcomes(root);
    match last {
        Ok(Ack::Completed) => assert_eq!([before, after], [[Reason::Acked], [Reason::Acked]]),
        Ok(Ack::Pending) => {
            assert_eq!(duplicate, Ok(Ack::Pending));
            assert!(before.is_empty() && timed_out(&after), "{after:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(rig.is_empty());
});

// S6, W14 for issued roots: a late ack of attempt 1 while attempt 2 begins in the same slot with
// the same edges. Guards: the word is whitened with the root, and read before key and lease, which
// are then checked.
model!(s06_replay_under_the_same_root, || {
    let rig = Rig::new();
    let first = rig.issue(3, 10).unwrap();
    // This takes the chunk's other slot, so the next claim comes round to the first one's.
    rig.issue(7, 11).unwrap();
    let late = aside(&rig, move |rig| rig.ack(first, 3));
    let failed = rig.fail(first);
    let second = rig.issue(3, 20).unwrap();
    let late = late.join().unwrap();
    match failed {
        Ok(Done::Now) => assert_eq!(rig.outcomes(first), [FAILED], "{late:?}"),
        Err(AckError::NotLive) => {
            assert_eq!(late, Ok(Ack::Completed));
            assert_eq!(rig.outcomes(first), [Reason::Acked]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.outcomes(second), [], "attempt 2 was ended by attempt 1's ack");
    assert_eq!(rig.ack(second, 3), Ok(Ack::Completed), "attempt 1's ack poisoned attempt 2");
});

// S6 for fail and reset: a call that names attempt 1 neither ends nor renews attempt 2 in the same
// slot.
model!(s06_late_fail_and_reset_of_an_earlier_attempt, || {
    let rig = Rig::new();
    let first = rig.issue(3, 10).unwrap();
    rig.issue(7, 11).unwrap();
    let late = aside(&rig, move |rig| {
        let _ = rig.reset_timeout_for(first, Lifetime::Never);
        rig.fail(first)
    });
    let acked = rig.ack(first, 3);
    let second = rig.issue(5, 20).unwrap();
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

// S8: the init of a root whose early acks are expiring. If it meets them, they count. If not, it
// times out like any other root, and the loss is counted. Guards: EARLY -> INITING against EARLY ->
// DEAD.
model!(s08_init_after_its_early_acks_have_expired, || {
    let rig = Rig::new();
    assert_eq!(rig.ack(1, 3), Ok(Ack::Held));
    rig.advance(10);
    beside(&rig, |rig| rig.poll(100), |rig| assert_eq!(rig.init(1, 3, 10), Ok(())));
    let before = rig.outcomes(1);
    rig.pass(11);
    let expired = rig.metrics().total.early_expired;
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
    assert!(rig.is_empty());
});

// S9: the timeout and the last ack. Guards: both end the slot by one swap of the lease.
model!(s09_timeout_against_completion, || {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    rig.advance(10);
    let (_, acked) = beside(&rig, |rig| rig.poll(100), |rig| rig.ack(root, 3));
    rig.pass(1);
    match acked {
        Ok(Ack::Completed) => assert_eq!(rig.outcomes(root), [Reason::Acked]),
        Err(AckError::NotLive) => assert!(timed_out(&rig.outcomes(root))),
        other => panic!("{other:?}"),
    }
    assert!(rig.is_empty());
});

/// A touch was refused and the root has expired, or it expires with the next tick.
pub(crate) fn renewed_for_a_tick(rig: &Rig, root: Root, renewed: Result<Done, AckError>) {
    match renewed {
        Ok(Done::Now) => {
            assert_eq!(rig.outcomes(root), [], "expired after it was renewed");
            rig.pass(1);
            assert!(timed_out(&rig.outcomes(root)), "never expires again");
        }
        Err(AckError::NotLive) => assert!(timed_out(&rig.outcomes(root))),
        other => panic!("{other:?}"),
    }
    assert!(rig.is_empty());
}

// Q6: a touch beside the expiry of the old deadline: renewed, or refused, never both.
model!(s09_renewed_yet_expired, || {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    rig.advance(10);
    let (_, renewed) = beside(&rig, |rig| rig.poll(100), |rig| rig.reset_timeout(root));
    rig.pass(9);
    renewed_for_a_tick(&rig, root, renewed);
});

/// Q6: a touch beside another one, with time passing between their beginnings. Guards: the clock is
/// read after the look at the lease, and again after a lost swap. The later touch's answer holds.
#[test]
fn q06_a_delayed_touch_beside_another() {
    for chosen in [false, true] {
        let name = format!("q06_a_delayed_touch_beside_another, chosen: {chosen}");
        model(&name, move || {
            let rig = Rig::new();
            let root: RootId = if chosen { 1.into() } else { rig.issue(3, 10).unwrap().into() };
            if chosen {
                rig.init(1, 3, 10).unwrap();
            }
            let a = aside(&rig, move |rig| rig.reset_timeout(root));
            rig.advance(5);
            assert_eq!(rig.reset_timeout(root), Ok(Done::Now));
            assert_eq!(a.join().unwrap(), Ok(Done::Now));
            rig.pass(9);
            assert_eq!(rig.outcomes(root), [], "earlier than a touch was told");
            rig.pass(1);
            assert!(timed_out(&rig.outcomes(root)));
            assert!(rig.is_empty());
        });
    }
}

/// A touch for two ticks is delayed. Meanwhile five ticks go by and another thread touches the root
/// for each of `others`. The root lives for a tick, and is gone `rest` ticks later.
fn delayed_touch_for_less(others: &[u32], rest: u32) {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    let a = aside(&rig, move |rig| rig.reset_timeout_for(root, after(2)));
    rig.advance(5);
    for &ticks in others {
        assert_eq!(rig.reset_timeout_for(root, after(ticks)), Ok(Done::Now));
    }
    assert_eq!(a.join().unwrap(), Ok(Done::Now));
    rig.pass(1);
    assert_eq!(rig.outcomes(root), [], "earlier than all touches were told");
    rig.pass(rest);
    assert!(timed_out(&rig.outcomes(root)));
    assert!(rig.is_empty());
}

// Q6: as before, where the delayed touch asks for less. It may be the later one, and then what it
// asked for counts from after the other one.
model!(q06_a_delayed_touch_for_less_beside_another, || delayed_touch_for_less(&[10], 9));

// Q6: as before, where the other touches shorten the lease and bring it back to the tick that the
// delayed one saw. Guards: the lease counts the renewals that lower it.
model!(q06_a_delayed_touch_for_less_beside_one_that_comes_back, || {
    delayed_touch_for_less(&[3, 5], 4);
});

// Q6 for an init that takes over early signs: a touch in the middle of it. Guards: the init goes
// on with the lease that the touch has made.
model!(q06_a_touch_in_the_middle_of_an_init, || {
    let rig = Rig::new();
    assert_eq!(rig.ack(1, 1), Ok(Ack::Held));
    let a = aside(&rig, |rig| rig.init(1, 3, 10));
    rig.advance(5);
    let touched = rig.reset_timeout(1);
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
    assert!(rig.is_empty());
});

// S10: fail and last ack of an issued root. Guards: one winner of LIVE -> DEAD.
model!(s10_fail_against_ack, || {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    let (a, failed) = beside(&rig, move |rig| rig.ack(root, 3), |rig| rig.fail(root));
    let ends = rig.outcomes(root);
    match (a, failed) {
        (Ok(Ack::Completed), Err(AckError::NotLive)) => assert_eq!(ends, [Reason::Acked]),
        (Ok(Ack::Pending) | Err(AckError::NotLive), Ok(Done::Now)) => assert_eq!(ends, [FAILED]),
        other => panic!("{other:?}"),
    }
    assert!(rig.is_empty());
});

// S10 where the init has yet to merge early acks: init, fail and last ack, three threads, one
// outcome. Guards: INITING, INITING_FAILED, the word's two whitenings.
model!(s10_merge_against_fail_and_ack, costly(1, 3), || {
    let rig = Rig::new();
    assert_eq!(rig.ack(1, 3), Ok(Ack::Held));
    let init = aside(&rig, |rig| rig.init(1, 3 ^ 5, 10));
    let (failed, acked) = beside(&rig, |rig| rig.fail(1), |rig| rig.ack(1, 5));
    assert_eq!(init.join().unwrap(), Ok(()));
    let before = rig.outcomes(1);
    let held = rig.len();
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
    assert!(rig.is_empty());
});

// S12: a reset beside the end. Guards: the lease is swapped only while it is live; a reset of an
// issued root creates no entry.
model!(s12_late_reset, || {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    // The reset sets another deadline; otherwise the lease would be as it was.
    let a = aside(&rig, move |rig| rig.reset_timeout_for(root, after(20)));
    assert_eq!(rig.ack(root, 3), Ok(Ack::Completed));
    let reset = a.join().unwrap();
    assert!(matches!(reset, Ok(Done::Now) | Err(AckError::NotLive)), "{reset:?}");
    assert!(rig.is_empty(), "the reset created an entry");
    rig.pass(30);
    assert_eq!(rig.outcomes(root), [Reason::Acked]);
});

// S14: two threads deliver the same tick. Nothing is early, and no outcome is delivered twice.
model!(s14_one_tick_delivered_twice, || {
    let rig = Rig::new();
    let soon = rig.issue_for(3, 10, after(1)).unwrap();
    let later = rig.issue_for(3, 11, after(2)).unwrap();
    rig.advance(1);
    let a = aside(&rig, |rig| {
        rig.poll(100);
        rig.poll(100);
    });
    rig.poll(100);
    a.join().unwrap();
    rig.pass(0);
    assert!(timed_out(&rig.outcomes(soon)));
    assert_eq!(rig.outcomes(later), [], "early");
    rig.pass(1);
    assert!(timed_out(&rig.outcomes(later)));
});

// W6: an operation has looked a slot up, and acts on it after the slot was given to another key.
// Guards: the operation asks the index again after the look into the slot (in `look`).
model!(w06_slot_reuse_by_another_key, light, || {
    let rig = Rig::with(|builder| builder.early_capacity(0));
    rig.init(1, 3, 10).unwrap();
    rig.issue(7, 0).unwrap();
    let a = aside(&rig, |rig| rig.fail(1));
    let ended = rig.ack(1, 3);
    let begun = rig.init(2, 5, 20);
    let failed = a.join().unwrap();
    assert_eq!(begun, Ok(()));
    assert_eq!(rig.outcomes(2), [], "{ended:?} {failed:?}");
    assert_eq!(rig.ack(2, 5), Ok(Ack::Completed));
    assert_eq!(rig.outcomes(1).len(), 1);
});

// W6 where the driver, or an init, has looked the slot up. A reset of the old key does not renew
// the new one, and an init of the old key does not merge into it.
model!(w06_init_merges_into_its_own_entry, deep(2), || {
    let rig = Rig::new();
    assert_eq!(rig.ack(1, 3), Ok(Ack::Held));
    rig.issue(7, 0).unwrap();
    // This init merges with the held ack, or comes after the entry has expired, perhaps into a slot
    // of its own.
    let a = aside(&rig, |rig| rig.init(1, 3 ^ 5, 10));
    rig.advance(10);
    rig.poll(100);
    assert_eq!(rig.ack(2, 8), Ok(Ack::Held));
    assert_eq!(a.join().unwrap(), Ok(()));
    assert_eq!(rig.init(2, 8 ^ 9, 20), Ok(()), "another key's init has taken the entry");
    assert_eq!(rig.ack(2, 9), Ok(Ack::Completed));
    rig.pass(10);
    assert_eq!((rig.outcomes(1).len(), rig.outcomes(2)), (1, vec![Reason::Acked]));
});

/// Root 1 was failed, or acked by a late ack of its attempt 1, and initialised again with the same
/// edge. One of the two attempts is acked.
fn two_attempts(rig: &Rig, late: Acked) {
    if late != Ok(Ack::Completed) {
        // It took effect on attempt 1, or on none: attempt 2 has its edge open.
        assert_eq!(rig.outcomes(1), [FAILED], "{late:?}");
        assert_eq!(rig.ack(1, 3), Ok(Ack::Completed), "{late:?}");
    }
    rig.pass(11);
    assert_eq!(rig.outcomes(1).len(), 2, "{late:?}");
    assert_eq!(rig.outcomes(1).iter().filter(|reason| **reason == Reason::Acked).count(), 1);
}

// W14: an ack has read state and word of attempt 1. The same id is initialised again in the same
// slot with the same edges. Guards: the generation in the whitening; the ack asks the index again
// after the look into the slot.
model!(w14_stale_share, || {
    let rig = Rig::with(|builder| builder.early_capacity(0));
    rig.init(1, 3, 10).unwrap();
    rig.issue(7, 0).unwrap();
    let late = aside(&rig, |rig| rig.ack(1, 3));
    let _ = rig.fail(1);
    let again = rig.init(1, 3, 20);
    let late = late.join().unwrap();
    assert_eq!(again, Ok(()));
    two_attempts(&rig, late);
});

// A thread notes that its ack has used a root when the slot has the next one, with a later tick at
// which it is idle. Guards: a use only raises that tick.
model!(a_late_use_beside_the_next_root_of_a_slot, || {
    let rig = Rig::with(|builder| builder.idle_timeout(TICK * 5));
    let root = rig.issue(3 ^ 5, 10).unwrap();
    rig.issue(7, 0).unwrap();
    let late = aside(&rig, move |rig| rig.ack(root, 3));
    rig.fail(root).unwrap();
    rig.pass(4);
    let next = rig.issue(9, 20).unwrap();
    let _ = late.join().unwrap();
    rig.pass(4);
    assert_eq!(rig.ack(next, 9), Ok(Ack::Completed), "it was idle for 4 ticks");
});

// W14 for a batch that has looked up both its roots. While it acks one, the other ends, and is
// initialised again in the same slot with the same edges. Guards: as before; the batch believes a
// candidate only after the look into its slot.
model!(w14_a_batch_with_a_stale_candidate, || {
    let rig = Rig::with(|builder| builder.early_capacity(0));
    rig.init(1, 3, 10).unwrap();
    rig.init(2, 3 ^ 5, 11).unwrap();
    rig.pass(0);
    let late = aside(&rig, |rig| ack_all(rig, &[(2, 3), (1, 3)]));
    let _ = rig.fail(1);
    let again = rig.init(1, 3, 20);
    let late = late.join().unwrap();
    assert_eq!((again, late[0]), (Ok(()), Ok(Ack::Pending)));
    assert_eq!(rig.ack(2, 5), Ok(Ack::Completed));
    two_attempts(&rig, late[1]);
    assert!(rig.is_empty());
});

// W14, W6 before a slot is published. The same id is in the same slot again, filled, but refused by
// the index because another init was first. Guards: a fail that had found the slot under attempt 1
// must not end it.
model!(w14_refused_before_it_is_published, deep(2), || {
    let rig = Rig::with(|builder| builder.early_capacity(0));
    rig.init(1, 3, 10).unwrap();
    rig.issue(7, 0).unwrap();
    let late = aside(&rig, |rig| rig.fail(1));
    let rival = aside(&rig, |rig| rig.init(1, 3, 30));
    let ended = rig.ack(1, 3);
    let again = rig.init(1, 3, 20);
    let (late, rival) = (late.join().unwrap(), rival.join().unwrap());
    let begun = 1 + usize::from(again.is_ok()) + usize::from(rival.is_ok());
    rig.pass(11);
    assert_eq!(rig.outcomes(1).len(), begun, "{ended:?} {again:?} {late:?} {rival:?}");
    assert!(rig.is_empty());
});

/// Two keys with the same hash in the index.
static ALIKE: OnceLock<(u64, u64)> = OnceLock::new();

// An early ack reads a slot while its next occupant comes: another chosen root, whose key has the
// same hash. The ack counts. Guards: a thread that reads the key of the next occupant does not read
// the lease of the one before; the key's store and load.
model!(an_early_ack_beside_a_root_of_the_same_hash, costly(1, 3), || {
    loom::stop_exploring();
    let rig = Rig::new();
    let &(first, second) = ALIKE.get_or_init(|| {
        let mut seen = HashMap::new();
        let alike = |key| Some((seen.insert(rig.hash_of(key), key)?, key));
        (1..).find_map(alike).expect("a key that is like an earlier one")
    });
    rig.init(first, 3, 10).unwrap();
    rig.issue(7, 0).unwrap();
    stop_at(|step| step == "occupied");
    // Another thread fails the root than the one that claims the slot, which would know that the
    // first root has ended.
    let fail = aside(&rig, move |rig| rig.fail(first));
    let ack = aside(&rig, move |rig| {
        loom::explore();
        let acked = rig.ack(second, 9);
        loom::stop_exploring();
        acked
    });
    fail.join().unwrap().unwrap();
    rig.init(second, 9 ^ 5, 20).unwrap();
    let early = ack.join().unwrap();
    stop_at(|_| false);
    assert!(matches!(early, Ok(Ack::Pending | Ack::Held)), "{early:?}");
    let last = rig.ack(second, 5);
    assert_eq!(last, Ok(Ack::Completed), "{early:?} was lost");
});
