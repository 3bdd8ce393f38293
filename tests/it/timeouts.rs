//! Timeouts of futures: by a manual clock and wakers that count, and under tokio. What single calls
//! do in each state is asserted by random histories beside the model (`model/tests/corpus.rs`).

use crate::support::clocks::{Lagging, LAG, LAGS};
use crate::support::{bad_drop, cloning, on_threads, poll_with, waker, Task, MS, SECOND};
use expiry::timeouts::{self, Interval, MissedTick, Sleep, Timeout, TimeoutError, TimerError};
use expiry::{ManualClock, Timeouts, TimeoutsBuilder};
use std::future::{pending, poll_fn, ready, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::{pin, Pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// Whether it ticks.
fn tick(task: &Arc<Task>, interval: &mut Interval<&Timeouts>) -> bool {
    match task.with(|context| interval.poll_tick(context)) {
        Poll::Ready(tick) => {
            tick.unwrap();
            true
        }
        Poll::Pending => false,
    }
}

fn never() -> std::future::Pending<()> {
    std::future::pending()
}

/// On a manual clock, with these settings.
fn manual(settings: impl FnOnce(TimeoutsBuilder) -> TimeoutsBuilder) -> (Timeouts, ManualClock) {
    let clock = ManualClock::new();
    let builder = Timeouts::builder().interval(MS).clock(clock.clone());
    (settings(builder).build_manual().unwrap(), clock)
}

/// Wakes all that is due.
fn drive(timeouts: &Timeouts) {
    while timeouts.poll(1 << 20).more {}
}

fn pass(timeouts: &Timeouts, clock: &ManualClock, by: Duration) {
    clock.advance(by);
    drive(timeouts);
}

#[test]
fn now_is_the_clocks_reading_and_never_goes_back() {
    let (timeouts, clock) = manual(|builder| builder);
    clock.advance(MS);
    assert_eq!(timeouts.now(), MS);
    drive(&timeouts);
    clock.set(0);
    assert_eq!(timeouts.now(), MS);
}

#[test]
fn what_is_ready_at_once_costs_nothing() {
    let (timeouts, _) = manual(|settings| settings);
    let task = Task::new();
    let mut limited = timeouts.timeout(MS, ready("done"));
    assert_eq!(task.poll(&mut limited), Poll::Ready(Ok("done")));
    assert_eq!(timeouts.metrics().registered, 0);
    assert_eq!(timeouts.metrics().slots, 0, "not even memory");
}

#[test]
fn a_shutdown_closes_nothing_whose_time_was_up() {
    let clock = Lagging(ManualClock::new());
    clock.0.advance(MS);
    let builder = Timeouts::builder().interval(4 * LAG).clock(clock.clone());
    let timeouts = builder.build_manual().unwrap();
    let task = Task::new();
    let mut sleep = timeouts.sleep(20 * MS);
    assert!(task.poll(&mut sleep).is_pending());
    clock.0.advance(20 * MS);
    LAGS.set(true);
    timeouts.shutdown();
    LAGS.set(false);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
}

#[test]
fn a_waker_that_panics_when_another_takes_its_place_leaves_nothing_behind() {
    // The second is further off than a lease can say.
    for after in [SECOND, Duration::from_secs(86_400 * 100)] {
        let (timeouts, clock) = manual(|settings| settings.interval(Duration::from_micros(10)));
        let task = Task::new();
        let mut sleep = timeouts.sleep(after);
        assert!(poll_with(&mut sleep, &bad_drop()).is_pending());
        clock.advance(MS);
        let changed = AssertUnwindSafe(|| task.poll(&mut sleep));
        assert!(catch_unwind(changed).is_err());
        assert_eq!((timeouts.len(), task.held()), (1, 1));
        drop(sleep);
        assert_eq!((timeouts.len(), task.held()), (0, 0));
    }
}

/// 2^39 ticks of 10 us are 63 days.
#[test]
fn what_is_further_off_than_a_lease_can_say() {
    const DAY: Duration = Duration::from_secs(86_400);
    let (timeouts, clock) = manual(|settings| settings.interval(Duration::from_micros(10)));
    let task = Task::new();
    let mut sleep = timeouts.sleep(200 * DAY);
    let mut limited = timeouts.timeout(200 * DAY, never());
    let mut forever = timeouts.timeout(Duration::MAX, never());
    let mut reset = timeouts.sleep(DAY);
    let mut woken = 0;
    assert!(task.poll(&mut reset).is_pending());
    reset.reset(200 * DAY);
    for day in 0..=200 {
        assert_eq!(task.poll(&mut sleep).is_ready(), day == 200, "day {day}");
        assert_eq!(task.poll(&mut limited).is_ready(), day == 200, "day {day}");
        assert_eq!(task.poll(&mut reset).is_ready(), day == 200, "day {day}");
        assert!(task.poll(&mut forever).is_pending());
        pass(&timeouts, &clock, DAY);
        woken = woken.max(task.woken());
    }
    assert_eq!(woken, 3 * 3 + 2, "each for as long as can be said, and again");
    assert_eq!(task.held(), 1);
}

#[test]
fn a_clone_that_panics_has_taken_no_room() {
    let (timeouts, clock) = manual(|settings| settings.capacity(1));
    let panics: &(dyn Fn() + Sync) = &|| panic!("cloned");
    let waker = cloning(&panics);
    let mut limited = timeouts.timeout(MS, never());
    for _ in 0..3 {
        let polled = AssertUnwindSafe(|| poll_with(&mut limited, &waker));
        assert!(catch_unwind(polled).is_err());
    }
    assert_eq!((timeouts.len(), timeouts.metrics().registered), (0, 0));
    let task = Task::new();
    assert!(task.poll(&mut limited).is_pending());
    pass(&timeouts, &clock, MS);
    assert_eq!(task.woken(), 1);
}

#[test]
fn a_waker_that_panics_in_a_reset_makes_no_tick_early() {
    let (timeouts, _) = manual(|settings| settings);
    let mut beat = timeouts.interval(SECOND);
    assert!(tick(&Task::new(), &mut beat));
    let waker = bad_drop();
    assert!(beat.poll_tick(&mut Context::from_waker(&waker)).is_pending());
    // The interval's clone is the last one now.
    drop(waker);
    assert!(catch_unwind(AssertUnwindSafe(|| beat.reset())).is_err());
    assert!(!tick(&Task::new(), &mut beat), "a second from the reset");
}

/// So many that its thread comes by the block again in which there is a slot for the one that is
/// being registered.
#[test]
fn a_clone_may_register_thousands() {
    let (timeouts, clock) = manual(|settings| settings.shards(1));
    let task = Task::new();
    let inner = Mutex::new(Vec::new());
    let registers = || {
        let mut inner = inner.lock().unwrap();
        for keep in [false, true] {
            for _ in 0..5000 {
                let mut limited = timeouts.timeout(MS, never());
                assert!(task.poll(&mut limited).is_pending());
                if keep {
                    inner.push(limited);
                }
            }
        }
    };
    let registers: &(dyn Fn() + Sync) = &registers;
    let waker = cloning(&registers);
    let mut outer = timeouts.timeout(2 * MS, never());
    assert!(poll_with(&mut outer, &waker).is_pending());
    assert_eq!(timeouts.len(), 5001);
    pass(&timeouts, &clock, MS);
    assert_eq!((task.woken(), timeouts.len()), (5000, 1));
    pass(&timeouts, &clock, MS);
    assert_eq!(timeouts.metrics().fired, 5001);
}

/// Threads let go of what is due just then, beside the reaper.
#[test]
fn each_ends_once_whoever_comes_first() {
    let tick = Duration::from_micros(10);
    let timeouts = Timeouts::builder().interval(tick).build().unwrap();
    let tasks = on_threads(3, |thread| {
        let tasks = [(); 8].map(|()| Task::new());
        for round in 0..3_000u32 {
            let limit = |task: &Arc<Task>| {
                let mut limited = timeouts.timeout(tick * (1 + round % 5), never());
                let _ = task.poll(&mut limited);
                limited
            };
            let mut waiting: Vec<_> = tasks.iter().map(limit).collect();
            for _ in 0..(u64::from(round) * 7 + thread) % 300 {
                std::hint::spin_loop();
            }
            // Some are dropped first, some moved, some polled by another task.
            if round % 3 == 0 {
                Pin::new(&mut waiting[1]).reset(2 * tick);
                let _ = tasks[0].poll(&mut waiting[2]);
            }
        }
        tasks
    })
    .concat();
    timeouts.shutdown();
    assert!(tasks.iter().all(|task| task.held() == 0));
    let woken: usize = tasks.iter().map(|task| task.woken()).sum();
    let metrics = timeouts.metrics();
    let ended = metrics.fired + metrics.cancelled + metrics.closed;
    assert_eq!((metrics.waiting, metrics.registered), (0, ended));
    // An entry that its owner found due as it changed the waker was not woken.
    assert!(metrics.fired + metrics.closed >= woken as u64);
    assert!(metrics.fired > 0 && metrics.cancelled > 0);
}

#[test]
fn another_waker_when_the_time_is_up_is_not_woken_but_told() {
    let (timeouts, clock) = manual(|settings| settings);
    let (first, second) = (Task::new(), Task::new());
    let mut sleep = timeouts.sleep(30 * MS);
    assert!(first.poll(&mut sleep).is_pending());
    clock.advance(31 * MS);
    assert_eq!(second.poll(&mut sleep), Poll::Ready(Ok(())));
    assert_eq!((first.held(), second.held()), (0, 0), "it waits for nobody");
    drive(&timeouts);
    assert_eq!((first.woken(), second.woken()), (0, 0));
    assert_eq!(timeouts.metrics().fired, 1);
}

#[test]
fn a_clock_that_goes_back() {
    let (timeouts, clock) = manual(|settings| settings);
    let task = Task::new();
    clock.advance(100 * MS);
    let mut sleep = timeouts.sleep(10 * MS);
    assert!(task.poll(&mut sleep).is_pending());
    pass(&timeouts, &clock, 10 * MS);
    clock.set(0);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())), "it has fired");
    let mut sleep = timeouts.sleep(10 * MS);
    assert!(task.poll(&mut sleep).is_pending());
    drive(&timeouts);
    clock.set(119_000_000);
    drive(&timeouts);
    assert!(task.poll(&mut sleep).is_pending(), "from the driver's time on");
    pass(&timeouts, &clock, MS);
    assert_eq!(task.poll(&mut sleep), Poll::Ready(Ok(())));
}

/// The owner of an entry that has fired looks at it when its slot has another occupant.
#[test]
fn who_comes_late_does_not_end_a_strangers_entry() {
    let (timeouts, clock) = manual(|settings| settings.shards(1));
    let (task, other) = (Task::new(), Task::new());
    let mut fired: Vec<Sleep<&Timeouts>> = (0..64).map(|_| timeouts.sleep(MS)).collect();
    for sleep in &mut fired {
        assert!(task.poll(sleep).is_pending());
    }
    pass(&timeouts, &clock, MS);
    let mut occupants: Vec<Timeout<&Timeouts, _>> =
        (0..3 * 4096).map(|_| timeouts.timeout(MS, never())).collect();
    for occupant in &mut occupants {
        assert!(other.poll(occupant).is_pending());
    }
    for sleep in &mut fired[32..] {
        sleep.reset(MS);
        assert!(task.poll(sleep).is_pending());
    }
    drop(fired);
    assert_eq!((timeouts.len(), other.held()), (occupants.len(), occupants.len()));
    pass(&timeouts, &clock, MS);
    assert_eq!(other.woken(), occupants.len());
}

#[test]
fn a_waker_that_panics_costs_nobody_else_anything() {
    let (timeouts, clock) = manual(|settings| settings);
    let task = Task::new();
    let panics = waker(|| panic!("a waker"));
    let mut all: Vec<_> = (0..100).map(|_| timeouts.sleep(MS)).collect();
    for (at, sleep) in all.iter_mut().enumerate() {
        if at % 10 == 3 {
            assert!(poll_with(sleep, &panics).is_pending());
        } else {
            assert!(task.poll(sleep).is_pending());
        }
    }
    std::panic::set_hook(Box::new(|_| ()));
    pass(&timeouts, &clock, MS);
    let _ = std::panic::take_hook();
    let metrics = timeouts.metrics();
    assert_eq!((task.woken(), metrics.waker_panics, metrics.fired), (90, 10, 100));
    for sleep in &mut all {
        assert_eq!(task.poll(sleep), Poll::Ready(Ok(())));
    }
}

/// A waker that runs its task in place: on the thread that drives, in its round.
struct InPlace {
    timeouts: Arc<Timeouts>,
    left: AtomicUsize,
    task: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl InPlace {
    fn run(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let mut slot = self.task.lock().unwrap();
        if let Some(task) = &mut *slot {
            if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                *slot = None;
            }
        }
    }
}

impl Wake for InPlace {
    fn wake(self: Arc<Self>) {
        self.run();
        if self.left.load(Ordering::SeqCst) == 0 {
            self.timeouts.shutdown();
        }
    }
}

#[test]
fn a_waker_may_use_what_wakes_it() {
    let (timeouts, clock) = manual(|settings| settings);
    let timeouts = Arc::new(timeouts);
    let runner = Arc::new(InPlace {
        timeouts: timeouts.clone(),
        left: AtomicUsize::new(20),
        task: Mutex::new(None),
    });
    let (own, left) = (timeouts.clone(), runner.clone());
    *runner.task.lock().unwrap() = Some(Box::pin(async move {
        while left.left.load(Ordering::SeqCst) > 0 {
            let ended = own.timeout(MS, own.sleep(5 * MS)).await;
            assert_eq!(ended, Err(TimeoutError::Elapsed));
            own.poll(1);
            left.left.fetch_sub(1, Ordering::SeqCst);
        }
        drop(left);
    }));
    runner.run();
    for _ in 0..50 {
        pass(&timeouts, &clock, MS);
    }
    assert_eq!(runner.left.load(Ordering::SeqCst), 0);
    assert!(runner.task.lock().unwrap().is_none());
    assert!(timeouts.is_empty());
    let late = Task::new().poll(&mut timeouts.sleep(MS));
    assert_eq!(late, Poll::Ready(Err(TimerError::Closed)), "the waker has shut it down");
}

/// Without a reaper the round in which a waker asks for the shutdown is followed by it: it wakes
/// others that wait, for hours.
#[test]
fn a_waker_that_shuts_down_in_a_poll_closes_all() {
    let (timeouts, clock) = manual(|settings| settings);
    let timeouts = Arc::new(timeouts);
    let last = timeouts.clone();
    let last = waker(move || last.shutdown());
    let (task, mut first, mut second) =
        (Task::new(), timeouts.sleep(MS), timeouts.sleep(10_000_000 * MS));
    assert!(poll_with(&mut first, &last).is_pending());
    assert!(task.poll(&mut second).is_pending());
    pass(&timeouts, &clock, 5 * MS);
    assert_eq!(task.woken(), 1);
    let closed = Poll::Ready(Err(TimerError::Closed));
    assert_eq!(task.poll(&mut second), closed);
    assert!(timeouts.is_empty());
}

/// Where the reaper calls it: the reaper does the rest before it would sleep for as long as the
/// next one has to wait.
#[test]
fn a_waker_that_shuts_down_in_the_reapers_round_closes_all() {
    let timeouts = Arc::new(Timeouts::builder().shards(1).build().unwrap());
    let (sender, receiver) = mpsc::channel();
    let tells = waker(move || sender.send(()).unwrap());
    let last = timeouts.clone();
    let last = waker(move || last.shutdown());
    let (mut first, mut second) = (timeouts.sleep(20 * MS), timeouts.sleep(3_600_000 * MS));
    assert!(poll_with(&mut second, &tells).is_pending());
    assert!(poll_with(&mut first, &last).is_pending());
    receiver.recv_timeout(60 * SECOND).expect("within an hour");
    let closed = Poll::Ready(Err(TimerError::Closed));
    assert_eq!(poll_with(&mut second, &tells), closed);
}

#[test]
fn an_interval_does_not_drift() {
    let (timeouts, clock) = manual(|settings| settings);
    let task = Task::new();
    let mut interval = timeouts.interval(10 * MS);
    assert_eq!(interval.period(), 10 * MS);
    assert!(tick(&task, &mut interval), "the first at once");
    let mut ticks = Vec::new();
    for at in 1..=98_u32 {
        pass(&timeouts, &clock, MS);
        // Taken up to 3 ms late.
        if at % 10 > at / 40 && tick(&task, &mut interval) {
            ticks.push(at);
        }
    }
    assert_eq!(ticks, [11, 21, 31, 42, 52, 62, 72, 83, 93]);
    assert_eq!(timeouts.len(), 1);
    drop(interval);
    assert_eq!((timeouts.len(), task.held()), (0, 0));
}

#[test]
fn ticks_that_were_missed() {
    for (missed, expected) in [
        (MissedTick::Burst, vec![35, 35, 35, 40, 50, 60]),
        (MissedTick::Delay, vec![35, 45, 55]),
        (MissedTick::Skip, vec![35, 40, 50, 60]),
    ] {
        let (timeouts, clock) = manual(|settings| settings);
        let task = Task::new();
        let mut interval = timeouts.interval(10 * MS).missed_tick(missed);
        assert!(tick(&task, &mut interval));
        let mut ticks = Vec::new();
        for at in 1..=60 {
            pass(&timeouts, &clock, MS);
            while at >= 35 && tick(&task, &mut interval) {
                ticks.push(at);
            }
        }
        assert_eq!(ticks, expected, "{missed:?}");
        interval.reset();
        assert!(!tick(&task, &mut interval));
        pass(&timeouts, &clock, 9 * MS);
        assert!(!tick(&task, &mut interval));
        pass(&timeouts, &clock, MS);
        assert!(tick(&task, &mut interval));
    }
    let (timeouts, _) = manual(|settings| settings);
    assert_eq!(timeouts.interval(Duration::ZERO).period(), MS);
}

/// A future that is abandoned half-way, again and again: no tick is lost.
#[test]
fn a_tick_that_is_abandoned_comes_later() {
    let (timeouts, clock) = manual(|settings| settings);
    let task = Task::new();
    let waker = Waker::from(task.clone());
    let mut interval = timeouts.interval(5 * MS);
    assert!(tick(&task, &mut interval));
    let mut ticks = 0;
    for _ in 0..50 {
        pass(&timeouts, &clock, MS);
        let mut tick = pin!(interval.tick());
        ticks += usize::from(tick.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
    assert_eq!(ticks, 10);
}

/// What a task may do, with every kind of end.
async fn work(timeouts: &Timeouts, rounds: u32) {
    for round in 0..rounds {
        let began = Instant::now();
        let after = MS * (1 + round % 3);
        assert_eq!(timeouts.timeout(after, never()).await, Err(TimeoutError::Elapsed));
        assert!(began.elapsed() >= after);
        let ready = timeouts.timeout(600 * SECOND, timeouts.sleep(after));
        assert_eq!(ready.await, Ok(Ok(())));
        let mut interval = timeouts.interval(after);
        for _ in 0..3 {
            interval.tick().await.unwrap();
        }
        assert!(began.elapsed() >= 4 * after);
        // Abandoned.
        let mut sleep = timeouts.sleep(600 * SECOND);
        let abandoned = timeouts.timeout(MS, &mut sleep).await;
        assert_eq!(abandoned, Err(TimeoutError::Elapsed));
    }
}

/// The reaper is alive, nothing is left, and what waits is woken by the shutdown.
fn is_well(timeouts: &Timeouts) {
    assert_eq!(timeouts.len(), 0);
    Task::new().block_on(timeouts.sleep(MS)).unwrap();
    let metrics = timeouts.metrics();
    let ended = metrics.fired + metrics.cancelled + metrics.closed;
    assert_eq!(metrics.registered, ended);
}

#[test]
fn without_any_runtime() {
    let timeouts = Timeouts::new().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| Task::new().block_on(work(&timeouts, 10)));
        }
    });
    is_well(&timeouts);
}

/// So many tasks. The first ones are aborted: dropped wherever they are, by whichever thread.
fn under_tokio(mut runtime: tokio::runtime::Builder, tasks: usize, aborted: usize) {
    let timeouts = Arc::new(Timeouts::new().unwrap());
    runtime.build().unwrap().block_on(async {
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let timeouts = timeouts.clone();
                tokio::spawn(async move { work(&timeouts, 5).await })
            })
            .collect();
        for task in &tasks[..aborted] {
            task.abort();
        }
        for (at, task) in tasks.into_iter().enumerate() {
            let ended = task.await;
            assert!(ended.is_ok() || at < aborted && ended.unwrap_err().is_cancelled());
        }
    });
    is_well(&timeouts);
}

#[test]
fn under_tokio_on_one_and_on_many_threads() {
    under_tokio(tokio::runtime::Builder::new_current_thread(), 100, 0);
    let mut many = tokio::runtime::Builder::new_multi_thread();
    many.worker_threads(4);
    under_tokio(many, 500, 100);
}

#[test]
fn what_owns_its_timeouts_is_spawned_and_keeps_them() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (timeouts, now) = (Arc::new(Timeouts::new().unwrap()), Instant::now());
    let sleep = runtime.spawn(Sleep::until(timeouts.clone(), now + 2 * MS));
    let limited = runtime.spawn(Timeout::at(timeouts.clone(), now + 2 * MS, never()));
    let mut beats = [Interval::new(timeouts.clone(), MS), Interval::at(timeouts, now + MS, MS)];
    let beats = runtime.spawn(async move {
        for beat in &mut beats {
            beat.tick().await?;
            beat.tick().await?;
        }
        Ok::<_, TimerError>(())
    });
    let all = runtime.block_on(async { (sleep.await, limited.await, beats.await) });
    assert_eq!((all.0.unwrap(), all.2.unwrap()), (Ok(()), Ok(())));
    assert_eq!(all.1.unwrap(), Err(TimeoutError::Elapsed));
}

#[test]
fn a_shutdown_under_tokio() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let timeouts = Arc::new(Timeouts::new().unwrap());
    let tasks: Vec<_> = (0..100)
        .map(|_| {
            let timeouts = timeouts.clone();
            runtime.spawn(async move {
                loop {
                    let ended = timeouts.timeout(600 * SECOND, tokio::task::yield_now());
                    if ended.await.is_err() {
                        break;
                    }
                    if let Err(why) = timeouts.sleep(MS).await {
                        assert_eq!(why, TimerError::Closed);
                        break;
                    }
                }
            })
        })
        .collect();
    Task::new().block_on(timeouts.sleep(20 * MS)).unwrap();
    timeouts.shutdown();
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    let metrics = timeouts.metrics();
    assert_eq!(metrics.waiting, 0);
    let ended = metrics.fired + metrics.cancelled + metrics.closed;
    assert_eq!(metrics.registered, ended);
}

/// The reaper thread itself lets the last owner go.
#[test]
fn dropped_by_a_waker() {
    let timeouts = Arc::new(Timeouts::new().unwrap());
    let (sender, receiver) = mpsc::channel();
    let last = Mutex::new(Some(timeouts.clone()));
    let drops = waker(move || {
        drop(last.lock().unwrap().take());
        sender.send(()).unwrap();
    });
    let mut sleep = timeouts.sleep(MS);
    assert!(poll_with(&mut sleep, &drops).is_pending());
    // The sleep is forgotten: no task looks at it any more, and its waker is woken all the same.
    std::mem::forget(sleep);
    drop(timeouts);
    receiver.recv().unwrap();
}

/// H3: the process's own timeouts, on a runtime without a driver of time.
#[test]
fn the_process_has_timeouts_of_its_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let began = Instant::now();
        timeouts::sleep_until(began).await;
        timeouts::sleep(Duration::ZERO).await;
        timeouts::sleep_until(began + 3 * MS).await;
        assert!(began.elapsed() >= 3 * MS);
        let mut nap = timeouts::sleep(Duration::MAX);
        nap.reset(MS);
        (&mut nap).await;
        assert!(nap.is_elapsed());
        let late = timeouts::timeout_at(began, pending::<()>()).await;
        assert_eq!(late, Err(TimeoutError::Elapsed));
        assert_eq!(timeouts::timeout_at(began, ready(1)).await, Ok(1), "it gets one poll");
        assert_eq!(timeouts::timeout(Duration::MAX, ready(2)).await, Ok(2));
        let start = Instant::now() + 3 * MS;
        let mut beat = timeouts::interval_at(start, MS);
        beat.tick().await.unwrap();
        assert!(Instant::now() >= start);
        beat.tick().await.unwrap();
        assert!(Instant::now() >= start + MS);
        timeouts::interval(MS).tick().await.unwrap();
    });
}

/// The first runtime polls it and is gone; the second one is woken.
#[test]
fn a_sleep_moves_from_one_runtime_to_another() {
    let new = || tokio::runtime::Builder::new_current_thread().build().unwrap();
    // The machine may be busy for as long as a sleep takes: then a longer one.
    for time in [20 * MS, SECOND, 60 * SECOND] {
        let mut nap = timeouts::sleep(time);
        let poll = poll_fn(|context| Poll::Ready(Pin::new(&mut nap).poll(context)));
        if new().block_on(poll).is_pending() {
            return new().block_on(nap);
        }
    }
    panic!("each sleep was over at its first poll");
}

#[test]
fn an_interval_that_starts_later_ticks_from_there_on() {
    let clock = ManualClock::new();
    let timeouts = Timeouts::builder().clock(clock.clone()).build_manual().unwrap();
    let second = SECOND;
    let mut beat = timeouts.interval_at(Instant::now() + 1000 * second, second);
    let task = Task::new();
    clock.advance(998 * second);
    assert!(!tick(&task, &mut beat));
    clock.advance(2 * second);
    timeouts.poll(1000);
    assert!(tick(&task, &mut beat) && !tick(&task, &mut beat));
    clock.advance(2 * second);
    timeouts.poll(1000);
    assert!(tick(&task, &mut beat) && tick(&task, &mut beat), "two seconds have passed");
    assert!(!tick(&task, &mut beat));
}

#[test]
fn an_interval_that_began_earlier_keeps_its_phase() {
    let clock = ManualClock::new();
    clock.advance(100 * SECOND);
    let timeouts = Timeouts::builder().clock(clock.clone()).build_manual().unwrap();
    let second = SECOND;
    let start = Instant::now().checked_sub(5 * second / 2).unwrap();
    let mut beat = timeouts.interval_at(start, second).missed_tick(MissedTick::Skip);
    let task = Task::new();
    assert!(tick(&task, &mut beat) && !tick(&task, &mut beat));
    // The next one is due half a second from now, less what this test has taken so far.
    clock.advance(3 * second / 5);
    timeouts.poll(1000);
    assert!(tick(&task, &mut beat) && !tick(&task, &mut beat));
}

#[test]
fn an_interval_of_a_clock_whose_ticks_are_centuries_can_be_polled() {
    let builder = Timeouts::builder().interval(Duration::from_secs(293 * 365 * 86_400));
    let timeouts = builder.clock(ManualClock::new()).build_manual().unwrap();
    let mut beat = timeouts.interval(SECOND);
    let task = Task::new();
    assert!(tick(&task, &mut beat) && !tick(&task, &mut beat));
}
