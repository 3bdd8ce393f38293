//! Timers in one structure: our wheel, a tree, and nothing at all.

use super::Timers;
use expiry::{Geometry, TimerId, TimerWheel};
use std::collections::BTreeMap;

/// This crate's wheel, in ticks of a millisecond.
pub struct Wheel(TimerWheel<u64>);

impl Timers for Wheel {
    const NAME: &'static str = "TimerWheel";
    type Id = TimerId;

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(Wheel(TimerWheel::new(Geometry::TICKS, 0)))
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> TimerId {
        self.0.schedule(deadline, value)
    }

    #[inline]
    fn reschedule(&mut self, id: &mut TimerId, deadline: u64, _value: u64) {
        assert!(self.0.reschedule(*id, deadline).is_ok());
    }

    #[inline]
    fn cancel(&mut self, id: TimerId) -> bool {
        self.0.cancel(id).is_some()
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        self.0.advance(now, |_, timer| fired(timer.value));
    }
}

/// Ordered by deadline, and a number that distinguishes equal ones: that pair names the timer.
pub struct BTree {
    timers: BTreeMap<(u64, u64), u64>,
    next: u64,
}

impl Timers for BTree {
    const NAME: &'static str = "BTreeMap";
    type Id = (u64, u64);

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(BTree { timers: BTreeMap::new(), next: 0 })
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> (u64, u64) {
        let id = (deadline, self.next);
        self.next += 1;
        self.timers.insert(id, value);
        id
    }

    #[inline]
    fn reschedule(&mut self, id: &mut (u64, u64), deadline: u64, _value: u64) {
        let value = self.timers.remove(id).expect("is there");
        id.0 = deadline;
        self.timers.insert(*id, value);
    }

    #[inline]
    fn cancel(&mut self, id: (u64, u64)) -> bool {
        self.timers.remove(&id).is_some()
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                break;
            }
            fired(first.remove());
        }
    }
}

/// Shows what the harness itself costs.
pub struct Nothing(u64);

impl Timers for Nothing {
    const NAME: &'static str = "(harness alone)";
    const WORKS: bool = false;
    type Id = u64;

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(Nothing(0))
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> u64 {
        self.0 = self.0.wrapping_add(deadline ^ value);
        self.0
    }

    #[inline]
    fn reschedule(&mut self, id: &mut u64, deadline: u64, value: u64) {
        *id ^= deadline ^ value;
    }

    #[inline]
    fn cancel(&mut self, id: u64) -> bool {
        self.0 ^= id;
        true
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        self.0 = std::hint::black_box(self.0 ^ now);
        if self.0 == u64::MAX {
            fired(0);
        }
    }
}
