//! The layer that limits the time of bodies.

use crate::layer::layer;
use crate::{TimeoutBody, TimeoutService};
use expiry::Timeouts;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
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

layer! {
    /// Gives each frame of a service's bodies so much time: each is a [`TimeoutBody`].
    ///
    /// `T` is a `&'static Timeouts`, or an `Arc<Timeouts>`: each body has a clone.
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
    BodyTimeoutLayer<Of>, of: PhantomData<Of>
}

impl<T> BodyTimeoutLayer<OfRequests, T> {
    /// A request whose next frame is late has a body that fails: the handler gets the error.
    #[must_use]
    pub const fn of_requests(timeouts: T, after: Duration) -> Self {
        BodyTimeoutLayer { timeouts, after, of: PhantomData }
    }
}

impl<T> BodyTimeoutLayer<OfResponses, T> {
    /// A response whose next frame is late has a body that fails: the server breaks it off.
    #[must_use]
    pub const fn of_responses(timeouts: T, after: Duration) -> Self {
        BodyTimeoutLayer { timeouts, after, of: PhantomData }
    }
}

impl<Of, T: Deref<Target = Timeouts> + Clone> BodyTimeoutLayer<Of, T> {
    fn limited<B>(&self, body: B) -> TimeoutBody<B, T> {
        TimeoutBody::new(self.timeouts.clone(), self.after, body)
    }
}

impl<S, B, T> Service<Request<B>> for TimeoutService<S, BodyTimeoutLayer<OfRequests, T>>
where
    S: Service<Request<TimeoutBody<B, T>>>,
    T: Deref<Target = Timeouts> + Clone,
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

impl<S, R, B, T> Service<R> for TimeoutService<S, BodyTimeoutLayer<OfResponses, T>>
where
    S: Service<R, Response = Response<B>>,
    T: Deref<Target = Timeouts> + Clone,
{
    type Response = Response<TimeoutBody<B, T>>;
    type Error = S::Error;
    type Future = BodyTimeoutFuture<S::Future, T>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        BodyTimeoutFuture { response: self.inner.call(request), layer: self.layer.clone() }
    }
}

pin_project! {
    /// The response of a service with a [`BodyTimeoutLayer`] of responses.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct BodyTimeoutFuture<F, T = &'static Timeouts> {
        #[pin]
        response: F,
        layer: BodyTimeoutLayer<OfResponses, T>,
    }
}

impl<F, B, E, T> Future for BodyTimeoutFuture<F, T>
where
    F: Future<Output = Result<Response<B>, E>>,
    T: Deref<Target = Timeouts> + Clone,
{
    type Output = Result<Response<TimeoutBody<B, T>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(context));
        Poll::Ready(response.map(|response| response.map(|body| this.layer.limited(body))))
    }
}
