//! Leases on resources: each has one holder at a time, which renews its lease or loses it.

use expiry::Updated;
use expiry::{BuildError, ExpiryQueue, ExpiryQueueBuilder, Handle, LifetimeError, StoreError};
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};
use std::sync::Arc;
use std::time::Duration;

/// One holding of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    pub resource: usize,
    /// Greater than the token of every holder before: a fencing token, for the resource to compare.
    pub token: u64,
}

/// What its holder has.
#[derive(Debug)]
pub struct Lease {
    pub grant: Grant,
    handle: Handle,
}

/// The queue knows which holders live. A word for each resource is odd, and the holder's token, if
/// the resource is held; it is even if the resource is free.
pub struct Leases {
    queue: ExpiryQueue<Grant>,
    words: Arc<[AtomicU64]>,
    time: Duration,
}

impl Leases {
    /// Leases of that `time` on that many resources, in the queue that `build` makes. That calls
    /// `removal_listener` for a lease that was not renewed, when the resource is free again.
    pub fn new(
        resources: usize,
        time: Duration,
        build: impl FnOnce(ExpiryQueueBuilder<Grant>) -> Result<ExpiryQueue<Grant>, BuildError>,
        removal_listener: impl Fn(Grant) + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        let words: Arc<[AtomicU64]> = (0..resources).map(|_| AtomicU64::new(0)).collect();
        let free = words.clone();
        let queue = ExpiryQueue::builder()
            .interval((time / 100).max(Duration::from_millis(1)))
            .expiry_listener(move |grant: &Grant| {
                free[grant.resource].fetch_add(1, AcqRel);
                removal_listener(*grant);
            });
        Ok(Leases { queue: build(queue)?, words, time })
    }

    /// The resource, if it is free.
    pub fn acquire(&self, resource: usize) -> Result<Option<Lease>, StoreError> {
        let word = &self.words[resource];
        // What it would be if it were free.
        let free = word.load(Relaxed) & !1;
        let taken = word.compare_exchange(free, free + 1, AcqRel, Relaxed);
        if taken.is_err() {
            return Ok(None);
        }
        let token = free + 1;
        let grant = Grant { resource, token };
        match self.queue.update(grant, self.time) {
            Ok(Updated::Inserted { handle, .. }) => Ok(Some(Lease { grant, handle })),
            Ok(_) => unreachable!("no token is given twice"),
            Err(refused) => {
                word.fetch_add(1, AcqRel);
                Err(refused)
            }
        }
    }

    /// Renews the lease for the whole time from now on. Returns false if the holder has lost it.
    pub fn renew(&self, lease: &Lease) -> Result<bool, LifetimeError> {
        self.queue.touch_by(lease.handle, self.time)
    }

    /// Gives the lease back. Returns false if the holder has lost it before.
    pub fn release(&self, lease: Lease) -> bool {
        // Either this removal or the expiry ends the lease, and that one frees the resource.
        let ended = self.queue.remove(&lease.grant).is_some();
        if ended {
            self.words[lease.grant.resource].fetch_add(1, AcqRel);
        }
        ended
    }

    /// Ends all leases, and returns those that were held.
    pub fn close(&self) -> Vec<Grant> {
        self.queue.shutdown().iter().map(|left| *left.key()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expiry::ManualClock;
    use expiry_examples::eventually;
    use std::sync::Mutex;

    const TIME: Duration = Duration::from_secs(10);
    const INTERVAL: Duration = Duration::from_millis(100);
    const NANO: Duration = Duration::from_nanos(1);

    struct Scene {
        clock: ManualClock,
        leases: Leases,
        ended: Arc<Mutex<Vec<Grant>>>,
    }

    impl Scene {
        fn set() -> Self {
            let (clock, ended) = (ManualClock::new(), Arc::new(Mutex::new(Vec::new())));
            let told = ended.clone();
            let removal_listener = move |grant| told.lock().unwrap().push(grant);
            let build = |queue: ExpiryQueueBuilder<_>| queue.clock(clock.clone()).build_manual();
            let leases = Leases::new(1, TIME, build, removal_listener).unwrap();
            Scene { clock, leases, ended }
        }

        fn acquire(&self) -> Option<Lease> {
            self.leases.acquire(0).unwrap()
        }

        fn pass(&self, time: Duration) {
            self.clock.advance(time);
            assert!(self.leases.queue.poll().is_empty(), "the handler is told");
        }

        /// Time passes. Returns when so many ends have been reported.
        fn pass_and_end(&self, time: Duration, ends: usize) {
            self.clock.advance(time);
            eventually(|| {
                self.pass(Duration::ZERO);
                (self.ended().len() >= ends).then_some(())
            });
        }

        fn ended(&self) -> Vec<Grant> {
            self.ended.lock().unwrap().clone()
        }
    }

    #[test]
    fn a_lease_that_is_renewed_is_kept_and_one_that_is_not_is_taken_over_at_its_end() {
        let scene = Scene::set();
        let lease = scene.acquire().unwrap();
        for _ in 0..5 {
            scene.pass(TIME - NANO);
            assert!(scene.acquire().is_none());
            assert!(scene.leases.renew(&lease).unwrap());
        }
        scene.pass(TIME - NANO);
        assert!(scene.acquire().is_none() && scene.ended().is_empty());
        scene.pass_and_end(NANO + INTERVAL, 1);
        assert_eq!(scene.ended(), [lease.grant]);
        assert!(scene.acquire().unwrap().grant.token > lease.grant.token);
    }

    #[test]
    fn who_has_lost_it_can_neither_renew_nor_release_the_next_ones_lease() {
        let scene = Scene::set();
        let lost = scene.acquire().unwrap();
        scene.pass_and_end(TIME + INTERVAL, 1);
        let next = scene.acquire().unwrap();
        scene.pass(TIME / 2);
        assert!(!scene.leases.renew(&lost).unwrap());
        assert!(!scene.leases.release(lost));
        assert!(scene.acquire().is_none());
        scene.pass_and_end(TIME / 2 + INTERVAL, 2);
        assert_eq!(scene.ended().last(), Some(&next.grant), "the loser has renewed it");
    }

    #[test]
    fn what_is_released_is_free_at_once_and_does_not_expire() {
        let scene = Scene::set();
        let released = scene.acquire().unwrap();
        assert!(scene.leases.release(released));
        let lease = scene.acquire().unwrap();
        scene.pass(TIME / 2);
        assert!(scene.leases.renew(&lease).unwrap());
        scene.pass(TIME - NANO);
        assert!(scene.ended().is_empty());
        assert_eq!(scene.leases.close(), [lease.grant]);
    }
}
