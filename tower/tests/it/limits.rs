//! Durations at their limits.

use crate::{block_on, poll, Manual};
use bytes::Bytes;
use expiry_tower::{ExpiryTimer, IdleTimeout, TimeoutBody, TimeoutLayer};
use hyper::rt::Timer;
use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt};
use tower::{service_fn, Layer, Service};

#[test]
fn the_longest_duration_is_centuries() {
    let time = Manual::new();
    let hangs = service_fn(|()| pending::<Result<(), Infallible>>());
    let mut response = TimeoutLayer::new(time.timeouts, Duration::MAX).layer(hangs).call(());
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
fn a_stream_works_on_after_it_timed_out() {
    let time = Manual::new();
    let (mut peer, stream) = duplex(1);
    let mut stream = IdleTimeout::new(time.timeouts, Duration::ZERO, stream);
    assert!(matches!(poll(&mut pin!(stream.read_u8())), Poll::Ready(Err(_))), "no time at all");
    block_on(peer.write_all(b"x")).unwrap();
    assert!(matches!(poll(&mut pin!(stream.read_u8())), Poll::Ready(Ok(b'x'))));
}
