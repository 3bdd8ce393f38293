//! So many calls a second, and how long each has taken.

use crate::client::{CallError, Client};
use expiry_examples::Done;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{interval, Instant};

/// How long calls have taken.
#[derive(Debug, Default)]
pub struct Latencies(Vec<Duration>);

/// How the calls have ended.
#[derive(Debug, Default)]
pub struct Ended {
    pub answered: Latencies,
    pub timed_out: Latencies,
}

impl Latencies {
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Sorts them, so that they can be displayed.
    pub fn sorted(mut self) -> Self {
        self.0.sort_unstable();
        self
    }

    /// The latency that so many of a thousand calls have had at most.
    fn permille(&self, permille: usize) -> f64 {
        let at = (self.0.len() * permille / 1000).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(0.0, Duration::as_secs_f64) * 1e3
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [half, most, nearly_all] = [500, 990, 999].map(|permille| self.permille(permille));
        write!(f, "p50 {half:.3} ms, p99 {most:.3} ms, p99.9 {nearly_all:.3} ms")
    }
}

/// Makes the call, which should have begun at `began`. Returns whether it was answered, and how
/// long it has taken.
async fn call(client: Arc<Client>, number: u64, began: Instant) -> Done<(bool, Duration)> {
    let is_answered = match client.call(number).await {
        Ok(square) if square == number.wrapping_mul(number) => true,
        Ok(square) => return Err(format!("{number} squared is not {square}").into()),
        Err(CallError::TimedOut) => false,
        Err(error) => return Err(format!("a call was refused: {error}").into()),
    };
    Ok((is_answered, began.elapsed()))
}

/// Begins `rate` calls a second, whether or not earlier ones have ended.
pub async fn at_rate(client: &Arc<Client>, calls: u64, rate: u64) -> Done<Ended> {
    let (mut tasks, mut begun) = (JoinSet::new(), 0);
    let (began, mut every) = (Instant::now(), interval(Duration::from_millis(1)));
    while begun < calls {
        // A round that comes late still counts from when it should have come.
        let now = every.tick().await;
        let due = now.saturating_duration_since(began).as_secs_f64() * rate as f64;
        for number in begun..calls.min(due as u64) {
            tasks.spawn(call(client.clone(), number, now));
        }
        begun = begun.max(calls.min(due as u64));
    }
    let mut ended = Ended::default();
    while let Some(call) = tasks.join_next().await {
        let (is_answered, took) = call??;
        let latencies = if is_answered { &mut ended.answered } else { &mut ended.timed_out };
        latencies.0.push(took);
    }
    Ok(ended)
}
