//! Bodies.

use crate::{poll, Manual, SECOND};
use bytes::Bytes;
use expiry::timeouts::{TimeoutError, TimerError};
use expiry_tower::{BodyTimeoutLayer, BoxError, TimeoutBody};
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::{service_fn, Layer, Service};

/// A body whose frames a test puts there; it ends after an error.
#[derive(Debug, Clone, Default)]
pub struct Frames(Arc<Mutex<VecDeque<io::Result<&'static str>>>>);

impl Frames {
    pub fn put(&self, frame: io::Result<&'static str>) {
        self.0.lock().unwrap().push_back(frame);
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.0.lock().unwrap().pop_front() {
            Some(frame) => Poll::Ready(Some(frame.map(|data| Frame::data(data.into())))),
            None => Poll::Pending,
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(7)
    }
}

pub fn next(body: &mut TimeoutBody<Frames>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
    poll(&mut body.frame())
}

#[track_caller]
pub fn fails(body: &mut TimeoutBody<Frames>, why: TimeoutError) {
    match next(body) {
        Poll::Ready(Some(Err(error))) => assert_eq!(error.downcast_ref(), Some(&why)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(next(body), Poll::Ready(None)), "nothing comes after the error");
    assert!(body.is_end_stream());
}

#[test]
fn each_frame_has_its_own_time() {
    let (time, frames) = (Manual::new(), Frames::default());
    let mut body = TimeoutBody::new(time.timeouts, 10 * SECOND, frames.clone());
    assert!(!body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(7));
    for _ in 0..3 {
        assert!(next(&mut body).is_pending());
        time.pass(8 * SECOND);
        frames.put(Ok("frame"));
        assert!(matches!(next(&mut body), Poll::Ready(Some(Ok(_)))));
    }
    assert_eq!(time.registered(), 1, "frames move one entry");
    assert!(next(&mut body).is_pending());
    time.pass(11 * SECOND);
    fails(&mut body, TimeoutError::Elapsed);
}

#[test]
fn a_slow_reader_takes_no_time_from_the_body() {
    let (time, frames) = (Manual::new(), Frames::default());
    let mut body = TimeoutBody::new(time.timeouts, 10 * SECOND, frames.clone());
    assert!(next(&mut body).is_pending());
    frames.put(Ok("frame"));
    assert!(matches!(next(&mut body), Poll::Ready(Some(Ok(_)))));
    time.pass(60 * SECOND);
    assert!(next(&mut body).is_pending(), "its time begins now");
    time.pass(9 * SECOND);
    assert!(next(&mut body).is_pending());
    frames.put(Ok("late, but polled first"));
    time.pass(2 * SECOND);
    assert!(matches!(next(&mut body), Poll::Ready(Some(Ok(_)))));
}

#[test]
fn the_bodys_own_error_comes_through() {
    let (time, frames) = (Manual::new(), Frames::default());
    let mut body = TimeoutBody::new(time.timeouts, SECOND, frames.clone());
    frames.put(Err(io::Error::other("broken")));
    let Poll::Ready(Some(Err(error))) = next(&mut body) else { panic!("an error") };
    assert_eq!(error.downcast_ref::<io::Error>().unwrap().to_string(), "broken");
}

#[test]
fn refusals_have_errors_of_their_own() {
    let time = Manual::with(|builder| builder.capacity(1));
    let bodies = [(); 2].map(|()| TimeoutBody::new(time.timeouts, SECOND, Frames::default()));
    let [mut first, mut second] = bodies;
    assert!(next(&mut first).is_pending());
    fails(&mut second, TimeoutError::Timer(TimerError::Full));
    time.timeouts.shutdown();
    fails(&mut first, TimeoutError::Timer(TimerError::Closed));
}

#[test]
fn no_time_at_all_is_one_poll() {
    let (time, frames) = (Manual::new(), Frames::default());
    let mut body = TimeoutBody::new(time.timeouts, Duration::ZERO, frames.clone());
    frames.put(Ok("frame"));
    assert!(matches!(next(&mut body), Poll::Ready(Some(Ok(_)))));
    fails(&mut body, TimeoutError::Elapsed);
}

#[test]
fn the_layers_limit_the_bodies_of_requests_and_responses() {
    let time = Manual::new();
    let [requests, responses] = [(); 2].map(|()| Frames::default());
    let echo = |request: Request<TimeoutBody<Frames>>| {
        ready(Ok::<_, Infallible>(Response::new(request.into_body())))
    };
    let mut echo = BodyTimeoutLayer::of_requests(time.timeouts, SECOND).layer(service_fn(echo));
    let mut echoed = echo.call(Request::new(requests.clone())).into_inner().unwrap().into_body();
    let layer = BodyTimeoutLayer::of_responses(time.timeouts, 2 * SECOND);
    let answer = responses.clone();
    let answers = move |()| ready(Ok::<_, Infallible>(Response::new(answer.clone())));
    let mut response = layer.layer(service_fn(answers)).call(());
    let Poll::Ready(Ok(response)) = poll(&mut response) else { panic!("it is ready") };
    let mut answered = response.into_body();
    for (frames, body) in [(requests, &mut echoed), (responses, &mut answered)] {
        assert!(next(body).is_pending());
        frames.put(Ok("frame"));
        assert!(matches!(next(body), Poll::Ready(Some(Ok(_)))));
        assert!(next(body).is_pending());
    }
    time.pass(SECOND + SECOND / 100);
    fails(&mut echoed, TimeoutError::Elapsed);
    assert!(next(&mut answered).is_pending());
    time.pass(SECOND);
    fails(&mut answered, TimeoutError::Elapsed);
    assert_eq!((echo.layer().after(), layer.after()), (SECOND, 2 * SECOND));
}
