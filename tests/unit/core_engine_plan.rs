//! Unit tests of `src/core/engine/plan.rs`.

use super::*;

/// The slots of a set of bits.
fn slots(set: u32) -> Vec<usize> {
    (0..BLOCK).filter(|slot| set >> slot & 1 != 0).collect()
}

#[test]
fn a_plan_says_what_is_due_and_what_comes_next() {
    for now in [0, 5, u64::from(u32::MAX) - 2, u64::from(u32::MAX), 1 << 40] {
        let mut plans = Plans::default();
        let mut deadlines = [NEVER; BLOCK];
        deadlines[3] = now + 1;
        deadlines[7] = now + 4;
        deadlines[9] = now + (1 << 35);
        assert_eq!(plans.make(300, now, &deadlines), now + 1);
        let mut plan = plans.get(300, now).unwrap();
        assert!(slots(plan.due(now)).is_empty());
        assert_eq!(plan.earliest(), now + 1);
        assert_eq!(slots(plan.due(now + 5)), [3, 7]);
        assert_eq!(slots(plan.due(now + 3)), [3]);
        plan.note(3, now + 3, NEVER);
        assert!(slots(plan.due(now + 3)).is_empty());
        assert_eq!(plan.earliest(), now + 4);
        assert_eq!(slots(plan.due(now + 4)), [7]);
        // Touched.
        plan.note(7, now + 4, now + 9);
        assert!(slots(plan.due(now + 8)).is_empty());
        assert_eq!(slots(plan.due(now + 9)), [7]);
        plan.note(7, now + 9, NEVER);
        // Too far to be noted as it is.
        let last = now + FAR - 1;
        assert_eq!(plan.earliest(), last);
        assert_eq!(slots(plan.due(last)), [9]);
        plan.note(9, last, now + (1 << 35));
        assert_eq!(plan.earliest(), last + FAR - 1);
        plan.note(9, last, NEVER);
        assert_eq!(plan.earliest(), NEVER);
        assert!(plans.get(300, last).is_some() && plans.get(300, last + 1).is_none());
    }
}

#[test]
fn notes_come_up_in_order() {
    let now = 77;
    let mut plans = Plans::default();
    let mut deadlines = [NEVER; BLOCK];
    for (slot, deadline) in deadlines.iter_mut().enumerate() {
        *deadline = now + 1 + (slot as u64 * 7) % 11;
    }
    plans.make(1, now, &deadlines);
    let mut last = now;
    loop {
        let mut plan = plans.get(1, last).unwrap();
        let next = plan.earliest();
        if next == NEVER {
            break;
        }
        assert!(next > last);
        for slot in slots(plan.due(next)) {
            assert_eq!(deadlines[slot], next);
            plan.note(slot, next, NEVER);
        }
        last = next;
    }
    assert_eq!(last, now + 11);
}

#[test]
fn each_chunk_has_plans_of_its_own() {
    let mut plans = Plans::default();
    let blocks = [3, CHUNK_BLOCKS as u32 + 3, 2 * CHUNK_BLOCKS as u32 + 3];
    let mut deadlines = [NEVER; BLOCK];
    for (first, block) in (10..).zip(blocks) {
        (deadlines[0], deadlines[1]) = (first, 20);
        plans.make(block, 0, &deadlines);
    }
    let mut first = |block| Some(plans.get(block, 0)?.earliest());
    assert_eq!(blocks.map(&mut first), [Some(10), Some(11), Some(12)]);
    plans.let_go(1);
    assert_eq!(plans.0.len(), 3);
    let mut first = |block| Some(plans.get(block, 0)?.earliest());
    assert_eq!(blocks.map(&mut first), [Some(10), None, Some(12)]);
    plans.let_go(2);
    assert_eq!(plans.0.len(), 1);
    // With the first one that is made later, the plans of its chunk go that are too old.
    plans.make(4, FAR, &deadlines.map(|due| due.saturating_add(FAR)));
    assert!(plans.get(3, FAR).is_none() && plans.get(4, FAR).is_some());
}

#[test]
fn equal_deadlines_need_no_plan() {
    let mut plans = Plans::default();
    assert_eq!(plans.make(0, 7, &[9; BLOCK]), 9);
    assert!(plans.get(0, 7).is_none());
    let mut deadlines = [9; BLOCK];
    deadlines[1] = 10;
    plans.make(0, 7, &deadlines);
    assert!(plans.get(0, 7).is_some());
    assert_eq!(plans.make(0, 7, &[NEVER; BLOCK]), NEVER);
    assert!(plans.get(0, 7).is_none());
    plans.let_go(0);
    assert!(plans.0.is_empty());
}
