//! Partitioned sources on three brokers.

use crate::rig::{Rig, Worker};
use async_nats::jetstream::stream::{Config, StorageType, SubjectTransform};
use expiry_nats::{Change, Held, Incoming, NatsError, SourceOptions, StreamSource};
use expiry_topology::{sink, Topology, TopologyBuilder};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(2);
const COUNT: u32 = 8;
const KEYS: usize = 40;

#[derive(Clone)]
struct Word {
    key: String,
    sequence: u64,
    held: Held,
}

fn decode(incoming: &Incoming<'_>, held: &Held) -> Result<Word, String> {
    let mut tokens = incoming.subject.split('.').skip(1);
    assert_eq!(tokens.next(), Some(&*held.partition().to_string()));
    let key = tokens.next().ok_or("it has no key")?.to_string();
    Ok(Word { key, sequence: incoming.sequence, held: held.clone() })
}

fn options() -> SourceOptions {
    SourceOptions::new("words", "count").ack_wait(2 * SECOND).attempts(50).window(100)
}

fn streams() -> Rig {
    let rig = Rig::bare();
    let destination = "words.{{partition(8,1)}}.{{wildcard(1)}}".into();
    rig.create(Config {
        name: "words".into(),
        subjects: vec!["words.*".into()],
        subject_transform: Some(SubjectTransform { source: "words.*".into(), destination }),
        storage: StorageType::File,
        num_replicas: 3,
        ..Config::default()
    });
    rig.stream("dead", "it.dead.words");
    rig
}

fn source(worker: &Worker, options: &SourceOptions) -> Arc<StreamSource<Word>> {
    source_with(worker, options, decode)
}

fn source_with(
    worker: &Worker,
    options: &SourceOptions,
    decode: impl Fn(&Incoming<'_>, &Held) -> Result<Word, String> + Clone + Send + Sync + 'static,
) -> Arc<StreamSource<Word>> {
    let set = || worker.nats.partitions("words", COUNT).lease(LEASE);
    let source = || worker.nats.partitioned_source(options.clone(), set(), decode.clone());
    Arc::new(crate::joined(worker, source))
}

fn topology(
    source: &Arc<StreamSource<Word>>,
    tasks: usize,
    bolt: impl FnMut(&Word) -> Result<(), String> + Clone + Send + Sync + 'static,
) -> Topology {
    let (topology, source) = (TopologyBuilder::new(), source.clone());
    topology.timeout(60 * SECOND);
    let words = topology.spout("words", move |context| source.spout(context)).parallelism(tasks);
    let count = topology.bolt("count", move |_| {
        let mut bolt = bolt.clone();
        sink(move |word: &Word, _| bolt(word))
    });
    count.parallelism(2).key_by(&words, |word| word.held.partition());
    topology.start().unwrap()
}

/// What all workers have done.
#[derive(Default)]
struct Done {
    counted: BTreeSet<u64>,
    /// The latest owner that handled a message of a partition.
    owners: HashMap<u32, Held>,
    wrong: Vec<String>,
}

impl Done {
    /// An owner handles a message.
    fn handles(&mut self, held: &Held) {
        let Some(before) = self.owners.insert(held.partition(), held.clone()) else { return };
        if before.epoch() != held.epoch() && before.may_act() && held.may_act() {
            self.wrong.push(format!("{before:?} acts beside {held:?}"));
        }
        if before.epoch() > held.epoch() {
            self.owners.insert(held.partition(), before);
        }
    }
}

/// The state of each partition: its epoch, and the sequences that were counted for each key.
type States = HashMap<u32, (u64, BTreeMap<Vec<u8>, bytes::Bytes>)>;

async fn count(states: &mut States, done: &Mutex<Done>, word: &Word) -> Result<(), NatsError> {
    let (held, key) = (&word.held, word.key.as_bytes());
    if states.get(&held.partition()).is_none_or(|(epoch, _)| *epoch < held.epoch()) {
        let state = held.load().await?;
        states.insert(held.partition(), (held.epoch(), state));
    }
    done.lock().unwrap().handles(held);
    let (epoch, state) = states.get_mut(&held.partition()).unwrap();
    let before = state.get(key).map(|value| String::from_utf8(value.to_vec()).unwrap());
    let (before, sequence) = (before.unwrap_or_default(), word.sequence.to_string());
    if *epoch == held.epoch() && !before.split(' ').any(|counted| counted == sequence) {
        let value = bytes::Bytes::from(format!("{before} {sequence}"));
        match held.write([(key, Some(value.clone()))]).await {
            Ok(()) => drop(state.insert(key.to_vec(), value)),
            Err(error @ NatsError::Unanswered { .. }) => {
                held.claim_anew();
                return Err(error);
            }
            Err(error) => return Err(error),
        }
    }
    done.lock().unwrap().counted.insert(word.sequence);
    Ok(())
}

#[test]
fn each_message_counts_once_when_owners_die_stop_and_leave() {
    const MESSAGES: u64 = 1200;
    let (rig, done) = (streams(), Arc::<Mutex<Done>>::default());
    let publish = |number: u64| {
        (0..number).for_each(|n| rig.put(&format!("words.k{}", n as usize % KEYS), ""));
    };
    publish(MESSAGES / 3 * 2);
    let workers = ["a", "b", "c"].map(|name| rig.worker(name));
    let is_killed = Arc::new(AtomicBool::new(false));
    let running = workers.each_ref().map(|worker| {
        let (done, runtime) = (done.clone(), worker.runtime.handle().clone());
        let (source, mut states) = (source(worker, &options()), States::new());
        let (is_killed, is_first) = (is_killed.clone(), worker.nats.worker() == "a");
        let bolt = move |word: &Word| {
            if is_first && is_killed.load(Ordering::SeqCst) {
                return Err("its runtime has ended".to_string());
            }
            let counted = runtime.block_on(count(&mut states, &done, word));
            counted.map_err(|error| error.to_string())
        };
        (topology(&source, 2, bolt), source)
    });
    let counted = || done.lock().unwrap().counted.len() as u64;
    rig.until("some count", || counted() > MESSAGES / 6);
    // One worker is killed with what it holds, and another one stopped for three leases.
    let [killed, stopped, third] = workers;
    is_killed.store(true, Ordering::SeqCst);
    killed.runtime.shutdown_background();
    stopped.runtime.spawn(async { std::thread::sleep(3 * LEASE) });
    publish(MESSAGES / 3);
    rig.until("all count", || counted() == MESSAGES);
    let held = || running[1..].iter().map(|(_, source)| source.stats().held).sum::<u64>();
    rig.until("what others have is forgotten", || held() == 0);
    // The others leave, and the next worker owns all at once.
    let last = rig.worker("last");
    for (worker, (_, source)) in [&stopped, &third].into_iter().zip(&running[1..]) {
        let left = async { tokio::time::timeout(20 * SECOND, source.leave()).await };
        worker.runtime.block_on(left).expect("it has left");
    }
    let set = || last.nats.partitions("words", COUNT).lease(LEASE).join();
    let mut partitions = crate::joined(&last, set);
    let mut all = BTreeMap::new();
    let loaded = async {
        while all.len() < COUNT as usize {
            if let Some(Change::Gained(held)) = partitions.next().await {
                all.insert(held.partition(), held.load().await.unwrap());
            }
        }
    };
    let limited = async { tokio::time::timeout(20 * SECOND, loaded).await };
    last.runtime.block_on(limited).expect("it owns all");
    running.into_iter().for_each(|(topology, _)| drop(topology.kill()));
    let keys = || all.values().flatten();
    let text = |value: &bytes::Bytes| String::from_utf8(value.to_vec()).unwrap();
    let mut sequences: Vec<u64> = keys()
        .flat_map(|(_, value)| {
            let text = text(value);
            text.split_whitespace().map(|it| it.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    sequences.sort_unstable();
    assert!(sequences.into_iter().eq(1..=MESSAGES), "each counts once");
    assert_eq!(keys().map(|(key, _)| key).collect::<BTreeSet<_>>().len(), KEYS);
    assert_eq!(done.lock().unwrap().wrong, Vec::<String>::new());
    assert_eq!(rig.messages("dead"), 0);
}

/// What a bolt has only in memory is gone with the partition, so the message must come again.
#[test]
fn what_a_late_owner_acks_comes_to_the_next_one() {
    let (rig, done) = (streams(), Arc::<Mutex<Done>>::default());
    (0..KEYS).for_each(|n| rig.put(&format!("words.k{n}"), ""));
    let options = options().ack_wait(6 * LEASE);
    let gate = Arc::new(AtomicBool::new(false));
    let start = |worker: &Worker| {
        let (done, gate, source) = (done.clone(), gate.clone(), source(worker, &options));
        let bolt = move |word: &Word| {
            done.lock().unwrap().handles(&word.held);
            while !gate.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
            if word.held.may_act() {
                done.lock().unwrap().counted.insert(word.sequence);
            }
            Ok(())
        };
        (topology(&source, 2, bolt), source)
    };
    let first = rig.worker("a");
    let (late, late_source) = start(&first);
    rig.until("it holds all", || late_source.stats().held == KEYS as u64);
    let second = rig.worker("b");
    first.runtime.spawn(async { std::thread::sleep(3 * LEASE) });
    let owns = || done.lock().unwrap().owners.values().any(Held::may_act);
    rig.until("its lease has run out", || !owns());
    gate.store(true, Ordering::SeqCst);
    let (next, _) = start(&second);
    rig.until("all count", || done.lock().unwrap().counted.len() == KEYS);
    rig.until("it forgets what it lost", || late_source.stats().held == 0);
    [late, next].into_iter().for_each(|topology| drop(topology.kill()));
}

/// Both tasks are to release their partitions. One of them learns of that when its lease has run
/// out.
#[test]
fn a_partition_is_released_after_its_lease_has_run_out() {
    let (rig, gate) = (streams(), Arc::new(AtomicBool::new(false)));
    let (first, second) = (rig.worker("a"), rig.worker("b"));
    let (tell, told) = mpsc::channel();
    let is_open = gate.clone();
    let decode = move |incoming: &Incoming<'_>, held: &Held| {
        tell.send(held.clone()).unwrap();
        // The worker's other tasks go on.
        tokio::task::block_in_place(|| {
            while !is_open.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        decode(incoming, held)
    };
    let source = source_with(&first, &options(), decode);
    let topology = topology(&source, 2, |_| Ok(()));
    rig.put("words.k0", "");
    let held = told.recv_timeout(60 * SECOND).expect("the message comes");
    let leaving = source.clone();
    let leaving = first.runtime.spawn(async move { leaving.leave().await });
    let set = || second.nats.partitions("words", COUNT).lease(LEASE).join();
    let mut partitions = crate::joined(&second, set);
    let mut all = BTreeSet::new();
    let mut gain = |number: usize| {
        let gained = async {
            while all.len() < number {
                if let Some(Change::Gained(held)) = partitions.next().await {
                    all.insert(held.partition());
                }
            }
        };
        let limited = async { tokio::time::timeout(60 * SECOND, gained).await };
        second.runtime.block_on(limited).expect("the next owner gets them");
    };
    // The other task has released one: the worker is losing all.
    gain(1);
    let go_on = first.pause();
    rig.until("its lease has run out", || !held.may_act());
    gate.store(true, Ordering::SeqCst);
    drop(go_on);
    gain(COUNT as usize);
    let left = async { tokio::time::timeout(60 * SECOND, leaving).await };
    first.runtime.block_on(left).expect("it has left").unwrap();
    drop(topology.kill());
}

#[test]
fn the_partitions_follow_a_topology_with_other_tasks() {
    let (rig, counted) = (streams(), Arc::<Mutex<BTreeSet<u64>>>::default());
    let worker = rig.worker("a");
    let source = source(&worker, &options());
    for (tasks, all) in [(2, KEYS), (1, 2 * KEYS), (3, 3 * KEYS)] {
        let count = counted.clone();
        let topology = topology(&source, tasks, move |word| {
            count.lock().unwrap().insert(word.sequence);
            Ok(())
        });
        (0..KEYS).for_each(|n| rig.put(&format!("words.k{n}"), ""));
        rig.until("all count", || counted.lock().unwrap().len() == all);
        topology.kill();
    }
}

#[test]
fn a_stream_with_other_partitions_is_a_typed_error() {
    let rig = streams();
    rig.stream("out", "out.>");
    let worker = rig.worker("a");
    let refused = |options: SourceOptions, count: u32| {
        let set = || worker.nats.partitions("words", count).lease(LEASE);
        let asked = || worker.nats.partitioned_source(options.clone(), set(), decode);
        let asked = || worker.runtime.block_on(asked()).map(drop).unwrap_err();
        let mut answers = std::iter::repeat_with(asked).take(20);
        answers.find(|e| !matches!(e, NatsError::Unanswered { .. })).expect("the brokers answer")
    };
    let (what, set) = ("stream's number of partitions", "words".to_string());
    let (found, asked) = ("8".to_string(), "16".to_string());
    assert_eq!(refused(options(), 16), NatsError::OtherTerms { set, what, found, asked });
    let none = refused(SourceOptions::new("out", "count"), COUNT);
    assert!(none.to_string().contains("partition(N"), "{none}");
    let filter = refused(options().subject("words.>"), COUNT);
    assert!(matches!(filter, NatsError::Setting { what: "subject", .. }), "{filter}");
    let missing = refused(SourceOptions::new("none", "count"), COUNT);
    assert!(matches!(&missing, NatsError::NoStream { name, .. } if name == "none"), "{missing}");
}
