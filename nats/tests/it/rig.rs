//! Three brokers with the streams `in` (a work queue), `out` and `dead`.

use async_nats::jetstream::consumer::{pull, AckPolicy};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::Context;
use async_nats::HeaderMap;
use expiry_nats::brokers::Brokers;
use expiry_nats::{Nats, Options};
use futures_util::stream::{self, StreamExt};
use std::ops::RangeInclusive;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub struct Rig {
    own: Worker,
    pub brokers: Brokers,
}

/// A connection with a runtime of its own, which may be stopped as if its process died.
pub struct Worker {
    pub nats: Nats,
    pub runtime: Runtime,
}

impl Worker {
    pub fn enter<T>(&self, f: impl FnOnce(&Nats) -> T) -> T {
        let _inside = self.runtime.enter();
        f(&self.nats)
    }

    /// Stops the worker's only thread until the sender is dropped, as a suspended process would be.
    pub fn pause(&self) -> Sender<()> {
        let (go_on, paused) = mpsc::channel();
        self.runtime.spawn(async move { paused.recv() });
        go_on
    }
}

pub fn worker(brokers: &Brokers, name: &str) -> Worker {
    worker_that_waits(brokers, name, Duration::from_secs(2))
}

pub fn worker_that_waits(brokers: &Brokers, name: &str, request_timeout: Duration) -> Worker {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let options = Options::new("it", name).servers(brokers.servers());
    let options = options.request_timeout(request_timeout);
    let began = Instant::now();
    loop {
        match runtime.block_on(Nats::connect(options.clone())) {
            Ok(nats) => return Worker { nats, runtime },
            Err(error) => assert!(began.elapsed() < Duration::from_secs(40), "{error}"),
        }
    }
}

impl Rig {
    /// Three brokers without streams.
    pub fn bare() -> Rig {
        let brokers = Brokers::start(3).unwrap_or_else(|error| panic!("{error}"));
        let own = worker(&brokers, "rig");
        Rig { own, brokers }
    }

    pub fn start() -> Rig {
        let rig = Rig::bare();
        rig.stream("in", "in.>");
        rig.stream("out", "out.>");
        rig.stream("dead", "it.dead.in");
        rig
    }

    pub fn worker(&self, name: &str) -> Worker {
        worker(&self.brokers, name)
    }

    /// A worker of a test that counts failures: a slow answer of the brokers is none.
    pub fn patient_worker(&self, name: &str) -> Worker {
        worker_that_waits(&self.brokers, name, Duration::from_secs(10))
    }

    /// Calls the brokers until they answer.
    fn call<T, E: std::fmt::Display>(&self, mut f: impl AsyncFnMut(&Context) -> Result<T, E>) -> T {
        let began = Instant::now();
        loop {
            match self.own.runtime.block_on(f(self.own.nats.context())) {
                Ok(answer) => return answer,
                Err(error) => assert!(began.elapsed() < Duration::from_secs(40), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn stream(&self, name: &str, subject: &str) {
        let config = Config {
            name: name.into(),
            subjects: vec![subject.into()],
            num_replicas: 3,
            storage: StorageType::File,
            retention: if name == "in" {
                RetentionPolicy::WorkQueue
            } else {
                RetentionPolicy::Limits
            },
            ..Config::default()
        };
        self.create(config);
    }

    pub fn create(&self, config: Config) {
        self.call(async |context| context.create_stream(config.clone()).await);
    }

    /// Limits a stream to so many messages, after which it refuses more.
    pub fn limit(&self, name: &str, messages: i64) {
        let found = self.call(async |context| context.get_stream(name).await);
        let mut config = found.cached_info().config.clone();
        (config.max_messages, config.discard) = (messages, DiscardPolicy::New);
        self.call(async |context| context.update_stream(config.clone()).await);
    }

    pub fn put(&self, subject: &str, payload: &str) {
        self.put_with(subject, &[], payload.as_bytes());
    }

    pub fn put_with(&self, subject: &str, headers: &[(&str, &str)], payload: &[u8]) {
        self.call(async |context| {
            let mut all = HeaderMap::new();
            headers.iter().for_each(|(name, value)| all.insert(*name, *value));
            let payload = payload.to_vec().into();
            context.publish_with_headers(subject.to_string(), all, payload).await?.await
        });
    }

    /// Publishes numbers to `in`, again until each is stored.
    pub fn publish(&self, numbers: RangeInclusive<u64>) {
        let context = self.own.nats.context();
        let until_stored = |number: u64| async move {
            loop {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", number.to_string());
                let payload = number.to_string().into();
                let sent = context.publish_with_headers("in.numbers", headers, payload);
                if let Ok(stored) = sent.await {
                    if stored.await.is_ok() {
                        return;
                    }
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let all = stream::iter(numbers).for_each_concurrent(1000, until_stored);
        let limited = async { tokio::time::timeout(Duration::from_secs(40), all).await };
        let stored = self.own.runtime.block_on(limited);
        stored.expect("all are stored in 40 s");
    }

    pub fn messages(&self, stream: &str) -> u64 {
        self.call(async |context| context.get_stream(stream).await).cached_info().state.messages
    }

    /// The number of messages that a consumer has not delivered or has no ack for. After an outage
    /// a work queue may keep messages that its consumer has acked (nats-server #5542).
    pub fn unacked(&self, stream: &str, consumer: &str) -> u64 {
        let found = self.call(async |context| {
            let found = context.get_consumer_from_stream::<pull::Config, _, _>(consumer, stream);
            found.await
        });
        let info = found.cached_info();
        info.num_pending + info.num_ack_pending as u64
    }

    pub fn read(&self, stream: &str) -> Vec<StreamMessage> {
        let found = self.call(async |context| context.get_stream(stream).await);
        let state = found.cached_info().state.clone();
        let all = state.first_sequence..=state.last_sequence;
        all.map(|n| self.call(async |_| found.get_raw_message(n).await)).collect()
    }

    pub fn consumer(&self, stream: &str, name: &str, ack_policy: AckPolicy) {
        let config =
            pull::Config { durable_name: Some(name.into()), ack_policy, ..Default::default() };
        let found = self.call(async |context| context.get_stream(stream).await);
        self.call(async |_| found.create_consumer(config.clone()).await);
    }

    pub fn delete_consumer(&self, stream: &str, name: &str) {
        let found = self.call(async |context| context.get_stream(stream).await);
        self.call(async |_| found.delete_consumer(name).await);
    }

    pub fn delete_stream(&self, name: &str) {
        self.call(async |context| context.delete_stream(name).await);
    }

    pub fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
