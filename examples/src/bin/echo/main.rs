//! An echo server with idle and request timeouts, and its clients.
//!
//! ```sh
//! cargo run --release -p expiry-examples --bin echo -- both
//! ```

mod clients;
mod server;

use clap::{builder::RangedU64ValueParser, Args, Parser, Subcommand};
use clients::ClientError;
use expiry::Timeouts;
use humantime::parse_duration;
use server::{Limits, Server};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

/// An echo server with idle and request timeouts, and its clients.
#[derive(Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves until it is stopped.
    Server {
        #[arg(long, default_value = "127.0.0.1:7007")]
        listen: SocketAddr,
        #[command(flatten)]
        limits: LimitOptions,
    },
    /// Sends lines to a server as fast as they come back.
    Load {
        server: SocketAddr,
        #[command(flatten)]
        load: LoadOptions,
    },
    /// A server and its load; then a client that is silent, and one that is slow, at a server that is strict.
    Both {
        #[command(flatten)]
        load: LoadOptions,
        /// What the strict server allows.
        #[arg(long, value_parser = parse_duration, default_value = "50ms")]
        strict: Duration,
    },
}

#[derive(Args)]
struct LimitOptions {
    /// How long a connection may be silent.
    #[arg(long, value_parser = parse_duration, default_value = "60s")]
    idle: Duration,
    /// How long a line may take, from its first byte until its echo is sent.
    #[arg(long, value_parser = parse_duration, default_value = "10s")]
    request: Duration,
}

#[derive(Args)]
struct LoadOptions {
    #[arg(long, default_value_t = 64, value_parser = at_least_one())]
    connections: usize,
    /// How long to send.
    #[arg(long = "for", value_parser = parse_duration, default_value = "500ms")]
    time: Duration,
}

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// For clients that are as fast as they can.
const LIMITS: Limits = Limits { idle: Duration::from_secs(60), request: Duration::from_secs(60) };

#[derive(Debug, thiserror::Error)]
enum EchoError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Build(#[from] expiry::BuildError),
    #[error(transparent)]
    Timer(#[from] expiry::timeouts::TimerError),
    #[error("the {who} client was disconnected after {after:?}, which is too early")]
    TooEarly { who: &'static str, after: Duration },
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Options::parse().command {
        Command::Server { listen, limits } => serve(listen, limits).await,
        Command::Load { server, load } => send(server, load).await,
        Command::Both { load, strict } => both(load, strict).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("echo: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(listen: SocketAddr, limits: LimitOptions) -> Result<(), EchoError> {
    let LimitOptions { idle, request } = limits;
    let timeouts = Arc::new(Timeouts::new()?);
    let server = Server::bind(listen, timeouts, Limits { idle, request }).await?;
    println!("listening on {}", server.address()?);
    let (told, mut ends) = unbounded_channel();
    tokio::spawn(async move {
        while let Some((peer, end)) = ends.recv().await {
            if let Err(error) = end {
                eprintln!("{peer}: {error}");
            }
        }
    });
    Ok(server.run(told).await?)
}

async fn send(server: SocketAddr, load: LoadOptions) -> Result<(), EchoError> {
    let load = clients::load(server, load.connections, load.time).await?;
    println!("{} lines, {:.0} a second", load.lines, load.per_second());
    Ok(())
}

/// A server that runs in this process.
async fn start(timeouts: &Arc<Timeouts>, limits: Limits) -> Result<SocketAddr, EchoError> {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(anywhere, timeouts.clone(), limits).await?;
    let address = server.address()?;
    tokio::spawn(server.run(unbounded_channel().0));
    Ok(address)
}

async fn both(load: LoadOptions, strict: Duration) -> Result<(), EchoError> {
    let timeouts = Arc::new(Timeouts::new()?);
    send(start(&timeouts, LIMITS).await?, load).await?;

    // Of the two limits of a strict server one is for the client that is to be disconnected by it.
    let (idle, request) = (strict, LIMITS.request);
    let address = start(&timeouts, Limits { idle, request }).await?;
    late_enough("silent", clients::silent(address).await?, strict)?;
    let (idle, request) = (LIMITS.idle, strict);
    let address = start(&timeouts, Limits { idle, request }).await?;
    let slow = clients::slow(address, strict / 10, &timeouts);
    late_enough("slow", slow.await?, strict)?;

    let metrics = timeouts.metrics();
    println!(
        "{} deadlines registered, {} came, at most {:?} late",
        metrics.registered,
        metrics.fired,
        metrics.lateness.quantile(1.0).unwrap_or_default()
    );
    println!("verdict: ok");
    Ok(())
}

fn late_enough(who: &'static str, after: Duration, limit: Duration) -> Result<(), EchoError> {
    println!("the {who} client was disconnected after {after:.1?}; the server allows {limit:?}");
    if after < limit {
        return Err(EchoError::TooEarly { who, after });
    }
    Ok(())
}
