//! Bad input, and runtimes that come and go.

use crate::{block_on, poll, Manual, Woken, SECOND};
use bytes::Bytes;
use expiry::timeouts::{self, TimeoutError};
use expiry_tower::{ExpiryTimer, IdleTimeout, ResponseFuture, TimeoutBody, TimeoutLayer};
use hyper::rt::Timer;
use std::convert::Infallible;
use std::future::{pending, Future, Pending};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::time::{Duration, Instant};
use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Builder;
use tower::{service_fn, Layer, Service};

type Hanging = ResponseFuture<Pending<Result<(), Infallible>>>;

fn hanging(time: &Manual, after: Duration) -> Hanging {
    TimeoutLayer::new(time.timeouts, after).layer(service_fn(|()| pending())).call(())
}

fn is_elapsed(polled: &Poll<Result<(), expiry_tower::BoxError>>) -> bool {
    matches!(polled, Poll::Ready(Err(why)) if why.downcast_ref() == Some(&TimeoutError::Elapsed))
}

#[test]
fn the_longest_duration_is_centuries() {
    let time = Manual::new();
    let mut response = hanging(&time, Duration::MAX);
    let mut sleep = ExpiryTimer::new(time.timeouts).sleep(Duration::MAX);
    let (_peer, stream) = duplex(1);
    let mut stream = IdleTimeout::new(time.timeouts, Duration::MAX, stream);
    let body = http_body_util::Empty::<Bytes>::new();
    let body = TimeoutBody::new(time.timeouts, Duration::MAX, body);
    for _ in 0..3 {
        assert!(poll(&mut response).is_pending());
        assert!(poll(&mut sleep).is_pending());
        assert!(poll(&mut pin!(stream.read_u8())).is_pending());
        time.pass(Duration::from_secs(30 * 365 * 86_400));
    }
    let timer = ExpiryTimer::new(time.timeouts);
    timer.reset(&mut sleep, Instant::now() + Duration::from_secs(1 << 32));
    assert!(poll(&mut sleep).is_pending());
    assert!(block_on(http_body_util::BodyExt::collect(body)).is_ok());
}

#[test]
fn a_runtime_without_a_time_driver_will_do() {
    block_on(async {
        let after = Duration::from_millis(2);
        let (_peer, stream) = duplex(1);
        let mut stream = IdleTimeout::new(timeouts::global(), after, stream);
        assert!(stream.read_u8().await.is_err());
        ExpiryTimer::new(timeouts::global()).sleep(after).await;
        let hangs = service_fn(|()| pending::<Result<(), Infallible>>());
        let mut service = TimeoutLayer::new(timeouts::global(), after).layer(hangs);
        assert!(service.call(()).await.is_err());
    });
}

#[test]
fn a_future_may_move_to_another_runtime() {
    let time = Manual::new();
    let mut response = hanging(&time, SECOND);
    block_on(std::future::poll_fn(|context| {
        assert!(Pin::new(&mut response).poll(context).is_pending());
        Poll::Ready(())
    }));
    // The first runtime is gone, and its waker is of no use.
    let ended = block_on(async {
        tokio::join!(response, async {
            tokio::task::yield_now().await;
            time.pass(2 * SECOND);
        })
        .0
    });
    assert!(is_elapsed(&Poll::Ready(ended)));
}

#[test]
fn a_runtime_may_end_before_its_timeouts() {
    let time = Manual::new();
    let runtime = Builder::new_current_thread().build().unwrap();
    for _ in 0..10 {
        runtime.spawn(hanging(&time, SECOND));
    }
    let mut kept = hanging(&time, SECOND);
    runtime.block_on(async {
        tokio::task::yield_now().await;
        std::future::poll_fn(|context| {
            assert!(Pin::new(&mut kept).poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    });
    assert_eq!(time.timeouts.len(), 11);
    drop(runtime);
    assert_eq!(time.timeouts.len(), 1, "its tasks have been dropped");
    time.pass(2 * SECOND); // wakes a task that is gone
    assert!(is_elapsed(&poll(&mut kept)));
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker's");
    }
}

#[test]
fn a_waker_that_panics_hurts_no_other() {
    let time = Manual::new();
    let bad = Arc::new(Panics).into();
    let (woken, good) = Woken::new();
    let (_peer, stream) = duplex(1);
    let mut stream = IdleTimeout::new(time.timeouts, SECOND, stream);
    let mut response = hanging(&time, SECOND);
    assert!(pin!(stream.read_u8()).poll(&mut Context::from_waker(&bad)).is_pending());
    assert!(Pin::new(&mut response).poll(&mut Context::from_waker(&good)).is_pending());
    time.pass(2 * SECOND);
    assert_eq!((time.timeouts.metrics().waker_panics, woken.count()), (1, 1));
    assert!(is_elapsed(&poll(&mut response)));
    assert!(matches!(poll(&mut pin!(stream.read_u8())), Poll::Ready(Err(_))));
}

#[test]
fn a_stream_works_on_after_it_timed_out() {
    let time = Manual::new();
    let (mut peer, stream) = duplex(1);
    let mut stream = IdleTimeout::new(time.timeouts, Duration::ZERO, stream);
    assert!(matches!(poll(&mut pin!(stream.read_u8())), Poll::Ready(Err(_))), "no time at all");
    block_on(peer.write_all(b"x")).unwrap();
    assert!(matches!(poll(&mut pin!(stream.read_u8())), Poll::Ready(Ok(b'x'))));
}
