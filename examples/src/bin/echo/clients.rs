//! Clients of the server: those that send lines as fast as they come back, one that falls silent, one that is slow.

use expiry::Timeouts;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("sent {sent:?}, got {got:?}")]
    Wrong { sent: String, got: String },
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// What a load came to.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub lines: u64,
    pub took: Duration,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.lines as f64 / self.took.as_secs_f64()
    }
}

/// So many connections, each with one line under way, for so long.
pub async fn load(
    address: SocketAddr,
    connections: usize,
    time: Duration,
) -> Result<Load, ClientError> {
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..connections {
        clients.spawn(talk(address, client, began + time));
    }
    let mut lines = 0;
    while let Some(client) = clients.join_next().await {
        lines += client??;
    }
    let took = began.elapsed();
    Ok(Load { lines, took })
}

/// Lines that have come back, until it is over.
async fn talk(address: SocketAddr, client: usize, until: Instant) -> Result<u64, ClientError> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    // Each client's own, so that an answer to somebody else would be seen.
    let line = format!("{client:63}\n");
    let mut lines = 0;
    while Instant::now() < until {
        say(&mut stream, line.as_bytes()).await?;
        lines += 1;
    }
    Ok(lines)
}

/// A line of at most 64 bytes, there and back.
async fn say(stream: &mut TcpStream, line: &[u8]) -> Result<(), ClientError> {
    stream.write_all(line).await?;
    let mut echo = [0; 64];
    let echo = &mut echo[..line.len()];
    stream.read_exact(echo).await?;
    if echo != line {
        let [sent, got] = [line, echo].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        return Err(ClientError::Wrong { sent, got });
    }
    Ok(())
}

/// Says one line, and no more. How long it took the server to end that.
pub async fn silent(address: SocketAddr) -> Result<Duration, ClientError> {
    let mut stream = TcpStream::connect(address).await?;
    let began = Instant::now();
    say(&mut stream, b"a line\n").await?;
    // The end of the stream, or a reset: either way it is over.
    let _ = stream.read(&mut [0]).await;
    Ok(began.elapsed())
}

/// Sends a byte of a line at each `pause`, which never ends. How long the server had patience.
pub async fn slow(
    address: SocketAddr,
    pause: Duration,
    timeouts: &Timeouts,
) -> Result<Duration, ClientError> {
    let mut stream = TcpStream::connect(address).await?;
    let began = Instant::now();
    let mut answer = [0];
    while stream.write_all(b"x").await.is_ok() {
        // Nothing comes, unless it is the end.
        let answer = stream.read(&mut answer);
        if timeouts.timeout(pause, answer).await.is_ok() {
            break;
        }
    }
    Ok(began.elapsed())
}
