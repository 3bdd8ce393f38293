//! Calls over one connection, with timeouts; the server loses some of them and answers others too late.
//!
//! ```sh
//! cargo run -p expiry-examples --bin rpc
//! ```

mod client;
mod in_flight;
mod server;

use clap::{value_parser, Parser};
use client::{CallError, Client, ConnectError, Replies};
use expiry::Timeouts;
use humantime::parse_duration;
use server::{serve, Faults, Served};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A client whose server loses requests: each call ends once, with a reply or a timeout, and late replies are told apart.
#[derive(Parser)]
struct Options {
    #[arg(long, default_value_t = 10_000)]
    calls: u64,
    /// Tasks that call, one call at a time each.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(1..))]
    callers: u64,
    #[arg(long, value_parser = parse_duration, default_value = "200ms")]
    timeout: Duration,
    /// The server loses every so manyth request; 0: none.
    #[arg(long, default_value_t = 100)]
    lose_every: u64,
    /// And answers every so manyth only after twice the timeout; 0: none.
    #[arg(long, default_value_t = 70)]
    delay_every: u64,
}

#[derive(Debug, thiserror::Error)]
enum RpcError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Build(#[from] expiry::BuildError),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    #[error("a call was refused: {0}")]
    Call(#[from] CallError),
    #[error("{number} squared is not {square}")]
    Wrong { number: u64, square: u64 },
    #[error("the books do not agree: {0}")]
    Books(&'static str),
}

/// How the calls have ended, by those who made them.
#[derive(Debug, Default, Clone, Copy)]
struct Calls {
    answered: u64,
    timed_out: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rpc: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), RpcError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let faults = Faults {
        lose_every: options.lose_every,
        delay_every: options.delay_every,
        delay: 2 * options.timeout,
    };
    let server = tokio::spawn(serve(listener, faults, Arc::new(Timeouts::new()?)));
    let client = Arc::new(Client::connect(address, options.timeout).await?);

    let mut callers = JoinSet::new();
    for caller in 0..options.callers {
        let numbers = (caller..options.calls).step_by(options.callers as usize);
        callers.spawn(call_all(client.clone(), numbers));
    }
    let mut calls = Calls::default();
    while let Some(done) = callers.join_next().await {
        let Calls { answered, timed_out } = done??;
        calls.answered += answered;
        calls.timed_out += timed_out;
    }
    let client = Arc::into_inner(client).ok_or(RpcError::Books("a caller is left"))?;
    let replies = client.close().await?;
    let served = server.await??;

    println!("calls:   {} answered, {} timed out", calls.answered, calls.timed_out);
    println!(
        "replies: {} in time, {} late, {} to nobody",
        replies.in_time, replies.late, replies.unknown
    );
    println!(
        "server:  {} received, {} lost, {} delayed",
        served.received, served.lost, served.delayed
    );
    check(options.calls, &calls, &replies, &served)?;
    println!("verdict: ok: each call has ended once");
    Ok(())
}

async fn call_all(
    client: Arc<Client>,
    numbers: impl Iterator<Item = u64>,
) -> Result<Calls, RpcError> {
    let mut calls = Calls::default();
    for number in numbers {
        match client.call(number).await {
            Ok(square) if square == number.wrapping_mul(number) => calls.answered += 1,
            Ok(square) => return Err(RpcError::Wrong { number, square }),
            Err(CallError::TimedOut) => calls.timed_out += 1,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(calls)
}

/// Four have counted, each by itself: callers, the table, who reads the replies, and the server.
fn check(made: u64, calls: &Calls, replies: &Replies, served: &Served) -> Result<(), RpcError> {
    let books = [
        (calls.answered + calls.timed_out == made, "calls have no end, or two"),
        (calls.timed_out == replies.timed_out, "timeouts told and timeouts had"),
        (calls.answered == replies.in_time, "replies told and replies in time"),
        (served.received == made, "calls made and requests received"),
        (
            served.received - served.lost == replies.in_time + replies.late,
            "replies sent and replies received",
        ),
        (replies.late >= served.delayed, "a delayed reply was in time"),
        (replies.unknown == 0, "a reply to nobody"),
    ];
    match books.iter().find(|(agree, _)| !agree) {
        Some((_, what)) => Err(RpcError::Books(what)),
        None => Ok(()),
    }
}
