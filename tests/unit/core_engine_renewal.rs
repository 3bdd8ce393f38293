//! Unit tests of `src/core/engine/renewal.rs`.

use super::{renewed, Look};
use crate::time::{Ticks, NEVER};

fn unread() -> u64 {
    panic!("the exact clock was read")
}

#[test]
fn a_later_deadline_is_set_by_any_reading() {
    for look in [Look::First, Look::Again] {
        assert_eq!(renewed(10, look, 10, unread), Some(10));
        assert_eq!(renewed(10, look, 11, unread), Some(11));
        assert_eq!(renewed(10, look, NEVER, unread), Some(NEVER));
    }
}

#[test]
fn a_nearer_deadline_is_set_on_the_first_look_by_an_exact_reading() {
    assert_eq!(renewed(10, Look::First, 8, || 8), Some(8));
    assert_eq!(renewed(NEVER, Look::First, 8, || 9), Some(9));
    // The cheap reading lagged: it was no nearer deadline.
    assert_eq!(renewed(10, Look::First, 9, || 10), Some(10));
}

#[test]
fn a_nearer_deadline_is_not_set_after_a_lost_swap() {
    assert_eq!(renewed(10, Look::Again, 9, unread), None);
    assert_eq!(renewed(NEVER, Look::Again, 9, unread), None);
}

/// Whatever the publisher's reading and the caller's were, if the exact one is no earlier than
/// the publisher's: a deadline goes back only for a shorter timeout.
#[test]
fn only_a_shorter_timeout_lowers_a_deadline() {
    const LAG: u64 = 5;
    let ticks = Ticks::new(3, 20);
    let deadline = |now, after| ticks.deadline(now, after + LAG);
    for published in 10..60 {
        for read in published..published + 45 {
            for cheap in read - LAG..=read {
                for (granted, asked) in [(40, 40), (40, 41), (40, 39), (40, 20), (40, 60)] {
                    let found = deadline(published, granted);
                    let set = renewed(found, Look::First, deadline(cheap, asked), || {
                        deadline(read, asked)
                    });
                    let set = set.expect("it is the first look");
                    assert!(set >= found || asked < granted);
                    // And never nearer than was asked for.
                    assert!(ticks.begins(set) >= read + asked);
                }
            }
        }
    }
}
