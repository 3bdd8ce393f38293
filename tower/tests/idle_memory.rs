//! What an operation on a stream with an idle timeout allocates. Allocations are counted by thread.

#[path = "../../tests/alone/heap.rs"]
#[allow(dead_code)] // it counts calls only
mod heap;

use expiry::{ManualClock, Timeouts};
use expiry_tower::IdleTimeout;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const SECOND: Duration = Duration::from_secs(1);

/// Each second read, and each second write, has to wait.
#[derive(Default)]
struct EveryOther {
    reads: usize,
    writes: usize,
}

fn every_other<T>(calls: &mut usize, done: T) -> Poll<io::Result<T>> {
    *calls += 1;
    match *calls % 2 {
        0 => Poll::Ready(Ok(done)),
        _ => Poll::Pending,
    }
}

impl AsyncRead for EveryOther {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        every_other(&mut self.reads, ()).map_ok(|()| buffer.put_slice(b"x"))
    }
}

impl AsyncWrite for EveryOther {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        every_other(&mut self.writes, bytes.len())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// H2: also where an operation waits, and where the noted progress makes it wait for the rest.
#[test]
fn an_operation_allocates_nothing() {
    let clock = ManualClock::new();
    let builder = Timeouts::builder().clock(clock.clone());
    let timeouts: &'static Timeouts = Box::leak(Box::new(builder.build_manual().unwrap()));
    let mut stream = IdleTimeout::new(timeouts, 10 * SECOND, EveryOther::default());
    let mut context = Context::from_waker(Waker::noop());
    let mut turns = |turns: usize| {
        let (mut done, mut calls) = (0, 0);
        for _ in 0..turns {
            let before = heap::calls();
            let mut space = [0; 8];
            let mut buffer = ReadBuf::new(&mut space);
            let read = Pin::new(&mut stream).poll_read(&mut context, &mut buffer);
            let written = Pin::new(&mut stream).poll_write(&mut context, b"x");
            calls += heap::calls() - before;
            done += usize::from(matches!(read, Poll::Ready(Ok(()))));
            done += usize::from(matches!(written, Poll::Ready(Ok(1))));
            clock.advance(SECOND);
            while timeouts.poll(1000).more {}
        }
        (done, calls)
    };
    // The first operations of a thread make its stripe.
    turns(100);
    let registered = timeouts.metrics().registered;
    assert_eq!(turns(10_000), (10_000, 0), "(operations done, allocations)");
    assert!(timeouts.metrics().registered > registered, "some have waited for the rest");
}
