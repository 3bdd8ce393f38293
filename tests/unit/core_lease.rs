//! Unit tests of `src/core/lease.rs`.

use super::*;
use crate::time::expressible;

#[test]
fn every_state_survives_the_packing() {
    for bits in 0..12 {
        let state = Lease(bits).state();
        let lease = Lease::new(state, 0xABCD, 0x12_3456_789A);
        assert_eq!(lease.state(), state);
        assert_eq!(lease.generation(), 0xABCD);
        assert_eq!(lease.deadline_from(0), 0x12_3456_789A);
        assert_eq!(state as u64, bits);
    }
    assert_eq!(Lease::free(0).0, 0);
}

#[test]
fn deadlines_are_found_again_across_the_wrap() {
    let wrap = 1u64 << DEADLINE_BITS;
    for base in [0, 5, wrap - 2, wrap - 1, wrap, 3 * wrap - 1, 1 << 62] {
        for ahead in [0, 1, 2, 77, (1 << 39) - 1] {
            let deadline = expressible(base + ahead);
            let lease = Lease::new(State::Live, 1, deadline);
            assert_eq!(lease.deadline_from(base), deadline);
            assert_eq!(lease.deadline_near(base), deadline);
        }
    }
    assert_eq!(Lease::new(State::Live, 1, NEVER).deadline_from(9), NEVER);
}

#[test]
fn a_deadline_that_was_lowered_and_comes_back_is_another_lease() {
    for (first, nearer) in [(90, 80), (NEVER, 80), (1 << 41, (1 << 41) - 2)] {
        let lease = Lease::new(State::LiveIdle, 0xFFFF, first);
        let mut seen = vec![lease];
        for _ in 1..8 {
            let lowered = seen[seen.len() - 1].with_deadline(nearer);
            assert!(!seen.contains(&lowered));
            seen.push(lowered.with_deadline(first));
            let back = seen[seen.len() - 1];
            assert!(!seen[..seen.len() - 1].contains(&back));
            assert_eq!((back.state(), back.generation()), (State::LiveIdle, 0xFFFF));
            assert_eq!(back.deadline_near(nearer), first);
            // What is not nearer does not count.
            assert_eq!(back.with_deadline(first), back);
        }
        let last = seen[7].with_deadline(nearer).with_deadline(first);
        assert_eq!(last, lease);
    }
}

#[test]
fn generations_skip_zero() {
    assert_eq!(next_generation(0), 1);
    assert_eq!(next_generation(GENERATION_MASK), 1);
    assert_eq!(next_generation(7), 8);
}
