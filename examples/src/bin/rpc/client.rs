//! One connection for the calls of many tasks.

use expiry::StoreError;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
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

/// The requests that wait for their replies.
pub trait InFlight: Send + Sync + 'static {
    /// Returns the id of a new request, and the channel that receives its answer.
    fn begin(&self) -> Result<(u64, oneshot::Receiver<Answer>), CallError>;

    /// Waits for the answer.
    fn end(
        &self,
        id: u64,
        answer: oneshot::Receiver<Answer>,
    ) -> impl Future<Output = Answer> + Send;

    /// A reply has come. Returns whether its request was still waiting.
    fn reply(&self, id: u64, reply: u64) -> bool;

    /// Ends all requests, and refuses new ones.
    fn close(&self);

    /// Number of requests that have timed out.
    fn timed_out(&self) -> u64;
}

/// Number of replies by where they have gone, and number of calls that have timed out.
#[derive(Debug, Default, Clone, Copy)]
pub struct Replies {
    pub in_time: u64,
    pub late: u64,
    pub timed_out: u64,
}

pub struct Client<R> {
    requests: Arc<R>,
    frames: UnboundedSender<Frame>,
    reader: JoinHandle<Replies>,
}

impl<R: InFlight> Client<R> {
    /// A client that sends requests to `frames` and reads replies from `replies`.
    pub fn new(
        requests: R,
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
        self.requests.end(id, answer).await
    }

    /// Makes no more calls, and waits until the server has sent its last reply.
    pub async fn close(self) -> Result<Replies, JoinError> {
        drop(self.frames);
        self.reader.await
    }
}

async fn read(mut frames: UnboundedReceiver<Frame>, requests: Arc<impl InFlight>) -> Replies {
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
