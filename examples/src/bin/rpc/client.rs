//! One connection for the calls of many tasks. A frame, either way, is the call's id and a number.

use crate::in_flight::{Delivered, Ending, InFlight};
use expiry::{BuildError, CoarseClock, StoreError};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;

pub type Frame = (u64, u64);

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no reply has come in time")]
    TimedOut,
    #[error("the connection is closed")]
    Closed,
    #[error(transparent)]
    Refused(#[from] StoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The replies that came, by where they have gone, and the calls for which none came in time.
#[derive(Debug, Default, Clone, Copy)]
pub struct Replies {
    pub in_time: u64,
    pub late: u64,
    pub unknown: u64,
    pub timed_out: u64,
}

pub struct Client {
    requests: Arc<InFlight<u64>>,
    frames: UnboundedSender<Frame>,
    reader: JoinHandle<Replies>,
}

impl Client {
    pub async fn connect(server: SocketAddr, timeout: Duration) -> Result<Self, ConnectError> {
        let requests = Arc::new(InFlight::new(timeout, CoarseClock::new())?);
        let stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let (frames, to_write) = unbounded_channel();
        tokio::spawn(write_frames(write, to_write));
        let reader = tokio::spawn(replies(read, requests.clone()));
        Ok(Client { requests, frames, reader })
    }

    /// The server's answer to `number`.
    pub async fn call(&self, number: u64) -> Result<u64, CallError> {
        let (id, mut end) = self.requests.begin()?;
        // If the writer is gone, so is the connection.
        self.frames.send((id, number)).map_err(|_| CallError::Closed)?;
        match end.recv().await {
            Some(Ending::Reply(reply)) => Ok(reply),
            Some(Ending::TimedOut) => Err(CallError::TimedOut),
            Some(Ending::Closed) | None => Err(CallError::Closed),
        }
    }

    /// Makes no more calls, and waits until the server has nothing more to say.
    pub async fn close(self) -> Result<Replies, tokio::task::JoinError> {
        drop(self.frames);
        self.reader.await
    }
}

async fn replies(read: OwnedReadHalf, requests: Arc<InFlight<u64>>) -> Replies {
    let (mut read, mut replies) = (BufReader::new(read), Replies::default());
    // The end of the stream, or what else ends the connection: who waits is told that it is closed.
    while let Ok((id, reply)) = read_frame(&mut read).await {
        match requests.answer(id, reply) {
            Delivered::InTime => replies.in_time += 1,
            Delivered::Late => replies.late += 1,
            Delivered::Unknown => replies.unknown += 1,
        }
    }
    requests.close();
    replies.timed_out = requests.timed_out();
    replies
}

pub async fn read_frame(read: &mut BufReader<OwnedReadHalf>) -> io::Result<Frame> {
    Ok((read.read_u64().await?, read.read_u64().await?))
}

/// Writes what comes, until nobody has anything to write; then says so to the other side.
pub async fn write_frames(mut write: OwnedWriteHalf, mut frames: UnboundedReceiver<Frame>) {
    while let Some((id, number)) = frames.recv().await {
        let frame = [id.to_be_bytes(), number.to_be_bytes()].concat();
        if write.write_all(&frame).await.is_err() {
            // The reader will see it.
            return;
        }
    }
    let _ = write.shutdown().await;
}
