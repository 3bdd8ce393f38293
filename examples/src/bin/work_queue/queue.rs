//! Jobs that are given out, and given out again unless a worker acknowledges them in time.

use crossbeam_channel::{unbounded, Receiver, Sender};
use expiry::{
    BuildError, ExpiringMap, ExpiringMapBuilder, LifetimeError, RemovalCause, StoreError,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// A job that is to be given out. Attempts count from 1.
pub struct Attempt<J> {
    job: Arc<J>,
    number: u32,
}

/// What workers have, by receipt.
type Given<J> = ExpiringMap<u64, Attempt<J>>;

/// A job that a worker has been given.
#[derive(Debug)]
pub struct Delivery<J> {
    pub job: Arc<J>,
    pub attempt: u32,
    receipt: u64,
}

#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How long a job that was given out is hidden from other workers.
    pub visibility: Duration,
    /// How often it is given out before it is a dead letter.
    pub attempts: u32,
}

pub struct WorkQueue<J: Send + Sync + 'static> {
    ready: Receiver<Attempt<J>>,
    targets: Arc<Targets<J>>,
    given: Given<J>,
    receipts: AtomicU64,
    visibility: Duration,
}

/// The channels for jobs.
struct Targets<J> {
    ready: Sender<Attempt<J>>,
    dead: Sender<Arc<J>>,
    attempts: u32,
}

impl<J> Targets<J> {
    /// Gives the job out again, or makes it a dead letter after its last attempt.
    fn again(&self, failed: &Attempt<J>) {
        let (job, number) = (failed.job.clone(), failed.number + 1);
        // A send fails only if the receiver is gone: the queue, or the reader of dead letters.
        if number > self.attempts {
            let _ = self.dead.send(job);
        } else {
            let _ = self.ready.send(Attempt { job, number });
        }
    }
}

impl<J: Send + Sync + 'static> WorkQueue<J> {
    /// The queue, and its dead letters. What is given out is in the map that `build` makes.
    pub fn new(
        settings: Settings,
        build: impl FnOnce(ExpiringMapBuilder<u64, Attempt<J>>) -> Result<Given<J>, BuildError>,
    ) -> Result<(Self, Receiver<Arc<J>>), BuildError> {
        let (to_ready, ready) = unbounded();
        let (to_dead, dead) = unbounded();
        let targets =
            Arc::new(Targets { ready: to_ready, dead: to_dead, attempts: settings.attempts });
        let again = targets.clone();
        let given = ExpiringMap::builder().time_to_live(settings.visibility).removal_listener(
            move |_: &u64, attempt: &Attempt<J>, cause: RemovalCause| {
                if cause == RemovalCause::Expired {
                    again.again(attempt);
                }
            },
        );
        let queue = WorkQueue {
            ready,
            targets,
            given: build(given)?,
            receipts: AtomicU64::new(0),
            visibility: settings.visibility,
        };
        Ok((queue, dead))
    }

    pub fn push(&self, job: J) {
        let job = Arc::new(job);
        let first = Attempt { job, number: 1 };
        self.targets.ready.send(first).expect("the queue has the receiver");
    }

    /// Returns a job if there is one within this time. It is the caller's for the visibility
    /// timeout.
    pub fn receive(&self, wait: Duration) -> Result<Option<Delivery<J>>, StoreError> {
        let Ok(attempt) = self.ready.recv_timeout(wait) else {
            return Ok(None);
        };
        let delivery = Delivery {
            job: attempt.job.clone(),
            attempt: attempt.number,
            receipt: self.receipts.fetch_add(1, Relaxed),
        };
        match self.given.insert(delivery.receipt, attempt) {
            Ok(_) => Ok(Some(delivery)),
            Err(refused) => {
                let attempt = refused.value;
                self.targets.ready.send(attempt).expect("the queue has the receiver");
                Err(refused.error)
            }
        }
    }

    /// Starts the visibility timeout anew. Returns false if it was over: another worker gets the
    /// job.
    pub fn extend(&self, delivery: &Delivery<J>) -> Result<bool, LifetimeError> {
        self.given.touch_for(&delivery.receipt, self.visibility)
    }

    /// Ends the job. Returns false if the visibility timeout was over: it will be done again.
    pub fn acknowledge(&self, delivery: Delivery<J>) -> bool {
        self.given.remove(&delivery.receipt).is_some()
    }

    /// Gives the job back: another worker gets it at once. Returns false if that was so already.
    pub fn reject(&self, delivery: Delivery<J>) -> bool {
        let given = self.given.remove(&delivery.receipt);
        let is_ours = given.is_some();
        given.iter().for_each(|attempt| self.targets.again(attempt));
        is_ours
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expiry::ManualClock;
    use expiry_examples::eventually;

    const SETTINGS: Settings = Settings { visibility: Duration::from_secs(30), attempts: 3 };
    /// A 300th of the timeout.
    const INTERVAL: Duration = Duration::from_millis(100);
    const NANO: Duration = Duration::from_nanos(1);

    struct Scene {
        clock: ManualClock,
        queue: WorkQueue<u32>,
        dead: Receiver<Arc<u32>>,
    }

    impl Scene {
        fn set() -> Self {
            let clock = ManualClock::new();
            let build = |given: ExpiringMapBuilder<_, _>| given.clock(clock.clone()).build_manual();
            let (queue, dead) = WorkQueue::new(SETTINGS, build).unwrap();
            Scene { clock, queue, dead }
        }

        /// What is given out now.
        fn receive(&self) -> Option<Delivery<u32>> {
            while self.queue.given.poll(1000).more {}
            self.queue.receive(Duration::ZERO).unwrap()
        }

        /// Waits for the job that is given out again after so long.
        fn received_after(&self, time: Duration) -> Delivery<u32> {
            self.clock.advance(time);
            eventually(|| self.receive())
        }
    }

    #[test]
    fn what_is_not_acknowledged_is_given_out_again_after_its_timeout_and_not_before_it() {
        let scene = Scene::set();
        scene.queue.push(7);
        let first = scene.receive().unwrap();
        scene.clock.advance(SETTINGS.visibility - NANO);
        assert!(scene.receive().is_none());
        let second = scene.received_after(NANO + INTERVAL);
        assert_eq!((*second.job, first.attempt, second.attempt), (7, 1, 2));
        assert!(!scene.queue.acknowledge(first), "it was too late");
        assert!(scene.queue.acknowledge(second));
        scene.clock.advance(10 * SETTINGS.visibility);
        assert!(scene.receive().is_none(), "it was done");
    }

    #[test]
    fn who_extends_keeps_it() {
        let scene = Scene::set();
        scene.queue.push(7);
        let slow = scene.receive().unwrap();
        for _ in 0..5 {
            scene.clock.advance(SETTINGS.visibility - NANO);
            assert!(scene.receive().is_none());
            assert!(scene.queue.extend(&slow).unwrap());
        }
        assert!(scene.received_after(SETTINGS.visibility + INTERVAL).attempt == 2);
        assert!(!scene.queue.extend(&slow).unwrap());
    }

    #[test]
    fn after_its_attempts_it_is_a_dead_letter_once() {
        let scene = Scene::set();
        scene.queue.push(13);
        let first = scene.receive().unwrap();
        assert!(scene.queue.reject(first));
        let second = scene.receive().unwrap();
        assert_eq!(second.attempt, 2);
        let third = scene.received_after(SETTINGS.visibility + INTERVAL);
        assert!(!scene.queue.reject(second), "another worker has it");
        assert!(scene.dead.is_empty());
        assert!(scene.queue.reject(third));
        assert_eq!(*scene.dead.try_recv().unwrap(), 13);
        scene.clock.advance(10 * SETTINGS.visibility);
        assert!(scene.receive().is_none() && scene.dead.is_empty());
    }
}
