//! Counts the words of files in three processes on three brokers, and compares with a direct count.
//!
//! ```sh
//! cargo run --release -p expiry-nats --features brokers --example wordcount -- --kill --pause
//! ```
//!
//! The first process starts the brokers and three workers (this program again), and publishes each
//! line to the stream `lines`. A worker is a topology: its spout reads `lines`, a bolt counts the
//! words of a line, and a sink publishes the counts to the stream `counts` under the line's number.
//! The first process adds them up. `--kill` kills a worker and a broker half-way, and starts both
//! again. `--pause` stops a worker for longer than `ack_wait`. The exit status says whether the
//! counts agree.

use async_nats::jetstream::consumer::{pull, DeliverPolicy};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::HeaderMap;
use expiry_nats::brokers::Brokers;
use expiry_nats::{Incoming, Nats, Options, Outgoing, SourceOptions};
use expiry_topology::{basic, Derive, TopologyBuilder};
use futures_util::{stream, StreamExt};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;
type Counts = HashMap<String, u64>;

/// A line and its number, or the counts of its words.
#[derive(Clone)]
struct Line {
    number: u64,
    text: String,
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
}

/// Reads `NUMBER TEXT`.
fn decode(payload: &[u8]) -> Result<Line, String> {
    let payload = std::str::from_utf8(payload).map_err(|error| error.to_string())?;
    let (number, text) = payload.split_once(' ').ok_or("no number")?;
    let number = number
        .parse()
        .map_err(|_| format!("{number:?} is no number"))?;
    let text = text.to_string();
    Ok(Line { number, text })
}

fn count(line: &Line, out: &mut Derive<'_, '_, Line>) {
    let mut counts = Counts::new();
    words(&line.text).for_each(|word| *counts.entry(word.to_string()).or_default() += 1);
    let counts = counts.iter().map(|(word, n)| format!("{word} {n}"));
    let text = counts.collect::<Vec<_>>().join(" ");
    let number = line.number;
    out.emit(Line { number, text });
}

async fn worker(name: &str, servers: &str) -> Result<()> {
    let nats = Nats::connect(Options::new("wordcount", name).servers(servers.split(','))).await?;
    let options = SourceOptions::new("lines", "count")
        .ack_wait(Duration::from_secs(5))
        .attempts(20);
    let source = nats
        .source(options, |incoming: &Incoming<'_>| decode(incoming.payload))
        .await?;
    let sinks = nats.sink(|line: &Line| -> Result<Outgoing, String> {
        Ok(Outgoing {
            subject: "counts.line".into(),
            payload: format!("{} {}", line.number, line.text).into(),
            id: Some(line.number.to_string()),
            ..Outgoing::default()
        })
    });
    let mut topology = TopologyBuilder::new();
    topology
        .spout("lines", move |context| source.spout(context))
        .max_pending(4096);
    topology.bolt("count", |_| basic(count)).shuffle("lines");
    topology
        .bolt("out", move |context| sinks.bolt(context))
        .shuffle("count");
    let _topology = topology.start()?;
    std::future::pending().await // until the first process kills it
}

fn start_worker(name: &str, servers: &str) -> Result<Child> {
    let program = std::env::current_exe()?;
    Ok(Command::new(program)
        .args(["--worker", name, servers])
        .spawn()?)
}

fn signal(name: &str, worker: &Child) {
    let pid = worker.id().to_string();
    let _ = Command::new("kill").args(["-s", name, &pid]).status();
}

/// All lines of the files below a folder.
fn lines(folder: &Path, into: &mut Vec<String>) -> Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    entries.sort();
    for path in entries {
        if path.is_dir() {
            lines(&path, into)?;
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            into.extend(
                text.lines()
                    .filter(|line| !line.trim().is_empty())
                    .map(String::from),
            );
        }
    }
    Ok(())
}

/// Publishes a line until the stream has stored it.
async fn publish(nats: &Nats, number: u64, line: &str) {
    loop {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", number.to_string());
        let payload = format!("{number} {line}").into();
        let sent = nats
            .context()
            .publish_with_headers("lines.text", headers, payload)
            .await;
        if let Ok(stored) = sent {
            if stored.await.is_ok() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What has arrived in the stream `counts`.
#[derive(Default)]
struct Results {
    counts: Counts,
    lines: HashMap<u64, u32>,
}

/// Adds up results until there is one for each line, or `limit` passes without a new one.
async fn collect(
    nats: Nats,
    lines: u64,
    shown: Arc<AtomicU64>,
    limit: Duration,
) -> Result<Results> {
    let mut results = Results::default();
    let mut next = 1;
    while (results.lines.len() as u64) < lines {
        let stream = nats.context().get_stream("counts").await?;
        let config = pull::OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: next,
            },
            ..Default::default()
        };
        let mut messages = stream.create_consumer(config).await?.messages().await?;
        while (results.lines.len() as u64) < lines {
            let Ok(message) = tokio::time::timeout(limit, messages.next()).await else {
                return Ok(results);
            };
            let Some(Ok(message)) = message else { break };
            next = message.info()?.stream_sequence + 1;
            let line = decode(&message.payload)?;
            let times = results.lines.entry(line.number).or_default();
            *times += 1;
            if *times == 1 {
                let mut fields = line.text.split_whitespace();
                while let (Some(word), Some(n)) = (fields.next(), fields.next()) {
                    *results.counts.entry(word.to_string()).or_default() += n.parse::<u64>()?;
                }
            }
            shown.store(results.lines.len() as u64, Ordering::Relaxed);
        }
    }
    Ok(results)
}

async fn run(args: &[String]) -> Result<bool> {
    let has = |name: &str| args.iter().any(|arg| arg == name);
    let folder = args.iter().find(|arg| !arg.starts_with("--"));
    let folder = folder.map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../src"),
        |f| f.as_str(),
    );
    let mut input = Vec::new();
    lines(Path::new(folder), &mut input)?;
    let mut expected = Counts::new();
    let all = input.iter().flat_map(|line| words(line));
    all.for_each(|word| *expected.entry(word.to_string()).or_default() += 1);
    let total = input.len() as u64;
    println!("{total} lines, {} words", expected.values().sum::<u64>());

    let brokers = Arc::new(tokio::task::spawn_blocking(|| Brokers::start(3)).await??);
    let servers = brokers.servers().join(",");
    let nats = Nats::connect(Options::new("wordcount", "first").servers(brokers.servers())).await?;
    for (name, retention) in [
        ("lines", RetentionPolicy::WorkQueue),
        ("counts", RetentionPolicy::Limits),
        ("dead", RetentionPolicy::Limits),
    ] {
        let subject = if name == "dead" {
            "wordcount.dead.>".into()
        } else {
            format!("{name}.>")
        };
        let config = Config {
            name: name.into(),
            subjects: vec![subject],
            num_replicas: 3,
            retention,
            ..Config::default()
        };
        nats.context().create_stream(config).await?;
    }
    let began = Instant::now();
    let mut workers = Vec::new();
    for name in ["a", "b", "c"] {
        workers.push(start_worker(name, &servers)?);
    }
    let shown = Arc::new(AtomicU64::new(0));
    let limit = Duration::from_secs(60);
    let collector = tokio::spawn(collect(nats.clone(), total, shown.clone(), limit));
    let publisher = tokio::spawn(async move {
        let all = stream::iter(input.iter().enumerate());
        all.for_each_concurrent(256, |(n, line)| publish(&nats, n as u64, line))
            .await;
    });
    let (mut killed, mut paused, mut stopped_at) = (!has("--kill"), !has("--pause"), None);
    while !collector.is_finished() {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let done = shown.load(Ordering::Relaxed);
        println!(
            "{:5.1} s  {done} of {total} lines",
            began.elapsed().as_secs_f64()
        );
        if !paused && done > total / 4 {
            paused = true;
            println!("worker b is stopped");
            signal("STOP", &workers[1]);
            stopped_at = Some(Instant::now());
        }
        if stopped_at.is_some_and(|at| at.elapsed() > Duration::from_secs(8)) {
            stopped_at = None;
            println!("worker b goes on");
            signal("CONT", &workers[1]);
        }
        if !killed && done > total / 2 {
            killed = true;
            println!("worker a and a broker are killed, and started again");
            workers[0].kill()?;
            workers[0].wait()?;
            let brokers = brokers.clone();
            tokio::task::spawn_blocking(move || {
                brokers.kill(0);
                brokers.restart(0)
            })
            .await??;
            workers[0] = start_worker("a", &servers)?;
        }
    }
    let took = began.elapsed().as_secs_f64();
    publisher.abort();
    for mut worker in workers {
        worker.kill()?;
        worker.wait()?;
    }
    let results = collector.await??;
    let missing = total - results.lines.len() as u64;
    let doubled = results.lines.values().filter(|times| **times > 1).count();
    let agree = results.counts == expected;
    println!(
        "{:.0} lines/s; missing {missing}, stored twice {doubled}",
        total as f64 / took
    );
    println!(
        "{}",
        if agree {
            "PASSED: the counts agree"
        } else {
            "FAILED: the counts differ"
        }
    );
    Ok(agree)
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [kind, name, servers] = &args[..] {
        if kind == "--worker" {
            worker(name, servers).await?;
        }
    }
    Ok(ExitCode::from(u8::from(!run(&args).await?)))
}
