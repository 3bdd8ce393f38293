//! The checker, `model::linear`: histories at random, against every order there is.

use model::linear::{check, Call, Model, Span, Then};
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

    fn step(state: u8, call: &Call<Did>, memory: u32, next: &mut Vec<(u8, Then)>) {
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
    Call { at: Span { began, ended, from: 0, to: 0, since: 0, thread: 0 }, did }
}

fn is_linearizable(calls: &[Call<Did>]) -> bool {
    check::<Register>(0, calls).is_ok()
}

/// Tries every order, as the definition has it.
fn by_definition(state: u8, left: &[(Call<Did>, u32)]) -> bool {
    let Some(first_end) = left.iter().map(|(call, _)| call.at.ended).min() else {
        return true;
    };
    for at in 0..left.len() {
        let (call, memory) = left[at];
        if call.at.began > first_end {
            continue;
        }
        let mut next = Vec::new();
        Register::step(state, &call, memory, &mut next);
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
        calls.sort_by_key(|call| call.at.began);
        let expected = by_definition(0, &calls.iter().map(|call| (*call, 0)).collect::<Vec<_>>());
        let verdict = check::<Register>(0, &calls);
        assert_eq!(verdict.is_ok(), expected, "seed {seed}: {calls:?}");
        if let Err(bad) = verdict {
            // The calls up to the culprit's end have no explanation by themselves, whatever came
            // before.
            let end = bad.calls[bad.culprit].at.ended;
            let told = bad.calls.iter().filter(|call| call.at.ended <= end);
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
            Register::step(state, &one, 0, &mut next);
            state = next[0].0;
            one.at.began = (point * 10).saturating_sub(luck.random_range(0..25));
            one.at.ended = point * 10 + luck.random_range(0..25);
            calls.push(one);
        }
        calls.sort_by_key(|call| call.at.began);
        assert!(check::<Register>(0, &calls).unwrap() > 1);
        // With an answer that no call can have got, the history has no explanation.
        let at = luck.random_range(0..calls.len());
        calls[at].did = Did::Read(77);
        assert!(!is_linearizable(&calls));
    }
}
