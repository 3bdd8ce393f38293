//! Requests with their responses' bodies.

use crate::body::{fails, next, Frames};
use crate::{poll, Manual, SECOND};
use expiry::timeouts::{TimeoutError, TimerError};
use expiry_tower::{BoxError, Deadline, DeadlineLayer, TimeoutBody};
use http::{Request, Response, StatusCode};
use http_body::Body;
use std::convert::Infallible;
use std::future::{pending, Future};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;
use tower::{service_fn, Layer, Service};

type Answered<B> = Pin<Box<dyn Future<Output = Result<Response<B>, Infallible>>>>;

fn hangs(_: Request<()>) -> Answered<Frames> {
    Box::pin(pending())
}

#[track_caller]
fn why<B: std::fmt::Debug>(polled: Poll<Result<Response<B>, BoxError>>) -> TimeoutError {
    match polled {
        Poll::Ready(Err(error)) => *error.downcast_ref().expect("a timeout's error"),
        other => panic!("{other:?}"),
    }
}

/// The response of a handler that takes `takes`, with 10 s for all.
fn response(time: &Manual, takes: Duration, frames: &Frames) -> TimeoutBody<Frames> {
    let (frames, timeouts) = (frames.clone(), time.timeouts);
    let handler = move |_: Request<()>| -> Answered<Frames> {
        let (frames, sleep) = (frames.clone(), timeouts.sleep(takes));
        Box::pin(async move {
            sleep.await.expect("it has room");
            Ok(Response::new(frames))
        })
    };
    let mut service = DeadlineLayer::new(timeouts, 10 * SECOND).layer(service_fn(handler));
    let mut response = service.call(Request::new(()));
    assert!(poll(&mut response).is_pending());
    time.pass(takes + SECOND / 100);
    match poll(&mut response) {
        Poll::Ready(Ok(response)) => response.into_body(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_time_of_a_request_ends_with_the_body_of_its_response() {
    let (time, frames) = (Manual::new(), Frames::default());
    let mut body = response(&time, 4 * SECOND, &frames);
    assert_eq!(body.size_hint().exact(), Some(7));
    for _ in 0..2 {
        assert!(next(&mut body).is_pending());
        time.pass(2 * SECOND);
        frames.put(Ok("frame"));
        assert!(matches!(next(&mut body), Poll::Ready(Some(Ok(_)))));
    }
    assert_eq!(time.registered(), 2, "one is the handler's own");
    assert!(next(&mut body).is_pending());
    time.pass(2 * SECOND);
    fails(&mut body, TimeoutError::Elapsed);
}

#[test]
fn a_frame_that_is_polled_late_is_late() {
    let (time, frames) = (Manual::new(), Frames::default());
    let mut body = response(&time, SECOND, &frames);
    frames.put(Ok("frame"));
    time.pass(10 * SECOND);
    fails(&mut body, TimeoutError::Elapsed);
}

#[test]
fn a_late_response_fails_or_is_answered() {
    let time = Manual::new();
    let fails = DeadlineLayer::new(time.timeouts, SECOND);
    let mut late = fails.layer(service_fn(hangs)).call(Request::new(()));
    let status = StatusCode::GATEWAY_TIMEOUT;
    let answers = DeadlineLayer::answering(time.timeouts, SECOND, status);
    let mut answered = answers.layer(service_fn(hangs)).call(Request::new(()));
    let ready = |_: Request<()>| std::future::ready(Ok::<_, Infallible>(Response::new(())));
    let mut polled_late = fails.layer(service_fn(ready)).call(Request::new(()));
    assert!(poll(&mut late).is_pending() && poll(&mut answered).is_pending());
    time.pass(SECOND + SECOND / 100);
    assert_eq!(why(poll(&mut late)), TimeoutError::Elapsed);
    assert_eq!(why(poll(&mut polled_late)), TimeoutError::Elapsed, "it counts from the call");
    let Poll::Ready(Ok(response)) = poll(&mut answered) else { panic!("an answer") };
    assert_eq!(response.status(), status);
    assert!(next(&mut response.into_body()).is_pending(), "the answer itself has no limit");
    assert_eq!((fails.after(), answers.after()), (SECOND, SECOND));
}

#[test]
fn refusals_have_errors_of_their_own() {
    let time = Manual::with(|builder| builder.capacity(1));
    let layer = DeadlineLayer::new(time.timeouts, SECOND);
    let mut service = layer.layer(service_fn(hangs));
    let [mut first, mut second] = [(); 2].map(|()| service.call(Request::new(())));
    assert!(poll(&mut first).is_pending());
    assert_eq!(why(poll(&mut second)), TimeoutError::Timer(TimerError::Full));
    time.timeouts.shutdown();
    assert_eq!(why(poll(&mut first)), TimeoutError::Timer(TimerError::Closed));
}

#[test]
fn a_handler_reads_what_is_left_of_the_nearest_deadline() {
    let (time, seen) = (Manual::new(), Arc::new(Mutex::new(None)));
    let found = seen.clone();
    let handler = move |request: Request<()>| {
        *found.lock().unwrap() = request.extensions().get::<Deadline>().copied();
        hangs(request)
    };
    let [near, far] = [3, 60].map(|n| DeadlineLayer::new(time.timeouts, n * SECOND));
    let _inner = near.layer(service_fn(&handler)).call(Request::new(()));
    let deadline = seen.lock().unwrap().take().unwrap();
    assert_eq!(deadline.remaining(), 3 * SECOND);
    time.pass(SECOND);
    assert_eq!(deadline.remaining(), 2 * SECOND);
    let mut request = Request::new(());
    request.extensions_mut().insert(deadline);
    let mut response = far.layer(service_fn(&handler)).call(request);
    assert_eq!(seen.lock().unwrap().unwrap().remaining(), 2 * SECOND);
    assert!(poll(&mut response).is_pending());
    time.pass(2 * SECOND + SECOND / 100);
    assert_eq!(why(poll(&mut response)), TimeoutError::Elapsed);
    assert_eq!(deadline.remaining(), Duration::ZERO);
}
