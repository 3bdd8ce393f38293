//! The time limit of a body's frames.

use crate::BoxError;
use expiry::timeouts::{Sleep, TimeoutError};
use expiry::Timeouts;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;

/// When a frame is late.
#[derive(Debug, Clone, Copy)]
enum Limit {
    /// So long after it was found pending.
    Frame(Duration),
    /// At this reading of the timeouts' clock.
    Until(Duration),
}

impl Limit {
    /// Whether a frame that is ready now is late. Its own time does not count then.
    fn is_over(&self, timeouts: &Timeouts) -> bool {
        matches!(*self, Limit::Until(deadline) if deadline <= timeouts.now())
    }
}

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
    /// A body each of whose frames has so much time; or, from a
    /// [`DeadlineLayer`](crate::DeadlineLayer), all of whose frames have the rest of a request's.
    ///
    /// The time of a frame begins with the first poll that finds it pending: a reader that is slow
    /// itself takes no time from it. A late frame ends the body with [`TimeoutError::Elapsed`], and
    /// a refused deadline with [`TimeoutError::Timer`], each boxed; no frame comes after that.
    ///
    /// A frame that is ready when it is polled costs nothing. Any other one costs a registration
    /// for the first, and one compare-and-swap for those after it: no allocation. The deadline of a
    /// frame that has come stays until then, and may wake a reader that waits for something else.
    ///
    /// `T` is a `&'static Timeouts`, or an `Arc<Timeouts>` that the body owns.
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
    /// [`BodyTimeoutLayer`](crate::BodyTimeoutLayer) puts it around all bodies of a service.
    #[derive(Debug)]
    pub struct TimeoutBody<B, T: Deref<Target = Timeouts> = &'static Timeouts> {
        #[pin]
        body: B,
        limit: Limit,
        sleep: Sleep<T>,
        state: State,
    }
}

impl<B, T: Deref<Target = Timeouts>> TimeoutBody<B, T> {
    /// Gives each frame of `body` so much time.
    #[must_use]
    pub fn new(timeouts: T, after: Duration, body: B) -> Self {
        let sleep = Sleep::new(timeouts, Duration::ZERO);
        TimeoutBody { body, limit: Limit::Frame(after), sleep, state: State::Idle }
    }

    /// Gives the whole of `body` until `deadline`, which `sleep` waits for.
    pub(crate) fn until(deadline: Duration, sleep: Sleep<T>, body: B) -> Self {
        TimeoutBody { body, limit: Limit::Until(deadline), sleep, state: State::Idle }
    }

    /// The body.
    pub const fn get_ref(&self) -> &B {
        &self.body
    }

    /// The body, without a limit.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B, T> Body for TimeoutBody<B, T>
where
    B: Body,
    B::Error: Into<BoxError>,
    T: Deref<Target = Timeouts>,
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
        let why = match this.body.poll_frame(context) {
            Poll::Ready(Some(Ok(_))) if this.limit.is_over(this.sleep.timeouts()) => {
                TimeoutError::Elapsed
            }
            Poll::Ready(frame) => {
                *this.state = State::Idle;
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            }
            Poll::Pending => {
                if let (State::Idle, Limit::Frame(after)) = (*this.state, *this.limit) {
                    this.sleep.reset(after);
                }
                *this.state = State::Waiting;
                let slept = ready!(Pin::new(this.sleep).poll(context));
                slept.map_or_else(TimeoutError::Timer, |()| TimeoutError::Elapsed)
            }
        };
        *this.state = State::Failed;
        Poll::Ready(Some(Err(why.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Failed || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
