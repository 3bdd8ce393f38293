//! Ack trees: has everything derived from this message been processed?
//!
//! | module | what it is |
//! |---|---|
//! | [`calls`] | the calls on one root |
//! | [`batches`] | the calls on many roots |
//! | [`shutdown`] | shutdowns, blocking and async |
//! | [`edge`] | random ids of edges |
//! | [`trees`] | the protocol behind the calls |

mod batches;
mod builder;
mod calls;
mod edge;
mod error;
mod metrics;
mod outcome;
mod shutdown;
#[cfg(all(test, not(expiry_loom)))]
#[path = "../../tests/unit/ack.rs"]
mod tests;
mod trees;
mod tuple;

pub use builder::AckTrackerBuilder;
pub use edge::edge;
pub use error::AckError;
pub use metrics::{InFlight, Metrics, ShardMetrics};
pub use outcome::{Ack, Done, Outcome, Reason, Root, RootId};
pub use shutdown::ShutdownMode;
pub use tuple::Tuple;

use crate::kit::handle::handle;
use crate::kit::lifecycle::Owner;
use crate::kit::polled::Polled;
#[cfg(doc)]
use crate::WhenFull;
use std::sync::Arc;
use std::time::Duration;
use trees::Trees;

/// The receiving end of a tracker's channel.
pub type Outcomes<T = ()> = crate::Receiver<Outcome<T>>;

/// What becomes of a [`Tuple`] that is dropped without ack or fail, for example by a panic or an
/// early return.
///
/// ```
/// use expiry::{AckTracker, OnDrop, Tuple};
///
/// let tracker = AckTracker::builder().on_drop(OnDrop::Fail).build()?;
/// drop(Tuple::root(&tracker, 42)?);
/// assert_eq!(tracker.metrics().total.failed, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[non_exhaustive]
pub enum OnDrop {
    /// Its trees time out. The safe choice where a tuple's work may have been handed on.
    #[default]
    LetTimeOut,
    /// Its trees fail at once. The quick choice.
    Fail,
}

/// Tracks trees of derived work, each with one 64-bit XOR, until everything in a tree has been
/// acked, something in it has failed, or its time is up. The tracker delivers exactly one of these
/// outcomes, once.
///
/// ```
/// use expiry::{AckTracker, Tuple};
///
/// let tracker = AckTracker::builder()
///     .on_outcome(|outcome: expiry::Outcome| println!("{outcome:?}"))
///     .build()?;
///
/// let mut line = Tuple::root(&tracker, 42)?;   // a message has come in
/// let word = line.emit();                      // a piece of work derived from it
/// line.ack()?;                                 // the message itself is done with
/// word.ack()?;                                 // and now everything is: the handler is told
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cost
///
/// | call | cost |
/// |---|---|
/// | [`issue`](Self::issue), [`init`](Self::init), [`ack`](Self::ack), [`fail`](Self::fail), [`reset_timeout`](Self::reset_timeout) | lock-free; allocate nothing in the common path |
/// | an issued root, with three acks | 6 atomic read-modify-writes |
/// | memory of a root | 32 bytes and a share of the tables, however large its tree; and the token |
/// | [`shutdown`](Self::shutdown); delivery into a full channel under [`WhenFull::Wait`] | **wait** |
///
/// Otherwise no thread waits for one that is descheduled, grows a table or expires a million
/// entries. A call that sets a timeout after a jump of the clock by years may have to poll first.
/// The time that an outcome's handler takes comes on top.
///
/// # The idea
///
/// The algorithm is that of Apache Storm's acker. A message is a *root*. Each piece of work derived
/// from it is an *edge*, a random 64-bit id. The tracker keeps the XOR of all ids it has seen for
/// the root. It sees each id twice, once when the work is created and once when it is done. So the
/// XOR is zero when, and (but for a chance of 2^-64) only when, everything is done.
///
/// # Issued and chosen roots
///
/// Operations take a [`RootId`]: a [`Root`] that [`issue`](Self::issue) returned, or any `u64` that
/// the caller chose, for roots that other processes name.
///
/// * **Issued** roots name one attempt. They are the faster kind (an id is its place). A late ack
///   cannot be confused with anything: it is refused as [`AckError::NotLive`].
/// * **Chosen** roots are found by a seeded hash. Acks may come before the init and wait for it. A
///   late ack of an ended root looks like an early one of a new root: the tracker holds it, counts
///   it, and drops it after the [early timeout](AckTrackerBuilder::early_timeout). That is bounded,
///   observable and harmless, provided that **an id names one attempt**: replay a message under a
///   new id.
///
/// # Owners and tokens
///
/// Each root has an *owner*, a number that outcomes can be routed by, and that operators query by:
/// [`owned_by`](Self::owned_by), [`fail_all`](Self::fail_all). A tracker built
/// [`with_tokens`](AckTrackerBuilder::with_tokens) takes a *token* with each root, of any type `T`
/// that is `Send`: what the receiver of the outcome needs, such as the message or a channel for the
/// reply. The token lies in the root's entry, and comes back by value in its [`Outcome`], once,
/// however the root ends. [`TokenError`](crate::TokenError) returns it if the root is refused. A
/// token of more than 64 bytes is boxed. Without tokens `T` is `()`, which takes no memory.
///
/// # Time
///
/// One reaper thread per tracker ends what is due. It sleeps until the next deadline, and without a
/// limit if there is none. [`build_manual`](AckTrackerBuilder::build_manual) makes a tracker
/// without it, driven by [`poll`](Self::poll). State is in memory by design: after a restart, the
/// sources of messages must replay those whose outcomes they have not had.
///
/// # More examples
///
/// With ids from other processes, and without handles. An ack is the XOR of the edge that is done
/// and of the edges derived from it.
///
/// ```
/// use expiry::{edge, Ack, AckTracker};
///
/// let tracker = AckTracker::builder().build()?;
/// let (message, first, second) = (7, edge(), edge());
/// let part = edge();
/// tracker.ack(message, first ^ part)?;             // came before the init: held for it
/// tracker.init(message, first ^ second, 42)?;
/// tracker.ack(message, second)?;
/// assert_eq!(tracker.ack(message, part)?, Ack::Completed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Polled`] has an example of a simulation, without a thread.
pub struct AckTracker<T: 'static = ()> {
    trees: Arc<Trees<T>>,
    owner: Arc<Owner<Trees<T>>>,
    on_drop: OnDrop,
}

handle! {
    AckTracker<T> { trees, owner, on_drop } by trees,
    /// It does not wait for what [`AckError::EarlyFull`] refuses.
    room
}

impl AckTracker {
    /// Settings with defaults.
    pub fn builder() -> AckTrackerBuilder {
        AckTrackerBuilder::default()
    }
}

impl<T: Send + 'static> AckTracker<T> {
    /// The longest timeout that the [interval](Self::interval) allows: 2^39 intervals, about.
    #[must_use]
    pub fn longest_timeout(&self) -> Duration {
        self.trees.engine.deadlines.ticks().longest()
    }

    /// The granularity of the tracker's deadlines: that of the shortest ones, where the
    /// [builder](crate::AckTrackerBuilder::interval) was given none.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.trees.engine.deadlines.ticks().interval()
    }

    /// Ends what is due, with at most about `budget` steps of work. For trackers built without a
    /// reaper, and harmless on others. Never waits: any number of threads may poll, and each leaves
    /// out the shards that another one drives. A poll in a handler finds nothing.
    pub fn poll(&self, budget: usize) -> Polled {
        self.trees.engine.poll_once(budget, &*self.trees)
    }

    /// For models: the clock has come to `tick`.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn timer_fires(&self, tick: u64) {
        self.trees.engine.wakeup.timer_fires(tick);
    }

    /// For models: the hash of a chosen root's key, as the index has it.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn hash_of(&self, key: u64) -> u32 {
        self.trees.engine.keys.hash(key) | 1 << 31
    }

    /// For models: the number of chunks on the first shard's ring, and its chunks that have been
    /// used since their memory went back.
    #[cfg(expiry_loom)]
    #[doc(hidden)]
    pub fn chunks(&self) -> (u32, Vec<u32>) {
        self.trees.engine.chunks()
    }
}
