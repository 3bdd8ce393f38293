//! One connection for the calls of many tasks.

use crate::in_flight::Requests;
use expiry::StoreError;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::{JoinError, JoinHandle};

/// What a connection carries in either direction: the id of a call, and a number.
pub type Frame = (u64, u64);

/// Why a call has no reply.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    #[error("no reply has come in time")]
    TimedOut,
    #[error("the connection is closed")]
    Closed,
    #[error(transparent)]
    Refused(#[from] StoreError),
}

/// What a call returns.
pub type Answer = Result<u64, CallError>;

/// Number of replies by where they have gone, and number of calls that have timed out.
#[derive(Debug, Default, Clone, Copy)]
pub struct Replies {
    pub in_time: u64,
    pub late: u64,
    pub timed_out: u64,
}

pub struct Client {
    requests: Arc<Requests>,
    frames: UnboundedSender<Frame>,
    reader: JoinHandle<Replies>,
}

impl Client {
    /// A client that sends requests to `frames` and reads replies from `replies`.
    pub fn new(
        requests: Requests,
        frames: UnboundedSender<Frame>,
        replies: UnboundedReceiver<Frame>,
    ) -> Self {
        let requests = Arc::new(requests);
        let reader = tokio::spawn(read(replies, requests.clone()));
        Client { requests, frames, reader }
    }

    /// The server's answer to `number`.
    pub async fn call(&self, number: u64) -> Answer {
        let (id, answer) = self.requests.begin()?;
        self.frames.send((id, number)).map_err(|_| CallError::Closed)?;
        // A sender that is dropped unused is a request that the close has ended.
        answer.await.unwrap_or(Err(CallError::Closed))
    }

    /// Makes no more calls, and waits until the server has sent its last reply.
    pub async fn close(self) -> Result<Replies, JoinError> {
        drop(self.frames);
        self.reader.await
    }
}

async fn read(mut frames: UnboundedReceiver<Frame>, requests: Arc<Requests>) -> Replies {
    let mut replies = Replies::default();
    while let Some((id, reply)) = frames.recv().await {
        if requests.reply(id, reply) {
            replies.in_time += 1;
        } else {
            replies.late += 1;
        }
    }
    requests.close();
    replies.timed_out = requests.timed_out();
    replies
}
