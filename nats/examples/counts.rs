//! Counts words in any number of processes, on a partitioned source. No count is lost, and none is
//! doubled, whichever process is killed.
//!
//! ```sh
//! nats-server -js &
//! nats stream add words --subjects 'words.*' --retention work --replicas 1 --defaults \
//!   --transform-source 'words.*' \
//!   --transform-destination 'words.{{partition(8,1)}}.{{wildcard(1)}}'
//! nats stream add dead --subjects example.dead.words --replicas 1 --defaults
//! cargo run -p expiry-nats --example counts -- one &
//! cargo run -p expiry-nats --example counts -- two &
//! for word in to be or not to be; do nats pub words.$word $word --count 1000; done
//! ```
//!
//! Kill either process meanwhile. Within seconds the other one goes on from the stored counts, and
//! the last lines say 2000 for `to` and `be`, 1000 for `or` and `not`.
//!
//! A bolt loads a partition's counts when it meets a new owner's epoch. It counts in memory. Every
//! 20 ms it writes the changed counts of a partition in one batch, which the brokers refuse to a
//! late owner, and then acks. The broker delivers again what a killed worker has not acked. So each
//! record has the sequences of the latest `KEPT` messages that were counted, beside the count.
//! The source holds fewer than that, so what comes again is among them. Only a message whose ack
//! was lost, and which comes after `KEPT` others of its word, would count twice.

use expiry_nats::{Held, Incoming, Nats, NatsError, Options, SourceOptions};
use expiry_topology::{Bolt, BoltCollector, TopologyBuilder, Tuple};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::runtime::Handle;

type Failure = Box<dyn std::error::Error + Send + Sync>;

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
            let changed = std::mem::take(&mut partition.changed);
            let counts = &partition.counts;
            let records = changed.iter().map(|word| {
                let record = counts[word.as_bytes()].write();
                (word, Some(record.into()))
            });
            let written = self.runtime.block_on(partition.held.write(records));
            let tuples = partition.tuples.drain(..);
            match &written {
                Ok(()) => {
                    for word in &changed {
                        println!("{word} {}", counts[word.as_bytes()].count);
                    }
                    tuples.for_each(|tuple| out.ack(tuple));
                }
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

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut words = std::env::args().skip(1);
    let Some(worker) = words.next() else { return Err("usage: counts WORKER [SERVER]".into()) };
    let mut options = Options::new("example", &worker);
    if let Some(server) = words.next() {
        options = options.servers([server]);
    }
    let nats = Nats::connect(options).await?;
    let set = nats.partitions("counts", PARTITIONS).lease(Duration::from_secs(1)).replicas(1);
    let decode = |incoming: &Incoming<'_>, held: &Held| {
        let word = String::from_utf8(incoming.payload.to_vec())?;
        let (sequence, held) = (incoming.sequence, held.clone());
        Ok::<_, std::string::FromUtf8Error>(Word { word, sequence, held })
    };
    let options =
        SourceOptions::new("words", "count").window(KEPT / 2).ack_wait(Duration::from_secs(2));
    let source = nats.partitioned_source(options, set, decode).await?;
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
