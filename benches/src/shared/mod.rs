//! Timers that all threads share, behind one trait, statically dispatched: scheduled and cancelled by any thread, fired by a
//! thread of their own. Requests with a timeout, most of which end before it.
//!
//! [`run`] keeps a fixed number of timers in a window; a *life* cancels one at random and schedules another in its place, 10 to 20
//! minutes ahead. After every 64th life one more is scheduled, 2 to 51 milliseconds ahead, which nobody cancels.
//!
//! # What makes it fair, beside what the crate's first page says
//!
//! * Time is real, because the peers' is. Everybody is exact to the millisecond and never early.
//! * Who only hands a request to another thread is done with it when that thread is: the clock stops when all that was asked has
//!   taken effect ([`SharedTimers::sync`]). What counts is processor time of the whole process, as for keyed stores.
//! * A value is 8 bytes, and so is the name of a timer, or what it is found by.
//! * The work is checked: what is cancelled was there, where that is told; all that was left to fire has fired, once, by number and
//!   by sum; nothing else has; as many timers are there as there should be.

mod hash_wheel;
mod locked;
mod nothing;
mod roots;

pub use hash_wheel::HashWheelThread;
pub use locked::{Lockable, Locked};
pub use nothing::Nothing;
pub use roots::Roots;

use crate::lab::at_once;
use crate::process::{resident, settled, Took};
use crate::timers::{BTree, CompactingHeap, Wheel};
use crate::window::{draw, mix, Order, GROUP};
use serde_json::{json, Value as Json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What has fired. It outlives all timers, so that none of them counts references to it.
#[derive(Debug, Default)]
pub struct Fired {
    count: AtomicU64,
    sum: AtomicU64,
}

impl Fired {
    /// A new one, of 16 bytes, which is never freed.
    #[must_use]
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    /// A timer with this value has fired.
    #[inline]
    pub fn tell(&self, value: u64) {
        self.sum.fetch_add(value, Relaxed);
        self.count.fetch_add(1, Relaxed);
    }

    /// How many have, and the sum of their values.
    pub fn total(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.sum.load(Relaxed))
    }
}

/// Somebody who keeps timers for all threads.
pub trait SharedTimers: Send + Sync + Sized + 'static {
    /// What it is called in tables.
    const NAME: &'static str;
    /// Whether it does the work, or only shows what asking for it costs.
    const WORKS: bool = true;
    /// Names a timer.
    type Id: Copy + Send;
    /// What a thread needs to ask.
    type Handle: Send;

    /// Makes one without timers, which tells `fired` what fires.
    fn new(fired: &'static Fired) -> Self;

    /// For one more thread.
    fn handle(&self) -> Self::Handle;

    /// A timer that fires `after` from now. Nobody else has its value.
    fn schedule(&self, handle: &mut Self::Handle, after: Duration, value: u64) -> Self::Id;

    /// Takes a timer out. False if it was not there, where that is told.
    fn cancel(&self, handle: &mut Self::Handle, id: Self::Id) -> bool;

    /// Waits until everything that was asked before has taken effect.
    fn sync(&self) {}

    /// How many timers there are, of so many that were scheduled in all.
    fn live(&self, scheduled: u64) -> u64;
}

/// Lives between two timers that fire.
const FIRE_EVERY: usize = 64;
/// How long it is waited for timers to fire that are due.
const PATIENCE: Duration = Duration::from_secs(20);

/// 10 to 20 minutes.
fn far(value: u64) -> Duration {
    Duration::from_millis(600_000 + mix(value) % 600_000)
}

/// 2 to 51 milliseconds.
fn near(value: u64) -> Duration {
    Duration::from_millis(2 + mix(value) % 50)
}

/// A load, and the positions drawn for it. Made once, used by everybody.
pub struct Load {
    /// Timers in the windows of all threads together.
    pub in_flight: usize,
    /// Threads, each with its share of them.
    pub threads: usize,
    /// Lives in a round, all threads together.
    pub lives: usize,
    positions: Vec<Arc<[u32]>>,
}

impl Load {
    /// A load with about these numbers: each thread's shares are rounded to groups.
    #[must_use]
    pub fn new(in_flight: usize, threads: usize, lives: usize) -> Self {
        let round = |n: usize| (n / threads / GROUP).max(1) * GROUP;
        let (window, steps) = (round(in_flight), round(lives));
        Load {
            in_flight: window * threads,
            threads,
            lives: steps * threads,
            positions: (0..threads as u64)
                .map(|thread| draw(Order::Random, window, steps, thread))
                .collect(),
        }
    }

    /// Operations that are timed: lives have two, a timer that is left to fire has two.
    #[must_use]
    pub fn operations(&self) -> usize {
        let near = self.lives / self.threads / FIRE_EVERY * self.threads;
        2 * (self.lives + near)
    }
}

/// A thread's window.
struct Window<'a, T: SharedTimers> {
    handle: T::Handle,
    ids: Vec<T::Id>,
    positions: &'a [u32],
    /// The value that the next timer gets.
    next: u64,
}

impl<T: SharedTimers> Window<'_, T> {
    #[inline]
    fn schedule(&mut self, timers: &T, after: fn(u64) -> Duration) -> (T::Id, u64) {
        let value = self.next;
        self.next += 1;
        let id = timers.schedule(&mut self.handle, after(value), value);
        (id, value)
    }

    fn fill(&mut self, timers: &T, count: usize) {
        for _ in 0..count {
            let (id, _) = self.schedule(timers, far);
            self.ids.push(id);
        }
    }

    /// How many were not there to be cancelled, and number and sum of those that are to fire.
    fn live(&mut self, timers: &T) -> (usize, (u64, u64)) {
        let (mut missing, mut count, mut sum) = (0, 0, 0_u64);
        for (step, &at) in self.positions.iter().enumerate() {
            let old = self.ids[at as usize];
            missing += usize::from(!timers.cancel(&mut self.handle, old));
            self.ids[at as usize] = self.schedule(timers, far).0;
            if step % FIRE_EVERY == FIRE_EVERY - 1 {
                sum = sum.wrapping_add(self.schedule(timers, near).1);
                count += 1;
            }
        }
        (missing, (count, sum))
    }

    fn empty(&mut self, timers: &T) -> usize {
        let ids = std::mem::take(&mut self.ids).into_iter();
        ids.filter(|&id| !timers.cancel(&mut self.handle, id))
            .count()
    }
}

/// A round with fresh timers.
///
/// # Panics
///
/// If somebody does not do the work.
#[must_use]
pub fn run<T: SharedTimers>(load: &Load) -> Took {
    within::<T>(load, PATIENCE)
}

fn within<T: SharedTimers>(load: &Load, patience: Duration) -> Took {
    let fired = Fired::new();
    let timers = T::new(fired);
    let check = |what: &str, is: u64, should: u64| {
        assert!(
            !T::WORKS || is == should,
            "{}: {what}: {is}, not {should}",
            T::NAME
        );
    };
    let mut windows: Vec<Window<'_, T>> = load
        .positions
        .iter()
        .zip(1..)
        .map(|(positions, thread)| Window {
            handle: timers.handle(),
            ids: Vec::new(),
            positions,
            next: thread << 40,
        })
        .collect();
    let share = load.in_flight / load.threads;
    at_once(&mut windows, |_, window| window.fill(&timers, share));
    timers.sync();
    let in_flight = load.in_flight as u64;
    check("scheduled", timers.live(in_flight), in_flight);

    let before = settled();
    let (mut wall, done) = at_once(&mut windows, |_, window| window.live(&timers));
    let asked = Instant::now();
    timers.sync();
    wall += asked.elapsed();
    let missing: usize = done.iter().map(|(missing, _)| missing).sum();
    let due = done.iter().fold((0, 0_u64), |(count, sum), (_, due)| {
        (count + due.0, sum.wrapping_add(due.1))
    });
    let waiting = Instant::now();
    while T::WORKS && fired.total().0 < due.0 && waiting.elapsed() < patience {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cpu = settled() - before;
    check("not there to be cancelled", missing as u64, 0);
    check("fired", fired.total().0, due.0);
    check("sum of those that fired", fired.total().1, due.1);
    let scheduled = in_flight + load.lives as u64 + due.0;
    check("there after it", timers.live(scheduled), in_flight);

    let missing = at_once(&mut windows, |_, window| window.empty(&timers)).1;
    timers.sync();
    check(
        "missing in the end",
        missing.iter().sum::<usize>() as u64,
        0,
    );
    check("left", timers.live(scheduled), 0);
    check("fired in the end", fired.total().0, due.0);
    Took::of(cpu, wall, load.threads, load.operations())
}

/// In a process of its own, what so many timers take.
fn weigh<T: SharedTimers>(entries: usize) -> Json {
    let timers = T::new(Fired::new());
    let mut handle = timers.handle();
    // Their pages, written to, and what is there once.
    let first = timers.schedule(&mut handle, far(0), 0);
    let mut ids = vec![first; entries];
    timers.sync();
    let before = resident();
    for (id, value) in ids.iter_mut().zip(1..) {
        *id = timers.schedule(&mut handle, far(value), value);
    }
    timers.sync();
    let scheduled = entries as u64 + 1;
    assert_eq!(timers.live(scheduled), scheduled, "{}", T::NAME);
    json!({ "name": T::NAME, "grown": resident() - before })
}

/// The child's side.
#[must_use]
pub fn serve(timers: &str, entries: usize) -> Option<Json> {
    Some(match timers {
        "roots" => weigh::<Roots>(entries),
        "hash-wheel" => weigh::<HashWheelThread>(entries),
        "btree" => weigh::<Locked<BTree>>(entries),
        "heap" => weigh::<Locked<CompactingHeap>>(entries),
        "wheel" => weigh::<Locked<Wheel>>(entries),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
