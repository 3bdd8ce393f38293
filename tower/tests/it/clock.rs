//! tokio's paused clock.

use crate::SECOND;
use expiry::{Clock, Timeouts};
use expiry_tower::TokioClock;
use std::time::Duration;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

/// Timeouts by the current runtime's clock, driven.
fn timeouts() -> &'static Timeouts {
    let clock = TokioClock::new();
    let built = Timeouts::builder().clock(clock.clone()).build_manual();
    let timeouts: &'static Timeouts = Box::leak(Box::new(built.expect("good settings")));
    tokio::spawn(clock.drive(timeouts));
    timeouts
}

/// So much time has passed, or little more.
#[track_caller]
fn passed(since: Instant, time: Duration) {
    let elapsed = since.elapsed();
    assert!(elapsed >= time && elapsed < time + SECOND / 100, "{elapsed:?} and not {time:?}");
}

#[tokio::test(start_paused = true)]
async fn a_nearer_deadline_wakes_the_driver() {
    let (timeouts, began) = (timeouts(), Instant::now());
    let far = tokio::spawn(async move {
        timeouts.sleep(HOUR).await.unwrap();
        passed(began, HOUR);
    });
    tokio::time::sleep(SECOND).await; // the driver sleeps until the hour is over
    timeouts.sleep(SECOND).await.unwrap();
    passed(began, 2 * SECOND);
    let mut reset = timeouts.sleep(HOUR / 2);
    tokio::select! {
        biased;
        _ = &mut reset => unreachable!("half an hour"),
        () = tokio::time::sleep(SECOND) => {}
    }
    reset.reset(SECOND);
    reset.await.unwrap();
    passed(began, 4 * SECOND);
    far.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn advance_moves_it() {
    let clock = TokioClock::new();
    let before = clock.now();
    tokio::time::advance(HOUR).await;
    assert_eq!(Duration::from_nanos(clock.now() - before), HOUR);
    // A thread outside of the runtime reads the same.
    let elsewhere = clock.clone();
    let read = std::thread::spawn(move || elsewhere.now()).join().unwrap();
    assert_eq!(read, clock.now());

    let (timeouts, began) = (timeouts(), Instant::now());
    let sleep = tokio::spawn(timeouts.sleep(HOUR));
    tokio::task::yield_now().await;
    tokio::time::advance(2 * HOUR).await;
    sleep.await.unwrap().unwrap();
    passed(began, 2 * HOUR);
}

/// The driver of timeouts without deadlines has no timer by which a clock would jump whose runtime
/// waits for something else.
#[tokio::test(start_paused = true)]
async fn nothing_to_wait_for_leaves_the_clock_alone() {
    let (_, began) = (timeouts(), Instant::now());
    let (done, wait) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(move || {
        // The runtime parks meanwhile. If it has not, this test finds less, and does not fail.
        std::thread::sleep(Duration::from_millis(30));
        done.send(())
    });
    wait.await.unwrap();
    thread.join().unwrap().unwrap();
    assert!(began.elapsed() < HOUR, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn many_deadlines_in_any_order_are_kept() {
    let (timeouts, began) = (timeouts(), Instant::now());
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..500_u32 {
        let after = SECOND * (index * 7919 % 500 + 1);
        tasks.spawn(async move {
            timeouts.sleep(after).await.unwrap();
            passed(began, after);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

/// In an ordinary runtime it is the machine's clock.
#[test]
fn it_needs_no_time_driver_itself() {
    crate::block_on(async {
        let clock = TokioClock::new();
        let before = clock.now();
        assert!(clock.now() >= before);
    });
}
