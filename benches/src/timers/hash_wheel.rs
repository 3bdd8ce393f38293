//! The cancellable `QuadWheelWithOverflow` of `hierarchical_hash_wheel_timer`, with its own choice
//! of hasher.
//!
//! A timer is an `Rc` in a map by id, and a `Weak` in a slot. The wheel cannot move a timer: that
//! is a cancel and an insert, under the same id. Ids are counted up, which its hasher likes best.
//! Time is stepped as its `SimulationTimer` does it: it skips the ticks that the wheel says can be
//! skipped, and steps through the rest.

use super::Timers;
use hierarchical_hash_wheel_timer::wheels::cancellable::{
    CancellableTimerEntry, QuadWheelWithOverflow,
};
use hierarchical_hash_wheel_timer::wheels::Skip;
use std::rc::Rc;
use std::time::Duration;

#[derive(Debug)]
struct Entry {
    id: u64,
    value: u64,
}

impl CancellableTimerEntry for Entry {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.id
    }
}

pub struct HashWheel {
    wheel: QuadWheelWithOverflow<Entry>,
    now: u64,
    next: u64,
}

impl HashWheel {
    #[inline]
    fn insert(&mut self, id: u64, deadline: u64, value: u64) {
        // It refuses what is due already.
        let delay = Duration::from_millis((deadline - self.now).max(1));
        let entry = Rc::new(Entry { id, value });
        assert!(self.wheel.insert_ref_with_delay(entry, delay).is_ok());
    }
}

impl Timers for HashWheel {
    const NAME: &'static str = "hierarchical_hash_wheel_timer";
    type Id = u64;

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        f(HashWheel { wheel: QuadWheelWithOverflow::new(), now: 0, next: 0 })
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> u64 {
        let id = self.next;
        self.next += 1;
        self.insert(id, deadline, value);
        id
    }

    #[inline]
    fn reschedule(&mut self, id: &mut u64, deadline: u64, value: u64) {
        assert!(self.wheel.cancel(id).is_ok());
        self.insert(*id, deadline, value);
    }

    #[inline]
    fn cancel(&mut self, id: u64) -> bool {
        self.wheel.cancel(&id).is_ok()
    }

    #[inline]
    fn advance(&mut self, now: u64, mut fired: impl FnMut(u64)) {
        while self.now < now {
            let left = now - self.now;
            let skip = match self.wheel.can_skip() {
                Skip::None => 0,
                Skip::Millis(millis) => left.min(u64::from(millis)),
                Skip::Empty => left.min(u64::from(u32::MAX)),
            };
            if skip > 0 {
                self.wheel.skip(skip as u32);
                self.now += skip;
            } else {
                self.now += 1;
                for entry in self.wheel.tick() {
                    fired(entry.value);
                }
            }
        }
    }
}
