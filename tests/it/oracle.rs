//! Long random histories of each store beside its sequential model, on a manual clock: every
//! result, every event, and what there is after each step. The models, and how histories are made,
//! are in `model/`.
//!
//! For a longer run: `EXPIRY_PROP_CASES=5000 cargo test --release --test it oracle`, and
//! `EXPIRY_PROP_SEED=7` for other histories.

use model::{random, Ack, Bounded, Map, Mix, Pending, PendingUnderKeys, Queue, Rotating, Sessions};

const PLAIN: Mix = Mix::new(4, 4, 2);

/// A1, A2, A4, A9, A10, A12: everything mixed, the clock only going forwards.
#[test]
fn mixed_histories_match_the_oracle() {
    random(Ack(PLAIN), (20, 7), 3000);
}

/// A13: issued roots alone, many of them late or doubled.
#[test]
fn histories_of_issued_roots_match_the_oracle() {
    random(Ack(Mix::new(10, 0, 0)), (10, 7), 3000);
}

/// A2, A14: mostly early arrivals, with small caps.
#[test]
fn histories_of_early_arrivals_match_the_oracle() {
    random(Ack(Mix::new(0, 1, 12)), (14, 7), 3000);
}

/// F5, F6, F8: thousands of roots at once from a tiny table, drained, and filled again.
#[test]
fn histories_with_growth_and_drains_match_the_oracle() {
    random(Ack(PLAIN.with_batches(2)), (10, 7), 300);
}

/// B7, F3: jumps of years between the steps.
#[test]
fn histories_with_jumps_of_years_match_the_oracle() {
    random(Ack(PLAIN.with_years(3)), (14, 7), 2000);
}

/// The contract of `Clock`: if it goes backwards, nothing expires early and nothing is lost.
#[test]
fn histories_with_a_clock_that_goes_backwards_match_the_oracle() {
    random(Ack(PLAIN.with_a_clock_that_goes_back(3)), (14, 7), 2000);
}

/// J12: roots that no call uses for a while end before their timeout.
#[test]
fn histories_with_idle_timeouts_match_the_oracle() {
    random(Ack(PLAIN.with_idle_timeouts().with_years(1)), (14, 7), 3000);
}

/// F5: with a bound on the capacity that is often met.
#[test]
fn histories_at_the_capacity_match_the_oracle() {
    random(Ack(Mix::new(4, 4, 4).bounded()), (14, 7), 3000);
}

#[test]
fn histories_of_maps_match_the_oracle() {
    random(Map { loads: false }, (400, 11), 200);
}

/// D10: single and bulk loads, of maps that reload old values, or ask a policy for lifetimes.
#[test]
fn histories_of_maps_that_load_match_the_oracle() {
    random(Map { loads: true }, (400, 19), 200);
}

/// D6, J5, J7: what the bound of a map allows, refuses and evicts.
#[test]
fn histories_of_bounded_maps_match_the_oracle() {
    random(Bounded, (200, 29), 200);
}

#[test]
fn histories_of_queues_of_integers_match_the_oracle() {
    random(Queue::<u64>::RANDOM, (100, 13), 400);
}

#[test]
fn histories_of_queues_of_strings_match_the_oracle() {
    random(Queue::<String>::RANDOM, (100, 13), 400);
}

/// Tickets reach their own values, whatever has their slots by then.
#[test]
fn histories_of_pending_tables_match_the_oracle() {
    random(Pending, (40, 17), 150);
}

/// G2: each value leaves once, whatever replaces it, and however full the map is.
#[test]
fn histories_of_pending_maps_match_the_oracle() {
    random(PendingUnderKeys, (60, 23), 200);
}

/// C5, C9, Q13.
#[test]
fn histories_of_sessions_match_the_oracle() {
    random(Sessions::random(false), (60, 9), 600);
}

/// C7: with jumps by which a tracker falls behind by more than a lease can express.
#[test]
fn histories_of_sessions_with_jumps_of_years_match_the_oracle() {
    random(Sessions::random(true), (40, 9), 600);
}

/// D1: generations, renewals, rotations of which a part is taken, callbacks that panic.
#[test]
fn d01_histories_of_generations_match_storms_definition() {
    random(Rotating, (200, 7), 120);
}
