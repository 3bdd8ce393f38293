//! A cache that speaks the Redis protocol, on `ExpiringMap` and tokio.
//!
//! ```sh
//! cargo run --release -p expiry-examples --bin cached -- --port 6379
//! ```

mod cache;
mod commands;
mod connections;
mod glob;
mod protocol;
mod snapshot;

use cache::Policy;
use clap::{value_parser, Parser};
use connections::Server;
use expiry_examples::{at_least_one, exit, Done};
use humantime::parse_duration;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::watch;

// glibc is slow at freeing what another thread has allocated, as the reaper does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many slow commands, as KEYS, run beside the workers. A thread keeps memory when it is idle,
/// too: 3 MB after a while.
const SLOW_COMMANDS: usize = 8;

/// A cache that speaks the Redis protocol. It asks for no password: let only friends reach it.
#[derive(Parser)]
pub struct Options {
    #[arg(long, default_value = "127.0.0.1")]
    bind: IpAddr,
    /// 0 for any that is free.
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// Threads that serve connections; one more expires keys.
    #[arg(long, default_value_t = 2, value_parser = at_least_one())]
    workers: usize,
    /// What all keys and values may weigh: bytes, or as "100mb".
    #[arg(long, alias = "maxmemory", value_parser = bytes)]
    max_memory: Option<usize>,
    /// What to do with a write beyond that.
    #[arg(long, alias = "maxmemory-policy", value_enum, default_value = "allkeys-s3fifo")]
    policy: Policy,
    /// The file to load at the start, and to save to at the end and for SAVE.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// How long a client may take from one request to the end of the next; 0s for ever.
    #[arg(long, value_parser = parse_duration, default_value = "0s")]
    idle: Duration,
    /// How long a connection is silent before the system probes whether the client's machine still
    /// answers; 0s for never. Three probes without an answer, a third of this apart, end the
    /// connection, also that of a subscriber.
    #[arg(long, value_parser = keepalive, default_value = "300s")]
    tcp_keepalive: Duration,
    /// How long a client may take to receive a batch of replies.
    #[arg(long, value_parser = parse_duration, default_value = "60s")]
    slow: Duration,
    /// Bytes of replies that may wait for a client, and of expired keys that may wait for all
    /// subscribers.
    #[arg(long, value_parser = bytes, default_value = "1gb")]
    output: usize,
    #[arg(long, default_value_t = 10_000, value_parser = value_parser!(u32).range(1..))]
    max_clients: u32,
}

/// The time of keepalive, which Linux counts in seconds, in 15 bits.
fn keepalive(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    match time.is_zero() || (1..1 << 15).contains(&time.as_secs()) {
        true => Ok(time),
        false => Err("it is 0s, or 1s to 32767s".to_string()),
    }
}

/// A number of bytes, or of "kb", "mb" or "gb" of 1,024 each, as in Redis's settings.
fn bytes(text: &str) -> Result<usize, String> {
    let lower = text.to_ascii_lowercase();
    let units = [("kb", 10), ("mb", 20), ("gb", 30), ("", 0)];
    let found = units.iter().find_map(|(unit, bits)| Some((lower.strip_suffix(unit)?, bits)));
    let number =
        found.and_then(|(digits, bits)| digits.parse::<usize>().ok()?.checked_mul(1 << bits));
    number.filter(|&number| number > 0).ok_or(format!("{text:?} is no number of bytes"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(options.workers).max_blocking_threads(SLOW_COMMANDS).enable_io();
    let runtime = runtime.build();
    exit(runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(serve(options))))
}

/// Serves until a signal asks for the end.
async fn serve(options: Options) -> Done {
    // Before it listens: a process that reaches the server may also stop it.
    let stopping = stopping()?;
    let (file, address) = (options.save.clone(), SocketAddr::new(options.bind, options.port));
    let server = Arc::new(Server::new(options)?);
    if let Some(file) = &file {
        println!("loaded {} keys", snapshot::load(file, &server.cache)?);
    }
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    server.clone().run(listener, stopping).await?;
    if let Some(file) = &file {
        println!("saved {} keys", snapshot::save(file, &server.cache)?);
    }
    Ok(())
}

/// Becomes true when the process is asked to end.
fn stopping() -> Done<watch::Receiver<bool>> {
    let (stop, stopping) = watch::channel(false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        // The server may have failed before.
        let _ = stop.send(true);
    });
    Ok(stopping)
}
