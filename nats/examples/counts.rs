//! Words counted by several worker processes, on a partitioned source. The workers are killed one
//! after another, and others take their place. No count is lost, and none is doubled.
//!
//! ```sh
//! cargo run -p expiry-nats --features brokers --example counts
//! ```
//!
//! A bolt loads a partition's counts when it meets a new owner's epoch. It counts in memory. Every
//! 20 ms it writes the changed counts of a partition in one batch, which the brokers refuse to a
//! late owner, and then acks. The broker delivers again what a killed worker has not acked. So each
//! record has the sequences of the latest `KEPT` messages that were counted, beside the count.
//! The source holds fewer than that, so what comes again is among them. Only a message whose ack
//! was lost, and which comes after `KEPT` others of its word, would count twice.

use async_nats::jetstream::stream::{Config, RetentionPolicy, SubjectTransform};
use expiry_nats::brokers::Brokers;
use expiry_nats::{Change, Held, Incoming, Nats, NatsError, Options, PartitionSet, SourceOptions};
use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::process::{Child, Command};
use std::time::Duration;
use tokio::runtime::Handle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const TEXT: &str = "to be or not to be that is the question whether it is nobler in the mind";
const ROUNDS: usize = 1000;
const PARTITIONS: u32 = 8;
const KEPT: usize = 1000;

#[derive(Clone)]
struct Word {
    word: String,
    sequence: u64,
    held: Held,
}

/// The count of a word, and the latest messages that were counted.
#[derive(Default)]
struct Count {
    count: u64,
    latest: BTreeSet<u64>,
}

impl Count {
    fn add(&mut self, sequence: u64) {
        if self.latest.insert(sequence) {
            self.count += 1;
            if self.latest.len() > KEPT {
                self.latest.pop_first();
            }
        }
    }

    fn write(&self) -> String {
        let latest: Vec<String> = self.latest.iter().map(u64::to_string).collect();
        format!("{} {}", self.count, latest.join(" "))
    }

    fn read(record: &[u8]) -> Result<Count, Failure> {
        let text = std::str::from_utf8(record)?;
        let mut numbers = text.split_whitespace().map(str::parse);
        let count = numbers.next().ok_or("a record without a count")??;
        Ok(Count { count, latest: numbers.collect::<Result<_, _>>()? })
    }
}

/// A partition under one epoch: its counts, the words that changed, and the tuples that wait.
struct Partition {
    held: Held,
    counts: BTreeMap<Vec<u8>, Count>,
    changed: BTreeSet<String>,
    tuples: Vec<Tuple<Word>>,
}

struct Counter {
    runtime: Handle,
    partitions: HashMap<u32, Partition>,
}

impl Counter {
    fn count(&mut self, tuple: Tuple<Word>, out: &mut BoltCollector<'_, ()>) {
        let Word { word, sequence, held } = tuple.message();
        let known = self.partitions.get(&held.partition()).map(|known| known.held.epoch());
        if known.is_none_or(|epoch| epoch < held.epoch()) {
            let counts = match self.runtime.block_on(load(held)) {
                Ok(counts) => counts,
                Err(why) => return out.fail_with(tuple, why),
            };
            let (changed, tuples) = (BTreeSet::new(), Vec::new());
            let new = Partition { held: held.clone(), counts, changed, tuples };
            let old = self.partitions.insert(held.partition(), new);
            let late = old.into_iter().flat_map(|old| old.tuples);
            late.for_each(|tuple| out.fail_with(tuple, "there is a new owner"));
        }
        match self.partitions.get_mut(&held.partition()) {
            Some(partition) if partition.held.epoch() == held.epoch() => {
                partition.counts.entry(word.clone().into_bytes()).or_default().add(*sequence);
                partition.changed.insert(word.clone());
                partition.tuples.push(tuple);
            }
            _ => out.fail_with(tuple, "there is a new owner"),
        }
    }
}

async fn load(held: &Held) -> Result<BTreeMap<Vec<u8>, Count>, Failure> {
    let records = held.load().await?.into_iter();
    records.map(|(word, record)| Ok((word, Count::read(&record)?))).collect()
}

impl Bolt<Word> for Counter {
    fn execute(&mut self, tuple: Tuple<Word>, out: &mut BoltCollector<'_, ()>) {
        self.count(tuple, out);
    }

    fn tick(&mut self, out: &mut BoltCollector<'_, ()>) {
        self.partitions.retain(|_, partition| {
            let changed = std::mem::take(&mut partition.changed).into_iter();
            let counts = &partition.counts;
            let records = changed.map(|word| {
                let record = counts[word.as_bytes()].write();
                (word, Some(record.into()))
            });
            let written = self.runtime.block_on(partition.held.write(records));
            let tuples = partition.tuples.drain(..);
            match &written {
                Ok(()) => tuples.for_each(|tuple| out.ack(tuple)),
                Err(why) => tuples.for_each(|tuple| out.fail_with(tuple, why)),
            }
            // It may have been stored: under a new epoch the bolt reads what was.
            if matches!(written, Err(NatsError::Unanswered { .. })) {
                partition.held.claim_anew();
            }
            written.is_ok()
        });
    }
}

fn set(nats: &Nats) -> PartitionSet {
    nats.partitions("counts", PARTITIONS).lease(Duration::from_secs(1)).replicas(1)
}

/// A worker process: it counts until it is killed.
async fn work(name: &str, server: &str) -> Result<(), Failure> {
    let nats = Nats::connect(Options::new("example", name).servers([server])).await?;
    let decode = |incoming: &Incoming<'_>, held: &Held| {
        let word = String::from_utf8(incoming.payload.to_vec())?;
        let (sequence, held) = (incoming.sequence, held.clone());
        Ok::<_, std::string::FromUtf8Error>(Word { word, sequence, held })
    };
    let options =
        SourceOptions::new("words", "count").window(KEPT / 2).ack_wait(Duration::from_secs(2));
    let source = nats.partitioned_source(options, set(&nats), decode).await?;
    let topology = TopologyBuilder::new();
    let words = topology.spout("words", move |context| source.spout(context));
    let runtime = Handle::current();
    topology
        .bolt("count", move |_| Counter { runtime: runtime.clone(), partitions: HashMap::new() })
        .tick_every(Duration::from_millis(20))
        .parallelism(2)
        .key_by(&words, |word| word.held.partition());
    let _topology = topology.start()?;
    std::future::pending().await
}

/// A child process that dies with its parent's variable.
struct Worker(Child);

impl Worker {
    fn start(n: usize, server: &str) -> Result<Worker, Failure> {
        let program = std::env::current_exe()?;
        Ok(Worker(Command::new(program).args([&format!("w{n}"), server]).spawn()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill(); // an error says that it has ended
        let _ = self.0.wait();
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [name, server] = &*arguments {
        return work(name, server).await;
    }
    let brokers = tokio::task::spawn_blocking(|| Brokers::start(1)).await??;
    let server = brokers.servers().remove(0);
    let nats = Nats::connect(Options::new("example", "reader").servers([&server])).await?;
    let config = |name: &str, subject: &str| Config {
        name: name.into(),
        subjects: vec![subject.into()],
        ..Config::default()
    };
    let destination = format!("words.{{{{partition({PARTITIONS},1)}}}}.{{{{wildcard(1)}}}}");
    let mut stream = nats
        .context()
        .create_stream(Config {
            retention: RetentionPolicy::WorkQueue,
            subject_transform: Some(SubjectTransform { source: "words.*".into(), destination }),
            ..config("words", "words.*")
        })
        .await?;
    nats.context().create_stream(config("dead", "example.dead.words")).await?;

    let mut workers = Vec::new();
    for n in 0..3 {
        workers.push(Worker::start(n, &server)?);
    }
    for round in 0..ROUNDS {
        let mut stored = Vec::new();
        for word in TEXT.split(' ') {
            stored.push(nats.context().publish(format!("words.{word}"), word.into()).await?);
        }
        for stored in stored {
            stored.await?;
        }
        if round % 200 == 100 {
            drop(workers.remove(0)); // killed with what it holds
            let n = 3 + round / 200;
            workers.push(Worker::start(n, &server)?);
            println!("a worker is killed, and w{n} takes its place");
        }
    }
    while stream.info().await?.state.messages > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(workers);

    let (mut partitions, mut found) = (set(&nats).join().await?, BTreeMap::new());
    let mut left = PARTITIONS;
    while left > 0 {
        if let Some(Change::Gained(held)) = partitions.next().await {
            for (word, count) in load(&held).await? {
                found.insert(String::from_utf8(word)?, count.count);
            }
            left -= 1;
        }
    }
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for word in TEXT.split(' ') {
        *expected.entry(word.into()).or_default() += ROUNDS as u64;
    }
    println!("{found:?}");
    assert_eq!(found, expected);
    Ok(())
}
