//! Calls with a key: each is executed once within a window, and its duplicates get the same answer.

use expiry::expiring_map::Loaded;
use expiry::{BuildError, ExpiringMap, ExpiringMapBuilder, LoadError, StoreError};
use std::time::Duration;

/// An answer, and which call it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<A> {
    /// The answer of this call.
    Executed(A),
    /// The answer of the first call with this key.
    Again(A),
}

/// What a duplicate does that comes while the first call is being executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    Wait,
    Refuse,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("a call with this key is being executed; ask again")]
    InProgress,
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Calls<A> = ExpiringMap<String, A>;

pub struct Idempotent<A: Send + Sync + 'static> {
    calls: Calls<A>,
}

impl<A: Clone + Send + Sync + 'static> Idempotent<A> {
    /// The window of a key begins with the answer. A server's `build` is
    /// [`ExpiringMapBuilder::build`]; a simulation's sets a clock.
    pub fn new(
        window: Duration,
        build: impl FnOnce(ExpiringMapBuilder<String, A>) -> Result<Calls<A>, BuildError>,
    ) -> Result<Self, BuildError> {
        let calls = build(ExpiringMap::builder().time_to_live(window))?;
        Ok(Idempotent { calls })
    }

    /// Executes the call, or returns the answer of an earlier call with this key within the window.
    /// If the call panics, the map drops its guard, and one of the waiting duplicates is executed.
    pub fn call(
        &self,
        key: &str,
        meanwhile: Meanwhile,
        execute: impl FnOnce() -> A,
    ) -> Result<Answer<A>, CallError> {
        let loaded = match meanwhile {
            Meanwhile::Wait => self.calls.get_or_guard(key),
            Meanwhile::Refuse => self.calls.get_or_guard_timeout(key, Duration::ZERO),
        };
        match loaded {
            Ok(Loaded::Found(answer)) => Ok(Answer::Again(answer.clone())),
            Ok(Loaded::Absent(guard)) => Ok(Answer::Executed(match guard.insert(execute()) {
                Ok(answer) => answer.clone(),
                // The map had no memory for the answer. The caller gets it, for it does hold: only
                // a later duplicate is executed again.
                Err(refused) => refused.value,
            })),
            Err(LoadError::TimedOut | LoadError::Recursive) => Err(CallError::InProgress),
            Err(_) => Err(StoreError::Closed.into()),
        }
    }

    /// The number of keys whose window has not ended.
    pub fn len(&self) -> usize {
        self.calls.iter().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;
    use expiry::ManualClock;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::thread;
    use Answer::{Again, Executed};
    use Meanwhile::{Refuse, Wait};

    const WINDOW: Duration = Duration::from_secs(24 * 3600);
    /// A 300th of the window, but at most a second.
    const INTERVAL: Duration = Duration::from_secs(1);
    const NANO: Duration = Duration::from_nanos(1);

    fn calls() -> (ManualClock, Idempotent<u32>) {
        let clock = ManualClock::new();
        let calls = Idempotent::new(WINDOW, |calls| calls.clock(clock.clone()).build_manual());
        let calls = calls.unwrap();
        (clock, calls)
    }

    #[test]
    fn a_duplicate_gets_the_first_answer_within_the_window_and_is_executed_after_it() {
        let (clock, calls) = calls();
        let call = |answer| calls.call("key", Wait, || answer).unwrap();
        assert_eq!(call(1), Executed(1));
        assert_eq!(call(2), Again(1));
        clock.advance(WINDOW - NANO);
        assert_eq!(call(3), Again(1));
        clock.advance(NANO + INTERVAL);
        assert_eq!(call(4), Executed(4));
    }

    /// Executing takes longer than the window, which begins only then.
    #[test]
    fn a_duplicate_of_a_call_in_progress_waits_or_is_told_so() {
        let (clock, calls) = calls();
        let (begun, first_has_begun) = bounded(1);
        let (go_on, may_go_on) = bounded::<()>(1);
        thread::scope(|scope| {
            let first = || {
                let slowly = || {
                    begun.send(()).unwrap();
                    may_go_on.recv_timeout(Duration::from_secs(60)).unwrap();
                    1
                };
                calls.call("key", Refuse, slowly)
            };
            let calls = &calls;
            // Dropped where this ends early, so that the first call does not wait for ever.
            let go_on = go_on;
            let first = scope.spawn(first);
            first_has_begun.recv().unwrap();
            clock.advance(2 * WINDOW);
            assert_eq!(calls.call("key", Refuse, || 2), Err(CallError::InProgress));
            let waits = scope.spawn(|| calls.call("key", Wait, || 3));
            go_on.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Ok(Executed(1)));
            assert_eq!(waits.join().unwrap(), Ok(Again(1)));
        });
        clock.advance(WINDOW - NANO);
        assert_eq!(calls.call("key", Wait, || 4), Ok(Again(1)));
    }

    #[test]
    fn a_call_that_panics_is_not_an_answer() {
        let (_, calls) = calls();
        let panics = || calls.call("key", Wait, || panic!("no answer"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(calls.call("key", Refuse, || 2), Ok(Executed(2)));
        assert_eq!(calls.call("key", Refuse, || 3), Ok(Again(2)));
    }
}
