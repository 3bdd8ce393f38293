//! Unit tests of `src/core/engine/plan.rs`.

use super::*;

#[test]
fn a_plan_says_what_is_due_and_what_comes_next() {
    for now in [0, 5, u64::from(u32::MAX) - 2, u64::from(u32::MAX), 1 << 40] {
        let mut plans = Plans::default();
        let mut deadlines = [NEVER; BUCKET];
        deadlines[3] = now + 1;
        deadlines[7] = now + 4;
        deadlines[9] = now + (1 << 35);
        assert_eq!(plans.make(300, now, &deadlines), now + 1);
        let mut plan = plans.get(300).unwrap();
        assert_eq!(plan.pop(now), None);
        assert_eq!(plan.earliest(now), now + 1);
        assert_eq!(plan.due(now + 5).collect::<Vec<_>>(), [3, 7]);
        assert_eq!(plan.due(now + 3).collect::<Vec<_>>(), [3]);
        assert_eq!(plan.pop(now + 3), Some(3));
        assert_eq!(plan.pop(now + 3), None);
        assert_eq!(plan.earliest(now + 3), now + 4);
        assert_eq!(plan.pop(now + 4), Some(7));
        // Touched.
        plan.note(7, now + 4, now + 9);
        assert_eq!(plan.pop(now + 8), None);
        assert_eq!(plan.pop(now + 9), Some(7));
        // Too far to be noted as it is.
        assert_eq!(plan.earliest(now + 9), now + FAR - 1);
        assert_eq!(plan.pop(now + FAR - 1), Some(9));
        assert_eq!(plan.earliest(now + FAR - 1), NEVER);
        assert!(Plan::holds(now, now + FAR / 4) && !Plan::holds(now, now + FAR));
    }
}

#[test]
fn notes_come_out_in_order() {
    let now = 77;
    let mut plans = Plans::default();
    let mut deadlines = [NEVER; BUCKET];
    for (slot, deadline) in deadlines.iter_mut().enumerate() {
        *deadline = now + 1 + (slot as u64 * 7) % 11;
    }
    plans.make(1, now, &deadlines);
    let mut plan = plans.get(1).unwrap();
    let mut last = now;
    for _ in 0..BUCKET {
        let next = plan.earliest(last);
        assert!(next >= last);
        let slot = plan.pop(next).unwrap();
        assert_eq!(deadlines[slot], next);
        last = next;
    }
    assert!(plans.get(1).is_none());
}

#[test]
fn a_slot_that_was_touched_goes_behind_those_that_are_due() {
    let now = 5;
    let mut deadlines = [NEVER; BUCKET];
    (deadlines[0], deadlines[1], deadlines[2]) = (6, 7, 20);
    let mut plans = Plans::default();
    plans.make(0, now, &deadlines);
    let mut plan = plans.get(0).unwrap();
    let now = 8;
    assert_eq!(plan.pop(now), Some(0));
    plan.note(0, now, 12);
    assert_eq!(plan.pop(now), Some(1));
    assert_eq!(plan.pop(now), None);
    assert_eq!(plan.earliest(now), 12);
    assert_eq!(plan.pop(12), Some(0));
    assert_eq!(plan.earliest(12), 20);
}

#[test]
fn each_chunk_has_plans_of_its_own() {
    let mut plans = Plans::default();
    let buckets = [3, CHUNK_BUCKETS as u32 + 3, 2 * CHUNK_BUCKETS as u32 + 3];
    let mut deadlines = [NEVER; BUCKET];
    for (first, bucket) in (10..).zip(buckets) {
        (deadlines[0], deadlines[1]) = (first, 20);
        plans.make(bucket, 0, &deadlines);
    }
    let mut first = |bucket| Some(plans.get(bucket)?.earliest(0));
    assert_eq!(buckets.map(&mut first), [Some(10), Some(11), Some(12)]);
    plans.let_go(1);
    assert_eq!(plans.0.len(), 3);
    let mut first = |bucket| Some(plans.get(bucket)?.earliest(0));
    assert_eq!(buckets.map(&mut first), [Some(10), None, Some(12)]);
    plans.let_go(2);
    assert_eq!(plans.0.len(), 1);
}

#[test]
fn equal_deadlines_need_no_plan() {
    let mut plans = Plans::default();
    assert_eq!(plans.make(0, 7, &[9; BUCKET]), 9);
    assert!(plans.get(0).is_none());
    let mut deadlines = [9; BUCKET];
    deadlines[1] = 10;
    plans.make(0, 7, &deadlines);
    assert!(plans.get(0).is_some());
    assert_eq!(plans.make(0, 7, &[NEVER; BUCKET]), NEVER);
    assert!(plans.get(0).is_none());
    plans.let_go(0);
    assert!(plans.0.is_empty());
}
