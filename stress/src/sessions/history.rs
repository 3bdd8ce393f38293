//! The law of a key: its history in a round must have an explanation.
//!
//! An explanation is an order of all operations on the key and all expiries that were told, in which each result is right, and
//! which does not contradict time: what had ended before another began comes before it. The key is absent at first and at the
//! end. Found by search, as Wing and Gong do; few operations on a key overlap, so it is short.
//!
//! A renewal does not take back what an earlier one reported: see [`Search::floor`].

use crate::timeline::Reading;
use expiry::Handle;
use std::collections::HashSet;

/// The most events of a history.
pub const MOST: usize = u128::BITS as usize;
/// The most situations of a history from which no way leads to the end: as much as fits in some 100 MB.
const MOST_DEAD_ENDS: usize = 1 << 20;

/// What an operation did, or that the key expired. Times are the queue's, in nanoseconds since it was built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Did {
    /// An update put the key in.
    Inserted { expiry: u64, handle: Handle },
    /// An update renewed it: to the time told, or to that which it had.
    Renewed { expiry: Option<u64> },
    /// A touch renewed it, by this handle if it had one.
    Touched { by: Option<Handle> },
    /// A touch, or a remove, did not find it.
    Gone { by: Option<Handle> },
    /// A remove took it out, and said when it would have expired.
    Removed { expiry: u64 },
    /// It was told as expired.
    Expired,
}

/// An event, with readings from before and after it. Of an expiry, those of the poll that found it; a handler has none from
/// before it was called.
#[derive(Debug, Clone, Copy)]
pub struct Event<D = Did> {
    /// What happened.
    pub did: D,
    /// Real time, in which events are ordered.
    pub began: u64,
    pub ended: u64,
    /// The queue's clock, by which keys expire.
    pub from: u64,
    pub to: u64,
    /// Of what sets a deadline: how long the key was to live.
    pub timeout: u64,
}

impl<D> Event<D> {
    /// One between two readings.
    pub fn between(did: D, before: Reading, after: Reading, timeout: u64) -> Self {
        Event {
            did,
            began: before.real,
            ended: after.real,
            from: before.clock,
            to: after.clock,
            timeout,
        }
    }
}

/// What the queue has promised.
#[derive(Debug, Clone, Copy)]
pub struct Promise {
    /// The clock reading that its times are counted from was between these two.
    pub built: (u64, u64),
    /// By how much a deadline may be rounded up.
    pub rounding: u64,
    /// How much later than its deadline a key may be told, if that is promised at all.
    pub late: Option<u64>,
}

impl Event {
    fn sets_deadline(&self) -> bool {
        matches!(self.did, Did::Inserted { .. } | Did::Renewed { .. } | Did::Touched { .. })
    }

    /// Between which clock readings the deadline is that this sets: by when it was asked for, and by what it said.
    fn deadline(&self, promise: &Promise) -> (u64, u64) {
        let asked = (
            self.from.saturating_add(self.timeout),
            self.to.saturating_add(self.timeout + promise.rounding),
        );
        match self.did {
            Did::Inserted { expiry, .. } | Did::Renewed { expiry: Some(expiry) } => {
                let said = promise.at(expiry);
                (asked.0.max(said.0), asked.1.min(said.1))
            }
            _ => asked,
        }
    }
}

impl Promise {
    /// Between which clock readings one of the queue's times is.
    fn at(&self, time: u64) -> (u64, u64) {
        (self.built.0.saturating_add(time), self.built.1.saturating_add(time))
    }
}

/// A key that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    /// Event that began this stay.
    first: u8,
    /// Event that set its deadline last.
    last: u8,
    /// Clock reading before which that deadline does not lie.
    floor: u64,
}

/// What a key is: there, or not.
type Stay = Option<Held>;

/// How strict an explanation must be.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Deadlines {
    /// No key expires before its deadline, and a remove names the deadline that it had.
    Kept,
    /// Nobody looks at deadlines.
    Ignored,
}

struct Search<'a> {
    events: &'a [Event],
    promise: &'a Promise,
    deadlines: Deadlines,
    /// Situations from which no way leads to the end.
    dead_ends: HashSet<(u128, Stay)>,
    /// The way so far.
    order: Vec<u8>,
}

impl Search<'_> {
    /// What the key is after `at`, if that can come next.
    fn step(&self, done: u128, stay: Stay, at: usize) -> Option<Stay> {
        let event = &self.events[at];
        let number = at as u8;
        let is_stay = |by: Option<Handle>| {
            let Some(held) = stay else {
                return false;
            };
            let began = self.events[usize::from(held.first)].did;
            by.is_none_or(|by| matches!(began, Did::Inserted { handle, .. } if handle == by))
        };
        let renewed = |held: Held| Held { last: number, floor: self.floor(held, number), ..held };
        match event.did {
            Did::Inserted { .. } => stay.is_none().then_some(Some(Held {
                first: number,
                last: number,
                floor: self.deadline(number).0,
            })),
            Did::Renewed { .. } => Some(Some(renewed(stay?))),
            Did::Touched { by } => is_stay(by).then(|| stay.map(renewed)),
            Did::Gone { by } => (!is_stay(by)).then_some(stay),
            Did::Removed { expiry } => {
                let held = stay?;
                (self.deadlines == Deadlines::Ignored || self.is_due(held, expiry)).then_some(None)
            }
            Did::Expired => {
                let held = stay?;
                (self.deadlines == Deadlines::Ignored || self.may_expire(done, held, at))
                    .then_some(None)
            }
        }
    }

    /// The clock reading before which the deadline does not lie that the event `next` sets.
    ///
    /// With as long a timeout as the last one, or a longer one, it is no nearer than the last one.
    /// With a shorter one it counts from a reading that is no earlier than that of the last one.
    fn floor(&self, held: Held, next: u8) -> u64 {
        let (last, event) = (&self.events[usize::from(held.last)], &self.events[usize::from(next)]);
        let least = if event.timeout >= last.timeout || event.did == (Did::Renewed { expiry: None })
        {
            held.floor
        } else {
            let reading = held.floor.saturating_sub(last.timeout + self.promise.rounding);
            reading + event.timeout
        };
        self.deadline(next).0.max(least)
    }

    fn deadline(&self, at: u8) -> (u64, u64) {
        self.events[usize::from(at)].deadline(self.promise)
    }

    /// Whether the deadline may be the time that was told.
    fn is_due(&self, held: Held, told: u64) -> bool {
        let (latest, told) = (self.deadline(held.last).1, self.promise.at(told));
        held.floor <= told.1 && told.0 <= latest
    }

    /// Whether the expiry `at` may end the key now: its deadline had come when it was told, and whatever was over before the
    /// deadline has its place already.
    fn may_expire(&self, done: u128, held: Held, at: usize) -> bool {
        let due = held.floor;
        let over = |other: usize| done >> other & 1 == 0 && self.events[other].to < due;
        due <= self.events[at].to && !(0..self.events.len()).any(|other| other != at && over(other))
    }

    /// Finds the rest of an explanation.
    fn explain(&mut self, done: u128, stay: Stay) -> bool {
        let open = |at: &usize| done >> at & 1 == 0;
        let Some(first_end) =
            (0..self.events.len()).filter(open).map(|at| self.events[at].ended).min()
        else {
            return stay.is_none();
        };
        // A search ends, whatever the queue has done.
        if self.dead_ends.len() >= MOST_DEAD_ENDS || self.dead_ends.contains(&(done, stay)) {
            return false;
        }
        for at in (0..self.events.len()).filter(open) {
            if self.events[at].began > first_end {
                continue;
            }
            if let Some(next) = self.step(done, stay, at) {
                self.order.push(at as u8);
                if self.explain(done | 1 << at, next) {
                    return true;
                }
                self.order.pop();
            }
        }
        self.dead_ends.insert((done, stay));
        false
    }
}

/// What was found in a history: violations, each a check's name and the reason; and how late expiries were.
#[derive(Debug, Default)]
pub struct Found {
    /// What is wrong.
    pub wrong: Vec<(&'static str, &'static str)>,
    /// Nanoseconds between deadlines and when they were told.
    pub lateness: Vec<u64>,
}

/// Judges the history of a key. `events` are sorted by when they began.
pub fn judge(events: &[Event], promise: &Promise) -> Found {
    let mut found = Found::default();
    let mut wrong = |check, why| found.wrong.push((check, why));
    let count = |of: fn(&Did) -> bool| events.iter().filter(|event| of(&event.did)).count();
    let began = count(|did| matches!(did, Did::Inserted { .. }));
    let ended = count(|did| matches!(did, Did::Removed { .. } | Did::Expired));
    if began > ended {
        wrong("every_stay_ends", "it was put in more often than it ended");
    }
    if ended > began {
        wrong("told_once", "it ended more often than it was put in");
    }
    let crossed = |event: &&Event| {
        let (from, to) = event.deadline(promise);
        event.sets_deadline() && from > to
    };
    if events.iter().any(|event| crossed(&event)) {
        wrong("deadlines_right", "an update told a time that it was not asked for");
    }
    if !found.wrong.is_empty() {
        return found;
    }
    if events.len() > MOST {
        found.wrong.push(("histories_explained", "too long to be explained"));
        return found;
    }
    match explanation(events, promise, Deadlines::Kept) {
        Some(order) => lateness(events, promise, &order, &mut found),
        None => found.wrong.push(why(events, promise)),
    }
    found
}

fn explanation(events: &[Event], promise: &Promise, deadlines: Deadlines) -> Option<Vec<u8>> {
    let mut search =
        Search { events, promise, deadlines, dead_ends: HashSet::new(), order: Vec::new() };
    search.explain(0, None).then_some(search.order)
}

/// What is wrong with a history without an explanation.
fn why(events: &[Event], promise: &Promise) -> (&'static str, &'static str) {
    if explanation(events, promise, Deadlines::Ignored).is_none() {
        return (
            "histories_explained",
            "no order of its operations makes all results right, of those that were looked at",
        );
    }
    let first_due = events
        .iter()
        .filter(|event| event.sets_deadline())
        .map(|event| event.deadline(promise).0)
        .min();
    let early = |event: &Event| event.did == Did::Expired && Some(event.to) < first_due;
    if events.iter().any(early) {
        return ("none_early", "it expired before any deadline that it has had");
    }
    (
        "renewed_is_renewed",
        "it ended before the deadline that its touches and updates had been told",
    )
}

/// How late the expiries of an explanation are.
fn lateness(events: &[Event], promise: &Promise, order: &[u8], found: &mut Found) {
    let mut last = None;
    for &at in order {
        let event = &events[usize::from(at)];
        if event.sets_deadline() {
            last = Some(event.deadline(promise));
        } else if let (Did::Expired, Some((from, to))) = (event.did, last) {
            found.lateness.push(event.to.saturating_sub(from));
            if promise.late.is_some_and(|late| event.to > to.saturating_add(late)) {
                found.wrong.push(("none_late", "it expired later than promised"));
            }
        }
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
pub mod tests;
