//! What commands cost: `cargo test --release -p expiry-examples --test cached -- --ignored load`.

use super::Server;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

const CLIENTS: usize = 16;
const KEYS: usize = 100_000;

/// A request for a key, and the length of its reply, or 0 where that is not known.
type Request = fn(usize) -> (String, usize);

/// Sends requests in batches of `depth` for each client, and waits for `length` bytes of replies.
fn drive(server: &Server, depth: usize, batches: usize, request: Request) {
    let work = |client: usize| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut key, mut replies) = (client * 7919, Vec::new());
        // The same batches again and again, so that this loop costs little beside the server.
        let all: Vec<_> = (0..batches.min(KEYS / depth))
            .map(|_| {
                let (mut bytes, mut wanted) = (String::new(), 0);
                for _ in 0..depth {
                    key = (key + 7919) % KEYS;
                    let (words, reply) = request(key);
                    bytes += &format!("*{}\r\n", words.split(' ').count());
                    words
                        .split(' ')
                        .for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
                    wanted += reply;
                }
                (bytes, wanted)
            })
            .collect();
        for (bytes, wanted) in all.iter().cycle().take(batches) {
            stream.write_all(bytes.as_bytes()).unwrap();
            replies.resize(*wanted, 0);
            if *wanted > 0 {
                stream.read_exact(&mut replies).unwrap();
            } else {
                // Replies of unknown length: as many lines as requests.
                let mut lines = 0;
                replies.resize(4096, 0);
                while lines < depth {
                    let length = stream.read(&mut replies).unwrap();
                    assert_ne!(length, 0);
                    lines += replies[..length].iter().filter(|&&byte| byte == b'\n').count();
                }
            }
        }
    };
    let work = &work;
    thread::scope(|scope| {
        (0..CLIENTS).for_each(|client| drop(scope.spawn(move || work(client))));
    });
}

#[test]
#[ignore = "measures, for some seconds"]
fn load() {
    const VALUE: &str = "0123456789012345678901234567890123456789012345678901234567890123";
    let commands: [(&str, Request); 5] = [
        ("SET", |key| (format!("SET key:{key:06} {VALUE}"), 5)),
        ("GET", |key| (format!("GET key:{key:06}"), 5 + 64 + 2)),
        ("SET EX", |key| (format!("SET key:{key:06} {VALUE} EX 1000"), 5)),
        ("EXPIRE", |key| (format!("EXPIRE key:{key:06} 1000"), 4)),
        ("INCR", |key| (format!("INCR n:{key:06}"), 0)),
    ];
    for workers in [1, 2] {
        let server = Server::start(&[&format!("--workers={workers}")]);
        // All keys, so that each GET and EXPIRE finds one.
        let mut stream = server.raw();
        for key in 0..KEYS {
            stream.write_all(format!("SET key:{key:06} {VALUE}\r\n").as_bytes()).unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
        }
        for depth in [1, 16] {
            for (name, request) in commands {
                let total = if depth == 1 { 100_000 } else { 2_000_000 };
                let (spent, began) = (server.cpu(), Instant::now());
                drive(&server, depth, total / depth / CLIENTS, request);
                let (spent, time) = (server.cpu() - spent, began.elapsed());
                let million = |time: Duration| time.as_secs_f64() * 1e6 / total as f64;
                println!(
                    "{workers} workers, pipeline {depth:2}, {name:6}: {:.2} s of processor time for \
                     a million commands, {:.0} a second",
                    million(spent),
                    1e6 / million(time),
                );
            }
        }
    }
}
