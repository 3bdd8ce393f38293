//! By the crate `redis`, which knows nothing of this server.

use super::Server;
use redis::{Commands, ExistenceCheck, Expiry, SetExpiry, SetOptions};
use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn a_client_sets_gets_counts_and_scans_in_both_versions_of_the_protocol() {
    let server = Server::start(&[]);
    for version in [2, 3] {
        let mut client = server.client(version);
        let () = redis::cmd("FLUSHALL").query(&mut client).unwrap();
        let () = client.set("k", b"\0\r\n".as_slice()).unwrap();
        assert_eq!(client.get::<_, Option<Vec<u8>>>("k").unwrap().unwrap(), b"\0\r\n");
        assert_eq!(client.get::<_, Option<String>>("none").unwrap(), None);
        let options = SetOptions::default().conditional_set(ExistenceCheck::NX);
        let options = options.with_expiration(SetExpiry::EX(100));
        assert!(!client.set_options::<_, _, bool>("k", "v", options).unwrap());
        assert!(client.set_options::<_, _, bool>("new", "v", options).unwrap());
        assert_eq!(client.ttl::<_, i64>("new").unwrap(), 100);
        let shown: String = client.get_ex("new", Expiry::PX(5000)).unwrap();
        assert_eq!(shown, "v");
        assert!((1..=5000).contains(&client.pttl::<_, i64>("new").unwrap()));
        assert_eq!(client.incr::<_, _, i64>("n", 41).unwrap(), 41);
        assert_eq!(client.incr::<_, _, f64>("n", 0.5).unwrap(), 41.5);
        assert!(client
            .incr::<_, _, i64>("k", 1)
            .unwrap_err()
            .to_string()
            .contains("not an integer"));
        let all: Vec<Option<String>> = client.mget(&["new", "none", "n"]).unwrap();
        assert_eq!(all, [Some("v".into()), None, Some("41.5".into())]);
        let mut pipe = redis::pipe();
        for key in 0..1000 {
            pipe.set(format!("p{key}"), key).ignore();
        }
        let () = pipe.query(&mut client).unwrap();
        let scanned: HashSet<String> = client.scan_match::<_, String>("p*").unwrap().collect();
        assert_eq!(scanned.len(), 1000);
    }
}

/// A subscriber hears of each key that expires, none early. The lateness is printed.
#[test]
fn each_key_that_expires_is_heard_of_once_and_not_early() {
    const KEYS: usize = 5000;
    let server = Server::start(&[]);
    let mut listener = server.client(2);
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut events = listener.as_pubsub();
    events.subscribe("__keyevent@0__:expired").unwrap();
    let mut client = server.client(2);
    let mut pipe = redis::pipe();
    for key in 0..KEYS {
        pipe.pset_ex(key, "v", 200 + key as u64 % 100).ignore();
    }
    let began = Instant::now();
    let () = pipe.query(&mut client).unwrap();
    let inserted = Instant::now();
    let (mut heard, mut latest) = (HashSet::new(), Duration::ZERO);
    while heard.len() < KEYS {
        let key: usize = events.get_message().unwrap().get_payload().unwrap();
        // A key was set after `began`; its milliseconds may have begun a millisecond before.
        let lifetime = Duration::from_millis(200 + key as u64 % 100);
        assert!(began.elapsed() + Duration::from_millis(1) >= lifetime, "{key} is early");
        latest = latest.max(inserted.elapsed().saturating_sub(lifetime));
        assert!(heard.insert(key), "{key} twice");
    }
    println!("{KEYS} keys heard of, at most {latest:?} late");
    assert_eq!(redis::cmd("DBSIZE").query::<usize>(&mut client).unwrap(), 0);
}

#[test]
fn keys_and_their_deadlines_outlive_a_server_that_is_terminated_with_clients() {
    let file = std::env::temp_dir().join(format!("cached-{}.snapshot", std::process::id()));
    let option = format!("--save={}", file.display());
    let server = Server::start(&[&option]);
    let mut client = server.client(2);
    let () = client.set("ever", "v").unwrap();
    let () = client.set_ex("hour", "v", 3600).unwrap();
    let () = client.pset_ex("moment", "v", 1).unwrap();
    let () = redis::cmd("SAVE").query(&mut client).unwrap();
    let deadline: i64 = client.expire_time("hour").unwrap();
    let () = client.set("late", "v").unwrap();
    assert!(server.terminate().starts_with("saved 3 keys"));
    let server = Server::start(&[&option]);
    let mut client = server.client(2);
    assert_eq!(client.expire_time::<_, i64>("hour").unwrap(), deadline);
    assert_eq!(redis::cmd("DBSIZE").query::<usize>(&mut client).unwrap(), 3);
    drop(server);
    fs::remove_file(file).unwrap();
}
