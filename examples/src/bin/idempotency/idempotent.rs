//! Calls with a key: executed once within a window, and answered alike.

use expiry::expiring_map::Entry;
use expiry::{BuildError, Clock, ExpiringMap, StoreError, Timeout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<A> {
    /// By this very call.
    Executed(A),
    /// As the first call with this key was.
    Again(A),
}

/// What becomes of a duplicate that comes while the first one is executed.
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

pub struct Idempotent<A: Send + 'static> {
    calls: ExpiringMap<String, Arc<Call<A>>>,
}

/// The first call with a key, and what came of it.
struct Call<A> {
    state: Mutex<State<A>>,
    over: Condvar,
}

enum State<A> {
    Running,
    Done(A),
    /// It has panicked; the next one may try.
    Dropped,
}

impl<A: Clone + Send + 'static> Idempotent<A> {
    /// The window begins with the answer.
    pub fn new(window: Duration, clock: impl Clock) -> Result<Self, BuildError> {
        let calls = ExpiringMap::builder().time_to_live(window).clock(clock);
        Ok(Idempotent { calls: calls.build()? })
    }

    /// Executes it, unless that has been done within the window: then the answer is that one.
    pub fn call(
        &self,
        key: &str,
        meanwhile: Meanwhile,
        execute: impl FnOnce() -> A,
    ) -> Result<Answer<A>, CallError> {
        loop {
            let before = match self.calls.entry(key.to_string()) {
                Entry::Vacant(vacant) => {
                    let call = Arc::new(Call::new());
                    // As long as it takes. The entry is dropped at once: what is lent must not be kept while it is executed.
                    match vacant.insert_with(call.clone(), Timeout::Never).map(drop) {
                        Ok(()) => return Ok(Answer::Executed(self.execute(key, &call, execute))),
                        Err(refused) if refused.error == StoreError::Changed => continue,
                        Err(refused) => return Err(refused.error.into()),
                    }
                }
                Entry::Occupied(occupied) => occupied.get().clone(),
            };
            if let Some(answer) = before.answer(meanwhile)? {
                return Ok(Answer::Again(answer));
            }
        }
    }

    fn execute(&self, key: &str, call: &Call<A>, execute: impl FnOnce() -> A) -> A {
        let attempt = Attempt { calls: &self.calls, key, call };
        let answer = execute();
        std::mem::forget(attempt);
        call.end(State::Done(answer.clone()));
        // From here on for the window.
        self.calls.touch(key);
        answer
    }

    /// Keys whose window is not over.
    pub fn len(&self) -> usize {
        self.calls.iter().count()
    }
}

impl<A: Clone> Call<A> {
    fn new() -> Self {
        Call { state: Mutex::new(State::Running), over: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came of it; `None` if that is nothing.
    fn answer(&self, meanwhile: Meanwhile) -> Result<Option<A>, CallError> {
        let mut state = self.state();
        loop {
            match &*state {
                State::Done(answer) => return Ok(Some(answer.clone())),
                State::Dropped => return Ok(None),
                State::Running if meanwhile == Meanwhile::Refuse => {
                    return Err(CallError::InProgress)
                }
                State::Running => {
                    let woken = self.over.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl<A> Call<A> {
    fn end(&self, end: State<A>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = end;
        self.over.notify_all();
    }
}

/// A call that is being executed; dropped if it panics.
struct Attempt<'a, A: Send + 'static> {
    calls: &'a ExpiringMap<String, Arc<Call<A>>>,
    key: &'a str,
    call: &'a Call<A>,
}

impl<A: Send + 'static> Drop for Attempt<'_, A> {
    fn drop(&mut self) {
        // First, so that who waits finds a key that is free.
        self.calls.remove(self.key);
        self.call.end(State::Dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossbeam_channel::bounded;
    use expiry::ManualClock;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    use std::sync::Barrier;
    use std::thread;
    use Answer::{Again, Executed};
    use Meanwhile::{Refuse, Wait};

    const WINDOW: Duration = Duration::from_secs(24 * 3600);
    /// A 300th of the window, but at most a second.
    const INTERVAL: Duration = Duration::from_secs(1);
    const NANO: Duration = Duration::from_nanos(1);

    fn calls() -> (ManualClock, Idempotent<u32>) {
        let clock = ManualClock::new();
        let calls = Idempotent::new(WINDOW, clock.clone()).unwrap();
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
    fn of_calls_at_the_same_time_one_is_executed() {
        let (_, calls) = calls();
        let (executed, together) = (AtomicU32::new(0), Barrier::new(4));
        for key in 0..500 {
            let key = key.to_string();
            executed.store(0, Relaxed);
            let call = || {
                together.wait();
                calls.call(&key, Wait, || executed.fetch_add(1, Relaxed))
            };
            let answers = thread::scope(|scope| {
                [(); 4].map(|()| scope.spawn(call)).map(|one| one.join().unwrap().unwrap())
            });
            assert_eq!(executed.load(Relaxed), 1);
            let first = answers.iter().filter(|one| **one == Executed(0)).count();
            let again = answers.iter().filter(|one| **one == Again(0)).count();
            assert_eq!((first, again), (1, 3));
        }
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
