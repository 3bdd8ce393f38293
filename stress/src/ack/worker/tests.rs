//! Tests of what a thread notices: late operations that take effect, roots without an outcome,
//! outcomes of other roots, and acks that should not have been held.

use super::*;
use crate::ack::law::End;
use crate::ack::ledger::Entry;
use crate::ack::plan::all_edges;
use crate::ack::verdict::NAMES;
use crate::options::{parsed, Scenario};
use crossbeam_channel::bounded;
use expiry::AckTracker;
use rand::SeedableRng;
use std::sync::Arc;

/// Runs `f` with a thread of one place in which a root lives.
fn with(f: impl FnOnce(&mut Worker<'_>)) -> Arc<Checks> {
    let checks = Arc::new(Checks::new(&NAMES));
    let ledger = Ledger::new(1, checks.clone());
    let tracker = AckTracker::builder().build_manual().unwrap();
    let Scenario::Ack(options) = parsed("ack --fail-rate 0") else { unreachable!() };
    let (stats, busy) = (Stats::default(), AtomicUsize::new(1));
    let shared = Shared {
        ledger: &ledger,
        checks: &checks,
        stats: &stats,
        promise: Promise { timeout: options.timeout, late: options.allowance },
        busy: &busy,
        order: options.order,
        ids: options.ids,
        edges: 2,
        late_rate: 0.0,
        until: (0, 0),
    };
    let times = crate::latency::Times::new();
    let ops =
        Ops::new(&tracker, options.ids, 1, options.bare, (times.recorder(), times.recorder()));
    let luck = (Planner::new(&options, 1).unwrap(), SmallRng::seed_from_u64(1));
    let mut worker = Worker::new(shared, ops, luck, None, (0, 1), 1, bounded(1));
    worker.prepare(0, 0);
    worker.send_issues();
    assert_eq!(worker.tally.issued, 1);
    f(&mut worker);
    checks
}

#[test]
fn a_root_without_an_outcome_is_a_violation() {
    assert!(with(|_| {}).violations() == 0);
    assert!(!with(|worker| worker.give_up()).holds("every_root_ended"));
}

#[test]
fn something_late_that_takes_effect_is_a_violation() {
    let checks = with(|worker| {
        // The root lives, so that whatever comes now is no longer harmless.
        let tenant = worker.tenants[0];
        worker.too_late(&tenant);
    });
    assert!(!checks.holds("late_harmless"));
}

#[test]
fn an_issued_roots_ack_that_is_held_is_a_violation() {
    let checks = with(|worker| {
        let Shared { ledger, checks, ids, .. } = worker.shared;
        let ack = ToAck { place: 0, root: 0, xor: 1 };
        acked((&mut worker.tally, ledger, checks, ids), &ack, Ok(Ack::Held));
    });
    assert!(!checks.holds("late_harmless"));
    let checks =
        with(|worker| refused((&mut worker.tally, worker.shared.checks), AckError::Closed));
    assert!(!checks.holds("no_surprises"));
}

#[test]
fn lives_are_judged() {
    let close = |spoil: fn(&mut Worker<'_>, &mut Entry)| {
        with(|worker| {
            let tenant = worker.tenants[0];
            let place = worker.shared.ledger.place(0);
            place.accepted.store(all_edges(tenant.base, 2), Ordering::Relaxed);
            place.completed.store(1, Ordering::Relaxed);
            let mut entry = Entry {
                end: End::Acked,
                root: tenant.root,
                at: 0,
                due_and_seen: (Duration::ZERO, Duration::ZERO),
            };
            spoil(worker, &mut entry);
            worker.close(0, &entry);
        })
    };
    assert_eq!(close(|_, _| {}).violations(), 0);
    assert!(!close(|_, entry| entry.root ^= 1).holds("one_outcome_each"));
    assert!(!close(|worker, _| worker.tenants[0].base ^= 1).holds("completions_true"));
    assert!(!close(|_, entry| entry.end = End::TimedOut).holds("none_early"));
}
