//! The checker itself: histories by hand, and at random against every order there is.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A number that is read, written, and exchanged; and that a call may add to in two steps.
#[derive(Debug)]
struct Register;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Did {
    Read(u8),
    Wrote(u8),
    Exchanged {
        from: u8,
        to: u8,
        done: bool,
    },
    /// Adds one, and then another one.
    AddedTwice,
    /// Takes it to any of these.
    Became(u8, u8),
}

impl Model for Register {
    type State = u8;
    type Did = Did;

    fn step(&state: &u8, call: &Call<Did>, memory: u32, next: &mut Vec<(u8, Then)>) {
        match call.did {
            Did::Read(value) if value == state => next.push((state, Then::Done)),
            Did::Read(_) => {}
            Did::Wrote(value) => next.push((value, Then::Done)),
            Did::Exchanged { from, to, done } => {
                if done == (from == state) {
                    next.push((if done { to } else { state }, Then::Done));
                }
            }
            Did::AddedTwice => {
                let then = if memory == 0 { Then::Goes(1) } else { Then::Done };
                next.push((state + 1, then));
            }
            Did::Became(one, other) => next.extend([(one, Then::Done), (other, Then::Done)]),
        }
    }

    fn only_looks(did: &Did) -> bool {
        matches!(did, Did::Read(_) | Did::Exchanged { done: false, .. })
    }
}

fn call(began: u64, ended: u64, did: Did) -> Call<Did> {
    Call { began, ended, from: 0, to: 0, since: 0, thread: 0, did }
}

fn is_linearizable(calls: &[Call<Did>]) -> bool {
    check::<Register>(0, calls).is_ok()
}

#[test]
fn calls_one_after_another_are_in_order() {
    assert!(is_linearizable(&[]));
    let write = call(1, 2, Did::Wrote(1));
    assert!(is_linearizable(&[write, call(3, 4, Did::Read(1))]));
    assert!(!is_linearizable(&[write, call(3, 4, Did::Read(0))]));
}

#[test]
fn calls_that_overlap_are_in_either_order() {
    for seen in [0, 1] {
        assert!(is_linearizable(&[call(1, 4, Did::Wrote(1)), call(2, 3, Did::Read(seen))]));
        // The same reading: nobody knows which was first.
        assert!(is_linearizable(&[call(1, 2, Did::Wrote(1)), call(2, 3, Did::Read(seen))]));
    }
    assert!(!is_linearizable(&[call(1, 4, Did::Wrote(1)), call(2, 3, Did::Read(2))]));
}

#[test]
fn what_one_has_seen_another_one_sees_later() {
    let write = call(1, 10, Did::Wrote(1));
    let (new, old) = (call(2, 3, Did::Read(1)), call(4, 5, Did::Read(0)));
    assert!(!is_linearizable(&[write, new, old]));
    let old = call(3, 5, Did::Read(0));
    assert!(is_linearizable(&[write, new, old]));
}

#[test]
fn one_of_two_exchanges_wins() {
    let exchange = |began, done| call(began, 9, Did::Exchanged { from: 0, to: 1, done });
    assert!(is_linearizable(&[exchange(1, true), exchange(2, false)]));
    assert!(!is_linearizable(&[exchange(1, true), exchange(2, true)]));
    assert!(!is_linearizable(&[exchange(1, false), exchange(2, false)]));
}

#[test]
fn between_the_steps_of_a_call_others_come() {
    let twice = call(1, 9, Did::AddedTwice);
    assert!(is_linearizable(&[twice, call(2, 3, Did::Read(1)), call(4, 5, Did::Read(2))]));
    assert!(!is_linearizable(&[twice, call(2, 3, Did::Read(2)), call(4, 5, Did::Read(1))]));
    // Both of its steps come before its end.
    assert!(!is_linearizable(&[twice, call(10, 11, Did::Read(1))]));
}

#[test]
fn of_several_next_states_all_are_followed() {
    let became = call(1, 2, Did::Became(3, 5));
    for (seen, sound) in [(3, true), (5, true), (4, false)] {
        assert_eq!(is_linearizable(&[became, call(3, 4, Did::Read(seen))]), sound);
    }
    assert!(!is_linearizable(&[became, call(3, 4, Did::Read(3)), call(5, 6, Did::Read(5))]));
}

#[test]
fn what_is_told_of_is_the_part_that_has_no_explanation() {
    let mut calls: Vec<_> = (0..100).map(|n| call(3 * n, 3 * n + 1, Did::Wrote(7))).collect();
    calls.extend([
        call(1000, 1100, Did::Wrote(1)),
        call(1010, 1020, Did::Read(7)),
        call(1030, 1040, Did::Read(1)),
        call(1050, 1060, Did::Read(7)),
        call(1070, 1200, Did::Read(1)),
        call(1300, 1301, Did::Read(1)),
    ]);
    let bad = check::<Register>(0, &calls).unwrap_err();
    // By then the write has been seen, and nothing else is under way.
    assert_eq!(bad.states, [1]);
    let begun = |calls: &[Call<Did>]| calls.iter().map(|call| call.began).collect::<Vec<_>>();
    assert_eq!(begun(&bad.before), [297, 1000, 1010, 1030]);
    assert_eq!((begun(&bad.calls), bad.culprit), (vec![1050], 0));
}

#[test]
fn looks_that_have_no_part_in_it_are_left_out() {
    let calls = [
        call(10, 100, Did::Wrote(1)),
        call(20, 25, Did::Read(0)),
        call(30, 100, Did::Wrote(2)),
        call(40, 90, Did::Read(2)),
        call(50, 60, Did::Read(5)),
        call(70, 80, Did::Read(2)),
    ];
    let bad = check::<Register>(0, &calls).unwrap_err();
    assert_eq!(bad.states, [0]);
    let told: Vec<_> = bad.calls.iter().map(|call| call.began).collect();
    assert_eq!((told, bad.culprit), (vec![10, 30, 50], 2));
}

/// As the definition has it: tries every order.
fn by_definition(state: u8, left: &[(Call<Did>, u32)]) -> bool {
    let Some(first_end) = left.iter().map(|(call, _)| call.ended).min() else {
        return true;
    };
    for at in 0..left.len() {
        let (call, memory) = left[at];
        if call.began > first_end {
            continue;
        }
        let mut next = Vec::new();
        Register::step(&state, &call, memory, &mut next);
        for (state, then) in next {
            let mut rest = left.to_vec();
            match then {
                Then::Done => drop(rest.remove(at)),
                Then::Goes(memory) => rest[at].1 = memory,
            }
            if by_definition(state, &rest) {
                return true;
            }
        }
    }
    false
}

fn any_call(luck: &mut SmallRng) -> Call<Did> {
    let mut number = || luck.random_range(0..3);
    let (one, other) = (number(), number());
    let did = match luck.random_range(0..10) {
        0..=4 => Did::Read(one),
        5..=6 => Did::Wrote(one),
        7 => Did::Exchanged { from: one, to: other, done: luck.random() },
        8 => Did::AddedTwice,
        _ => Did::Became(one, other),
    };
    let began = luck.random_range(0..20);
    call(began, began + luck.random_range(0..8), did)
}

#[test]
fn the_verdict_is_that_of_all_orders() {
    let (mut sound, mut unsound) = (0, 0);
    for seed in 0..30_000 {
        let mut luck = SmallRng::seed_from_u64(seed);
        let count = luck.random_range(1..=6);
        let mut calls: Vec<_> = (0..count).map(|_| any_call(&mut luck)).collect();
        calls.sort_by_key(|call| call.began);
        let expected = by_definition(0, &calls.iter().map(|call| (*call, 0)).collect::<Vec<_>>());
        let verdict = check::<Register>(0, &calls);
        assert_eq!(verdict.is_ok(), expected, "seed {seed}: {calls:?}");
        if let Err(bad) = verdict {
            // What is told of has no explanation by itself, whatever came before.
            let end = bad.calls[bad.culprit].ended;
            let told = bad.calls.iter().filter(|call| call.ended <= end);
            let told: Vec<_> = told.map(|call| (*call, 0)).collect();
            if told.len() == bad.calls.len() {
                let explained = |&state: &u8| by_definition(state, &told);
                assert!(!bad.states.iter().any(explained), "seed {seed}: {bad:?}");
            }
            unsound += 1;
        } else {
            sound += 1;
        }
    }
    assert!(sound > 5_000 && unsound > 5_000, "{sound} sound, {unsound} not");
}

#[test]
fn a_history_that_was_made_in_some_order_has_that_explanation() {
    for seed in 0..20 {
        let mut luck = SmallRng::seed_from_u64(seed);
        let (mut state, mut calls) = (0_u8, Vec::new());
        for point in 0..5_000_u64 {
            let mut next = Vec::new();
            let mut one = any_call(&mut luck);
            one.did = match one.did {
                Did::Read(_) => Did::Read(state),
                Did::Exchanged { from, to, .. } => Did::Exchanged { from, to, done: from == state },
                Did::AddedTwice => Did::Wrote(0),
                other => other,
            };
            Register::step(&state, &one, 0, &mut next);
            state = next[0].0;
            one.began = (point * 10).saturating_sub(luck.random_range(0..25));
            one.ended = point * 10 + luck.random_range(0..25);
            calls.push(one);
        }
        calls.sort_by_key(|call| call.began);
        let size = check::<Register>(0, &calls).unwrap();
        assert!(size.widest > 1);
        // And with an answer that nobody can have got it has none.
        let at = luck.random_range(0..calls.len());
        calls[at].did = Did::Read(77);
        assert!(!is_linearizable(&calls));
    }
}
