//! Ack trees on the engine's slots: the protocol of `init`, `ack`, `fail` and `reset_timeout`.
//!
//! # The word
//!
//! A slot's word is the XOR of everything seen for its root, *whitened*: XORed with a constant that
//! depends on the root, its generation and a secret of this tracker. There are two whitenings, W0
//! for a root whose init has not come and W1 for one whose init has. A tree is complete if and only
//! if its word is exactly W1.
//!
//! * The thread whose compare-and-swap makes the word W1 knows it from that swap, and reads no
//!   second word. So there is no store/load race between the last ack and the init.
//! * If another occupant has come since a thread read the word, that thread's compare-and-swap
//!   fails, even for the same key with the same edge ids (W14), up to a chance of 2^-64.
//!
//! # Linearization points
//!
//! | operation | takes effect |
//! |---|---|
//! | `issue` | the store that makes the lease LIVE (no other thread knows the id yet) |
//! | `init`, fresh | the publication in the index |
//! | `init`, after early acks | the swap EARLY -> INITING, which refuses a second init |
//! | `ack` | the compare-and-swap on the word; if late, the load of a lease that is not live |
//! | `ack`, first sign of a chosen root | the publication in the index |
//! | completion | the swap LIVE -> DEAD of the thread that made the word W1 |
//! | `fail` | the swap LIVE -> DEAD (or EARLY -> EARLY_FAILED, or the publication) |
//! | `reset_timeout` | the swap of the lease's deadline |
//! | timeout | the driver's swap LIVE -> DEAD |
//!
//! If a tree times out or fails between an ack's load of a live lease and its XOR, the ack counts
//! as made just before that end. No thread reads what the XOR changes.
//!
//! # Modules
//!
//! | module | mechanism |
//! |---|---|
//! | [`tree`] | a slot's words, and the order in which they are read and written |
//! | [`word`] | the whitenings |
//! | [`issued`] | the calls on issued roots |
//! | [`chosen`] | the calls on chosen roots, and early entries |
//! | [`many`] | the calls on many roots |
//! | [`ends`] | what the thread does that ends a root |
//! | [`idle`] | roots that get no acks |
//! | [`undelivered`] | outcomes on their way |
//! | [`births`] | when roots began, and their latencies |
//! | [`driver`] | what the driver asks, and the shutdown |

mod births;
mod chosen;
mod driver;
mod ends;
mod idle;
mod issued;
mod many;
mod tree;
mod undelivered;
mod word;

pub(super) use self::tree::Tree;

use self::undelivered::Undelivered;
use super::error::AckError;
use super::outcome::Outcome;
use crate::core::engine::{Config, Engine, Look, Stripe};
use crate::core::lease::Lease;
use crate::core::shards::Shards;
use crate::core::threads::Counter;
use crate::error::BuildError;
use crate::kit::lifecycle::Leftovers;
use crate::kit::panics::Panics;
use crate::kit::target::Target;
use crate::time::{Lifetime, LifetimeError};
#[cfg(feature = "async")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;

/// One shard's part of a thread's counters. Its size is a power of two: an address is a shift.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    pub(crate) begun: Counter,
    pub(crate) acked: Counter,
    pub(crate) failed: Counter,
    pub(crate) expired: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) late: Counter,
    pub(crate) duplicate: Counter,
    pub(crate) refused: Counter,
    pub(crate) early_held: Counter,
    pub(crate) early_merged: Counter,
    pub(crate) early_expired: Counter,
    /// Number of keys put into, and taken out of, the index of this shard.
    pub(crate) keys_in: Counter,
    pub(crate) keys_out: Counter,
}

/// Called for each outcome. It may use the tracker, be slow, or panic.
pub(in crate::ack) type Handler<T> = dyn Fn(Outcome<T>) + Send + Sync;

/// A thread's part of the tracker's state.
pub(crate) struct Share {
    pub(crate) counts: Shards<Counts>,
    nonce: Counter,
    undelivered: Undelivered,
}

type Mine = Stripe<Share>;

/// What a root begins with.
#[derive(Clone, Copy)]
struct Times {
    deadline: u64,
    /// The clock reading that the deadline comes from.
    now: u64,
    /// The tick at which it has been idle for too long; its deadline without an idle timeout.
    idle: u64,
}

pub(crate) struct Settings {
    /// Default timeout in nanoseconds; `None` if timeouts are off.
    pub(crate) timeout: Option<u64>,
    /// In nanoseconds; `None` if roots may idle.
    pub(crate) idle_timeout: Option<u64>,
    pub(crate) early_timeout: Lifetime,
    pub(crate) early_capacity: u64,
    /// Number of roots, of 2^32, whose latency is taken.
    pub(crate) sampled: u64,
    pub(crate) secrets: [u64; 4],
}

pub(crate) struct Trees<T: 'static> {
    pub(crate) engine: Engine<Tree<T>, Share>,
    settings: Settings,
    /// Number of early entries held now.
    early: AtomicU64,
    /// Where outcomes go.
    pub(crate) target: Target<Outcome<T>, Handler<T>>,
    /// Caught panics of handlers, and of tokens that were dropped.
    pub(crate) panics: Panics,
    /// A shutdown has left the channel's end to the threads that deliver.
    #[cfg(feature = "async")]
    left: AtomicBool,
    /// The roots that a shutdown has ended and has yet to return. (Threads share the trees if
    /// tokens may move between them, as its mutex says.)
    pub(crate) returned: Leftovers<Outcome<T>>,
}

impl<T: 'static> Trees<T> {
    pub(crate) fn new(
        config: Config,
        settings: Settings,
        target: Target<Outcome<T>, Handler<T>>,
    ) -> Result<Self, BuildError> {
        let share = |shards| Share {
            counts: Shards::defaults(shards),
            nonce: Counter::default(),
            undelivered: Undelivered::default(),
        };
        Ok(Trees {
            engine: Engine::new(config, share)?,
            settings,
            early: AtomicU64::new(0),
            #[cfg(feature = "async")]
            left: AtomicBool::new(false),
            target,
            panics: Panics::default(),
            returned: Leftovers::new(),
        })
    }

    /// The error of a caller without room, which this counts, or of one after a shutdown.
    #[cold]
    pub(super) fn refuse(&self, why: impl Into<AckError>) -> AckError {
        let why = why.into();
        if why != AckError::Closed {
            self.engine.count_refusal();
        }
        why
    }

    /// The times of a root that begins now.
    #[inline(always)]
    fn times(&self, mine: &Mine, timeout: Lifetime) -> Result<Times, AckError> {
        let default = self.settings.timeout;
        let (deadline, now) =
            match self.engine.deadlines.deadline(&mine.deadlines, timeout, default) {
                Ok(times) => times,
                Err(_) => self.times_anew(mine, timeout)?,
            };
        let idle = self.settings.idle_timeout.map_or(deadline, |idle| self.idle_by(mine, idle));
        Ok(Times { deadline, now, idle })
    }

    /// The deadline of a root that begins when the driver has caught up, and the clock reading.
    #[cold]
    #[inline(never)]
    fn times_anew(&self, mine: &Mine, timeout: Lifetime) -> Result<(u64, u64), LifetimeError> {
        let (deadlines, default) = (&self.engine.deadlines, self.settings.timeout);
        self.engine.catching_up(self, || deadlines.deadline(&mine.deadlines, timeout, default))
    }

    /// Refuses a timeout that a renewal cannot have, whether or not there is such a root.
    #[inline]
    pub(super) fn check(&self, timeout: Lifetime) -> Result<(), AckError> {
        self.engine.deadlines.nanos(timeout, self.settings.timeout)?;
        Ok(())
    }

    /// The deadline that a renewal of `lease` sets; with `None` the lease stays as it is.
    #[inline]
    pub(super) fn renewed(
        &self,
        lease: Lease,
        look: Look,
        timeout: Lifetime,
    ) -> Result<Option<u64>, AckError> {
        let default = self.settings.timeout;
        Ok(self.engine.catching_up(self, || self.engine.renewed(lease, look, timeout, default))?)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn late<R>(&self, id: u32) -> Result<R, AckError> {
        self.engine.with_stripe(|mine, _| self.count_late(mine, id));
        Err(AckError::NotLive)
    }

    #[cold]
    pub(super) fn count_late(&self, mine: &Mine, id: u32) {
        mine.frontend.counts[self.engine.shard_of(id)].late.add(1);
    }
}
