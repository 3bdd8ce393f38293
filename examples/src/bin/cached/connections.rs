//! Connections: bytes in, replies and events out, and the reasons to end.

use crate::cache::{Cache, Event};
use crate::commands::Session;
use crate::protocol::Requests;
use crate::Options;
use expiry::Timeouts;
use expiry_examples::Done;
use socket2::{SockRef, TcpKeepalive};
use std::future::pending;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch, Semaphore};
use tokio::task::coop::consume_budget;

/// Replies are sent when so many bytes wait, or when no request is left.
pub const BATCH: usize = 64 << 10;

/// Number of events that a connection hears at once: those that none of its subscriptions matches
/// fill no batch.
const PORTION: usize = 1 << 10;

/// Room for the replies to some requests at once.
const REPLIES: usize = 2 << 10;

/// What all connections share.
pub struct Server {
    pub options: Options,
    pub cache: Cache,
    /// A permit for each client that there may be.
    pub clients: Arc<Semaphore>,
    pub started: Instant,
    timeouts: Timeouts,
}

impl Server {
    pub fn new(options: Options) -> Done<Self> {
        Ok(Server {
            cache: Cache::new(options.max_memory, options.policy, options.output)?,
            clients: Arc::new(Semaphore::new(options.max_clients as usize)),
            started: Instant::now(),
            timeouts: Timeouts::new()?,
            options,
        })
    }

    /// Serves until `stopping` says so, and then until each connection has been answered.
    pub async fn run(
        self: Arc<Self>,
        listener: TcpListener,
        mut stopping: watch::Receiver<bool>,
    ) -> Done {
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
            let Ok(permit) = self.clients.clone().try_acquire_owned() else {
                // Whether the client hears it is not worth waiting for.
                let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
                continue;
            };
            id += 1;
            let (server, stopping) = (self.clone(), stopping.clone());
            tokio::spawn(async move {
                let session = Session::new(server.clone(), id);
                if let Err(error) = server.serve(stream, session, stopping).await {
                    eprintln!("{address}: {error}");
                }
                drop(permit);
            });
        }
        drop(listener);
        // All permits are here when all connections have ended. None fails: nothing closes it.
        let all = self.clients.acquire_many(self.options.max_clients);
        let _ = self.timeouts.timeout(self.options.slow, all).await;
        Ok(())
    }

    async fn serve(
        &self,
        stream: TcpStream,
        mut session: Session,
        mut stopping: watch::Receiver<bool>,
    ) -> Done {
        stream.set_nodelay(true)?;
        let keepalive = self.options.tcp_keepalive;
        if !keepalive.is_zero() {
            // As Redis does.
            let apart = (keepalive / 3).max(Duration::from_secs(1));
            let probes = TcpKeepalive::new().with_time(keepalive).with_interval(apart);
            SockRef::from(&stream).set_tcp_keepalive(&probes.with_retries(3))?;
        }
        let mut requests = Requests::default();
        let mut idle = self.timeouts.sleep(self.options.idle);
        loop {
            let (done, more) = execute(&mut requests, &mut session);
            if done > 0 {
                idle.reset(self.options.idle);
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
            let may_idle = session.events.is_some() || self.options.idle.is_zero();
            tokio::select! {
                ready = stream.readable() => match ready.and_then(|()| {
                    stream.try_read_buf(requests.room())
                }) {
                    Ok(0) => return Ok(()),
                    Ok(_) => consume_budget().await,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.into()),
                },
                key = next(&mut session.events) => {
                    hear(&mut session, &key?)?;
                    consume_budget().await;
                }
                _ = stopping.changed() => return Ok(()),
                over = &mut idle, if !may_idle => {
                    over?;
                    return Err("no request for too long".into());
                }
            }
        }
    }

    /// Sends the replies. Reads no requests meanwhile, so a client that does not take its replies
    /// holds a batch of them, or one large reply.
    async fn send(&self, stream: &TcpStream, session: &mut Session) -> Done {
        if session.replies.overflows() {
            return Err("too many replies wait".into());
        }
        // An idle connection keeps no memory for replies.
        let bytes = std::mem::take(&mut session.replies.bytes);
        let mut sent = 0;
        let all = async {
            while sent < bytes.len() {
                match stream.try_write(&bytes[sent..]) {
                    Ok(more) => sent += more,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        stream.writable().await?;
                    }
                    Err(error) => return Err(error),
                }
            }
            io::Result::Ok(())
        };
        let all = self.timeouts.timeout(self.options.slow, all).await;
        Ok(all.map_err(|error| format!("replies were not taken: {error}"))??)
    }
}

/// Executes what has come whole, up to a batch of replies. Returns how many requests that were, and
/// whether there may be more. An error is the last reply.
fn execute(requests: &mut Requests, session: &mut Session) -> (usize, Done<bool>) {
    let mut done = 0;
    session.replies.bytes.reserve(REPLIES);
    while session.replies.bytes.len() < BATCH && !session.closing {
        match requests.next() {
            Ok(Some(request)) => session.execute(request),
            Ok(None) => return (done, Ok(false)),
            Err(error) => {
                let told = session.replies.error(&format!("Protocol error: {error}"));
                return (done, told.and(Err(error)));
            }
        }
        done += 1;
    }
    (done, Ok(true))
}

/// The next key that expires; never, where the client has not subscribed. A client that takes
/// events too slowly loses some: an error.
async fn next(events: &mut Option<broadcast::Receiver<Event>>) -> Done<Arc<[u8]>> {
    let Some(events) = events else { return pending().await };
    loop {
        if let Some(key) = events.recv().await? {
            return Ok(key);
        }
    }
}

/// Writes a message for a key that has expired, and for others that have too, up to a batch or a
/// portion.
fn hear(session: &mut Session, key: &[u8]) -> Done {
    session.tell(key)?;
    for _ in 1..PORTION {
        if session.replies.bytes.len() >= BATCH {
            break;
        }
        // Where events are lost, the next wait says so.
        let Some(Ok(key)) = session.events.as_mut().map(broadcast::Receiver::try_recv) else {
            break;
        };
        key.iter().try_for_each(|key| session.tell(key))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests/connections.rs"]
mod tests;
