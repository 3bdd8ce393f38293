//! The reaper: a thread that drives an engine, or [several](crate::kit::reaper), and sleeps.
//!
//! It sleeps until the earliest tick that any wheel knows of, and without a limit when there is
//! none. A thread that sets an earlier one wakes it (`engine::wakeup`, W4, W10). The reaper does
//! nothing that `poll` does not do, so a caller that polls drives an engine in the same way.

use super::engine::{Engine, Frontend, Round, Share};
use super::slot::Payload;
use crate::sync::{AtomicBool, Ordering};
use crate::time::NEVER;
use std::time::Duration;

/// Orders to the reaper. The ordering thread calls the engine's waker afterwards.
pub(crate) struct Orders {
    stop: AtomicBool,
    /// Tasks wait for the last entry's end: the reaper is to wake them after its next round.
    look: AtomicBool,
    ended: AtomicBool,
}

impl Orders {
    pub(crate) fn new() -> Self {
        Orders {
            stop: AtomicBool::new(false),
            look: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Orders the reaper to stop after this round.
    pub(crate) fn stop(&self) {
        // survives: as `is_to_stop`, whose other side it is.
        self.stop.store(true, Ordering::Release);
    }

    fn is_to_stop(&self) -> bool {
        // survives: with `async` the fences in `refuse` order both sides. Without it the Acquire is
        // kept: a handler that gets what is left sees what the asking thread had done.
        self.stop.load(Ordering::Acquire)
    }

    /// Orders the reaper to wake, after its next round, the tasks that wait for the last entry's
    /// end. A task that finds something left orders it again.
    #[cfg_attr(not(feature = "async"), allow(dead_code))]
    pub(crate) fn look(&self) {
        // survives: no model orders this. The fences of `WaitSet::register` and of
        // `Admission::parted` order it, and the load and the store in `drive`.
        self.look.store(true, Ordering::Release);
    }

    fn is_to_look(&self) -> bool {
        self.look.load(Ordering::Acquire)
    }

    /// Reports that the reaper has done all that it had to.
    pub(crate) fn end(&self) {
        // survives: a closed engine has passed the fence of `Admission::parted`; what follows goes
        // by a lock and by the fence in `Listeners::finish`. Kept: this report must not rest on
        // those.
        self.ended.store(true, Ordering::Release);
    }

    #[cfg_attr(not(feature = "async"), allow(dead_code))]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// The time between its rounds while a task waits for the last entry's end.
#[cfg(feature = "async")]
const LOOK: Duration = Duration::from_millis(1);

/// The longest sleep if the store's clock, unlike the sleep, counts a suspend of the machine.
const UNSEEN_SUSPEND: Duration = Duration::from_secs(1);

/// What a store wants of its reaper after a [round](drive).
pub(crate) enum Next {
    /// Another one at once.
    Round,
    /// Another one when this has passed. No thread wakes the reaper before.
    #[cfg_attr(not(feature = "async"), allow(dead_code))]
    Pause(Duration),
    /// Another one when this has passed, if limited, or when another thread wakes the reaper.
    Sleep(Option<Duration>),
    /// None: the reaper has been ordered to stop, and has closed the store.
    Stop,
}

/// Does a round at `engine`, or closes it, as ordered.
pub(crate) fn drive<P: Payload, C>(
    engine: &Engine<P, C>,
    frontend: &impl Frontend<P>,
    share: Share,
    orders: &Orders,
) -> Next {
    engine.wakeup.awake();
    if orders.is_to_stop() {
        frontend.close();
        return Next::Stop;
    }
    let round = round(engine, frontend, share);
    if round.more {
        return Next::Round;
    }
    #[cfg(feature = "async")]
    if orders.is_to_look() {
        // Before the wake-up, which makes the tasks order it again.
        orders.look.store(false, Ordering::Release);
        engine.admission.parted();
        return Next::Pause(LOOK);
    }
    // A thread that drives a shard that this round has left out wakes the reaper if needed. Orders
    // are read once more: a listener that parks takes the token of the wake-up that came with them.
    // `an_order_to_stop_beside_a_handler_that_parks` fails without that.
    let next = round.next.unwrap_or(NEVER);
    if !engine.may_sleep_until(next) || orders.is_to_stop() || orders.is_to_look() {
        return Next::Round;
    }
    // Read after the announcement: a stall before it does not lengthen the sleep (Q12).
    let now = engine.deadlines.reading();
    let longest = if engine.deadlines.pauses_in_suspend() { Duration::MAX } else { UNSEEN_SUSPEND };
    let wait = || engine.deadlines.wait(now, next).min(longest);
    Next::Sleep((next != NEVER).then(wait))
}

fn round<P: Payload, C>(engine: &Engine<P, C>, frontend: &impl Frontend<P>, share: Share) -> Round {
    let began = engine.deadlines.reading();
    let round = engine.poll(engine.deadlines.no_earlier(began), share, frontend);
    if let (Some(began), Some(now)) = (began, engine.deadlines.reading()) {
        engine.busy.add(now.saturating_sub(began));
    }
    engine.rounds.add(1);
    round
}
