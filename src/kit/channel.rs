//! A channel for what has ended, with a policy for when it is full: a bounded channel of
//! crossbeam's, and an unbounded one for what spills.

use crate::error::BuildError;
use crate::kit::panics::{drop_each, is_inside, Panics};
#[cfg(feature = "async")]
use crate::kit::stream::{Listeners, ReceiverStream};
use crate::kit::trace::event;
use crate::sync::process;
use crossbeam_channel::{SendTimeoutError, TrySendError};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// What happens to what has no room in the channel. Nothing is lost silently under any of them.
///
/// ```
/// use expiry::{edge, AckTracker, WhenFull};
///
/// let (tracker, outcomes) = AckTracker::builder().build_with_channel(1, WhenFull::Drop)?;
/// for owner in 0..3 {
///     let root = tracker.issue(edge(), owner)?;
///     tracker.fail(root)?;
/// }
/// assert_eq!((outcomes.len(), tracker.metrics().undelivered), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum WhenFull {
    /// The thread that ended the entry waits for room: back-pressure. While the reaper waits,
    /// nothing expires, and it wakes no task that waits for room in the store. The channel must
    /// then be read by a thread that never ends entries itself: an ack, fail, poll or shutdown on
    /// the receiving thread would wait for itself once the channel is full. So would an insertion
    /// there into a store that is full: it expires what is due, and waits as long as the channel is
    /// full. A thread inside a bolt, or a listener, handler, waker or `Drop` that a store calls,
    /// does not wait: what has no room there spills.
    #[default]
    Wait,
    /// It goes to a second, unbounded queue, from which the receiver reads once the first is empty.
    /// Order between the two is not kept, and the second has no bound: watch `spilled` in the
    /// metrics.
    Spill,
    /// It is dropped and counted as `undelivered` in the metrics.
    Drop,
}

/// The receiving end of a channel of what has ended. Cloned, each item goes to one of the clones.
///
/// ```
/// use expiry::{ExpiryQueue, WhenFull};
/// use std::time::Duration;
///
/// let (leases, expired) = ExpiryQueue::builder()
///     .interval(Duration::from_millis(1))
///     .build_with_channel(1000, WhenFull::Spill)?;
/// let teller = std::thread::spawn(move || expired.map(|gone| *gone).collect::<Vec<u64>>());
/// leases.update(7, Duration::from_millis(1))?;
/// while !leases.is_empty() {
///     std::thread::yield_now();
/// }
/// drop(leases); // and the iterator comes to its end
/// assert_eq!(teller.join().unwrap(), [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The end
///
/// As an iterator it ends when the sending side has been *dropped*: all handles to the store. A
/// shutdown alone does not end it, so a thread that iterates must hold no handle. As a stream for
/// tasks (`into_stream`, with the feature `async`) it ends with the *shutdown*; that of a map ends
/// as the iterator does.
///
/// A `None` of [`next_within`](Self::next_within) means that nothing has come yet, or that nothing
/// will. To distinguish the two, shut the store down first: from then on calls of
/// [`try_next`](Self::try_next) until `None` get what is left.
///
/// When the last clone of the receiver is dropped, it drops the items that are left, and catches
/// their panics. What is sent from then on counts as `undelivered`.
pub struct Receiver<T> {
    ends: Own<Ends<T>>,
    readers: Arc<AtomicUsize>,
    #[cfg(feature = "async")]
    pub(crate) listeners: Arc<Listeners>,
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        // survives: no count comes from a clone's; the drop of a receiver says what it orders.
        self.readers.fetch_add(1, Ordering::Relaxed);
        Receiver {
            ends: self.ends.clone(),
            readers: self.readers.clone(),
            #[cfg(feature = "async")]
            listeners: self.listeners.clone(),
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // SeqCst pairs with `Sender::put`, which sends and then looks at the count: either that
        // look finds 0, or the items that were sent before are found here. A send moves the
        // channel's tail by a SeqCst operation, and `try_recv` makes a fence before it reads that.
        // survives: loom does not see crossbeam's channel.
        if self.readers.fetch_sub(1, Ordering::SeqCst) == 1 {
            drop_each(self.ends.items());
        }
    }
}

impl<T> Receiver<T> {
    /// The next item, if one is there. Never waits.
    #[must_use]
    pub fn try_next(&self) -> Option<T> {
        let (bounded, spill) = self.ends.get()?;
        bounded.try_recv().or_else(|_| spill.try_recv()).ok()
    }

    /// The next item; waits up to `limit` for it. `None` if none came, or, at once, if the sending
    /// side has been dropped.
    #[must_use]
    pub fn next_within(&self, limit: Duration) -> Option<T> {
        if let Some(item) = self.try_next() {
            return Some(item);
        }
        // Either end closes only when the sending side is dropped, both at once.
        let (bounded, spill) = self.ends.get()?;
        crossbeam_channel::select! {
            recv(bounded) -> item => item.ok().or_else(|| spill.try_recv().ok()),
            recv(spill) -> item => item.ok().or_else(|| bounded.try_recv().ok()),
            default(limit) => None,
        }
    }

    /// Appends up to `most` items that are there to `into`; returns how many. Never waits.
    pub fn drain_into(&self, into: &mut Vec<T>, most: usize) -> usize {
        let before = into.len();
        into.extend(self.ends.items().take(most));
        into.len() - before
    }

    /// As a stream for a task: ends, other than the iterator, with a shutdown. Clones of the
    /// receiver stay what they are.
    #[cfg(feature = "async")]
    #[must_use]
    pub fn into_stream(self) -> ReceiverStream<T> {
        ReceiverStream::new(self)
    }

    /// How many items wait here.
    #[must_use]
    pub fn len(&self) -> usize {
        let ends = self.ends.get();
        ends.map_or(0, |(bounded, spill)| bounded.len() + spill.len())
    }

    /// Whether none waits here.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Iterator for Receiver<T> {
    type Item = T;

    /// The next item; waits for it. `None` when the sending side has been dropped, not only shut
    /// down, and everything was received.
    fn next(&mut self) -> Option<T> {
        self.next_within(Duration::MAX)
    }
}

/// How often a thread that waits for room looks whether it is to go on waiting.
const LOOK_UP: Duration = Duration::from_millis(20);

pub(crate) struct Sender<T> {
    ends: Own<Senders<T>>,
    /// Receives what was sent after the last receiver went. An item that stayed there would keep
    /// the map's store, and so the sender, for ever ([`removals`](crate::keyed)).
    back: Own<Ends<T>>,
    readers: Arc<AtomicUsize>,
    when_full: WhenFull,
    spilled: AtomicU64,
    undelivered: AtomicU64,
    /// No thread waits for room any more.
    closing: AtomicBool,
    #[cfg(feature = "async")]
    pub(crate) listeners: Arc<Listeners>,
}

/// The longest channel. An engine has no more entries either.
const LONGEST: usize = 1 << 31;

/// A channel for `length` items, which are allocated.
pub(crate) fn channel<T>(
    length: usize,
    when_full: WhenFull,
) -> Result<(Sender<T>, Receiver<T>), BuildError> {
    if length == 0 {
        return Err(BuildError::ZeroChannel);
    }
    if length > LONGEST {
        return Err(BuildError::ChannelTooLong { length });
    }
    // crossbeam's allocation would end the process. It has one word beside each item.
    if Vec::<(usize, T)>::new().try_reserve_exact(length).is_err() {
        return Err(BuildError::OutOfMemory);
    }
    let (bounded, from_bounded) = crossbeam_channel::bounded(length);
    let (spill, from_spill) = crossbeam_channel::unbounded();
    #[cfg(feature = "async")]
    let listeners = Arc::new(Listeners::new());
    let readers = Arc::new(AtomicUsize::new(1));
    let sender = Sender {
        ends: Own::new((bounded, spill)),
        back: Own::new((from_bounded.clone(), from_spill.clone())),
        readers: readers.clone(),
        when_full,
        spilled: AtomicU64::new(0),
        undelivered: AtomicU64::new(0),
        closing: AtomicBool::new(false),
        #[cfg(feature = "async")]
        listeners: listeners.clone(),
    };
    let receiver = Receiver {
        ends: Own::new((from_bounded, from_spill)),
        readers,
        #[cfg(feature = "async")]
        listeners,
    };
    Ok((sender, receiver))
}

impl<T> Sender<T> {
    /// A shutdown has begun, perhaps on the thread that reads the channel. From here on what has no
    /// room spills, also where a thread waits already.
    pub(crate) fn close(&self) {
        // Relaxed: nothing is behind it, and a thread that sees it late looks again soon.
        self.closing.store(true, Ordering::Relaxed);
    }

    /// The caller has sent all of its items, and does not answer for other senders: streams end
    /// when they have taken the items.
    pub(crate) fn finish(&self) {
        #[cfg(feature = "async")]
        self.listeners.finish();
    }

    /// How many items have gone to the second queue, and how many were not delivered.
    pub(crate) fn astray(&self) -> (u64, u64) {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (of(&self.spilled), of(&self.undelivered))
    }

    /// Sends, and wakes the tasks that wait for it. Never panics.
    pub(crate) fn send(&self, panics: &Panics, item: T) {
        self.put(panics, item);
        #[cfg(feature = "async")]
        if self.listeners.is_awaited() {
            self.listeners.wake();
        }
    }

    /// Sends, and counts what is lost as undelivered, and panics of its drop. The caller wakes the
    /// tasks that wait. Inside a call of the user's code what finds no room spills: this thread may
    /// be the one that reads the channel, or that one may wait for it.
    #[inline(never)] // keeps its callers short
    pub(crate) fn put(&self, panics: &Panics, item: T) {
        let mut refused = None;
        match (self.ends.get(), self.when_full) {
            (None, _) => refused = Some(item),
            (Some(ends), WhenFull::Wait) if !is_inside() => self.wait(ends, item),
            (Some(ends), WhenFull::Wait | WhenFull::Spill) => self.send_or_spill(ends, item),
            (Some((bounded, _)), WhenFull::Drop) => {
                refused = bounded.try_send(item).err().map(TrySendError::into_inner);
            }
        }
        let drops = |item| panics.guard(|| drop(item));
        let mut lost = refused.map(drops).is_some().into();
        // After the item is in. SeqCst: see the drop of a receiver.
        // survives: as there.
        if self.readers.load(Ordering::SeqCst) == 0 {
            lost += self.back.items().map(drops).count() as u64;
        }
        if lost > 0 {
            self.undelivered.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Waits for room. (`back` keeps the channel connected.)
    fn wait(&self, ends: &Senders<T>, mut item: T) {
        while !self.closing.load(Ordering::Relaxed) {
            item = match ends.0.send_timeout(item, LOOK_UP) {
                Err(SendTimeoutError::Timeout(item)) => item,
                Ok(()) | Err(SendTimeoutError::Disconnected(_)) => return,
            };
        }
        // A shutdown that cancels a million roots comes here for each. `send_timeout` with no time
        // is slower: it yields the processor before it looks at the time.
        self.send_or_spill(ends, item);
    }

    fn send_or_spill(&self, (bounded, spill): &Senders<T>, item: T) {
        let Err(TrySendError::Full(item)) = bounded.try_send(item) else {
            return;
        };
        self.spilled.fetch_add(1, Ordering::Relaxed);
        let begins = spill.is_empty();
        if spill.send(item).is_ok() && begins {
            event!(WARN, "channel full: spilling", length = bounded.len());
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.finish();
    }
}

type Senders<T> = (crossbeam_channel::Sender<T>, crossbeam_channel::Sender<T>);
type Ends<T> = (crossbeam_channel::Receiver<T>, crossbeam_channel::Receiver<T>);

/// The ends of crossbeam's channels. The child of a fork does not touch its copies: what another
/// thread held of a channel at the fork is never released there.
struct Own<T> {
    ends: ManuallyDrop<T>,
    process: u32,
}

impl<T> Own<T> {
    fn new(ends: T) -> Self {
        Own { ends: ManuallyDrop::new(ends), process: process::current() }
    }

    /// `None` in the child of a fork.
    fn get(&self) -> Option<&T> {
        (self.process == process::current()).then_some(&*self.ends)
    }
}

impl<T> Own<Ends<T>> {
    /// Takes what is in the channel.
    fn items(&self) -> impl Iterator<Item = T> + '_ {
        self.get()
            .into_iter()
            .flat_map(|(bounded, spill)| bounded.try_iter().chain(spill.try_iter()))
    }
}

impl<T: Clone> Clone for Own<T> {
    fn clone(&self) -> Self {
        Own { ends: self.ends.clone(), process: self.process }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.process == process::current() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.ends) };
        }
    }
}

#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/channel.rs"]
mod tests;
