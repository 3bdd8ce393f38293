//! Idle connections.

use crate::{block_on, poll, Manual, Woken, SECOND};
use expiry::timeouts::{TimeoutError, TimerError};
use expiry_tower::IdleTimeout;
use std::future::{poll_fn, Future};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::{pin, Pin};
use std::task::{Context, Poll};
use tokio::io::{duplex, split, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};

type Stream = IdleTimeout<DuplexStream>;

/// The peer, and a stream that is idle after ten seconds. Its buffers have room for two bytes.
fn connection(time: &Manual) -> (DuplexStream, Stream) {
    let (peer, stream) = duplex(2);
    (peer, IdleTimeout::new(time.timeouts, 10 * SECOND, stream))
}

fn read(stream: &mut Stream) -> Poll<io::Result<usize>> {
    poll(&mut pin!(stream.read(&mut [0; 8])))
}

fn write(stream: &mut Stream) -> Poll<io::Result<usize>> {
    poll(&mut pin!(stream.write(b"x")))
}

#[track_caller]
fn timed_out<T: std::fmt::Debug>(polled: Poll<io::Result<T>>) {
    match polled {
        Poll::Ready(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let why = error.get_ref().and_then(|why| why.downcast_ref());
            assert_eq!(why, Some(&TimeoutError::Elapsed));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn silence_ends_reads_and_writes() {
    let time = Manual::new();
    let (_peer, mut stream) = connection(&time);
    assert!(read(&mut stream).is_pending());
    block_on(stream.write_all(b"xx")).unwrap();
    assert!(write(&mut stream).is_pending());
    time.pass(9 * SECOND);
    assert!(read(&mut stream).is_pending());
    assert!(write(&mut stream).is_pending());
    time.pass(2 * SECOND);
    for _ in 0..2 {
        timed_out(read(&mut stream));
        timed_out(write(&mut stream));
        let slices = [IoSlice::new(b"x")];
        timed_out(poll(&mut poll_fn(|context| {
            Pin::new(&mut stream).poll_write_vectored(context, &slices)
        })));
    }
}

#[test]
fn bytes_that_are_there_are_read_however_late() {
    let time = Manual::new();
    let (mut peer, mut stream) = connection(&time);
    assert!(read(&mut stream).is_pending());
    block_on(peer.write_all(b"x")).unwrap();
    time.pass(60 * SECOND);
    assert!(matches!(read(&mut stream), Poll::Ready(Ok(1))));
    assert!(read(&mut stream).is_pending(), "that was progress");
    drop(peer);
    assert!(matches!(read(&mut stream), Poll::Ready(Ok(0))), "the end is no timeout");
}

/// The deadline stays where it is, and the rest is waited for when it comes.
#[test]
fn progress_moves_the_end_without_a_write_to_the_entry() {
    let time = Manual::new();
    let (mut peer, mut stream) = connection(&time);
    let (woken, waker) = Woken::new();
    let mut context = Context::from_waker(&waker);
    for _ in 0..8 {
        assert!(pin!(stream.read_u8()).poll(&mut context).is_pending());
        time.pass(SECOND);
        block_on(peer.write_all(b"x")).unwrap();
        assert!(matches!(read(&mut stream), Poll::Ready(Ok(1))));
    }
    assert_eq!(time.registered(), 1);
    // Progress was after 8 s last, so the first deadline comes for nothing.
    assert!(pin!(stream.read_u8()).poll(&mut context).is_pending());
    let before = woken.count();
    time.pass(3 * SECOND);
    assert_eq!((woken.count(), time.registered()), (before + 1, 1));
    assert!(pin!(stream.read_u8()).poll(&mut context).is_pending());
    assert_eq!(time.registered(), 2);
    time.pass(7 * SECOND - SECOND / 1000);
    assert!(pin!(stream.read_u8()).poll(&mut context).is_pending(), "18 s, less a millisecond");
    time.pass(SECOND / 500);
    assert_eq!(woken.count(), before + 2);
    timed_out(pin!(stream.read_u8()).poll(&mut context));
}

/// A peer may close its direction and read on.
#[test]
fn the_end_of_one_direction_is_no_progress() {
    let time = Manual::new();
    let (mut peer, mut stream) = connection(&time);
    block_on(stream.write_all(b"xx")).unwrap();
    block_on(peer.shutdown()).unwrap();
    assert!(write(&mut stream).is_pending());
    time.pass(8 * SECOND);
    assert!(matches!(read(&mut stream), Poll::Ready(Ok(0))));
    time.pass(3 * SECOND);
    timed_out(write(&mut stream));
}

#[test]
fn one_direction_keeps_the_other_alive() {
    let time = Manual::new();
    let (mut peer, mut stream) = connection(&time);
    for _ in 0..4 {
        assert!(read(&mut stream).is_pending());
        time.pass(6 * SECOND);
        assert!(matches!(write(&mut stream), Poll::Ready(Ok(1))));
        block_on(peer.read_u8()).unwrap();
    }
    time.pass(9 * SECOND);
    assert!(read(&mut stream).is_pending());
    time.pass(2 * SECOND);
    timed_out(read(&mut stream));
}

#[test]
fn both_halves_hear_of_it_in_tasks_of_their_own() {
    let time = Manual::new();
    let (_peer, stream) = connection(&time);
    let (mut reader, mut writer) = split(stream);
    let ([reads, writes], [read_waker, write_waker]) = {
        let ((a, b), (c, d)) = (Woken::new(), Woken::new());
        ([a, c], [b, d])
    };
    let mut buffer = [0; 8];
    let (mut read, mut write) = (pin!(reader.read(&mut buffer)), pin!(writer.write_all(b"xxx")));
    assert!(read.as_mut().poll(&mut Context::from_waker(&read_waker)).is_pending());
    assert!(write.as_mut().poll(&mut Context::from_waker(&write_waker)).is_pending());
    let before = (reads.count(), writes.count());
    time.pass(11 * SECOND);
    assert_eq!((reads.count(), writes.count()), (before.0 + 1, before.1 + 1));
    timed_out(poll(&mut read));
    timed_out(poll(&mut write));
}

/// A stream that is never through with anything.
struct Stuck;

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[test]
fn a_flush_and_a_shutdown_end_too() {
    let time = Manual::new();
    let mut stream = IdleTimeout::new(time.timeouts, 10 * SECOND, Stuck);
    assert!(poll(&mut pin!(stream.flush())).is_pending());
    time.pass(11 * SECOND);
    timed_out(poll(&mut pin!(stream.flush())));
    timed_out(poll(&mut pin!(stream.shutdown())));
}

#[test]
fn refusals_have_errors_of_their_own() {
    let time = Manual::with(|builder| builder.capacity(1));
    let ((_a, mut first), (_b, mut second)) = (connection(&time), connection(&time));
    assert!(read(&mut first).is_pending());
    let refused = |stream, why: TimerError| match read(stream) {
        Poll::Ready(Err(error)) => {
            assert_eq!(error.get_ref().and_then(|why| why.downcast_ref()), Some(&why));
        }
        other => panic!("{other:?}"),
    };
    refused(&mut second, TimerError::Full);
    time.timeouts.shutdown();
    refused(&mut first, TimerError::Closed);
    assert!(matches!(write(&mut first), Poll::Ready(Ok(1))), "what need not wait goes on");
    assert!(poll(&mut pin!(first.into_inner().read_u8())).is_pending());
}

#[cfg(feature = "hyper-util")]
#[test]
fn hyper_utils_client_hears_what_the_stream_says_of_itself() {
    use hyper_util::client::legacy::connect::{Connected, Connection};
    struct Proxied;
    impl Connection for Proxied {
        fn connected(&self) -> Connected {
            Connected::new().proxy(true)
        }
    }
    let stream = IdleTimeout::new(Manual::new().timeouts, SECOND, Proxied);
    assert!(stream.connected().is_proxied() && stream.limit() == SECOND);
}
