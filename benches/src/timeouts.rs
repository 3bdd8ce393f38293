//! Timeouts around futures, behind one trait, statically dispatched. A server puts them around
//! every read and every request, nearly all of which are done long before.
//!
//! [`run`] has tasks of a multi-threaded runtime await one future after the other. A future's first
//! poll wakes its task and is pending; the second is ready with a number. [`Bare`] awaits the same
//! futures without a timeout; the others cost what they add to that. These rules make it fair:
//!
//! * Runtime, tasks and futures are the same for every peer; the timeout is a minute, and none
//!   passes.
//! * Processor time of the whole process counts: the threads that fire timers are in it.
//! * No clock of any runtime in the process may have been paused before: from then on, tokio's
//!   timers read the clock under a lock.
//! * The harness checks the sum of the futures' results. Futures that are never ready must each
//!   time out, and none before its time (but for the millisecond that all here count in).

use crate::process::settled;
use expiry::Timeouts;
use std::future::{pending, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// A future that may go to another thread.
pub trait Work: Future<Output: Send> + Send {}

impl<F: Future<Output: Send> + Send> Work for F {}

/// A peer that ends futures when their time is up, and sleeps.
pub trait Guard: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Whether it does, or only shows what awaiting costs. Then a sleep never ends.
    const GUARDS: bool = true;
    /// Whether a sleep may end before its time.
    const MAY_BE_EARLY: bool = false;

    fn new() -> Self;

    /// The timer of the runtime that it runs on.
    fn timer(builder: &mut Builder) {
        builder.enable_time();
    }

    /// What `future` gives, or `None` if that takes longer than `within`.
    fn guard<F: Work>(
        &self,
        within: Duration,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + Send;

    /// Ends once this time has passed.
    fn sleep(&self, after: Duration) -> impl Future<Output = ()> + Send;
}

/// No guard: the futures on their own.
pub struct Bare;

impl Guard for Bare {
    const NAME: &'static str = "without a timeout";
    const GUARDS: bool = false;

    fn new() -> Self {
        Bare
    }

    #[inline]
    async fn guard<F: Work>(&self, _within: Duration, future: F) -> Option<F::Output> {
        Some(future.await)
    }

    async fn sleep(&self, _after: Duration) {
        pending().await
    }
}

pub struct Ours(Timeouts);

impl Guard for Ours {
    const NAME: &'static str = "expiry";

    fn new() -> Self {
        Ours(Timeouts::new().expect("a thread"))
    }

    #[inline]
    async fn guard<F: Work>(&self, within: Duration, future: F) -> Option<F::Output> {
        self.0.timeout(within, future).await.ok()
    }

    async fn sleep(&self, after: Duration) {
        self.0.sleep(after).await.expect("there is room");
    }
}

/// A peer whose timeouts and sleeps are functions of a module.
macro_rules! guard {
    ($(#[$meta:meta])* $peer:ident, $name:literal, $module:ident$(::$part:ident)*, $early:literal $(, $timer:ident)?) => {
        $(#[$meta])*
        pub struct $peer;

        impl Guard for $peer {
            const NAME: &'static str = $name;
            const MAY_BE_EARLY: bool = $early;

            fn new() -> Self {
                $peer
            }

            $(
                fn timer(builder: &mut Builder) {
                    builder.$timer();
                }
            )?

            #[inline]
            async fn guard<F: Work>(&self, within: Duration, future: F) -> Option<F::Output> {
                $module$(::$part)*::timeout(within, future).await.ok()
            }

            async fn sleep(&self, after: Duration) {
                $module$(::$part)*::sleep(after).await;
            }
        }
    };
}

guard!(Tokio, "tokio", tokio::time, false);
#[cfg(tokio_unstable)]
guard!(
    /// tokio's timer for each worker, which has to be asked for.
    TokioAlternative,
    "tokio, alternative timer",
    tokio::time,
    false,
    enable_alt_timer
);
guard!(
    /// Timers of each thread in a tree by deadline, in steps of 10 ms. A timer is made when the
    /// future is pending first, shared by all of a step, and left there when the future is done.
    Pingora,
    "pingora-timeout",
    pingora_timeout,
    true
);

/// Yields once, then gives its number.
struct Once {
    number: u64,
    yielded: bool,
}

impl Future for Once {
    type Output = u64;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u64> {
        if self.yielded {
            return Poll::Ready(self.number);
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Tasks, each of which has a timeout at a time.
    pub tasks: usize,
    pub threads: usize,
    pub each: usize,
}

impl Load {
    pub fn operations(&self) -> usize {
        self.tasks * self.each
    }
}

/// No future takes that long.
const WITHIN: Duration = Duration::from_secs(60);
/// Futures that never are ready, and the time that they have.
const NEVER: usize = 64;
const BRIEFLY: Duration = Duration::from_millis(20);
/// How long they may take to end nevertheless.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A round with a runtime of its own: nanoseconds of processor time a future. Futures that never
/// are ready may take `patience` to end.
pub fn run<G: Guard>(load: &Load, patience: Duration) -> f64 {
    let (runtime, guard) = runtime::<G>(load.threads);
    futures(&runtime, &guard, load.tasks, load.each.div_ceil(4));
    let before = settled();
    futures(&runtime, &guard, load.tasks, load.each);
    let cpu = settled() - before;
    if G::GUARDS {
        let ended = runtime.block_on(never(&guard, patience));
        assert_eq!(ended, NEVER, "{}: futures that timed out", G::NAME);
    }
    cpu.as_nanos() as f64 / load.operations() as f64
}

/// A runtime of so many workers, and a peer in it.
pub(crate) fn runtime<G: Guard>(workers: usize) -> (Runtime, Arc<G>) {
    let mut builder = Builder::new_multi_thread();
    G::timer(builder.worker_threads(workers));
    let runtime = builder.build().expect("a runtime without I/O");
    let context = runtime.enter();
    let guard = Arc::new(G::new());
    drop(context);
    (runtime, guard)
}

fn futures<G: Guard>(runtime: &Runtime, guard: &Arc<G>, tasks: usize, each: usize) {
    let task = |task: usize| {
        let guard = guard.clone();
        runtime.spawn(async move {
            let mut sum = 0_u64;
            for n in 0..each {
                let once = Once { number: (task * each + n + 1) as u64, yielded: false };
                let done = guard.guard(WITHIN, once).await;
                sum = sum.wrapping_add(done.unwrap_or(0));
            }
            sum
        })
    };
    let tasks: Vec<_> = (0..tasks).map(task).collect();
    let n = (tasks.len() * each) as u64;
    let sum = runtime.block_on(async {
        let mut sum = 0_u64;
        for task in tasks {
            sum = sum.wrapping_add(task.await.expect("the task does not panic"));
        }
        sum
    });
    assert_eq!(sum, n * (n + 1) / 2, "{}: sum of what the futures give", G::NAME);
}

/// How many of the futures that never are ready time out, and none before its time.
async fn never<G: Guard>(guard: &Arc<G>, patience: Duration) -> usize {
    let task = |_| {
        let guard = guard.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let ends = guard.guard(BRIEFLY, pending::<()>());
            let ended = tokio::time::timeout(patience, ends).await;
            let late = began.elapsed() + Duration::from_millis(1) >= BRIEFLY;
            ended == Ok(None) && late
        })
    };
    let tasks: Vec<_> = (0..NEVER).map(task).collect();
    let mut ended = 0;
    for task in tasks {
        ended += usize::from(task.await.expect("the task does not panic"));
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    const LOAD: Load = Load { tasks: 50, threads: 2, each: 20 };

    #[test]
    fn everybody_does_the_work() {
        for run in [run::<Bare>, run::<Ours>, run::<Tokio>, run::<Pingora>] {
            assert!(run(&LOAD, PATIENCE) > 0.0);
        }
    }

    /// Waits for every future, or for none.
    struct Lazy<const WAITS: bool>;

    impl<const WAITS: bool> Guard for Lazy<WAITS> {
        const NAME: &'static str = "lazy";

        fn new() -> Self {
            Lazy
        }

        async fn guard<F: Work>(&self, _within: Duration, future: F) -> Option<F::Output> {
            if WAITS {
                return Some(future.await);
            }
            None
        }

        async fn sleep(&self, _after: Duration) {}
    }

    fn found<G: Guard>() -> String {
        let panicked = catch_unwind(|| run::<G>(&LOAD, Duration::from_millis(50)));
        let panicked = panicked.expect_err("it does not do the work");
        panicked.downcast_ref::<String>().expect("a text").clone()
    }

    #[test]
    fn who_is_lazy_is_found() {
        assert!(found::<Lazy<true>>().contains("lazy: futures that timed out"));
        assert!(found::<Lazy<false>>().contains("lazy: sum of what the futures give"));
    }
}
