//! Random histories of wheel and oracle.

use super::model::Model;
use super::{geometries, Pop, Random, ORIGINS};

/// Dues of every magnitude, in steps of `unit` or not, now and then in the past.
fn due(random: &mut Random, now: i128, unit: u64) -> i128 {
    let wait = match random.below(8) {
        0 => random.spread(62),
        1 => random.spread(45),
        2 | 3 => random.below(6).saturating_mul(unit),
        _ => random.below(300).saturating_mul(unit),
    };
    let wait = wait.min(1 << 62);
    let near = now + i128::from(random.below(3)) - 1;
    match random.below(10) {
        0 => near - i128::from(wait),
        _ => near + i128::from(wait),
    }
}

fn history(model: &mut Model, random: &mut Random, unit: u64, steps: usize) {
    for _ in 0..steps {
        let id = random.below(40) as u32;
        match random.below(16) {
            0..=5 => {
                let due = due(random, model.now, unit);
                model.schedule(id, due);
            }
            6..=7 => model.cancel(id),
            8 => {
                let back = model.now - 1 - i128::from(random.spread(61));
                assert_eq!(model.pop(back, 3), Pop::Idle);
            }
            9 => {
                // The backlog is worked off first: clock and backlog together must stay below 2^63.
                model.drain(model.now);
                let jump = i128::from(random.spread(61));
                let _ = model.pop(model.now + jump, random.below(20) as usize);
                model.drain(model.now);
            }
            10 => model.drain(model.now),
            11 => {
                if let Some(next) = model.next_expiration() {
                    model.drain(next);
                }
            }
            _ => {
                let on = i128::from(random.below(4) * random.below(20) * unit.min(1 << 40));
                let budget = random.below(5) as usize;
                let on = model.now + on;
                for _ in 0..random.below(6) {
                    let _ = model.pop(on, budget);
                }
            }
        }
    }
}

#[test]
fn any_history_agrees_with_the_oracle() {
    for (at, geometry) in geometries().into_iter().enumerate() {
        for origin in ORIGINS {
            let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ origin.rotate_left(at as u32));
            let mut model = Model::new(geometry, origin);
            history(&mut model, &mut random, geometry.granularity(), 500);
            history(&mut model, &mut random, 1, 250);
            // Everything still fires, and all of it.
            while let Some(next) = model.next_expiration() {
                model.drain(next);
            }
            assert!(model.wheel.is_empty() && model.fired > 100);
        }
    }
}

#[test]
fn following_next_expiration_wakes_once_per_due_and_once_per_removal() {
    for geometry in geometries() {
        for origin in ORIGINS {
            let mut random = Random(77 ^ origin);
            let mut model = Model::new(geometry, origin);
            for id in 0..60 {
                let now = model.now;
                model.schedule(id, due(&mut random, now, geometry.granularity()));
            }
            model.drain(0);
            // Nothing was removed: each wake-up is the earliest due, to the unit.
            let distinct = model.distinct();
            for _ in 0..distinct / 2 {
                assert_eq!(model.next_expiration(), model.first_due());
                model.drain(model.first_due().unwrap());
            }
            for _ in 0..40 {
                let id = random.below(60) as u32;
                model.cancel(id);
                let now = model.now;
                if random.below(2) == 0 {
                    model.schedule(id, due(&mut random, now, geometry.granularity()));
                }
            }
            let most = model.distinct() + model.removals;
            let mut wakes = 0;
            while let Some(next) = model.next_expiration() {
                model.drain(next);
                wakes += 1;
                assert!(wakes <= most, "{wakes} wake-ups, {geometry:?}");
            }
        }
    }
}

#[test]
fn small_budgets_reach_the_same_end_with_the_same_work() {
    for geometry in geometries() {
        let mut spent = Vec::new();
        for budget in [1, 2, 7, usize::MAX] {
            let mut random = Random(4242);
            let mut model = Model::new(geometry, u64::MAX - 1000);
            for id in 0..200 {
                let now = model.now;
                model.schedule(id, due(&mut random, now, geometry.granularity()));
            }
            let end = 1 << 61;
            loop {
                match model.pop(end, budget) {
                    Pop::Idle => break,
                    Pop::Due { .. } | Pop::Budget => {}
                }
            }
            // The dues lie below 2^62 and a bit.
            while let Some(next) = model.next_expiration() {
                model.drain(next);
            }
            assert!(model.wheel.is_empty());
            spent.push(model.work);
        }
        assert!(spent.iter().all(|work| *work == spent[0]), "{spent:?}");
    }
}
