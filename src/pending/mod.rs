//! Things in flight, by value, under tickets that the table issues.

mod builder;
mod inner;
mod ticket;

pub use builder::PendingTableBuilder;
pub use ticket::Ticket;

use crate::core::lateness::Lateness;
use crate::error::gives_back;
use crate::keyed::StoreError;
use crate::kit::handle::handle;
use crate::kit::lifecycle::Owner;
use crate::kit::polled::{poll_all, Polled};
use crate::kit::snapshot::snapshot;
use crate::kit::target::shutdowns;
use crate::time::Lifetime;
use inner::{Inner, Poll};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

/// Values that wait for something, each under a ticket: requests and the senders of their replies.
///
/// `insert` takes a value and returns a [`Ticket`], which may go on a wire. Each value leaves the
/// table once, by value: to the call that [takes](Self::take) it, or, when its timeout has passed,
/// to the listener, channel, stream or poll. A ticket never reaches another value than its own.
///
/// ```
/// use expiry::{PendingTable, Ticket, WhenFull};
/// use std::{sync::mpsc, time::Duration};
///
/// let (requests, expired) = PendingTable::builder()
///     .build_with_channel(1000, WhenFull::Spill)?;
/// let (reply, replies) = mpsc::channel();
/// let ticket: Ticket = requests.insert(reply.clone(), Duration::from_secs(30))?;
/// // ... the ticket travels with the request, and comes back with the response:
/// if let Some(reply) = requests.take(ticket) {
///     reply.send("pong")?;
/// }
/// assert_eq!(replies.recv()?, "pong");
/// assert!(requests.take(ticket).is_none()); // a second response finds nothing
/// # drop(expired);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`insert`](Self::insert) | no hash, no guard; allocates nothing but a chunk of 4,096 slots now and then, and a box for a value above 64 bytes |
/// | [`take`](Self::take) | lock-free: no hash, no guard. [`take_many`](Self::take_many) fetches 16 at once |
/// | [`shutdown`](Self::shutdown), [`drain`](Self::drain), dropping the last handle | **wait** |
/// | memory of a value | a slot of 8 bytes and the value; 5 bytes beside it |
///
/// All else is lock-free. Under [`WhenFull::Wait`](crate::WhenFull::Wait) the thread that expires a
/// value may wait for room in the channel. Memory of a burst goes back, but for 4 bytes a slot.
///
/// # Time
///
/// A value expires when its timeout has passed, rounded up to the interval: never early. From 64
/// times the [lag](crate::Clock::lag) of the clock's cheap reading on (64 ms) it may be late by
/// that lag (1 ms) on top. Until the reaper, or a poll, has come to a value, `take` still finds it.
///
/// # Threads that run user code
///
/// The thread that drives the table calls the listener, and drops what expires if there is none:
/// the reaper, a poll, **or an insertion that finds the table full**. So hold no lock around an
/// insertion that the listener takes, or build with a channel. A listener may use the table, be
/// slow, or panic. It must not own a handle to its own table, which would keep the table for ever.
/// The thread that shuts a table down, or its reaper, drops what is left when the last handle goes.
#[doc(alias("DelayQueue", "timer"))]
pub struct PendingTable<T: 'static> {
    inner: Arc<Inner<T>>,
    owner: Arc<Owner<Inner<T>>>,
}

handle!(PendingTable<T> { inner, owner } by inner, room);

/// Why a [`PendingTable`] has refused a value; it gives the value back.
///
/// ```
/// use expiry::{PendingTable, StoreError};
/// use std::time::Duration;
///
/// let table = PendingTable::builder().capacity(1).build()?;
/// table.insert("first", Duration::from_secs(30))?;
/// let refused = table.insert("second", Duration::from_secs(30)).unwrap_err();
/// assert_eq!((refused.error, refused.value), (StoreError::Full, "second"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub struct PendingError<T> {
    /// The value that was to be inserted.
    pub value: T,
    /// Why it was not.
    pub error: StoreError,
}

gives_back!(PendingError<T> for StoreError);

snapshot! {
    /// A snapshot of a table's counters. Monotonic but for `live` and `slots`; read one after
    /// another while others count. When nothing is going on, `inserted` is `live + taken + expired
    /// + closed`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # let table = expiry::PendingTable::builder().build()?;
    /// let ticket = table.insert(1, Duration::from_secs(30))?;
    /// table.insert(2, Duration::from_secs(30))?;
    /// table.take(ticket);
    /// let metrics = table.metrics();
    /// assert_eq!((metrics.inserted, metrics.taken, metrics.live), (2, 1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub struct PendingMetrics of [<T: 'static>] inner: Inner<T> {
        /// Values now, including those that are due but not yet ended.
        live: u64 as LIVE = inner.engine.len(inner) as u64;
        /// Slots whose memory is held, in use or not.
        slots: u64 as SLOTS
            = (0..inner.engine.shards()).map(|shard| inner.engine.held(shard)).sum();
        /// The most values there may be at once, if that is bounded.
        capacity: Option<u64> as CAPACITY = inner.engine.admission.limit();
        /// Insertions that found no room: the capacity was reached, or there was no memory.
        refused: u64 as REFUSED = inner.engine.refusals();
        /// Values that came in.
        inserted: u64 as INSERTED = inner.engine.sum(|counts| &counts.inserted);
        /// Values that a call has taken; [`cancel_all`](PendingTable::cancel_all), too.
        taken: u64 as REMOVED = inner.engine.sum(|counts| &counts.taken);
        /// Values whose time was up.
        expired: u64 as EXPIRED = inner.engine.sum(|counts| &counts.expired);
        /// Values that a shutdown has ended.
        closed: u64 as CLOSED = inner.engine.sum(|counts| &counts.closed);
        /// How late expirations were seen.
        lateness: Lateness as LATENESS = inner.engine.total_lateness();
        /// Time that the reaper has spent working.
        reaper_busy: Duration as REAPER_BUSY = Duration::from_nanos(inner.engine.busy.get());
        /// How often the reaper has woken up.
        reaper_rounds: u64 as REAPER_ROUNDS = inner.engine.rounds.get();
        /// Panics of the listener, of values that the table dropped, and of the clock, that were
        /// caught.
        listener_panics: u64 as HANDLER_PANICS
            = inner.panics.count() + inner.engine.deadlines.clock_panics();
        /// Values that went to the second queue of a full channel; see
        /// [`WhenFull::Spill`](crate::WhenFull::Spill).
        spilled: u64 as SPILLED = inner.target.astray().0;
        /// Values dropped by [`WhenFull::Drop`](crate::WhenFull::Drop), or without a receiver.
        undelivered: u64 as UNDELIVERED = inner.target.astray().1;
    }
    publish
}

/// How many tickets [`PendingTable::take_many`] fetches at a time.
const GROUP: usize = 16;

impl<T: Send + 'static> PendingTable<T> {
    /// Settings with defaults. Name the type of the values where a closure calls a method of one:
    /// Rust checks the closure first, and fails with E0282 otherwise.
    ///
    /// ```
    /// let builder = expiry::PendingTable::<std::sync::mpsc::Sender<u8>>::builder();
    /// let requests = builder.expiry_listener(|reply| drop(reply.send(0))).build()?;
    /// # Ok::<(), expiry::BuildError>(())
    /// ```
    pub fn builder() -> PendingTableBuilder<T> {
        PendingTableBuilder::default()
    }

    /// Puts a value in, for `timeout` from now, rounded up to the interval. A `Duration`, an
    /// `Instant` or a [`Lifetime`] says how long.
    ///
    /// # Errors
    ///
    /// [`PendingError`] gives the value back: [`StoreError::Full`], [`StoreError::OutOfMemory`],
    /// [`StoreError::Closed`], [`StoreError::Lifetime`].
    #[inline]
    #[doc(alias = "schedule")]
    pub fn insert(
        &self,
        value: T,
        timeout: impl Into<Lifetime>,
    ) -> Result<Ticket, PendingError<T>> {
        self.inner.insert(value, timeout.into())
    }

    /// Inserts many values, and appends their tickets to `tickets`; otherwise as
    /// [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert), with the first value that was refused. Those before it are in,
    /// and those behind it stay in the iterator.
    pub fn insert_many(
        &self,
        values: impl IntoIterator<Item = T>,
        timeout: impl Into<Lifetime>,
        tickets: &mut Vec<Ticket>,
    ) -> Result<(), PendingError<T>> {
        let timeout = timeout.into();
        values.into_iter().try_for_each(|value| {
            tickets.push(self.insert(value, timeout)?);
            Ok(())
        })
    }

    /// Takes the value of a ticket. `None` if it was taken before, has expired, or never was: a
    /// ticket may be any number.
    #[inline]
    #[must_use = "the value has left the table"]
    #[doc(alias("cancel", "remove"))]
    pub fn take(&self, ticket: Ticket) -> Option<T> {
        self.inner.take(ticket)
    }

    /// Takes the values of many tickets, in their order. Fetches the memory of 16 at once.
    pub fn take_many<'a>(&'a self, tickets: &'a [Ticket]) -> impl Iterator<Item = Option<T>> + 'a {
        tickets.chunks(GROUP).flat_map(move |group| {
            group.iter().for_each(|&ticket| self.inner.prefetch(ticket));
            group.iter().map(move |&ticket| self.inner.take(ticket))
        })
    }

    /// Whether the value of a ticket is still there.
    #[must_use]
    pub fn contains(&self, ticket: Ticket) -> bool {
        self.inner.find(ticket).is_some()
    }

    /// How long until the value of a ticket expires: zero if its time is up; [`Duration::MAX`] if
    /// it never does.
    #[must_use]
    pub fn remaining(&self, ticket: Ticket) -> Option<Duration> {
        let lease = self.inner.find(ticket)?.lease;
        let deadlines = &self.inner.engine.deadlines;
        Some(deadlines.left(lease, deadlines.now()))
    }

    /// Takes every value that is there, in no order. Values that other threads insert meanwhile may
    /// stay. O(slots).
    #[must_use = "the values have left the table"]
    pub fn cancel_all(&self) -> Vec<T> {
        self.inner.take_all()
    }

    /// Number of values now, with those whose time is up but which no driver has come to.
    /// O(threads x shards).
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.engine.len(&*self.inner)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters. O(threads x shards).
    #[must_use]
    pub fn metrics(&self) -> PendingMetrics {
        PendingMetrics::of(&self.inner)
    }

    /// Returns all values that have expired, in no order. Where there is a listener or a channel,
    /// that gets them, and this returns none. Never waits. Any number of threads may poll: each
    /// value is returned to one of them.
    #[must_use = "the values have left the table"]
    pub fn poll(&self) -> Vec<T> {
        poll_all(|into| self.poll_into(into, usize::MAX))
    }

    /// Ends what is due with at most about `budget` steps of work, and appends it to `into`;
    /// otherwise as [`poll`](Self::poll).
    pub fn poll_into(&self, into: &mut Vec<T>, budget: usize) -> Polled {
        let (before, inner) = (into.len(), &*self.inner);
        let Some(waiting) = inner.target.lapsed() else {
            return inner.engine.poll_shared(budget, inner, || false);
        };
        into.extend(waiting);
        let into = RefCell::new(into);
        let poll = Poll { inner, into: |value| into.borrow_mut().push(value) };
        inner.engine.poll_shared(budget, &poll, || into.borrow().len() > before)
    }

    shutdowns! { "values", return T, by inner }

    /// For models: as if free slots had had so many occupants.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn age(&self, generation: u32, round: u32) {
        self.inner.age(generation, round);
    }
}
