//! What it costs to follow [`Wheel::next_expiration`], and to go in small steps. Random histories
//! beside an oracle are the public wheel's (`../timers/drive.rs`): it is this wheel with values.

use super::{drain, geometries, Pop, Random, Wheel, ORIGINS};
use std::collections::BTreeSet;

/// A wait of any magnitude, in steps of `unit` or not.
fn wait(random: &mut Random, unit: u64) -> u64 {
    let wait = match random.below(8) {
        0 => random.spread(62),
        1 => random.spread(45),
        2 | 3 => random.below(6).saturating_mul(unit),
        _ => random.below(300).saturating_mul(unit),
    };
    wait.min(1 << 62) + 1 + random.below(3)
}

#[test]
fn following_next_expiration_wakes_once_per_due_and_once_per_removal() {
    for geometry in geometries() {
        for origin in ORIGINS {
            let (mut random, unit) = (Random(77 ^ origin), geometry.granularity());
            let mut wheel = Wheel::new(geometry, origin);
            // When each id is due, from the origin on.
            let mut dues: Vec<_> = (0..60).map(|_| Some(wait(&mut random, unit))).collect();
            let distinct =
                |dues: &[Option<u64>]| dues.iter().flatten().collect::<BTreeSet<_>>().len();
            for (id, due) in (0..).zip(dues.iter().flatten()) {
                wheel.schedule(id, origin.wrapping_add(*due));
            }
            // Nothing was removed: each wake-up is the earliest due, to the unit.
            let mut now = 0;
            for _ in 0..distinct(&dues) / 2 {
                now = *dues.iter().flatten().min().unwrap();
                assert_eq!(wheel.next_expiration(), Some(origin.wrapping_add(now)));
                for id in drain(&mut wheel, origin.wrapping_add(now)) {
                    assert_eq!(dues[id as usize].take(), Some(now));
                }
                assert!(!dues.contains(&Some(now)), "left over");
            }
            let mut removals = 0;
            for _ in 0..40 {
                let id = random.below(60) as usize;
                removals += usize::from(wheel.cancel(id as u32));
                dues[id] = (random.below(2) == 0).then(|| now + wait(&mut random, unit));
                if let Some(due) = dues[id] {
                    wheel.schedule(id as u32, origin.wrapping_add(due));
                }
            }
            let (most, mut wakes) = (distinct(&dues) + removals, 0);
            while let Some(next) = wheel.next_expiration() {
                drain(&mut wheel, next);
                wakes += 1;
                assert!(wakes <= most, "{wakes} wake-ups, {geometry:?}");
            }
            assert!(wheel.is_empty());
        }
    }
}

#[test]
fn small_budgets_reach_the_same_end_with_the_same_work() {
    for geometry in geometries() {
        let origin = u64::MAX - 1000;
        let spent = [1, 2, 7, usize::MAX].map(|budget| {
            let (mut random, mut spent) = (Random(4242), 0);
            let mut wheel = Wheel::new(geometry, origin);
            for id in 0..200 {
                wheel.schedule(id, origin.wrapping_add(wait(&mut random, geometry.granularity())));
            }
            loop {
                let mut work = budget;
                let pop = wheel.pop(origin.wrapping_add((1 << 62) + 3), &mut work);
                spent += budget - work;
                match pop {
                    Pop::Due { .. } => assert!(work < budget, "an id is work"),
                    Pop::Budget => assert_eq!(work, 0, "stopped before the budget was used up"),
                    Pop::Idle => break,
                }
            }
            assert!(wheel.is_empty());
            spent
        });
        assert!(spent.iter().all(|work| *work == spent[0]), "{spent:?}");
    }
}
