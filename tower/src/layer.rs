//! The time limit of requests.

use crate::BoxError;
use expiry::timeouts::{Timeout, TimeoutError};
use expiry::Timeouts;
use http::{Response, StatusCode};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// A late request fails with a [`TimeoutError`], boxed.
#[derive(Debug, Clone, Copy)]
pub struct Fail;

/// A late request is answered with a status code.
#[derive(Debug, Clone, Copy)]
pub struct Answer(StatusCode);

/// Gives each request of a service so much time.
///
/// The time begins when the response future is polled and found pending. A response that is ready
/// at its first poll costs nothing but that poll. Any other one costs an entry of 32 bytes, no
/// allocation. A late response future is dropped with the [`ResponseFuture`].
///
/// [`new`](Self::new) is for any service: a late request fails with [`TimeoutError::Elapsed`], and
/// one whose deadline was refused with [`TimeoutError::Timer`], each in the box that tower's layers
/// use. [`answering`](Self::answering) is for HTTP: the service answers, and keeps its error type.
///
/// # Examples
///
/// ```
/// use expiry::timeouts::{self, TimeoutError};
/// use expiry_tower::TimeoutLayer;
/// use std::{convert::Infallible, future::pending, time::Duration};
/// use tower::{service_fn, Layer, ServiceExt};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let hangs = service_fn(|_: &str| pending::<Result<(), Infallible>>());
/// let limited = TimeoutLayer::new(timeouts::global(), Duration::from_millis(2)).layer(hangs);
/// let error = limited.oneshot("a request").await.unwrap_err();
/// assert_eq!(error.downcast_ref(), Some(&TimeoutError::Elapsed));
/// # });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TimeoutLayer<E = Fail> {
    timeouts: &'static Timeouts,
    after: Duration,
    ending: E,
}

impl TimeoutLayer {
    /// A late request fails with a [`TimeoutError`].
    #[must_use]
    pub const fn new(timeouts: &'static Timeouts, after: Duration) -> Self {
        TimeoutLayer { timeouts, after, ending: Fail }
    }
}

impl TimeoutLayer<Answer> {
    /// A late request is answered with `status` and an empty body. One whose deadline was refused
    /// is answered with 503 (Service Unavailable).
    ///
    /// ```
    /// use axum::{routing::get, Router};
    /// use expiry::timeouts;
    /// use expiry_tower::TimeoutLayer;
    /// use http::StatusCode;
    /// use std::time::Duration;
    ///
    /// let limit = Duration::from_secs(30);
    /// let app: Router = Router::new()
    ///     .route("/", get(|| async { "in time" }))
    ///     .layer(TimeoutLayer::answering(timeouts::global(), limit, StatusCode::GATEWAY_TIMEOUT));
    /// ```
    #[must_use]
    pub const fn answering(
        timeouts: &'static Timeouts,
        after: Duration,
        status: StatusCode,
    ) -> Self {
        TimeoutLayer { timeouts, after, ending: Answer(status) }
    }
}

impl<S, E: Copy> Layer<S> for TimeoutLayer<E> {
    type Service = TimeoutService<S, E>;

    fn layer(&self, inner: S) -> Self::Service {
        TimeoutService { inner, limit: TimeoutLayer { ..*self } }
    }
}

/// A service with the time limit of a [`TimeoutLayer`].
#[derive(Debug, Clone, Copy)]
pub struct TimeoutService<S, E = Fail> {
    inner: S,
    limit: TimeoutLayer<E>,
}

impl<S, E: Copy> TimeoutService<S, E> {
    fn limited<F: Future>(&self, response: F) -> ResponseFuture<F, E> {
        let TimeoutLayer { timeouts, after, ending } = self.limit;
        ResponseFuture { response: timeouts.timeout(after, response), ending }
    }
}

impl<S, R> Service<R> for TimeoutService<S>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let response = self.inner.call(request);
        self.limited(response)
    }
}

impl<S, R, B> Service<R> for TimeoutService<S, Answer>
where
    S: Service<R, Response = Response<B>>,
    B: Default,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, Answer>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let response = self.inner.call(request);
        self.limited(response)
    }
}

pin_project! {
    /// The response of a [`TimeoutService`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<F, E = Fail> {
        #[pin]
        response: Timeout<'static, F>,
        ending: E,
    }
}

impl<F, R, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<R, E>>,
    E: Into<BoxError>,
{
    type Output = Result<R, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(self.project().response.poll(context)) {
            Ok(response) => response.map_err(Into::into),
            Err(why) => Err(why.into()),
        })
    }
}

impl<F, B, E> Future for ResponseFuture<F, Answer>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Default,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(ready!(this.response.poll(context)).unwrap_or_else(|why| {
            let mut response = Response::new(B::default());
            *response.status_mut() = match why {
                TimeoutError::Elapsed => this.ending.0,
                TimeoutError::Timer(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            Ok(response)
        }))
    }
}
