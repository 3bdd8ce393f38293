//! An echo server with idle and request timeouts, and its clients.
//!
//! ```sh
//! cargo run --release -p expiry-examples --bin echo -- both
//! ```

mod clients;
mod server;

use clap::{Args, Parser, Subcommand};
use expiry::Timeouts;
use expiry_examples::{at_least_one, exit, Done};
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
        /// How long a connection may be silent.
        #[arg(long, value_parser = parse_duration, default_value = "60s")]
        idle: Duration,
        /// How long a line may take, from its first byte until its echo is sent.
        #[arg(long, value_parser = parse_duration, default_value = "10s")]
        request: Duration,
    },
    /// Sends lines to a server as fast as they come back.
    Load {
        server: SocketAddr,
        #[command(flatten)]
        load: LoadOptions,
    },
    /// Runs a server under load; then strict servers with a silent client and with a slow one.
    Both {
        #[command(flatten)]
        load: LoadOptions,
        /// The limit of a strict server.
        #[arg(long, value_parser = parse_duration, default_value = "50ms")]
        strict: Duration,
    },
}

#[derive(Args)]
struct LoadOptions {
    #[arg(long, default_value_t = 64, value_parser = at_least_one())]
    connections: usize,
    /// How long to send.
    #[arg(long = "for", value_parser = parse_duration, default_value = "500ms")]
    time: Duration,
}

#[tokio::main]
async fn main() -> ExitCode {
    exit(match Options::parse().command {
        Command::Server { listen, idle, request } => serve(listen, Limits { idle, request }).await,
        Command::Load { server, load } => send(server, load).await,
        Command::Both { load, strict } => both(load, strict).await,
    })
}

async fn serve(listen: SocketAddr, limits: Limits) -> Done {
    let server = Server::bind(listen, Arc::new(Timeouts::new()?), limits).await?;
    println!("listening on {}", server.address()?);
    let (ended, mut ends) = unbounded_channel();
    tokio::spawn(async move {
        while let Some((peer, end)) = ends.recv().await {
            if let Err(error) = end {
                eprintln!("{peer}: {error}");
            }
        }
    });
    Ok(server.run(ended).await?)
}

async fn send(server: SocketAddr, load: LoadOptions) -> Done {
    let (lines, rate) = clients::load(server, load.connections, load.time).await?;
    println!("{lines} lines, {rate:.0} a second");
    Ok(())
}

/// Starts a server in this process.
async fn start(timeouts: &Arc<Timeouts>, limits: Limits) -> Done<SocketAddr> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::bind(any_port, timeouts.clone(), limits).await?;
    let address = server.address()?;
    tokio::spawn(server.run(unbounded_channel().0));
    Ok(address)
}

async fn both(load: LoadOptions, strict: Duration) -> Done {
    let timeouts = Arc::new(Timeouts::new()?);
    let ample = Duration::from_secs(60);
    send(start(&timeouts, Limits { idle: ample, request: ample }).await?, load).await?;

    // One of the two limits of a strict server is low: the one that the client is to exceed.
    let server = start(&timeouts, Limits { idle: strict, request: ample }).await?;
    late_enough("silent", clients::silent(server).await?, strict)?;
    let server = start(&timeouts, Limits { idle: ample, request: strict }).await?;
    late_enough("slow", clients::slow(server, strict / 10, &timeouts).await?, strict)?;

    let metrics = timeouts.metrics();
    let latest = metrics.lateness.quantile(1.0).unwrap_or_default();
    let (registered, fired) = (metrics.registered, metrics.fired);
    println!("{registered} deadlines registered, {fired} came, at most {latest:?} late");
    println!("verdict: ok");
    Ok(())
}

fn late_enough(client: &str, after: Duration, limit: Duration) -> Done {
    println!("the {client} client was disconnected after {after:.1?}; the server allows {limit:?}");
    if after < limit {
        return Err(format!("the {client} client was disconnected too early").into());
    }
    Ok(())
}
