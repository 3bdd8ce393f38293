//! Connections: bytes in, replies and events out, and the reasons to end.

use crate::commands::{Session, Shared};
use crate::protocol::{ProtocolError, Requests};
use expiry::timeouts::{TimeoutError, TimerError};
use expiry::Timeouts;
use std::future::pending;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::coop::consume_budget;

/// Replies are sent when so many bytes wait, or when no request is left.
const BATCH: usize = 64 << 10;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long a client may take from one request to the end of the next; zero for ever.
    pub idle: Duration,
    /// How long a client may take to receive a batch of replies.
    pub slow: Duration,
    /// Bytes of replies that may wait.
    pub output: usize,
}

/// Why the server has ended a connection.
#[derive(Debug, thiserror::Error)]
pub enum End {
    #[error("no request for too long")]
    Idle,
    #[error("replies were not taken for too long")]
    Slow,
    #[error("too many replies wait")]
    Output,
    #[error("events were not taken for too long: {0} are lost")]
    Events(u64),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error("its time could not be watched: {0}")]
    Timer(#[from] TimerError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub struct Server {
    pub shared: Arc<Shared>,
    pub timeouts: Timeouts,
    pub limits: Limits,
}

/// What a connection waits for.
enum News {
    Readable,
    Expired(Arc<[u8]>),
    Stopping,
}

impl Server {
    /// Serves until `stopping` says so, and then until each connection has been answered.
    pub async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), TimerError> {
        let mut id = 0;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopping.changed() => break,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, mostly: some will be free soon.
                    eprintln!("accept: {error}");
                    self.timeouts.sleep(Duration::from_millis(50)).await?;
                    continue;
                }
            };
            let Ok(permit) = self.shared.clients.clone().try_acquire_owned() else {
                // Whether the client hears it is not worth waiting for.
                let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                continue;
            };
            id += 1;
            let (server, stopping) = (self.clone(), stopping.clone());
            tokio::spawn(async move {
                if let Err(end) = server.serve(stream, address, id, stopping).await {
                    eprintln!("{address}: {end}");
                }
                drop(permit);
            });
        }
        drop(listener);
        // All permits are here when all connections have ended. None fails: nothing closes it.
        let all = self.shared.clients.acquire_many(self.shared.max_clients as u32);
        let _ = self.timeouts.timeout(self.limits.slow, all).await;
        Ok(())
    }

    async fn serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        id: i64,
        mut stopping: watch::Receiver<bool>,
    ) -> Result<(), End> {
        stream.set_nodelay(true)?;
        let output = self.limits.output;
        let mut session = Session::new(self.shared.clone(), id, address.to_string(), output);
        let mut requests = Requests::default();
        let mut idle = self.timeouts.sleep(self.limits.idle);
        loop {
            let (done, more) = execute(&mut requests, &mut session);
            if done > 0 {
                idle.reset(self.limits.idle);
            }
            self.send(&stream, &mut session).await?;
            if session.closing {
                return Ok(());
            }
            if more? {
                consume_budget().await;
                continue;
            }
            requests.rest();
            let subscribed = session.events.is_some();
            let news = tokio::select! {
                ready = stream.readable() => ready.map(|()| News::Readable)?,
                expired = next(&mut session.events) => News::Expired(expired?),
                _ = stopping.changed() => News::Stopping,
                over = &mut idle, if !subscribed && !self.limits.idle.is_zero() => {
                    return over.map_err(End::from).and(Err(End::Idle));
                }
            };
            match news {
                News::Readable => match stream.try_read_buf(requests.room()) {
                    Ok(0) => return Ok(()),
                    Ok(_) => consume_budget().await,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                },
                News::Expired(key) => session.hear(&key),
                News::Stopping => return Ok(()),
            }
        }
    }

    /// Sends the replies. Reads no requests meanwhile, so a client that does not take its replies
    /// holds a batch of them, or one large reply.
    async fn send(&self, stream: &TcpStream, session: &mut Session) -> Result<(), End> {
        let replies = &mut session.replies;
        if replies.overflows() {
            return Err(End::Output);
        }
        let mut sent = 0;
        let all = async {
            while sent < replies.bytes.len() {
                match stream.try_write(&replies.bytes[sent..]) {
                    Ok(bytes) => sent += bytes,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        stream.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        match self.timeouts.timeout(self.limits.slow, all).await {
            Ok(done) => done?,
            Err(TimeoutError::Elapsed) => return Err(End::Slow),
            Err(TimeoutError::Timer(why)) => return Err(why.into()),
        }
        // An idle connection keeps no memory for replies.
        replies.bytes = Vec::new();
        Ok(())
    }
}

/// Executes what has come whole, up to a batch of replies. Returns how many requests that were, and
/// whether there may be more. An error is the last reply.
fn execute(requests: &mut Requests, session: &mut Session) -> (usize, Result<bool, ProtocolError>) {
    let mut done = 0;
    while session.replies.bytes.len() < BATCH && !session.closing {
        match requests.next() {
            Ok(Some(request)) => session.execute(request),
            Ok(None) => return (done, Ok(false)),
            Err(error) => {
                session.replies.error(&format!("ERR Protocol error: {error}"));
                return (done, Err(error));
            }
        }
        done += 1;
    }
    (done, Ok(true))
}

/// The next key that expires; never, where the client has not subscribed.
async fn next(events: &mut Option<broadcast::Receiver<Arc<[u8]>>>) -> Result<Arc<[u8]>, End> {
    match events {
        None => pending().await,
        Some(events) => events.recv().await.map_err(|error| match error {
            RecvError::Lagged(lost) => End::Events(lost),
            // The sender is as old as the server.
            RecvError::Closed => End::Events(0),
        }),
    }
}

impl Session {
    /// Writes a message for a key that has expired, and for others that have too, up to a batch.
    fn hear(&mut self, key: &Arc<[u8]>) {
        self.tell(key);
        while self.replies.bytes.len() < BATCH {
            // Where events are lost, the next wait says so.
            let Some(Ok(key)) = self.events.as_mut().map(broadcast::Receiver::try_recv) else {
                break;
            };
            self.tell(&key);
        }
    }
}
