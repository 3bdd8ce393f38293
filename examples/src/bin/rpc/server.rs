//! A server of squares that loses some requests and is late with others, and says how many.

use crate::client::{read_frame, write_frames};
use expiry::Timeouts;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::BufReader;
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;

/// What it does wrong. Zero is never.
#[derive(Debug, Clone, Copy)]
pub struct Faults {
    pub lose_every: u64,
    pub delay_every: u64,
    pub delay: Duration,
}

/// What it has done.
#[derive(Debug, Default, Clone, Copy)]
pub struct Served {
    pub received: u64,
    pub lost: u64,
    pub delayed: u64,
}

/// Serves one connection, to its end.
pub async fn serve(
    listener: TcpListener,
    faults: Faults,
    timeouts: Arc<Timeouts>,
) -> io::Result<Served> {
    let (stream, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    let mut read = BufReader::new(read);
    let (replies, to_write) = unbounded_channel();
    tokio::spawn(write_frames(write, to_write));
    let mut served = Served::default();
    loop {
        let (id, number) = match read_frame(&mut read).await {
            Ok(frame) => frame,
            Err(end) if end.kind() == io::ErrorKind::UnexpectedEof => return Ok(served),
            Err(error) => return Err(error),
        };
        served.received += 1;
        let reply = (id, number.wrapping_mul(number));
        if is_nth(served.received, faults.lose_every) {
            served.lost += 1;
        } else if is_nth(served.received, faults.delay_every) {
            served.delayed += 1;
            let (replies, timeouts) = (replies.clone(), timeouts.clone());
            tokio::spawn(async move {
                if timeouts.sleep(faults.delay).await.is_ok() {
                    let _ = replies.send(reply);
                }
            });
        } else if replies.send(reply).is_err() {
            // Nobody listens.
            return Ok(served);
        }
    }
}

fn is_nth(count: u64, every: u64) -> bool {
    every != 0 && count.is_multiple_of(every)
}
