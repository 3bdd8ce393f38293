//! Clients of the server: some send lines as fast as they come back, one falls silent, one is slow.

use expiry::Timeouts;
use expiry_examples::Done;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Sends lines on that many connections, one line under way on each. Returns the number of lines
/// and the rate per second.
pub async fn load(server: SocketAddr, connections: usize, time: Duration) -> Done<(u64, f64)> {
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..connections {
        clients.spawn(talk(server, client, began + time));
    }
    let mut lines = 0;
    while let Some(client) = clients.join_next().await {
        lines += client??;
    }
    Ok((lines, lines as f64 / began.elapsed().as_secs_f64()))
}

async fn talk(server: SocketAddr, client: usize, until: Instant) -> Done<u64> {
    let mut stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    // Each client has a line of its own, so that it would see the echo of another client's.
    let line = format!("{client:63}\n");
    let mut lines = 0;
    while Instant::now() < until {
        say(&mut stream, line.as_bytes()).await?;
        lines += 1;
    }
    Ok(lines)
}

/// Sends a line, and expects it back.
async fn say(stream: &mut TcpStream, line: &[u8]) -> Done {
    stream.write_all(line).await?;
    let mut echo = vec![0; line.len()];
    stream.read_exact(&mut echo).await?;
    if echo != line {
        let [sent, got] = [line, &echo].map(String::from_utf8_lossy);
        return Err(format!("sent {sent:?}, got {got:?}").into());
    }
    Ok(())
}

/// Sends one line and no more. Returns how long the server kept the connection.
pub async fn silent(server: SocketAddr) -> Done<Duration> {
    let mut stream = TcpStream::connect(server).await?;
    let began = Instant::now();
    say(&mut stream, b"a line\n").await?;
    // The end of the stream, or a reset: either way the connection has ended.
    let _ = stream.read(&mut [0]).await;
    Ok(began.elapsed())
}

/// Sends one byte after each `pause`, and never a whole line. Returns how long the server kept the
/// connection.
pub async fn slow(server: SocketAddr, pause: Duration, timeouts: &Timeouts) -> Done<Duration> {
    let mut stream = TcpStream::connect(server).await?;
    let began = Instant::now();
    while stream.write_all(b"x").await.is_ok() {
        // The server sends nothing, so only the end of the stream arrives.
        if timeouts.timeout(pause, stream.read(&mut [0])).await.is_ok() {
            break;
        }
    }
    Ok(began.elapsed())
}
