//! `dashmap` for the values, and `tokio_util::time::DelayQueue` behind a mutex for their deadlines.
//!
//! A thread that moves a deadline holds the mutex for both, as no call may use the name of a timer
//! that has fired. `get` does not take it, and reads no clock: it finds a due entry until the queue
//! has been polled. The queue is on a paused runtime, gets its deadlines as instants, and is exact
//! to the millisecond (see [`timers`](crate::timers)).

use super::{Key, Now, Setup, Store, Value};
use crate::peers::Hasher;
use crate::timers::paused;
use dashmap::DashMap;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_util::time::delay_queue::Key as Timer;

type Timers<K> = tokio_util::time::DelayQueue<K>;

pub struct DelayQueue<K, V> {
    map: DashMap<K, (V, Timer), Hasher>,
    timers: Mutex<(Timers<K>, u64)>,
    start: Instant,
    /// The runtime is dropped after the timers, which are on it.
    runtime: Runtime,
}

impl<K: Key, V: Value> DelayQueue<K, V> {
    #[inline]
    fn timers(&self) -> MutexGuard<'_, (Timers<K>, u64)> {
        self.timers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn instant(&self, now: Now<'_>, timeout: u64) -> Instant {
        self.start + Duration::from_nanos(now.get() + timeout)
    }
}

impl<K: Key, V: Value> Store<K, V> for DelayQueue<K, V> {
    const NAME: &'static str = "dashmap + DelayQueue";
    const DOES: &'static str = "one mutex for all deadlines; get reads no clock and no deadline";
    const DRIVEN: bool = true;
    type Handle = ();

    fn new(_setup: &Setup<'_>) -> Self {
        let runtime = paused();
        let context = runtime.enter();
        let (timers, start) = (Timers::new(), Instant::now());
        drop(context);
        DelayQueue { map: DashMap::default(), timers: Mutex::new((timers, 0)), start, runtime }
    }

    fn on_thread<R>(&self, f: impl FnOnce() -> R) -> R {
        let _context = self.runtime.enter();
        f()
    }

    #[inline]
    fn insert(&self, key: K, value: V, now: Now<'_>, timeout: u64) -> (Option<u64>, ()) {
        let at = self.instant(now, timeout);
        let mut timers = self.timers();
        let timer = timers.0.insert_at(key.clone(), at);
        let old = self.map.insert(key, (value, timer));
        let number = old.map(|(old, timer)| {
            timers.0.remove(&timer);
            old.number()
        });
        (number, ())
    }

    #[inline]
    fn get(&self, key: &K, _now: Now<'_>) -> Option<u64> {
        self.map.get(key).map(|entry| entry.0.number())
    }

    #[inline]
    fn touch(&self, key: &K, (): (), _value: V, now: Now<'_>, timeout: u64) -> bool {
        let at = self.instant(now, timeout);
        let mut timers = self.timers();
        let Some(entry) = self.map.get(key) else {
            return false;
        };
        timers.0.reset_at(&entry.1, at);
        true
    }

    #[inline]
    fn remove(&self, key: &K, _now: Now<'_>) -> bool {
        let mut timers = self.timers();
        let Some((_, (_, timer))) = self.map.remove(key) else {
            return false;
        };
        timers.0.remove(&timer);
        true
    }

    fn advance(&self, now: u64) -> usize {
        let mut guard = self.timers();
        let (timers, before) = &mut *guard;
        let mut expired = 0;
        self.runtime.block_on(async {
            tokio::time::advance(Duration::from_nanos(now - *before)).await;
            *before = now;
            poll_fn(|context| {
                // A task would be asked to pause after some; this is not one.
                while let Poll::Ready(Some(due)) = timers.poll_expired(context) {
                    self.map.remove(due.get_ref());
                    expired += 1;
                }
                Poll::Ready(())
            })
            .await;
        });
        expired
    }

    fn live(&self) -> usize {
        self.map.len()
    }
}
