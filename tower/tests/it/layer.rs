//! Requests.

use crate::{block_on, poll, Manual, SECOND};
use expiry::timeouts::{TimeoutError, TimerError};
use expiry_tower::{BoxError, TimeoutLayer};
use http::{Response, StatusCode};
use std::convert::Infallible;
use std::future::{pending, ready, Future};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tower::{service_fn, Layer, Service, ServiceExt};

type Answered = Pin<Box<dyn Future<Output = Result<Response<String>, Infallible>>>>;

fn hangs(_: ()) -> Pin<Box<dyn Future<Output = Result<u32, Infallible>>>> {
    Box::pin(pending())
}

#[track_caller]
fn why<R: std::fmt::Debug>(polled: Poll<Result<R, BoxError>>) -> TimeoutError {
    match polled {
        Poll::Ready(Err(error)) => *error.downcast_ref().expect("a timeout's error"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_request_fails_with_elapsed() {
    let time = Manual::new();
    let mut service = TimeoutLayer::new(time.timeouts, SECOND).layer(service_fn(hangs));
    let mut response = service.call(());
    assert!(poll(&mut response).is_pending());
    time.pass(SECOND - SECOND / 1000);
    assert!(poll(&mut response).is_pending(), "a millisecond is left");
    time.pass(SECOND / 500);
    assert_eq!(why(poll(&mut response)), TimeoutError::Elapsed);
}

#[test]
fn a_response_and_the_services_own_error_come_through() {
    let time = Manual::new();
    let layer = TimeoutLayer::new(time.timeouts, SECOND);
    let answers = layer.layer(service_fn(|n: u32| ready(Ok::<_, Infallible>(n + 1))));
    assert_eq!(block_on(answers.oneshot(41)).unwrap(), 42);
    let breaks = layer.layer(service_fn(|()| ready(Err::<(), _>(io::Error::other("broken")))));
    let error = block_on(breaks.oneshot(())).unwrap_err();
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().to_string(), "broken");
    assert_eq!(time.registered(), 0, "what is ready costs no entry");
}

#[test]
fn refusals_have_errors_of_their_own() {
    let time = Manual::with(|builder| builder.capacity(1));
    let mut service = TimeoutLayer::new(time.timeouts, SECOND).layer(service_fn(hangs));
    let (mut first, mut second) = (service.call(()), service.call(()));
    assert!(poll(&mut first).is_pending());
    assert_eq!(why(poll(&mut second)), TimeoutError::Timer(TimerError::Full));
    time.timeouts.shutdown();
    assert_eq!(why(poll(&mut first)), TimeoutError::Timer(TimerError::Closed));
}

/// A service that is never ready.
struct Busy;

impl Service<()> for Busy {
    type Response = ();
    type Error = Infallible;
    type Future = std::future::Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Pending
    }

    fn call(&mut self, (): ()) -> Self::Future {
        unreachable!("it is not ready")
    }
}

#[test]
fn readiness_is_the_inner_services() {
    let time = Manual::new();
    let mut service = TimeoutLayer::new(time.timeouts, SECOND).layer(Busy);
    assert!(service.poll_ready(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[test]
fn answering_a_late_or_refused_request_is_a_response() {
    let time = Manual::with(|builder| builder.capacity(1));
    let late = StatusCode::GATEWAY_TIMEOUT;
    let layer = TimeoutLayer::answering(time.timeouts, SECOND, late);
    let mut service = layer.layer(service_fn(|()| -> Answered { Box::pin(pending()) }));
    let (mut first, mut second) = (service.call(()), service.call(()));
    assert!(poll(&mut first).is_pending());
    let Poll::Ready(Ok(refused)) = poll(&mut second) else { panic!("no room for its deadline") };
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    time.pass(2 * SECOND);
    let Poll::Ready(Ok(response)) = poll(&mut first) else { panic!("its time is up") };
    assert_eq!((response.status(), response.body().as_str()), (late, ""));

    let answers = service_fn(|()| ready(Ok::<_, Infallible>(Response::new("done"))));
    let response = block_on(layer.layer(answers).oneshot(())).unwrap();
    assert_eq!((response.status(), *response.body()), (StatusCode::OK, "done"));
}

#[test]
fn a_layer_and_its_service_say_what_they_limit() {
    let time = Manual::new();
    let layer = TimeoutLayer::answering(time.timeouts, SECOND, StatusCode::GATEWAY_TIMEOUT);
    let mut service = layer.layer(7);
    assert_eq!((layer.after(), service.layer().after(), *service.get_ref()), (SECOND, SECOND, 7));
    *service.get_mut() += 1;
    assert_eq!(service.into_inner(), 8);
}
