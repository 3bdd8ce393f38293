//! A server of squares that loses some requests and is late with others, and counts both.

use crate::client::Frame;
use expiry::Timeouts;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// What the server does wrong.
#[derive(Debug, Clone, clap::Args)]
pub struct Faults {
    /// The server loses every so manyth request; 0: none.
    #[arg(long, default_value_t = 100)]
    lose_every: u64,
    /// It answers every so manyth request only after twice the timeout; 0: none.
    #[arg(long, default_value_t = 70)]
    delay_every: u64,
}

/// What the server has done.
#[derive(Debug, Default, Clone, Copy)]
pub struct Served {
    pub received: u64,
    pub lost: u64,
    pub delayed: u64,
}

/// Serves one connection to its end.
pub async fn serve(
    mut requests: UnboundedReceiver<Frame>,
    replies: UnboundedSender<Frame>,
    faults: Faults,
    delay: Duration,
    timeouts: Arc<Timeouts>,
) -> Served {
    let mut served = Served::default();
    let is_nth = |count: u64, every: u64| every != 0 && count.is_multiple_of(every);
    while let Some((id, number)) = requests.recv().await {
        served.received += 1;
        let reply = (id, number.wrapping_mul(number));
        if is_nth(served.received, faults.lose_every) {
            served.lost += 1;
        } else if is_nth(served.received, faults.delay_every) {
            served.delayed += 1;
            let (replies, timeouts) = (replies.clone(), timeouts.clone());
            tokio::spawn(async move {
                if timeouts.sleep(delay).await.is_ok() {
                    let _ = replies.send(reply);
                }
            });
        } else if replies.send(reply).is_err() {
            break;
        }
    }
    served
}
