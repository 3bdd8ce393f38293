//! The time limit of requests.

use crate::BoxError;
use expiry::timeouts::{Timeout, TimeoutError};
use expiry::Timeouts;
use http::{Response, StatusCode};
use pin_project_lite::pin_project;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// What a late request comes to: [`Fail`] or [`Answer`]. `R` and `E` are the service's response and
/// error.
pub trait Ending<R, E> {
    /// The error of the service with the limit.
    type Error;

    /// What the service returns when the time is up, or when the deadline was refused.
    ///
    /// # Errors
    ///
    /// Where the late request fails.
    fn late(&self, why: TimeoutError) -> Result<R, Self::Error>;

    /// The service's own error.
    fn own(error: E) -> Self::Error;
}

/// A late request fails with a [`TimeoutError`], boxed.
#[derive(Debug, Clone, Copy)]
pub struct Fail;

impl<R, E: Into<BoxError>> Ending<R, E> for Fail {
    type Error = BoxError;

    fn late(&self, why: TimeoutError) -> Result<R, BoxError> {
        Err(why.into())
    }

    fn own(error: E) -> BoxError {
        error.into()
    }
}

/// A late request is answered with a status code and an empty body. One whose deadline was refused
/// is answered with 503 (Service Unavailable).
#[derive(Debug, Clone, Copy)]
pub struct Answer(pub(crate) StatusCode);

impl<B: Default, E> Ending<Response<B>, E> for Answer {
    type Error = E;

    fn late(&self, why: TimeoutError) -> Result<Response<B>, E> {
        let mut response = Response::new(B::default());
        *response.status_mut() = match why {
            TimeoutError::Elapsed => self.0,
            TimeoutError::Timer(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Ok(response)
    }

    fn own(error: E) -> E {
        error
    }
}

/// A layer `name<P, T>` with a time limit, timeouts `T` to go by, and a field of its own.
macro_rules! layer {
    ($(#[$doc:meta])* $layer:ident<$of:ident $(= $default:ty)?>, $field:ident: $type:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $layer<$of $(= $default)?, T = &'static Timeouts> {
            timeouts: T,
            after: Duration,
            $field: $type,
        }

        impl<$of, T> $layer<$of, T> {
            /// How much time the layer gives.
            #[must_use]
            pub const fn after(&self) -> Duration {
                self.after
            }
        }

        impl<S, $of: Clone, T: Clone> Layer<S> for $layer<$of, T> {
            type Service = TimeoutService<S, Self>;

            fn layer(&self, inner: S) -> Self::Service {
                TimeoutService { inner, layer: self.clone() }
            }
        }
    };
}

/// A [`layer!`] of requests, with both of its constructors.
macro_rules! request_layer {
    ($(#[$doc:meta])* $layer:ident; $(#[$answering:meta])* answering) => {
        $crate::layer::layer! {
            $(#[$doc])*
            $layer<E = Fail>, ending: E
        }

        impl<T> $layer<Fail, T> {
            /// A late request fails with a [`TimeoutError`], boxed.
            #[must_use]
            pub const fn new(timeouts: T, after: Duration) -> Self {
                $layer { timeouts, after, ending: Fail }
            }
        }

        impl<T> $layer<Answer, T> {
            /// A late request is answered with `status` and an empty body. One whose deadline was
            /// refused is answered with 503 (Service Unavailable).
            $(#[$answering])*
            #[must_use]
            pub const fn answering(timeouts: T, after: Duration, status: StatusCode) -> Self {
                $layer { timeouts, after, ending: Answer(status) }
            }
        }
    };
}

pub(crate) use {layer, request_layer};

request_layer! {
    /// Gives each request of a service so much time.
    ///
    /// The time begins when the response future is polled and found pending. A response that is
    /// ready at its first poll costs nothing but that poll. Any other one costs an entry of 32
    /// bytes, no allocation. A late response future is dropped with the [`ResponseFuture`].
    ///
    /// [`new`](Self::new) is for any service: a late request fails with [`TimeoutError::Elapsed`],
    /// and one whose deadline was refused with [`TimeoutError::Timer`], each in the box that
    /// tower's layers use. [`answering`](Self::answering) is for HTTP: the service answers, and
    /// keeps its error type.
    ///
    /// `T` is a `&'static Timeouts`, or an `Arc<Timeouts>`: each request clones it once.
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
    TimeoutLayer;
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
    answering
}

/// A service with the time limit of a layer `L`.
#[derive(Debug, Clone, Copy)]
pub struct TimeoutService<S, L = TimeoutLayer> {
    pub(crate) inner: S,
    pub(crate) layer: L,
}

impl<S, L> TimeoutService<S, L> {
    /// The layer, which says what the limit is.
    pub const fn layer(&self) -> &L {
        &self.layer
    }

    /// The service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The service. Requests that are sent through this have no limit.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service, without a limit.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, R, E, T> Service<R> for TimeoutService<S, TimeoutLayer<E, T>>
where
    S: Service<R>,
    E: Ending<S::Response, S::Error> + Clone,
    T: Deref<Target = Timeouts> + Clone,
{
    type Response = S::Response;
    type Error = E::Error;
    type Future = ResponseFuture<S::Future, E, T>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E::Error>> {
        self.inner.poll_ready(context).map_err(E::own)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let TimeoutLayer { timeouts, after, ending } = self.layer.clone();
        ResponseFuture { response: Timeout::new(timeouts, after, self.inner.call(request)), ending }
    }
}

pin_project! {
    /// The response of a service with a [`TimeoutLayer`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are polled"]
    pub struct ResponseFuture<F, E = Fail, T: Deref<Target = Timeouts> = &'static Timeouts> {
        #[pin]
        response: Timeout<T, F>,
        ending: E,
    }
}

impl<F, R, O, E, T> Future for ResponseFuture<F, E, T>
where
    F: Future<Output = Result<R, O>>,
    E: Ending<R, O>,
    T: Deref<Target = Timeouts>,
{
    type Output = Result<R, E::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        Poll::Ready(match ready!(this.response.poll(context)) {
            Ok(response) => response.map_err(E::own),
            Err(why) => this.ending.late(why),
        })
    }
}
