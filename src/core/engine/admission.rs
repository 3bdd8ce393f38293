//! Admission: whether a new entry may come in, and the callers that wait for an answer.
//!
//! An entry is refused when a bounded capacity is used up, when there is no memory, and once a
//! shutdown has begun.
//!
//! # Waiting for room
//!
//! Where the capacity is bounded, each slot in use holds one of so many permits.
//!
//! ```text
//!   a thread that frees a slot            a task that waits for room
//!   permits.fetch_add(1)                  registers in the waiter queue
//!   if a task waits: wakes one            permits.fetch_add(0): is there one?
//! ```
//!
//! Both sides change `permits` by a read-modify-write, so one comes first. If the freeing thread's
//! does, the task finds the permit. If the task's does, the freeing thread has acquired the task's
//! registration, and wakes it. A waker is the user's code: the freeing thread notes that it owes a
//! wake-up, and wakes once it is unpinned, a driver once it has left every shard.
//!
//! # A bound that changes
//!
//! The limit and the permits change by the same difference, so entries hold the limit less the
//! permits. A bound lowered below what they hold leaves a *debt*: the permits are negative. Until
//! as many entries have ended, no call takes a permit, or uses one that it keeps. So once the debt
//! is paid the bound holds, whatever other threads insert meanwhile.
//!
//! # Shutdown
//!
//! Inserting threads take the flag of a shutdown as a hint: the closing of blocks and of shards'
//! chunk counts decides (W8). A waiting task has no word to read-modify-write for it. So the task
//! passes a sequentially consistent fence between its registration and its look. The thread that
//! shuts down passes one between its store and its look at the waiter queue.

use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
#[cfg(feature = "async")]
use {
    crate::error::Closed,
    crate::sync::tasks::{Place, WaitSet, WaiterQueue},
    std::task::Waker,
};

/// Why no slot could be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    OutOfMemory,
    Closed,
}

/// The largest limit: permits are signed.
const MOST: u64 = u64::MAX >> 1;

#[allow(clippy::cast_possible_wrap)] // that is what it is for
fn signed(permits: u64) -> i64 {
    permits as i64
}

/// The permits that one call keeps for the entry that it puts in: no other call takes them.
/// Dropping it gives them back; the caller is unpinned then if it keeps any.
pub(crate) struct Room<'a> {
    admission: &'a Admission,
    kept: u64,
    /// How often the call has looked for room and found none, or has driven the store.
    pub(crate) attempts: u32,
}

impl Room<'_> {
    /// Takes `wanted` permits, kept ones first, the rest from the others. Takes all or none.
    #[inline(always)]
    pub(crate) fn take(&mut self, wanted: u64) -> Result<(), Refused> {
        let more = wanted.saturating_sub(self.kept);
        if more > 0 {
            self.admission.take(more)?;
        } else if self.kept > 0 && self.admission.is_in_debt() {
            return Err(Refused::Full);
        }
        self.kept = self.kept.saturating_sub(wanted);
        Ok(())
    }

    /// Keeps permits that the call has made free, or has [taken](Self::take) in vain.
    #[inline(always)]
    pub(crate) fn keep(&mut self, permits: u64) {
        self.kept += permits;
    }

    #[inline(always)]
    pub(crate) fn keeps_any(&self) -> bool {
        self.kept > 0
    }

    /// Gives back what it keeps. Once unpinned, the caller calls
    /// [`wake_owed`](Admission::wake_owed).
    #[inline(always)]
    pub(crate) fn release(&mut self) {
        self.release_beyond(0);
    }

    #[inline(always)]
    fn release_beyond(&mut self, most: u64) {
        if self.kept > most {
            self.admission.give_back(self.kept - most);
            self.kept = most;
        }
    }

    /// Gives back all but `most` permits, and all of them while there is a debt. Wakes a task that
    /// waits for them: the caller is unpinned.
    #[cold]
    #[inline(never)]
    pub(crate) fn give_back_beyond(&mut self, most: u64) {
        self.release_beyond(if self.admission.is_in_debt() { 0 } else { most });
        self.admission.wake_owed();
    }
}

impl Drop for Room<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.keeps_any() {
            self.give_back_beyond(0);
        }
    }
}

/// What decides whether a new entry may come in.
pub(crate) struct Admission {
    /// The largest number of slots in use, if that is bounded.
    limit: Option<std::sync::atomic::AtomicU64>,
    /// How many more slots may be in use, if that is bounded; negative while there is a debt.
    permits: Option<CachePadded<AtomicU64>>,
    /// New entries are refused.
    refusing: AtomicBool,
    /// New entries are refused, or the capacity is bounded.
    asks: AtomicBool,
    #[cfg(feature = "async")]
    waiters: WaiterQueue,
    /// Number of tasks that threads owe a wake-up: they were pinned, or at a shard.
    #[cfg(feature = "async")]
    owed: AtomicU64,
    /// The tasks that wait for the end of a shutdown.
    #[cfg(feature = "async")]
    parting: WaitSet,
    /// A want of memory was logged, and no memory has come since.
    #[cfg(feature = "tracing")]
    starves: std::sync::atomic::AtomicBool,
}

impl Admission {
    pub(super) fn new(limit: Option<usize>) -> Self {
        let limit = limit.map(|slots| (slots as u64).min(MOST));
        Admission {
            limit: limit.map(Into::into),
            permits: limit.map(|slots| CachePadded::new(AtomicU64::new(slots))),
            refusing: AtomicBool::new(false),
            asks: AtomicBool::new(limit.is_some()),
            #[cfg(feature = "async")]
            waiters: WaiterQueue::new(),
            #[cfg(feature = "async")]
            owed: AtomicU64::new(0),
            #[cfg(feature = "async")]
            parting: WaitSet::new(),
            #[cfg(feature = "tracing")]
            starves: std::sync::atomic::AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit.as_ref().map(|limit| limit.load(std::sync::atomic::Ordering::Relaxed))
    }

    /// Number of permits taken, if slots in use are bounded. Approximate while the limit changes.
    pub(crate) fn taken(&self) -> Option<u64> {
        let left = self.permits.as_ref()?.load(Ordering::Relaxed);
        let taken = self.limit()?.wrapping_sub(left);
        Some(if signed(taken) < 0 { 0 } else { taken })
    }

    /// Changes the limit, if there is one. A limit below what is in use leaves a debt.
    pub(crate) fn set_limit(&self, limit: u64) {
        let limit = limit.min(MOST);
        if let (Some(now), Some(permits)) = (&self.limit, &self.permits) {
            let before = now.swap(limit, std::sync::atomic::Ordering::Relaxed);
            if limit < before {
                permits.fetch_sub(before - limit, Ordering::Relaxed);
            } else {
                self.give_back(limit - before);
            }
        }
    }

    /// Whether more permits are taken than there may be.
    pub(crate) fn is_in_debt(&self) -> bool {
        self.permits.as_ref().is_some_and(|permits| signed(permits.load(Ordering::Relaxed)) < 0)
    }

    /// Whether a claim has to be [admitted](Self::admit). If not, it needs only a free slot.
    #[inline(always)]
    pub(crate) fn asks(&self) -> bool {
        self.asks.load(Ordering::Relaxed)
    }

    /// Admits a claim, which takes a permit if it `needs_room` of its own.
    pub(super) fn admit(&self, needs_room: bool) -> Result<(), Refused> {
        if self.is_refusing() {
            return Err(Refused::Closed);
        }
        if needs_room {
            self.take(1)
        } else {
            Ok(())
        }
    }

    #[inline(always)]
    pub(crate) fn room(&self) -> Room<'_> {
        Room { admission: self, kept: 0, attempts: 0 }
    }

    /// Takes `wanted` permits, or none.
    #[inline(always)]
    fn take(&self, wanted: u64) -> Result<(), Refused> {
        self.permits.as_ref().map_or(Ok(()), |permits| self.take_of(permits, wanted))
    }

    #[inline(never)]
    fn take_of(&self, permits: &AtomicU64, wanted: u64) -> Result<(), Refused> {
        // Not `fetch_sub`: it would dip below zero and make others see a full engine that is not.
        let taken = permits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            (signed(left) >= signed(wanted)).then(|| left - wanted)
        });
        let refused = || if self.is_refusing() { Refused::Closed } else { Refused::Full };
        taken.map(drop).map_err(|_| refused())
    }

    /// Gives back permits: of a freed slot, of a claim that found no slot, or of a [`Room`]. A
    /// waker is the user's code, so the caller calls [`wake_owed`](Self::wake_owed) once it is
    /// unpinned, and away from every shard.
    #[inline]
    pub(crate) fn give_back(&self, given: u64) {
        let Some(permits) = &self.permits else {
            return;
        };
        // AcqRel: pairs with the read-modify-write in `Door::register`.
        permits.fetch_add(given, Ordering::AcqRel);
        #[cfg(feature = "async")]
        if self.waiters.is_awaited() {
            // survives: with the swap in `wake_owed`, as in `WaiterQueue::hand_out`.
            self.owed.fetch_add(1, Ordering::Release);
        }
    }

    /// Whether some thread has given permits back and has yet to wake a task.
    #[inline(always)]
    pub(crate) fn owes(&self) -> bool {
        #[cfg(feature = "async")]
        return self.owed.load(Ordering::Relaxed) != 0;
        #[cfg(not(feature = "async"))]
        false
    }

    /// Wakes the tasks for which any thread has given permits back. The caller is unpinned.
    #[inline(always)]
    pub(crate) fn wake_owed(&self) {
        #[cfg(feature = "async")]
        if self.owes() {
            self.wake_waiting();
        }
    }

    #[cfg(feature = "async")]
    #[cold]
    #[inline(never)]
    fn wake_waiting(&self) {
        // Acquire pairs with `give_back`: this thread finds the registrations that the others have
        // seen.
        // survives: as there.
        self.waiters.wake(self.owed.swap(0, Ordering::Acquire));
    }

    /// Refuses new entries from about now on; those under way may still come in.
    pub(crate) fn refuse(&self) {
        self.refusing.store(true, Ordering::Relaxed);
        self.asks.store(true, Ordering::Relaxed);
        #[cfg(feature = "async")]
        {
            // A task that waits for room has made one before its look at `refusing`.
            crate::sync::fence(Ordering::SeqCst);
            if self.waiters.is_awaited() {
                self.waiters.wake_all();
            }
        }
    }

    #[inline]
    pub(crate) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// The end of a shutdown may be nearer: the tasks that wait for it look again.
    #[cfg(feature = "async")]
    pub(crate) fn parted(&self) {
        crate::sync::fence(Ordering::SeqCst);
        if !self.parting.is_empty() {
            self.parting.wake();
        }
    }

    /// Waits until `done` finds something. It asks at first, and after each `parted`.
    #[cfg(feature = "async")]
    pub(crate) async fn until_parted<R>(&self, done: impl FnMut() -> Option<R>) -> R {
        self.parting.until(done).await
    }

    /// Where a caller waits until there is room.
    #[cfg(feature = "async")]
    pub(crate) fn door(&self) -> Door<'_> {
        Door(self)
    }

    /// Logs that an entry is refused for want of memory: once, until there is memory again.
    #[cold]
    #[allow(clippy::unused_self)] // but for the event
    pub(super) fn starves(&self) {
        #[cfg(feature = "tracing")]
        if !self.starves.swap(true, std::sync::atomic::Ordering::Relaxed) {
            crate::kit::trace::event!(ERROR, "out of memory");
        }
    }

    #[allow(clippy::unused_self)] // but for the event
    pub(super) fn has_memory(&self) {
        #[cfg(feature = "tracing")]
        self.starves.store(false, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Where a task waits for room. See "Waiting for room" in the module's head.
#[cfg(feature = "async")]
#[derive(Clone, Copy)]
pub(crate) struct Door<'a>(&'a Admission);

#[cfg(feature = "async")]
impl Door<'_> {
    /// `Ok` if there is room, `Err` if there will be none, `None` if the task has to wait.
    pub(crate) fn look(self) -> Option<Result<(), Closed>> {
        // survives: the load only says that there is a permit; the slot's own edges order the
        // insertion. `WaiterQueue::pass_on` misses no waiting task: the thread that gives this
        // permit acquires the task's count by it, and passes that on to the task that it wakes.
        self.look_by(|permits| permits.load(Ordering::Acquire))
    }

    /// [`look`](Self::look), by the number of permits as `left` reads it.
    fn look_by(self, left: impl Fn(&AtomicU64) -> u64) -> Option<Result<(), Closed>> {
        if self.0.is_refusing() {
            return Some(Err(Closed));
        }
        let permits = self.0.permits.as_deref();
        let has_room = permits.map_or(true, |permits| signed(left(permits)) > 0);
        has_room.then_some(Ok(()))
    }

    /// Registers the task in that place, and looks again. Deregisters it if that finds something.
    pub(crate) fn register(self, place: &mut Place, waker: &Waker) -> Option<Result<(), Closed>> {
        // Either this comes after the read-modify-write of a thread that frees a slot, and finds
        // it; or before, and that thread finds the task waiting.
        // survives: the fence in `WaiterQueue::register` releases the registration; Acquire: as in
        // `look`.
        let look = || self.look_by(|permits| permits.fetch_add(0, Ordering::AcqRel));
        self.0.waiters.register(place, waker, look)
    }

    pub(crate) fn deregister(self, place: &mut Place) {
        self.0.waiters.deregister(place);
    }
}
