//! The example `cached`, driven as strangers do: by a client crate, by Redis's own tools, and by
//! clients that mean no good.

mod client;
mod compare;
mod hostile;
mod load;
mod tools;

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A server of its own for a test, which ends with it.
struct Server {
    process: Child,
    printed: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(options: &[&str]) -> Self {
        let mut server = Command::new(env!("CARGO_BIN_EXE_cached"));
        server.args(["--port=0"]).args(options).stdout(Stdio::piped()).stderr(Stdio::null());
        let (mut server, line) = Self::listening(server.spawn().unwrap(), "listening on ");
        server.address = line["listening on ".len()..].trim().to_string();
        server
    }

    /// Redis's own server; `None` where it is not installed.
    fn redis(options: &[&str]) -> Option<Self> {
        // Another process could take the port in between: the server ends then, and so the test.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut server = Command::new("redis-server");
        server.args(["--port", &free.port().to_string(), "--save", ""]).args(options);
        let process = installed("redis-server", server.stdout(Stdio::piped()).spawn())?;
        let (mut server, _) = Self::listening(process, "Ready to accept connections");
        server.address = free.to_string();
        Some(server)
    }

    /// A process that prints this when it listens, and that line.
    fn listening(mut process: Child, text: &str) -> (Self, String) {
        let mut printed = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(printed.read_line(&mut line).unwrap(), 0, "it does not listen");
        }
        (Server { process, printed, address: String::new() }, line)
    }

    /// A client's connection, for `version` 2 or 3 of the protocol.
    fn client(&self, version: u8) -> redis::Connection {
        self.open(version).get_connection().unwrap()
    }

    fn open(&self, version: u8) -> redis::Client {
        let address = format!("redis://{}/?protocol=resp{version}", self.address);
        redis::Client::open(address).unwrap()
    }

    /// A connection for bytes.
    fn raw(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Asks for the end by a signal, and returns what the server prints after that.
    fn terminate(mut self) -> String {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let mut rest = String::new();
        self.printed.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
        rest
    }

    /// The server's memory, in kilobytes.
    fn memory(&self) -> usize {
        self.status("VmRSS:")
    }

    /// A number of what the system says of the server's process.
    fn status(&self, name: &str) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// The processor's time that the server has taken.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks = |at: usize| fields[at].parse::<u64>().unwrap();
        Duration::from_millis(10 * (ticks(11) + ticks(12))) // Linux has 100 ticks a second
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill().and_then(|()| self.process.wait());
    }
}

/// What came of starting a tool of Redis; `None` where it is not installed, which is printed.
fn installed<T>(name: &str, started: io::Result<T>) -> Option<T> {
    match started {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("not run: {name} is missing (apt-get install redis-server redis-tools)");
            None
        }
        started => Some(started.unwrap()),
    }
}

/// Sends bytes, and returns all that comes until the server closes the connection.
fn answer(mut stream: TcpStream, bytes: &[u8]) -> String {
    // The server may close the connection before it has read all.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
