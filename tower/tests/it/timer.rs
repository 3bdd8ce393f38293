//! hyper's timer.

use crate::{block_on, poll, Manual, Woken, SECOND};
use expiry_tower::ExpiryTimer;
use hyper::rt::{Sleep, Timer};
use std::convert::Infallible;
use std::future::{ready, Future};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;

#[test]
fn a_sleep_is_ready_in_time() {
    let time = Manual::new();
    let timer = ExpiryTimer::new(time.timeouts);
    let mut sleeps = [timer.sleep(SECOND), timer.sleep_until(Instant::now() + SECOND)];
    for sleep in &mut sleeps {
        assert!(poll(sleep).is_pending());
    }
    time.pass(SECOND / 2);
    for sleep in &mut sleeps {
        assert!(poll(sleep).is_pending());
    }
    time.pass(SECOND);
    for sleep in &mut sleeps {
        assert!(poll(sleep).is_ready());
    }
}

#[test]
fn hypers_now_is_the_time_of_the_timeouts() {
    let time = Manual::new();
    let timer = ExpiryTimer::new(time.timeouts);
    let before = timer.now();
    let mut sleep = timer.sleep_until(before + 3600 * SECOND);
    assert!(poll(&mut sleep).is_pending());
    time.pass(3601 * SECOND);
    assert!(timer.now() - before == 3601 * SECOND && poll(&mut sleep).is_ready());
    timer.reset(&mut sleep, timer.now() + SECOND);
    assert!(poll(&mut sleep).is_pending());
}

#[test]
fn an_instant_in_the_past_is_now() {
    let time = Manual::new();
    let timer = ExpiryTimer::new(time.timeouts);
    let past = timer.now();
    let mut sleep = timer.sleep_until(past);
    assert!(poll(&mut sleep).is_ready());
    timer.reset(&mut sleep, Instant::now() + SECOND);
    assert!(poll(&mut sleep).is_pending());
    timer.reset(&mut sleep, past);
    assert!(poll(&mut sleep).is_ready());
}

/// A sleep of another timer's.
struct Foreign;

impl Sleep for Foreign {}

impl Future for Foreign {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[test]
fn a_reset_moves_the_deadline_in_place() {
    let time = Manual::new();
    let timer = ExpiryTimer::new(time.timeouts);
    let mut sleep = timer.sleep(SECOND);
    let address = std::ptr::from_ref(&*sleep).cast::<()>();
    for _ in 0..3 {
        assert!(poll(&mut sleep).is_pending());
        timer.reset(&mut sleep, timer.now() + 10 * SECOND);
        time.pass(8 * SECOND);
    }
    assert!(poll(&mut sleep).is_pending());
    assert_eq!(time.registered(), 1);
    assert_eq!(std::ptr::from_ref(&*sleep).cast::<()>(), address, "no other box");

    let mut foreign: Pin<Box<dyn Sleep>> = Box::pin(Foreign);
    timer.reset(&mut foreign, timer.now());
    assert!(poll(&mut foreign).is_ready(), "it has been replaced");
}

#[test]
fn a_refused_sleep_tries_again_and_a_closed_one_ends() {
    let time = Manual::with(|builder| builder.capacity(1));
    let timer = ExpiryTimer::new(time.timeouts);
    let mut first = timer.sleep(60 * SECOND);
    assert!(poll(&mut first).is_pending());
    let (mut second, mut third) = (timer.sleep(SECOND), timer.sleep(60 * SECOND));
    let (woken, waker) = Woken::new();
    let began = Instant::now();
    while woken.count() < 3 {
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(began.elapsed() < 60 * SECOND, "it asks for another turn");
        std::thread::yield_now();
    }
    assert!(began.elapsed() >= SECOND / 40, "it takes no whole core");
    time.pass(2 * SECOND);
    assert!(poll(&mut second).is_ready(), "in time, though there is no room still");
    drop(first);
    assert!(third.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(time.timeouts.len(), 1, "it waits for its time now");
    let before = woken.count();
    time.timeouts.shutdown();
    assert!(woken.count() > before);
    assert!(poll(&mut third).is_ready());
}

#[test]
fn hyper_ends_a_connection_whose_head_does_not_come() {
    let time = Manual::new();
    let (mut client, server) = tokio::io::duplex(1024);
    let service = hyper::service::service_fn(|_| {
        ready(Ok::<_, Infallible>(hyper::Response::new(String::new())))
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(ExpiryTimer::new(time.timeouts)).header_read_timeout(Duration::from_secs(10));
    let io = hyper_util::rt::TokioIo::new(server);
    let mut connection = builder.serve_connection(io, service);
    block_on(client.write_all(b"GET / HTTP/1.1\r\nHos")).unwrap();
    assert!(poll(&mut connection).is_pending());
    time.pass(8 * SECOND);
    assert!(poll(&mut connection).is_pending());
    time.pass(3 * SECOND);
    let Poll::Ready(Err(error)) = poll(&mut connection) else { panic!("its time is up") };
    assert!(error.is_timeout(), "{error:?}");
}
