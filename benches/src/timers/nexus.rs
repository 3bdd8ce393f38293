//! `nexus_timer::Wheel` with its default configuration: ticks of a millisecond, seven levels.
//!
//! * Deadlines are given as instants: it reads no clock for them.
//! * It is polled with `poll_and_rebalance`, which its documentation asks for where polls are
//!   frequent. `poll` alone looks at all timers each time.
//! * A timer that has fired keeps its memory until its handle is given back: see
//!   [`Timers::release`].

use super::Timers;
use nexus_timer::TimerHandle;
use std::mem::transmute;
use std::time::{Duration, Instant};

pub struct NexusWheel {
    wheel: nexus_timer::Wheel<u64>,
    start: Instant,
    fired: Vec<u64>,
}

/// A handle, which is a pointer, as the workloads copy it. They use each one once.
#[derive(Clone, Copy)]
pub struct Name(*const ());

impl Name {
    #[inline]
    fn of(handle: TimerHandle<u64>) -> Name {
        // SAFETY: a handle is a pointer and a marker without a size. It is not dropped.
        Name(unsafe { transmute::<TimerHandle<u64>, *const ()>(handle) })
    }

    #[inline]
    fn handle(self) -> TimerHandle<u64> {
        // SAFETY: it was made of a handle, and no other handle was made of it.
        unsafe { transmute::<*const (), TimerHandle<u64>>(self.0) }
    }
}

impl NexusWheel {
    #[inline]
    fn instant(&self, deadline: u64) -> Instant {
        self.start + Duration::from_millis(deadline)
    }
}

impl Timers for NexusWheel {
    const NAME: &'static str = "nexus-timer";
    type Id = Name;

    fn with<R>(f: impl FnOnce(Self) -> R) -> R {
        let start = Instant::now();
        let wheel = nexus_timer::Wheel::unbounded(4096, start);
        f(NexusWheel { wheel, start, fired: Vec::new() })
    }

    #[inline]
    fn schedule(&mut self, deadline: u64, value: u64) -> Name {
        let at = self.instant(deadline);
        Name::of(self.wheel.schedule(at, value))
    }

    #[inline]
    fn reschedule(&mut self, id: &mut Name, deadline: u64, _value: u64) {
        let at = self.instant(deadline);
        *id = Name::of(self.wheel.reschedule(id.handle(), at));
    }

    #[inline]
    fn cancel(&mut self, id: Name) -> bool {
        self.wheel.cancel(id.handle()).is_some()
    }

    #[inline]
    fn release(&mut self, id: Name) {
        self.wheel.free(id.handle());
    }

    #[inline]
    fn advance(&mut self, now: u64, fired: impl FnMut(u64)) {
        let at = self.instant(now);
        self.wheel.poll_and_rebalance(at, &mut self.fired);
        self.fired.drain(..).for_each(fired);
    }
}
