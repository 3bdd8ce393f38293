//! What operators can see: counters, the lateness of expiry, and the roots in flight.

use super::outcome::{Root, RootId};
use super::trees::{Tree, Trees};
use super::AckTracker;
use crate::core::engine::Frontend;
use crate::core::lateness::Lateness;
use crate::core::lease::State;
use crate::core::occupancy::Occupant;
use crate::kit::snapshot::snapshot;
use crate::sync::Ordering;
use crate::time::NEVER;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

snapshot! {
    /// Counters of one shard. Monotonic but for `live`. Read one after another while others count,
    /// so sums are exact only when nothing is going on.
    ///
    /// ```
    /// use expiry::{edge, AckError, AckTracker, ShardMetrics};
    ///
    /// let tracker = AckTracker::builder().build_manual()?;
    /// let work = edge();
    /// let root = tracker.issue(work, 42)?;
    /// tracker.ack(root, work)?;
    /// assert_eq!(tracker.ack(root, work), Err(AckError::NotLive)); // too late
    /// let metrics = tracker.metrics();
    /// let ShardMetrics { inserted, acked, late, live, .. } = metrics.total;
    /// assert_eq!((inserted, acked, late, live), (1, 1, 1, 0));
    /// let acked: u64 = metrics.shards.iter().map(|shard| shard.acked).sum();
    /// assert_eq!(acked, 1); // in one of them
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct ShardMetrics of [<T: 'static>] trees: Trees<T>, shard {
        /// Entries now: roots in flight and early arrivals.
        live: u64 as LIVE = trees.live(shard).0;
        /// Slots whose memory is held, in use or not: about 41 bytes each, and 16 to 29 more for an
        /// id that was chosen. `live` of `slots` is the share of the held memory in use.
        slots: u64 as SLOTS = trees.engine.held(shard);
        /// Tables of the index of chosen ids: 1, and more while it grows or shrinks and the reaper
        /// migrates ids over.
        tables: u64 as TABLES = 1 + trees.engine.keys.at(shard).tables_to_migrate() as u64;
        /// Roots that were tracked.
        inserted: u64 as INSERTED sum begun;
        /// Roots that were acked.
        acked: u64 as ACKED sum acked;
        /// Roots that failed.
        failed: u64 as FAILED sum failed;
        /// Roots that timed out.
        expired: u64 as EXPIRED sum expired;
        /// Roots that a shutdown has cancelled.
        cancelled: u64 as CLOSED sum cancelled;
        /// Acks, fails and resets of roots that had ended, or that were never issued.
        late: u64 as LATE sum late;
        /// Inits that were refused because the root was in flight already.
        duplicate: u64 as DUPLICATE sum duplicate;
        /// Roots of which something came before their init, and was held; however much it was.
        early_held: u64 as EARLY_HELD sum early_held;
        /// Early arrivals that met their init.
        early_merged: u64 as EARLY_MERGED sum early_merged;
        /// Early arrivals that waited in vain.
        early_expired: u64 as EARLY_EXPIRED sum early_expired;
        /// Early arrivals that were refused because too many were held.
        early_refused: u64 as EARLY_REFUSED sum refused;
        /// How late expirations were seen.
        lateness: Lateness as LATENESS = trees.engine.lateness(shard);
    }
}

snapshot! {
    /// A snapshot of a tracker's counters.
    ///
    /// ```
    /// use expiry::{edge, AckTracker};
    ///
    /// let tracker = AckTracker::builder().build()?;
    /// tracker.issue(edge(), 42)?;
    /// let metrics = tracker.metrics();
    /// println!("{} of {} slots", metrics.total.live, metrics.total.slots);
    /// println!("99 % of timeouts were seen within {:?}", metrics.total.lateness.quantile(0.99));
    /// assert_eq!((metrics.total.inserted, metrics.handler_panics), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct Metrics by ShardMetrics of [<T: 'static>] trees: Trees<T> {
        /// The most entries there may be, if that is bounded.
        capacity: Option<u64> as CAPACITY = trees.engine.admission.limit();
        /// Calls that found no room for their root, or for what came early: the capacity was
        /// reached, there was no memory, or there were too many ids of one hash. (Where acks of too
        /// many roots came early, that is [`early_refused`](ShardMetrics::early_refused).)
        refused: u64 as REFUSED = trees.engine.refusals();
        /// Time that the reaper has spent working, of all the time since the tracker was built.
        reaper_busy: Duration as REAPER_BUSY = Duration::from_nanos(trees.engine.busy.get());
        /// How often the reaper has woken up.
        reaper_rounds: u64 as REAPER_ROUNDS = trees.engine.rounds.get();
        /// Panics of the handler that were caught, and of the clock.
        handler_panics: u64 as HANDLER_PANICS
            = trees.panics.count() + trees.engine.deadlines.clock_panics();
        /// Outcomes that went to the second queue of the channel; see
        /// [`WhenFull::Spill`](crate::WhenFull::Spill).
        spilled: u64 as SPILLED = trees.target.astray().0;
        /// Outcomes that were lost: dropped by [`WhenFull::Drop`](crate::WhenFull::Drop), or sent
        /// after the receiver was gone.
        undelivered: u64 as UNDELIVERED = trees.target.astray().1;
    }
    /// `cancelled` is `expiry_closed_total`.
    publish
}

/// A root in flight, as it was when the call looked at it.
///
/// ```
/// use expiry::{edge, AckTracker, InFlight, ManualClock};
/// use std::time::Duration;
///
/// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
/// let tracker = AckTracker::builder().timeout(30 * second).clock(clock.clone()).build_manual()?;
/// tracker.issue(edge(), 42)?;
/// clock.advance(10 * second);
/// let stuck: InFlight = tracker.oldest(1)[0];
/// assert_eq!((stuck.owner, stuck.age, stuck.remaining), (42, 10 * second, Some(20 * second)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InFlight {
    /// Which root.
    pub root: RootId,
    /// Its owner's number.
    pub owner: u64,
    /// Time since its init, by the tracker's clock. The cheap reading of a
    /// [`Clock`](crate::Clock) may make it too long by the clock's lag.
    pub age: Duration,
    /// How long until it times out, if no ack comes; `None` if it never does.
    pub remaining: Option<Duration>,
}

impl<T: 'static> Trees<T> {
    /// Calls `f` with every root in flight: each read consistently, together no snapshot.
    fn each_in_flight<'s>(&'s self, mut f: impl FnMut(InFlight, Occupant<'s, Tree<T>>)) {
        let now = self.engine.deadlines.now();
        self.engine.for_each(|live| {
            let lease = live.lease;
            let issued = lease.is(State::LiveIssued);
            if !issued && !lease.is(State::Live) {
                return;
            }
            let key = live.slot.fields().key.load(Ordering::Acquire);
            let owner = live.slot.fields().owner.load(Ordering::Acquire);
            let age = self.age(live.id, now);
            // Unless the lease is the same afterwards, key and owner may be of different occupants.
            let again = live.slot.lease();
            if again.generation() != lease.generation() || again.state() != lease.state() {
                return;
            }
            let live = Occupant { lease: again, ..live };
            let deadline = self.idle_or(&live, self.engine.deadlines.of(again));
            let root = InFlight {
                root: if issued { RootId::Issued(Root(key)) } else { RootId::Chosen(key) },
                owner,
                age,
                remaining: (deadline != NEVER)
                    .then(|| self.engine.deadlines.ticks().until(now, deadline)),
            };
            f(root, live);
        });
    }
}

impl<T: Send + 'static> AckTracker<T> {
    /// A snapshot of the counters. O(threads x shards); delays no other thread.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::of(&self.trees)
    }

    /// Entries now: roots in flight and early arrivals. O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.trees.engine.len(&*self.trees)
    }

    /// Whether there are no entries: neither roots in flight nor early arrivals.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `most` oldest roots in flight, oldest first. O(capacity): looks at every slot, and
    /// delays no other thread.
    #[must_use]
    pub fn oldest(&self, most: usize) -> Vec<InFlight> {
        let mut oldest = BTreeMap::new();
        self.trees.each_in_flight(|root, _| {
            oldest.insert(Reverse((root.age, root.root)), root);
            if oldest.len() > most {
                oldest.pop_last();
            }
        });
        oldest.into_values().collect()
    }

    /// All roots in flight of one owner. O(capacity).
    #[must_use]
    pub fn owned_by(&self, owner: u64) -> Vec<InFlight> {
        let mut found = Vec::new();
        self.trees.each_in_flight(|root, _| {
            if root.owner == owner {
                found.push(root);
            }
        });
        found
    }

    /// How many roots in flight are younger than each of `bounds` (ascending) but no younger than
    /// the one before it, and last, how many are older than all of them. O(capacity).
    #[must_use]
    pub fn counts_by_age(&self, bounds: &[Duration]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len() + 1];
        self.trees.each_in_flight(|root, _| {
            counts[bounds.partition_point(|&bound| bound <= root.age)] += 1;
        });
        counts
    }

    /// Fails every root of one owner that is in flight, for instance because its client has gone.
    /// Returns how many this call failed. O(capacity).
    ///
    /// The call finds the roots first, and then fails each. A root that has ended meanwhile, by a
    /// handler of this call for instance, keeps its outcome, and is not counted. A later root under
    /// the same id is another root, which the call leaves alone. The call may miss roots whose init
    /// is under way.
    pub fn fail_all(&self, owner: u64) -> usize {
        let mut all = Vec::new();
        self.trees.each_in_flight(|in_flight, seen| {
            if in_flight.owner == owner {
                all.push((seen, in_flight.root));
            }
        });
        all.into_iter().filter(|&(seen, root)| self.trees.fail_seen(seen, root)).count()
    }
}
