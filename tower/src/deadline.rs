//! The time limit of requests with their responses' bodies.

use crate::layer::request_layer;
use crate::{Answer, Ending, Fail, TimeoutBody, TimeoutService};
use expiry::timeouts::{Sleep, TimeoutError};
use expiry::Timeouts;
use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// When a request is to be over, its response's body included. A [`DeadlineLayer`] puts it into the
/// extensions of the request, where handlers find it; with an `Arc` in the layer, a
/// `Deadline<Arc<Timeouts>>`.
#[derive(Debug, Clone, Copy)]
pub struct Deadline<T = &'static Timeouts> {
    timeouts: T,
    /// A reading of the timeouts' clock.
    at: Duration,
}

impl<T: Deref<Target = Timeouts>> Deadline<T> {
    /// A deadline so long from now. A layer's client or server may put it into the extensions of a
    /// request: a [`DeadlineLayer`] never gives more time than that.
    #[must_use]
    pub fn new(timeouts: T, after: Duration) -> Self {
        Deadline { at: timeouts.now().saturating_add(after), timeouts }
    }

    /// How much time is left; zero when the deadline has passed. It is the limit for what a handler
    /// asks of others. Reads the clock of the timeouts.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.at.saturating_sub(self.timeouts.now())
    }
}

request_layer! {
    /// Gives each request so much time, from the call of the service to the end of the response's
    /// body.
    ///
    /// The handler finds the [`Deadline`] in the extensions of the request. If there is a nearer
    /// one already, from a layer around this one, that one holds.
    ///
    /// A response that comes late is dropped, and the request ends as the layer says: with
    /// [`new`](Self::new) or [`answering`](Self::answering), as a
    /// [`TimeoutLayer`](crate::TimeoutLayer). A frame that comes late ends the body with
    /// [`TimeoutError::Elapsed`]. Both hold where the response or the frame is ready, but is polled
    /// late. A server that waits for a slow reader does not poll: limit that by an
    /// [`IdleTimeout`](crate::IdleTimeout).
    ///
    /// A request costs an entry of 32 bytes if it is found pending, and no more for its body; a
    /// reading of the clock for itself, its response, and each frame.
    ///
    /// `T` is a `&'static Timeouts`, or an `Arc<Timeouts>`: each request clones it twice, and its
    /// response once. Layers that hold the same `T` find each other's deadlines.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{routing::get, Extension, Router};
    /// use expiry::timeouts::global;
    /// use expiry_tower::{Deadline, DeadlineLayer};
    /// use http::StatusCode;
    /// use std::time::Duration;
    ///
    /// async fn ask(Extension(deadline): Extension<Deadline>) -> String {
    ///     format!("another server has {:?} for this", deadline.remaining())
    /// }
    ///
    /// let limit = Duration::from_secs(30);
    /// let app: Router = Router::new()
    ///     .route("/", get(ask))
    ///     .layer(DeadlineLayer::answering(global(), limit, StatusCode::GATEWAY_TIMEOUT));
    /// ```
    DeadlineLayer; answering
}

impl<S, R, B, E, T> Service<Request<R>> for TimeoutService<S, DeadlineLayer<E, T>>
where
    S: Service<Request<R>, Response = Response<B>>,
    E: Ending<Response<B>, S::Error> + Clone,
    T: Deref<Target = Timeouts> + Clone + Send + Sync + 'static,
{
    type Response = Response<TimeoutBody<B, T>>;
    type Error = E::Error;
    type Future = DeadlineFuture<S::Future, E, T>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E::Error>> {
        self.inner.poll_ready(context).map_err(E::own)
    }

    fn call(&mut self, mut request: Request<R>) -> Self::Future {
        let DeadlineLayer { timeouts, after, ending } = self.layer.clone();
        let outer = request.extensions().get().map_or(Duration::MAX, Deadline::<T>::remaining);
        let after = after.min(outer);
        let deadline = Deadline::new(timeouts.clone(), after);
        let (at, sleep) = (deadline.at, Sleep::new(timeouts, after));
        request.extensions_mut().insert(deadline);
        DeadlineFuture { response: self.inner.call(request), at, sleep, ending }
    }
}

pin_project! {
    /// The response of a service with a [`DeadlineLayer`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct DeadlineFuture<F, E = Fail, T: Deref<Target = Timeouts> = &'static Timeouts> {
        #[pin]
        response: F,
        // The reading of the timeouts' clock from which on it is late.
        at: Duration,
        sleep: Sleep<T>,
        ending: E,
    }
}

impl<F, B, O, E, T> Future for DeadlineFuture<F, E, T>
where
    F: Future<Output = Result<Response<B>, O>>,
    E: Ending<Response<B>, O>,
    T: Deref<Target = Timeouts> + Clone,
{
    type Output = Result<Response<TimeoutBody<B, T>>, E::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let why = match this.response.poll(context) {
            Poll::Ready(Ok(response)) if *this.at > this.sleep.timeouts().now() => {
                let rest = Sleep::new(this.sleep.timeouts().clone(), Duration::ZERO);
                let sleep = std::mem::replace(this.sleep, rest);
                let limited = |body| TimeoutBody::until(*this.at, sleep, body);
                return Poll::Ready(Ok(response.map(limited)));
            }
            Poll::Ready(Ok(_)) => TimeoutError::Elapsed,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(E::own(error))),
            Poll::Pending => ready!(Pin::new(&mut *this.sleep).poll(context))
                .map_or_else(TimeoutError::Timer, |()| TimeoutError::Elapsed),
        };
        // The answer of the layer itself has no limit.
        let timeouts = this.sleep.timeouts();
        let unlimited = |body| TimeoutBody::new(timeouts.clone(), Duration::MAX, body);
        Poll::Ready(this.ending.late(why).map(|response| response.map(unlimited)))
    }
}
