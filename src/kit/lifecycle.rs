//! How a store ends: which thread closes it, and how its reaper starts and stops.
//!
//! # Who closes a store
//!
//! A shutdown refuses new entries, and then one thread *closes* the store: it ends every entry
//! ([`Engine::close`]). [`shut`] decides which thread that is.
//!
//! | the calling thread is | with a reaper | without a reaper |
//! |---|---|---|
//! | inside a call of the user's code ([`is_inside`]) | asks the reaper to stop, and returns; the reaper closes the store | closes the shards that no other thread drives; the threads that drive the others close them when they leave |
//! | the reaper | asks itself | - |
//! | any other thread | closes the store, and waits for the threads that drive it and for its own reaper | closes the store, and waits for the threads that drive it |
//!
//! So no thread waits while another store may wait for it.
//! `stores_that_shut_each_other_down_come_to_their_end` (`tests/it/each_other.rs`) has each pair of
//! store types; the model is `two_stores_shut_each_other_down`.

use crate::core::engine::{Engine, Frontend, Share};
use crate::core::reaper::{drive, Next, Orders};
use crate::core::slot::Payload;
use crate::error::BuildError;
use crate::kit::panics::{drop_each, is_inside};
use crate::kit::reaper::{spawn, Reaper, REAPER};
use crate::kit::setup::Setup;
use crate::sync::park::{doze, park, Sleeper};
use crate::sync::worker::Worker;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shuts the store of `frontend` down, as the module's head says.
pub(crate) fn shut<P: Payload, C>(
    engine: &Engine<P, C>,
    reaper: Option<&Reaping>,
    frontend: &impl Frontend<P>,
) {
    engine.admission.refuse();
    let Some(reaper) = Reaping::here(reaper) else {
        return frontend.close();
    };
    if is_inside() || reaper.worker().is_current() {
        return reaper.ask(engine);
    }
    frontend.close();
    reaper.ask(engine);
    // A thread that the store shares may be inside another store's listener, which may wait for the
    // caller: it is left to itself.
    if let By::Own(worker) = &reaper.by {
        worker.join();
    }
}

/// Begins what [`shut`] does, and blocks no thread: the reaper closes the store, or without a
/// reaper this call. The future ends when the store is closed.
#[cfg(feature = "async")]
pub(crate) fn shut_soon<'a, P: Payload, C>(
    engine: &'a Engine<P, C>,
    reaper: Option<&'a Reaping>,
    frontend: &impl Frontend<P>,
) -> impl std::future::Future<Output = ()> + 'a {
    engine.admission.refuse();
    let reaper = Reaping::here(reaper);
    match reaper {
        Some(reaper) => reaper.ask(engine),
        None => frontend.close(),
    }
    async move {
        if let Some(reaper) = reaper {
            reaper.ended(engine).await;
        }
    }
}

/// Refuses new entries, and waits until none is left, for at most `limit` of real time; polls
/// meanwhile where there is no reaper. A thread inside a call of the user's code does not wait.
/// Returns whether none is left.
pub(crate) fn drain<P: Payload, C>(
    engine: &Engine<P, C>,
    reaper: Option<&Reaping>,
    frontend: &impl Frontend<P>,
    limit: Duration,
) -> bool {
    engine.admission.refuse();
    let began = Instant::now();
    while !engine.is_vacant(frontend) {
        if is_inside() || began.elapsed() >= limit {
            return false;
        }
        if Reaping::here(reaper).is_none() {
            engine.poll_once(4096, frontend);
        }
        std::thread::sleep(Duration::from_millis(1).min(limit));
    }
    true
}

/// [`drain`] without blocking the thread. The future looks after each round of the reaper, which
/// comes every millisecond while a task waits; without a reaper, after each poll.
#[cfg(feature = "async")]
pub(crate) fn drain_soon<'a, P: Payload, C>(
    engine: &'a Engine<P, C>,
    reaper: Option<&'a Reaping>,
    frontend: &'a impl Frontend<P>,
    limit: Duration,
) -> impl std::future::Future<Output = bool> + 'a {
    engine.admission.refuse();
    let (reaper, began) = (Reaping::here(reaper), Instant::now());
    engine.admission.until_parted(move || {
        if reaper.is_none() {
            engine.poll_beside(engine.deadlines.now(), 4096, frontend);
        }
        // Read before the look: a reaper that has ended wakes no task again.
        let is_over = began.elapsed() >= limit || reaper.is_some_and(|it| it.orders.has_ended());
        if engine.is_vacant(frontend) {
            return Some(true);
        }
        if let (false, Some(reaper)) = (is_over, reaper) {
            // Asks it to wake, after its next round, the tasks that wait for the last entry's end.
            reaper.orders.look();
            engine.wakeup.wake_from_sleep();
        }
        is_over.then_some(false)
    })
}

/// What a shutdown has ended and its caller, or its future, has yet to take. `None` until a
/// shutdown wants it. Locked by shutdowns only.
pub(crate) struct Leftovers<T>(Mutex<Option<Vec<T>>>);

impl<T> Leftovers<T> {
    pub(crate) fn new() -> Self {
        Leftovers(Mutex::new(None))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Vec<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller, or a future, will take what is ended from here on.
    pub(crate) fn want(&self) {
        self.lock().get_or_insert_with(Vec::new);
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.lock().is_some()
    }

    /// Adds what the caller has just ended, while it drives the shard: a shutdown that finds the
    /// shard closed finds it here.
    pub(crate) fn push(&self, item: T) {
        self.lock().get_or_insert_with(Vec::new).push(item);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        let left = self.lock().as_mut().map(std::mem::take);
        left.unwrap_or_default()
    }
}

impl<T> Drop for Leftovers<T> {
    /// No call has taken these: catches the panics of their drops.
    fn drop(&mut self) {
        let left = self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        drop_each(left.into_iter().flatten());
    }
}

/// What all handles to a store share beside the store, which each handle has itself: so a call
/// reaches it by one pointer. Dropping the last handle shuts the store down.
pub(crate) struct Owner<F: Shut> {
    frontend: Arc<F>,
    reaper: Option<Reaping>,
}

pub(crate) trait Shut {
    /// Does what [`shut`] does, and what else belongs to a shutdown of this store.
    fn shut(&self, reaper: Option<&Reaping>);
}

impl<F: Shut> Owner<F> {
    /// The owner of a new store. It starts a reaper where the store `reaps`.
    pub(crate) fn new<P: Payload, C: Send + Sync + 'static>(
        frontend: &Arc<F>,
        engine: fn(&F) -> &Engine<P, C>,
        setup: &Setup,
        reaps: bool,
    ) -> Result<Arc<Self>, BuildError>
    where
        F: Frontend<P> + Send + Sync + 'static,
    {
        if reaps && setup.clock.as_ref().is_some_and(|clock| clock.is_manual()) {
            return Err(BuildError::ManualClock);
        }
        // Made first: if the reaper does not start, the owner's drop shuts the store down.
        let mut owner = Owner { frontend: frontend.clone(), reaper: None };
        if reaps {
            owner.reaper = Some(Reaping::start(frontend, engine, setup)?);
        }
        Ok(Arc::new(owner))
    }

    pub(crate) fn reaper(&self) -> Option<&Reaping> {
        self.reaper.as_ref()
    }

    pub(crate) fn shut(&self) {
        self.frontend.shut(self.reaper());
    }
}

impl<F: Shut> Drop for Owner<F> {
    fn drop(&mut self) {
        self.shut();
    }
}

/// The thread that reaps a store, and how to stop that.
pub(crate) struct Reaping {
    by: By,
    orders: Arc<Orders>,
}

enum By {
    Own(Worker),
    Shared(Reaper),
}

impl Reaping {
    /// Starts a reaper for the engine of `frontend`, or has a shared one drive it, too.
    fn start<P: Payload, C: Send + Sync + 'static, F: Frontend<P> + Send + Sync + 'static>(
        frontend: &Arc<F>,
        engine: fn(&F) -> &Engine<P, C>,
        setup: &Setup,
    ) -> Result<Self, BuildError> {
        let budget = setup.budget.unwrap_or(4096);
        let orders = Arc::new(Orders::new());
        let wakeup = &engine(frontend).wakeup;
        let (frontend, ordered) = (frontend.clone(), orders.clone());
        let round = move |until| {
            let engine = engine(&frontend);
            let share = Share { until, ..Share::of(budget) };
            let next = drive(engine, &*frontend, share, &ordered);
            if let Next::Stop = next {
                ordered.end();
                #[cfg(feature = "async")]
                engine.admission.parted();
            }
            next
        };
        let by = match &setup.reaper {
            Some(reaper) => {
                reaper.take_on(Box::new(round), |sleeper| wakeup.set_reaper(sleeper))?;
                By::Shared(reaper.clone())
            }
            None => {
                let name = setup.name.as_deref().unwrap_or(REAPER);
                let worker = spawn(name, move || run(round))?;
                wakeup.set_reaper(Sleeper::own(worker.thread().clone()));
                By::Own(worker)
            }
        };
        Ok(Reaping { by, orders })
    }

    /// The reaper, if there is one in this process. Without one, only polling drives the engine.
    pub(crate) fn here(reaping: Option<&Self>) -> Option<&Self> {
        reaping.filter(|reaping| !reaping.worker().is_lost())
    }

    fn worker(&self) -> &Worker {
        match &self.by {
            By::Own(worker) => worker,
            By::Shared(reaper) => reaper.worker(),
        }
    }

    /// Asks the reaper to stop after this round, and to close the store then.
    pub(crate) fn ask<P: Payload, C>(&self, engine: &Engine<P, C>) {
        self.orders.stop();
        engine.wakeup.wake();
    }

    /// Ends when the reaper has done its last round of the store.
    #[cfg(feature = "async")]
    pub(crate) async fn ended<P: Payload, C>(&self, engine: &Engine<P, C>) {
        let ended = || self.orders.has_ended().then_some(());
        engine.admission.until_parted(ended).await;
    }
}

/// The thread of one store: drives it until it is ordered to stop.
fn run(drive: impl Fn(Option<Instant>) -> Next) {
    loop {
        match drive(None) {
            Next::Round => {}
            Next::Pause(time) => doze(time),
            Next::Sleep(limit) => park(limit),
            Next::Stop => return,
        }
    }
}
