//! What commands cost, beside `redis-server` where it is installed, with `redis-benchmark` as the
//! client: `cargo test --release -p expiry-examples --test cached -- --ignored load --nocapture`.

use super::tools::tool;
use super::Server;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The servers, which take turns.
fn servers() -> Vec<(&'static str, Server)> {
    let mut servers = vec![
        ("cached, 1 worker", Server::start(&["--workers=1"])),
        ("cached, 2 workers", Server::start(&["--workers=2"])),
    ];
    servers.extend(Server::redis(&[]).map(|redis| ("redis-server", redis)));
    servers
}

#[test]
#[ignore = "measures, for a minute"]
fn load_of_commands() {
    let value = "x".repeat(64);
    let commands = [
        ("SET", format!("SET key:__rand_int__ {value}")),
        ("GET", "GET key:__rand_int__".to_string()),
        ("SET EX", format!("SET key:__rand_int__ {value} EX 1000")),
        ("EXPIRE", "EXPIRE key:__rand_int__ 1000".to_string()),
        ("INCR", "INCR n:__rand_int__".to_string()),
    ];
    let servers = servers();
    let run = |server: &Server, depth: usize, total: usize, command: &str| {
        let options = format!("-q -c 50 -r 100000 -P {depth} -n {total} {command}");
        tool(server, "redis-benchmark", &options)
    };
    // So that nearly each GET and EXPIRE finds its key.
    servers.iter().for_each(|(_, server)| drop(run(server, 100, 500_000, &commands[0].1)));
    for (depth, total) in [(1, 50_000), (16, 500_000)] {
        for (name, command) in &commands {
            for (which, server) in &servers {
                let before = server.cpu();
                let Some(printed) = run(server, depth, total, command) else {
                    return;
                };
                let spent = (server.cpu() - before).as_secs_f64() * 1e6 / total as f64;
                let rate = printed.rsplit(" requests per second").nth(1).unwrap();
                let rate = rate.rsplit(' ').next().unwrap();
                println!(
                    "pipeline {depth:2}, {name:6}: {which:17}: {rate} a second, {spent:.2} s of \
                     processor time for a million"
                );
            }
        }
    }
}

#[test]
#[ignore = "measures, for half a minute"]
fn load_while_a_million_keys_expire_within_a_second() {
    for (which, server) in servers() {
        let mut stream = server.raw();
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let first = now() + Duration::from_secs(8);
        for batch in 0..1000 {
            let requests = (0..1000).map(|key| {
                let deadline = first.as_millis() + key;
                format!("SET {batch}-{key} v PXAT {deadline}\r\n")
            });
            stream.write_all(requests.collect::<String>().as_bytes()).unwrap();
            stream.read_exact(&mut [0; 5 * 1000]).unwrap();
        }
        thread::sleep(first.checked_sub(now()).expect("the keys were set too slowly"));
        let options = "-c 50 -n 60000 GET none";
        let Some(printed) = tool(&server, "redis-benchmark", options) else {
            return;
        };
        // "99.902% <= 1.367 milliseconds (cumulative count 59942)"
        let line = printed.split(['\r', '\n']).find(|line| line.starts_with("99.902% <="));
        println!("{which:17}: GET: {}", line.unwrap_or(&printed));
    }
}
