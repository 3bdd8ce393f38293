//! `expiry`'s own wheel, in ticks of a millisecond.

use super::Timers;
use expiry::{Geometry, TimerId, TimerWheel};

/// `TimerWheel<u64>`.
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
