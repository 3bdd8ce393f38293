use super::*;
use crate::protocol::Requests;
use crate::Options;
use clap::Parser;
use expiry_examples::eventually;
use std::thread;

fn server(options: &[&str]) -> Arc<Server> {
    let options = ["cached"].iter().chain(options);
    Arc::new(Server::new(Options::parse_from(options)).unwrap())
}

fn session(server: &Arc<Server>) -> Session {
    Session::new(server.clone(), 1)
}

/// The reply, with its line ends as spaces.
fn ask(session: &mut Session, line: &str) -> String {
    let mut requests = Requests::default();
    requests.room().extend_from_slice(format!("{line}\r\n").as_bytes());
    while let Some(request) = requests.next().unwrap() {
        session.execute(request);
    }
    let reply = String::from_utf8(std::mem::take(&mut session.replies.bytes)).unwrap();
    reply.replace("\r\n", " ").trim_end().to_string()
}

#[test]
fn commands_stand_by_name_and_are_found_in_capitals_or_not() {
    assert!(COMMANDS.windows(2).all(|two| two[0].name < two[1].name));
    for command in COMMANDS {
        assert_eq!(find(command.name.to_uppercase().as_bytes()).unwrap().name, command.name);
    }
    assert!(find(b"").is_none() && find(b"getx").is_none() && find(&[b'x'; 1000]).is_none());
}

#[test]
fn a_scan_in_parts_meets_each_key_once() {
    let server = server(&[]);
    let mut session = session(&server);
    for key in 0..5000 {
        server.cache.insert(key.to_string().as_bytes(), Stored::new(b"", None)).unwrap();
    }
    let (mut cursor, mut seen, mut calls) = ("0".to_string(), Vec::new(), 0);
    loop {
        let reply = ask(&mut session, &format!("scan {cursor} count 100"));
        let mut words = reply.split(' ').filter(|word| !word.starts_with(['*', '$']));
        cursor = words.next().unwrap().to_string();
        seen.extend(words.map(str::to_string));
        calls += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!((seen.len(), calls), (5000, 50));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5000);
}

#[test]
fn a_request_for_too_many_subscriptions_is_refused_as_a_whole() {
    let mut session = session(&server(&[]));
    let names = |number: usize| (0..number).map(|name| format!(" {name}")).collect::<String>();
    let refused = "-ERR a connection may have at most 1024 subscriptions";
    assert_eq!(ask(&mut session, &format!("psubscribe{}", names(1025))), refused);
    assert_eq!(ask(&mut session, "get k"), "$-1");
    assert!(ask(&mut session, &format!("psubscribe{}", names(1024))).ends_with(" 1023 :1024"));
    assert_eq!(ask(&mut session, "subscribe one"), refused);
    ask(&mut session, "punsubscribe 0");
    assert_eq!(ask(&mut session, "subscribe one"), "*3 $9 subscribe $3 one :1024");
}

#[test]
fn an_option_has_its_value_or_is_refused_beyond_its_range() {
    let mut session = session(&server(&["--max-memory=7gb"]));
    let memory = ask(&mut session, "config get maxmemory");
    assert_eq!(memory, "*2 $9 maxmemory $10 7516192768");
    for option in ["--max-clients=0", "--max-clients=4294967296", "--tcp-keepalive=32768s"] {
        let error = Options::try_parse_from(["cached", option]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("invalid value"), "{error}");
    }
    server(&["--max-clients=4294967295", "--tcp-keepalive=32767s"]);
}

#[test]
fn a_full_memory_evicts_or_refuses_by_weight() {
    let value = "v".repeat(880);
    let fill = |policy| {
        let server = server(&["--maxmemory=100000", "--maxmemory-policy", policy]);
        let mut session = session(&server);
        let replies: Vec<_> =
            (0..300).map(|key| ask(&mut session, &format!("set {key:03} {value}"))).collect();
        (server, session, replies.iter().filter(|reply| *reply == "+OK").count())
    };
    for policy in ["allkeys-s3fifo", "allkeys-lru", "volatile-ttl"] {
        let (server, _, done) = fill(policy);
        assert_eq!((done, server.cache.map.len()), (300, 99), "{policy}");
    }
    let (server, mut session, done) = fill("noeviction");
    assert_eq!((done, server.cache.map.len()), (99, 99));
    let oom = "-OOM command not allowed when used memory > 'maxmemory'.";
    assert_eq!(ask(&mut session, "set x y"), "+OK"); // 121 of the 703 left
    for _ in 0..20 {
        assert_eq!(ask(&mut session, "set x z"), "+OK");
    }
    assert_eq!(ask(&mut session, &format!("append x {value}")), oom);
    assert_eq!(ask(&mut session, "get x"), "$1 z");
    // An entry of the old one's weight takes its place.
    assert_eq!(ask(&mut session, "expire 002 100"), ":1");
    assert_eq!(ask(&mut session, &format!("set 002 {value}")), "+OK");
    assert_eq!(ask(&mut session, "del 001"), ":1");
    assert_eq!(ask(&mut session, &format!("set 001 {value}")), "+OK");
    ask(&mut session, "flushall");
    assert_eq!(ask(&mut session, &format!("set 001 {value}")), "+OK");
}

#[test]
fn counters_of_many_clients_lose_nothing_and_at_most_one_msetnx_wins() {
    let server = server(&[]);
    let work = || {
        let mut session = session(&server);
        let won = (0..500).filter(|n| {
            ask(&mut session, "incr n");
            ask(&mut session, &format!("msetnx a{n} 1 b{n} 1")) == ":1"
        });
        won.count()
    };
    let won: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(won <= 500, "{won}");
    assert_eq!(ask(&mut session(&server), "get n"), "$4 1500");
}

#[test]
fn each_key_that_expires_is_heard_of_once_for_each_subscription_and_no_other() {
    let server = server(&[]);
    let (mut writer, mut reader) = (session(&server), session(&server));
    ask(&mut reader, "subscribe __keyevent@0__:expired other");
    ask(&mut reader, "psubscribe __key*__:expired");
    ask(&mut writer, "mset removed 1 replaced 1");
    ask(&mut writer, "del removed");
    ask(&mut writer, "set replaced 2");
    ask(&mut writer, "set over 1 px 1");
    let mut events = reader.events.take().unwrap();
    let key = eventually(|| events.try_recv().ok());
    reader.tell(&key.unwrap()).unwrap();
    assert_eq!(
        ask(&mut reader, "ping"),
        "*3 $7 message $22 __keyevent@0__:expired $4 over *4 $8 pmessage $16 __key*__:expired \
         $22 __keyevent@0__:expired $4 over +PONG"
    );
    ask(&mut writer, "set last 1 px 1");
    assert_eq!(*eventually(|| events.try_recv().ok().flatten()), *b"last");
}
