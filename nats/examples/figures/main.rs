//! Compares a source and a sink with the bare client, on three brokers, in one run.
//!
//! ```sh
//! cargo run --release -p expiry-nats --features brokers --example figures
//! ```
//!
//! Then a front-end begins sessions at one owner, touches them, and ends them; `figures sessions N`
//! does only that, with N sessions. `figures peers [N]` only compares keep-alives with those of etcd
//! and ZooKeeper, as `peers.rs` says.
//!
//! Each round publishes messages of 128 bytes and of 8 KiB to a replicated file stream, and reads
//! and acks them: by the bare client, and by a topology of one spout and one bolt. Prints the
//! medians of the rounds. All runs on this machine, brokers included.

mod peers;

use async_nats::jetstream::consumer::{pull, AckPolicy, DeliverPolicy};
use async_nats::jetstream::stream::Config;
use async_nats::HeaderMap;
use expiry_nats::brokers::Brokers;
use expiry_nats::{Incoming, Nats, Options, Outgoing, SourceOptions};
use expiry_topology::{Next, Spout, SpoutCollector, TopologyBuilder};
use futures_util::{stream, StreamExt};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

const ROUNDS: usize = 5;
/// The window of the source and of the sink, and the messages that the bare client has under way.
const WINDOW: usize = 1024;

/// Emits so many messages of a size.
struct Numbers(u64, usize);

impl Spout<Vec<u8>> for Numbers {
    fn next(&mut self, out: &mut SpoutCollector<'_, Vec<u8>>) -> Next {
        if self.0 == 0 {
            return Next::Done;
        }
        if out.emit(vec![7; self.1], self.0).is_ok() {
            self.0 -= 1;
        }
        Next::Ready
    }
}

/// Makes the stream anew.
async fn empty(nats: &Nats) -> Result<()> {
    let _ = nats.context().delete_stream("s").await;
    let config = Config {
        name: "s".into(),
        subjects: vec!["s.>".into()],
        num_replicas: 3,
        ..Config::default()
    };
    // The brokers may still be removing the files of the stream that had the name before.
    let mut created = nats.context().create_stream(config.clone()).await;
    for _ in 0..100 {
        if created.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        created = nats.context().create_stream(config.clone()).await;
    }
    created?;
    // This loops until the client's broker knows the stream's leader.
    while nats.context().publish("s.first", "".into()).await?.await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

async fn bare_publish(nats: &Nats, count: u64, size: usize) -> Result<f64> {
    empty(nats).await?;
    let began = Instant::now();
    let publish = |n: u64| async move {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", n.to_string()); // as the sink does
        let context = nats.context();
        let sent = context.publish_with_headers("s.x", headers, vec![7; size].into()).await;
        sent.expect("it is sent").await.expect("it is stored");
    };
    stream::iter(0..count).for_each_concurrent(WINDOW, publish).await;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

async fn sink(nats: &Nats, count: u64, size: usize) -> Result<f64> {
    empty(nats).await?;
    let sinks = nats.sink(|payload: &Vec<u8>| -> Result<Outgoing, Infallible> {
        let (subject, payload) = ("s.x".into(), payload.clone());
        Ok(Outgoing { subject, payload, ..Outgoing::default() })
    });
    let sinks = sinks.window(WINDOW);
    let began = Instant::now();
    let topology = TopologyBuilder::new();
    let numbers = topology.spout("numbers", move |_| Numbers(count, size)).max_pending(4 * WINDOW);
    topology.bolt("sink", move |context| sinks.bolt(context)).shuffle(&numbers);
    let topology = topology.start()?;
    while topology.metrics()[0].acked < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed().as_secs_f64();
    tokio::task::spawn_blocking(move || topology.kill()).await?;
    Ok(count as f64 / took)
}

/// Reads and acks what is in the stream.
async fn bare_pull(nats: &Nats, count: u64) -> Result<f64> {
    let config = pull::Config {
        durable_name: Some("bare".into()),
        ack_policy: AckPolicy::Explicit,
        deliver_policy: DeliverPolicy::All,
        max_ack_pending: -1,
        ..Default::default()
    };
    let consumer = nats.context().get_stream("s").await?.create_consumer(config).await?;
    let began = Instant::now();
    let mut messages = consumer.stream().max_messages_per_batch(WINDOW).messages().await?;
    for _ in 0..count {
        messages.next().await.ok_or("the stream ended")??.ack().await?;
    }
    nats.client().flush().await?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

async fn spout(nats: &Nats, count: u64) -> Result<f64> {
    let decode = |incoming: &Incoming<'_>| Ok::<_, Infallible>(incoming.payload.to_vec());
    let letters =
        Config { name: "dead".into(), subjects: vec!["dead".into()], ..Config::default() };
    nats.context().get_or_create_stream(letters).await?;
    let options = SourceOptions::new("s", "spout").window(4 * WINDOW).dead_letters("dead");
    let source = Arc::new(nats.source(options, decode).await?);
    let began = Instant::now();
    let topology = TopologyBuilder::new();
    let spouts = source.clone();
    let spout = topology.spout("s", move |context| spouts.spout(context)).max_pending(4 * WINDOW);
    topology.bolt("sink", |_| expiry_topology::sink(|_: &Vec<u8>, _| ())).shuffle(&spout);
    let topology = topology.start()?;
    while source.stats().acked < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = began.elapsed().as_secs_f64();
    tokio::task::spawn_blocking(move || topology.kill()).await?;
    Ok(count as f64 / took)
}

/// One process owns the only partition, and another one is the front-end of all sessions.
async fn sessions(brokers: &Brokers, count: usize) -> Result<()> {
    let mut nats = Vec::new();
    for name in ["owner", "front"] {
        nats.push(Nats::connect(Options::new("figures", name).servers(brokers.servers())).await?);
    }
    let timeout = Duration::from_secs(60);
    let join = |nats: &Nats| nats.sessions("clients", 1).timeout(timeout).join();
    let (owner, mut ended) = join(&nats[0]).await?;
    while owner.stats().partitions == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (front, _) = join(&nats[1]).await?;
    front.leave().await;
    while owner.stats().partitions == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rate = |count: usize, began: Instant| count as f64 / began.elapsed().as_secs_f64();
    let began = Instant::now();
    let all = stream::iter(0..count).map(|_| front.begin()).buffer_unordered(4 * WINDOW);
    let ids: Vec<_> = all.map(|id| id.expect("it begins")).collect().await;
    println!("{count} sessions: {:.0} begun/s", rate(count, began));
    for _ in 0..3 {
        let before = front.stats();
        assert!(ids.iter().all(|id| front.touch(*id)));
        while front.stats().touches == before.touches {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The first batch of many has been confirmed.
        let (began, first) = (Instant::now(), front.stats().touches);
        while front.stats().touches < before.touches + count as u64 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        println!("{:.0} touches/s", rate((front.stats().touches - first) as usize, began));
    }
    let began = Instant::now();
    let all = stream::iter(&ids).map(|id| front.end(*id)).buffer_unordered(4 * WINDOW);
    all.for_each(async |ended| ended.expect("it ends")).await;
    println!("{:.0} ended/s", rate(count, began));
    for _ in 0..count {
        ended.next().await.ok_or("the ends are told")?;
    }
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[tokio::main]
async fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["peers"] => return peers::run(1_000_000).await,
        ["peers", count] => return peers::run(count.parse()?).await,
        ["peers-owner", broker] => return peers::owner(broker).await,
        _ => {}
    }
    let brokers = tokio::task::spawn_blocking(|| Brokers::start(3)).await??;
    if let [only, count] = &words[..] {
        assert_eq!(only, "sessions");
        return sessions(&brokers, count.parse()?).await;
    }
    let nats = Nats::connect(Options::new("figures", "a").servers(brokers.servers())).await?;
    for (size, count) in [(128, 60_000), (8192, 12_000)] {
        let mut rates: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            rates[0].push(bare_publish(&nats, count, size).await?);
            rates[1].push(sink(&nats, count, size).await?);
            rates[2].push(bare_pull(&nats, count).await?);
            rates[3].push(spout(&nats, count).await?);
        }
        let [publish, sink, pull, spout] = rates.each_mut().map(|rates| median(rates));
        println!("{size} B: publish {publish:.0}/s, sink {sink:.0}/s: {:.2}", sink / publish);
        println!("{size} B: pull {pull:.0}/s, spout {spout:.0}/s: {:.2}", spout / pull);
    }
    sessions(&brokers, 1_000_000).await
}
