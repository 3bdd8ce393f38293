//! Requests that wait for their replies: each gets one, or learns that none has come in time.

use expiry::{BuildError, Clock, ExpiringMap, RemovalCause, StoreError};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::mpsc::{channel, Receiver, Sender};

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<R> {
    Reply(R),
    TimedOut,
    /// There will be no more replies.
    Closed,
}

/// The receiver of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    InTime,
    /// Its request has ended before: timed out, or been answered.
    Late,
    /// There has been no such request.
    Unknown,
}

/// A channel of one: the thread that takes the entry out of the map sends the only end of the
/// request.
type Waiter<R> = Sender<Ending<R>>;

pub struct InFlight<R: Send + Sync + 'static> {
    waiting: ExpiringMap<u64, Waiter<R>>,
    /// Ids are numbers in order, so that one that is not waiting has either ended or never been.
    issued: AtomicU64,
}

impl<R: Send + Sync + 'static> InFlight<R> {
    /// Starts a reaper, which ends a request when its time is up.
    pub fn new(timeout: Duration, clock: impl Clock) -> Result<Self, BuildError> {
        let waiting = ExpiringMap::builder()
            .time_to_live(timeout)
            .clock(clock)
            .removal_listener(|_: &u64, waiter: &Waiter<R>, cause: RemovalCause| {
                let ending = match cause {
                    RemovalCause::Expired => Ending::TimedOut,
                    RemovalCause::Closed => Ending::Closed,
                    // `answer` took it, and has a reply for it.
                    _ => return,
                };
                // A send is refused if the task has stopped waiting.
                let _ = waiter.try_send(ending);
            })
            .build()?;
        Ok(InFlight { waiting, issued: AtomicU64::new(0) })
    }

    /// A request's id, and the channel that receives its end.
    pub fn begin(&self) -> Result<(u64, Receiver<Ending<R>>), StoreError> {
        let (waiter, end) = channel(1);
        let id = self.issued.fetch_add(1, Relaxed);
        self.waiting.insert(id, waiter)?;
        Ok((id, end))
    }

    /// A reply has come.
    pub fn answer(&self, id: u64, reply: R) -> Delivered {
        // Either this removal or the expiry succeeds, and that one wakes the waiting task.
        match self.waiting.remove(&id) {
            Some(waiter) => {
                let _ = waiter.try_send(Ending::Reply(reply));
                Delivered::InTime
            }
            None if id < self.issued.load(Relaxed) => Delivered::Late,
            None => Delivered::Unknown,
        }
    }

    /// The connection is gone. Ends all requests, and refuses new ones.
    pub fn close(&self) {
        self.waiting.shutdown();
    }

    /// Number of requests that have timed out.
    pub fn timed_out(&self) -> u64 {
        self.waiting.metrics().total.expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expiry::ManualClock;
    use expiry_examples::eventually;

    const TIMEOUT: Duration = Duration::from_secs(1);

    impl<R: Send + Sync> InFlight<R> {
        /// What the reaper does, which sleeps by the machine's time.
        fn expire(&self) {
            while self.waiting.poll(1000).more {
                std::thread::yield_now();
            }
        }
    }

    /// Waits for the end of a request.
    fn told<R>(end: &mut Receiver<Ending<R>>) -> Ending<R> {
        eventually(|| end.try_recv().ok())
    }

    fn in_flight() -> (ManualClock, InFlight<&'static str>) {
        let clock = ManualClock::new();
        let requests = InFlight::new(TIMEOUT, clock.clone()).unwrap();
        (clock, requests)
    }

    #[test]
    fn a_reply_in_time_is_told_and_one_that_is_late_is_told_apart_from_one_to_nobody() {
        let (clock, requests) = in_flight();
        let (quick, mut quickly) = requests.begin().unwrap();
        let (late, mut lately) = requests.begin().unwrap();
        assert_eq!(requests.answer(quick, "quick"), Delivered::InTime);
        assert_eq!(told(&mut quickly), Ending::Reply("quick"));
        clock.advance(2 * TIMEOUT);
        // The reply is late even before the reaper has ended the request.
        assert_eq!(requests.answer(late, "late"), Delivered::Late);
        requests.expire();
        assert_eq!(told(&mut lately), Ending::TimedOut);
        assert_eq!(requests.answer(late, "again"), Delivered::Late);
        assert_eq!(requests.answer(quick, "again"), Delivered::Late);
        assert_eq!(requests.answer(late + 1, "what?"), Delivered::Unknown);
        assert!(quickly.try_recv().is_err() && lately.try_recv().is_err());
    }

    #[test]
    fn who_waits_when_the_connection_goes_is_told_and_nobody_begins_after_it() {
        let (_, requests) = in_flight();
        let (_, mut end) = requests.begin().unwrap();
        requests.close();
        assert_eq!(told(&mut end), Ending::Closed);
        assert_eq!(requests.begin().unwrap_err(), StoreError::Closed);
    }

    /// Replies come while the requests time out: of each the two agree which it was.
    #[test]
    fn a_reply_that_meets_the_timeout_is_told_or_late_and_the_request_ends_once() {
        for _ in 0..20 {
            let (clock, requests) = in_flight();
            let calls: Vec<_> = (0..100).map(|_| requests.begin().unwrap()).collect();
            let delivered = std::thread::scope(|scope| {
                let replies = scope.spawn(|| {
                    let ids = calls.iter().map(|(id, _)| *id);
                    ids.map(|id| requests.answer(id, "reply")).collect::<Vec<_>>()
                });
                clock.advance(2 * TIMEOUT);
                requests.expire();
                replies.join().unwrap()
            });
            // The reaper may have been at some of them.
            requests.close();
            let ends = requests.waiting.metrics().total;
            let in_time = delivered.iter().filter(|one| **one == Delivered::InTime);
            assert_eq!(ends.removed, in_time.count() as u64);
            assert_eq!(ends.removed + ends.expired + ends.closed, 100);
            for ((_, mut end), delivered) in calls.into_iter().zip(delivered) {
                let told = told(&mut end);
                assert_eq!(told == Ending::Reply("reply"), delivered == Delivered::InTime);
                assert!(end.try_recv().is_err(), "told twice");
            }
        }
    }
}
