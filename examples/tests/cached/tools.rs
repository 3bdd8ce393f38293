//! By `redis-cli` and `redis-benchmark`, where they are installed: Debian's package `redis-tools`.

use super::{installed, Server};
use std::process::Command;

/// What a tool prints for these arguments; `None` where it is not installed.
pub(super) fn tool(server: &Server, name: &str, arguments: &str) -> Option<String> {
    let (host, port) = server.address.rsplit_once(':').unwrap();
    let mut tool = Command::new(name);
    tool.args(["-h", host, "-p", port]).args(arguments.split(' '));
    let output = installed(name, tool.output())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{name} {arguments}: {text}");
    Some(text)
}

#[test]
fn redis_cli_talks_to_it() {
    let server = Server::start(&[]);
    for (arguments, wanted) in [
        ("SET k v EX 100", "OK\n"),
        ("TTL k", "100\n"),
        ("-3 GET k", "v\n"),
        ("--scan", "k\n"),
        ("INCR k", "ERR value is not an integer or out of range\n\n"),
    ] {
        if let Some(printed) = tool(&server, "redis-cli", arguments) {
            assert_eq!(printed, wanted, "{arguments}");
        }
    }
}

#[test]
fn redis_benchmark_runs_on_it() {
    let server = Server::start(&[]);
    let arguments = "-q -n 20000 -r 1000 -P 16 -t set,get,incr,mset,ping";
    if let Some(printed) = tool(&server, "redis-benchmark", arguments) {
        assert!(printed.contains("GET: "), "{printed}");
        println!("{printed}");
    }
}
