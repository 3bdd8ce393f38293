//! What becomes of messages whose tree failed or timed out.

use crate::task::nanos;
use rand::Rng;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Settings with their setters: `setter(argument: Type) => field = default;`.
macro_rules! settings {
    ($(#[$of:meta])* $settings:ident
     $($(#[$doc:meta])* $name:ident($arg:ident: $type:ty) => $field:ident = $default:expr;)+) => {
        $(#[$of])*
        pub struct $settings {
            $(pub(crate) $field: $type,)+
        }

        impl Default for $settings {
            fn default() -> Self {
                $settings { $($field: $default,)+ }
            }
        }

        impl $settings {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $arg: $type) -> Self {
                self.$field = $arg;
                self
            })+
        }
    };
}

settings! {
    /// When, and how often, a message is emitted again. The nth pause is `base * factor^(n - 1)`,
    /// and at most `cap`. Each pause is longer or shorter by up to `jitter` of it, so that messages
    /// that failed together do not come again together.
    ///
    /// The default is 5 attempts and for at least 15 minutes. Its pauses are 100 ms, twice as long
    /// each time, and at most 30 s, with a fifth of jitter.
    ///
    /// ```
    /// use expiry_topology::Replay;
    /// use std::time::Duration;
    ///
    /// // 1 s, 1.5 s, 2.25 s, and so on, a tenth more or less. The tenth attempt is the last one,
    /// // or the first one that fails after five minutes, whichever is later.
    /// let replay = Replay::default()
    ///     .attempts(10)
    ///     .for_at_least(Duration::from_secs(300))
    ///     .base(Duration::from_secs(1))
    ///     .factor(1.5)
    ///     .cap(Duration::from_secs(60))
    ///     .jitter(0.1);
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq)]
    Replay
    /// How many attempts a message gets at least, the first one included. A message that fails
    /// after that many, and after [`for_at_least`](Self::for_at_least), is a dead letter. A message
    /// that a bolt [rejects](crate::BoltCollector::reject) gets no more.
    attempts(attempts: u32) => attempts = 5;
    /// How long after its first emission a message is emitted again, however many attempts have
    /// failed. So an outage that is shorter makes no dead letters. Zero counts attempts only.
    for_at_least(time: Duration) => at_least = Duration::from_secs(15 * 60);
    /// The pause before the second attempt; zero for none, which makes the others zero too.
    base(base: Duration) => base = Duration::from_millis(100);
    /// How many times as long each further pause is: 1 and above.
    factor(factor: f64) => factor = 2.0;
    /// The longest pause, jitter not included.
    cap(cap: Duration) => cap = Duration::from_secs(30);
    /// The share by which a pause is longer or shorter at the most: 0 to 1.
    jitter(jitter: f64) => jitter = 0.2;
}

impl Replay {
    /// No message is emitted again: its first failure is the last one.
    #[must_use]
    pub fn once() -> Self {
        Replay::default().attempts(1).for_at_least(Duration::ZERO)
    }

    /// Sets no limit to the number of attempts.
    #[must_use]
    pub fn without_limit(self) -> Self {
        self.attempts(u32::MAX)
    }

    /// What is wrong with it.
    pub(crate) fn check(&self) -> Option<&'static str> {
        if self.attempts == 0 {
            Some("has no attempts; it takes one at least")
        } else if !(self.factor.is_finite() && self.factor >= 1.0) {
            Some("has a factor below 1")
        } else if !(0.0..=1.0).contains(&self.jitter) {
            Some("has a jitter that is not between 0 and 1")
        } else {
            None
        }
    }

    pub(crate) fn repeats(&self) -> bool {
        self.attempts > 1 || !self.at_least.is_zero()
    }

    /// The pause after attempt number `attempt`, counted from 1, in nanoseconds; `None` if that was
    /// the last one. The message was emitted first so many nanoseconds ago.
    pub(crate) fn pause(&self, attempt: u32, age: u64, random: &mut impl Rng) -> Option<u64> {
        if attempt >= self.attempts && age >= nanos(self.at_least) {
            return None;
        }
        if self.base.is_zero() {
            return Some(0);
        }
        let power = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
        let pause = (self.base.as_secs_f64() * self.factor.powi(power)).min(self.cap.as_secs_f64());
        let pause = pause * (1.0 + self.jitter * random.random_range(-1.0..=1.0));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        Some((pause.max(0.0) * 1e9) as u64)
    }
}

/// Why an attempt did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// A bolt failed one of its tuples, or panicked over it.
    Failed {
        /// The bolt; `None` if users' code panicked while the message was offered.
        by: Option<Arc<str>>,
        /// What it said to that: see [`fail_with`](crate::BoltCollector::fail_with).
        why: Option<Arc<str>>,
    },
    /// A bolt [rejected](crate::BoltCollector::reject) one of its tuples: no attempt can succeed.
    Rejected {
        /// The bolt.
        by: Arc<str>,
        /// What it said to that.
        why: Arc<str>,
    },
    /// Not all was acked in time.
    TimedOut {
        /// When it should have been: clock time since the topology was started, rounded up to the
        /// interval.
        due: Duration,
        /// When that was seen, on the same scale.
        seen: Duration,
    },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Failed { by, why } => {
                f.write_str("it was failed")?;
                by.iter().try_for_each(|by| write!(f, " by {by:?}"))?;
                why.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Failure::Rejected { by, why } => {
                write!(f, "it was rejected by {by:?}: {why}")
            }
            Failure::TimedOut { due, seen } => {
                write!(f, "it was not acked by {due:?} (seen at {seen:?})")
            }
        }
    }
}

/// A message that is given up.
///
/// # Examples
///
/// ```
/// use expiry_topology::{sink, Collect, DeadLetter, ManualClock, Replay, TopologyBuilder, VecSpout};
/// use std::time::Duration;
///
/// let (letters, topology) = (Collect::new(), TopologyBuilder::new());
/// let numbers = topology.spout("numbers", |_| VecSpout::new(7..8)).replay(Replay::default().attempts(3).for_at_least(Duration::ZERO));
/// topology.bolt("sink", |_| sink(|_: &u64, _| Err::<(), _>("no"))).shuffle(&numbers);
/// topology.bolt("letters", letters.instances()).shuffle(numbers.dead_letters());
/// let mut topology = topology.simulate(&ManualClock::new())?;
/// assert!(topology.run(1_000));
/// let letter: DeadLetter<u64> = letters.all().remove(0);
/// assert_eq!((letter.message, letter.id.as_str(), letter.component.as_str(), letter.attempts), (7, "0", "numbers", 3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetter<M> {
    /// The message.
    pub message: M,
    /// The spout's id for it, as the id's `Debug` writes it.
    pub id: String,
    /// The spout.
    pub component: String,
    /// How many attempts it has had.
    pub attempts: u32,
    /// What became of the last one.
    pub failure: Failure,
}

#[cfg(test)]
#[path = "../tests/unit/replay.rs"]
mod tests;
