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

/// Judges a table: lines of histories that have an explanation (`ok`), and of those that have none
/// (`no`), with `|` between them. A line with `=` is how the histories below it begin; one with `*`
/// is a remark. In a history there is `;` between calls.
pub fn judge(table: &str, is_explained: fn(&str) -> bool) {
    let mut beginning = "";
    for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        match first {
            "=" => beginning = rest,
            "ok" | "no" => rest.split('|').for_each(|history| {
                let history = format!("{beginning};{history}");
                assert_eq!(is_explained(&history), first == "ok", "{history}");
            }),
            _ => assert_eq!(first, "*"),
        }
    }
}

/// A call consists of its beginning, its end, and what it did, with numbers.
fn is_explained(history: &str) -> bool {
    let read = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u8>().unwrap();
        let did = match words[2] {
            "read" => Did::Read(number(3)),
            "wrote" => Did::Wrote(number(3)),
            "exchanged" => Did::Exchanged { from: 0, to: 1, done: true },
            "refused" => Did::Exchanged { from: 0, to: 1, done: false },
            "added" => Did::AddedTwice,
            "became" => Did::Became(number(3), number(4)),
            other => panic!("{other}"),
        };
        call(number(0).into(), number(1).into(), did)
    };
    let calls = history.split(';').filter(|text| !text.trim().is_empty());
    is_linearizable(&calls.map(read).collect::<Vec<_>>())
}

#[test]
fn histories_by_hand() {
    judge(
        "
        * Calls one after another are in order.
        ok ; | 1 2 wrote 1; 3 4 read 1
        no 1 2 wrote 1; 3 4 read 0
        * Calls that overlap are in either order; so are those that share a reading.
        ok 1 4 wrote 1; 2 3 read 0 | 1 4 wrote 1; 2 3 read 1
        ok 1 2 wrote 1; 2 3 read 0 | 1 2 wrote 1; 2 3 read 1
        no 1 4 wrote 1; 2 3 read 2
        * What one has seen another one sees later.
        no 1 10 wrote 1; 2 3 read 1; 4 5 read 0
        ok 1 10 wrote 1; 2 3 read 1; 3 5 read 0
        * One of two exchanges wins.
        ok 1 9 exchanged; 2 9 refused
        no 1 9 exchanged; 2 9 exchanged | 1 9 refused; 2 9 refused
        * Between the steps of a call others come. Both come before its end.
        ok 1 9 added; 2 3 read 1; 4 5 read 2
        no 1 9 added; 2 3 read 2; 4 5 read 1 | 1 9 added; 10 11 read 1
        * Of several next states all are followed.
        = 1 2 became 3 5
        ok 3 4 read 3 | 3 4 read 5
        no 3 4 read 4 | 3 4 read 3; 5 6 read 5
        ",
        is_explained,
    );
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
    let begun = |calls: &[Call<Did>]| calls.iter().map(|call| call.at.began).collect::<Vec<_>>();
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
    let told: Vec<_> = bad.calls.iter().map(|call| call.at.began).collect();
    assert_eq!((told, bad.culprit), (vec![10, 30, 50], 2));
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
