//! Refusals of `Nats::connect`, against a server that this test plays. The modules start brokers.
//! libtest begins tests in the order of their names. Those of `front_ends` take longest, so others
//! run beside them.
#![cfg(all(feature = "brokers", feature = "topology"))]

mod front_ends;
mod keys;
mod leases;
mod owners;
mod partitioned;
mod pipeline;
mod rig;
mod secure;

use expiry_nats::brokers::Brokers;
use expiry_nats::{Nats, NatsError, Options};
use std::future::Future;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Longer than a client takes for anything here.
const MINUTE: Duration = Duration::from_secs(60);

/// Asks the brokers: again and again, while a majority of them may be gone.
fn joined<T, F: Future<Output = Result<T, NatsError>>>(
    worker: &rig::Worker,
    ask: impl Fn() -> F,
) -> T {
    let began = Instant::now();
    loop {
        match worker.runtime.block_on(ask()) {
            Ok(answer) => return answer,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(40), "{error}"),
        }
    }
}

/// Plays a server: greets each client with this version, and answers each line. `None` closes the
/// connection. Returns the server's address.
fn played(
    version: &str,
    mut answer: impl FnMut(&str) -> Option<&'static str> + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let info = format!(
        "INFO {{\"server_id\":\"S\",\"server_name\":\"s\",\"version\":\"{version}\",\"host\":\"h\",\
         \"port\":1,\"max_payload\":1048576,\"proto\":1,\"headers\":true,\"go\":\"go\",\
         \"nonce\":\"n\"}}\r\n"
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.write_all(info.as_bytes()).unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let mut answers = lines.map_while(|line| answer(&line.ok()?));
            while answers.next().is_some_and(|it| stream.write_all(it.as_bytes()).is_ok()) {}
        }
    });
    address
}

/// Plays a server that answers `PING`.
fn server(version: &str, answer: &'static str) -> String {
    played(version, move |line| Some(if line.starts_with("PING") { answer } else { "" }))
}

async fn refused(app: &str, worker: &str, server: &str) -> NatsError {
    let options =
        Options::new(app, worker).servers([server]).request_timeout(Duration::from_millis(500));
    Nats::connect(options).await.unwrap_err()
}

#[tokio::test]
async fn names_are_checked_before_a_server_is_asked() {
    for name in ["", "a.b", "a b", "*", ">", "ä", &"x".repeat(65)] {
        let (what, name) = ("worker", name.to_string());
        let found = refused("app", &name, "127.0.0.1:1").await;
        assert_eq!(found, NatsError::Name { what, name: name.clone() });
        let found = refused(&name, "worker", "127.0.0.1:1").await;
        assert_eq!(found, NatsError::Name { what: "application", name });
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_named_without_its_password() {
    for (before, shown) in [("nats://", "nats://127.0.0.1:1"), ("", "127.0.0.1:1")] {
        let server = format!("{before}user:sec@ret@127.0.0.1:1");
        let found = refused("app", "worker", &server).await;
        assert!(matches!(found, NatsError::Unreachable { .. }), "{found:?}");
        let options = Options::new("app", "worker").servers([server]);
        for text in [found.to_string(), format!("{found:?}"), format!("{options:?}")] {
            let hides = !text.contains("sec") && !text.contains("ret");
            assert!(text.contains(shown) && hides, "{text}");
        }
    }
}

#[tokio::test]
async fn an_old_server_is_named() {
    let old = server("2.11.9", "PONG\r\n");
    let client = async_nats::connect(&old).await.unwrap();
    let of_client = Nats::with_client(Options::new("app", "worker"), client).await.unwrap_err();
    for refused in [refused("app", "worker", &old).await, of_client] {
        let (found, needed) = ("2.11.9".to_string(), "2.12.0");
        assert_eq!(refused, NatsError::TooOld { found, needed });
    }
}

#[tokio::test]
async fn refused_credentials_are_a_refusal() {
    let strict = server("2.12.8", "-ERR 'Authorization Violation'\r\n");
    let found = refused("app", "worker", &strict).await;
    assert!(matches!(found, NatsError::Denied { .. }), "{found:?}");
    let options = Options::new("app", "worker").credentials("/no/such.creds");
    let found = Nats::connect(options).await.unwrap_err();
    assert!(matches!(found, NatsError::Denied { .. }), "{found:?}");
}

/// Credentials expire, and are replaced in their file.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn each_connection_reads_the_credentials_anew() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("replaced.creds");
    let of = file.clone();
    let replace = move |jwt: &str| {
        let seed = nkeys::KeyPair::new_user().seed().unwrap();
        let jwt = format!("-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n");
        let seed =
            format!("-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n");
        std::fs::write(&of, jwt + &seed).unwrap();
    };
    replace("first");
    let (tell, told) = mpsc::channel();
    let (hear, heard) = mpsc::channel();
    let server = played("2.12.8", move |line| match line.split(' ').next() {
        Some("CONNECT") => {
            replace("second");
            tell.send(line.to_string()).unwrap();
            Some("")
        }
        Some("PING") => Some("PONG\r\n"),
        _ => None,
    });
    let options = Options::new("app", "worker").servers([server]).credentials(file);
    let options = options.on_event(move |event| drop(hear.send(event.to_string())));
    let asks = tokio::spawn(Nats::connect(options.request_timeout(MINUTE)));
    let told = [(); 2].map(|()| told.recv_timeout(MINUTE).expect("the client connects again"));
    assert!(told[0].contains("\"first\"") && told[1].contains("\"second\""), "{told:?}");
    while heard.recv_timeout(MINUTE).expect("the client says so") != "disconnected" {}
    asks.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_prefix_leads_to_the_api_of_a_domain() {
    let (tell, told) = mpsc::channel();
    let server = played("2.12.8", move |line| {
        tell.send(line.to_string()).unwrap();
        Some(if line.starts_with("PING") { "PONG\r\n" } else { "" })
    });
    let options = Options::new("app", "worker").servers([server]).api_prefix("$JS.hub.API");
    let asks = tokio::spawn(Nats::connect(options.request_timeout(MINUTE)));
    let is_asked = |line: String| line.starts_with("PUB $JS.hub.API.INFO ");
    while !is_asked(told.recv_timeout(MINUTE).expect("the client asks")) {}
    asks.abort();
}

#[tokio::test]
async fn brokers_that_do_not_answer_are_waited_for_as_long_as_asked() {
    let silent = server("2.12.8", "PONG\r\n");
    let found = refused("app", "worker", &silent).await;
    let (what, after) = ("connect", Duration::from_millis(500));
    assert_eq!(found, NatsError::Unanswered { what, after });
}

#[test]
fn brokers_end_with_a_process_whose_terminal_hangs_up() {
    const NAME: &str = "brokers_end_with_a_process_whose_terminal_hangs_up";
    if std::env::var_os(NAME).is_some() {
        let brokers = Brokers::start(1).unwrap_or_else(|error| panic!("{error}"));
        println!("{}", brokers.servers()[0]);
        loop {
            std::thread::park();
        }
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([NAME, "--exact", "--nocapture"]).env(NAME, "").stdout(Stdio::piped());
    let mut child = child.process_group(0).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut servers = lines.filter_map(|line| Some(line.split_once("nats://")?.1.to_string()));
    let server = servers.next().expect("the broker runs");
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-s", "HUP", "--", &group]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
    let began = Instant::now();
    while TcpStream::connect(&server).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(20), "{server} runs on");
        std::thread::yield_now();
    }
}
