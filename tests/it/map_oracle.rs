//! Long random histories of one `ExpiringMap` beside a sequential oracle, on a manual clock: every result, every end that the
//! listener is told, and the entries after each step. `map_oracle/drive.rs` is the oracle; here is what histories are made of.
//!
//! For more and for other histories see `tests/support/histories.rs`.

mod drive;
use crate::support::histories;

use drive::{Deed, Meanwhile, Op, Run, Term, INTERVAL};
use proptest::prelude::*;

fn term() -> impl Strategy<Value = Term> {
    prop_oneof![
        6 => Just(Term::Default),
        1 => Just(Term::Never),
        1 => Just(Term::Zero),
        6 => (1..8000u64).prop_map(Term::After),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let key = 0..6u8;
    let meanwhile = prop_oneof![
        4 => Just(Meanwhile::Nothing),
        1 => Just(Meanwhile::Insert),
        1 => Just(Meanwhile::Remove),
        1 => Just(Meanwhile::Touch),
        1 => (0..5000u64).prop_map(Meanwhile::Pass),
    ];
    let deed = prop_oneof![Just(Deed::Insert), Just(Deed::Remove)];
    prop_oneof![
        6 => (key.clone(), term(), term()).prop_map(|(key, live, idle)| Op::Insert(key, live, idle)),
        4 => key.clone().prop_map(Op::Get),
        1 => key.clone().prop_map(Op::Peek),
        2 => key.clone().prop_map(Op::Remaining),
        3 => (key.clone(), term()).prop_map(|(key, time)| Op::Touch(key, time)),
        2 => key.clone().prop_map(Op::Remove),
        1 => key.clone().prop_map(Op::RemoveIf),
        1 => key.clone().prop_map(Op::OrInsert),
        2 => (key.clone(), deed, meanwhile).prop_map(|(key, deed, then)| Op::Entry(key, deed, then)),
        1 => key.prop_map(Op::Upsert),
        1 => Just(Op::Retain),
        1 => Just(Op::Iterate),
        6 => (0..3000u64).prop_map(Op::Pass),
        3 => prop_oneof![Just(usize::MAX), 1..8usize].prop_map(Op::Poll),
    ]
}

#[test]
fn random_histories_match_the_oracle() {
    let default = || prop::option::of(INTERVAL..9000u64);
    let setup = (default(), default());
    histories::run((400, 11), setup, (op(), 200), |&(live, idle), ops| {
        let mut run = Run::new(live, idle);
        for &op in ops {
            run.step(op)?;
        }
        run.finish()
    });
}
