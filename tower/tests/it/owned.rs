//! Timeouts in an `Arc`: what is made of it keeps them alive.

use crate::body::Frames;
use crate::clocks::Moved;
use crate::{block_on, poll, SECOND};
use expiry::timeouts::TimeoutError;
use expiry::{ManualClock, Timeouts};
use expiry_tower::{
    BodyTimeoutLayer, BoxError, Deadline, DeadlineLayer, ExpiryTimer, IdleTimeout, TimeoutBody,
    TimeoutLayer,
};
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::rt::Timer;
use std::convert::Infallible;
use std::future::{pending, ready, Future};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{duplex, AsyncReadExt};
use tower::{service_fn, Layer, Service, ServiceExt};

const SOON: Duration = Duration::from_millis(5);

/// Polls the future that `make` makes of an `Arc`, and drops the other clone while it waits. The
/// future ends in time all the same, and the timeouts end with it.
#[track_caller]
fn owns<F: Future>(make: impl FnOnce(Arc<Timeouts>) -> F) -> F::Output {
    let clock = ManualClock::new();
    let timeouts = Timeouts::builder().clock(Moved(clock.clone())).build().unwrap();
    let timeouts = Arc::new(timeouts);
    let left = Arc::downgrade(&timeouts);
    let mut future = Box::pin(make(timeouts.clone()));
    assert!(poll(&mut future).is_pending());
    drop(timeouts);
    assert_eq!(left.upgrade().map(|timeouts| timeouts.len()), Some(1), "it waits");
    clock.advance(2 * SOON);
    let output = block_on(&mut future);
    drop(future);
    assert!(left.upgrade().is_none(), "the future had the last one");
    output
}

#[track_caller]
fn elapsed<R>(late: Result<R, BoxError>) {
    assert_eq!(late.err().unwrap().downcast_ref(), Some(&TimeoutError::Elapsed));
}

type Answered = Result<Response<Frames>, Infallible>;

#[test]
fn a_late_request_ends_by_timeouts_that_it_owns() {
    let hangs = service_fn(|_: Request<()>| pending::<Answered>());
    let limited =
        |timeouts| TimeoutLayer::new(timeouts, SOON).layer(hangs).call(Request::default());
    elapsed(owns(limited));
    let limited =
        |timeouts| DeadlineLayer::new(timeouts, SOON).layer(hangs).call(Request::default());
    elapsed(owns(limited));
}

#[test]
fn a_late_frame_ends_by_timeouts_that_its_body_owns() {
    let read = |mut response: Response<TimeoutBody<Frames, _>>| async move {
        response.frame().await.unwrap().map(drop)
    };
    let answers = service_fn(|request: Request<()>| {
        let deadline: Option<&Deadline<Arc<Timeouts>>> = request.extensions().get();
        assert!(deadline.is_none_or(|deadline| deadline.remaining() <= SOON));
        ready(Answered::Ok(Response::default()))
    });
    elapsed(owns(|timeouts| async move {
        let layer = DeadlineLayer::new(timeouts, SOON);
        read(layer.layer(answers).oneshot(Request::default()).await?).await
    }));
    elapsed(owns(|timeouts| async move {
        let layer = BodyTimeoutLayer::of_responses(timeouts, SOON);
        read(layer.layer(answers).oneshot(Request::default()).await?).await
    }));
    let reads = service_fn(|mut request: Request<TimeoutBody<Frames, _>>| async move {
        request.frame().await.unwrap().map(drop)
    });
    let layer = |timeouts| BodyTimeoutLayer::of_requests(timeouts, SOON).layer(reads);
    elapsed(owns(|timeouts| layer(timeouts).oneshot(Request::default())));
}

#[test]
fn connections_and_hypers_sleeps_own_their_timeouts() {
    let (_peer, stream) = duplex(1);
    let idle = owns(|timeouts| {
        let mut stream = IdleTimeout::new(timeouts, SOON, stream);
        async move { stream.read_u8().await.unwrap_err().kind() }
    });
    assert_eq!(idle, std::io::ErrorKind::TimedOut);
    owns(|timeouts| {
        let timer = ExpiryTimer::new(timeouts);
        let mut sleep = timer.sleep(60 * SECOND);
        timer.reset(&mut sleep, timer.now() + SOON);
        sleep
    });
}
