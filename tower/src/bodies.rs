//! The layer of bodies' time limits.

use crate::{TimeoutBody, TimeoutService};
use expiry::Timeouts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The bodies of requests have the limit.
#[derive(Debug, Clone, Copy)]
pub struct OfRequests;

/// The bodies of responses have the limit.
#[derive(Debug, Clone, Copy)]
pub struct OfResponses;

/// Gives each frame of a service's bodies so much time: each is a [`TimeoutBody`].
///
/// # Examples
///
/// ```
/// use axum::{routing::post, Router};
/// use expiry::timeouts::global;
/// use expiry_tower::BodyTimeoutLayer;
/// use std::time::Duration;
///
/// let silence = Duration::from_secs(30);
/// let app: Router = Router::new()
///     .route("/", post(|text: String| async { text }))
///     .layer(BodyTimeoutLayer::of_requests(global(), silence))
///     .layer(BodyTimeoutLayer::of_responses(global(), silence));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BodyTimeoutLayer<Of> {
    timeouts: &'static Timeouts,
    after: Duration,
    of: PhantomData<Of>,
}

impl BodyTimeoutLayer<OfRequests> {
    /// A request whose next frame is late has a body that fails: the handler gets the error.
    #[must_use]
    pub const fn of_requests(timeouts: &'static Timeouts, after: Duration) -> Self {
        BodyTimeoutLayer { timeouts, after, of: PhantomData }
    }
}

impl BodyTimeoutLayer<OfResponses> {
    /// A response whose next frame is late has a body that fails: the server breaks it off.
    #[must_use]
    pub const fn of_responses(timeouts: &'static Timeouts, after: Duration) -> Self {
        BodyTimeoutLayer { timeouts, after, of: PhantomData }
    }
}

impl<Of> BodyTimeoutLayer<Of> {
    /// How much time each frame has.
    #[must_use]
    pub const fn after(&self) -> Duration {
        self.after
    }

    fn limited<B>(&self, body: B) -> TimeoutBody<B> {
        TimeoutBody::new(self.timeouts, self.after, body)
    }
}

impl<S, Of: Copy> Layer<S> for BodyTimeoutLayer<Of> {
    type Service = TimeoutService<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        TimeoutService { inner, layer: *self }
    }
}

impl<S, B> Service<Request<B>> for TimeoutService<S, BodyTimeoutLayer<OfRequests>>
where
    S: Service<Request<TimeoutBody<B>>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.inner.call(request.map(|body| self.layer.limited(body)))
    }
}

impl<S, R, B> Service<R> for TimeoutService<S, BodyTimeoutLayer<OfResponses>>
where
    S: Service<R, Response = Response<B>>,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = S::Error;
    type Future = BodyTimeoutFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        BodyTimeoutFuture { response: self.inner.call(request), layer: self.layer }
    }
}

pin_project! {
    /// The response of a service with a [`BodyTimeoutLayer`] of responses.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct BodyTimeoutFuture<F> {
        #[pin]
        response: F,
        layer: BodyTimeoutLayer<OfResponses>,
    }
}

impl<F, B, E> Future for BodyTimeoutFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<TimeoutBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(context));
        Poll::Ready(response.map(|response| response.map(|body| this.layer.limited(body))))
    }
}
