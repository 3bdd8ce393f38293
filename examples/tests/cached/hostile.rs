//! Clients that are malformed, huge, slow, or many.

use super::{answer, Server};
use expiry_examples::eventually;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use redis::Commands;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_page_and_a_request_without_end_are_refused() {
    let server = Server::start(&[]);
    let page = answer(server.raw(), b"POST / HTTP/1.1\r\nHost: x\r\n\r\nSET a b\r\n");
    assert_eq!(page, "");
    assert_eq!(server.client(2).exists::<_, bool>("a").ok(), Some(false));
    assert_eq!(answer(server.raw(), &[b'x'; 70_000]).matches("too big inline").count(), 1);
}

/// Garbage, and frames with a byte changed, from several clients, while another one is served.
#[test]
fn a_client_is_served_while_others_send_garbage() {
    let seconds = std::env::var("CACHED_ATTACK_SECONDS").ok();
    let time = Duration::from_secs(seconds.map_or(1, |seconds| seconds.parse().unwrap()));
    let server = Server::start(&["--max-memory=64mb", "--slow=1s"]);
    let began = Instant::now();
    let frames: [&[u8]; 6] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n",
        b"*5\r\n$3\r\nSET\r\n$2\r\nk2\r\n$1\r\n1\r\n$2\r\nPX\r\n$1\r\n1\r\n",
        b"*2\r\n$9\r\nSUBSCRIBE\r\n$22\r\n__keyevent@0__:expired\r\n",
        b"*4\r\n$4\r\nSCAN\r\n$1\r\n0\r\n$5\r\nMATCH\r\n$6\r\n[^a*?-\r\n",
        b"*3\r\n$6\r\nAPPEND\r\n$1\r\nk\r\n$4\r\nmore\r\n",
        b"MSETNX a 'b' \"c\" d\r\nHELLO 3\r\nKEYS *\r\nINCR n\r\nCOMMAND\r\n",
    ];
    let attack = |seed| {
        let mut random = SmallRng::seed_from_u64(seed);
        while began.elapsed() < time {
            let mut bytes = Vec::new();
            for _ in 0..random.random_range(1..50) {
                bytes.extend(frames[random.random_range(0..frames.len())]);
            }
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            let mut stream = server.raw();
            for piece in bytes.chunks(random.random_range(1..200)) {
                if stream.write_all(piece).is_err() {
                    break;
                }
            }
            if random.random() {
                // Most have been closed by the server; the others take what is there, and go.
                let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                let _ = stream.read(&mut [0; 4096]);
            }
        }
    };
    thread::scope(|scope| {
        (0..3).for_each(|seed| drop(scope.spawn(move || attack(seed))));
        let mut client = server.client(3);
        let (mut served, mut slowest) = (0u64, Duration::ZERO);
        while began.elapsed() < time {
            let asked = Instant::now();
            let () = client.set("mine", served).unwrap();
            assert_eq!(client.get::<_, u64>("mine").unwrap(), served);
            slowest = slowest.max(asked.elapsed());
            served += 1;
        }
        println!("{served} times served, in {slowest:?} at most; {} kB", server.memory());
    });
    assert!(server.memory() < 300_000, "{} kB", server.memory());
}

/// A bulk that is announced takes memory only as it comes.
#[test]
fn announced_bulks_and_arrays_take_no_memory() {
    let server = Server::start(&[]);
    let before = server.memory();
    let mut streams: Vec<_> = (0..50).map(|_| server.raw()).collect();
    for stream in &mut streams {
        stream.write_all(b"*1048576\r\n$3\r\nSET\r\n$536870911\r\nx").unwrap();
    }
    let _: String = redis::cmd("PING").query(&mut server.client(2)).unwrap();
    let grown = server.memory().saturating_sub(before);
    // 64 kB are reserved for each.
    assert!(grown < 20_000, "{grown} kB");
}

/// Each thread keeps memory. A slow command that takes the place of a worker needs another thread.
#[test]
fn slow_commands_of_many_clients_take_few_threads() {
    let server = Server::start(&["--workers=2"]);
    let mut client = server.client(2);
    for keys in 0..40 {
        let pairs: Vec<_> = (0..1000).map(|key| (keys * 1000 + key, key)).collect();
        let () = client.mset(&pairs).unwrap();
    }
    let mut streams: Vec<_> = (0..64).map(|_| server.raw()).collect();
    for stream in &mut streams {
        stream.write_all(b"KEYS none*\r\n").unwrap();
    }
    for stream in &mut streams {
        stream.read_exact(&mut [0; 4]).unwrap();
    }
    let threads = server.status("Threads:");
    assert!(threads < 20, "{threads} threads");
}

/// A request of a million words, word by word, takes time in proportion to its length.
#[test]
fn a_long_request_in_small_pieces_is_read_in_linear_time() {
    let server = Server::start(&[]);
    let mut stream = server.raw();
    let mut bytes = b"*1048576\r\n$6\r\nEXISTS\r\n".to_vec();
    bytes.extend(b"$1\r\nk\r\n".repeat(1_048_575));
    for piece in bytes.chunks(1000) {
        stream.write_all(piece).unwrap();
    }
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b":0\r\n");
    println!("{:?} of processor time", server.cpu());
    assert!(server.cpu() < Duration::from_secs(20), "{:?}", server.cpu());
}

/// Whether the server ends the connection; it may have sent something before.
fn ends(stream: &mut TcpStream) -> bool {
    let mut bytes = vec![0; 1 << 20];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_client_that_takes_no_replies_is_disconnected_and_holds_little_memory() {
    let server = Server::start(&["--slow=300ms"]);
    let () = server.client(2).set("large", vec![b'x'; 1 << 20]).unwrap();
    let before = server.memory();
    let mut streams: Vec<_> = (0..20).map(|_| server.raw()).collect();
    for stream in &mut streams {
        stream.write_all(&b"GET large\r\n".repeat(1000)).unwrap();
    }
    // Each waits with one reply, of the thousand that it has asked for.
    let grown = server.memory().saturating_sub(before);
    assert!(grown < 20 * 4096, "{grown} kB");
    let (mut client, began) = (server.client(2), Instant::now());
    while !redis::cmd("INFO").query::<String>(&mut client).unwrap().contains("clients:1\r\n") {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    assert!(streams.iter_mut().all(ends));
    assert_eq!(server.client(2).exists::<_, bool>("large").ok(), Some(true));
}

#[test]
fn a_reply_beyond_the_limit_ends_the_connection() {
    let server = Server::start(&["--output=1mb"]);
    let () = server.client(2).set("large", vec![b'x'; 1 << 19]).unwrap();
    let mut stream = server.raw();
    stream.write_all(b"MGET large large large large\r\n").unwrap();
    assert!(ends(&mut stream));
}

#[test]
fn a_silent_client_is_disconnected_after_its_time_and_a_subscriber_is_not() {
    let server = Server::start(&["--idle=200ms"]);
    let mut subscriber = server.raw();
    subscriber.write_all(b"SUBSCRIBE __keyevent@0__:expired\r\n").unwrap();
    let (mut silent, mut dribbles) = (server.raw(), server.raw());
    let began = Instant::now();
    // A byte now and then is no request.
    let dribbler = thread::spawn(move || {
        while dribbles.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(ends(&mut silent));
    assert!(began.elapsed() >= Duration::from_millis(199), "{:?}", began.elapsed());
    dribbler.join().unwrap();
    let mut client = server.client(2);
    let () = client.pset_ex("k", "v", 1).unwrap();
    let (mut heard, mut bytes) = (String::new(), [0; 1000]);
    while !heard.contains("message") {
        let length = subscriber.read(&mut bytes).unwrap();
        assert_ne!(length, 0);
        heard += &String::from_utf8_lossy(&bytes[..length]);
    }
}

/// The timer that Linux has of the server's end of a connection, as in `/proc/net/tcp`: its kind,
/// and in how many hundredths of a second it fires.
fn timer(server: &Server, client: &TcpStream) -> (u8, u64) {
    let end = |address: SocketAddr| format!(" 0100007F:{:04X}", address.port());
    let line = end(client.peer_addr().unwrap()) + &end(client.local_addr().unwrap());
    let table = fs::read_to_string(format!("/proc/{}/net/tcp", server.process.id())).unwrap();
    let line = table.lines().find(|found| found.contains(&line)).unwrap();
    let (kind, when) = line.split_whitespace().nth(5).unwrap().split_once(':').unwrap();
    (u8::from_str_radix(kind, 16).unwrap(), u64::from_str_radix(when, 16).unwrap())
}

#[test]
fn the_system_probes_a_silent_connection_after_the_time_of_keepalive() {
    const KEEPALIVE: u8 = 2;
    for (options, most) in [(&[][..], 300), (&["--tcp-keepalive=20s"], 20)] {
        let server = Server::start(options);
        let mut client = server.raw();
        client.write_all(b"SUBSCRIBE any\r\n").unwrap();
        client.read_exact(&mut [0; 32]).unwrap();
        // The timer of the reply goes first.
        let when = eventually(|| {
            let (kind, when) = timer(&server, &client);
            (kind == KEEPALIVE).then_some(when)
        });
        assert!((1..=most * 100).contains(&when), "{when}");
    }
    let server = Server::start(&["--tcp-keepalive=0s"]);
    let mut client = server.raw();
    client.write_all(b"PING\r\n").unwrap();
    client.read_exact(&mut [0; 7]).unwrap();
    eventually(|| (timer(&server, &client).0 == 0).then_some(()));
}

#[test]
fn a_subscriber_that_does_not_listen_is_disconnected_and_delays_no_expiration() {
    let server = Server::start(&["--slow=300ms"]);
    let mut subscriber = server.raw();
    subscriber.write_all(b"SUBSCRIBE __keyevent@0__:expired\r\n").unwrap();
    let mut client = server.client(2);
    for round in 0..100 {
        let mut pipe = redis::pipe();
        for key in 0..2000 {
            pipe.pset_ex(format!("{}-{round}-{key}", "key".repeat(30)), "v", 1).ignore();
        }
        let () = pipe.query(&mut client).unwrap();
    }
    assert!(ends(&mut subscriber));
    let (began, size) = (Instant::now(), redis::cmd("DBSIZE"));
    while size.query::<usize>(&mut client).unwrap() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

/// How many connections a process may have here, of those that a test would like.
fn connections(wanted: usize) -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let limit: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(usize::MAX);
    wanted.min(limit.saturating_sub(200))
}

#[test]
fn idle_connections_are_cheap() {
    let server = Server::start(&["--idle=1h"]);
    let (number, before) = (connections(9000), server.memory());
    // One after the other: a connection that finds the listener's queue full waits for a second.
    let connect = |_| {
        let mut stream = server.raw();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; 7]).unwrap();
        stream
    };
    let _streams: Vec<_> = (0..number).map(connect).collect();
    let each = server.memory().saturating_sub(before) * 1024 / number;
    let spent = server.cpu();
    println!("{number} idle connections: {each} bytes each, {spent:?} of processor time");
    assert!(each < 4096, "{each} bytes");
}

#[test]
fn beyond_the_most_clients_another_one_is_told_so() {
    let server = Server::start(&["--max-clients=2"]);
    let (_one, mut two) = (server.client(2), server.raw());
    two.write_all(b"PING\r\n").unwrap();
    two.read_exact(&mut [0; 7]).unwrap();
    assert_eq!(answer(server.raw(), b""), "-ERR max number of clients reached\r\n");
    drop(two);
    let began = Instant::now();
    while server.open(2).get_connection().is_err() {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}
