//! Keys that must be touched to live.

use super::idle::Term;
use super::removed::{Ended, EndedSlot};
use super::store::{Cause, Entered, Pair, Place, Store, Touched, Wanted};
use super::{StoreError, StoreMetrics};
use crate::channel::{channel, Receiver, Sender, WhenFull};
use crate::core::engine::{Claim, Face};
use crate::core::lease::Lease;
use crate::core::slot::Slot;
use crate::error::BuildError;
use crate::setup::{setters, Reaper, Setup};
use crate::sync::stack::Stack;
use crate::time::Timeout;
use std::borrow::Borrow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "async")]
use std::future::Future;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

type Hasher = crate::hash::RandomState;
type Inner<K> = Store<K, ()>;

/// Settings of an [`ExpiryQueue`].
///
/// | setting | default |
/// |---|---|
/// | [`interval`](Self::interval) | 100 ms |
/// | [`shards`](Self::shards) | the number of cores, as a power of two, at most 16 |
/// | [`capacity`](Self::capacity) | unbounded |
/// | [`clock`](Self::clock) | [`CoarseClock`](crate::CoarseClock) |
/// | [`reaper_budget`](Self::reaper_budget) | 4096 |
/// | [`pause_grace`](Self::pause_grace) | none |
///
/// ```
/// use expiry::ExpiryQueue;
/// use std::time::Duration;
///
/// let leases = ExpiryQueue::builder()
///     .interval(Duration::from_millis(50))
///     .capacity(1_000_000)
///     .build_with_handler(|worker: &String| println!("{worker} has fallen silent"))?;
/// leases.update("worker 1".to_string(), Duration::from_secs(10))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until one of its build methods is called"]
pub struct ExpiryQueueBuilder<K> {
    setup: Setup,
    _keys: std::marker::PhantomData<fn(K)>,
}

impl<K> fmt::Debug for ExpiryQueueBuilder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryQueueBuilder")
            .field("interval", &self.setup.interval)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueueBuilder<K> {
    setters! {
        "keys", "build",
        /// The granularity of time: expiry times are rounded up to it. At least 10 microseconds.
        ///
        /// # Examples
        ///
        /// ```
        /// # use expiry::{ExpiryQueue, ManualClock};
        /// # use std::time::Duration;
        /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
        /// let leases = ExpiryQueue::builder().interval(10 * second).clock(clock.clone()).build()?;
        /// leases.update("worker", 12 * second)?; // until 20
        /// clock.advance(19 * second);
        /// assert!(leases.poll().is_empty());
        /// clock.advance(second);
        /// assert_eq!(leases.poll().len(), 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        interval,
        /// # Examples
        ///
        /// ```
        /// # use expiry::{BuildError, ExpiryQueue};
        /// let leases = ExpiryQueue::<u64>::builder().shards(2).build()?;
        /// assert_eq!(leases.metrics().shards.len(), 2);
        /// let refused = ExpiryQueue::<u64>::builder().shards(3).build();
        /// assert_eq!(refused.err(), Some(BuildError::BadShards { shards: 3 }));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        shards,
        /// The most keys there may be at once; beyond it new ones are refused with [`StoreError::Full`], unless something is due, which is
        /// then expired first. Exact.
        ///
        /// # Examples
        ///
        /// ```
        /// # use expiry::{ExpiryQueue, ManualClock, StoreError};
        /// # use std::time::Duration;
        /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
        /// let leases = ExpiryQueue::builder().capacity(1).clock(clock.clone()).build()?;
        /// leases.update("worker 1", 10 * second)?;
        /// assert_eq!(leases.update("worker 2", 10 * second), Err(StoreError::Full)); // one too many
        /// clock.advance(11 * second);
        /// leases.update("worker 2", 10 * second)?; // worker 1 is due, and makes room
        /// assert_eq!(*leases.poll()[0].key(), "worker 1"); // and is told all the same
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        capacity,
        /// # Examples
        ///
        /// ```
        /// # use expiry::{ExpiryQueue, ManualClock};
        /// # use std::time::Duration;
        /// let clock = ManualClock::new();
        /// let leases = ExpiryQueue::builder().clock(clock.clone()).build()?;
        /// leases.update("worker", Duration::from_secs(60))?;
        /// assert!(leases.poll().is_empty());
        /// clock.advance(Duration::from_secs(61)); // in no time
        /// assert_eq!(leases.poll().len(), 1);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        clock,
        /// # Examples
        ///
        /// ```
        /// # use expiry::{BuildError, ExpiryQueue};
        /// # use std::time::Duration;
        /// let leases = ExpiryQueue::builder()
        ///     .reaper_budget(100) // the handler is slow
        ///     .build_with_handler(|worker: &u64| println!("worker {worker} has fallen silent"))?;
        /// leases.update(7, Duration::from_secs(10))?;
        /// let refused = ExpiryQueue::builder().reaper_budget(0).build_with_handler(|_: &u64| ());
        /// assert_eq!(refused.err(), Some(BuildError::ZeroBudget));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        reaper_budget,
        /// # Examples
        ///
        /// ```
        /// # use expiry::ExpiryQueue;
        /// # use std::time::Duration;
        /// let grown = |seed| -> Result<Vec<u64>, Box<dyn std::error::Error>> {
        ///     let leases = ExpiryQueue::builder().seed(seed).shards(16).build()?;
        ///     for key in 0..8000_u64 {
        ///         leases.update(key, Duration::from_secs(10))?;
        ///     }
        ///     Ok(leases.metrics().shards.iter().map(|shard| shard.tables).collect())
        /// };
        /// assert_eq!(grown(7)?, grown(7)?); // where the keys are, and so where the index has grown
        /// assert_ne!(grown(7)?, grown(8)?);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        seed,
    }

    /// What the process sleeps through is not held against the keys: where nobody came by for longer than `threshold`
    /// although something was due, their holders could not renew them, and keys that came due meanwhile get the length
    /// of that stall on top of their time, once, instead of expiring at once. At an interval of a second, after a stall from
    /// second 10 to second 30, what was due at 12 is due at 33.
    ///
    /// A stall is seen from the time that something was due to be looked at, and by whoever polls next:
    ///
    /// * With a reaper, where that wakes up later than at the next expiration by more than `threshold`: the process was stopped,
    ///   starved, or suspended with a clock that counts it.
    /// * Without one, where the caller has asked for the [`wait_time`](ExpiryQueue::wait_time) since the last poll, and polls later
    ///   than it was told to by more than `threshold`.
    /// * Without one, where the caller has not asked, and polls later than both the end of the last poll and the next expiration as
    ///   known then, by more than `threshold`.
    ///
    /// A caller that polls more rarely than `threshold` by habit does not stall. Two polls in a row that come later than that
    /// look like two stalls; from the third one on the queue goes by the shorter of the two gaps, until the caller polls often
    /// again for as long as `threshold`. So a key of such a caller expires two polls late at most, and a stall is seen only where it is
    /// longer than the habit by `threshold`. A caller that goes by the wait time has no such habit.
    ///
    /// No stall is what a handler, or anybody who is at polling, takes, even if the process is stopped meanwhile; a gap that
    /// ends before anything is due; a gap after a poll that found nothing to wait for; and one of 2^38 intervals and more.
    /// A clock that stands still while the machine is suspended, as the default one does, shows nothing of that, and none
    /// of it counts against any key.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let leases = ExpiryQueue::builder()
    ///     .interval(second)
    ///     .pause_grace(5 * second)
    ///     .clock(clock.clone())
    ///     .build()?;
    /// leases.update("worker 1", 12 * second)?;
    /// clock.advance(10 * second);
    /// assert!(leases.poll().is_empty());
    /// clock.advance(20 * second); // the process was stopped
    /// assert!(leases.poll().is_empty());
    /// assert!(leases.touch("worker 1", 12 * second)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause_grace(mut self, threshold: Duration) -> Self {
        self.setup.pause_grace = Some(threshold);
        self
    }

    /// Builds a queue that is polled, by whoever likes.
    ///
    /// # Errors
    ///
    /// [`BuildError`] says which setting is out of range, or what the system refused.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let leases = ExpiryQueue::builder().clock(clock.clone()).build()?;
    /// leases.update("worker 1", 10 * second)?;
    /// clock.advance(11 * second);
    /// assert!(leases.contains("worker 1")); // until somebody polls: there is no thread
    /// assert_eq!(leases.poll().len(), 1);
    /// assert!(leases.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<ExpiryQueue<K>, BuildError> {
        self.told_to(Target::Poll(Stack::new()))
    }

    /// Builds a queue whose reaper thread hands what expires to `handler`, which may use the queue, be slow, or panic: that is
    /// caught and counted.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock};
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let (sender, silent) = mpsc::channel();
    /// let leases = ExpiryQueue::builder()
    ///     .clock(clock.clone()) // by a clock that runs, no poll is needed
    ///     .build_with_handler(move |worker: &u64| sender.send(*worker).expect("it is read"))?;
    /// leases.update(7, 10 * second)?;
    /// clock.advance(11 * second);
    /// while !leases.is_empty() {
    ///     assert!(leases.poll().is_empty()); // the handler is given it
    /// }
    /// assert_eq!(silent.recv()?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build_with_handler(
        self,
        handler: impl Fn(&K) + Send + Sync + 'static,
    ) -> Result<ExpiryQueue<K>, BuildError> {
        let budget = self.setup.budget;
        self.told_to(Target::Handler(Box::new(handler)))?
            .started(budget)
    }

    /// Builds a queue whose reaper thread sends what expires into a channel of `length`.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, WhenFull};
    /// use std::time::Duration;
    ///
    /// let ms = Duration::from_millis;
    /// let (leases, mut expired) = ExpiryQueue::builder()
    ///     .interval(ms(10))
    ///     .build_with_channel(1000, WhenFull::Wait)?;
    /// leases.update("worker 1", ms(30))?;
    /// assert_eq!(*expired.next().unwrap().key(), "worker 1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build), and [`BuildError::ZeroChannel`], [`BuildError::ChannelTooLong`].
    pub fn build_with_channel(
        self,
        length: usize,
        when_full: WhenFull,
    ) -> Result<(ExpiryQueue<K>, Receiver<Expired<K>>), BuildError> {
        let (sender, receiver) = channel(length, when_full)?;
        let budget = self.setup.budget;
        let queue = self.told_to(Target::Channel(sender))?.started(budget)?;
        Ok((queue, receiver))
    }

    /// As [`build_with_channel`](Self::build_with_channel), without a thread: keys expire, into the channel, in
    /// [`ExpiryQueue::poll`], which returns none. With a [`ManualClock`](crate::ManualClock) for tests of who reads the channel.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock, WhenFull};
    /// use std::time::Duration;
    ///
    /// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// let (leases, mut expired) = ExpiryQueue::builder()
    ///     .clock(clock.clone())
    ///     .build_manual_with_channel(1000, WhenFull::Spill)?;
    /// leases.update("worker 1", second)?;
    /// clock.advance(2 * second);
    /// assert!(leases.poll().is_empty());
    /// assert_eq!(*expired.next().unwrap().key(), "worker 1");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`build_with_channel`](Self::build_with_channel), but for the thread.
    pub fn build_manual_with_channel(
        self,
        length: usize,
        when_full: WhenFull,
    ) -> Result<(ExpiryQueue<K>, Receiver<Expired<K>>), BuildError> {
        let (sender, receiver) = channel(length, when_full)?;
        Ok((self.told_to(Target::Channel(sender))?, receiver))
    }

    fn told_to(self, target: Target<K>) -> Result<ExpiryQueue<K>, BuildError> {
        let store = Arc::new(Store::build(&self.setup, None, None, None)?);
        Ok(ExpiryQueue {
            shared: Arc::new(Shared {
                store,
                target,
                #[cfg(feature = "async")]
                kept: crate::setup::Leftovers::new(),
            }),
            hasher: self.setup.hasher(),
            reaper: None,
        })
    }
}

/// Names one stay of a key in a queue, from its insertion to its end: touching by it skips the look-up.
///
/// ```
/// use expiry::{ExpiryQueue, Updated};
/// use std::time::Duration;
///
/// let leases = ExpiryQueue::builder().build()?;
/// let ten = Duration::from_secs(10);
/// if let Updated::Inserted { handle, .. } = leases.update("worker 1", ten)? {
///     assert!(leases.touch_by(handle, ten)?);
///     leases.remove("worker 1");
///     leases.update("worker 1", ten)?;
///     assert!(!leases.touch_by(handle, ten)?); // another stay
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(Place);

/// What [`ExpiryQueue::update`] did. Times are counted from when the queue was built.
///
/// ```
/// use expiry::{ExpiryQueue, ManualClock, Updated};
/// use std::time::Duration;
///
/// let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
/// let leases = ExpiryQueue::builder().interval(second).clock(clock.clone()).build()?;
/// assert!(matches!(leases.update("worker 1", 10 * second)?, Updated::Inserted { .. }));
/// assert_eq!(leases.update("worker 1", 10 * second)?, Updated::Unchanged);
/// clock.advance(second);
/// assert_eq!(leases.update("worker 1", 10 * second)?, Updated::Renewed { expiry: 11 * second });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    /// The key was not there: it is now.
    Inserted {
        /// When it expires.
        expiry: Duration,
        /// For touching it without a look-up.
        handle: Handle,
    },
    /// It expires at another time now.
    Renewed {
        /// When.
        expiry: Duration,
    },
    /// It would have expired at this time anyway.
    Unchanged,
}

/// A key that has expired. It lies in the queue's memory, which stays for as long as this does; the queue's driver drops the key
/// after this has been dropped.
///
/// ```
/// # use expiry::{ExpiryQueue, ManualClock};
/// # use std::time::Duration;
/// # let clock = ManualClock::new();
/// # let queue = ExpiryQueue::builder().interval(Duration::from_secs(1)).clock(clock.clone()).build()?;
/// queue.update("key", Duration::from_secs(5))?;
/// clock.advance(Duration::from_secs(60));
/// let expired = queue.poll();
/// assert_eq!((*expired[0], expired[0].expiry()), ("key", Duration::from_secs(5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Expired<K: 'static> {
    ended: Ended<'static, K, ()>,
    expiry: Duration,
}

impl<K> Expired<K> {
    /// The key.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{ExpiryQueue, ManualClock};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// # let leases = ExpiryQueue::builder().clock(clock.clone()).build()?;
    /// leases.update("worker 1".to_string(), 10 * second)?;
    /// clock.advance(11 * second);
    /// let silent: Vec<String> = leases.poll().iter().map(|expired| expired.key().clone()).collect();
    /// assert_eq!(silent, ["worker 1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn key(&self) -> &K {
        self.ended.key()
    }

    /// When it was due, counted as by [`update`](ExpiryQueue::update): from when the queue was built.
    ///
    /// # Examples
    ///
    /// ```
    /// # use expiry::{ExpiryQueue, ManualClock};
    /// # use std::time::Duration;
    /// # let (clock, second) = (ManualClock::new(), Duration::from_secs(1));
    /// # let leases = ExpiryQueue::builder().interval(second).clock(clock.clone()).build()?;
    /// leases.update("worker 1", 10 * second)?;
    /// clock.advance(25 * second); // since the queue was built
    /// let late: Vec<Duration> = leases.poll().iter().map(|expired| 25 * second - expired.expiry()).collect();
    /// assert_eq!(late, [15 * second]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn expiry(&self) -> Duration {
        self.expiry
    }
}

impl<K> Deref for Expired<K> {
    type Target = K;

    fn deref(&self) -> &K {
        self.ended.key()
    }
}

impl<K: fmt::Debug> fmt::Debug for Expired<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expired")
            .field("key", self.ended.key())
            .field("expiry", &self.expiry)
            .finish()
    }
}

/// Keys that must be touched to live, after ZooKeeper's `ExpiryQueue`: sessions, leases, heartbeats.
///
/// Expiry times are rounded up to the interval: `(t / interval + 1) * interval` at the latest, and never early. A touch of a
/// live key is at most one compare-and-swap and moves nothing; it says whether it renewed the key or came too late, and of a touch
/// and an expiry that meet exactly one happens. Whatever the interleaving, no key is lost, stays for ever, expires twice, or
/// expires after a touch that said it was renewed.
///
/// A key ends when a poll, or the reaper, comes to it: one whose time is up may be renewed until then. Dropping the queue ends all
/// keys, untold, and waits for the reaper.
///
/// ```
/// use expiry::{ExpiryQueue, ManualClock, Updated};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let queue = ExpiryQueue::builder()
///     .interval(Duration::from_secs(1))
///     .clock(clock.clone())
///     .build()?;
/// queue.update("worker 1", Duration::from_secs(10))?;
/// queue.update("worker 2", Duration::from_secs(10))?;
/// clock.advance(Duration::from_secs(8));
/// assert!(matches!(queue.update("worker 1", Duration::from_secs(10))?, Updated::Renewed { .. }));
/// clock.advance(Duration::from_secs(3));
/// let expired: Vec<_> = queue.poll().iter().map(|key| **key).collect();
/// assert_eq!(expired, ["worker 2"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExpiryQueue<K: 'static> {
    shared: Arc<Shared<K>>,
    hasher: Hasher,
    reaper: Option<Reaper>,
}

/// What a queue shares with its reaper.
struct Shared<K: 'static> {
    /// Expired keys that nobody has dropped yet keep it, but not the target that they may lie in.
    store: Arc<Inner<K>>,
    target: Target<K>,
    /// What a shutdown as a future has ended.
    #[cfg(feature = "async")]
    kept: crate::setup::Leftovers<Expired<K>>,
}

/// Where what expires goes, unless a poll has found it.
enum Target<K: 'static> {
    /// What has expired in an update or a touch, to be polled.
    Poll(Stack<Expired<K>>),
    Handler(Box<dyn Fn(&K) + Send + Sync>),
    Channel(Sender<Expired<K>>),
}

impl<K: Hash + Eq + Send + Sync + 'static> fmt::Debug for ExpiryQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiryQueue")
            .field("len", &self.len())
            .field("interval", &self.shared.store.engine.ticks.interval())
            .field("reaper", &self.reaper.is_some())
            .finish_non_exhaustive()
    }
}

impl<K: 'static> Shared<K> {
    /// How long after the queue was built a tick begins.
    fn since_start(&self, tick: u64) -> Duration {
        Duration::from_nanos(tick.saturating_mul(self.store.engine.ticks.interval_nanos()))
    }

    /// As it would have expired, what was ended before that.
    fn left(&self, ended: EndedSlot<&Inner<K>, K, ()>, lease: Lease) -> Expired<K> {
        Expired {
            ended: Ended::kept(ended, &self.store),
            expiry: self.expiry(lease),
        }
    }

    /// When a key is due.
    fn expiry(&self, lease: Lease) -> Duration {
        self.since_start(lease.deadline_near(self.store.engine.about_now()))
    }

    /// What the reaper does before it ends.
    fn last(&self) {
        #[cfg(feature = "async")]
        self.kept.fill(|left| {
            self.store
                .close_with(|ended, lease| left.push(self.left(ended, lease)));
        });
        self.store.close();
        self.finish_channel();
    }

    /// All has been sent: what expires does so in a shard that the shutdown has not been to yet, or has waited at.
    fn finish_channel(&self) {
        if let Target::Channel(sender) = &self.target {
            sender.finish();
        }
    }

    /// What has expired in this slot, which the caller has ended.
    fn expired(&self, claim: &Claim<'_, Pair<K, ()>>, deadline: u64) -> Expired<K> {
        let ended = self.store.ended_by_driver(claim, Cause::Expired);
        Expired {
            ended: Ended::kept(ended, &self.store),
            expiry: self.since_start(deadline),
        }
    }
}

impl<K: 'static> Face<Pair<K, ()>> for Shared<K> {
    fn may_end(&self, claim: &Claim<'_, Pair<K, ()>>, lease: Lease) -> bool {
        self.store.may_end(claim, lease)
    }

    fn prepare(&self, id: u32, slot: Slot<'_, Pair<K, ()>>, lease: Lease) {
        self.store.prepare(id, slot, lease);
    }

    fn expired(&self, claim: Claim<'_, Pair<K, ()>>, _: Lease, deadline: u64, _: u64) {
        match &self.target {
            Target::Poll(stack) => stack.push(self.expired(&claim, deadline)),
            Target::Handler(handler) => {
                let ended = self.store.ended_by_driver(&claim, Cause::Expired);
                self.store.guard(|| handler(ended.key()));
            }
            Target::Channel(sender) => sender.send(self.expired(&claim, deadline)),
        }
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.store.live(shard)
    }

    fn tail(&self, id: u32) -> u32 {
        self.store.tail(id)
    }

    fn discard(&self, slot: Slot<'_, Pair<K, ()>>, free: impl FnOnce()) {
        self.store.discard(slot, free);
    }
}

/// A driver's round whose finds go to `into`.
struct Poll<'a, K: 'static, F> {
    shared: &'a Shared<K>,
    into: F,
}

impl<K, F: Fn(Expired<K>)> Face<Pair<K, ()>> for Poll<'_, K, F> {
    fn may_end(&self, claim: &Claim<'_, Pair<K, ()>>, lease: Lease) -> bool {
        self.shared.may_end(claim, lease)
    }

    fn prepare(&self, id: u32, slot: Slot<'_, Pair<K, ()>>, lease: Lease) {
        self.shared.prepare(id, slot, lease);
    }

    fn expired(&self, claim: Claim<'_, Pair<K, ()>>, _: Lease, deadline: u64, _: u64) {
        (self.into)(self.shared.expired(&claim, deadline));
    }

    fn live(&self, shard: usize) -> (u64, u64) {
        self.shared.live(shard)
    }

    fn tail(&self, id: u32) -> u32 {
        self.shared.store.tail(id)
    }

    fn discard(&self, slot: Slot<'_, Pair<K, ()>>, free: impl FnOnce()) {
        self.shared.store.discard(slot, free);
    }
}

impl<K: Hash + Eq + Send + Sync + 'static> ExpiryQueue<K> {
    /// Settings with defaults.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// use expiry::{ExpiryQueue, Updated};
    ///
    /// let leases = ExpiryQueue::builder().build()?; // to be polled, in intervals of 100 ms
    /// let Updated::Inserted { expiry, .. } = leases.update("worker 1", Duration::from_secs(10))? else {
    ///     unreachable!("it was not there")
    /// };
    /// assert!(expiry >= Duration::from_secs(10) && expiry.subsec_millis() % 100 == 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> ExpiryQueueBuilder<K> {
        ExpiryQueueBuilder {
            setup: Setup::default(),
            _keys: std::marker::PhantomData,
        }
    }

    /// With its reaper.
    fn started(mut self, budget: usize) -> Result<Self, BuildError> {
        let reaper = Reaper::start(
            &self.shared,
            |shared| &shared.store.engine,
            budget,
            Shared::last,
        )?;
        self.reaper = Some(reaper);
        Ok(self)
    }

    fn store(&self) -> &Inner<K> {
        &self.shared.store
    }

    /// The deadline of what begins, or is renewed, now. After a jump of the clock by years it ends what is due.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        use std::hash::BuildHasher;
        self.store().engine.hash(self.hasher.hash_one(key))
    }

    /// Inserts the key, or renews it: it expires `timeout` from now, rounded up to the interval.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// use expiry::Updated;
    ///
    /// assert!(matches!(leases.update("worker", 10 * second)?, Updated::Inserted { .. }));
    /// assert!(matches!(leases.update("worker", 60 * second)?, Updated::Renewed { .. }));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`], and for a new key [`StoreError::Full`],
    /// [`StoreError::OutOfMemory`], [`StoreError::Closed`].
    pub fn update(&self, key: K, timeout: Duration) -> Result<Updated, StoreError> {
        let (store, timeout) = (self.store(), Timeout::After(timeout));
        let hash = self.hash(&key);
        let mut fresh = Some((key, ()));
        let mut attempts = 0;
        let mut lost = None;
        loop {
            let pin = store.engine.pin();
            let found = {
                let Some((key, ())) = &fresh else {
                    unreachable!("a call inserts what it has yet to insert");
                };
                let is_key = |other: &K| other == key;
                let wanted = Wanted {
                    hash,
                    is_key: &is_key,
                };
                store.find(&pin, wanted)
            };
            if let Some(found) = found {
                match store.renew(&found, &mut lost, timeout, &*self.shared)? {
                    Some(Touched::Renewed(deadline)) => {
                        return Ok(Updated::Renewed {
                            expiry: self.shared.since_start(deadline),
                        })
                    }
                    Some(_) => return Ok(Updated::Unchanged),
                    None => continue,
                }
            }
            // The clock is read for each attempt: what went before may have taken its time.
            let deadline = store.deadline(timeout, &*self.shared)?;
            let term = Term {
                deadline,
                idle: None,
            };
            match store.enter(&pin, hash, &mut fresh, term) {
                Ok(Entered::Done(found)) => {
                    return Ok(Updated::Inserted {
                        expiry: self.shared.since_start(deadline),
                        handle: Handle(found.place()),
                    })
                }
                Ok(Entered::Closed(..)) => return Err(StoreError::Closed),
                Ok(Entered::Found(_) | Entered::Again) => {}
                Err(error) => {
                    drop(pin);
                    if !store.makes_room(error, &mut attempts, &*self.shared) {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Renews the key if it is there, be it that its time is up. True if it was; then it does not expire by its old time any more.
    ///
    /// ```
    /// # use expiry::ExpiryQueue;
    /// # use std::time::Duration;
    /// # let leases = ExpiryQueue::builder().build()?;
    /// let ten = Duration::from_secs(10);
    /// leases.update("worker 1".to_string(), ten)?;
    /// assert!(leases.touch("worker 1", ten)?);
    /// leases.remove("worker 1");
    /// assert!(!leases.touch("worker 1", ten)?); // it has lost its lease, and does not get it back so
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::ZeroTimeout`], [`StoreError::TimeoutTooLong`].
    #[inline]
    pub fn touch<Q: Hash + Eq + ?Sized>(
        &self,
        key: &Q,
        timeout: Duration,
    ) -> Result<bool, StoreError>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let is_key = |other: &K| other.borrow() == key;
        let wanted = Wanted {
            hash: self.hash(key),
            is_key: &is_key,
        };
        let touched = store.touch(
            &store.engine.pin(),
            wanted,
            Timeout::After(timeout),
            &*self.shared,
        )?;
        Ok(touched.is_alive())
    }

    /// As [`touch`](Self::touch), without the look-up.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// leases.update("worker", 10 * second)?;
    /// let (_, handle) = leases.get("worker").unwrap();
    /// assert!(leases.touch_by(handle, 10 * second)?); // no look-up
    /// leases.remove("worker");
    /// assert!(!leases.touch_by(handle, 10 * second)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`touch`](Self::touch).
    #[inline]
    pub fn touch_by(&self, handle: Handle, timeout: Duration) -> Result<bool, StoreError> {
        let touched = self
            .store()
            .touch_at(handle.0, Timeout::After(timeout), &*self.shared)?;
        Ok(touched.is_alive())
    }

    /// Takes the key out. When it would have expired, or `None` if it was not there.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// leases.update("worker", 10 * second)?;
    /// assert!(leases.remove("worker").is_some());
    /// assert!(leases.remove("worker").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Duration>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let is_key = |other: &K| other.borrow() == key;
        let wanted = Wanted {
            hash: self.hash(key),
            is_key: &is_key,
        };
        let pin = store.engine.pin();
        let (ended, lease) = store.remove(&pin, wanted)?;
        drop(pin);
        store.tell(&ended, Cause::Removed);
        Some(self.expiry(lease))
    }

    /// When a key is due.
    fn expiry(&self, lease: Lease) -> Duration {
        self.shared.expiry(lease)
    }

    /// When the key expires, and a handle of it; `None` if it is not there. Changes nothing.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (clock, second) = (expiry::ManualClock::new(), Duration::from_secs(1));
    /// # let leases = expiry::ExpiryQueue::builder().interval(second).clock(clock.clone()).build()?;
    /// leases.update("worker", 10 * second)?;
    /// let (expiry, _) = leases.get("worker").unwrap();
    /// assert_eq!(expiry, 10 * second); // counted from when the queue was built
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<(Duration, Handle)>
    where
        K: Borrow<Q>,
    {
        let store = self.store();
        let is_key = |other: &K| other.borrow() == key;
        let wanted = Wanted {
            hash: self.hash(key),
            is_key: &is_key,
        };
        let found = store.find(&store.engine.pin(), wanted)?;
        Some((self.expiry(found.lease), Handle(found.place())))
    }

    /// Whether the key is there, be it that its time is up.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// leases.update("worker", 10 * second)?;
    /// assert!(leases.contains("worker"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn contains<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// What has expired, all of it, however far the clock has jumped. Never waits.
    ///
    /// Any number of threads may poll, and share the work: a shard is polled by one of them at a time, the others leave it out.
    /// Each key is given to one of them. One that comes back with nothing found nothing due, or only in shards that
    /// others were at. (A poll in a handler finds nothing.) Where there is a handler or a channel, that is given what a poll
    /// finds, and the poll returns nothing.
    ///
    /// Sorted by [expiry](Expired::expiry), keys of the same in no order. Between polls of several threads there is no
    /// order: of two keys the one due later may be given out first, in another shard. What one thread's poll returns was due
    /// before everything that comes out of a poll that begins after it, if nobody else polls, nobody held an update up half-way,
    /// and the clock does not go back.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let (clock, second) = (expiry::ManualClock::new(), Duration::from_secs(1));
    /// # let leases = expiry::ExpiryQueue::builder().interval(second).clock(clock.clone()).build()?;
    /// leases.update("worker", 10 * second)?;
    /// assert!(leases.poll().is_empty());
    /// clock.advance(20 * second);
    /// let expired = leases.poll();
    /// assert_eq!((*expired[0].key(), expired.len()), ("worker", 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn poll(&self) -> Vec<Expired<K>> {
        let mut expired = Vec::new();
        while self.gather(&mut expired, usize::MAX) {}
        expired.sort_unstable_by_key(Expired::expiry);
        expired
    }

    /// As [`poll`](Self::poll), with at most about `budget` steps of work: expired keys, buckets looked at, cascades. What it
    /// finds is appended to `into`, sorted by itself; of what was due it may be any. True if there is more to do: what the
    /// budget did not cover stays where it is, for whoever polls next.
    ///
    /// ```
    /// # use expiry::{ExpiryQueue, ManualClock};
    /// # use std::time::Duration;
    /// # let clock = ManualClock::new();
    /// # let queue = ExpiryQueue::builder().clock(clock.clone()).build()?;
    /// for key in 0..1000u64 {
    ///     queue.update(key, Duration::from_secs(1))?;
    /// }
    /// clock.advance(Duration::from_secs(2));
    /// let mut expired = Vec::new();
    /// while queue.poll_into(&mut expired, 100) {
    ///     // other work of this thread
    /// }
    /// assert_eq!(expired.len(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll_into(&self, into: &mut Vec<Expired<K>>, budget: usize) -> bool {
        let before = into.len();
        let more = self.gather(into, budget);
        into[before..].sort_unstable_by_key(Expired::expiry);
        more
    }

    fn gather(&self, into: &mut Vec<Expired<K>>, budget: usize) -> bool {
        let (before, shared) = (into.len(), &*self.shared);
        let engine = &shared.store.engine;
        let Target::Poll(lapsed) = &shared.target else {
            return engine.poll_shared(budget, shared, || false);
        };
        into.extend(lapsed.take());
        let into = RefCell::new(into);
        let poll = Poll {
            shared,
            into: |key| into.borrow_mut().push(key),
        };
        engine.poll_shared(budget, &poll, || into.borrow().len() > before)
    }

    /// How long until something is due: zero if something is, `None` if nothing will be. Wait-free, O(shards).
    ///
    /// Never longer than that, also while others update and poll: when [`update`](Self::update) or a touch has returned,
    /// this is at most the time until then (or one interval, where it has come and [`poll`](Self::poll) cannot find the key yet, because
    /// another thread has been held up half-way through an update). It may be shorter: of keys that
    /// were removed or renewed the old time counts until it has come and a poll has been through; and where keys are due in more
    /// than 2^27 - 1 intervals, a poll looks that far.
    ///
    /// After ZooKeeper's `getWaitTime`. Who sleeps for as long is not woken by an update with a shorter timeout: sleep
    /// no longer than the shortest one, or wait for whoever updates, or have a reaper.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, ManualClock};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = ExpiryQueue::builder().interval(Duration::from_secs(1)).clock(clock.clone()).build()?;
    /// for (session, seconds) in [("a", 7), ("b", 3), ("c", 7)] {
    ///     queue.update(session, Duration::from_secs(seconds))?;
    /// }
    /// let (mut expired, mut closed) = (Vec::new(), Vec::new());
    /// while let Some(wait) = queue.wait_time() {
    ///     clock.advance(wait); // where the clock is a real one, sleep
    ///     while queue.poll_into(&mut expired, 1000) {}
    ///     for session in expired.drain(..) {
    ///         closed.push((session.expiry().as_secs(), *session));
    ///     }
    /// }
    /// closed.sort();
    /// assert_eq!(closed, [(3, "b"), (7, "a"), (7, "c")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wait_time(&self) -> Option<Duration> {
        match &self.shared.target {
            Target::Poll(lapsed) if !lapsed.is_empty() => Some(Duration::ZERO),
            _ => self.store().engine.wait_time(),
        }
    }

    /// Which keys expire when: expiry time to keys. O(capacity); no snapshot.
    ///
    /// ```
    /// # use expiry::{ExpiryQueue, ManualClock};
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let queue = ExpiryQueue::builder().interval(second).clock(ManualClock::new()).build()?;
    /// queue.update("a", 5 * second)?;
    /// queue.update("b", 7 * second)?;
    /// assert!(queue.dump().into_iter().eq([(5 * second, vec!["a"]), (7 * second, vec!["b"])]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> BTreeMap<Duration, Vec<K>>
    where
        K: Clone,
    {
        let mut dump = BTreeMap::<_, Vec<K>>::new();
        self.store().each(|_pin, found| {
            // SAFETY: found after the pin.
            let (key, ()) = unsafe { found.pair() };
            dump.entry(self.expiry(found.lease))
                .or_default()
                .push(key.clone());
        });
        dump
    }

    /// What it has been doing. O(threads x shards).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// leases.update("worker", 10 * second)?;
    /// let metrics = leases.metrics();
    /// assert_eq!((metrics.total.live, metrics.undelivered), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> StoreMetrics {
        let mut metrics = self.store().metrics();
        if let Target::Channel(sender) = &self.shared.target {
            (metrics.spilled, metrics.undelivered) = sender.astray();
        }
        metrics
    }

    /// Keys now, those included whose time is up but which nobody has come to yet. O(threads x shards).
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let second = Duration::from_secs(1);
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// leases.update("worker", 10 * second)?;
    /// assert_eq!(leases.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.store().len()
    }

    /// Whether there are none.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let leases = expiry::ExpiryQueue::builder().build()?;
    /// assert!(leases.is_empty());
    /// leases.update("worker", Duration::from_secs(10))?;
    /// assert!(!leases.is_empty());
    /// leases.remove("worker");
    /// assert!(leases.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for room, where the [capacity](ExpiryQueueBuilder::capacity) is bounded: see [`Room`](crate::Room), which has an
    /// example. What is due makes room when somebody polls, or the reaper comes to it.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::{ExpiryQueue, StoreError};
    /// use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let (leases, ten) = (ExpiryQueue::builder().capacity(1).build()?, Duration::from_secs(10));
    /// leases.update("worker 1", ten)?;
    /// let room = leases.room();
    /// leases.remove("worker 1"); // by another task, usually
    /// room.await?;
    /// leases.update("worker 2", ten)?;
    /// assert_eq!(leases.update("worker 3", ten), Err(StoreError::Full)); // wait again
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn room(&self) -> crate::Room<'_> {
        crate::Room::new(self.store().engine.door())
    }

    /// Ends all keys, and stops the reaper, for which it waits. Returns what there was, as it would have expired: a key whose
    /// update said that it was inserted, and that has neither been removed nor given to anybody, is in here, once. From then on
    /// updates of new keys are refused with [`StoreError::Closed`]. A channel under [`WhenFull::Wait`] is treated as under
    /// [`WhenFull::Spill`] from here on.
    ///
    /// In the handler it only stops the reaper, which then ends what there is, untold: look at [`dump`](Self::dump) first. In a waker
    /// that a poll has called, without a reaper, it only refuses new keys: the next shutdown has what there is.
    ///
    /// ```
    /// use expiry::ExpiryQueue;
    /// use std::time::Duration;
    ///
    /// let leases = ExpiryQueue::builder().build()?;
    /// leases.update(7, Duration::from_secs(10))?;
    /// for lease in leases.shutdown() {
    ///     println!("{} would have expired {:?} after the queue was built", lease.key(), lease.expiry());
    /// }
    /// assert!(leases.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "what is not looked at is lost"]
    pub fn shutdown(&self) -> Vec<Expired<K>> {
        let mut left = Vec::new();
        self.close_channel();
        let shared = &*self.shared;
        let closes = !shared.store.engine.is_driving();
        if closes {
            let store = &shared.store;
            store.close_with(|ended, lease| left.push(shared.left(ended, lease)));
        }
        shared.store.shut(self.reaper.as_ref());
        #[cfg(feature = "async")]
        if closes {
            // Of a future that was dropped, or has yet to end.
            left.append(&mut shared.kept.take());
        }
        self.finish_unless_driven();
        if let Target::Poll(lapsed) = &self.shared.target {
            left.extend(lapsed.take());
        }
        left.sort_unstable_by_key(Expired::expiry);
        left
    }

    /// As [`shutdown`](Self::shutdown), without blocking the thread: new keys are refused when this returns, the reaper does the rest, and
    /// the future ends when it has ended, with what there was. A queue that is polled has been shut down when this returns, and the
    /// future is ready.
    ///
    /// The shutdown goes on if the future is dropped; what there was then goes to the next one, be it this or [`shutdown`](Self::shutdown). Of two
    /// at once each may have some of it.
    ///
    /// ```
    /// use expiry::{ExpiryQueue, StoreError, WhenFull};
    /// use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let (leases, expired) = ExpiryQueue::<String>::builder().build_with_channel(1000, WhenFull::Spill)?;
    /// let mut expired = expired.into_stream();
    /// let ten = Duration::from_secs(10);
    /// leases.update("worker 1".to_string(), ten)?;
    /// let left = leases.shutdown_async();
    /// assert_eq!(leases.update("worker 2".to_string(), ten), Err(StoreError::Closed)); // from here on
    /// assert_eq!(*left.await[0], "worker 1");  // it had not expired
    /// assert!(expired.recv().await.is_none()); // and the stream has come to its end
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "async")]
    #[cfg_attr(docsrs, doc(cfg(feature = "async")))]
    pub fn shutdown_async(&self) -> impl Future<Output = Vec<Expired<K>>> + Send + '_ {
        self.close_channel();
        self.shared.kept.want();
        let last = || self.shared.last();
        let ended = crate::setup::shut_soon(&self.store().engine, self.reaper.as_ref(), last);
        self.finish_unless_driven();
        async move {
            ended.await;
            let mut left = self.shared.kept.take();
            if let Target::Poll(lapsed) = &self.shared.target {
                left.extend(lapsed.take());
            }
            left.sort_unstable_by_key(Expired::expiry);
            left
        }
    }
}

impl<K: 'static> ExpiryQueue<K> {
    /// The store has been closed, unless that is its reaper's to do, or this thread is in a round, and no more than asks.
    fn finish_unless_driven(&self) {
        let reaper = Reaper::here(self.reaper.as_ref());
        if reaper.is_none() && !self.shared.store.engine.is_driving() {
            self.shared.finish_channel();
        }
    }

    /// Who waits for room in the channel waits no longer.
    fn close_channel(&self) {
        if let Target::Channel(sender) = &self.shared.target {
            sender.close();
        }
    }
}

impl<K: 'static> Drop for ExpiryQueue<K> {
    fn drop(&mut self) {
        self.close_channel();
        self.shared.store.shut(self.reaper.as_ref());
    }
}

#[cfg(all(test, not(expiry_loom)))]
mod tests {
    use super::*;
    use crate::time::ManualClock;

    const SECOND: u64 = 1_000_000_000;

    /// A queue of one shard at an interval of 10 ms, with nothing in it.
    fn empty<K: Hash + Eq + Send + Sync + 'static>() -> ExpiryQueue<K> {
        let queue = ExpiryQueue::builder()
            .interval(Duration::from_millis(10))
            .shards(1)
            .clock(ManualClock::new());
        queue.build().unwrap()
    }

    /// Ends so many keys by a round; the tick to come back at.
    fn expire(queue: &ExpiryQueue<String>, keys: usize) -> Option<u64> {
        for key in 0..keys {
            queue
                .update(key.to_string(), Duration::from_secs(1))
                .unwrap();
        }
        let store = queue.store();
        let round = store.engine.poll(SECOND, usize::MAX, store);
        assert!(queue.is_empty() && !round.more);
        round.next
    }

    /// The tick to come back at after a round at `tick`.
    fn round<K: Hash + Eq + Send + Sync + 'static>(
        queue: &ExpiryQueue<K>,
        tick: u64,
    ) -> Option<u64> {
        let store = queue.store();
        let now = store.engine.ticks.begins(tick);
        store.engine.poll(now, usize::MAX, store).next
    }

    #[test]
    fn an_idle_driver_comes_back_until_all_is_freed_and_then_no_more() {
        let queue = empty();
        let mut next = expire(&queue, 10_000);
        let mut rounds = 0;
        while let Some(tick) = next {
            rounds += 1;
            assert!(rounds < 1000, "it never goes to sleep");
            next = round(&queue, tick);
        }
        assert_eq!(round(&queue, 1 << 30), None, "it has woken up for nothing");
    }

    #[test]
    fn an_index_gets_small_again_though_somebody_was_pinned_when_it_was_to() {
        let index = |queue: &ExpiryQueue<String>| queue.store().engine.index(0).shape();
        let queue = empty();
        let small = index(&queue);
        // The first table is left behind under the pin, and is wanted again before it may be used.
        let pin = queue.store().engine.pin();
        let mut next = expire(&queue, 1_000);
        let (listed, words) = index(&queue);
        assert!((listed, words) > small, "it has not grown: {words} words");
        for _ in 0..3 {
            next = round(&queue, next.expect("the keys are not freed yet"));
        }
        assert_eq!(index(&queue), (1, words), "it was not refused");
        drop(pin);
        while let Some(tick) = next {
            next = round(&queue, tick);
        }
        assert_eq!(index(&queue), small);
    }

    /// How large the index of a queue is.
    fn size(queue: &ExpiryQueue<u64>) -> (usize, u64) {
        queue.store().engine.index(0).shape()
    }

    fn fill(queue: &ExpiryQueue<u64>, timeout: Duration) {
        for key in 0..1_000 {
            queue.update(key, timeout).unwrap();
        }
    }

    /// Fills a queue, and removes all again once they had been carried into a second table: the first one is left behind under the
    /// caller's pin. Nothing is due for an hour.
    fn fill_and_empty(queue: &ExpiryQueue<u64>) {
        let small = size(queue);
        fill(queue, Duration::from_secs(3600));
        while size(queue).0 > 1 {
            round(queue, 1);
        }
        assert!(size(queue) > small);
        for key in 0..1_000 {
            queue.remove(&key);
        }
    }

    /// Goes on with rounds as they say, and returns the index's size in the end, or after some minutes of simulated time.
    fn size_at_rest(queue: &ExpiryQueue<u64>, mut next: Option<u64>) -> (usize, u64) {
        while let Some(tick) = next.filter(|tick| *tick < 10_000) {
            next = round(queue, tick);
        }
        size(queue)
    }

    #[test]
    fn an_index_gets_small_again_though_a_round_came_twice_in_a_tick() {
        let queue = empty();
        let small = size(&queue);
        let pin = queue.store().engine.pin();
        fill_and_empty(&queue);
        // Refused in the first, and in the second of the same tick the grace period is over.
        round(&queue, 2);
        drop(pin);
        let next = round(&queue, 2);
        assert_eq!(size_at_rest(&queue, next), small);
    }

    #[test]
    fn an_index_under_a_grace_period_is_come_back_for() {
        let queue = empty();
        let small = size(&queue);
        let pin = queue.store().engine.pin();
        fill_and_empty(&queue);
        let next = round(&queue, 2);
        drop(pin);
        assert_eq!(size_at_rest(&queue, next), small);
    }

    #[test]
    fn an_index_gets_small_again_though_a_budget_ran_out() {
        let queue = empty();
        let small = size(&queue);
        fill(&queue, Duration::from_secs(1));
        assert!(size(&queue) > small);
        let store = queue.store();
        let next = loop {
            let round = store.engine.poll(2 * SECOND, 100, store);
            if !round.more {
                break round.next;
            }
        };
        assert!(queue.is_empty());
        assert_eq!(size_at_rest(&queue, next), small);
    }

    #[test]
    fn who_stays_pinned_is_looked_at_at_longer_and_longer_intervals() {
        let queue = empty();
        let pin = queue.store().engine.pin();
        let mut next = expire(&queue, 100);
        let mut waits = Vec::new();
        let mut tick = 100;
        while waits.len() < 10 {
            let then = next.expect("the keys are not freed yet");
            waits.push(then - tick);
            tick = then;
            next = round(&queue, tick);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100]);
        drop(pin);
        while let Some(tick) = next {
            next = round(&queue, tick);
        }
    }
}
