//! `Timeouts` beside their promise. A timeout is over neither before its time nor, after a poll, an
//! interval later. It is woken once, by the waker of the latest poll. It is refused only where the
//! capacity is used up, and leaves nothing behind.

use super::shared::{set, EXPRESSED};
use super::{perhaps, steps};
use arbitrary::{Result, Unstructured};
use expiry::timeouts::{Sleep, Timeout, TimeoutError, TimerError};
use expiry::{ManualClock, Timeouts};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Futures at a time.
const PLACES: usize = 6;
/// Wakers that each of them meets.
const WAKERS: usize = 2;

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A sleep, or a limit, of so many nanoseconds.
    Begin(usize, bool, u64),
    Poll(usize, usize),
    /// What is inside a limit is ready.
    Finish(usize),
    Reset(usize, u64),
    Drop(usize),
    Pass(u64),
    Drive(Option<u8>),
    ShutDown,
}

fn time(bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match bytes.int_in_range(0..=15u8)? {
        0 => 0,
        1 => bytes.int_in_range(0..=1 << 58)?,
        2..=5 => bytes.int_in_range(0..=100_000_000_000)?,
        _ => bytes.int_in_range(0..=60_000_000)?,
    })
}

fn op(bytes: &mut Unstructured<'_>) -> Result<Op> {
    let at = bytes.int_in_range(0..=PLACES - 1)?;
    Ok(match bytes.int_in_range(0..=31u8)? {
        0..=6 => Op::Begin(at, bytes.arbitrary()?, time(bytes)?),
        7..=14 => Op::Poll(at, bytes.int_in_range(0..=WAKERS - 1)?),
        15 => Op::Finish(at),
        16..=18 => Op::Reset(at, time(bytes)?),
        19..=20 => Op::Drop(at),
        21..=25 => Op::Pass(time(bytes)?),
        26..=30 => Op::Drive(perhaps(bytes, |bytes| bytes.arbitrary())?),
        _ => Op::ShutDown,
    })
}

/// Counts how often it is woken.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A future that is ready once its flag is set.
struct Inner(Rc<Cell<bool>>);

impl Future for Inner {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0.get().then_some(()).map_or(Poll::Pending, Poll::Ready)
    }
}

enum Fut<'t> {
    Sleep(Pin<Box<Sleep<&'t Timeouts>>>),
    Timeout(Pin<Box<Timeout<&'t Timeouts, Inner>>>),
}

struct Place<'t> {
    future: Fut<'t>,
    finished: Rc<Cell<bool>>,
    after: u64,
    /// Not before the first, and at the second: over. `None` until a limit counts.
    over: Option<(u64, u64)>,
    /// Whether it has returned that it is over.
    said: bool,
    /// Its time was reset to none: it is ready at the next poll.
    past: bool,
    /// The waker that it waits with, and up to when all that was due had been ended before. It is
    /// over as soon as that waker was woken.
    waits: Option<(usize, u64)>,
    woken: bool,
    wakers: [(Arc<Count>, u64); WAKERS],
}

struct Run<'t> {
    timeouts: &'t Timeouts,
    clock: &'t ManualClock,
    interval: u64,
    capacity: Option<usize>,
    now: u64,
    /// Up to when all that was due has been ended.
    caught_up: u64,
    shut: bool,
    refused: u64,
    places: [Option<Place<'t>>; PLACES],
}

impl<'t> Run<'t> {
    fn over_after(&self, after: u64) -> (u64, u64) {
        let earliest = self.now + after;
        (earliest, earliest + self.interval)
    }

    fn waiting(&self) -> usize {
        let places = self.places.iter().flatten();
        places.filter(|place| place.waits.is_some()).count()
    }

    fn begin(&mut self, at: usize, limits: bool, after: u64) {
        // Dropped before the next one begins.
        self.places[at] = None;
        let (length, finished) = (Duration::from_nanos(after), Rc::<Cell<bool>>::default());
        let inner = Inner(finished.clone());
        let future = if limits {
            Fut::Timeout(Box::pin(self.timeouts.timeout(length, inner)))
        } else {
            Fut::Sleep(Box::pin(self.timeouts.sleep(length)))
        };
        let over = match (limits, after) {
            (_, 0) => Some((self.now, self.now)),
            (true, _) => None,
            (false, _) => Some(self.over_after(after)),
        };
        self.places[at] = Some(Place {
            future,
            finished,
            after,
            over,
            said: false,
            past: false,
            waits: None,
            woken: false,
            wakers: Default::default(),
        });
    }

    fn poll(&mut self, at: usize, with: usize) {
        let (now, shut, waiting) = (self.now, self.shut, self.waiting());
        let full = self.capacity.is_some_and(|capacity| waiting >= capacity);
        let Some(after) = self.places[at].as_ref().map(|place| place.after) else { return };
        let counts = self.over_after(after);
        let Some(place) = &mut self.places[at] else { return };
        let waker = Waker::from(place.wakers[with].0.clone());
        let context = &mut Context::from_waker(&waker);
        let said = match &mut place.future {
            Fut::Sleep(sleep) => {
                let said = sleep.as_mut().poll(context);
                assert_eq!(sleep.is_elapsed(), said == Poll::Ready(Ok(())));
                said.map_err(TimeoutError::Timer)
            }
            Fut::Timeout(limited) => match limited.as_mut().poll(context) {
                Poll::Ready(Ok(())) => {
                    assert!(place.finished.get());
                    place.said = true;
                    place.waits = None;
                    return;
                }
                Poll::Ready(Err(TimeoutError::Elapsed)) => Poll::Ready(Ok(())),
                Poll::Ready(Err(why)) => Poll::Ready(Err(why)),
                Poll::Pending => Poll::Pending,
            },
        };
        let limited = matches!(place.future, Fut::Timeout(_));
        assert!(!(limited && place.finished.get()), "it was ready");
        // A limit counts from the first poll on that finds its future pending, be it refused.
        let (earliest, latest) = place.over.unwrap_or(counts);
        match said {
            Poll::Ready(Ok(())) => {
                assert!(place.said || now >= earliest, "over before its time");
                // With another waker, no task is left to wait.
                let waits = place.waits.take().is_some_and(|(of, _)| of == with);
                assert!(!waits || place.past, "over, and somebody waits");
                place.over = Some((earliest, latest));
                place.said = true;
            }
            Poll::Pending => {
                assert!(!place.said && !shut, "over, or shut down, and pending");
                assert!(!place.past, "its time was reset to none, and it is pending");
                let late = place.waits.is_none() && now >= latest;
                assert!(!late, "pending after its time: {now} of {latest}");
                assert!(place.waits.is_some() || !full, "beyond the capacity");
                let since = place.waits.map_or(self.caught_up, |(_, since)| since);
                place.over = Some((earliest, latest));
                place.waits = Some((with, since));
                place.woken = false;
            }
            Poll::Ready(Err(TimeoutError::Timer(TimerError::Full))) => {
                assert!(full && place.waits.is_none(), "refused with {waiting}");
                assert!(now < latest && !place.said, "refused when it was over");
                place.over = Some((earliest, latest.max(counts.1)));
                self.refused += 1;
            }
            Poll::Ready(Err(TimeoutError::Timer(TimerError::Closed))) => {
                assert!(shut && place.waits.is_none(), "closed, and was not");
                assert!(!place.said, "closed, and over before");
                let over = place.over.is_some_and(|(_, latest)| now >= latest);
                assert!(!over, "closed, and its time was up");
                place.over = Some((earliest, latest.max(counts.1)));
            }
            Poll::Ready(Err(why)) => panic!("{why}"),
        }
    }

    fn reset(&mut self, at: usize, after: u64) {
        let over = self.over_after(after.max(1));
        let Some(place) = &mut self.places[at] else { return };
        let length = Duration::from_nanos(after);
        match &mut place.future {
            Fut::Sleep(sleep) => {
                sleep.reset(length);
                assert!(!sleep.is_elapsed());
            }
            Fut::Timeout(limited) => limited.as_mut().reset(length),
        }
        place.over = Some((self.now + after, over.1));
        place.said = false;
        place.past = after == 0;
        // The old deadline may have fired if the clock has jumped: the reset drives then.
        let far = place.waits.map(|(with, _)| (with, u64::MAX));
        self.heard(far.map(|far| (at, far)));
        if let Some(place) = &mut self.places[at] {
            place.woken = false;
            place.waits = place.waits.map(|(with, _)| (with, self.caught_up));
        }
    }

    /// Checks the wake-ups: once, by the right waker, in time. A timeout that was reset just now
    /// may have been woken by its old deadline.
    fn heard(&mut self, reset: Option<(usize, (usize, u64))>) {
        for (at, place) in self.places.iter_mut().enumerate() {
            let Some(place) = place else { continue };
            for (which, (count, heard)) in place.wakers.iter_mut().enumerate() {
                let woken = count.0.load(Relaxed) - std::mem::replace(heard, count.0.load(Relaxed));
                if woken == 0 {
                    continue;
                }
                assert_eq!(woken, 1, "woken more than once");
                let Some((with, since)) = place.waits.take() else {
                    panic!("woken, and nobody waited");
                };
                assert_eq!(which, with, "another waker");
                let (earliest, _) = place.over.expect("it was registered");
                // What is further off than an entry can express is registered again.
                let far = earliest.saturating_sub(since) / self.interval + 2 >= EXPRESSED;
                let by_old = reset.is_some_and(|(of, _)| of == at);
                place.woken = self.now >= earliest;
                let early = !place.woken && !self.shut && !far && !by_old;
                assert!(!early, "woken at {}, due at {earliest}", self.now);
            }
        }
    }

    fn drive(&mut self, budget: Option<u8>) {
        let mut polled = self.timeouts.poll(budget.map_or(usize::MAX, usize::from));
        while budget.is_none() && polled.more {
            polled = self.timeouts.poll(usize::MAX);
        }
        self.heard(None);
        if budget.is_some() {
            return;
        }
        self.caught_up = self.now;
        let here = self.places.iter().flatten();
        let waits = here.filter(|place| place.waits.is_some());
        for (_, latest) in waits.filter_map(|place| place.over) {
            assert!(self.now < latest, "not woken at {}: {latest}", self.now);
            let next = polled.next.expect("somebody waits, and nobody would come back");
            let next = u128::from(self.now) + next.as_nanos();
            assert!(next <= u128::from(latest), "back at {next}, {latest} is due");
        }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Begin(at, limits, after) => self.begin(at, limits, after),
            Op::Poll(at, with) => self.poll(at, with),
            Op::Finish(at) => {
                if let Some(place) = &self.places[at] {
                    place.finished.set(true);
                }
            }
            Op::Reset(at, after) => self.reset(at, after),
            Op::Drop(at) => self.places[at] = None,
            Op::Pass(time) => {
                // Five centuries at most: more does not fit in nanoseconds.
                let time = time.min((1u64 << 62).saturating_sub(self.now));
                self.clock.advance(Duration::from_nanos(time));
                self.now += time;
            }
            Op::Drive(budget) => self.drive(budget),
            Op::ShutDown => {
                self.timeouts.shutdown();
                self.shut = true;
                self.heard(None);
                assert_eq!(self.waiting(), 0, "somebody still waits");
            }
        }
        self.heard(None);
        assert_eq!(self.timeouts.len(), self.waiting());
        for place in self.places.iter().flatten() {
            for (which, (count, _)) in place.wakers.iter().enumerate() {
                let waits = place.waits.is_some_and(|(with, _)| with == which);
                assert_eq!(Arc::strong_count(count) - 1, usize::from(waits), "wakers are held");
            }
        }
    }
}

/// Runs a history of one `Timeouts`.
pub(crate) fn timeouts(bytes: &[u8]) {
    let bytes = &mut Unstructured::new(bytes);
    let interval = bytes.int_in_range(10_000..=20_000_000u64);
    let shards = bytes.int_in_range(0..=2u32);
    let capacity = perhaps(bytes, |bytes| bytes.int_in_range(1..=PLACES));
    let (Ok(interval), Ok(shards), Ok(capacity), Ok(ops)) =
        (interval, shards, capacity, steps(bytes, op))
    else {
        return;
    };
    let clock = ManualClock::new();
    let mut builder = Timeouts::builder()
        .interval(Duration::from_nanos(interval))
        .shards(1 << shards)
        .clock(clock.clone());
    set!(builder.capacity(capacity));
    let timeouts = builder.build_manual().expect("all settings are sound");
    let mut run = Run {
        timeouts: &timeouts,
        clock: &clock,
        interval,
        capacity,
        now: 0,
        caught_up: 0,
        shut: false,
        refused: 0,
        places: Default::default(),
    };
    for &op in &ops {
        run.step(op);
    }
    run.step(Op::Pass(200_000_000_000));
    run.step(Op::Drive(None));
    run.places = Default::default();
    assert!(timeouts.is_empty(), "something is left");
    let metrics = timeouts.metrics();
    let ended = metrics.fired + metrics.cancelled + metrics.closed;
    assert_eq!(metrics.registered, ended, "{metrics:?}");
    let capacity = capacity.map(|capacity| capacity as u64);
    assert_eq!((metrics.capacity, metrics.refused), (capacity, run.refused));
    assert_eq!(metrics.waker_panics, 0);
}
