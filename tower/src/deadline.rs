//! The time limit of requests with their responses' bodies.

use crate::{Answer, Ending, Fail, TimeoutBody, TimeoutService};
use expiry::timeouts::{Sleep, TimeoutError};
use expiry::Timeouts;
use http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// When a request is to be over, its response's body included. A [`DeadlineLayer`] puts it into the
/// extensions of the request, where handlers find it.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    timeouts: &'static Timeouts,
    /// The time of the timeouts.
    at: Duration,
}

impl Deadline {
    /// A deadline so long from now. A layer's client or server may put it into the extensions of a
    /// request: a [`DeadlineLayer`] never gives more time than that.
    #[must_use]
    pub fn new(timeouts: &'static Timeouts, after: Duration) -> Self {
        Deadline { timeouts, at: timeouts.now().saturating_add(after) }
    }

    /// How much time is left; zero when the deadline has passed. It is the limit for what a handler
    /// asks of others. Reads the clock of the timeouts.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.at.saturating_sub(self.timeouts.now())
    }
}

/// Gives each request so much time, from the call of the service to the end of the response's body.
///
/// The handler finds the [`Deadline`] in the extensions of the request. If there is a nearer one
/// already, from a layer around this one, that one holds.
///
/// A response that comes late is dropped, and the request ends as the layer says: with
/// [`new`](Self::new) or [`answering`](Self::answering), as a
/// [`TimeoutLayer`](crate::TimeoutLayer). A frame that comes late ends the body with
/// [`TimeoutError::Elapsed`]. Both hold where the response or the frame is ready, but is polled
/// late. A server that waits for a slow reader does not poll: limit that by an
/// [`IdleTimeout`](crate::IdleTimeout).
///
/// A request costs an entry of 32 bytes if it is found pending, and no more for its body; a reading
/// of the clock for itself, its response, and each frame.
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
#[derive(Debug, Clone, Copy)]
pub struct DeadlineLayer<E = Fail> {
    timeouts: &'static Timeouts,
    after: Duration,
    ending: E,
}

impl DeadlineLayer {
    /// A late response fails with a [`TimeoutError`], boxed.
    #[must_use]
    pub const fn new(timeouts: &'static Timeouts, after: Duration) -> Self {
        DeadlineLayer { timeouts, after, ending: Fail }
    }
}

impl DeadlineLayer<Answer> {
    /// A late response is replaced by one with `status` and an empty body; by 503 (Service
    /// Unavailable) if the deadline was refused.
    #[must_use]
    pub const fn answering(
        timeouts: &'static Timeouts,
        after: Duration,
        status: StatusCode,
    ) -> Self {
        DeadlineLayer { timeouts, after, ending: Answer(status) }
    }
}

impl<E> DeadlineLayer<E> {
    /// How much time each request has.
    #[must_use]
    pub const fn after(&self) -> Duration {
        self.after
    }
}

impl<S, E: Copy> Layer<S> for DeadlineLayer<E> {
    type Service = TimeoutService<S, Self>;

    fn layer(&self, inner: S) -> Self::Service {
        TimeoutService { inner, layer: *self }
    }
}

impl<S, R, B, E> Service<Request<R>> for TimeoutService<S, DeadlineLayer<E>>
where
    S: Service<Request<R>, Response = Response<B>>,
    E: Ending<Response<B>, S::Error> + Copy,
{
    type Response = Response<TimeoutBody<B>>;
    type Error = E::Error;
    type Future = DeadlineFuture<S::Future, E>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E::Error>> {
        self.inner.poll_ready(context).map_err(E::own)
    }

    fn call(&mut self, mut request: Request<R>) -> Self::Future {
        let DeadlineLayer { timeouts, after, ending } = self.layer;
        let outer = request.extensions().get().map_or(Duration::MAX, Deadline::remaining);
        let after = after.min(outer);
        let deadline = Deadline::new(timeouts, after);
        request.extensions_mut().insert(deadline);
        let sleep = timeouts.sleep(after);
        DeadlineFuture { response: self.inner.call(request), deadline, sleep, ending }
    }
}

pin_project! {
    /// The response of a service with a [`DeadlineLayer`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct DeadlineFuture<F, E = Fail> {
        #[pin]
        response: F,
        deadline: Deadline,
        sleep: Sleep<'static>,
        ending: E,
    }
}

impl<F, B, O, E> Future for DeadlineFuture<F, E>
where
    F: Future<Output = Result<Response<B>, O>>,
    E: Ending<Response<B>, O>,
{
    type Output = Result<Response<TimeoutBody<B>>, E::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (deadline, timeouts) = (*this.deadline, this.deadline.timeouts);
        let why = match this.response.poll(context) {
            Poll::Ready(Ok(response)) if !deadline.remaining().is_zero() => {
                let sleep = std::mem::replace(this.sleep, timeouts.sleep(Duration::ZERO));
                let limited = |body| TimeoutBody::until(deadline, sleep, body);
                return Poll::Ready(Ok(response.map(limited)));
            }
            Poll::Ready(Ok(_)) => TimeoutError::Elapsed,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(E::own(error))),
            Poll::Pending => ready!(Pin::new(this.sleep).poll(context))
                .map_or_else(TimeoutError::Timer, |()| TimeoutError::Elapsed),
        };
        // The answer of the layer itself has no limit.
        let unlimited = |body| TimeoutBody::new(timeouts, Duration::MAX, body);
        Poll::Ready(this.ending.late(why).map(|response| response.map(unlimited)))
    }
}
