//! Scenario `nats`: counts the words of files in three processes on three brokers, kills and stops
//! some of them, and compares with a direct count.
//!
//! With `--for` workers hold leases, sessions and idempotency keys instead, see `soak.rs`.
//!
//! The first process starts the brokers and the workers (`worker`: this program again), publishes
//! the lines, and adds up what arrives in the stream `counts`.

mod history;
mod holder;
mod soak;
mod worker;

use crate::checks::{Check, Checks};
use crate::error::Error;
use crate::interrupt;
use crate::live::{Gauge, Live};
use crate::options;
use crate::report::Report;
use async_nats::jetstream::consumer::{pull, DeliverPolicy};
use async_nats::jetstream::stream::{Config, RetentionPolicy};
use async_nats::HeaderMap;
use expiry_nats::brokers::Brokers;
use expiry_nats::{Nats, Options};
use futures_util::{stream, StreamExt};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use worker::{ACK_WAIT, ATTEMPTS, POISON};

const APP: &str = "stress";
const WORKERS: [&str; 3] = ["a", "b", "c"];
/// How long without a new result until the rest is missing.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [Check; 4] =
    ["nothing_missing", "counts_agree", "poison_buried_once", "nothing_else_buried"];

type Counts = HashMap<String, u64>;

/// A line and its number, or the counts of its words.
#[derive(Clone)]
struct Line {
    number: u64,
    text: String,
}

/// Adds the words of a line.
fn count(line: &str, counts: &mut Counts) {
    let words = line.split(|c: char| !c.is_alphanumeric());
    for word in words.filter(|word| !word.is_empty()) {
        *counts.entry(word.to_string()).or_default() += 1;
    }
}

/// Reads `NUMBER TEXT`.
fn decode(payload: &[u8]) -> Result<Line, String> {
    let payload = std::str::from_utf8(payload).map_err(|error| error.to_string())?;
    let (number, text) = payload.split_once(' ').ok_or("no number")?;
    let number = number.parse().map_err(|_| format!("{number:?} is no number"))?;
    let text = text.to_string();
    Ok(Line { number, text })
}

fn failed(why: impl std::fmt::Display) -> Error {
    Error::Nats(why.to_string())
}

/// Runs the scenario, or a worker of it.
pub fn run(options: &options::Nats) -> Result<Report, Error> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().map_err(failed)?;
    let ended = match options.worker.as_deref() {
        Some([name, servers]) => runtime.block_on(worker::run(name, servers)),
        Some([name, servers, folder]) => {
            let run = holder::run(name, servers, Path::new(folder), options.seed);
            runtime.block_on(run)
        }
        _ => {
            return match options.time {
                Some(time) => soak::run(options, time),
                None => runtime.block_on(judge(options)),
            }
        }
    };
    ended.and(Err(failed("the worker has ended")))
}

/// The lines of the text files below a path, `most` of them: again and again where there are fewer.
fn lines(path: &Path, most: u64) -> Result<Vec<String>, Error> {
    let files = walkdir::WalkDir::new(path).sort_by_file_name().into_iter();
    let texts = files.flatten().filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let mut all = Vec::new();
    for text in texts {
        all.extend(text.lines().filter(|line| !line.trim().is_empty()).map(String::from));
    }
    if all.is_empty() {
        let (path, found) = (path.to_path_buf(), "no file with a line".to_string());
        return Err(Error::NoText { path, found });
    }
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(all.iter().cycle().take(most).cloned().collect())
}

/// The worker processes.
struct Workers {
    servers: String,
    children: Vec<Child>,
    restarts: u64,
    /// The folder of logs and the seed of those that hold leases.
    holders: Option<(PathBuf, u64)>,
}

impl Workers {
    fn start(servers: String, holders: Option<(PathBuf, u64)>) -> Result<Self, Error> {
        let mut workers = Workers { servers, children: Vec::new(), restarts: 0, holders };
        for name in WORKERS {
            let child = workers.child(name)?;
            workers.children.push(child);
        }
        Ok(workers)
    }

    fn child(&self, name: &str) -> Result<Child, Error> {
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.args(["nats", "--worker", name, &self.servers]).stdin(Stdio::piped());
        if let Some((folder, seed)) = &self.holders {
            // Each start makes other choices.
            let seed = seed + self.restarts;
            command.arg(folder).arg(format!("--seed={seed}"));
        }
        command.spawn().map_err(failed)
    }

    /// Starts those again that have died.
    fn look(&mut self) -> Result<(), Error> {
        for (n, name) in WORKERS.into_iter().enumerate() {
            if self.children[n].try_wait().map_err(failed)?.is_some() {
                self.restarts += 1;
                self.children[n] = self.child(name)?;
            }
        }
        Ok(())
    }

    fn signal(&self, n: usize, signal: &str) {
        let pid = self.children[n].id().to_string();
        let _ = Command::new("kill").args(["-s", signal, &pid]).status();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Publishes a line until the stream has stored it.
async fn publish(nats: &Nats, number: u64, line: &str) {
    loop {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Msg-Id", number.to_string());
        let payload = format!("{number} {line}").into();
        let sent = nats.context().publish_with_headers("lines.text", headers, payload).await;
        if let Ok(stored) = sent {
            if stored.await.is_ok() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What has arrived in a stream: the payloads' lines, each with how often.
#[derive(Default)]
struct Arrived {
    lines: HashMap<u64, u32>,
    counts: Counts,
}

/// Reads a stream until there are results of `most` lines, or none comes for `limit`.
async fn collect(
    nats: &Nats,
    stream: &str,
    most: u64,
    shown: &AtomicU64,
    limit: Duration,
) -> Result<Arrived, Error> {
    let mut arrived = Arrived::default();
    let mut start_sequence = 1;
    while (arrived.lines.len() as u64) < most {
        let stream = nats.context().get_stream(stream).await.map_err(failed)?;
        let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence };
        let config = pull::OrderedConfig { deliver_policy, ..Default::default() };
        let consumer = stream.create_consumer(config).await.map_err(failed)?;
        let mut messages = consumer.messages().await.map_err(failed)?;
        while (arrived.lines.len() as u64) < most {
            let Ok(message) = tokio::time::timeout(limit, messages.next()).await else {
                return Ok(arrived);
            };
            let Some(Ok(message)) = message else { break };
            start_sequence = message.info().map_err(failed)?.stream_sequence + 1;
            let line = decode(&message.payload).map_err(failed)?;
            let times = arrived.lines.entry(line.number).or_default();
            *times += 1;
            if *times == 1 {
                let mut fields = line.text.split_whitespace();
                while let (Some(word), Some(n)) = (fields.next(), fields.next()) {
                    *arrived.counts.entry(word.to_string()).or_default() += n.parse().unwrap_or(0);
                }
            }
            shown.store(arrived.lines.len() as u64, Relaxed);
        }
    }
    Ok(arrived)
}

async fn create_streams(nats: &Nats) -> Result<(), Error> {
    for (name, subject, retention) in [
        ("lines", "lines.>".to_string(), RetentionPolicy::WorkQueue),
        ("counts", "counts.>".to_string(), RetentionPolicy::Limits),
        ("dead", format!("{APP}.dead.>"), RetentionPolicy::Limits),
    ] {
        let config = Config {
            name: name.into(),
            subjects: vec![subject],
            num_replicas: WORKERS.len(),
            retention,
            ..Config::default()
        };
        nats.context().create_stream(config).await.map_err(failed)?;
    }
    Ok(())
}

async fn judge(options: &options::Nats) -> Result<Report, Error> {
    let checks = Checks::new(&NAMES);
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../src"));
    let input = lines(options.path.as_deref().unwrap_or(folder), options.lines)?;
    let mut expected = Counts::new();
    input.iter().for_each(|line| count(line, &mut expected));
    let total = options.lines;
    let poison = |n| (total + n, POISON.to_string());

    let brokers = tokio::task::spawn_blocking(|| Brokers::start(WORKERS.len()));
    let brokers = Arc::new(brokers.await.map_err(failed)?.map_err(failed)?);
    let connect = Options::new(APP, "first").servers(brokers.servers());
    let nats = Nats::connect(connect).await.map_err(failed)?;
    create_streams(&nats).await?;
    let began = Instant::now();
    let mut workers = Workers::start(brokers.servers().join(","), None)?;
    let shown = Arc::new(AtomicU64::new(0));
    let collector = tokio::spawn({
        let (nats, shown) = (nats.clone(), shown.clone());
        async move { collect(&nats, "counts", total, &shown, PATIENCE).await }
    });
    let publisher = tokio::spawn({
        let nats = nats.clone();
        let mut messages: Vec<_> = (0..).zip(input).collect();
        let every = total / (options.poison + 1);
        for n in (0..options.poison).rev() {
            messages.insert(usize::try_from((n + 1) * every).unwrap_or(0), poison(n));
        }
        async move {
            let all = stream::iter(&messages);
            all.for_each_concurrent(256, |(n, line)| publish(&nats, *n, line)).await;
        }
    });
    let mut live = Live::new("nats", Some(total));
    let (mut killed, mut paused, mut stopped_at) = (!options.kill, !options.pause, None::<Instant>);
    while !collector.is_finished() && !interrupt::asked() {
        tokio::time::sleep(Duration::from_millis(100)).await;
        workers.look()?;
        let done = shown.load(Relaxed);
        live.show(done, || Gauge {
            done,
            text: format!("{done} of {total} lines, {} workers started again", workers.restarts),
            ..Gauge::default()
        });
        if !paused && done > total / 4 {
            paused = true;
            workers.signal(1, "STOP");
            stopped_at = Some(Instant::now());
        }
        if stopped_at.is_some_and(|at| at.elapsed() > ACK_WAIT * 2) {
            stopped_at = None;
            workers.signal(1, "CONT");
        }
        if !killed && done > total / 2 {
            killed = true;
            workers.children[0].kill().map_err(failed)?;
            let brokers = brokers.clone();
            let again = tokio::task::spawn_blocking(move || {
                brokers.kill(0);
                brokers.restart(0)
            });
            again.await.map_err(failed)?.map_err(failed)?;
        }
    }
    let took = began.elapsed();
    publisher.abort();
    collector.abort();
    let results = match collector.await {
        Ok(results) => results?,
        Err(_) => Arrived::default(), // ended by Ctrl-C
    };
    // The last poison may have attempts left.
    let wait = ACK_WAIT * u32::try_from(ATTEMPTS).unwrap_or(1) * 4;
    let buried = async {
        let (most, limit) = (options.poison.max(1), Duration::from_secs(1));
        let until = Instant::now() + wait;
        loop {
            workers.look()?;
            let buried = collect(&nats, "dead", most, &AtomicU64::new(0), limit).await?;
            let all = buried.lines.len() as u64 >= options.poison;
            if all || Instant::now() > until || interrupt::asked() {
                return Ok::<_, Error>(buried);
            }
        }
    };
    let buried = buried.await?;
    let restarts = workers.restarts;
    drop(workers);

    let missing = total - results.lines.len() as u64;
    let twice = results.lines.values().filter(|times| **times > 1).count() as u64;
    let (poisoned, others): (Vec<_>, Vec<_>) = buried.lines.iter().partition(|(n, _)| **n >= total);
    checks.equal("nothing_missing", "lines without a result", missing, 0);
    checks.expect("counts_agree", results.counts == expected, || "a word's count differs".into());
    let once = poisoned.iter().filter(|(_, times)| **times == 1).count() as u64;
    checks.equal("poison_buried_once", "killers that are one dead letter", once, options.poison);
    checks.equal("nothing_else_buried", "other dead letters", others.len() as u64, 0);
    let mut report = Report::new("nats", ("lines", total - missing), took, 0, &checks, options);
    report.counts.extend([
        ("lines", total),
        ("missing", missing),
        ("stored_twice", twice),
        ("dead_letters", buried.lines.len() as u64),
        ("workers_started_again", restarts),
    ]);
    Ok(report)
}
