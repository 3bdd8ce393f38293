//! The time limit of a body's frames.

use crate::BoxError;
use expiry::timeouts::{Sleep, TimeoutError};
use expiry::Timeouts;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;

/// How far the body has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No frame is waited for.
    Idle,
    /// The time of a frame runs.
    Waiting,
    /// It has failed.
    Failed,
}

pin_project! {
    /// A body each of whose frames has so much time.
    ///
    /// The time of a frame begins with the first poll that finds it pending: a reader that is slow
    /// itself takes no time from it. A late frame ends the body with [`TimeoutError::Elapsed`], and
    /// a refused deadline with [`TimeoutError::Timer`], each boxed; no frame comes after that.
    ///
    /// A frame that is ready when it is polled costs nothing. Any other one costs a registration
    /// for the first, and one compare-and-swap for those after it: no allocation. The deadline of a
    /// frame that has come stays until then: it may wake a reader that waits for something else once.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::timeouts;
    /// use expiry_tower::TimeoutBody;
    /// use http_body_util::{BodyExt, Full};
    /// use std::time::Duration;
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let body = Full::<bytes::Bytes>::from("all of it");
    /// let body = TimeoutBody::new(timeouts::global(), Duration::from_secs(30), body);
    /// assert_eq!(body.collect().await?.to_bytes(), "all of it");
    /// # Ok::<(), expiry_tower::BoxError>(())
    /// # }).unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Around all requests and responses of an axum router, by tower's `ServiceBuilder`:
    ///
    /// ```
    /// use axum::{body::Body, extract::Request, response::Response, Router};
    /// use expiry::timeouts;
    /// use expiry_tower::TimeoutBody;
    /// use std::time::Duration;
    /// use tower::ServiceBuilder;
    ///
    /// fn limited(body: Body) -> Body {
    ///     Body::new(TimeoutBody::new(timeouts::global(), Duration::from_secs(30), body))
    /// }
    ///
    /// let app: Router = Router::new().layer(
    ///     ServiceBuilder::new()
    ///         .map_request(|request: Request| request.map(limited))
    ///         .map_response(|response: Response| response.map(limited)),
    /// );
    /// ```
    #[derive(Debug)]
    pub struct TimeoutBody<B> {
        #[pin]
        body: B,
        after: Duration,
        sleep: Sleep<'static>,
        state: State,
    }
}

impl<B> TimeoutBody<B> {
    /// Gives each frame of `body` so much time.
    #[must_use]
    pub fn new(timeouts: &'static Timeouts, after: Duration, body: B) -> Self {
        let sleep = timeouts.sleep(Duration::ZERO);
        TimeoutBody { body, after, sleep, state: State::Idle }
    }
}

impl<B> Body for TimeoutBody<B>
where
    B: Body,
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        if *this.state == State::Failed {
            return Poll::Ready(None);
        }
        if let Poll::Ready(frame) = this.body.poll_frame(context) {
            *this.state = State::Idle;
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if *this.state == State::Idle {
            this.sleep.reset(*this.after);
            *this.state = State::Waiting;
        }
        let slept = ready!(Pin::new(this.sleep).poll(context));
        *this.state = State::Failed;
        Poll::Ready(Some(Err(match slept {
            Ok(()) => TimeoutError::Elapsed.into(),
            Err(why) => TimeoutError::Timer(why).into(),
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Failed || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
