//! TLS, and the permissions of the guide. One broker: what it permits does not depend on others.

use async_nats::jetstream::stream::{Config, RetentionPolicy};
use expiry_nats::brokers::Brokers;
use expiry_nats::{Change, Claim, Incoming, Lease, Nats, NatsError, Options, Outgoing};
use expiry_nats::{Leases, PartitionSet, SessionSet, Sessions, SourceOptions};
use expiry_topology::TopologyBuilder;
use futures_util::StreamExt;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::fs;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::mpsc;

const GUIDE: &str = include_str!("../../../docs/guide/nats.md");
const SECOND: Duration = Duration::from_secs(1);

fn brokers(config: &str) -> Brokers {
    Brokers::start_with(1, config).unwrap_or_else(|error| panic!("{error}"))
}

async fn limited<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limited = tokio::time::timeout(40 * SECOND, future);
    limited.await.unwrap_or_else(|_| panic!("not within 40 s: {what}"))
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(SECOND / 20).await;
        }
    };
    limited(what, held).await;
}

/// Makes an authority, and writes what it signs: `NAME.pem` and `NAME.key`.
fn certificates(signed: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("certificates");
    fs::create_dir_all(&folder).unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = CertifiedIssuer::self_signed(authority, key).unwrap();
    fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
    for (name, host) in signed {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_string()]).unwrap();
        let certificate = certificate.signed_by(&key, &authority).unwrap();
        fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    folder
}

#[tokio::test]
async fn a_connection_is_encrypted_and_both_sides_show_certificates() {
    let files = certificates(&[("server", "127.0.0.1"), ("client", "worker")]);
    let path = |name| files.join(name).display().to_string();
    let tls = |rest: String| {
        let (certificate, key) = (path("server.pem"), path("server.key"));
        format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, {rest} }}")
    };
    let open = brokers(&tls(String::new()));
    let strict = brokers(&tls(format!("ca_file: {:?}, verify: true", path("authority.pem"))));
    let plain = brokers("");
    let options = |brokers: &Brokers| Options::new("it", "a").servers(brokers.servers());
    let known = |brokers| options(brokers).root_certificates(files.join("authority.pem"));
    let shown = |brokers| {
        known(brokers).client_certificate(files.join("client.pem"), files.join("client.key"))
    };
    for works in [known(&open), shown(&strict)] {
        let nats = Nats::connect(works).await.unwrap();
        let once = nats.once("set").replicas(1).open().await.unwrap();
        assert!(matches!(once.claim("key").await, Ok(Claim::First(_))));
    }
    // Without the authority; without a certificate; a server without TLS.
    let refused = [options(&open), options(&open).require_tls(), known(&strict)];
    for refused in refused.into_iter().chain([known(&plain), options(&plain).require_tls()]) {
        let found = Nats::connect(refused).await.unwrap_err();
        assert!(matches!(found, NatsError::Unreachable { .. }), "{found:?}");
        println!("{found}");
    }
}

/// The configuration of the guide, with a second worker.
fn permissions() -> String {
    let begin = GUIDE.find("authorization {").unwrap();
    let block = &GUIDE[begin..begin + GUIDE[begin..].find("```").unwrap()];
    let (users, end) = block.rsplit_once("\n  ]").unwrap();
    let worker = &users[users.find("{ user: \"worker-7\"").unwrap()..];
    format!("{users}\n{}\n  ]{end}", worker.replace("-7", "-8"))
}

async fn connect(brokers: &Brokers, user: &str, worker: &str) -> Result<Nats, NatsError> {
    let (user, password) = user.split_once(':').unwrap();
    let options = Options::new("billing", worker).servers(brokers.servers());
    Nats::connect(options.user(user, password).request_timeout(SECOND)).await
}

fn accounts(nats: &Nats) -> PartitionSet {
    nats.partitions("accounts", 2).lease(SECOND).replicas(1)
}

async fn leases(nats: &Nats) -> Leases {
    nats.leases("jobs", 2).partition_lease(SECOND).replicas(1).join().await.unwrap()
}

fn clients(nats: &Nats) -> SessionSet {
    nats.sessions("clients", 2).timeout(8 * SECOND).partition_lease(SECOND).replicas(1)
}

/// Makes all streams of the guide.
async fn prepare(operator: &Nats) {
    for (name, subject, retention) in [
        ("lines", "lines.>", RetentionPolicy::WorkQueue),
        ("orders", "orders.>", RetentionPolicy::Limits),
        ("dead", "billing.dead.>", RetentionPolicy::Limits),
    ] {
        let (name, subjects) = (name.to_string(), vec![subject.to_string()]);
        let config = Config { name, subjects, retention, ..Config::default() };
        operator.context().create_stream(config).await.unwrap();
    }
    drop(accounts(operator).join().await.unwrap());
    leases(operator).await.leave().await;
    drop(operator.leader("chief").replicas(1).join().await.unwrap());
    clients(operator).join().await.unwrap().0.leave().await;
    operator.once("payments").replicas(1).open().await.unwrap();
    operator.timers("reminders").replicas(1).open().await.unwrap();
}

/// Writes and reads each partition that the worker comes to own, and then says so.
async fn own(nats: Nats, owned: mpsc::UnboundedSender<usize>, number: usize) {
    let mut partitions = accounts(&nats).join().await.unwrap();
    loop {
        match partitions.next().await.unwrap() {
            Change::Gained(held) => {
                let records = ["a", "b"].map(|key| (key, Some("value".into())));
                if held.write(records).await.is_ok() {
                    assert_eq!(held.load().await.unwrap().len(), 2);
                    owned.send(number).unwrap();
                }
            }
            Change::Losing(partition) => partitions.release(partition),
            Change::Lost(..) => {}
            change => panic!("{change:?}"),
        }
    }
}

async fn acquired(leases: &Leases, key: &str) -> Lease {
    loop {
        if let Ok(Some(lease)) = leases.acquire(key, 8 * SECOND).await {
            return lease;
        }
    }
}

/// Reads lines and due timers, and publishes orders. A line that does not decode is a dead letter.
async fn pipeline(nats: &Nats) -> expiry_topology::Topology {
    let decode = |incoming: &Incoming<'_>| String::from_utf8(incoming.payload.to_vec());
    let lines = nats.source(SourceOptions::new("lines", "parse"), decode).await.unwrap();
    let timers = nats.timers("reminders").replicas(1).open().await.unwrap();
    timers.after("cancelled", 60 * SECOND, "never").await.unwrap();
    assert!(timers.cancel("cancelled").await.unwrap());
    timers.after(nats.worker(), SECOND, "due").await.unwrap();
    let due = timers.due().dead_letters("billing.dead.reminders");
    let due = nats.source(due, decode).await.unwrap();
    let sinks = nats.sink(|line: &String| -> Result<Outgoing, String> {
        let (subject, payload) = ("orders.new".into(), line.clone().into());
        Ok(Outgoing { subject, payload, ..Outgoing::default() })
    });
    let topology = TopologyBuilder::new();
    let lines = topology.spout("lines", move |context| lines.spout(context));
    let due = topology.spout("due", move |context| due.spout(context));
    topology.bolt("orders", move |context| sinks.bolt(context)).shuffle(&lines).shuffle(&due);
    topology.start().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_the_guide_are_all_that_a_worker_needs() {
    let brokers = brokers(&permissions());
    let operator = connect(&brokers, "operator:secret-0", "operator").await.unwrap();
    prepare(&operator).await;
    let login = |n| (format!("worker-{n}:secret-{n}"), format!("worker-{n}"));
    let (owned, mut owners) = mpsc::unbounded_channel();
    let mut workers = Vec::new();
    for (place, n) in [7, 8].into_iter().enumerate() {
        let (user, name) = login(n);
        let nats = connect(&brokers, &user, &name).await.unwrap();
        tokio::spawn(own(nats.clone(), owned.clone(), place));
        let (sessions, ended) = clients(&nats).join().await.unwrap();
        workers.push((leases(&nats).await, sessions, ended, pipeline(&nats).await, nats));
    }
    let mut seen = [false; 2];
    while seen != [true; 2] {
        seen[limited("each worker owns a partition", owners.recv()).await.unwrap()] = true;
    }
    let owns = |(leases, sessions, ..): &(Leases, Sessions, _, _, _)| {
        leases.stats().partitions > 0 && sessions.stats().partitions > 0
    };
    until("each worker owns leases and sessions", async || workers.iter().all(owns)).await;
    // Each worker asks both owners.
    for (leases, sessions, ..) in &workers {
        for key in 0..8 {
            let lease = limited("a lease", acquired(leases, &format!("k{key}"))).await;
            lease.release().await.unwrap();
            let id = sessions.begin().await.unwrap();
            assert!(sessions.touch(id));
            sessions.end(id).await.unwrap();
        }
    }
    for (_, _, ended, ..) in &mut workers {
        assert!(limited("ends are told", ended.next()).await.is_some());
    }
    let nats = &workers[0].4;
    let leader = nats.leader("chief").replicas(1).join().await.unwrap();
    assert!(limited("it leads", leader.campaign()).await.unwrap().token() > 0);
    let once = nats.once("payments").replicas(1).open().await.unwrap();
    for answer in [None, Some("paid")] {
        match (once.claim("key").await.unwrap(), answer) {
            (Claim::First(guard), None) => guard.release().await.unwrap(),
            (Claim::First(mut guard), Some(answer)) => guard.done(answer).await.unwrap(),
            (other, _) => panic!("{other:?}"),
        }
    }
    assert!(matches!(once.claim("key").await, Ok(Claim::Done(_))));
    for line in [&b"one"[..], b"two", &[0xff]] {
        operator.context().publish("lines.text", line.into()).await.unwrap().await.unwrap();
    }
    // Two lines and the timers of two workers; a line that is no text; all of it acked.
    let timers = "billing+reminders+timers";
    for (stream, expected) in [("orders", 4), ("dead", 1), ("lines", 0), (timers, 0)] {
        let arrived = async || {
            let found = operator.context().get_stream(stream).await.unwrap();
            found.cached_info().state.messages.min(expected.max(1)) == expected
        };
        until(stream, arrived).await;
    }
    tokio::task::spawn_blocking(move || drop(workers)).await.unwrap();
}

/// The broker has seen what the client sent.
async fn answered(nats: &Nats) {
    nats.context().query_account().await.unwrap();
}

#[tokio::test]
async fn a_worker_cannot_speak_for_another_one() {
    let brokers = brokers(&permissions());
    let operator = connect(&brokers, "operator:secret-0", "operator").await.unwrap();
    let found = connect(&brokers, "worker-7:wrong", "worker-7").await.unwrap_err();
    assert!(matches!(found, NatsError::Denied { .. }), "{found:?}");
    let found = connect(&brokers, "worker-7:secret-7", "worker-8").await.unwrap_err();
    assert!(matches!(found, NatsError::Unanswered { .. }), "{found:?}");
    let worker = connect(&brokers, "worker-7:secret-7", "worker-7").await.unwrap();
    let client = worker.client();
    let of = |name| {
        ["partitions.accounts.beat", "leases.jobs.0", "leader.chief.0", "sessions.clients.0"]
            .map(|rest| format!("billing.{rest}.{name}"))
    };
    let mut arrived = operator.client().subscribe("billing.*.>").await.unwrap();
    answered(&operator).await;
    for subject in of("worker-8").into_iter().chain(of("worker-7")) {
        client.publish(subject, "a message".into()).await.unwrap();
    }
    for subject in of("worker-7") {
        let next = limited(&subject, arrived.next()).await.unwrap();
        assert_eq!(next.subject.as_str(), subject);
    }
    // It sees no answers to others, and makes, changes and deletes no stream.
    let mut answers = client.subscribe("_INBOX.billing.worker-8.>").await.unwrap();
    answered(&worker).await;
    operator.client().publish("_INBOX.billing.worker-8.1", "secret".into()).await.unwrap();
    answered(&operator).await;
    for verb in ["CREATE", "UPDATE", "DELETE"] {
        let subject = format!("$JS.API.STREAM.{verb}.lines");
        let asked = client.request(subject, "{}".into());
        assert!(tokio::time::timeout(SECOND / 2, asked).await.is_err(), "{verb}");
    }
    assert!(futures_util::FutureExt::now_or_never(answers.next()).is_none());
}
