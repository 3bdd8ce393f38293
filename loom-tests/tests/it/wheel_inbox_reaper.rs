//! Races W1 to W5 and W8 to W11: the inbox, the slot blocks' next expirations, the driver, the
//! reaper's sleep, shutdown.

use crate::ack_trees::{renewed_for_a_tick, timed_out};
use expiry::model::{stop_at, Exclusive, Mail};
use expiry::{Ack, AckError, AckTracker, Done, Lifetime, Reaper, Reason, Root, ShutdownMode};
use loom_tests::{
    after, aside, at_once, beside, bounded, costly, large, light, model, preemptions, thread,
    Awake, Rig,
};
use std::sync::Arc;

/// W1: add, cancel and flush, three threads. The inbox has slot blocks, not entries, so it never
/// contains a cancelled entry. No outcome is delivered twice, and no entry stays. Guards: the
/// driver goes by the lease.
#[test]
fn w01_add_cancel_flush() {
    // Three threads, each of which does much: half a million executions with one interruption more.
    bounded("w01_add_cancel_flush", preemptions() - 2, || {
        let rig = Rig::used();
        let add = aside(&rig, |rig| rig.init(1, 3, 10));
        let flush = aside(&rig, |rig| rig.poll(100));
        let cancel = rig.fail(1);
        assert_eq!(add.join().unwrap(), Ok(()));
        flush.join().unwrap();
        assert!(cancel.is_ok());
        assert_eq!(rig.outcomes(1), [Reason::Failed { by: None }]);
        assert!(rig.is_empty(), "a zombie");
        rig.pass(11);
        assert_eq!(rig.told().len(), 1, "a zombie");
    });
}

// W2: two threads drive. Guards: the flag of `Exclusive`, and its Acquire and Release.
model!(w02_driver_exclusivity, || {
    let value = Arc::new(Exclusive::new(0));
    let (a, b) = beside(
        &value,
        |other| other.enter(|value| *value += 1).is_some(),
        |value| value.enter(|value| *value += 1).is_some(),
    );
    let entered = u32::from(a) + u32::from(b);
    assert!(entered >= 1);
    assert_eq!(value.enter(|value| *value), Some(entered));
});

// W2, W3: adds, an ack before the slot block is taken out of the inbox, and a second occupant of
// its slot, while another thread drives. The second one expires when it is due, and the first has
// no second outcome.
model!(w03_cancel_before_it_is_filed, || {
    let rig = Rig::new();
    let flush = aside(&rig, |rig| rig.poll(100));
    let first = rig.issue(3, 10).unwrap();
    rig.issue_for(7, 11, Lifetime::Never).unwrap();
    assert_eq!(rig.ack(first, 3), Ok(Ack::Completed));
    let second = rig.issue(3, 20).unwrap();
    flush.join().unwrap();
    rig.pass(10);
    assert_eq!(rig.outcomes(first), [Reason::Acked]);
    assert!(timed_out(&rig.outcomes(second)), "it was never filed");
});

// W4: a first deadline while the reaper decides how long to sleep; it is the real reaper, which
// really sleeps. Guards: the announcement comes before the second look at the inbox, and the push
// before the look at the announcement.
model!(w04_lost_wake_up, || {
    let rig = Awake::new();
    rig.issue(3, 10).unwrap();
    rig.pass(10);
    assert!(rig.wait_for(1)[0].is_timed_out());
});

// W4 where the reaper sleeps, or is about to, until a later deadline.
model!(w04_lost_wake_up_for_a_nearer_deadline, light, || {
    let rig = Awake::new();
    rig.issue(5, 11).unwrap();
    rig.issue_for(3, 10, after(2)).unwrap();
    rig.pass(2);
    assert_eq!(rig.wait_for(1)[0].owner, 10);
});

// W4 where the reaper has another store, which it may be driving. Guards: the number of the store
// is pushed before the reaper is woken, and the reaper looks for numbers before each sleep.
model!(w04_a_shared_reaper_is_woken_by_each_of_its_stores, light, || {
    let reaper = Reaper::new().unwrap();
    let (other, ()) = Awake::with(|builder| builder.reaper(&reaper), |_| ());
    let (rig, ()) = Awake::with(|builder| builder.reaper(&reaper), |_| ());
    drop(reaper);
    rig.issue(3, 10).unwrap();
    rig.pass(10);
    assert!(rig.wait_for(1)[0].is_timed_out());
    drop(other);
});

// W4 where a poll beside the reaper scans a slot block just when a pusher wants to know what to
// announce. The pusher reads "never", and the poll must announce what it then files.
model!(w04_a_poll_scans_beside_the_reaper, costly(1, 3), || {
    // Three threads, the reaper among them.
    stop_at(|step| step == "taken");
    let (rig, [a, b]) = Awake::with(|builder| builder, two_without_a_deadline);
    let poll = aside(&rig, move |rig| {
        rig.pass(1);
        rig.reset_timeout(b).unwrap();
        rig.poll(100);
    });
    rig.reset_timeout_for(a, after(1)).unwrap();
    poll.join().unwrap();
    stop_at(|_| false);
    at_once(|| rig.pass(11));
    assert_eq!(rig.wait_for(2).len(), 2);
});

// W4 for the reaper's maintenance: a slot is put on the deferred-free list when the reaper is past
// that part of its round. Guards: the reaper looks whether there is something to migrate or to free
// after it has announced its sleep.
model!(w04_deferred_is_emptied, large, || {
    // Two keys fill the smallest index, so there is something to migrate from the beginning.
    let (rig, ()) = Awake::with(
        |builder| builder.capacity(2),
        |tracker| (1..=2).for_each(|key| tracker.init(key, 3, key).unwrap()),
    );
    rig.fail(1).unwrap();
    // The place comes back at once, or out of the deferred-free list: if no thread empties that,
    // this loop never ends.
    while rig.issue(5, 9) == Err(AckError::Full) {
        thread::yield_now();
    }
    rig.pass(10);
    assert_eq!(rig.wait_for(3).len(), 3);
});

/// Two roots in one slot block that would never time out.
fn two_without_a_deadline(tracker: &AckTracker) -> [Root; 2] {
    [10, 11].map(|owner| tracker.issue_for(3, owner, Lifetime::Never).unwrap())
}

// W5: an entry comes into a slot block while the driver scans it and rewrites its next expiration.
// Guards: both sides change that word by read-modify-writes only.
model!(w05_lost_summary, || {
    let rig = Rig::new();
    let soon = rig.issue_for(3, 10, after(1)).unwrap();
    rig.advance(1);
    let (_, later) =
        beside(&rig, |rig| rig.poll(100), |rig| rig.issue_for(3, 11, after(2)).unwrap());
    rig.pass(2);
    assert!(timed_out(&rig.outcomes(soon)));
    assert!(timed_out(&rig.outcomes(later)), "the block has lost it");
});

// W5 once more, with a third entry that keeps the slot block's next expiration late: the scan
// writes a minimum.
model!(w05_the_scan_writes_a_minimum, || {
    let rig = Rig::new();
    let soon = rig.issue_for(3, 10, after(1)).unwrap();
    let never_touched = rig.issue_for(3, 12, after(20)).unwrap();
    rig.advance(1);
    rig.fail(soon).unwrap();
    let (_, later) =
        beside(&rig, |rig| rig.poll(100), |rig| rig.issue_for(3, 11, after(2)).unwrap());
    rig.pass(2);
    assert!(timed_out(&rig.outcomes(later)), "the block has lost it");
    assert_eq!(rig.outcomes(never_touched), []);
});

// The driver reaches an entry that is filled, and due already, but not published. The entry still
// belongs to the claiming thread, which publishes it, or withdraws it because the key exists.
// Guards: the driver asks the index before it ends an entry.
model!(w05_due_before_it_is_published, || {
    let rig = Rig::new();
    // This root is in the same slot block, and due at the same time.
    rig.issue(7, 9).unwrap();
    let driver = drive(&rig, 10);
    assert_eq!(rig.init(1, 3, 10), Ok(()));
    driver.join().unwrap();
    rig.pass(10);
    assert!(timed_out(&rig.outcomes(1)), "{:?}", rig.told());
    assert!(rig.is_empty());
});

// W9: a slot block is pushed again while the driver takes it out of the list. Guards: the driver
// reads the link before it clears the flag; a thread that finds the flag taken has lowered the next
// expiration before.
model!(w09_flag_and_link, || {
    let mail = Arc::new(Mail::new(2));
    assert!(mail.lower(0, 50));
    assert!(mail.lower(1, 50));
    let (mut seen, _) = beside(&mail, |mail| mail.take(), |mail| assert!(mail.lower(1, 40)));
    seen.extend(mail.take());
    for (block, tick) in [(0, 50), (1, 40)] {
        assert!(seen.contains(&(block, Some(tick))), "{block} is lost: {seen:?}");
    }
});

// W10: one thread takes the flag and stalls, another lowers further and finds the flag taken; three
// threads, one of them the reaper. Guards: the pusher announces the slot block's next expiration,
// not its own deadline.
model!(w10_stale_wake_up, large, || {
    let (rig, [late, soon]) = Awake::with(
        |builder| builder,
        |tracker| {
            let two = two_without_a_deadline(tracker);
            // In another slot block: so the reaper sleeps until a time between the two.
            tracker.issue_for(3, 12, after(5)).unwrap();
            two
        },
    );
    beside(
        &rig,
        move |rig| rig.reset_timeout(late).unwrap(),
        |rig| rig.reset_timeout_for(soon, after(2)).unwrap(),
    );
    rig.pass(2);
    assert_eq!(rig.wait_for(1)[0].root, soon.into());
});

// W11: a touch that shortens, while the driver rescans the slot block. Guards: as for W5, and the
// touch lowers the next expiration after the lease.
model!(w11_shortening_touch, || {
    let rig = Rig::new();
    let root = rig.issue_for(3, 10, after(20)).unwrap();
    let soon = rig.issue_for(3, 11, after(1)).unwrap();
    rig.advance(1);
    beside(&rig, |rig| rig.poll(100), |rig| rig.reset_timeout_for(root, after(1)).unwrap());
    rig.pass(1);
    assert!(timed_out(&rig.outcomes(soon)));
    assert!(timed_out(&rig.outcomes(root)), "it expires by its old deadline");
});

// W8: an issue and an init beside a shutdown: every `Ok` has an outcome, every `Err` none, and the
// slot's block may be new. Guards: slot blocks are closed before they are scanned, and the chunk
// count before that.
model!(w08_shutdown, || {
    let rig = Rig::new();
    let (issued, returned) =
        beside(&rig, |rig| rig.issue(3, 10), |rig| rig.shutdown(ShutdownMode::Return));
    assert_eq!(rig.told(), []);
    match issued {
        Ok(root) => {
            assert_eq!(returned.len(), 1, "it is neither delivered nor reported");
            assert_eq!(returned[0].root, root.into());
        }
        Err(AckError::Closed) => assert_eq!(returned, []),
        other => panic!("{other:?}"),
    }
    assert!(rig.is_empty());
});

// W8 while another thread polls: the shutdown returns what is there. Guards: the shutdown waits for
// a shard's driver.
model!(w08_shutdown_beside_a_poll, || {
    let rig = Rig::new();
    let root = rig.issue(3, 10).unwrap();
    let (_, returned) = beside(&rig, |rig| rig.poll(100), |rig| rig.shutdown(ShutdownMode::Return));
    assert_eq!(returned.len(), 1, "it is neither delivered nor reported");
    assert_eq!(returned[0].root, root.into());
    assert!(rig.is_empty());
});

// W8 with the reaper, which is stopped and joined: it does not sleep through it, and no outcome is
// delivered twice.
model!(w08_shutdown_stops_the_reaper, || {
    let rig = Awake::new();
    rig.issue(3, 10).unwrap();
    rig.shutdown(ShutdownMode::Cancel);
    let told = rig.wait_for(1);
    assert_eq!((told.len(), told[0].reason), (1, Reason::Cancelled));
});

/// Two roots in one slot block that the driver has scanned, and made a plan of: one is due at tick
/// 3, the other at `late`. The clock stands at tick 1.
fn planned(late: u32) -> (Arc<Rig>, [Root; 2]) {
    let rig = Rig::new();
    let issue = |owner, ticks| rig.issue_for(3, owner, after(ticks)).unwrap();
    let both = [issue(10, 1), issue(11, late)];
    rig.reset_timeout_for(both[0], after(3)).unwrap();
    // The driver comes by the first deadline, and finds nothing due.
    rig.pass(1);
    assert_eq!(rig.told(), []);
    (rig, both)
}

/// Another thread drives.
fn drive(rig: &Arc<Rig>, ticks: u32) -> thread::JoinHandle<()> {
    aside(rig, move |rig| {
        rig.advance(ticks);
        rig.poll(100);
    })
}

// W5 with a plan: an entry comes into a slot block that the driver has a plan of, and lowers
// nothing. Guards: it sets the dirty bit all the same, and with the dirty bit the driver looks at
// every slot.
model!(w05_news_that_lowers_nothing, || {
    let (rig, [soon, later]) = planned(5);
    rig.pass(2);
    assert!(timed_out(&rig.outcomes(soon)));
    let driver = drive(&rig, 2);
    let third = rig.issue_for(3, 12, after(4)).unwrap();
    driver.join().unwrap();
    rig.pass(4);
    assert!(timed_out(&rig.outcomes(later)));
    assert!(timed_out(&rig.outcomes(third)), "the plan knew nothing of it");
});

// W11 with a plan: a touch lowers a deadline, but not the slot block's, which is nearer still.
// Guards: as before; what the driver puts back does not clear the dirty bit.
model!(w11_a_touch_that_lowers_nothing, || {
    let (rig, [soon, later]) = planned(20);
    rig.advance(2);
    let driver = drive(&rig, 0);
    rig.reset_timeout_for(later, after(2)).unwrap();
    driver.join().unwrap();
    rig.pass(2);
    assert!(timed_out(&rig.outcomes(soon)));
    assert!(timed_out(&rig.outcomes(later)), "it expires by the plan's deadline");
});

// Q6 with a plan: a touch to a later deadline, which does not notify the driver, while the plan's
// note of it comes up. Guards: the driver goes by the lease, and notes what it finds.
model!(q06_renewed_while_the_plan_is_worked_off, || {
    let (rig, [soon, later]) = planned(5);
    rig.advance(2);
    let driver = drive(&rig, 0);
    let renewed = rig.reset_timeout_for(soon, after(4));
    driver.join().unwrap();
    rig.pass(3);
    assert!(timed_out(&rig.outcomes(later)));
    renewed_for_a_tick(&rig, soon, renewed);
});

// W6 with a plan: a slot that the plan notes as due is freed and has another occupant, due later,
// while the driver follows the plan. Guards: the driver goes by the lease; what it puts back does
// not clear the dirty bit.
model!(w06_a_noted_slot_changes_hands, || {
    let (rig, [soon, later]) = planned(5);
    rig.advance(2);
    let driver = drive(&rig, 0);
    let acked = rig.ack(soon, 3);
    let third = rig.issue_for(3, 12, after(4)).unwrap();
    driver.join().unwrap();
    rig.pass(3);
    match acked {
        Ok(Ack::Completed) => {
            assert_eq!(rig.outcomes(soon), [Reason::Acked]);
            let slot = |root: Root| root.to_bits() & 0xFFFF_FFFF;
            assert_eq!(slot(soon), slot(third), "not what this is about");
        }
        Err(AckError::NotLive) => assert!(timed_out(&rig.outcomes(soon))),
        other => panic!("{other:?}"),
    }
    assert!(timed_out(&rig.outcomes(later)));
    assert_eq!(rig.outcomes(third), [], "early, by its predecessor's note");
    rig.pass(1);
    assert!(timed_out(&rig.outcomes(third)), "the plan knew nothing of it");
});

/// A touch sets another deadline for a root whose init has not notified the driver yet. That thread
/// polls `polled` ticks later. Returns whether the touch came in time.
fn touched_before_its_init_has_told(ticks: u32, polled: u32) -> (Arc<Rig>, bool) {
    let rig = Rig::with(|builder| builder.early_capacity(0));
    let a = aside(&rig, move |rig| {
        let renewed = rig.reset_timeout_for(1, after(ticks)) == Ok(Done::Now);
        if renewed {
            rig.advance(polled);
            rig.poll(100);
        }
        renewed
    });
    assert_eq!(rig.init(1, 3, 10), Ok(()));
    let renewed = a.join().unwrap();
    (rig, renewed)
}

// Q6: the touch raises the deadline, and notifies no thread. Guards: the init notifies the driver
// of the first deadline, by which the driver comes and finds the second.
model!(q06_renewed_before_its_init_has_told, || {
    let (rig, renewed) = touched_before_its_init_has_told(20, 10);
    if renewed {
        rig.pass(0);
        assert_eq!(rig.outcomes(1), [], "expired after it was renewed");
    }
    rig.pass(10);
    assert!(timed_out(&rig.outcomes(1)), "{renewed}");
});

// W11: the touch lowers the deadline, and the root expires by that. It does not expire at the poll
// if the init has taken the slot block's flag, and has yet to put the block into the inbox (W10).
// Guards: the touch notifies the driver.
model!(w11_shortened_before_its_init_has_told, || {
    let (rig, renewed) = touched_before_its_init_has_told(2, 2);
    rig.pass(if renewed { 0 } else { 10 });
    assert!(timed_out(&rig.outcomes(1)), "{renewed}");
});

// W11: two touches lower a deadline, one further than the other. Whichever comes second, the root
// has expired by the later of the two. Guards: a touch that finds a nearer deadline than its own
// leaves the notification to the thread that set it.
model!(w11_two_touches, || {
    let rig = Rig::new();
    let long = after(20);
    let root = rig.issue_for(3, 10, long).unwrap();
    let touch = move |rig: &Arc<Rig>, ticks| rig.reset_timeout_for(root, after(ticks));
    let touched = beside(&rig, move |rig| touch(rig, 3), |rig| touch(rig, 6));
    assert_eq!(touched, (Ok(Done::Now), Ok(Done::Now)));
    rig.pass(3);
    rig.pass(3);
    assert!(timed_out(&rig.outcomes(root)), "it expires too late");
});

// W5 for a batch, which notifies the driver of each slot block once, while the driver scans the
// first of them.
model!(w05_a_batch_beside_a_poll, light, || {
    let rig = Rig::new();
    // In the first slot block of the batch, and due when the other thread drives.
    let before = rig.issue(7, 9).unwrap();
    let driver = drive(&rig, 10);
    let mut roots = Vec::new();
    let batch = [(3, 10), (3, 11), (3, 12)];
    assert_eq!(rig.issue_many(&batch, &mut roots), Ok(()));
    assert_eq!(roots.len(), batch.len());
    driver.join().unwrap();
    rig.pass(10);
    assert!(timed_out(&rig.outcomes(before)));
    for root in roots {
        assert!(timed_out(&rig.outcomes(root)), "nobody was told of it");
    }
    assert!(rig.is_empty());
});

// W8 for a batch: all that it returns has an outcome, and nothing else has. Guards: the batch keeps
// a slot block's roots if the shutdown has delivered their outcomes, and undoes them if not.
model!(w08_shutdown_beside_a_batch, light, || {
    let rig = Rig::new();
    let a = aside(&rig, |rig| {
        let mut roots = Vec::new();
        let batch = [(3, 10), (3, 11), (3, 12)];
        let issued = rig.issue_many(&batch, &mut roots);
        (issued, roots)
    });
    rig.shutdown(ShutdownMode::Cancel);
    let (issued, roots) = a.join().unwrap();
    match issued {
        Ok(()) => assert_eq!(roots.len(), 3),
        Err(AckError::Closed) => assert!(roots.len() < 3),
        other => panic!("{other:?}"),
    }
    for &root in &roots {
        assert_eq!(rig.outcomes(root), [Reason::Cancelled]);
    }
    assert_eq!(rig.told().len(), roots.len(), "told of what was never issued");
    assert!(rig.is_empty());
});

// W5 where a budget runs out. A touch relies on another one of the same slot block, which finds the
// block taken by a driver, and leaves the notification to that one. The driver's budget runs out
// before it has set the shard's next expiration. Guards: the driver asks for the rest.
model!(w05_what_a_budget_leaves_unreported, large, || {
    let rig = Rig::new();
    let issue = |owner| rig.issue_for(3, owner, after(1000)).unwrap();
    let roots = at_once(|| [issue(10), issue(11)]);
    at_once(|| rig.poll(100));
    stop_at(|step| ["pushed", "taken"].contains(&step));
    let a = aside(&rig, move |rig| rig.reset_timeout_for(roots[0], after(1)).unwrap());
    thread::yield_now();
    rig.reset_timeout_for(roots[1], after(30)).unwrap();
    rig.advance(21);
    rig.poll(3);
    a.join().unwrap();
    stop_at(|_| false);
    rig.pass(0);
    assert_eq!(rig.outcomes(roots[1]), [], "early");
    rig.pass(9);
    assert!(timed_out(&rig.outcomes(roots[0])));
    assert!(timed_out(&rig.outcomes(roots[1])), "the driver passes it by");
});
