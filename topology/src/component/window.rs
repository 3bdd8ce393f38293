//! Windows: bolts that hold the tuples of a key until they are complete, or their time is up.

use super::Bolt;
use crate::collect::BoltCollector;
use crate::task::nanos;
use crate::tuple::Tuple;
use expiry::wheel::{Geometry, TimerId, TimerWheel};
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

/// A bolt that holds the tuples of each key until `is_full` says so, or until `time` has passed
/// since the first of them came. It then emits what `make` makes of them, derived from all of
/// them, and acks them. So it is a window by count, a window by time, or a join of two streams.
///
/// Have it [ticked](crate::BoltStage::tick_every): a window ends at the first tick after its time.
/// The topology's timeout must exceed `time`, the spout's `max_pending` bounds what is held, and a
/// grouping by the same key brings its tuples to one task. A message that is replayed may be in a
/// window twice. If a closure panics, the tuples that this task holds time out.
///
/// # Examples
///
/// An order and its payment, which come in any order. What has no partner after a minute is
/// emitted alone.
///
/// ```
/// use expiry_topology::{window, Collect, ManualClock, TopologyBuilder, Tuple, VecSpout};
/// use std::time::Duration;
///
/// #[derive(Clone)]
/// enum Event {
///     Order(u32),
///     Paid(u32),
/// }
///
/// let of = |event: &Event| match event { Event::Order(id) | Event::Paid(id) => *id };
/// let both = |held: &[Tuple<Event>]| {
///     held.iter().any(|event| matches!(**event, Event::Order(_)))
///         && held.iter().any(|event| matches!(**event, Event::Paid(_)))
/// };
/// let joined = move |id: &u32, held: &[Tuple<Event>]| Some((*id, both(held)));
/// let minute = Duration::from_secs(60);
///
/// let (clock, seen, topology) = (ManualClock::new(), Collect::new(), TopologyBuilder::new());
/// topology.timeout(minute * 2);
/// let events = [Event::Order(1), Event::Paid(2), Event::Paid(1)];
/// let events = topology.spout("events", VecSpout::new(events).instances());
/// let joins = topology
///     .bolt("join", move |_| window(minute, of, both, joined))
///     .key_by(&events, of)
///     .tick_every(Duration::from_secs(1));
/// topology.bolt("seen", seen.instances()).shuffle(&joins);
/// let mut topology = topology.simulate(&clock)?;
/// topology.settle(100);
/// assert_eq!(seen.all(), [(1, true)]);
/// assert!(topology.run(200)); // until the minute has passed
/// assert_eq!(seen.all(), [(1, true), (2, false)]);
/// # Ok::<(), expiry_topology::BuildError>(())
/// ```
///
/// A window by count: `|held| held.len() == 100`. By time alone: `|_| false`.
#[doc(alias("join", "tumbling", "batch"))]
pub fn window<In, Out, K, R>(
    time: Duration,
    key_by: impl FnMut(&In) -> K + Send,
    is_full: impl FnMut(&[Tuple<In>]) -> bool + Send,
    make: impl FnMut(&K, &[Tuple<In>]) -> R + Send,
) -> impl Bolt<In, Out>
where
    In: Send + 'static,
    Out: Clone + 'static,
    K: Hash + Eq + Clone + Send,
    R: IntoIterator<Item = Out>,
{
    let ends = TimerWheel::new(Geometry::NANOS_1MS, 0);
    Windows { time, key_by, is_full, make, open: HashMap::new(), ends }
}

struct Windows<In, K, By, Full, Make> {
    time: Duration,
    key_by: By,
    is_full: Full,
    make: Make,
    open: HashMap<K, (Vec<Tuple<In>>, TimerId)>,
    /// When windows end, in nanoseconds of the topology's time.
    ends: TimerWheel<K>,
}

impl<In, Out, K, R, By, Full, Make> Bolt<In, Out> for Windows<In, K, By, Full, Make>
where
    In: Send + 'static,
    Out: Clone + 'static,
    K: Hash + Eq + Clone + Send,
    R: IntoIterator<Item = Out>,
    By: FnMut(&In) -> K + Send,
    Full: FnMut(&[Tuple<In>]) -> bool + Send,
    Make: FnMut(&K, &[Tuple<In>]) -> R + Send,
{
    fn execute(&mut self, tuple: Tuple<In>, out: &mut BoltCollector<'_, Out>) {
        let (key, ends) = ((self.key_by)(&tuple), &mut self.ends);
        let end = nanos(out.now().saturating_add(self.time));
        let opened = || (Vec::new(), ends.schedule(end, key.clone()));
        let (held, _) = self.open.entry(key.clone()).or_insert_with(opened);
        held.push(tuple);
        if (self.is_full)(held) {
            if let Some((held, timer)) = self.open.remove(&key) {
                self.ends.cancel(timer);
                close(&mut self.make, &key, held, out);
            }
        }
    }

    fn tick(&mut self, out: &mut BoltCollector<'_, Out>) {
        while let Some(ended) = self.ends.pop(nanos(out.now())) {
            if let Some((held, _)) = self.open.remove(&ended.value) {
                close(&mut self.make, &ended.value, held, out);
            }
        }
    }
}

/// Emits what `make` makes of a window's tuples, and acks them.
fn close<In: 'static, Out: Clone + 'static, K, R: IntoIterator<Item = Out>>(
    make: &mut impl FnMut(&K, &[Tuple<In>]) -> R,
    key: &K,
    held: Vec<Tuple<In>>,
    out: &mut BoltCollector<'_, Out>,
) {
    for message in make(key, &held) {
        out.emit(&held, message);
    }
    held.into_iter().for_each(|tuple| out.ack(tuple));
}
