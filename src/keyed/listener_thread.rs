//! A thread of its own for a store's listener, by the user's choice.
//!
//! Without it the thread that ended an entry calls the listener. A slow listener then delays the
//! reaper, and with it all further expirations. With it that thread puts the ended slot's number
//! into a bounded channel, and the listener thread calls the listener, unpinned and at no shard.
//!
//! ```text
//!   a thread that has ended an entry, unpinned        the listener thread
//!   makes the queue a holder of the slot              takes the next item, or sleeps
//!   puts slot and cause into the channel              calls the listener
//!   over? then takes what is in the channel, too      lets go of the slot
//!
//!   a shutdown, after it has ended every entry        takes `Stop`: takes what is in the channel,
//!   puts `Stop` behind all items                      sets `over`, takes what has come meanwhile,
//!   waits for the thread's end                        and ends
//! ```
//!
//! **Holders.** Of each slot in the channel the queue is a holder ([`removed`](super::removed)). The
//! store keeps the slots, and the thread keeps the store. So an item is 8 bytes, and names no store.
//!
//! **Each end is delivered once.** The channel gives an item to one receiver. No item stays behind:
//! a sending thread looks at `over` after it has put its item in, by a read-modify-write, and the
//! listener thread sets `over` by one before it looks into the channel for the last time. Of the two
//! the one that comes second sees what the first has done. So either the listener thread takes the
//! item, or the sending thread finds `over` set and empties the channel itself. That is a thread which
//! ended an entry before or beside a shutdown, and comes to its listener afterwards.
//!
//! **No listener waits for a listener thread.** A thread that is [inside](is_inside) a listener, of this
//! store or of another one, waits neither for room in the channel nor for the thread's end: what finds
//! no room spills, under `WhenFull::Wait`, too. In the child of a fork there is no listener thread, and
//! each thread calls the listener itself.

use super::removed::{EndedSlot, Held};
use super::store::{RemovalCause, Store};
use crate::channel::{channel, Receiver, Sender, WhenFull};
use crate::error::BuildError;
use crate::panics::is_inside;
use crate::sync::worker::Worker;
use crate::sync::{step, AtomicBool, Ordering};
use crate::trace::event;
use std::sync::atomic::AtomicBool as Flag;
use std::sync::{Arc, OnceLock};

/// What is in the channel.
enum Item {
    /// An ended entry's slot, of which the queue is a holder.
    Removed { id: u32, cause: RemovalCause },
    /// No more come, but from threads that have been overtaken by a shutdown.
    Stop,
}

/// See the module's head.
pub(super) struct ListenerThread {
    sender: Sender<Item>,
    receiver: Receiver<Item>,
    /// The thread takes no more items than those that it finds next.
    over: AtomicBool,
    /// `Stop` has been put into the channel.
    asked: Flag,
    /// All has been delivered that was in the channel.
    done: Flag,
    /// Set before any entry ends.
    worker: OnceLock<Worker>,
}

impl ListenerThread {
    /// A channel of this length. No thread reads it yet.
    pub(super) fn new(length: usize, when_full: WhenFull) -> Result<Self, BuildError> {
        let (sender, receiver) = channel(length, when_full)?;
        Ok(ListenerThread {
            sender,
            receiver,
            over: AtomicBool::new(false),
            asked: Flag::new(false),
            done: Flag::new(false),
            worker: OnceLock::new(),
        })
    }

    /// Starts the thread of a store that has one.
    pub(super) fn start<K, V>(store: &Arc<Store<K, V>>) -> Result<(), BuildError>
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let Some(this) = &store.listener_thread else {
            return Ok(());
        };
        // Loom's threads all run on one thread of the system, which must not sleep in the channel.
        // Models do the thread's work themselves.
        #[cfg(not(expiry_loom))]
        {
            let kept = store.clone();
            let worker = Worker::spawn("expiry-listener", move || {
                if let Some(this) = &kept.listener_thread {
                    this.run(&kept);
                }
                // In here, as it may be the last handle, which drops keys and values.
                drop(kept);
            });
            let worker = worker.map_err(|error| BuildError::NoThread(error.to_string()))?;
            let _ = this.worker.set(worker);
        }
        #[cfg(expiry_loom)]
        let _ = this;
        Ok(())
    }

    /// What the thread does.
    #[cfg_attr(expiry_loom, allow(dead_code))]
    fn run<K: 'static, V: 'static>(&self, store: &Store<K, V>) {
        event!(DEBUG, "listener thread started");
        for item in self.receiver.clone() {
            if !self.deliver(store, item) {
                break;
            }
        }
        self.finish(store);
        event!(DEBUG, "listener thread stopped");
    }

    /// Calls the listener for an item. Returns `false` if it was the last one.
    fn deliver<K: 'static, V: 'static>(&self, store: &Store<K, V>, item: Item) -> bool {
        let Item::Removed { id, cause } = item else {
            return false;
        };
        // SAFETY: shared by the thread that put it in, and received once.
        let ended = unsafe { EndedSlot::new(store, id) };
        store.call_listener(ended.key(), ended.value(), cause);
        true
    }

    /// Delivers what is in the channel, on this thread.
    fn drain<K: 'static, V: 'static>(&self, store: &Store<K, V>) {
        while let Some(item) = self.receiver.try_next() {
            self.deliver(store, item);
        }
    }

    /// Ends the thread's work. From here on a thread that puts an item in takes it out itself.
    fn finish<K: 'static, V: 'static>(&self, store: &Store<K, V>) {
        // First: a thread that finds `over` set takes whatever item is there. It must not be one of a
        // call that returned before the shutdown, which is told when this thread ends.
        self.drain(store);
        // Acquire pairs with `queue`: items put in before that thread's look are found. Release: a
        // thread that looks later finds it set.
        // survives: loom does not see crossbeam's channel.
        self.over.swap(true, Ordering::AcqRel);
        step("over");
        self.drain(store);
        // No thread drives the store any more that would drop these keys and values.
        store.part();
        // Release: a task that has awaited the shutdown sees what the listener has done.
        // survives: loom does not see `done`, a standard atomic.
        self.done.store(true, std::sync::atomic::Ordering::Release);
        #[cfg(feature = "async")]
        store.engine.admission.parted();
    }

    /// Has the listener called for an entry that this thread has ended. The caller is unpinned. Under
    /// `WhenFull::Wait` it waits for room, unless it is inside a listener.
    #[cold]
    pub(super) fn queue<K: 'static, V: 'static>(
        &self,
        store: &Store<K, V>,
        ended: Held<'_, K, V>,
        cause: RemovalCause,
    ) {
        if self.is_lost() {
            let (key, value) = ended.pair();
            return store.call_listener(key, value, cause);
        }
        let item = Item::Removed { id: ended.share(), cause };
        let sent = if is_inside() { self.sender.put_back(item) } else { self.sender.put(item) };
        if !sent {
            return ended.unshare();
        }
        // A read-modify-write pairs with that of `finish`: a load could come too early.
        // survives: as in `finish`.
        if self.over.fetch_or(false, Ordering::AcqRel) {
            self.drain(store);
        }
    }

    /// There is a shutdown: no thread waits for room any more. What has none spills.
    pub(super) fn close(&self) {
        self.sender.close();
    }

    /// Asks the thread to end when it has delivered what is in the channel.
    pub(super) fn stop(&self) {
        // survives: the swap alone says which thread puts `Stop` in; crossbeam publishes it.
        let again = self.asked.swap(true, std::sync::atomic::Ordering::AcqRel);
        if !again && !self.is_lost() {
            self.sender.put_last(Item::Stop);
        }
    }

    /// Whether the thread stayed behind when this process was forked. What it held of the channel it
    /// never gives back, so nothing is put in or taken out.
    fn is_lost(&self) -> bool {
        self.worker.get().is_some_and(Worker::is_lost)
    }

    fn is_asked(&self) -> bool {
        // survives: an asking thread has called `stop`, or has waited for the reaper that did. It
        // sees the listener's work by the thread's end, or by `done`.
        self.asked.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Waits for the thread's end, if it was asked to end. A thread inside a call of the user's code
    /// does not wait.
    pub(super) fn join(&self) {
        if !self.is_asked() || is_inside() || self.is_lost() {
            return;
        }
        if let Some(worker) = self.worker.get() {
            worker.join();
        }
    }

    /// Whether a shutdown has nothing to wait for here.
    #[cfg(feature = "async")]
    pub(super) fn has_ended(&self) -> bool {
        self.done.load(std::sync::atomic::Ordering::Acquire) || !self.is_asked() || self.is_lost()
    }

    /// How many ends wait for the listener; about.
    pub(super) fn waiting(&self) -> u64 {
        // survives: stronger than needed: a figure for operators, with nothing behind it.
        let done = self.done.load(std::sync::atomic::Ordering::Acquire);
        let stop = usize::from(self.is_asked() && !done);
        self.receiver.len().saturating_sub(stop) as u64
    }

    /// How many had no room in the channel: spilled, and dropped.
    pub(super) fn astray(&self) -> (u64, u64) {
        self.sender.astray()
    }
}

/// The thread's work, for models, which see no system's thread. See `loom-tests/tests/it/listener.rs`.
#[cfg(expiry_loom)]
impl<K, V, S> crate::ExpiringMap<K, V, S>
where
    K: std::hash::Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: std::hash::BuildHasher + Send + Sync + 'static,
{
    /// Takes an item of the listener thread's, if there is one, and calls the listener.
    pub fn deliver_next(&self) -> bool {
        let store = self.store();
        let Some(this) = &store.listener_thread else {
            return false;
        };
        let item = this.receiver.try_next();
        item.is_some_and(|item| this.deliver(store, item))
    }

    /// Does what the listener thread does last.
    pub fn finish_listener(&self) {
        let store = self.store();
        if let Some(this) = &store.listener_thread {
            this.finish(store);
        }
    }
}
