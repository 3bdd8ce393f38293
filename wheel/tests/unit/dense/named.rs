//! One test per bug that a timer wheel is known to have had, here or elsewhere, and one per promise
//! that a random history would state less plainly.

use super::{drain, geometries, geometry, plenty, validate, Random, ORIGINS, READY};
use super::{Geometry, GeometryError, Pop, Wheel};
use std::panic::{catch_unwind, AssertUnwindSafe};

#[test]
fn the_example_of_the_module() {
    let mut wheel = Wheel::new(geometry(0, &[2, 2]), 5);
    let (a, b, c) = (0, 1, 2);
    wheel.schedule(a, 7);
    wheel.schedule(b, 10);
    wheel.schedule(c, 18);
    assert_eq!(wheel.next_expiration(), Some(7));
    let mut work = 10;
    assert_eq!(wheel.pop(9, &mut work), Pop::Due { id: a, due: 7 });
    assert_eq!(work, 8);
    assert_eq!(wheel.pop(9, &mut work), Pop::Idle);
    assert_eq!(work, 6);
    assert_eq!(wheel.pop(20, &mut work), Pop::Due { id: b, due: 10 });
    assert_eq!(work, 4);
    assert_eq!(wheel.pop(20, &mut work), Pop::Due { id: c, due: 18 });
    assert_eq!(wheel.pop(20, &mut work), Pop::Idle);
    assert_eq!(work, 2);
}

/// Bug: a wrong mask or comparison at the top sent deadlines at the edge of the span into the
/// overflow's slot of another turn, or past it.
#[test]
fn dues_around_every_span_fire_on_time() {
    for geometry in geometries() {
        for origin in ORIGINS {
            let widths = (1..=geometry.levels()).map(|row| geometry.bucket_width(row));
            for width in widths.chain([geometry.period()]) {
                for wait in [width - 1, width, width + 1, (width - 1) * 2 + 1] {
                    if wait == 0 || wait >> 63 == 1 {
                        continue;
                    }
                    let due = origin.wrapping_add(wait);
                    let mut wheel = Wheel::new(geometry, origin);
                    wheel.schedule(3, due);
                    assert_eq!(wheel.next_expiration(), Some(due));
                    assert_eq!(drain(&mut wheel, due.wrapping_sub(1)), []);
                    assert_eq!(drain(&mut wheel, due), [3]);
                }
            }
        }
    }
}

/// Bug: zero meant "unset", for a time or for an id.
#[test]
fn zero_is_a_time_and_an_id_like_any_other() {
    for geometry in geometries() {
        let mut wheel = Wheel::new(geometry, u64::MAX);
        wheel.schedule(0, 0);
        assert_eq!(wheel.due(0), Some(0));
        assert_eq!(wheel.next_expiration(), Some(0));
        assert_eq!(drain(&mut wheel, u64::MAX), []);
        assert_eq!(drain(&mut wheel, 0), [0]);
        assert_eq!(wheel.now(), 0);
        assert_eq!(wheel.next_expiration(), None);
        wheel.schedule(0, 0);
        assert_eq!(wheel.next_expiration(), Some(0));
        assert_eq!(drain(&mut wheel, 0), [0]);
    }
}

/// Bug: the level came from the wait and the bucket from the absolute time, so that an entry nearly
/// a turn away sat in the bucket of the present and hid a nearer one behind it.
#[test]
fn the_current_bucket_hides_no_nearer_event() {
    for geometry in geometries() {
        for row in 1..=geometry.levels() {
            let inner = geometry.bucket_width(row);
            let outer = inner * u64::from(geometry.mask_of(row)) + inner;
            // In the middle of a bucket of this level; a is nearly one turn ahead.
            let now = outer.wrapping_mul(5).wrapping_add(inner + inner / 2);
            let (a, b) = (now.wrapping_add(outer - 1), now.wrapping_add(outer / 2));
            let mut wheel = Wheel::new(geometry, now);
            wheel.schedule(0, a);
            assert_eq!(wheel.next_expiration(), Some(a));
            wheel.schedule(1, b);
            assert_eq!(wheel.next_expiration(), Some(b));
            if a != b {
                assert_eq!(drain(&mut wheel, b), [1]);
            }
            assert_eq!(wheel.next_expiration(), Some(a));
        }
    }
}

/// Bug: what was due already when added went to the overflow of the wheel.
#[test]
fn an_expired_add_is_not_in_the_overflow() {
    let mut wheel = Wheel::new(Geometry::CAFFEINE, 1 << 50);
    wheel.schedule(0, 0);
    wheel.schedule(1, (1 << 50) - 1);
    let mut work = 2;
    assert_eq!(wheel.pop(1 << 50, &mut work), Pop::Due { id: 0, due: 0 });
    let due = (1 << 50) - 1;
    assert_eq!(wheel.pop(1 << 50, &mut work), Pop::Due { id: 1, due });
    assert_eq!((wheel.pop(1 << 50, &mut work), work), (Pop::Idle, 0));
}

#[test]
fn scheduling_the_past_over_and_over_starves_nobody() {
    let mut wheel = Wheel::new(Geometry::TICKS, 1000);
    for id in 0..100 {
        wheel.schedule(id, 1001 + u64::from(id) * 100);
    }
    wheel.schedule(100, 1);
    let (mut others, mut pops) = (0, 0);
    while others < 100 {
        pops += 1;
        assert!(pops < 1500, "{others} of 100 after {pops} pops");
        match wheel.pop(20_000, &mut 1) {
            Pop::Due { id: 100, .. } => wheel.schedule(100, 1),
            Pop::Due { .. } => others += 1,
            Pop::Budget => {}
            Pop::Idle => unreachable!("one is always due"),
        }
    }
}

/// The same with a deadline that is in the bucket being fired, in front of a backlog.
#[test]
fn rescheduling_itself_at_its_own_due_starves_nobody() {
    for geometry in [Geometry::TICKS, geometry(2, &[2, 2])] {
        let mut wheel = Wheel::new(geometry, 0);
        for id in 0..100 {
            wheel.schedule(id, 10 + u64::from(id) * 7);
        }
        let (mut others, mut pops) = (0, 0);
        while others < 99 {
            pops += 1;
            assert!(pops < 1500, "{others} of 99 after {pops} pops");
            match wheel.pop(2_000, &mut 1) {
                Pop::Due { id: 0, due } => wheel.schedule(0, due),
                Pop::Due { id: 1, due } if pops < 100 => wheel.schedule(1, due),
                Pop::Due { .. } => others += 1,
                Pop::Budget => {}
                Pop::Idle => unreachable!("one is always due"),
            }
            validate(&wheel);
        }
    }
}

#[test]
fn a_coarse_bucket_is_gone_through_by_small_budgets_while_time_passes() {
    let mut wheel = Wheel::new(Geometry::CAFFEINE, 0);
    for id in 0..100 {
        wheel.schedule(id, 1 + u64::from(id % 10) * 1_000_000);
    }
    let mut fired = 0;
    for now in 1..1_000 {
        if let Pop::Due { .. } = wheel.pop(now, &mut 1) {
            fired += 1;
        }
    }
    assert_eq!(fired, 10, "those due at 1");
}

#[test]
fn empty_time_costs_nothing() {
    for geometry in geometries() {
        let mut wheel = Wheel::new(geometry, 0);
        wheel.schedule(0, (1 << 63) - 1);
        // Short of the last period, the overflow is not even looked at.
        let far = geometry.bucket_width(geometry.levels());
        for now in [1, 1000, 1 << 20, 1 << 40, (1 << 62) - 1] {
            if now < (1_u64 << 63) - far.min(1 << 61) {
                let mut work = 2 * geometry.levels();
                assert_eq!(wheel.pop(now, &mut work), Pop::Idle);
            }
        }
        assert_eq!(drain(&mut wheel, (1 << 63) - 1), [0]);
    }
    let mut wheel = Wheel::new(Geometry::TICKS, 0);
    wheel.schedule(0, (1 << 42) - 1);
    let hour = 3_600_000;
    for now in (0..24 * 365).map(|n| n * hour) {
        let mut work = 2;
        assert_eq!(wheel.pop(now, &mut work), Pop::Idle);
    }
}

#[test]
fn an_empty_wheel_outlives_its_clock() {
    for geometry in geometries() {
        let mut wheel = Wheel::new(geometry, 9);
        let mut now = 9_u64;
        for _ in 0..9 {
            now = now.wrapping_add(1 << 62);
            assert_eq!(drain(&mut wheel, now), []);
        }
        wheel.schedule(0, now.wrapping_add(1));
        wheel.schedule(1, now.wrapping_add(1 << 62));
        assert_eq!(drain(&mut wheel, now.wrapping_add(1)), [0]);
        assert_eq!(drain(&mut wheel, now.wrapping_add(1 << 62)), [1]);
    }
}

#[test]
fn a_jump_of_years_costs_what_is_due() {
    let year = 365 * 24 * 3_600_000_000_000;
    let mut wheel = Wheel::new(Geometry::NANOS_1MS, u64::MAX - 3);
    for id in 0..100 {
        wheel.schedule(id, u64::from(id) * year);
    }
    let mut work = plenty();
    let mut expected = 0..100;
    while let Pop::Due { id, .. } = wheel.pop(99 * year, &mut work) {
        assert_eq!(Some(id), expected.next());
    }
    assert_eq!(expected.next(), None);
    assert!(plenty() - work < 100 * 9, "{}", plenty() - work);
}

#[test]
fn equal_dues_fire_first_in_first_out() {
    let mut wheel = Wheel::new(Geometry::TICKS, 0);
    for id in 0..30 {
        // Some from far away, some from near.
        assert_eq!(drain(&mut wheel, u64::from(id) * 1_000), []);
        wheel.schedule(id, 30_000);
    }
    assert!(drain(&mut wheel, 30_000).into_iter().eq(0..30));
}

#[test]
fn no_work_is_no_progress_and_no_loss() {
    let mut wheel = Wheel::new(Geometry::TICKS, 0);
    assert_eq!(wheel.pop(5, &mut 0), Pop::Idle, "nothing to do costs none");
    wheel.schedule(7, 500);
    assert_eq!(wheel.pop(600, &mut 0), Pop::Budget);
    assert_eq!(wheel.next_expiration(), Some(600));
    assert_eq!(drain(&mut wheel, 600), [7]);
}

#[test]
fn memory_follows_the_highest_scheduled_id() {
    let mut wheel = Wheel::new(Geometry::TICKS, 0);
    wheel.reserve(1000);
    let reserved = (wheel.capacity(), wheel.lists.blocks().1);
    assert!(reserved.0 >= 1000);
    for id in 0..1000 {
        wheel.schedule(id, 5 + u64::from(id));
    }
    assert_eq!((wheel.capacity(), wheel.lists.blocks().1), reserved);
    for id in (0..1000).filter(|id| *id != 300) {
        wheel.cancel(id);
    }
    wheel.shrink_to(10);
    validate(&wheel);
    assert_eq!((wheel.ids(), wheel.capacity()), (301, 301));
    assert_eq!(wheel.lists.blocks(), (1, 1));
    assert_eq!((wheel.due(300), wheel.due(301)), (Some(305), None));
    assert!(!wheel.cancel(999) && !wheel.cancel(u32::MAX));
    assert_eq!(drain(&mut wheel, 400), [300]);
    wheel.shrink_to(400);
    assert_eq!(wheel.ids(), 301);
    wheel.shrink_to(0);
    assert_eq!((wheel.ids(), wheel.lists.blocks()), (0, (0, 0)));
    wheel.schedule(4, 401);
    assert_eq!(drain(&mut wheel, 401), [4]);
}

/// A record that was left behind 2^31 schedules ago must not be taken for the present one.
#[test]
fn generations_come_round() {
    for last in [u32::MAX, u32::MAX - 2, u32::MAX - 4] {
        let mut wheel = Wheel::new(Geometry::TICKS, 0);
        wheel.schedule(1, 70);
        wheel.schedule(1, 90);
        wheel.schedule(0, 80);
        wheel.schedule(2, 75);
        wheel.cancel(1);
        // Its records have the generations 1 and 3. It goes on like this, until they would come
        // again.
        wheel.nodes.set_generation(1, last - 1);
        for due in [100, 101, 102] {
            wheel.schedule(1, due);
            validate(&wheel);
        }
        assert!(wheel.reschedule_if(1, 103, |()| true));
        validate(&wheel);
        assert_eq!(drain(&mut wheel, 99), [2, 0]);
        assert_eq!(drain(&mut wheel, 103), [1]);
    }
    // Both ways to end a schedule, right at the turn.
    for take in [false, true] {
        let mut wheel = Wheel::new(Geometry::TICKS, 0);
        wheel.schedule(0, 70);
        wheel.schedule(0, 80);
        wheel.cancel(0);
        wheel.nodes.set_generation(0, u32::MAX - 1);
        wheel.schedule(0, 90);
        match take {
            false => assert!(wheel.cancel(0)),
            true => assert_eq!(wheel.take_if(0, |()| true), Some(())),
        }
        assert_eq!(wheel.lists.records(), 0);
        wheel.schedule(0, 95);
        validate(&wheel);
        assert_eq!(drain(&mut wheel, 94), []);
        assert_eq!(drain(&mut wheel, 95), [0]);
    }
}

#[test]
fn the_dead_are_thrown_out_a_few_at_a_time() {
    for geometry in [Geometry::TICKS, Geometry::CAFFEINE, geometry(0, &[1])] {
        let mut wheel = Wheel::new(geometry, 7);
        let mut random = Random(99);
        for id in 0..1000 {
            wheel.schedule(id, 8 + random.spread(40));
        }
        let most = super::super::most(1000);
        for step in 0..100_000 {
            let id = random.below(1000) as u32;
            match step % 3 {
                0 => _ = wheel.cancel(id),
                1 => wheel.schedule(id, wheel.now() - random.spread(3)),
                _ => wheel.schedule(id, 8 + random.spread(45)),
            }
            let records = wheel.lists.records();
            assert!(records <= most + most / 8 + 600, "{records} of {most}");
            if step % 1000 == 0 {
                validate(&wheel);
            }
        }
        // Swept blocks are full: there are not many more blocks than the records need.
        let blocks = wheel.lists.blocks().0;
        assert!(blocks <= most / 15 * 5 / 4 + 2 * 577, "{blocks}");
        let len = wheel.len();
        assert_eq!(drain(&mut wheel, 1 << 46).len(), len);
        assert_eq!(wheel.lists.records(), 0);
    }
}

/// The block that the broom stands on is used up, or the list that it is in becomes part of
/// another.
#[test]
fn the_broom_is_led_out_of_what_goes() {
    let bucket = Geometry::TICKS.head(100, 0);
    for (due, head) in [(0, READY), (100, bucket)] {
        let mut wheel = Wheel::new(Geometry::TICKS, 0);
        // The first block has the dead and the living.
        (0..100).chain(1..10).for_each(|id| wheel.schedule(id, due));
        if head == READY {
            assert_eq!(wheel.pop(0, &mut 1), Pop::Due { id: 0, due });
        }
        // The dead of another list set it going.
        let mut swept = (0..5000).map(|_| {
            wheel.schedule(100, 5000);
            wheel.lists.is_swept(head)
        });
        assert!(swept.any(|swept| swept), "the broom never came");
        for _ in 0..30 {
            assert_ne!(wheel.pop(due, &mut 1), Pop::Idle);
            validate(&wheel);
        }
        drain(&mut wheel, due);
        assert_eq!(drain(&mut wheel, 5000), [100]);
    }
}

/// A bucket of dead records wakes the wheel's owner once at most, and never if nothing is left.
#[test]
fn buckets_of_the_dead() {
    let mut wheel = Wheel::new(Geometry::TICKS, 0);
    for id in 0..40 {
        wheel.schedule(id, 5000);
    }
    for id in 0..40 {
        wheel.cancel(id);
    }
    assert_eq!(wheel.next_expiration(), None);
    wheel.schedule(50, 9000);
    assert_eq!(wheel.next_expiration(), Some(5000), "a bound");
    assert_eq!(drain(&mut wheel, 5000), []);
    assert_eq!(wheel.next_expiration(), Some(9000));
    wheel.schedule(51, 4000);
    wheel.cancel(51);
    assert_eq!(wheel.next_expiration(), Some(5000));
    assert_eq!(drain(&mut wheel, 5000), []);
    assert_eq!(wheel.next_expiration(), Some(9000));
}

/// A few buckets of dead records only are looked past, one after the other.
#[test]
fn a_few_dead_buckets_wake_nobody() {
    let mut wheel = Wheel::new(Geometry::TICKS, 0);
    for (id, due) in [(0, 3), (1, 40), (2, 4000), (3, 9000)] {
        wheel.schedule(id, due);
    }
    for (id, next) in [(0, 40), (1, 4000), (2, 9000)] {
        wheel.cancel(id);
        assert_eq!(wheel.next_expiration(), Some(next));
    }
    assert_eq!(drain(&mut wheel, 9000), [3]);
}

#[test]
fn an_id_too_high_is_refused_without_a_trace() {
    let mut wheel = Wheel::new(geometry(0, &[1; 8]), 0);
    let refused = catch_unwind(AssertUnwindSafe(|| wheel.schedule(Wheel::MAX_ID + 1, 5)));
    assert!(refused.is_err());
    assert!(wheel.is_empty());
    validate(&wheel);
}

#[test]
fn geometries_keep_their_promises() {
    let spans = |geometry: Geometry| {
        let rows = 1..=geometry.levels();
        let widths = rows.map(|row| geometry.bucket_width(row));
        widths.chain([geometry.period()]).collect::<Vec<_>>()
    };
    let caffeine = [30, 36, 42, 47, 49].map(|bits| 1_u64 << bits);
    assert_eq!(spans(Geometry::CAFFEINE), caffeine);
    assert_eq!(spans(Geometry::TICKS)[0], 1);
    assert_eq!(Geometry::TICKS.period(), 1 << 42);
    assert_eq!(spans(Geometry::NANOS_1MS)[0], 1 << 20);
    assert_eq!(Geometry::NANOS_1MS.period(), 1 << 62);
    assert_eq!(
        format!("{:?}", Geometry::CAFFEINE),
        "Geometry { granularity: 1073741824, buckets: [64, 64, 32, 4] }"
    );
    let error = |shift, bits: &[u32]| Geometry::new(shift, bits).unwrap_err();
    assert_eq!(error(0, &[]), GeometryError::Levels);
    assert_eq!(error(0, &[1; 9]), GeometryError::Levels);
    assert_eq!(error(0, &[6, 0]), GeometryError::Bits);
    assert_eq!(error(0, &[7]), GeometryError::Bits);
    assert_eq!(error(62, &[1]), GeometryError::Width);
    assert_eq!(error(63, &[1]), GeometryError::Width);
    assert!(Geometry::new(61, &[1]).is_ok());
    assert_eq!(error(u32::MAX, &[1]), GeometryError::Width);
    assert_eq!(error(21, &[6; 7]), GeometryError::Width);
    assert!(Geometry::new(20, &[6; 7]).is_ok());
    assert!(error(0, &[]).to_string().contains("1 to 8"));
}
