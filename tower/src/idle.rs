//! Connections that are idle for too long.

use expiry::timeouts::{Sleep, TimeoutError};
use expiry::Timeouts;
#[cfg(feature = "hyper-util")]
use hyper_util::client::legacy::connect::{Connected, Connection};
use pin_project_lite::pin_project;
use std::future::Future;
use std::io::{self, IoSlice};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a stream may be idle, and since when it is.
#[derive(Debug)]
struct Idle {
    limit: Duration,
    /// When bytes went through last, in either direction.
    progress: Duration,
}

impl Idle {
    /// Is ready with an error when the stream has been idle for too long. The sleep is that of the
    /// direction that waits.
    fn poll<T: Deref<Target = Timeouts>>(
        &self,
        sleep: &mut Sleep<T>,
        context: &mut Context<'_>,
    ) -> Poll<io::Error> {
        loop {
            if let Err(why) = ready!(Pin::new(&mut *sleep).poll(context)) {
                return Poll::Ready(why.into());
            }
            let idle = sleep.timeouts().now().saturating_sub(self.progress);
            let rest = self.limit.saturating_sub(idle);
            if rest.is_zero() {
                return Poll::Ready(TimeoutError::Elapsed.into());
            }
            sleep.reset(rest);
        }
    }

    /// What one direction's poll returns.
    fn limit<R, T: Deref<Target = Timeouts>>(
        &mut self,
        sleep: &mut Sleep<T>,
        context: &mut Context<'_>,
        polled: Poll<io::Result<R>>,
        is_progress: impl FnOnce(&R) -> bool,
    ) -> Poll<io::Result<R>> {
        match &polled {
            Poll::Pending => self.poll(sleep, context).map(Err),
            Poll::Ready(done) => {
                if done.as_ref().is_ok_and(is_progress) {
                    self.progress = sleep.timeouts().now();
                }
                polled
            }
        }
    }
}

pin_project! {
    /// A stream whose reads and writes fail when no byte has gone through for so long, in either
    /// direction: with [`TimedOut`](io::ErrorKind::TimedOut).
    ///
    /// The stream itself is polled first, so bytes that are there are read however late. Only a
    /// read, write, flush or shutdown that would wait fails; polled again, it tries again. Time in
    /// which the stream is not polled counts: a server whose answer takes longer than this finds
    /// its next read timed out if it began before the answer was written.
    ///
    /// Where the deadline is refused, such a read or write fails with the kind of the
    /// [`TimerError`](expiry::timeouts::TimerError), which is inside the error.
    ///
    /// `T` is a `&'static Timeouts`, or an `Arc<Timeouts>`, of which the stream owns two clones.
    ///
    /// # Cost
    ///
    /// Progress costs one reading of the clock, 20 to 40 ns, and no atomic read-modify-write: it is
    /// noted, and the deadline stays. When the deadline comes, the task is woken, and the stream
    /// waits for the rest. The error is neither early nor later for that, but the task of a busy
    /// connection is woken once in each such period for nothing. Each direction has a deadline and
    /// a waker of its own, so that the halves of a split stream may be in different tasks. Nothing
    /// is allocated.
    ///
    /// # Examples
    ///
    /// ```
    /// use expiry::timeouts;
    /// use expiry_tower::IdleTimeout;
    /// use std::{io::ErrorKind, time::Duration};
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// let (mut peer, stream) = tokio::io::duplex(64); // or a `TcpStream`
    /// let mut stream = IdleTimeout::new(timeouts::global(), Duration::from_millis(5), stream);
    /// peer.write_all(b"x").await?;
    /// assert_eq!(stream.read_u8().await?, b'x');
    /// let idle = stream.read_u8().await.unwrap_err();
    /// assert_eq!(idle.kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Debug)]
    pub struct IdleTimeout<S, T: Deref<Target = Timeouts> = &'static Timeouts> {
        #[pin]
        stream: S,
        idle: Idle,
        read: Sleep<T>,
        write: Sleep<T>,
    }
}

impl<S, T: Deref<Target = Timeouts>> IdleTimeout<S, T> {
    /// Fails when `stream` is idle for `limit`. The time begins now.
    #[must_use]
    pub fn new(timeouts: T, limit: Duration, stream: S) -> Self
    where
        T: Clone,
    {
        let idle = Idle { limit, progress: timeouts.now() };
        // They are ready at once, and find then what there is to wait for.
        let read = Sleep::new(timeouts.clone(), Duration::ZERO);
        let write = Sleep::new(timeouts, Duration::ZERO);
        IdleTimeout { stream, idle, read, write }
    }

    /// How long the stream may be idle.
    pub const fn limit(&self) -> Duration {
        self.idle.limit
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream. What is read and written by this is no progress.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream, without a limit.
    pub fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead, T: Deref<Target = Timeouts>> AsyncRead for IdleTimeout<S, T> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.project();
        let filled = buffer.filled().len();
        let polled = this.stream.poll_read(context, buffer);
        this.idle.limit(this.read, context, polled, |()| buffer.filled().len() > filled)
    }
}

impl<S: AsyncWrite, T: Deref<Target = Timeouts>> AsyncWrite for IdleTimeout<S, T> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let polled = this.stream.poll_write(context, bytes);
        this.idle.limit(this.write, context, polled, |&written| written > 0)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.project();
        let polled = this.stream.poll_write_vectored(context, slices);
        this.idle.limit(this.write, context, polled, |&written| written > 0)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let polled = this.stream.poll_flush(context);
        this.idle.limit(this.write, context, polled, |()| false)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.project();
        let polled = this.stream.poll_shutdown(context);
        this.idle.limit(this.write, context, polled, |()| false)
    }
}

#[cfg(feature = "hyper-util")]
#[cfg_attr(docsrs, doc(cfg(feature = "hyper-util")))]
impl<S: Connection, T: Deref<Target = Timeouts>> Connection for IdleTimeout<S, T> {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}
