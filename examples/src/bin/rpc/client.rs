//! One connection for the calls of many tasks.

use crate::in_flight::{Delivered, Ending, InFlight};
use expiry::{BuildError, CoarseClock, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinError, JoinHandle};

/// What a connection carries in either direction: the id of a call, and a number.
pub type Frame = (u64, u64);

/// Why a call has no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no reply has come in time")]
    TimedOut,
    #[error("the connection is closed")]
    Closed,
    #[error(transparent)]
    Refused(#[from] StoreError),
}

/// Number of replies by where they have gone, and number of calls that have timed out.
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
    /// A client that sends requests to `frames` and reads replies from `replies`.
    pub fn new(
        frames: UnboundedSender<Frame>,
        replies: UnboundedReceiver<Frame>,
        timeout: Duration,
    ) -> Result<Self, BuildError> {
        let requests = Arc::new(InFlight::new(timeout, CoarseClock::new())?);
        let reader = tokio::spawn(read(replies, requests.clone()));
        Ok(Client { requests, frames, reader })
    }

    /// The server's answer to `number`.
    pub async fn call(&self, number: u64) -> Result<u64, CallError> {
        let (id, mut end) = self.requests.begin()?;
        self.frames.send((id, number)).map_err(|_| CallError::Closed)?;
        match end.recv().await {
            Some(Ending::Reply(reply)) => Ok(reply),
            Some(Ending::TimedOut) => Err(CallError::TimedOut),
            Some(Ending::Closed) | None => Err(CallError::Closed),
        }
    }

    /// Makes no more calls, and waits until the server has sent its last reply.
    pub async fn close(self) -> Result<Replies, JoinError> {
        drop(self.frames);
        self.reader.await
    }
}

async fn read(mut frames: UnboundedReceiver<Frame>, requests: Arc<InFlight<u64>>) -> Replies {
    let mut replies = Replies::default();
    while let Some((id, reply)) = frames.recv().await {
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
