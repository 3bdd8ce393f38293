//! A payment endpoint with idempotency keys: callers try each order again and again, at several
//! workers that die now and then. Each order is charged once, but where a worker dies between the
//! charge and its answer.
//!
//! ```sh
//! cargo run -p expiry-nats --features brokers --example payments
//! ```

use expiry_nats::brokers::Brokers;
use expiry_nats::{Claim, Nats, NatsError, Once, Options};
use rand::{rngs::SmallRng, Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ORDERS: u32 = 300;
const WORKERS: usize = 4;

/// The bank, which charges as often as it is told to.
#[derive(Default)]
struct Bank {
    charges: Mutex<HashMap<u32, u32>>,
    /// The charges whose workers gave no answer.
    unanswered: AtomicU32,
}

impl Bank {
    async fn charge(&self, order: u32) -> String {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut charges = self.charges.lock().expect("no charge panics");
        let count = charges.entry(order).or_default();
        *count += 1;
        format!("receipt {order}-{count}")
    }
}

/// Where a worker dies.
#[derive(Clone, Copy, PartialEq)]
enum Death {
    None,
    BeforeCharge,
    BeforeAnswer,
}

/// The endpoint. None: ask again later. A worker that dies drops its guard, and its claim expires.
async fn pay(
    once: &Once,
    bank: &Bank,
    order: u32,
    death: Death,
) -> Result<Option<String>, NatsError> {
    let mut guard = match once.claim(format!("order-{order}")).await? {
        Claim::First(_) if death == Death::BeforeCharge => return Ok(None),
        Claim::First(guard) => guard,
        Claim::InProgress => return Ok(None),
        Claim::Done(receipt) => return Ok(Some(String::from_utf8_lossy(&receipt).into_owned())),
    };
    let receipt = bank.charge(order).await;
    if death == Death::None && guard.done(receipt.clone()).await.is_ok() {
        return Ok(Some(receipt));
    }
    bank.unanswered.fetch_add(1, Ordering::Relaxed);
    Ok(None)
}

/// A caller asks any worker until it has a receipt, and then once more.
async fn caller(workers: Vec<Once>, bank: Arc<Bank>, order: u32, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut receipt = None;
    loop {
        let worker = &workers[random.random_range(0..WORKERS)];
        let death = match random.random_range(0..20) {
            0 => Death::BeforeAnswer,
            1..4 => Death::BeforeCharge,
            _ => Death::None,
        };
        if let Ok(Some(found)) = pay(worker, &bank, order, death).await {
            if receipt.is_some() {
                return assert_eq!(receipt, Some(found), "the answer stays");
            }
            receipt = Some(found);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let brokers = tokio::task::spawn_blocking(|| Brokers::start(1)).await??;
    let mut workers = Vec::new();
    for n in 0..WORKERS {
        let options = Options::new("shop", &format!("w{n}")).servers(brokers.servers());
        let set = Nats::connect(options).await?.once("payments");
        workers.push(set.time(Duration::from_secs(1)).replicas(1).open().await?);
    }
    let bank = Arc::new(Bank::default());
    let call = |n: u32| tokio::spawn(caller(workers.clone(), bank.clone(), n % ORDERS, n.into()));
    for caller in (0..2 * ORDERS).map(call).collect::<Vec<_>>() {
        caller.await?;
    }
    let charges = bank.charges.lock().expect("no charge panics");
    let twice = charges.values().sum::<u32>() - ORDERS;
    let unanswered = bank.unanswered.load(Ordering::Relaxed);
    println!("{} orders, {unanswered} charges without answer, {twice} twice", charges.len());
    assert!(charges.len() == ORDERS as usize && twice <= unanswered);
    Ok(())
}
